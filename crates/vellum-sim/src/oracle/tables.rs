//! Which table nodes belong to which tree.
//!
//! A root is known from its first load. From then on, every node linked below it is known by its
//! first address, its level and its root, because links are made by stores of entries. A node that
//! was built before it is linked is scanned once, when it is linked. A node that is detached is
//! scanned again: whatever was present in it may still be cached, so each leaf opens an obligation.

use vellum::machine::{CpuMask, Use};

use super::Rule;
use super::notes::{RootNote, TableNote};
use super::store::EntryAt;
use super::two_pages::Shown;
use crate::format::{Format, Meaning};
use crate::machine::SimState;

impl<F: Format> SimState<F> {
    /// Index of the root at a frame; a new one is scanned and remembered.
    pub(crate) fn root_index(&mut self, c: usize, table: u64) -> u32 {
        let note = self.oracle.tables[table as usize];
        if note.level == self.mmu.levels && note.root != 0 && note.cut == 0 {
            return note.root - 1;
        }
        let index = self.oracle.roots.len() as u32;
        self.oracle.roots.push(RootNote { table, cpus: CpuMask::EMPTY });
        self.link(c, table, self.mmu.levels, 0, index);
        index
    }

    /// A node, with all below it, becomes part of a tree.
    pub(crate) fn link(&mut self, c: usize, table: u64, level: u8, va: u64, root: u32) {
        if table < self.ram.frames() && self.oracle.is_zero_table(table) {
            self.shows(c, root, va, level + 1, Shown::Zeros);
            return self.zeros_come(c, table, level, va);
        }
        if table >= self.ram.frames() || self.oracle.uses[table as usize] != Use::Table as u8 {
            return self.fail(
                c,
                Rule::FrameState,
                Some(va),
                Some(table),
                format!("an entry of level {} names a table that is none", level + 1),
            );
        }
        let note = &mut self.oracle.tables[table as usize];
        if note.level != 0 {
            let why =
                format!("the table is linked at {va:#x} while it is linked at {:#x}", note.va);
            return self.fail(c, Rule::FrameState, Some(va), Some(table), why);
        }
        *note = TableNote { va, cut: 0, root: root + 1, stores: note.stores, level };
        for slot in 0..512u64 {
            let source = table << 12 | slot << 3;
            let raw = self.ram.load(source);
            if raw & 1 == 0 {
                continue;
            }
            let at = va + (slot << (12 + 9 * (u32::from(level) - 1)));
            match F::meaning(raw, level) {
                Meaning::Absent => {}
                Meaning::Leaf(frame, rights) => {
                    self.leaf_comes(c, EntryAt { root, va: at, level, source }, frame, rights)
                }
                Meaning::Table(child, _) if level > 1 => {
                    self.link(c, child >> 12, level - 1, at, root)
                }
                _ => return self.malformed(c, raw, level, at),
            }
            if self.stop.is_some() {
                return;
            }
        }
    }

    /// A node, with all below it, leaves its tree. What was present in it may be cached:
    /// obligations open.
    pub(crate) fn unlink(&mut self, c: usize, table: u64) {
        let note = self.oracle.tables[table as usize];
        if note.level == 0 || note.root == 0 {
            return;
        }
        let root = note.root - 1;
        self.oracle.tables[table as usize] =
            TableNote { level: 0, cut: self.oracle.next_cut, ..note };
        for slot in 0..512u64 {
            let source = table << 12 | slot << 3;
            let raw = self.ram.load(source);
            if raw & 1 == 0 {
                continue;
            }
            let va = note.va + (slot << (12 + 9 * (u32::from(note.level) - 1)));
            match F::meaning(raw, note.level) {
                Meaning::Leaf(frame, rights) => {
                    self.leaf_goes(frame, note.level, rights.write);
                    self.open_leaf(
                        c,
                        EntryAt { root, va, level: note.level, source },
                        frame,
                        rights,
                    );
                }
                Meaning::Table(child, _) if self.oracle.is_zero_table(child >> 12) => {
                    self.zeros_go(c, root, va, note.level, None);
                }
                Meaning::Table(child, _) => {
                    self.open_table(c, root, va, note.level);
                    self.unlink(c, child >> 12);
                }
                Meaning::Absent | Meaning::Malformed => {}
            }
        }
    }

    /// Whether hardware can no longer reach a table frame; stops the run if it can.
    pub(crate) fn table_may_go(&mut self, c: usize, pfn: u64) -> bool {
        let note = self.oracle.tables[pfn as usize];
        let mut why = None;
        if note.level != 0 {
            let root = &self.oracle.roots[note.root as usize - 1];
            if root.cpus.is_empty() {
                // A tree that no CPU can reach may be taken apart in any order.
                self.unlink(c, pfn);
            } else if root.table != pfn {
                why = Some(format!(
                    "it is still linked in a tree that CPUs {:?} may walk",
                    root.cpus
                ));
            }
        }
        for (n, cpu) in self.cpus.iter().enumerate() {
            if cpu.root.is_some_and(|r| self.oracle.roots[r as usize].table == pfn) {
                why = Some(format!("CPU {n} has it loaded as its root"));
            }
            let held = cpu.roots.iter().any(|r| r.root + 1 == note.root);
            if held && cpu.walk_cache.iter().any(|w| w.table >> 12 == pfn || w.source >> 12 == pfn)
            {
                why = Some(format!("CPU {n} holds it in its walk cache"));
            }
        }
        if let Some(cpus) = self.reaches(&note).filter(|_| note.cut != 0) {
            why = Some(format!("no covering flush ran on CPUs {cpus:?} since it was cut off"));
        }
        if self.in_flight.iter().any(|w| w.table >> 12 == pfn) {
            why = Some("a walk is under way in it".into());
        }
        if let Some(why) = why {
            self.fail(c, Rule::FreedTable, Some(note.va), Some(pfn), why);
            return false;
        }
        let note = &mut self.oracle.tables[pfn as usize];
        (note.level, note.cut, note.root) = (0, 0, 0);
        true
    }

    /// Forgets the trees that no CPU can reach. One that is loaded again later is scanned again.
    pub(crate) fn forget_unreachable(&mut self, c: usize) {
        for n in 0..self.oracle.roots.len() {
            let table = self.oracle.roots[n].table;
            if self.oracle.roots[n].cpus.is_empty()
                && self.oracle.tables[table as usize].root == n as u32 + 1
            {
                self.unlink(c, table);
            }
        }
    }

    pub(crate) fn malformed(&mut self, c: usize, raw: u64, level: u8, va: u64) {
        self.fail(
            c,
            Rule::Malformed,
            Some(va),
            None,
            format!(
                "entry {raw:#x} of level {level} has a reserved bit set or names memory that does \
                 not exist"
            ),
        );
    }
}
