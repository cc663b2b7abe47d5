//! The subsystem as one value: a machine, its switches, and the memory handed in.
//!
//! A `Vm` owns its machine and is owned by whoever embeds it; two of them live side by side. It
//! asks once for memory, sized by [`Vm::layout`], for everything that is per frame or per CPU;
//! table nodes, regions and spaces live in the frames it manages.
//!
//! The verbs here delegate: each to a file of `ops`, or to the layer that does it.

mod memory;
mod objects;
mod verbs;

pub use crate::object::{DeviceMemory, GrabWait, Grabbed, Object, ObjectPart, ReadPattern};
pub use objects::Objects;

use core::alloc::Layout;
use core::ptr::NonNull;

use crate::addr::{Pfn, Va};
use crate::clear::Clear;
use crate::config::{Config, MOST_AROUND, NumaPolicy, ZeroHuge};
use crate::entry::Codec;
use crate::error::{InitError, ReserveError};
use crate::fault::Faults;
use crate::frame::Frames;
use crate::machine::{MAX_CPUS, Machine, Topology};
use crate::memory::Memory;
use crate::object::{ObjectLayer, Tries};
use crate::pagetable::PageTables;
use crate::platform::Platform;
use crate::rmap::Rmap;
use crate::stats::{CpuCounters, Stats};
use crate::sync::atomic::AtomicU64;
use crate::sync::{Epochs, Hands};
use crate::tlb::{CONTEXT_WORDS, Current, Tlb};
use crate::vma::Regions;
use crate::zero::Zero;
use crate::zero::page::ByColour;

/// The subsystem on one machine.
pub struct Vm<M: Machine> {
    pub(crate) layers: Faults<M>,
}

// SAFETY: what the pointers name is made of atomics and belongs to the value by the contract of
// `new`; `M` is asked to be `Send`.
unsafe impl<M: Machine + Send> Send for Vm<M> {}
// SAFETY: as above; `M` is asked to be `Sync`.
unsafe impl<M: Machine + Sync> Sync for Vm<M> {}

/// Where the parts of the handed-in memory begin.
struct Parts {
    whole: Layout,
    epochs: usize,
    hands: usize,
    counters: usize,
    current: usize,
    asids: usize,
    by_colour: usize,
}

impl Parts {
    fn of(topology: &Topology) -> Result<Parts, InitError> {
        let frames = Frames::layout(topology)?;
        let cpus = topology.cpus.clamp(1, MAX_CPUS);
        let too_large = |_| InitError::TooLarge;
        let array = |one: Layout, n: usize| {
            Layout::from_size_align(one.size() * n, one.align()).map_err(too_large)
        };
        let (whole, epochs) = frames.extend(Epochs::layout(cpus)).map_err(too_large)?;
        let (whole, hands) = whole.extend(Hands::layout(cpus)).map_err(too_large)?;
        let (whole, counters) =
            whole.extend(array(Layout::new::<CpuCounters>(), cpus)?).map_err(too_large)?;
        let (whole, current) =
            whole.extend(array(Layout::new::<Current>(), cpus)?).map_err(too_large)?;
        let (whole, asids) =
            whole.extend(array(Layout::new::<AtomicU64>(), CONTEXT_WORDS)?).map_err(too_large)?;
        let (whole, by_colour) =
            whole.extend(array(Layout::new::<ByColour>(), cpus)?).map_err(too_large)?;
        let whole = whole.pad_to_align();
        Ok(Parts { whole, epochs, hands, counters, current, asids, by_colour })
    }
}

impl<M: Machine> Vm<M> {
    /// The memory [`Vm::new`] wants for a machine of that topology; one page's worth for a topology
    /// `new` refuses. About 64 bytes a frame (1.6 %), plus 1.9 KiB per CPU and 752 bytes per CPU
    /// and node.
    pub fn layout(topology: &Topology) -> Layout {
        Parts::of(topology).map_or(Layout::new::<[u64; 512]>(), |parts| parts.whole)
    }

