//! Flushing receipts.
//!
//! A flush that is over when its verb returns draws no number: numbers come from one word, and CPUs
//! that copy pages in different parts of a space would all write its line.

use crate::addr::{Va, VaRange};
use crate::machine::{Act, CpuMask, Machine, Scope};
use crate::space::{CpuWords, SpaceRecord};
use crate::stats::Counter;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::touch;
use crate::tlb::Tlb;
use crate::tlb::{Flushed, Receipt};

/// More leaves than this are dropped by dropping the whole space. Linux's x86 choice since 3.16
/// (`tlb_single_page_flush_ceiling`), which its authors measured on Ivy Bridge.
const SINGLE_LEAVES: u64 = 33;

/// A flush that is due: who may use the old translations, and which they are. Whoever comes to the
/// space later finds the entries as they were when it was made.
#[must_use = "translations stay stale"]
pub(crate) struct Due {
    cpus: CpuMask,
    scope: Scope,
}

impl<M: Machine> Tlb<M> {
    /// Drops the translations a receipt speaks of on every CPU that may use them, and says so. No
    /// lock is held that a CPU could wait for without relaxing. Emptying an empty receipt flushes
    /// nothing.
    pub fn flush(&self, space: &SpaceRecord, receipt: Receipt) -> Flushed {
        if receipt.is_empty() { Flushed(()) } else { self.flush_due(&self.due(space, &receipt)) }
    }

    /// Who has to drop what a receipt speaks of, which is not empty. Entries that are stored from
    /// here on are no part of it.
    #[inline(always)]
    pub fn due(&self, space: &SpaceRecord, receipt: &Receipt) -> Due {
        let cpus = self.shootdown_targets(space, receipt.tables);
        let asid = space.asid();
        let leaves = (receipt.end - receipt.start) >> receipt.level.shift();
        let scope = if leaves <= 1 {
            Scope::Page(asid, Va(receipt.start))
        } else if leaves <= SINGLE_LEAVES {
            match VaRange::new(Va(receipt.start), receipt.end - receipt.start, Va(!0xfff)) {
                Ok(range) => Scope::Range(asid, range, receipt.level),
                Err(_) => Scope::Space(asid),
            }
        } else {
            Scope::Space(asid)
        };
        Due { cpus, scope }
    }

    /// Drops the translations of one address on this CPU only: what a fault handler owes where the
    /// hardware's fault does not.
    pub fn flush_here(&self, space: &SpaceRecord, va: Va) {
        self.machine.flush_local(Scope::Page(space.asid(), va));
        self.count(Counter::FlushLocalOne, 1);
    }

    /// The proof for a space whose translations nobody can hold: no CPU runs it, and those that did
    /// have dropped all.
    pub fn flush_out(&self, space: &SpaceRecord) -> Flushed {
        let cpus = self.shootdown_targets(space, true);
        self.flush_due(&Due { cpus, scope: Scope::Space(space.asid()) })
    }

    /// Carries a flush out, wherever it is due. As [`flush`](Tlb::flush).
    #[inline(always)]
    pub fn flush_due(&self, due: &Due) -> Flushed {
        let m = &self.machine;
        m.preempt_off();
        let flushed = match self.flush_local(due) {
            Some(flushed) => flushed,
            None => {
                m.flush_remote(&due.cpus, due.scope);
                self.count_here(Counter::FlushRemote, 1);
                if due.cpus.contains(m.cpu()) {
                    self.count_here(kind(due.scope), 1);
                }
                Flushed(())
            }
        };
        m.allow_preemption();
        flushed
    }

    /// Carries a flush out if it is due on no other CPU than this one, and waits for nobody.
    /// Preemption is off.
    #[inline(always)]
    pub fn flush_local(&self, due: &Due) -> Option<Flushed> {
        let m = &self.machine;
        let me = m.cpu();
        let mut others = due.cpus;
        others.remove(me);
        if !others.is_empty() {
            return None;
        }
        // Due nowhere at all: whoever comes finds the entries as they are now.
        if due.cpus.contains(me) {
            m.flush_local(due.scope);
            self.count_here(kind(due.scope), 1);
        }
        Some(Flushed(()))
    }

    /// The CPUs a flush has to reach now; the others are told to flush before they come back. See
    /// the table in `tlb`.
    #[inline(always)]
    fn shootdown_targets(&self, space: &SpaceRecord, tables: bool) -> CpuMask {
        let mut cpus = CpuMask::EMPTY;
        fence(Ordering::SeqCst);
        for i in 0..CpuWords::words(self.cpus) {
            touch(&self.machine, &space.active, false);
            let first = space.active.word(i);
            cpus.0[i] = first;
            if self.rules.asids != 0 {
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

/// What counts a local flush of that.
fn kind(scope: Scope) -> Counter {
    if matches!(scope, Scope::Page(..)) { Counter::FlushLocalOne } else { Counter::FlushLocalAll }
}
