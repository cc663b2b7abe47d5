//! A page walk for a program: through the walk caches and the data caches, setting accessed and
//! dirty bits.
//!
//! A walk by a program is one step of its CPU. Walks with steps of other CPUs in between are those
//! of [`speculate`](super::speculate). Reading a node that is no longer a table stops the run at
//! once (line 6), whatever its bytes are.

use vellum::machine::Use;

use super::format::{Format, Meaning};
use super::fresh::{flags_of, offset_of, size_of_level};
use crate::cache::{Agent, Kind, Level, Prefetcher};
use crate::cpu::Kind as Access;
use crate::cpu::prefetch::Miss;
use crate::machine::SimState;
use crate::memory::Ticks;
use crate::oracle::Rule;
use crate::tlb::{Entry, Flags, TableEntry};

/// How a walk ended.
pub(crate) enum Walked {
    /// A translation that allows the access, marks set, not yet in any TLB.
    Leaf(Entry),
    /// A fault; the node where the walk ended.
    Fault { table: u64 },
    /// The run is stopped.
    Stopped,
}

impl<F: Format> SimState<F> {
    /// Time of one read of `line` by the walker of a CPU, some time from now. The line is in the
    /// memory node of line `home`.
    #[inline]
    pub(crate) fn walker_read(&mut self, c: usize, line: u64, home: u64, after: Ticks) -> Ticks {
        let served = self.caches.access(c, Agent::Walk, line, Kind::Load);
        let level = served.level as usize;
        let mut time = self.caches.latency(served.level);
        if served.level == Level::Memory {
            let cpu = &self.cpus[c];
            time += self.memory.read(cpu.core.now() + after, cpu.node, home);
            self.forget_recalled();
        }
        if served.write_backs > 0 {
            self.write_back(c);
        }
        let watched = |p: &Prefetcher| p.watches_walks();
        if served.level != Level::L1 && self.cpus[c].prefetcher.as_deref().is_some_and(watched) {
            time = self.walk_trains(
                c,
                line,
                Miss { level: served.level, latency: time, pushed: served.pushed },
                after,
            );
        }
        self.cpus[c].counts.walk_reads[level] += time;
        time
    }

    /// Walks for an access of a loaded root; returns the end and the latency.
    pub(crate) fn walk(&mut self, c: usize, root: u32, va: u64, access: Access) -> (Walked, Ticks) {
        let levels = self.mmu.levels;
        let ctx = self.cpus[c].ctx;
        let mut table = self.oracle.roots[root as usize].table << 12;
        let mut level = levels;
        let mut limits = Flags::RIGHTS;
        let mut stale = false;
        // Whether the host address of `table` is still to be found.
        let mut unknown = self.nested.is_some();
        if let Some(hit) = self.cpus[c].walk_cache.lookup(ctx, va, levels) {
            (table, level, limits, stale) =
                (hit.table, hit.level - 1, hit.flags & Flags::RIGHTS, hit.stale);
            unknown = false;
        }
        if stale && self.excuse(c, root, va >> 12).is_none_or(|p| p.deferred) {
            self.fail(
                c,
                Rule::Stale,
                Some(va),
                Some(table >> 12),
                "a walk starts from a cached table entry that changed".into(),
            );
            return (Walked::Stopped, Ticks::ZERO);
        }
        let mut time = self.costs.walk_start;
        let mut steps = 0;
        let end = loop {
            if !self.oracle.is_table(table >> 12) {
                let used = crate::oracle::frames::use_of(self.oracle.uses[(table >> 12) as usize]);
                self.fail(
                    c,
                    Rule::FreedTable,
                    Some(va),
                    Some(table >> 12),
                    format!("a walk reads a node of level {level} in a frame that is {used:?}"),
                );
                break Walked::Stopped;
            }
            let source = table | offset_of(va, level);
            let raw = self.ram.load(source);
            steps += 1;
            if unknown {
                time += self.nested_walk(c, source, time);
            }
            // Reads follow each other. One table's few are booked at once, a guest's many are not.
            let after = if self.nested.is_some() { time } else { Ticks::ZERO };
            time += self.walker_read(c, source >> 6, source >> 6, after);
            match F::meaning(raw, level) {
                Meaning::Absent => break Walked::Fault { table: table >> 12 },
                Meaning::Table(next, r) if level > 1 && next >> 12 < self.ram.frames() => {
                    if F::TABLES_ACCESSED && !r.accessed {
                        self.ram.store(source, F::accessed(raw));
                    }
                    limits = limits & flags_of(r, Flags::RIGHTS);
                    let entry = TableEntry {
                        va,
                        table: next,
                        source,
                        tag: root,
                        ctx,
                        level,
                        flags: limits,
                        stale,
                    };
                    self.cpus[c].walk_cache.insert(entry);
                    table = next;
                    level -= 1;
                    unknown = self.nested.is_some();
                }
                Meaning::Leaf(frame, r) => {
                    let (flags, size) = (flags_of(r, limits), size_of_level(level));
                    let need = match access {
                        Access::Load => Flags::USER,
                        Access::Store => Flags::USER | Flags::WRITE,
                        Access::Fetch => Flags::USER | Flags::EXECUTE,
                    };
                    let dirties = access == Access::Store && !r.dirty;
                    if !flags.contains(need)
                        || !r.accessed && !self.mmu.sets_accessed
                        || dirties && !self.mmu.sets_dirty
                    {
                        break Walked::Fault { table: table >> 12 };
                    }
                    let marked = if dirties { F::dirty(raw) } else { F::accessed(raw) };
                    if marked != raw {
                        self.ram.store(source, marked);
                    }
                    let flags = flags.with(Flags::ACCESSED, true).with(Flags::DIRTY, dirties);
                    if !self.leaf_is_sound(c, frame, va, size.bytes()) {
                        break Walked::Stopped;
                    }
                    if self.nested.is_some() {
                        time += self.nested_walk(c, frame + (va & (size.bytes() - 1)), time);
                    }
                    let va = size.base(va);
                    break Walked::Leaf(Entry {
                        va,
                        frame,
                        source,
                        tag: root,
                        ctx,
                        size,
                        leaf: size,
                        flags,
                        stale,
                    });
                }
                _ => {
                    self.malformed(c, raw, level, va);
                    break Walked::Stopped;
                }
            }
        };
        self.cpus[c].counts.walk_steps += steps;
        self.cpus[c].counts.walk_time += time;
        self.cpus[c].counts.walk_starts += self.costs.walk_start;
        (end, time)
    }

