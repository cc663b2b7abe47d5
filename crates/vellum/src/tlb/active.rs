//! Which space a CPU runs in.

use crate::error::{Invalid, ensure};
use crate::frame::SlabRef;
use crate::machine::{Act, Machine, Root};
use crate::space::{CpuWords, Space, SpaceRecord};
use crate::sync::atomic::{Ordering, fence};
use crate::sync::touch;
use crate::tlb::Tlb;

impl<M: Machine> Tlb<M> {
    /// `Vm::activate`.
    pub fn activate(&self, space: &Space) {
        let m = &self.machine;
        let record = self.record_of(space);
        m.preempt_off();
        let cpu = m.cpu();
        let here = self.current(cpu);
        let before = here.load(Ordering::Relaxed);
        if before != space.handle.raw() {
            let asids = self.rules.asids != 0;
            if asids && !record.cached.contains(cpu) {
                record.cached.insert(cpu);
            }
            touch(m, &record.active, true);
            record.active.insert(cpu);
            fence(Ordering::SeqCst);
            let asid = record.asid();
            touch(m, &record.stale, true);
            let stale = asids && record.stale.contains(cpu) && record.stale.remove(cpu);
            m.run_on(Some(Root {
                table: record.root(),
                asid,
                flush: stale || asids && asid.0 == 0,
            }));
            here.store(space.handle.raw(), Ordering::Relaxed);
            self.leave(before, cpu);
        }
        m.allow_preemption();
    }

    /// `Vm::deactivate`.
    pub fn deactivate(&self) {
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

    /// Whether the sets of CPUs are as every CPU says what it runs, which also holds translations.
    pub fn check_active(&self, space: &Space) -> Result<(), Invalid> {
        let record = self.record_of(space);
        for i in 0..CpuWords::WORDS {
            let runs =
                |cpu: &usize| self.current(*cpu).load(Ordering::Relaxed) == space.handle.raw();
            let here = (i * 64..self.cpus.min(i * 64 + 64))
                .filter(runs)
                .fold(0, |set, cpu| set | 1 << (cpu % 64));
            let (active, cached, stale) =
                (record.active.word(i), record.cached.word(i), record.stale.word(i));
            ensure(active == here, "CPUs that run a space", space.id(), active, here)?;
            let there = CpuWords::in_word(self.cpus, i);
            let kept = if self.rules.asids != 0 { active | stale } else { stale };
            let right = kept & !cached == 0 && cached & !there == 0;
            let what = "CPUs that may hold translations of a space";
            ensure(right, what, space.id(), cached, active | stale)?;
        }
        Ok(())
    }

    /// The root of the space `before` is not loaded here any more.
    fn leave(&self, before: u64, cpu: usize) {
        if let Some(handle) = SlabRef::from_raw(before) {
            // SAFETY: a space's record lives while any CPU is in `active`: `exit` waits for that.
            let record = unsafe { handle.ptr(&self.machine).cast::<SpaceRecord>().as_ref() };
            record.active.remove(cpu);
        }
    }
}
