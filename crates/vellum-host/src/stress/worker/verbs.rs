//! The verbs that change what is mapped where, and what the model says of them.

use vellum::entry::Codec;
use vellum::error::SpaceError;
use vellum::space::{Access, Advice, Attrs, HugeAdvice, LeafSize, Placement, Rights};

use super::{On, Worker};
use crate::stress::ops::Op;
use crate::stress::owned_pages::{Cover, Run, part_of};

impl<C: Codec> Worker<'_, C> {
    pub(super) fn rights(&mut self) -> Rights {
        match self.rng.below(20) {
            0..13 => Rights::READ_WRITE,
            13..16 => Rights::READ,
            16 => Rights::NONE,
            17 => Rights::READ_EXEC,
            _ => Rights::ALL,
        }
    }

    pub(super) fn attrs(&mut self) -> Attrs {
        let thp = match self.rng.below(6) {
            0 => Some(HugeAdvice::NoHuge),
            1 => Some(HugeAdvice::Huge),
            _ => None,
        };
        Attrs { rights: self.rights(), thp, numa: None, leaf: LeafSize::Policy }
    }

    pub(super) fn map(&mut self, mut on: On<'_>, replace: bool) {
        let run = on.owned.part(&mut self.rng);
        let attrs = self.attrs();
        let at = if replace { Placement::Replace(run.start()) } else { Placement::At(run.start()) };
        let free = replace || on.owned.cover(run) == Cover::None;
        let wanted = if free { Ok(()) } else { Err(SpaceError::Occupied) };
        on.begin(&[run]);
        let got = self.shared.vm.map(on.space, at, run.bytes(), attrs);
        if let Some(va) = self.verb(&on, &format!("map {at:?} {} pages", run.pages), got, wanted) {
            assert_eq!(va, run.start(), "{}", self.place(&on));
            on.owned.map(run, attrs.rights);
        }
        on.settled(&[run]);
    }

    pub(super) fn stray(&mut self, on: On<'_>) {
        if on.owned.strays.len() > 4 || self.rng.once_in(4) {
            if let Some(run) = on.owned.strays.pop() {
                let got = self.shared.vm.unmap(on.space, run.start(), run.bytes());
                match self.verb(&on, "unmap", got, Ok(())) {
                    Some(()) => on.owned.unmap(run),
                    None => on.owned.strays.push(run),
                }
            }
            return;
        }
        let pages = part_of(Run { first: 0, pages: 700 }, &mut self.rng).pages;
        let attrs = self.attrs();
        let got = self.shared.vm.map(on.space, Placement::Anywhere, pages << 12, attrs);
        if let Some(va) = self.verb(&on, "map anywhere", got, Ok(())) {
            let run = Run { first: va.page(), pages };
            assert_eq!(
                on.owned.cover(run),
                Cover::None,
                "placed on top of something; {}",
                self.place(&on)
            );
            on.owned.map(run, attrs.rights);
            on.owned.strays.push(run);
        }
    }

    pub(super) fn unmap(&mut self, mut on: On<'_>) {
        let run = on.owned.part(&mut self.rng);
        on.begin(&[run]);
        let got = self.shared.vm.unmap(on.space, run.start(), run.bytes());
        if self.verb(&on, "unmap", got, Ok(())).is_some() {
            on.owned.unmap(run);
            let page = run.first + self.rng.below(run.pages);
            self.check_access(&mut on, page, 0, Access::Read, 0);
        }
        on.settled(&[run]);
    }

    pub(super) fn protect(&mut self, mut on: On<'_>) {
        let run = on.owned.part(&mut self.rng);
        let rights = self.rights();
        let whole = on.owned.cover(run) == Cover::All;
        let wanted = if whole { Ok(()) } else { Err(SpaceError::Unmapped) };
        on.begin(&[run]);
        let got = self.shared.vm.protect(on.space, run.start(), run.bytes(), rights);
        if self.verb(&on, &format!("protect {run:?}"), got, wanted).is_some() {
            on.owned.each(run, |p| p.rights = rights);
            let page = run.first + self.rng.below(run.pages);
            let access = if self.rng.once_in(2) { Access::Read } else { Access::Write };
            let stamp = on.owned.stamp();
            if self.check_access(&mut on, page, 1, access, stamp) && access == Access::Write {
                on.owned.each(Run { first: page, pages: 1 }, |p| p.words[1] = stamp);
            }
        }
        on.settled(&[run]);
    }

    pub(super) fn remap(&mut self, on: On<'_>) {
        match self.rng.below(4) {
            0 => self.resize(on),
            n => self.relocate(on, n == 1),
        }
    }

    /// Moves a range, over what is there or not.
    pub(super) fn relocate(&mut self, mut on: On<'_>, replace: bool) {
        let old = on.owned.part(&mut self.rng);
        let new = Run { first: on.owned.part(&mut self.rng).first, pages: old.pages };
        let inside =
            on.owned.runs.iter().any(|r| r.has(new.first) && r.has(new.first + new.pages - 1));
        let apart = new.first + new.pages <= old.first || old.first + old.pages <= new.first;
        if !inside || !apart {
            return;
        }
        let free = replace || on.owned.cover(new) == Cover::None;
        let wanted = match (on.owned.cover(old), free) {
            (Cover::All, true) => Ok(()),
            (Cover::All, false) => Err(SpaceError::Occupied),
            // Which of two errors is named first is the library's choice.
            (_, true) => Err(SpaceError::Unmapped),
            _ => return,
        };
        let to = if replace { Placement::Replace(new.start()) } else { Placement::At(new.start()) };
        on.begin(&[old, new]);
        let got = self.shared.vm.remap(on.space, old.start(), old.bytes(), new.bytes(), to);
        if let Some(va) = self.verb(&on, &format!("remap {old:?} to {new:?}"), got, wanted) {
            assert_eq!(va, new.start(), "{}", self.place(&on));
            on.owned.unmap(new);
            for n in 0..old.pages {
                if let Some(page) = on.owned.pages.remove(&(old.first + n)) {
                    on.owned.pages.insert(new.first + n, page);
                }
            }
            let n = self.rng.below(old.pages);
            self.check_access(&mut on, new.first + n, 0, Access::Read, 0);
            self.check_access(&mut on, old.first + n, 0, Access::Read, 0);
        }
        on.settled(&[old, new]);
    }

    /// Makes a range longer or shorter where it is.
    pub(super) fn resize(&mut self, mut on: On<'_>) {
        let old = on.owned.part(&mut self.rng);
        let Some(run) = on.owned.runs.iter().find(|r| r.has(old.first)).copied() else { return };
        if on.owned.cover(old) != Cover::All {
            return;
        }
        let longest = run.first + run.pages - old.first;
        let pages = 1 + self.rng.below(longest.min(2 * old.pages));
        let tail =
            Run { first: old.first + old.pages.min(pages), pages: pages.abs_diff(old.pages) };
        let grows = pages > old.pages;
        let wanted = if grows && on.owned.cover(tail) != Cover::None {
            Err(SpaceError::Occupied)
        } else {
            Ok(())
        };
        let at = Placement::At(old.start());
        on.begin(&[tail]);
        let got = self.shared.vm.remap(on.space, old.start(), old.bytes(), pages << 12, at);
        if let Some(va) = self.verb(&on, &format!("resize {old:?} to {pages}"), got, wanted) {
            assert_eq!(va, old.start(), "{}", self.place(&on));
            let last =
                on.owned.pages.get(&(old.first + old.pages - 1)).map_or(Rights::NONE, |p| p.rights);
            if grows {
                on.owned.map(tail, last)
            } else {
                on.owned.unmap(tail)
            }
            if tail.pages > 0 {
                let page = tail.first + self.rng.below(tail.pages);
                self.check_access(&mut on, page, 0, Access::Read, 0);
            }
        }
        on.settled(&[tail]);
    }

    pub(super) fn dont_need(&mut self, mut on: On<'_>) {
        let run = on.owned.part(&mut self.rng);
        if on.owned.cover(run) != Cover::All {
            return;
        }
        on.begin(&[run]);
        let got = self.shared.vm.advise(on.space, run.start(), run.bytes(), Advice::DontNeed);
        if self.verb(&on, "dontneed", got, Ok(())).is_some() {
            on.owned.each(run, |p| p.words = [0; 3]);
            let page = run.first + self.rng.below(run.pages);
            self.check_access(&mut on, page, 2, Access::Read, 0);
        }
        on.settled(&[run]);
    }

    pub(super) fn advise(&mut self, on: On<'_>, op: Op) {
        let chunk = on.owned.chunk(&mut self.rng).filter(|&c| on.owned.cover(c) == Cover::All);
        let run = match chunk {
            Some(chunk) if self.rng.once_in(2) => chunk,
            _ => on.owned.part(&mut self.rng),
        };
        if on.owned.cover(run) != Cover::All {
            return;
        }
        let advice = match (op, self.rng.below(4)) {
            (Op::Populate, n) => Advice::Populate { write: n < 2 },
            (_, 0) => Advice::Huge,
            (_, 1) => Advice::NoHuge,
            _ => Advice::Collapse,
        };
        // Whatever it says, it may not change what is there; the next looks will tell.
        let got = self.shared.vm.advise(on.space, run.start(), run.bytes(), advice);
        if let Err(
            SpaceError::Unmapped | SpaceError::Occupied | SpaceError::Range(_) | SpaceError::NoHole,
        ) = got
        {
            panic!("{advice:?} of {run:?} gave {got:?}; {}", self.place(&on));
        }
    }
}
