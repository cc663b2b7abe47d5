//! Is this hit legal?
//!
//! *e* is the cached translation, *w* a fresh walk. The order of questions is that of the rules:
//! nothing there (only an open obligation excuses), another frame (an obligation, or a declared
//! deferral with equal bytes), another size, more rights, marks.

use vellum::machine::Use;

use super::Rule;
use crate::format::Format;
use crate::machine::SimState;
use crate::mmu::fresh::{self, Fresh};
use crate::tlb::{Entry, Flags};

/// What a comparison found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// No difference, or one that needs no excuse.
    Fine,
    /// Legal only under an open obligation, which there is.
    Excused,
    /// Illegal; the run is stopped.
    Illegal,
}

/// A cached translation that is about to be used.
#[derive(Clone, Copy)]
struct Hit<'a> {
    /// The CPU that uses it.
    c: usize,
    root: u32,
    e: &'a Entry,
    va: u64,
}

impl<F: Format> SimState<F> {
    /// Compares a cached translation that is about to be used with a fresh walk.
    pub(crate) fn judge(&mut self, c: usize, e: &Entry, va: u64) -> Verdict {
        let Some(root) = self.cpus[c].root else { return Verdict::Illegal };
        let table = self.oracle.roots[root as usize].table;
        let w = fresh::walk::<F>(&self.ram, table << 12, self.mmu.levels, va);
        let page = va >> 12;
        let here = e.translate(va) & !4095;
        let (frame, size, flags) = match w {
            Fresh::Absent { .. } => {
                return self
                    .need_excuse(Hit { c, root, e, va }, "nothing is mapped there now".into());
            }
            Fresh::Malformed { raw, level } => {
                self.malformed(c, raw, level, va);
                return Verdict::Illegal;
            }
            Fresh::Leaf { frame, size, flags, .. } => (frame, size, flags),
        };
        let there = (frame + (va & (size.bytes() - 1))) & !4095;
        if here != there {
            return self.other_frame(Hit { c, root, e, va }, there, flags);
        }
        if size != e.leaf {
            let what = format!("it is cached as a page of {:?} and mapped as {size:?}", e.leaf);
            if self.mmu.break_before_make {
                self.fail(c, Rule::Size, Some(va), Some(here >> 12), what);
                return Verdict::Illegal;
            }
            return self.need_excuse(Hit { c, root, e, va }, what);
        }
        let more = e.flags & Flags::RIGHTS & !flags;
        if more != Flags::NONE {
            return self.need_excuse(
                Hit { c, root, e, va },
                format!("it is cached with rights the entry no longer gives ({})", names(more)),
            );
        }
        if e.flags.contains(Flags::DIRTY) && !flags.contains(Flags::DIRTY) {
            if self.excuse(c, root, page).is_some_and(|p| !p.deferred) {
                return Verdict::Excused;
            }
            self.fail(
                c,
                Rule::Marks,
                Some(va),
                Some(here >> 12),
                "it is cached as dirty and its entry is clean: stores through it leave no trace"
                    .into(),
            );
            return Verdict::Illegal;
        }
        if !e.flags.contains(Flags::ACCESSED) {
            self.fail(
                c,
                Rule::Marks,
                Some(va),
                Some(here >> 12),
                "it was cached before its accessed bit was set".into(),
            );
            return Verdict::Illegal;
        }
        Verdict::Fine
    }

    fn need_excuse(&mut self, hit: Hit<'_>, what: String) -> Verdict {
        let Hit { c, root, e, va } = hit;
        match self.excuse(c, root, va >> 12) {
            Some(p) if !p.deferred => Verdict::Excused,
            deferred => {
                let rule = if deferred.is_some() { Rule::Deferral } else { Rule::Stale };
                let why = format!(
                    "this CPU translates it to frame {:#x}; {what}, and no change that could \
                     still be on its way here explains it",
                    e.translate(va) >> 12
                );
                self.fail(c, rule, Some(va), Some(e.translate(va) >> 12), why);
                Verdict::Illegal
            }
        }
    }

    fn other_frame(&mut self, hit: Hit<'_>, there: u64, flags: Flags) -> Verdict {
        let Hit { c, root, e, va } = hit;
        let here = e.translate(va) >> 12;
        let what = format!("the entry now names frame {:#x}", there >> 12);
        let Some(p) = self.excuse(c, root, va >> 12) else {
            return self.need_excuse(hit, what);
        };
        let deferred = p.deferred;
        let broken = if e.flags.contains(Flags::WRITE) || e.flags.contains(Flags::DIRTY) {
            "the old translation may write"
        } else if !deferred && flags.contains(Flags::WRITE) {
            "the new page can be written"
        } else if deferred && !flags.contains(Flags::USER) {
            "the new page cannot be read"
        } else if deferred && self.oracle.uses[here as usize] != Use::Pending as u8 {
            "the old frame is no longer pending"
        } else if !self.contents.equal(here, there >> 12) {
            "the two frames do not hold equal bytes"
        } else {
            return Verdict::Excused;
        };
        let (rule, state) = if deferred {
            (Rule::Deferral, "its flush was deferred")
        } else {
            (Rule::TwoPages, "its flush is on the way")
        };
        self.fail(c, rule, Some(va), Some(here), format!("{state} and {what}, but {broken}"));
        Verdict::Illegal
    }
}

fn names(flags: Flags) -> String {
    let all = [(Flags::WRITE, "write"), (Flags::EXECUTE, "execute"), (Flags::USER, "user")];
    let list: Vec<_> = all.iter().filter(|(f, _)| flags.contains(*f)).map(|(_, n)| *n).collect();
    list.join(", ")
}
