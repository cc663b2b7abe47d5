//! Planted bugs: tests show that the oracle finds them.
//!
//! A planted bug changes what the machine does or is told, never what the oracle knows of the
//! rules. Each stands for a mistake in a kernel or in hardware.

use vellum::addr::{Order, Pfn};
use vellum::machine::Use;

use super::bug::Bug;
use crate::format::{Format, Meaning};
use crate::machine::SimState;

impl<F: Format> SimState<F> {
    /// [`Bug::WritableShared`], [`Bug::SkippedAbsent`]: a store that takes the right to write or
    /// the whole page away is lost.
    pub(crate) fn loses_store(&mut self, old: u64, new: u64, table: u64) -> bool {
        if !matches!(self.bug, Some(Bug::WritableShared | Bug::SkippedAbsent)) {
            return false;
        }
        let level = self.oracle.tables[table as usize].level.max(1);
        let lost = match (F::meaning(old, level), F::meaning(new, level)) {
            (Meaning::Leaf(a, ra), Meaning::Leaf(b, rb)) => {
                self.bug == Some(Bug::WritableShared) && a == b && ra.write && !rb.write
            }
            (Meaning::Leaf(..), Meaning::Absent) => self.bug == Some(Bug::SkippedAbsent),
            _ => false,
        };
        self.planted += u64::from(lost);
        lost
    }

    /// [`Bug::EarlyFree`]: the frame of an entry that was just removed is given back at once.
    pub(crate) fn after_store(&mut self, c: usize, old: u64, new: u64, table: u64) {
        let level = self.oracle.tables[table as usize].level;
        if self.bug != Some(Bug::EarlyFree) || level != 1 {
            return;
        }
        if let (Meaning::Leaf(frame, _), Meaning::Absent) = (F::meaning(old, 1), F::meaning(new, 1))
            && self.oracle.uses[(frame >> 12) as usize] == Use::Data as u8
            && self.oracle.frames[(frame >> 12) as usize].maps == 0
        {
            self.planted += 1;
            self.frame_event(c, Pfn(frame >> 12), Order::BASE, Use::Free);
        }
    }
}
