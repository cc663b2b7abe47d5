//! Loads, stores and the kernel's copies, through mappings.

use vellum::entry::Codec;
use vellum::error::FaultError;
use vellum::space::{Access, Page};

use super::Worker;
use crate::stress::objects::contents::{Look, PAGE, Word};
use crate::stress::objects::place::{Known, Place, Spot, WINDOWS};

/// Who loads or stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// The program, on this CPU.
    Program(Access),
    /// `copy_in` and `copy_out`.
    Kernel,
    /// `write_forced`.
    Force,
}

/// What was known before an access.
struct Before {
    spot: Spot,
    mapped: Known,
    size: u64,
}

impl<C: Codec> Worker<'_, C> {
    /// Looks at some words, usually of pages that lie together.
    pub(super) fn look(&mut self, place: &Place, by: By) {
        let first = self.spot();
        let pages = if self.rng.once_in(6) { 12 } else { 1 };
        for page in (first.page..first.of().run.pages).take(pages) {
            let writer = self.rng.below(self.shared.contents.writers() as u64) as usize;
            self.look_at(place, Spot { page, ..first }, writer, by);
        }
    }

    /// Looks at words of a page again and again, as who waits for another thread does.
    pub(super) fn look_around(&mut self, place: &Place) {
        let spot = self.spot();
        for _ in 0..4 {
            for writer in 0..self.shared.contents.writers() {
                self.look_at(place, spot, writer, By::Program(Access::Read));
            }
        }
    }

    /// Looks at every word through every window of the spaces that everybody works in.
    pub fn look_at_all(&mut self) {
        for place in &self.shared.places {
            self.look_through(place);
        }
    }

    /// Looks at every word through every window of a space.
    pub(super) fn look_through(&mut self, place: &Place) {
        for (window, of) in WINDOWS.iter().enumerate() {
            for page in 0..of.run.pages {
                for writer in 0..self.shared.contents.writers() {
                    let spot = Spot { window, page };
                    self.look_at(place, spot, writer, By::Program(Access::Read));
                }
            }
        }
    }

    fn before(&self, place: &Place, spot: Spot) -> Before {
        let size = self.shared.contents.sizes[spot.of().object].read();
        Before { spot, mapped: place.look(spot), size }
    }

    /// Holds the way an access ended against what was known before it.
    fn ended(
        &mut self,
        place: &Place,
        before: &Before,
        access: Access,
        got: Result<(), FaultError>,
    ) {
        let &Before { spot, mapped, size } = before;
        let fail = |w: &Self, what: String| w.fail_at(place, spot, &what);
        place.may_end((spot, mapped), access, got).unwrap_or_else(|what| fail(self, what));
        let reached = match got {
            Ok(()) => Some(true),
            Err(FaultError::Beyond) => Some(false),
            Err(_) => None,
        };
        // A page is there if any byte of it is.
        let sizes = &self.shared.contents.sizes[spot.of().object];
        if let Some(reached) = reached {
            let done = sizes.may_reach(size, spot.index() * PAGE + 1, reached);
            done.unwrap_or_else(|what| fail(self, what));
        }
        match got {
            Ok(()) => {}
            Err(FaultError::NoMemory) => self.refused(),
            Err(FaultError::Beyond) => self.outcome.beyond += 1,
            Err(_) => self.outcome.denied += 1,
        }
    }

    /// Holds a value that was found against what was known before the look.
    pub(super) fn found(&mut self, word: Word, look: &Look, value: u64) -> Result<(), String> {
        self.outcome.looks += 1;
        let Some(count) = word.count(value) else {
            return Err(format!("{value:#x} is not of {word:?}"));
        };
        let exactly = self.shared.contents.may_be(look, count)?;
        match exactly {
            true if count == 0 => self.outcome.zeros += 1,
            true => self.outcome.kept += 1,
            false => {}
        }
        Ok(())
    }

    pub(super) fn look_at(&mut self, place: &Place, spot: Spot, writer: usize, by: By) {
        let (shared, word) = (self.shared, spot.word(writer));
        let mut va = spot.va();
        va.0 += word.map_or(0, Word::in_page);
        if by != By::Kernel {
            shared.vm.activate(&place.space);
        }
        let (before, look) = (self.before(place, spot), word.map(|w| shared.contents.look(w)));
        let (access, got) = match by {
            By::Program(access) => (access, self.access(&place.space, va, access, 0)),
            _ => {
                let mut bytes = [0xaa; 8];
                let got = shared.vm.copy_out(&place.space, va, &mut bytes);
                (Access::Read, got.map(|()| u64::from_ne_bytes(bytes)))
            }
        };
        self.ended(place, &before, access, got.map(|_| ()));
        if let (Ok(value), Some(word), Some(look)) = (got, word, look) {
            let fits = self.found(word, &look, value);
            fits.unwrap_or_else(|what| self.fail_at(place, spot, &what));
        }
    }

    /// Stores to some pages in turn.
    pub(super) fn store(&mut self, place: &Place, by: By) {
        let first = self.spot();
        let (pages, step) = match self.rng.below(4) {
            0 => (16, 1),
            1 => (16, 1 + self.rng.below(20)),
            _ => (1, 1),
        };
        for n in 0..pages {
            let page = (first.page + n * step) % first.of().run.pages;
            self.store_to(place, Spot { page, ..first }, by);
        }
    }

    fn store_to(&mut self, place: &Place, spot: Spot, by: By) {
        let (shared, vm, space) = (self.shared, self.shared.vm, &place.space);
        let Some(word) = spot.word(self.me) else { return };
        let mut va = spot.va();
        va.0 += word.in_page();
        if matches!(by, By::Program(_)) {
            vm.activate(space);
        }
        self.count += 1;
        let value = word.value(self.count);
        let before = self.before(place, spot);
        let store = shared.contents.store(word, self.count);
        let got = match by {
            By::Program(_) => self.access(space, va, Access::Write, value).map(|_| ()),
            By::Kernel => vm.copy_in(space, va, &value.to_ne_bytes()),
            // Others see what is written, so it takes the right as well.
            By::Force => vm.write_forced(space, va, &value.to_ne_bytes()),
        };
        shared.contents.stored(store, got.is_ok());
        self.ended(place, &before, Access::Write, got);
        self.outcome.stores += u64::from(got.is_ok());
    }

    /// Asks what lies at a page.
    pub(super) fn query(&mut self, place: &Place) {
        let spot = self.spot();
        let before = place.look(spot);
        let seen = self.shared.vm.query(&place.space, spot.va());
        let Some(known) = place.still(spot, before) else { return };
        let fits = match (seen, known) {
            (Page::Unmapped, None) => true,
            (Page::Reserved { rights }, Some(known)) => rights == known,
            (Page::Mapped { rights, zero, .. }, Some(known)) => {
                rights == known && !known.is_none() && !zero
            }
            _ => false,
        };
        if !fits {
            self.fail_at(place, spot, &format!("query says {seen:?}, it is {known:?}"));
        }
    }
}
