//! What a simulated machine is built from: every size and cost resolved to plain numbers.
//!
//! Machine files carry sources and units; the machine wants ticks and counts. Between the two
//! stands this value, so that tests can build odd machines without writing files, and the hot path
//! never converts units.

use vellum::machine::WORKS;

use crate::cache::{FirstLevel, PrefetchShape, Shape};
use crate::disk::DiskTimes;
use crate::file::{Codec, Invalidation, Machine};
use crate::memory::{Numa, Overlap, Ticks};
use crate::tlb::{NestedShape, PageSize, TlbShape, WalkCacheShape};

/// How an MMU behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mmu {
    /// Levels of its page tables, 4 or 5.
    pub levels: u8,
    /// Largest leaf.
    pub max_leaf: PageSize,
    /// Contexts its TLBs keep apart, 0 for none.
    pub contexts: u16,
    /// Walks set the accessed bit; otherwise an entry without it faults.
    pub sets_accessed: bool,
    /// Writes set the dirty mark; otherwise a write to a clean page faults.
    pub sets_dirty: bool,
    /// A fault drops what the CPU holds for the address.
    pub fault_invalidates: bool,
    /// A live entry may not change address or size without being absent and flushed in between.
    pub break_before_make: bool,
    /// Remote invalidation is an instruction, not an interrupt.
    pub broadcast: bool,
}

/// What acts of the machine and pieces of kernel work cost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Costs {
    /// By [`vellum::machine::Work`].
    pub work: [Ticks; WORKS],
    /// The sender's time for each target of an interrupt.
    pub interrupt_send: Ticks,
    /// From sending to the target's first instruction.
    pub interrupt_deliver: Ticks,
    /// The target's time, without the invalidation itself.
    pub interrupt_handle: Ticks,
    /// From the target's acknowledgement to the sender's noticing.
    pub interrupt_ack: Ticks,
    /// A broadcast invalidation with its barrier.
    pub broadcast_base: Ticks,
    /// What each further CPU adds to it.
    pub broadcast_per_cpu: Ticks,
    /// Invalidating one page on this CPU.
    pub flush_page: Ticks,
    /// Invalidating one context on this CPU.
    pub flush_context: Ticks,
    /// Invalidating everything on this CPU.
    pub flush_full: Ticks,
    /// Loading a root.
    pub root_load: Ticks,
    /// Clearing a line of a single base page.
    pub clear_line: Ticks,
    /// Clearing a line of a base page that follows the one cleared just before.
    pub clear_line_next: Ticks,
    /// Clearing a line of a longer run.
    pub clear_line_extent: Ticks,
    /// Clearing a line by non-temporal stores, or of a run past `elision_threshold`, when the
    /// core stops reading lines it is about to overwrite.
    pub clear_line_elided: Ticks,
    /// Clearing a line through the caches that one of them holds; `None`: as any other.
    pub clear_line_cached: Option<Ticks>,
    /// Length from which lines are elided, in bytes.
    pub elision_threshold: u64,
    /// Copying a line.
    pub copy_line: Ticks,
    /// A base page that becomes a program's.
    pub charge_page: Ticks,
    /// A base page that a program gives back.
    pub uncharge_page: Ticks,
    /// A 2 MiB page that a program gives back.
    pub uncharge_large: Ticks,
    /// A base page of an object that an entry comes to map.
    pub map_file: Ticks,
    /// A base page of an object that an entry maps no longer.
    pub unmap_file: Ticks,
    /// A system call that moves bytes, if it is not as any other.
    pub file_call: Option<Ticks>,
    /// A line that it moves, where caches hold it, if it is not copied as elsewhere.
    pub file_line: Option<Ticks>,
    /// What such a call takes more where it writes to a file.
    pub write_call: Ticks,
    /// What it takes more where that gives the file pages.
    pub grow_call: Ticks,
    /// A base page of an object that comes into memory.
    pub add_file: Ticks,
    /// A base page of an object that leaves memory.
    pub drop_file: Ticks,
    /// A hit in the second-level TLB.
    pub stlb_hit: Ticks,
    /// A walk, beside its reads.
    pub walk_start: Ticks,
    /// A scheduling point that finds nothing to do.
    pub sched_point: Ticks,
    /// One round of a wait loop.
    pub pause: Ticks,
}

impl Costs {
    /// Everything costs the same small time: for tests that are not about time.
    pub fn flat(cycles: u64) -> Costs {
        let t = Ticks::from_cycles(cycles);
        Costs {
            work: [t; WORKS],
            interrupt_send: t,
            interrupt_deliver: t,
            interrupt_handle: t,
            interrupt_ack: t,
            broadcast_base: t,
            broadcast_per_cpu: t,
            flush_page: t,
            flush_context: t,
            flush_full: t,
            root_load: t,
            clear_line: t,
            clear_line_next: t,
            clear_line_extent: t,
            clear_line_elided: t,
            clear_line_cached: None,
            elision_threshold: u64::MAX,
            copy_line: t,
            charge_page: Ticks::ZERO,
            uncharge_page: Ticks::ZERO,
            uncharge_large: Ticks::ZERO,
            map_file: Ticks::ZERO,
            unmap_file: Ticks::ZERO,
            file_call: None,
            file_line: None,
            write_call: Ticks::ZERO,
            grow_call: Ticks::ZERO,
            add_file: Ticks::ZERO,
            drop_file: Ticks::ZERO,
            stlb_hit: t,
            walk_start: Ticks::ZERO,
            sched_point: t,
            pause: t,
        }
    }
}

