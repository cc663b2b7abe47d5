//! Can one CPU still use the old page of an address while another finds a new page there?
//!
//! If so, one may read what the other overwrote long ago. So a leaf of another frame may become
//! present, or writable, only when no CPU can still use the old one, unless both pages are
//! read-only with equal bytes. Two cases are exempt. The CPU whose verb took the old page away
//! flushes before it returns to its program. A declared deferral is judged at each of its hits, by
//! line 4.
//!
//! The check is made where a leaf appears, where a CPU loads a tree whose context it kept, and in
//! `hit` when an old translation is used. It looks at open obligations, of which there are none
//! most of the time, and not at TLBs: a CPU that has the tree loaded may have walked there by
//! speculation. Rejected: checking hits alone, since a run would have to meet the moment at which
//! both pages are in use.

use vellum::machine::CpuMask;

use super::Rule;
use super::notes::Obligation;
use crate::format::Format;
use crate::machine::SimState;
use crate::mmu::fresh::{self, Fresh};
use crate::tlb::Flags;

/// What a walk finds at a page.
#[derive(Clone, Copy)]
pub(crate) enum Shown {
    /// A frame, and whether programs may write to it.
    Frame(u64, bool),
    /// Zeros of a shared table.
    Zeros,
}

/// Two pages at one address.
struct Clash {
    page: u64,
    new: Shown,
    why: &'static str,
}

impl Shown {
    /// What is shown `pages` further on in the same leaf or table.
    fn after(self, pages: u64) -> Shown {
        match self {
            Shown::Frame(pfn, write) => Shown::Frame(pfn + pages, write),
            Shown::Zeros => Shown::Zeros,
        }
    }
}

impl<F: Format> SimState<F> {
    /// An entry of `level` at `va` shows `new` from here on, or shows it writable.
    pub(crate) fn shows(&mut self, c: usize, root: u32, va: u64, level: u8, new: Shown) {
        if self.oracle.open == 0 || self.races_with_none(c, root) {
            return;
        }
        let start = va >> 12;
        let end = start + (1u64 << (9 * (u32::from(level) - 1)));
        for (by, parts) in self.oracle.parts.iter().enumerate() {
            for p in parts.iter().filter(|p| p.root == root && p.start < end && start < p.end) {
                let mut cpus = p.open;
                if by == c {
                    cpus.remove(c);
                }
                let mut pages = p.start.max(start)..p.end.min(end);
                let clash = |page| self.clash(p, page, new.after(page - start));
                if !cpus.is_empty()
                    && let Some(clash) = pages.find_map(clash)
                {
                    return self.two_pages(c, cpus, &clash);
                }
            }
        }
    }

    /// A CPU runs again in a tree whose context it kept: what others put there meanwhile must not
    /// differ from what it may hold.
    pub(crate) fn shown_again(&mut self, cpu: usize, root: u32) {
        let table = self.oracle.roots[root as usize].table << 12;
        for p in
            self.oracle.parts.iter().flatten().filter(|p| p.root == root && p.open.contains(cpu))
        {
            let clash =
                |page: u64| match fresh::walk::<F>(&self.ram, table, self.mmu.levels, page << 12) {
                    Fresh::Leaf { frame, size, flags, .. } => {
                        let first = Shown::Frame(frame >> 12, flags.contains(Flags::WRITE));
                        self.clash(p, page, first.after(page & ((size.bytes() >> 12) - 1)))
                    }
                    _ => None,
                };
            if let Some(clash) = (p.start..p.end).find_map(clash) {
                let mut cpus = CpuMask::EMPTY;
                cpus.insert(cpu);
                return self.two_pages(cpu, cpus, &clash);
            }
        }
    }

    /// Whether no CPU but `c` can hold anything of a tree, and no verb but its own has taken
    /// anything away.
    fn races_with_none(&self, c: usize, root: u32) -> bool {
        let mut others = self.oracle.roots[root as usize].cpus;
        others.remove(c);
        others.is_empty() && self.oracle.parts[c].len() == self.oracle.open
    }

    /// Whether a CPU that still uses what a part took away at a page may miss what `new` shows
    /// there.
    fn clash(&self, p: &Obligation, page: u64, new: Shown) -> Option<Clash> {
        if p.cut != 0 || p.deferred {
            return None; // The leaves below a table have parts of their own.
        }
        let old = p.frame + (page - p.start);
        let why = match new {
            Shown::Frame(pfn, _) if self.took(p, page, pfn) => return None,
            Shown::Frame(_, true) => "the new page can be written",
            _ if !p.harmless && !p.zeros => "the old page could be written",
            _ => {
                let equal = match new {
                    Shown::Frame(pfn, _) if p.zeros => self.contents.is_zero(pfn),
                    Shown::Frame(pfn, _) => self.contents.equal(old, pfn),
                    Shown::Zeros => p.zeros || self.contents.is_zero(old),
                };
                if equal {
                    return None;
                }
                "the two do not hold equal bytes"
            }
        };
        Some(Clash { page, new, why })
    }

    #[cold]
    fn two_pages(&mut self, c: usize, cpus: CpuMask, clash: &Clash) {
        let (va, why) = (clash.page << 12, clash.why);
        let pfn = if let Shown::Frame(pfn, _) = clash.new { Some(pfn) } else { None };
        let why = format!(
            "CPUs {cpus:?} may still use the page that was mapped at {va:#x}, another one is \
             mapped there now, and {why}: the old translation has to go first"
        );
        self.fail(c, Rule::TwoPages, Some(va), pfn, why);
    }
}
