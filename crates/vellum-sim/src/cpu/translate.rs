//! From a virtual address to a physical one: first-level TLB, second level, walk.
//!
//! A hit of the first level is used at once if it has every right that the access needs, and no
//! mark. All else (a mark, a missing right, a write to a clean page, walk checking) goes through
//! the oracle.

use vellum::addr::Va;
use vellum::machine::{Asid, Scope};

use crate::cpu::access::{PageFault, Trap};
use crate::cpu::{Kind, NONE};
use crate::format::Format;
use crate::machine::SimState;
use crate::memory::{Ready, Ticks};
use crate::mmu::walk::Walked;
use crate::oracle::Rule;
use crate::tlb::{Entry, Flags};

/// A translation, and what it took.
#[derive(Clone, Copy)]
pub(crate) struct Translated {
    /// Physical address.
    pub address: u64,
    /// When the translation is there, if the first level missed.
    pub late: Option<Ready>,
}

/// What an access needs of an entry, so that nothing at all is left to do.
#[inline(always)]
pub(super) fn needs(kind: Kind) -> Flags {
    match kind {
        Kind::Load => Flags::USER,
        Kind::Store => Flags(Flags::USER.0 | Flags::WRITE.0 | Flags::DIRTY.0),
        Kind::Fetch => Flags(Flags::USER.0 | Flags::EXECUTE.0),
    }
}

/// What a program asks for.
struct Access {
    va: u64,
    kind: Kind,
    dependent: bool,
}

impl<F: Format> SimState<F> {
    /// Translates `va` for an access by the program on CPU `c`.
    #[inline]
    pub(crate) fn translate(
        &mut self,
        c: usize,
        va: u64,
        kind: Kind,
        dependent: bool,
    ) -> Result<Translated, Trap> {
        let plain = !self.walk_check;
        let cpu = &mut self.cpus[c];
        let tlb = if kind == Kind::Fetch { &mut cpu.tlb_l1i } else { &mut cpu.tlb_l1d };
        if let Some(e) = tlb.lookup(cpu.ctx, va)
            && cpu.root.is_some()
        {
            if plain && !e.stale && e.flags.contains(needs(kind)) {
                let address = e.translate(va);
                cpu.counts.hits_checked += 1;
                self.remember(c, va, address, kind);
                return Ok(Translated { address, late: None });
            }
            let e = *e;
            return self.doubtful(c, e, Access { va, kind, dependent }, Ticks::ZERO);
        }
        self.beyond_first_level(c, va, kind, dependent)
    }

    /// Notes the page for the next access, and the store in the frame's contents.
    #[inline(always)]
    fn remember(&mut self, c: usize, va: u64, address: u64, kind: Kind) {
        if kind == Kind::Store {
            self.contents.store(address >> 12);
        }
        if self.walk_check {
            return;
        }
        let cpu = &mut self.cpus[c];
        let recent = if kind == Kind::Fetch { &mut cpu.code } else { &mut cpu.data };
        recent.page = va >> 12;
        recent.base = address & !4095;
        recent.writable = kind == Kind::Store;
    }

    #[inline(never)]
    fn beyond_first_level(
        &mut self,
        c: usize,
        va: u64,
        kind: Kind,
        dependent: bool,
    ) -> Result<Translated, Trap> {
        let stlb_time = self.costs.stlb_hit;
        let plain = !self.walk_check;
        let cpu = &mut self.cpus[c];
        if cpu.root.is_none() || cpu.suspect {
            return self.no_root(c, va);
        }
        if kind == Kind::Fetch {
            cpu.counts.itlb_l1_misses += 1;
        } else {
            cpu.counts.dtlb_l1_misses += 1;
        }
        if let Some(tlb) = &mut cpu.tlb_l2
            && let Some(e) = tlb.lookup(cpu.ctx, va)
        {
            let e = *e;
            cpu.counts.stlb_hits += 1;
            let known = if dependent { cpu.core.last_load() } else { Ticks::ZERO };
            let first = if kind == Kind::Fetch { &mut cpu.tlb_l1i } else { &mut cpu.tlb_l1d };
            first.insert(e, va);
            if plain && !e.stale && e.flags.contains(needs(kind)) {
                cpu.counts.hits_checked += 1;
                let ready = Ready { at: cpu.core.now().max(known) + stlb_time, walked: false };
                let address = e.translate(va);
                self.remember(c, va, address, kind);
                return Ok(Translated { address, late: Some(ready) });
            }
            return self.doubtful(c, e, Access { va, kind, dependent }, stlb_time);
        }
        self.walk_and_fill(c, va, kind, dependent)
    }

