//! From the constants of a checked machine to the shapes that the models are built from.

use super::constant::Constant;
use super::spec::{CacheSpec, Machine, TlbSpec, WalkLevel};
use super::units::{Duration, Threshold};
use crate::cache::{FirstLevel, Geometry, Index, PrefetchShape, Shape};
use crate::disk::DiskTimes;
use crate::memory::{NestedTables, Numa, Overlap, Ticks};
use crate::tlb::{BankShape, NestedShape, TlbShape, WalkCacheShape};

/// Bytes of a cache line on every machine modelled.
pub(super) const LINE: u64 = 64;
const PAGE: u64 = 4096;

/// Kinds of kernel work that have a price.
pub const WORK_COSTS: usize = vellum::machine::WORKS;

/// The fixed costs of a machine, as ticks. The names are those of [`CostSpec`](super::CostSpec).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The fields are documented where they are read from, in `CostSpec`.
pub struct Costs {
    pub interrupt_send: Ticks,
    pub interrupt_deliver: Ticks,
    pub interrupt_handle: Ticks,
    pub interrupt_ack: Ticks,
    pub broadcast_base: Ticks,
    pub broadcast_per_cpu: Ticks,
    pub flush_page: Ticks,
    pub flush_context: Ticks,
    pub flush_full: Ticks,
    pub root_load: Ticks,
    pub sched_point: Ticks,
    pub switch: Ticks,
    pub clear_page_line: Ticks,
    /// As in the file.
    pub clear_next_line: Ticks,
    pub clear_extent_line: Ticks,
    pub clear_elided_line: Ticks,
    pub clear_cached_line: Option<Ticks>,
    /// Bytes; 0: write-allocate is never avoided.
    pub elision_threshold: u64,
    pub copy_line: Ticks,
    pub charge_page: Ticks,
    pub uncharge_page: Ticks,
    pub uncharge_large: Ticks,
    pub map_file: Ticks,
    pub unmap_file: Ticks,
    pub file_call: Option<Ticks>,
    pub file_line: Option<Ticks>,
    pub write_call: Ticks,
    pub grow_call: Ticks,
    pub add_file: Ticks,
    pub drop_file: Ticks,
    /// Price of each kind of work, in the order of `WorkCosts`' fields, which is that of the
    /// library's `Work`.
    pub work: [Ticks; WORK_COSTS],
}

impl Machine {
    /// A time of this machine's file as ticks of its clock.
    pub fn ticks(&self, duration: &Duration) -> Ticks {
        duration.ticks(self.clock_hz.value)
    }

    /// The node of a CPU (0 for numbers the machine does not have).
    pub fn node_of_cpu(&self, cpu: usize) -> usize {
        self.nodes.iter().position(|n| n.cpus.0.contains(&(cpu as u32))).unwrap_or(0)
    }

    /// Frames of 4 KiB in all nodes.
    pub fn frames(&self) -> u64 {
        self.nodes.iter().map(|n| n.memory.0 >> 12).sum()
    }

    /// Lines of all nodes and of the hypervisor's tables behind them.
    fn lines(&self) -> u64 {
        let frames = self.frames();
        let behind = |n: NestedShape| NestedTables::new(frames, n.leaf(), n.levels).end();
        self.nested().map_or(frames * (PAGE / LINE), behind)
    }

    fn geometry(&self, cache: &CacheSpec, seed: u64) -> Geometry {
        let (ways, policy) = (cache.ways.value, cache.policy.value);
        let sets = cache.size.0 / LINE / u64::from(ways.max(1));
        let index = cache.index.as_ref().map_or(Index::Modulo, |index| index.value);
        Geometry { sets, ways, policy, index, seed }
    }

    /// The caches; `seed` drives random replacement.
    pub fn hierarchy(&self, seed: u64) -> Shape {
        let llc = &self.llc;
        Shape {
            cpus: self.cpus.value as usize,
            cpus_per_llc: self.cpus_per_llc.value as usize,
            l1i: self.geometry(&self.l1i, seed ^ 1 << 56),
            l1d: self.geometry(&self.l1d, seed ^ 2 << 56),
            l2: self.geometry(&self.l2, seed ^ 3 << 56),
            llc: self.geometry(&llc.cache(), seed ^ 4 << 56),
            inclusion: llc.inclusion.value,
            // Memory's latency is load-to-use, so a miss in the last level adds nothing to it.
            latency: [
                self.ticks(&self.l1d.latency),
                self.ticks(&self.l2.latency),
                self.ticks(&llc.latency),
                Ticks::ZERO,
            ],
            lines: self.lines(),
        }
    }

    /// What the first level of data does beside holding lines.
    pub fn first_level(&self) -> FirstLevel {
        FirstLevel {
            refill: self.l1d.refill.as_ref().map(|time| self.ticks(time)),
            refill_dirty: self.l1d.refill_dirty.as_ref().map(|time| self.ticks(time)),
            predicts_ways: self.l1d.way_predictor.is_some(),
        }
    }

    /// The prefetcher of each core, if there is one.
    pub fn prefetcher(&self) -> Option<PrefetchShape> {
        let spec = self.prefetch.as_ref()?;
        let holds = |fact: &Option<Constant<bool>>| fact.as_ref().is_some_and(|fact| **fact);
        Some(PrefetchShape {
            streams: *spec.streams,
            train: *spec.train,
            depth: *spec.depth,
            walks: holds(&spec.walks),
            crosses_pages: holds(&spec.crosses_pages),
        })
    }