    /// A `Vm` that manages every frame of the machine's topology. Frames that are not for it, this
    /// very memory included if it lies in them, are to be [`reserve`](Vm::reserve)d before anything
    /// is allocated.
    ///
    /// # Errors
    /// What is wrong with the topology or the switches. [`InitError::Levels`]: the switch `levels`
    /// names a depth that the machine does not walk. [`InitError::ZeroTables`]: see
    /// [`NoZeroTables`](crate::entry::NoZeroTables). [`InitError::NumaNode`]: `numa` names a node
    /// that the topology does not have.
    ///
    /// # Safety
    /// - `meta` is memory of [`Vm::layout`]`(machine.topology())`, all zero, nobody else's while
    ///   the value lives.
    /// - It is not handed to another `Vm` while a [`Space`](crate::space::Space), an [`Object`],
    ///   [`Grabbed`] pages, a [`PageRun`](crate::machine::PageRun) or its answer, or a
    ///   [`Trie`](crate::unstable::Trie) of this one still exists: by its address they say whose
    ///   they are.
    /// - The frames of the topology are nobody else's while the value lives, but for those that the
    ///   caller reserves before anything is allocated. If `meta` lies in them the caller reserves
    ///   it.
    /// - The value is dropped only after every CPU has left its spaces, by
    ///   [`deactivate`](Vm::deactivate) or `exit`; or else neither the frames nor `meta` are used
    ///   for anything until every CPU has loaded another root and dropped its translations.
    ///   Dropping touches no CPU: one that still runs a space goes on walking its tables.
    pub unsafe fn new(
        machine: M,
        mut config: Config,
        meta: NonNull<u8>,
    ) -> Result<Vm<M>, InitError> {
        let parts = Parts::of(machine.topology())?;
        if !meta.cast::<u8>().as_ptr().addr().is_multiple_of(parts.whole.align()) {
            return Err(InitError::Unaligned);
        }
        config.file_around = config.file_around.min(MOST_AROUND);
        let rules = machine.rules();
        let levels = config.levels.unwrap_or(rules.levels);
        if levels != rules.levels || !(4..=5).contains(&levels) {
            return Err(InitError::Levels);
        }
        let tables = matches!(config.zero_huge, ZeroHuge::Table | ZeroHuge::TablePrivate);
        if tables && !M::Codec::ZERO_TABLES {
            return Err(InitError::ZeroTables);
        }
        let nodes = machine.topology().nodes;
        if let NumaPolicy::Bind(node) | NumaPolicy::Prefer(node) = config.numa
            && usize::from(node) >= nodes
        {
            return Err(InitError::NumaNode);
        }
        let cpus = machine.topology().cpus;
        // SAFETY: as below.
        let frames = unsafe { Frames::new(machine.topology(), meta) }?;
        let id = meta.addr().get();
        // SAFETY: the memory is zero, aligned and as long as the caller promises; the parts do not
        // overlap.
        let layers = unsafe {
            let (epochs, hands) = (
                Epochs::new(cpus, meta.add(parts.epochs)),
                Hands::new(cpus, meta.add(parts.hands)),
            );
            let platform = Platform::new(machine, config, id, meta.add(parts.counters).cast());
            let memory = Memory::new(platform, frames, epochs, hands);
            let tlb =
                Tlb::new(memory, meta.add(parts.current).cast(), meta.add(parts.asids).cast());
            let zero = Zero::new(Clear::new(tlb), meta.add(parts.by_colour).cast());
            Faults::new(ObjectLayer::new(Regions::new(PageTables::new(Rmap::new(zero)))))
        };
        Ok(Vm { layers })
    }

    /// Keeps frames out of the allocator for good; frames of no node are left alone.
    ///
    /// # Errors
    /// [`ReserveError::InUse`] once anything was allocated, as by the first space;
    /// [`ReserveError::Twice`]. Nothing changed.
    pub fn reserve(&mut self, first: Pfn, frames: u64) -> Result<(), ReserveError> {
        self.layers.frames.reserve(first, frames)
    }

    /// The machine below.
    #[inline]
    pub fn machine(&self) -> &M {
        &self.layers.machine
    }

    /// The switches in force.
    #[inline]
    pub fn config(&self) -> &Config {
        &self.layers.config
    }

    /// The frames: for tests, tools and embedders that allocate for themselves.
    #[inline]
    pub fn frames(&self) -> &Frames {
        &self.layers.frames
    }

    /// The tries that say what is at each index of an object: for tests and benches.
    #[inline]
    pub fn tries(&self) -> Tries<'_, M> {
        Tries::new(&self.layers)
    }

    /// First address past what programs may map: the user half, without its last page where the
    /// processor demands it (x86).
    #[inline]
    pub fn user_end(&self) -> Va {
        self.layers.user_end()
    }

    /// A reading of every counter, summed over the CPUs.
    pub fn stats(&self) -> Stats {
        self.layers.stats()
    }
}
