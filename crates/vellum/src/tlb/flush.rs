//! Redeeming receipts.
//!
//! A flush that is over when its verb returns draws no number: numbers come from one word, and CPUs that copy pages in different
//! parts of a space would all write its line.

use crate::addr::{Va, VaRange};
use crate::machine::{CpuMask, Machine, Scope};
use crate::space::{CpuWords, SpaceRecord};
use crate::stats::Counter;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::touch;
use crate::tlb::{Flushed, Receipt};
use crate::vm::Vm;

/// More leaves than this are dropped by dropping the whole space. Linux's x86 choice since 3.16 (`tlb_single_page_flush_ceiling`),
/// which its authors measured on Ivy Bridge.
const SINGLE_LEAVES: u64 = 33;

impl<M: Machine> Vm<M> {
    /// Drops the translations a receipt speaks of on every CPU that may use them, and says so. No lock is held that a CPU
    /// could wait for without relaxing. Emptying an empty receipt flushes nothing.
    pub(crate) fn redeem(&self, space: &SpaceRecord, receipt: Receipt) -> Flushed {
        if receipt.is_empty() {
            return Flushed(());
        }
        let cpus = self.reach(space, receipt.tables);
        if cpus.is_empty() {
            return Flushed(());
        }
        let context = space.context();
        let leaves = (receipt.end - receipt.start) >> receipt.level.shift();
        let scope = if leaves <= 1 {
            Scope::Page(context, Va(receipt.start))
        } else if leaves <= SINGLE_LEAVES {
            match VaRange::new(Va(receipt.start), receipt.end - receipt.start, Va(!0xfff)) {
                Ok(range) => Scope::Range(context, range, receipt.level),
                Err(_) => Scope::Space(context),
            }
        } else {
            Scope::Space(context)
        };
        self.flush(&cpus, scope);
        Flushed(())
    }

    /// Drops the translations of one address on this CPU only: what a fault handler owes where the hardware's fault does not.
    pub(crate) fn flush_here(&self, space: &SpaceRecord, va: Va) {
        self.machine.flush_local(Scope::Page(space.context(), va));
        self.count(Counter::FlushLocalOne, 1);
    }

    /// The proof for a space whose translations nobody can hold: no CPU runs it, and those that did have dropped all.
    pub(crate) fn flush_out(&self, space: &SpaceRecord) -> Flushed {
        let cpus = self.reach(space, true);
        if !cpus.is_empty() {
            self.flush(&cpus, Scope::Space(space.context()));
        }
        Flushed(())
    }

    #[inline(always)]
    fn flush(&self, cpus: &CpuMask, scope: Scope) {
        let m = &self.machine;
        m.preempt_off();
        let me = m.cpu();
        let mut others = *cpus;
        others.remove(me);
        let kind = if matches!(scope, Scope::Page(..)) { Counter::FlushLocalOne } else { Counter::FlushLocalAll };
        if others.is_empty() {
            m.flush_local(scope);
            self.count_here(kind, 1);
        } else {
            m.flush_remote(cpus, scope);
            self.count_here(Counter::FlushRemote, 1);
            if cpus.contains(me) {
                self.count_here(kind, 1);
            }
        }
        m.preempt_on();
    }

    /// The CPUs a flush has to reach now; the others are told to flush before they come back. See the table in `tlb`.
    #[inline(always)]
    fn reach(&self, space: &SpaceRecord, tables: bool) -> CpuMask {
        let mut cpus = CpuMask::EMPTY;
        fence(Ordering::SeqCst);
        for i in 0..CpuWords::words(self.cpus) {
            touch(&self.machine, &space.active, false);
            let first = space.active.word(i);
            cpus.0[i] = first;
            if self.rules.contexts != 0 {
                let away = space.cached.word(i) & !first;
                if tables {
                    cpus.0[i] |= away;
                } else if away != 0 {
                    touch(&self.machine, &space.stale, true);
                    space.stale.insert_word(i, away);
                    fence(Ordering::SeqCst);
                }
                touch(&self.machine, &space.active, false);
                cpus.0[i] |= space.active.word(i);
            }
        }
        cpus
    }
}
