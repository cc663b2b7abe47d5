//! Speculative walks: what a processor may do with any loaded root, at any time.
//!
//! In hunting mode, wherever CPUs may change turns, a walk may begin, read one more entry, or end
//! by filling the TLB and walk caches. Stores by other CPUs fall between its steps, as on hardware.
//! An invalidation ends the walks in its scope on its CPU. A walk that read an entry that has
//! changed since may fill until then, and its fill is marked stale.

use vellum::machine::Scope;

use super::format::{Format, Meaning};
use super::fresh::{flags_of, size_of_level};
use super::in_flight::InFlight;
use crate::machine::SimState;
use crate::oracle::{Bug, Rule};
use crate::tlb::{Entry, Flags, TableEntry};

/// Walks under way at most.
const MOST: usize = 6;

impl<F: Format> SimState<F> {
    /// One chance for speculation.
    pub(crate) fn speculate(&mut self) {
        if self.in_flight.len() < MOST && self.rng.one_in(8) {
            let c = self.rng.below(self.cpus.len() as u64) as usize;
            if let Some(root) = self.cpus[c].root {
                let table = self.oracle.roots[root as usize].table << 12;
                let ctx = self.cpus[c].ctx;
                let w = InFlight {
                    cpu: c,
                    root,
                    ctx,
                    va: 0,
                    table,
                    level: self.mmu.levels,
                    limits: Flags::RIGHTS,
                    sources: [0; 5],
                    read: 0,
                    stale: false,
                    leaf: None,
                };
                self.in_flight.push(w);
            }
        }
        if !self.in_flight.is_empty() && self.rng.one_in(2) {
            let n = self.rng.below(self.in_flight.len() as u64) as usize;
            if !self.speculative_step(n) {
                self.in_flight.swap_remove(n);
            }
        }
    }

    /// Which part of a page a speculative walk was for, where a TLB holds it in pieces.
    fn piece_of(&mut self, entry: &Entry) -> u64 {
        let Some(tables) = &self.nested else { return entry.va };
        let piece = size_of_level(tables.leaf()).bytes();
        match entry.leaf.bytes() / piece {
            0 | 1 => entry.va,
            pieces => entry.va + self.rng.below(pieces) * piece,
        }
    }

    /// Advances a walk; false if it is over.
    fn speculative_step(&mut self, n: usize) -> bool {
        let mut w = self.in_flight[n].clone();
        if let Some(mut entry) = w.leaf {
            entry.stale |= w.stale;
            let fetch = self.rng.one_in(4);
            let va = self.piece_of(&entry);
            self.fill(w.cpu, entry, va, fetch);
            let cpu = &mut self.cpus[w.cpu];
            cpu.forget();
            cpu.counts.speculative_walks += 1;
            return false;
        }
        if !self.oracle.is_table(w.table >> 12) {
            let used = crate::oracle::frames::use_of(self.oracle.uses[(w.table >> 12) as usize]);
            self.fail(
                w.cpu,
                Rule::FreedTable,
                Some(w.va),
                Some(w.table >> 12),
                format!("a speculative walk reads a node in a frame that is {used:?}"),
            );
            return false;
        }
        let Some(slot) = self.present_slot(w.table) else { return false };
        let source = w.table | slot << 3;
        let raw = self.ram.load(source);
        w.va |= slot << (12 + 9 * (u32::from(w.level) - 1));
        w.sources[w.read] = source;
        w.read += 1;
        match F::meaning(raw, w.level) {
            Meaning::Table(next, r) if w.level > 1 && next >> 12 < self.ram.frames() => {
                if F::TABLES_ACCESSED && !r.accessed {
                    self.ram.store(source, F::accessed(raw));
                }
                w.limits = w.limits & flags_of(r, Flags::RIGHTS);
                let (va, level, flags) = (w.va, w.level, w.limits);
                let entry = TableEntry {
                    va,
                    table: next,
                    source,
                    tag: w.root,
                    ctx: w.ctx,
                    level,
                    flags,
                    stale: w.stale,
                };
                self.cpus[w.cpu].walk_cache.insert(entry);
                (w.table, w.level) = (next, w.level - 1);
            }
            Meaning::Leaf(frame, r) if r.accessed || self.mmu.sets_accessed => {
                if !r.accessed {
                    self.ram.store(source, F::accessed(raw));
                }
                let size = size_of_level(w.level);
                if !self.leaf_is_sound(w.cpu, frame, w.va, size.bytes()) {
                    return false;
                }
                let flags = flags_of(r, w.limits).with(Flags::ACCESSED, true);
                w.leaf = Some(Entry {
                    va: w.va,
                    frame,
                    source,
                    tag: w.root,
                    ctx: w.ctx,
                    size,
                    leaf: size,
                    flags,
                    stale: false,
                });
            }
            _ => return false,
        }
        self.in_flight[n] = w;
        true
    }

    /// A present slot of a node, chosen by seed.
    fn present_slot(&mut self, table: u64) -> Option<u64> {
        let first = self.rng.below(512);
        (0..512).map(|n| (first + n) & 511).find(|slot| self.ram.load(table | slot << 3) & 1 != 0)
    }

    /// An invalidation on a CPU ends the walks it covers there.
    pub(crate) fn end_walks(&mut self, c: usize, scope: Option<Scope>) {
        if self.in_flight.is_empty() || self.bug == Some(Bug::LateFill) {
            return;
        }
        self.in_flight.retain(|w| {
            if w.cpu != c {
                return true;
            }
            // What the walk depends on: the span below the last entry it read, or all of the
            // root's.
            let span = if w.leaf.is_some() {
                1u64 << (12 + 9 * (u32::from(w.level) - 1))
            } else {
                1u64 << (12 + 9 * u32::from(w.level))
            };
            let (start, end) = if w.read == 0 { (0, u64::MAX) } else { (w.va, w.va + span) };
            match scope {
                None | Some(Scope::All) => false,
                Some(Scope::Space(ctx)) => w.ctx != ctx.0,
                Some(Scope::Page(ctx, va)) => w.ctx != ctx.0 || va.0 < start || va.0 >= end,
                Some(Scope::Range(ctx, r, _)) => {
                    w.ctx != ctx.0 || r.end().0 <= start || r.start().0 >= end
                }
            }
        });
    }
}
