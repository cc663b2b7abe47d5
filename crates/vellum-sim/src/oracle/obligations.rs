//! Obligations: which CPUs may still hold a translation that was taken away.
//!
//! A store that reduces an entry opens an obligation for every CPU that has the tree loaded,
//! whether or not it is known to hold the translation: speculation could have brought it in. A CPU
//! that holds the tree's context without having it loaded is noted as *asleep*: it may stay stale
//! until it is used (line 6), but a detached table waits for it, too. An invalidation closes, on
//! its CPU, what is in its scope. Neighbouring pages that were opened alike are one span, so that
//! unmapping a gigabyte is one record; an invalidation of a part splits the span.

use vellum::machine::{CpuMask, Scope, Use};

use super::Rule;
use super::notes::{ExtraObligation, Obligation, TableNote};
use super::store::EntryAt;
use crate::format::{Format, Rights};
use crate::machine::SimState;

impl<F: Format> SimState<F> {
    /// CPUs that have a tree loaded, and those that only keep its context.
    pub(crate) fn holders(&self, root: u32) -> (CpuMask, CpuMask) {
        let (mut open, mut asleep) = (CpuMask::EMPTY, CpuMask::EMPTY);
        for cpu in self.oracle.roots[root as usize].cpus.iter() {
            if self.cpus[cpu].root == Some(root) {
                open.insert(cpu);
            } else {
                asleep.insert(cpu);
            }
        }
        (open, asleep)
    }

    /// A leaf lost rights, its frame, or its presence.
    pub(crate) fn open_leaf(&mut self, c: usize, at: EntryAt, frame: u64, old: Rights) {
        let EntryAt { root, va, level, .. } = at;
        if !old.accessed {
            return; // Neither x86 nor aarch64 caches a translation before its accessed bit is set.
        }
        let (open, asleep) = self.holders(root);
        if open.is_empty() && asleep.is_empty() {
            return;
        }
        let pages = 1u64 << (9 * (level - 1));
        let part = Obligation {
            root,
            start: va >> 12,
            end: (va >> 12) + pages,
            first: self.oracle.next,
            last: self.oracle.next,
            level,
            cut: 0,
            harmless: !old.write,
            frame: frame >> 12,
            zeros: false,
            deferred: false,
            returned: false,
            open,
            asleep,
        };
        self.oracle.next += 1;
        for n in 0..pages {
            let pfn = (frame >> 12) + n;
            let note = self.oracle.frames[pfn as usize];
            if note.obligation != 0 && self.is_open(note.owner, note.obligation, note.page) {
                let (obligation, owner, page) = (note.obligation, note.owner, note.page);
                self.oracle.extra.push(ExtraObligation { pfn, obligation, owner, page });
            }
            let note = &mut self.oracle.frames[pfn as usize];
            (note.obligation, note.owner, note.page) = (part.first, c as u32, part.start + n);
        }
        self.push(c, part);
    }

    /// A table entry was taken away or replaced.
    pub(crate) fn open_table(&mut self, c: usize, root: u32, va: u64, level: u8) {
        let cut = self.oracle.next_cut;
        let (open, asleep) = self.holders(root);
        if open.is_empty() && asleep.is_empty() {
            return;
        }
        let pages = 1u64 << (9 * (u32::from(level) - 1));
        let n = self.oracle.next;
        self.oracle.next += 1;
        let (start, end) = (va >> 12, (va >> 12) + pages);
        let part = Obligation {
            root,
            start,
            end,
            first: n,
            last: n,
            level,
            cut,
            harmless: false,
            frame: 0,
            zeros: false,
            deferred: false,
            returned: false,
            open,
            asleep,
        };
        self.push(c, part);
    }

    pub(crate) fn push(&mut self, c: usize, part: Obligation) {
        let parts = &mut self.oracle.parts[c];
        if let Some(last) = parts.last_mut() {
            let alike = last.root == part.root
                && last.level == part.level
                && last.cut == 0
                && part.cut == 0
                && !last.harmless
                && !part.harmless
                && last.zeros == part.zeros
                && last.open == part.open
                && last.asleep == part.asleep;
            if alike && last.end == part.start && last.last + 1 == part.first {
                last.end = part.end;
                last.last = part.last;
                return;
            }
        }
        parts.push(part);
        self.oracle.open += 1;
    }

    fn is_open(&self, owner: u32, obligation: u32, page: u64) -> bool {
        self.open_part(owner, obligation, page).is_some()
    }