    /// The memory nodes.
    pub fn numa(&self) -> Numa {
        let row = |row: &Vec<Duration>| row.iter().map(|d| self.ticks(d)).collect();
        Numa {
            frames: self.nodes.iter().map(|n| n.memory.0 >> 12).collect(),
            line_time: self.nodes.iter().map(|n| self.time_of(LINE, n.bandwidth.0)).collect(),
            latency: self.memory.latency.iter().map(row).collect(),
        }
    }

    /// The disk, if there is one.
    pub fn disk_times(&self) -> Option<DiskTimes> {
        let disk = self.disk.as_ref()?;
        Some(DiskTimes {
            read_latency: self.ticks(&disk.read_latency),
            write_latency: self.ticks(&disk.write_latency),
            read_page: self.time_of(PAGE, disk.read_bandwidth.0),
            write_page: self.time_of(PAGE, disk.write_bandwidth.0),
            requests: *disk.requests,
            cpu: self.ticks(&disk.cpu) + self.ticks(&self.costs.switch),
        })
    }

    /// The time that bytes take at a bandwidth.
    fn time_of(&self, bytes: u64, bandwidth: u64) -> Ticks {
        let ticks =
            u128::from(bytes) * u128::from(self.clock_hz.value) * u128::from(Ticks::PER_CYCLE);
        Ticks(((ticks + u128::from(bandwidth) / 2) / u128::from(bandwidth.max(1))) as u64)
    }

    /// The core.
    pub fn overlap(&self) -> Overlap {
        let optional =
            |time: &Option<Constant<_>>| time.as_ref().map_or(Ticks::ZERO, |t| self.ticks(t));
        Overlap {
            fill_buffers: self.core.fill_buffers.value,
            walkers: self.core.walkers.value,
            window: self.core.window.value,
            store_buffer: self.core.store_buffer.as_ref().map_or(0, |n| n.value),
            instruction: self.ticks(&self.core.instruction),
            l1: self.ticks(&self.l1d.latency),
            load: optional(&self.core.load),
            mispredict: optional(&self.core.mispredict),
            last_level_line: optional(&self.llc.line),
        }
    }

    /// The walk caches.
    pub fn walk_cache(&self) -> WalkCacheShape {
        let walk = &self.tlb.walk;
        walk_levels([&walk.level2, &walk.level3, &walk.level4, &walk.level5])
    }

    /// The hypervisor's tables, if the machine is a guest.
    pub fn nested(&self) -> Option<NestedShape> {
        let nested = self.mmu.nested.as_ref()?;
        let walk = &nested.walk;
        Some(NestedShape {
            page: nested.page.value,
            levels: nested.levels.value,
            entries: nested.entries.value,
            ways: nested.ways.value,
            walk: walk_levels([&walk.level2, &walk.level3, &walk.level4, &walk.level5]),
        })
    }

    /// The fixed costs.
    pub fn costs(&self) -> Costs {
        let t = |d: &Constant<Duration>| self.ticks(&d.value);
        let optional = |d: &Option<Constant<Duration>>| d.as_ref().map_or(Ticks::ZERO, t);
        let c = &self.costs;
        let w = &c.work;
        let work = [
            &w.fault,
            &w.call,
            &w.descend,
            &w.scan,
            &w.entry,
            &w.region,
            &w.magazine,
            &w.refill,
            &w.block,
            &w.large,
            &w.table,
            &w.contended,
        ];
        Costs {
            interrupt_send: t(&c.interrupt_send),
            interrupt_deliver: t(&c.interrupt_deliver),
            interrupt_handle: t(&c.interrupt_handle),
            interrupt_ack: t(&c.interrupt_ack),
            broadcast_base: t(&c.broadcast_base),
            broadcast_per_cpu: t(&c.broadcast_per_cpu),
            flush_page: t(&c.flush_page),
            flush_context: t(&c.flush_context),
            flush_full: t(&c.flush_full),
            root_load: t(&c.root_load),
            sched_point: t(&c.sched_point),
            switch: t(&c.switch),
            clear_page_line: t(&c.clear_page_line),
            clear_next_line: t(&c.clear_next_line),
            clear_extent_line: t(&c.clear_extent_line),
            clear_elided_line: t(&c.clear_elided_line),
            clear_cached_line: c.clear_cached_line.as_ref().map(t),
            elision_threshold: match *c.elision_threshold {
                Threshold::Bytes(bytes) => bytes,
                Threshold::LastLevel => self.llc.size.0,
            },
            copy_line: t(&c.copy_line),
            charge_page: optional(&c.charge_page),
            uncharge_page: optional(&c.uncharge_page),
            uncharge_large: optional(&c.uncharge_large),
            map_file: optional(&c.map_file),
            unmap_file: optional(&c.unmap_file),
            file_call: c.file_call.as_ref().map(t),
            file_line: c.file_line.as_ref().map(t),
            write_call: optional(&c.write_call),
            grow_call: optional(&c.grow_call),
            add_file: optional(&c.add_file),
            drop_file: optional(&c.drop_file),
            work: work.map(t),
        }
    }
}

/// The shape of walk caches for levels 2 to 5.
fn walk_levels(levels: [&Option<WalkLevel>; 4]) -> WalkCacheShape {
    let level = |l: &Option<WalkLevel>| l.as_ref().map(|l| (l.entries.value, l.ways.value));
    WalkCacheShape { levels: levels.map(level) }
}

impl TlbSpec {
    /// The shape of this TLB.
    pub fn shape(&self) -> TlbShape {
        let bank = |b: &super::spec::TlbBank| BankShape {
            entries: b.entries.value,
            ways: b.ways.value,
            sizes: b.sizes.value.clone(),
        };
        TlbShape { banks: self.banks.iter().map(bank).collect(), fracture: self.fracture.value }
    }
}
