//! The shared zeros, and clearing.
//!
//! One frame of zeros stands behind every page that was read and never written. It is allocated when the first space is made
//! (an embedder reserves its own frames before that), never freed, never writable, never counted as anyone's memory; "is
//! this a zero page" is a range test on the frame number, not a look at a record (rule 6).
//!
//! Clearing is page by page, ascending, with a scheduling point before each page where the kernel below is only preempted where it
//! asks: the plain way, against which better ones are to be measured.

use crate::addr::{Order, Pfn};
use crate::config::Preemption;
use crate::error::NoMemory;
use crate::frame::Want;
use crate::machine::{Machine, Use};
use crate::sync::atomic::Ordering;
use crate::vm::Vm;

impl<M: Machine> Vm<M> {
    /// First frame and number of the shared zeros; none before the first space, or with `zero.page=off`.
    #[inline]
    pub fn zeros(&self) -> (Pfn, u64) {
        match self.zero.load(Ordering::Relaxed) {
            0 => (Pfn(0), 0),
            n => (Pfn(n - 1), 1),
        }
    }

    /// Whether a frame is shared zeros.
    #[inline]
    pub fn is_zero(&self, pfn: Pfn) -> bool {
        let (first, frames) = self.zeros();
        pfn.0.wrapping_sub(first.0) < frames
    }

    /// Makes the zeros if they are wanted and there are none.
    pub(crate) fn make_zeros(&self) -> Result<(), NoMemory> {
        if !self.config.zero_page || self.zero.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        let m = &self.machine;
        let pfn = self.frames.alloc(m, Order::BASE, &Want::kernel(Use::Zero))?;
        m.clear(pfn, 1);
        self.frames.record(pfn).set_head(Use::Zero, Order::BASE);
        if self.zero.compare_exchange(0, pfn.0 + 1, Ordering::AcqRel, Ordering::Acquire).is_err() {
            self.frames.free(m, pfn, Order::BASE);
        }
        Ok(())
    }

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