    fn open_part(&self, owner: u32, obligation: u32, page: u64) -> Option<&Obligation> {
        let parts = &self.oracle.parts[owner as usize];
        parts
            .iter()
            .find(|p| (p.first..=p.last).contains(&obligation) && (p.start..p.end).contains(&page))
    }

    /// Whether an obligation took this frame away from that page.
    pub(crate) fn took(&self, p: &Obligation, page: u64, pfn: u64) -> bool {
        if p.harmless {
            return p.frame + (page - p.start) == pfn;
        }
        let by = |obligation: u32, at: u64| at == page && (p.first..=p.last).contains(&obligation);
        let note = self.oracle.frames[pfn as usize];
        by(note.obligation, note.page)
            || self.oracle.extra.iter().any(|e| e.pfn == pfn && by(e.obligation, e.page))
    }

    /// CPUs that may still translate to a frame through what was taken away, if any.
    pub(crate) fn obligation_on(&self, pfn: u64) -> Option<CpuMask> {
        let note = self.oracle.frames[pfn as usize];
        let first = self.open_part(note.owner, note.obligation, note.page);
        let extra = || {
            let mut of_frame = self.oracle.extra.iter().filter(|e| e.pfn == pfn);
            of_frame.find_map(|e| self.open_part(e.owner, e.obligation, e.page))
        };
        first.or_else(extra).map(|p| p.open).filter(|open| !open.is_empty())
    }

    /// The open obligation that covers a page for a CPU; one that is not deferred if there is a
    /// choice.
    pub(crate) fn excuse(&self, cpu: usize, root: u32, page: u64) -> Option<&Obligation> {
        if self.oracle.open == 0 {
            return None;
        }
        let covers = |p: &&Obligation| {
            p.root == root && (p.start..p.end).contains(&page) && p.open.contains(cpu)
        };
        let all = || self.oracle.parts.iter().flatten().filter(covers);
        all().find(|p| !p.deferred).or_else(|| all().next())
    }

    /// A CPU leaves a tree without dropping its context: its open obligations become asleep.
    pub(crate) fn falls_asleep(&mut self, cpu: usize, root: u32) {
        for p in self.oracle.parts.iter_mut().flatten() {
            if p.root == root && p.open.contains(cpu) {
                p.open.remove(cpu);
                p.asleep.insert(cpu);
            }
        }
    }

    /// A CPU loads a tree whose context it kept. True if it missed an invalidation that nobody owes
    /// it any more.
    pub(crate) fn wakes(&mut self, cpu: usize, root: u32) -> bool {
        let mut woken = false;
        let mut missed = self.cpus[cpu].roots.iter().any(|r| r.root == root && r.missed);
        for p in self.oracle.parts.iter_mut().flatten() {
            if p.root == root && p.asleep.contains(cpu) {
                // What a deferral left is judged hit by hit, after a sleep as well.
                if p.returned && !p.deferred {
                    missed = true;
                } else {
                    p.asleep.remove(cpu);
                    p.open.insert(cpu);
                    woken = true;
                }
            }
        }
        if woken {
            self.shown_again(cpu, root);
        }
        missed
    }

    /// CPUs whose walk caches may still reach a table that was cut off. A tree that no CPU can
    /// reach any more is taken apart under the number of the last cut, which may be another tree's
    /// at the same address.
    pub(crate) fn reaches(&self, table: &TableNote) -> Option<CpuMask> {
        let all = self.oracle.parts.iter().flatten();
        let mut of_table = all.filter(|p| {
            p.cut == table.cut
                && p.root + 1 == table.root
                && (p.start..p.end).contains(&(table.va >> 12))
        });
        of_table.next().map(|p| CpuMask(core::array::from_fn(|n| p.open.0[n] | p.asleep.0[n])))
    }