    #[cold]
    fn no_root(&mut self, c: usize, va: u64) -> Result<Translated, Trap> {
        let (rule, why) = if self.cpus[c].suspect {
            (
                Rule::Stale,
                "a program runs on a context that missed an invalidation while it was not loaded \
                 here, and was not flushed when it was loaded again",
            )
        } else {
            (Rule::Contract, "a program accesses memory on a CPU that has no root loaded")
        };
        self.fail(c, rule, Some(va), None, why.into());
        Err(Trap::Stop)
    }

    /// A hit that needs a second look.
    #[inline(never)]
    fn doubtful(
        &mut self,
        c: usize,
        e: Entry,
        access: Access,
        late: Ticks,
    ) -> Result<Translated, Trap> {
        let Access { va, kind, dependent } = access;
        use crate::oracle::hit::Verdict;
        if self.cpus[c].suspect {
            return self.no_root(c, va);
        }
        self.cpus[c].counts.hits_checked += 1;
        if e.stale || self.walk_check {
            match self.judge(c, &e, va) {
                Verdict::Illegal => return Err(Trap::Stop),
                Verdict::Excused if !e.stale => {
                    let why = format!("{e:?} differs from a fresh walk and carries no mark");
                    self.fail(c, Rule::Incremental, Some(va), Some(e.frame >> 12), why);
                    return Err(Trap::Stop);
                }
                _ => {}
            }
        }
        if !e.flags.contains(needs(kind) & Flags::RIGHTS) {
            // The translation at hand forbids it. No walk is made; x86 drops the translation with
            // the fault.
            let table = e.source >> 12;
            return self.fault(c, va, kind, table);
        }
        if kind == Kind::Store && !e.flags.contains(Flags::DIRTY) {
            // A locked update of the dirty bit re-checks the entry in memory: it walks again.
            let cpu = &mut self.cpus[c];
            cpu.counts.dirty_assists += 1;
            let ctx = cpu.ctx;
            for tlb in cpu.tlbs() {
                tlb.drop_translation(ctx, va);
            }
            return self.walk_and_fill(c, va, kind, dependent);
        }
        let address = e.translate(va);
        self.remember(c, va, address, kind);
        if e.stale {
            self.cpus[c].forget();
        }
        let core = &self.cpus[c].core;
        let known = if dependent { core.last_load() } else { Ticks::ZERO };
        Ok(Translated {
            address,
            late: (late > Ticks::ZERO)
                .then_some(Ready { at: core.now().max(known) + late, walked: false }),
        })
    }

    fn walk_and_fill(
        &mut self,
        c: usize,
        va: u64,
        kind: Kind,
        dependent: bool,
    ) -> Result<Translated, Trap> {
        let Some(root) = self.cpus[c].root else { return self.no_root(c, va) };
        if va >= self.user_end {
            return self.fault(c, va, kind, self.oracle.roots[root as usize].table);
        }
        let (walked, time) = self.walk(c, root, va, kind);
        let cpu = &mut self.cpus[c];
        cpu.forget_lines();
        if kind == Kind::Fetch {
            cpu.counts.walks_fetch += 1;
        } else {
            cpu.counts.walks_data += 1;
        }
        match walked {
            Walked::Stopped => Err(Trap::Stop),
            Walked::Fault { table } => {
                cpu.core.translated(time);
                cpu.attribute(time, super::Account::Walk);
                self.fault(c, va, kind, table)
            }
            Walked::Leaf(entry) => {
                let known = if dependent { cpu.core.last_load() } else { Ticks::ZERO };
                let ready = cpu.core.walk_after(known, time);
                self.fill(c, entry, va, kind == Kind::Fetch);
                let address = entry.translate(va);
                self.remember(c, va, address, kind);
                Ok(Translated { address, late: Some(ready) })
            }
        }
    }

    /// The CPU takes a page fault.
    #[inline(never)]
    fn fault(&mut self, c: usize, va: u64, kind: Kind, table: u64) -> Result<Translated, Trap> {
        self.note(c, crate::oracle::note_fault(va, kind));
        let cpu = &mut self.cpus[c];
        cpu.counts.page_faults += 1;
        cpu.data.page = NONE;
        cpu.code.page = NONE;
        if self.mmu.fault_invalidates {
            let ctx = cpu.ctx;
            cpu.drop_pages(ctx, va & !4095, 4096);
            // Taking a fault serializes: walks for the address that began before it fill nothing
            // after it.
            self.end_walks(c, Some(Scope::Page(Asid(ctx), Va(va))));
        }
        let stores = self.oracle.tables[table as usize].stores;
        Err(Trap::Fault(PageFault { va, kind, table, stores }))
    }
}
