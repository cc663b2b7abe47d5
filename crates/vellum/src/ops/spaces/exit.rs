//! The end of a space.
//!
//! Nobody runs in it and nobody holds it, so the table is taken apart in one pass after one flush:
//! what remains of the space on CPUs are translations under its asid and walk caches, never a
//! loaded root.

use crate::addr::{Va, VaRange};
use crate::fault::Faults;
use crate::frame::SlabRef;
use crate::machine::{Act, Machine, Verb};
use crate::ops::spaces::fork::Fork;
use crate::platform::over;
use crate::space::{Space, SpaceRecord};
use crate::sync::atomic::Ordering;
use crate::sync::{Token, Top};
use crate::vma::deferred_free::DeferredFree;

pub(crate) struct Exit<'v, M: Machine>(pub &'v Faults<M>);

over!(Exit, Faults);

impl<M: Machine> Exit<'_, M> {
    /// `Vm::exit`.
    pub fn exit(self, space: Space) {
        self.verb(Verb::Exit, || {
            let m = &self.machine;
            let record = self.record_of(&space);
            m.preempt_off();
            if self.current(m.cpu()).load(Ordering::Relaxed) == space.handle.raw() {
                self.deactivate();
            }
            m.allow_preemption();
            while (0..self.cpus).any(|cpu| record.active.contains(cpu)) {
                m.relax();
            }
            // Not before: a CPU that runs in it may wait for those who have memory in hand.
            let _in_hand = self.hands.begin(m);
            let mut top = Token::top();
            Fork(self.0).leave_family(&space, &mut top);
            self.take_apart(record, &mut top);
            self.drop_family(record, &mut top);
            self.spaces.free(m, &self.frames, &mut top, space.handle);
        });
    }

    /// Frees what a space maps, its table and what hangs off its record. No CPU runs it and no
    /// other verb is in it.
    pub(super) fn take_apart(self, record: &SpaceRecord, top: &mut Token<Top>) {
        let mut deferred = DeferredFree::default();
        let flushed = self.flush_out(record);
        self.mark_subtree_dead(record.root(), self.top());
        if let Ok(all) = VaRange::new(Va(0), self.user_end().0, self.user_end()) {
            self.free_tree(&flushed, self.root(record), all, &mut deferred);
        }
        self.leave_huge_zero(record, &flushed);
        for kept in [&record.latest, &record.changed] {
            if let Some(kept) = SlabRef::from_raw(kept.load(Ordering::Relaxed)) {
                self.drop_region(kept, &mut deferred);
            }
        }
        self.drop_shifts(record, top);
        self.free_deferred(deferred, top);
        self.give_asid(record.asid());
    }
}