    /// An invalidation ran on a CPU: closes what it covers there.
    pub(crate) fn close(&mut self, cpu: usize, scope: Scope) {
        let (ctx, span, step) = match scope {
            Scope::Page(ctx, va) => (Some(ctx.0), Some((va.page(), va.page() + 1)), 1),
            Scope::Range(ctx, range, level) => {
                (Some(ctx.0), Some((range.start().page(), range.end().page())), level.0)
            }
            Scope::Space(ctx) => (Some(ctx.0), None, 1),
            Scope::All => (None, None, 1),
        };
        let loaded = self.cpus[cpu].root;
        if span.is_none() {
            let roots = &mut self.oracle.roots;
            self.cpus[cpu].roots.retain_mut(|r| {
                if ctx.is_some_and(|ctx| r.ctx != ctx) {
                    return true;
                }
                r.missed = false;
                let keep = Some(r.root) == loaded;
                if !keep {
                    roots[r.root as usize].cpus.remove(cpu);
                }
                keep
            });
            if ctx.is_none_or(|ctx| ctx == self.cpus[cpu].ctx) {
                self.cpus[cpu].suspect = false;
            }
        }
        if self.oracle.open == 0 {
            return;
        }
        let held: Vec<u32> = self.cpus[cpu]
            .roots
            .iter()
            .filter(|r| ctx.is_none_or(|ctx| r.ctx == ctx))
            .map(|r| r.root)
            .collect();
        for parts in &mut self.oracle.parts {
            let mut n = 0;
            while n < parts.len() {
                let p = &parts[n];
                // A root that is no longer held here was dropped with everything it translated.
                let concerned = held.contains(&p.root)
                    || span.is_none() && !self.cpus[cpu].roots.iter().any(|r| r.root == p.root);
                if !p.open.contains(cpu) && !p.asleep.contains(cpu) || !concerned {
                    n += 1;
                    continue;
                }
                let (start, end) = match span {
                    None => (p.start, p.end),
                    Some((start, end)) if p.cut != 0 => {
                        if start < p.end && p.start < end {
                            (p.start, p.end)
                        } else {
                            (0, 0)
                        }
                    }
                    Some(_) if p.level < step => (0, 0),
                    Some((start, end)) => {
                        let pages = 1u64 << (9 * (p.level - 1));
                        (
                            p.start.max(start & !(pages - 1)),
                            p.end.min((end + pages - 1) & !(pages - 1)),
                        )
                    }
                };
                if start >= end {
                    n += 1;
                    continue;
                }
                let whole = parts[n].clone();
                parts[n].open.remove(cpu);
                parts[n].asleep.remove(cpu);
                (parts[n].start, parts[n].end) = (start, end);
                parts[n].frame += if whole.harmless { start - whole.start } else { 0 };
                for (start, end) in [(whole.start, start), (end, whole.end)] {
                    if start < end {
                        let frame =
                            if whole.harmless { whole.frame + (start - whole.start) } else { 0 };
                        parts.push(Obligation { start, end, frame, ..whole.clone() });
                        self.oracle.open += 1;
                    }
                }
                if parts[n].open.is_empty() && parts[n].asleep.is_empty() {
                    parts.swap_remove(n);
                    self.oracle.open -= 1;
                } else {
                    n += 1;
                }
            }
        }
    }

    /// A verb returns: everything it opened must be closed on CPUs that have the tree loaded, or be
    /// deferred by declaration. CPUs that are asleep are noted as having missed it: they must flush
    /// before a program runs there again.
    pub(crate) fn verb_returns(&mut self, c: usize) {
        let mut n = 0;
        while n < self.oracle.parts[c].len() {
            let p = self.oracle.parts[c][n].clone();
            if p.deferred {
                n += 1;
                continue;
            }
            for cpu in p.asleep.iter() {
                if let Some(r) = self.cpus[cpu].roots.iter_mut().find(|r| r.root == p.root) {
                    r.missed = true;
                }
            }
            let keep = if p.open.is_empty() {
                p.cut != 0
            } else {
                let mut frames = p.frame..p.frame + (p.end - p.start);
                let mut pending =
                    || frames.all(|f| self.oracle.uses[f as usize] == Use::Pending as u8);
                if !(p.harmless && pending()) {
                    return self.not_closed(c, &p);
                }
                self.oracle.parts[c][n].deferred = true;
                true
            };
            if keep {
                self.oracle.parts[c][n].returned = true;
                n += 1;
            } else {
                self.oracle.parts[c].swap_remove(n);
                self.oracle.open -= 1;
            }
        }
    }

    #[cold]
    fn not_closed(&mut self, c: usize, p: &Obligation) {
        let what = if p.cut != 0 { "a table" } else { "translations" };
        let (start, end) = (p.start << 12, p.end << 12);
        let why = format!(
            "the call returns, and CPUs {:?} may still hold {what} of {start:#x}..{end:#x}: no \
             covering flush ran there since the entry changed",
            p.open
        );
        self.fail(c, Rule::OpenObligation, Some(start), None, why);
    }
}
