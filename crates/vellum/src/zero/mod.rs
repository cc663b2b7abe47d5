//! The shared zeros, and clearing.
//!
//! A few frames of zeros stand behind every page that was read and never written. They are allocated when the first space is made
//! (an embedder reserves its own frames before that), never freed, never writable, never counted as anyone's memory; "is
//! this a zero page" is a range test on the frame number, not a look at a record (rule 6). How many there are, and which one an
//! address maps, is told in `colour`; a space may have none at all, by `forbid`. An empty table is none of them: it is a frame of
//! its own, of another use, as a zero frame's contents must stay zero and a table's need not.
//!
//! Clearing is page by page, ascending, with a scheduling point before each page where the kernel below is only preempted where it
//! asks: the plain way, against which better ones are to be measured.

pub mod colour;
mod forbid;

use crate::addr::{Order, Pfn};
use crate::config::Preemption;
use crate::machine::Machine;
use crate::vm::Vm;

impl<M: Machine> Vm<M> {
    /// Clears a block that is the caller's alone. May be rescheduled; no lock is held and no epoch entered. Not inlined, so that
    /// counts of instructions can tell it from the fault around it.
    #[inline(never)]
    pub(crate) fn clear_block(&self, first: Pfn, order: Order) {
        let m = &self.machine;
        let asks = matches!(self.config.preempt, Preemption::None | Preemption::Voluntary);
        for i in 0..order.frames() {
            if asks {
                m.sched_point();
            }
            m.clear(first.add(i), 1);
        }
    }
}
