//! Shared tables of zeros: many entries of many trees name one table, which never changes.
//!
//! When an entry first names such a table, all of it is checked: base entries map frames of zeros,
//! read-only, not executable, already accessed (hardware must have no reason to write to it);
//! entries above name such tables again. From then on a store to it stops the run, so it is not
//! checked again, and what it maps is counted for nobody.
//!
//! When the entry is replaced, cached translations of the pages below are stale only where the new
//! tree differs: a private table that maps the same zeros leaves them valid. Walk-cache entries
//! that lead to the shared table must go in any case.

use vellum::machine::Use;

use super::Rule;
use super::notes::{Obligation, TableNote};
use crate::format::{Format, Meaning};
use crate::machine::SimState;

impl<F: Format> SimState<F> {
    /// An entry names a shared table whose own entries are of `level`.
    pub(crate) fn zeros_come(&mut self, c: usize, table: u64, level: u8, va: u64) {
        let note = self.oracle.tables[table as usize];
        if note.level == level {
            return;
        }
        let mut wrong = (note.level != 0 || level > 2).then_some(0);
        for slot in 0..512u64 {
            let raw = self.ram.load(table << 12 | slot << 3);
            let sound = match F::meaning(raw, level) {
                Meaning::Leaf(frame, r) if level == 1 => {
                    let pfn = frame >> 12;
                    !r.write
                        && !r.exec
                        && r.user
                        && r.accessed
                        && pfn < self.ram.frames()
                        && self.oracle.uses[pfn as usize] == Use::Zero as u8
                        && self.contents.is_zero(pfn)
                }
                Meaning::Table(child, r) if level > 1 => {
                    let pfn = child >> 12;
                    let sound =
                        r.accessed && pfn < self.ram.frames() && self.oracle.is_zero_table(pfn);
                    if sound {
                        self.zeros_come(c, pfn, level - 1, va);
                    }
                    sound
                }
                _ => false,
            };
            wrong = wrong.or((!sound).then_some(slot));
        }
        if let Some(slot) = wrong {
            let why = format!(
                "slot {slot} of a shared table of zeros does not map zeros, read-only and accessed"
            );
            return self.fail(c, Rule::Zero, Some(va), Some(table), why);
        }
        self.oracle.tables[table as usize] =
            TableNote { va, cut: 0, root: 0, stores: note.stores, level };
    }

    /// An entry of `level` at `va` named a shared table; now it names the node `next`, or nothing
    /// below it stays as it was.
    pub(crate) fn zeros_go(&mut self, c: usize, root: u32, va: u64, level: u8, next: Option<u64>) {
        self.open_table(c, root, va, level);
        self.zeros_differ(c, root, va, level, next);
    }

    /// Opens obligations for what differs below an entry that named a shared table.
    fn zeros_differ(&mut self, c: usize, root: u32, va: u64, level: u8, next: Option<u64>) {
        let Some(next) = next.filter(|&next| next < self.ram.frames()) else {
            return self.open_zeros(c, root, va, 1u64 << (9 * (u32::from(level) - 1)));
        };
        if self.oracle.is_zero_table(next) {
            return;
        }
        for slot in 0..512u64 {
            let at = va + (slot << (12 + 9 * (u32::from(level) - 2)));
            match F::meaning(self.ram.load(next << 12 | slot << 3), level - 1) {
                Meaning::Table(below, _) if level > 2 => {
                    self.zeros_differ(c, root, at, level - 1, Some(below >> 12))
                }
                Meaning::Leaf(frame, r)
                    if level == 2
                        && r.user
                        && self.oracle.uses[(frame >> 12) as usize] == Use::Zero as u8 => {}
                _ => self.open_zeros(c, root, at, 1u64 << (9 * (u32::from(level) - 2))),
            }
        }
    }

    /// Base pages of zeros are mapped no longer, or by another frame.
    fn open_zeros(&mut self, c: usize, root: u32, va: u64, pages: u64) {
        let (open, asleep) = self.holders(root);
        if open.is_empty() && asleep.is_empty() {
            return;
        }
        let n = self.oracle.next;
        self.oracle.next += 1;
        let (start, end) = (va >> 12, (va >> 12) + pages);
        self.push(
            c,
            Obligation {
                root,
                start,
                end,
                first: n,
                last: n,
                level: 1,
                cut: 0,
                harmless: false,
                frame: 0,
                zeros: true,
                deferred: false,
                returned: false,
                open,
                asleep,
            },
        );
    }
}
