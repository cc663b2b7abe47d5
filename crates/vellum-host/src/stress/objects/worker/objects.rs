//! The verbs on objects.

use vellum::GrabWait;
use vellum::addr::Pfn;
use vellum::entry::Codec;
use vellum::error::ObjectError;
use vellum::machine::Machine;

use super::{HOT_PAGE, HOT_WINDOW, Worker};
use crate::stress::alone;
use crate::stress::objects::contents::{PAGE, PAGES, Word};
use crate::stress::objects::place::{Place, WINDOWS};
use crate::stress::ops::Op;

impl<C: Codec> Worker<'_, C> {
    fn object(&mut self) -> usize {
        self.rng.below(PAGES.len() as u64) as usize
    }

    /// A place in an object, usually at a page's beginning, or at its end.
    fn offset(&mut self, object: usize) -> u64 {
        let page = self.rng.below(PAGES[object] + 1) * PAGE;
        if self.rng.once_in(2) {
            page
        } else {
            (page + 8 * self.rng.below(512)).min(PAGES[object] * PAGE)
        }
    }

    /// Reads a range, and looks at all words in it.
    pub(super) fn read_object(&mut self) {
        let (shared, object) = (self.shared, self.object());
        let from = self.offset(object);
        let bytes = [8, 200, 3 * PAGE][self.rng.below(3) as usize];
        let before = shared.contents.sizes[object].read();
        let words = shared.contents.words_in(object, from..from + bytes - 7);
        let looks: Vec<_> = words.map(|word| (word, shared.contents.look(word))).collect();
        let mut buffer = vec![0xaa; bytes as usize];
        let there = shared.vm.objects().read(&shared.objects[object], from, &mut buffer).0 as u64;
        let sizes = &shared.contents.sizes[object];
        let some = if there == 0 { Ok(()) } else { sizes.may_reach(before, from + there, true) };
        let all =
            if there == bytes { Ok(()) } else { sizes.may_reach(before, from + there + 1, false) };
        for end in [some, all] {
            end.unwrap_or_else(|what| self.fail(format!("{there} bytes of {bytes}: {what}")));
        }
        for (word, look) in looks.into_iter().filter(|(word, _)| word.offset() + 8 <= from + there)
        {
            let at = (word.offset() - from) as usize;
            let mut value = [0; 8];
            value.copy_from_slice(&buffer[at..at + 8]);
            let fits = self.found(word, &look, u64::from_ne_bytes(value));
            fits.unwrap_or_else(|what| self.fail(format!("read of {word:?}: {what}")));
        }
    }

    /// Stores to the thread's words of some pages in turn.
    pub(super) fn write_object(&mut self) {
        let (shared, mut object) = (self.shared, self.object());
        let mut first = self.rng.below(PAGES[object]);
        let mut pages = if self.rng.once_in(2) { 1 } else { 16 };
        if self.rng.once_in(2) {
            (object, first, pages) = (WINDOWS[HOT_WINDOW].object, HOT_PAGE, 1);
        }
        for page in (first..PAGES[object]).take(pages) {
            let word = Word { object, page, writer: self.me };
            self.count += 1;
            let value = word.value(self.count).to_ne_bytes();
            let before = shared.contents.sizes[object].read();
            let store = shared.contents.store(word, self.count);
            let got = shared.vm.objects().write(&shared.objects[object], word.offset(), &value);
            shared.contents.stored(store, got.1.is_ok());
            let reached = match got {
                (8, Ok(())) => true,
                (0, Err(ObjectError::Beyond)) => false,
                (0, Err(ObjectError::NoMemory)) => return self.refused(),
                _ => self.fail(format!("a write of {word:?} gave {got:?}")),
            };
            let fits = shared.contents.sizes[object].may_reach(before, word.offset() + 8, reached);
            fits.unwrap_or_else(|what| {
                self.fail(format!("a write of {word:?} gave {got:?}: {what}"))
            });
            self.outcome.stores += u64::from(reached);
            self.outcome.beyond += u64::from(!reached);
        }
    }

    /// Makes an object shorter, or as long as it may be. What is past the smaller end is zero after
    /// that.
    pub(super) fn resize(&mut self) {
        let (shared, object) = (self.shared, self.object());
        let most = PAGES[object] * PAGE;
        let bytes = if self.rng.once_in(2) { most } else { self.offset(object) };
        let Some(old) = shared.contents.sizes[object].begin(bytes) else { return self.punch() };
        let wipes = shared.contents.wipe(object, old.min(bytes)..most);
        let done = shared.vm.objects().resize(&shared.objects[object], bytes);
        shared.contents.wiped(&wipes);
        shared.contents.sizes[object].end();
        if done.is_err() {
            self.fail(format!("a size of {bytes:#x} gave {done:?}"));
        }
        self.outcome.resizes += 1;
        let word = Word { object, page: self.rng.below(PAGES[object]), writer: self.me };
        self.read_word(word);
    }

    /// Makes a hole, also past the end.
    pub(super) fn punch(&mut self) {
        let (shared, mut object) = (self.shared, self.object());
        let mut from = self.offset(object);
        let mut bytes = match self.rng.below(8) {
            0 => PAGES[object] * PAGE,
            1..4 => PAGE * self.rng.below(12),
            _ => 8 * self.rng.below(2000),
        };
        if self.rng.once_in(2) {
            (object, from, bytes) = (WINDOWS[HOT_WINDOW].object, HOT_PAGE * PAGE, PAGE);
        }
        let wipes = shared.contents.wipe(object, from..from + bytes);
        _ = shared.vm.objects().punch(&shared.objects[object], from, bytes);
        shared.contents.wiped(&wipes);
        self.outcome.holes += 1;
        if let Some(&(word, _)) = wipes.first() {
            self.read_word(word);
        }
    }

    /// Takes some pages for itself: they stay as they are meanwhile.
    pub(super) fn grab(&mut self) {
        let (shared, mut object) = (self.shared, self.object());
        let (mut first, mut pages) = (self.rng.below(PAGES[object]), 1 + self.rng.below(8));
        if self.rng.once_in(2) {
            (object, first, pages) = (WINDOWS[HOT_WINDOW].object, HOT_PAGE, 1);
        }
        let wait = [GrabWait::Never, GrabWait::Once, GrabWait::Always][self.rng.below(3) as usize];
        let (objects, handle) = (shared.vm.objects(), &shared.objects[object]);
        let grabbed = match objects.grab(handle, first * PAGE, pages as usize, wait) {
            Ok(grabbed) => grabbed,
            Err(ObjectError::NoMemory) => return self.refused(),
            Err(ObjectError::Beyond) => return self.outcome.beyond += 1,
            Err(ObjectError::Busy) if wait != GrabWait::Always => return,
            Err(error) => self.fail(format!("pages that are grabbed gave {error:?}")),
        };
        let all = || -> Vec<[u8; PAGE as usize]> {
            let read = |&pfn: &Pfn| {
                let mut bytes = [0; PAGE as usize];
                // SAFETY: nobody else has the page.
                unsafe { shared.vm.machine().read(pfn, 0, &mut bytes) };
                bytes
            };
            grabbed.frames().iter().map(read).collect()
        };
        let before = all();
        self.guard.yield_core();
        if before != all() {
            self.fail(format!("a page from {first} on of object {object} changed while grabbed"));
        }
        objects.release(grabbed, false);
    }

    /// Where an object has pages: what is found lies before its end, and nothing else is said of an
    /// offset before it.
    pub(super) fn seek(&mut self) {
        let (shared, object) = (self.shared, self.object());
        let (from, wants_data) = (self.offset(object), self.rng.once_in(2));
        let (objects, handle) = (shared.vm.objects(), &shared.objects[object]);
        let before = shared.contents.sizes[object].read();
        let found = match wants_data {
            true => objects.next_data(handle, from),
            false => objects.next_hole(handle, from),
        };
        let sizes = &shared.contents.sizes[object];
        let fits = match found {
            Some(at) if at < from => Err(format!("{at:#x} lies before it")),
            Some(at) if wants_data => sizes.may_reach(before, at + 1, true),
            Some(at) => sizes.may_reach(before, at.max(from + 1), true),
            None if wants_data => Ok(()),
            None => sizes.may_reach(before, from + 1, false),
        };
        fits.unwrap_or_else(|what| {
            self.fail(format!("from {from:#x} on data {wants_data} gave {found:x?}: {what}"))
        });
    }

    fn read_word(&mut self, word: Word) {
        let (shared, mut value) = (self.shared, [0; 8]);
        let look = shared.contents.look(word);
        let object = &shared.objects[word.object];
        if shared.vm.objects().read(object, word.offset(), &mut value).0 == value.len() {
            let fits = self.found(word, &look, u64::from_ne_bytes(value));
            fits.unwrap_or_else(|what| self.fail(format!("read of {word:?}: {what}")));
        }
    }

    /// An object of this thread alone, mapped beside the windows.
    pub(super) fn play_alone(&mut self, place: &Place) {
        const OPS: [Op; 10] = [
            Op::MapObject,
            Op::MapPrivate,
            Op::ReadObject,
            Op::WriteObject,
            Op::Resize,
            Op::Punch,
            Op::Seek,
            Op::Seal,
            Op::MapDevice,
            Op::Block,
        ];
        let op = OPS[self.rng.below(OPS.len() as u64) as usize];
        let shared = self.shared;
        shared.vm.activate(&place.space);
        let access = |va, access, store| self.access(&place.space, va, access, store);
        match alone::play(shared.vm, &place.space, op, access) {
            Ok(true) => self.outcome.own += 1,
            Ok(false) => self.refused(),
            Err(what) => self.fail(what),
        }
    }
}
