//! Which space a CPU runs in.

use crate::frame::SlabRef;
use crate::machine::{Act, Machine, Root};
use crate::space::{Space, SpaceRecord};
use crate::sync::atomic::{Ordering, fence};
use crate::sync::touch;
use crate::vm::Vm;

impl<M: Machine> Vm<M> {
    /// Runs in `space` on this CPU from here: loads its root. Cheap if it is loaded already. To be called by a scheduler,
    /// outside of every other call of the library on this CPU.
    pub fn activate(&self, space: &Space) {
        let m = &self.machine;
        let record = self.record_of(space);
        m.preempt_off();
        let cpu = m.cpu();
        let here = self.current(cpu);
        let before = here.load(Ordering::Relaxed);
        if before != space.name.raw() {
            let contexts = self.rules.contexts != 0;
            if contexts && !record.cached.contains(cpu) {
                record.cached.insert(cpu);
            }
            touch(m, &record.active, true);
            record.active.insert(cpu);
            fence(Ordering::SeqCst);
            let context = record.context();
            touch(m, &record.stale, true);
            let stale = contexts && record.stale.contains(cpu) && record.stale.remove(cpu);
            m.run_on(Some(Root { table: record.root(), context, flush: stale || contexts && context.0 == 0 }));
            here.store(space.name.raw(), Ordering::Relaxed);
            self.leave(before, cpu);
        }
        m.allow_preemption();
    }

    /// Runs in no space on this CPU from here. Where translations are not kept apart by context the CPU drops all of the user
    /// half, and is out of the reach of later flushes.
    pub fn idle(&self) {
        let m = &self.machine;
        m.preempt_off();
        let cpu = m.cpu();
        let here = self.current(cpu);
        let before = here.load(Ordering::Relaxed);
        if before != 0 {
            m.run_on(None);
            here.store(0, Ordering::Relaxed);
            self.leave(before, cpu);
        }
        m.allow_preemption();
    }

    /// The root of the space `before` is not loaded here any more.
    fn leave(&self, before: u64, cpu: usize) {
        if let Some(name) = SlabRef::from_raw(before) {
            // SAFETY: a space's record lives while any CPU is in `active`: `exit` waits for that.
            let record = unsafe { name.ptr(&self.machine).cast::<SpaceRecord>().as_ref() };
            record.active.remove(cpu);
        }
    }
}