    /// Whether what a walk found may be cached: the frame has an owner, and no foreign
    /// contents.
    pub(crate) fn leaf_is_sound(&mut self, c: usize, frame: u64, va: u64, bytes: u64) -> bool {
        let pfn = (frame + (va & (bytes - 1))) >> 12;
        if self.ram.is_device(pfn) && pfn < self.ram.frames() {
            return true;
        }
        let used =
            if pfn < self.ram.frames() { self.oracle.uses[pfn as usize] } else { Use::Free as u8 };
        if !crate::oracle::frames::is_data(used) && used != Use::Zero as u8 {
            let used = crate::oracle::frames::use_of(used);
            self.fail(
                c,
                Rule::FrameState,
                Some(va),
                Some(pfn),
                format!("a walk finds a leaf of a frame that is {used:?}"),
            );
            return false;
        }
        if self.walk_check && self.contents.is_foreign(pfn) {
            self.fail(
                c,
                Rule::Dirty,
                Some(va),
                Some(pfn),
                "a walk finds a leaf of a frame that still has its last owner's bytes".into(),
            );
            return false;
        }
        true
    }

    /// Puts a translation in the second-level TLB and in one first-level TLB. It covers the smaller
    /// of the page and of the hypervisor's page below it.
    pub(crate) fn fill(&mut self, c: usize, entry: Entry, va: u64, fetch: bool) {
        let kept = match &self.nested {
            Some(tables) => entry.piece(size_of_level(tables.leaf()), va),
            None => entry,
        };
        let cpu = &mut self.cpus[c];
        if let Some(tlb) = &mut cpu.tlb_l2 {
            tlb.insert(kept, va);
        }
        let tlb = if fetch { &mut cpu.tlb_l1i } else { &mut cpu.tlb_l1d };
        tlb.insert(kept, va);
        if self.walk_check {
            let mut overlap = None;
            for tlb in cpu.tlbs() {
                // What is held in pieces stands for these alone.
                let (start, end) = (kept.va, kept.va + kept.size.bytes());
                overlap = overlap.or(tlb
                    .iter()
                    .find(|o| {
                        o.ctx == entry.ctx
                            && o.leaf != entry.leaf
                            && o.va < end
                            && start < o.va + o.size.bytes()
                    })
                    .copied());
            }
            if let Some(o) = overlap {
                let why = format!(
                    "one TLB holds it as {:?} (frame {:#x}) and now as {:?} (frame {:#x})",
                    o.leaf,
                    o.frame >> 12,
                    entry.leaf,
                    entry.frame >> 12
                );
                self.fail(c, Rule::Size, Some(va), Some(entry.frame >> 12), why);
            }
        }
    }
}