/// A machine, resolved.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Name, for reports.
    pub name: String,
    /// Entry format: [`crate::format::Format::NAME`].
    pub format: String,
    /// Clock rate of the CPUs, in hertz.
    pub clock_hz: u64,
    /// The core's overlap model, the same for all CPUs.
    pub core: Overlap,
    /// The caches; `caches.cpus` is the number of CPUs.
    pub caches: Shape,
    /// What the first level of data does beside holding lines.
    pub first: FirstLevel,
    /// The stream prefetcher beside each L2, if there is one.
    pub prefetch: Option<PrefetchShape>,
    /// Memory nodes.
    pub numa: Numa,
    /// The node of each CPU.
    pub cpu_node: Vec<u8>,
    /// First-level instruction TLB.
    pub tlb_l1i: TlbShape,
    /// First-level data TLB.
    pub tlb_l1d: TlbShape,
    /// Second-level TLB, if there is one.
    pub tlb_l2: Option<TlbShape>,
    /// Page-walk caches.
    pub walk_cache: WalkCacheShape,
    /// The hypervisor's tables, if the machine is a guest.
    pub nested: Option<NestedShape>,
    /// The MMU's rules.
    pub mmu: Mmu,
    /// Costs.
    pub costs: Costs,
    /// The disk that files are on, if there is one.
    pub disk: Option<DiskTimes>,
}

/// One round of a wait loop. A PAUSE takes 10 to 140 cycles, by model; in timing runs it only sets
/// how finely a waiting CPU's clock follows the one it waits for, since a CPU that is behind all
/// others skips to them.
const PAUSE: Ticks = Ticks::from_cycles(40);

impl Parts {
    /// The parts of a machine file. `seed` drives random replacement in its caches.
    pub fn of(file: &Machine, seed: u64) -> Parts {
        let mmu = &file.mmu;
        let cpus = file.cpus.value as usize;
        let (hardware, c) = (mmu.hardware_ad.value, file.costs());
        Parts {
            name: file.name.clone(),
            format: match mmu.codec.value {
                Codec::X86_64 => "x86_64".into(),
                Codec::Aarch64 => "aarch64".into(),
            },
            clock_hz: file.clock_hz.value,
            core: file.overlap(),
            caches: file.hierarchy(seed),
            first: file.first_level(),
            prefetch: file.prefetcher(),
            numa: file.numa(),
            cpu_node: (0..cpus).map(|cpu| file.node_of_cpu(cpu) as u8).collect(),
            tlb_l1i: file.tlb.l1i.shape(),
            tlb_l1d: file.tlb.l1d.shape(),
            tlb_l2: (!file.tlb.l2.banks.is_empty()).then(|| file.tlb.l2.shape()),
            walk_cache: file.walk_cache(),
            nested: file.nested(),
            mmu: Mmu {
                levels: mmu.levels.value,
                max_leaf: mmu.max_leaf.value,
                contexts: mmu.contexts.value,
                sets_accessed: hardware,
                sets_dirty: hardware,
                fault_invalidates: mmu.fault_invalidates.value,
                break_before_make: mmu.break_before_make.value,
                broadcast: mmu.invalidation.value == Invalidation::Broadcast,
            },
            costs: Costs {
                work: c.work,
                interrupt_send: c.interrupt_send,
                interrupt_deliver: c.interrupt_deliver,
                interrupt_handle: c.interrupt_handle,
                interrupt_ack: c.interrupt_ack,
                broadcast_base: c.broadcast_base,
                broadcast_per_cpu: c.broadcast_per_cpu,
                flush_page: c.flush_page,
                flush_context: c.flush_context,
                flush_full: c.flush_full,
                root_load: c.root_load,
                clear_line: c.clear_page_line,
                clear_line_next: c.clear_next_line,
                clear_line_extent: c.clear_extent_line,
                clear_line_elided: c.clear_elided_line,
                clear_line_cached: c.clear_cached_line,
                elision_threshold: if c.elision_threshold == 0 {
                    u64::MAX
                } else {
                    c.elision_threshold
                },
                copy_line: c.copy_line,
                charge_page: c.charge_page,
                uncharge_page: c.uncharge_page,
                uncharge_large: c.uncharge_large,
                map_file: c.map_file,
                unmap_file: c.unmap_file,
                file_call: c.file_call,
                file_line: c.file_line,
                write_call: c.write_call,
                grow_call: c.grow_call,
                add_file: c.add_file,
                drop_file: c.drop_file,
                stlb_hit: file.ticks(&file.tlb.l2.latency),
                walk_start: file
                    .tlb
                    .walk
                    .start
                    .as_ref()
                    .map_or(Ticks::ZERO, |start| file.ticks(start)),
                sched_point: c.sched_point,
                pause: PAUSE,
            },
            disk: file.disk_times(),
        }
    }
}

impl Costs {
    /// The same costs with invalidations free: what a broadcast costs the CPUs that only hear it.
    pub(crate) fn free_flushes(&self) -> Costs {
        let zero = Ticks::ZERO;
        Costs { flush_page: zero, flush_context: zero, flush_full: zero, ..self.clone() }
    }
}
