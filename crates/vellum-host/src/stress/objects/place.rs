//! A space and its windows: where it maps which part of an object, and what is known of that.
//!
//! A window always shows the same pages of the same object, wherever it is mapped. So whoever gets
//! at a word through it knows which word that is, whatever others do to the mapping meanwhile.

use std::ops::Range;
use std::sync::Mutex;

use vellum::addr::Va;
use vellum::error::FaultError;
use vellum::space::{Access, Rights, Space};

use super::contents::{PAGES, Word};
use crate::rng::Rng;
use crate::stress::meeting::lock;
use crate::stress::owned_pages::{Run, part_of};

/// A range of addresses, and what it shows.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The object.
    pub object: usize,
    /// Its page that the window begins with.
    pub part: u64,
    /// Where. The window may be longer than the object can be.
    pub run: Run,
    /// Whether it is always mapped, readable and writable.
    pub kept: bool,
    /// The window that its mappings are moved to.
    pub other: Option<usize>,
}

/// First chunk of 2 MiB of the windows; they lie across a boundary of 1 GiB.
const CHUNK: u64 = (4 << 9) - 6;

const fn window(object: usize, part: u64, chunk: u64, page: u64, pages: u64) -> Window {
    let first = (CHUNK + chunk) * 512 + page;
    Window { object, part, run: Run { first, pages }, kept: false, other: None }
}

const fn kept(window: Window) -> Window {
    Window { kept: true, ..window }
}

const fn moved(window: Window, other: usize) -> Window {
    Window { other: Some(other), ..window }
}

/// All windows of a space: across tables, beside one another in a table, past the end.
pub const WINDOWS: [Window; 9] = [
    kept(window(0, 0, 0, 500, 80)),
    window(0, 0, 2, 7, 88),
    moved(window(0, 30, 4, 480, 60), 3),
    moved(window(0, 30, 5, 490, 60), 2),
    window(0, 60, 5, 300, 20),
    kept(window(1, 0, 8, 0, 12)),
    window(1, 3, 8, 20, 9),
    moved(window(1, 0, 8, 100, 12), 8),
    moved(window(1, 0, 10, 506, 12), 7),
];

/// A page of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// The window.
    pub window: usize,
    /// The page, counted from its first.
    pub page: u64,
}

impl Spot {
    /// The window.
    pub fn of(self) -> &'static Window {
        &WINDOWS[self.window]
    }
    /// The first byte.
    pub fn va(self) -> Va {
        Va((self.of().run.first + self.page) << 12)
    }
    /// The page of the object.
    pub fn index(self) -> u64 {
        self.of().part + self.page
    }
    /// A thread's word of the page, if the object can be that long.
    pub fn word(self, writer: usize) -> Option<Word> {
        let (object, page) = (self.of().object, self.index());
        (page < PAGES[object]).then_some(Word { object, page, writer })
    }
}

/// Part of a window.
#[derive(Clone, Debug)]
pub struct Part {
    /// The window.
    pub window: usize,
    /// Pages of it.
    pub pages: Range<u64>,
}

impl Part {
    /// A part of a window, now and then all of it.
    pub fn of(window: usize, rng: &mut Rng) -> Part {
        let run = part_of(Run { first: 0, pages: WINDOWS[window].run.pages }, rng);
        Part { window, pages: run.numbers() }
    }
    /// The same pages of another window.
    pub fn at(&self, window: usize) -> Part {
        Part { window, pages: self.pages.clone() }
    }
    /// Its addresses.
    pub fn run(&self) -> Run {
        let first = WINDOWS[self.window].run.first + self.pages.start;
        Run { first, pages: self.pages.end - self.pages.start }
    }
    /// Some page of it.
    pub fn spot(&self, rng: &mut Rng) -> Spot {
        let pages = self.pages.end - self.pages.start;
        Spot { window: self.window, page: self.pages.start + rng.below(pages) }
    }
}

/// What a space maps at a page: nothing, or its part of the object with these rights.
pub type Mapped = Option<Rights>;

/// What is known of a page of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// What is mapped; `None` while verbs change it, and where the last ones met.
    now: Option<Mapped>,
    /// Verbs under way, and begun.
    open: u32,
    begun: u64,
}

/// A verb that is under way on a part of a window.
#[derive(Debug)]
pub struct Change {
    /// Where.
    pub part: Part,
    /// Each page as it was.
    before: Vec<Known>,
}

/// A space, and what is known of its windows.
#[derive(Debug)]
pub struct Place {
    /// The space.
    pub space: Space,
    windows: Vec<Mutex<Vec<Known>>>,
}

impl Place {
    /// A space with nothing mapped.
    pub fn new(space: Space) -> Place {
        let nothing = Known { now: Some(None), open: 0, begun: 0 };
        let window = |w: &Window| Mutex::new(vec![nothing; w.run.pages as usize]);
        Place { space, windows: WINDOWS.iter().map(window).collect() }
    }

    /// Everything that is known, for a fork.
    pub fn all(&self) -> Vec<Vec<Known>> {
        self.windows.iter().map(|window| lock(window).clone()).collect()
    }

    /// A fork of this space: it maps what this one mapped, where that did not change since
    /// `before` was read.
    pub fn forked(&self, space: Space, before: &[Vec<Known>]) -> Place {
        let same = |(was, is): (&Known, &Known)| Known {
            now: was.now.filter(|_| was == is),
            open: 0,
            begun: 0,
        };
        let windows = before
            .iter()
            .zip(self.all())
            .map(|(was, is)| Mutex::new(was.iter().zip(&is).map(same).collect()));
        Place { space, windows: windows.collect() }
    }

    /// A verb begins that may change what a part of a window maps.
    pub fn begin(&self, part: Part) -> Change {
        let mut pages = lock(&self.windows[part.window]);
        let pages = &mut pages[part.pages.start as usize..part.pages.end as usize];
        let before = pages.to_vec();
        for page in pages {
            *page = Known { now: None, open: page.open + 1, begun: page.begun + 1 };
        }
        Change { part, before }
    }

    /// What a verb found, if that is known and no other verb has met it. Asked when it is done.
    pub fn was(&self, change: &Change) -> Option<Vec<Mapped>> {
        let pages = lock(&self.windows[change.part.window]);
        let pages = &pages[change.part.pages.start as usize..change.part.pages.end as usize];
        let one = |(page, was): (&Known, &Known)| was.now.filter(|_| page.begun == was.begun + 1);
        pages.iter().zip(&change.before).map(one).collect()
    }

    /// It ended: page `n` of the part is as `then(n)` says, or, if it was refused, what it was.
    pub fn end(&self, change: &Change, then: Option<&dyn Fn(usize) -> Option<Mapped>>) {
        let mut pages = lock(&self.windows[change.part.window]);
        let pages = &mut pages[change.part.pages.start as usize..change.part.pages.end as usize];
        for (n, (page, was)) in pages.iter_mut().zip(&change.before).enumerate() {
            page.open -= 1;
            let alone = was.open == 0 && page.begun == was.begun + 1;
            page.now = if alone { then.map_or(was.now, |then| then(n)) } else { None };
        }
    }

    /// Before an access to a page.
    pub fn look(&self, spot: Spot) -> Known {
        lock(&self.windows[spot.window])[spot.page as usize]
    }

    /// What was mapped all the time since `before` was read, if that is known.
    pub fn still(&self, spot: Spot, before: Known) -> Option<Mapped> {
        before.now.filter(|_| self.look(spot) == before)
    }

    /// Whether an access may have ended so, but for the object's size; `before` is from before it.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn may_end(
        &self,
        (spot, before): (Spot, Known),
        access: Access,
        got: Result<(), FaultError>,
    ) -> Result<(), String> {
        let known = self.still(spot, before);
        let say = |what: &str| Err(format!("{what}: {access:?} gave {got:?}, {known:?}"));
        match (got, known) {
            (Err(FaultError::Stopped), _) => say("nobody stops anything here"),
            (Err(FaultError::NoMemory), _) | (_, None) => Ok(()),
            (Err(FaultError::Unmapped), Some(None)) => Ok(()),
            (_, Some(None)) => say("nothing was mapped all the time"),
            (Err(FaultError::Unmapped), Some(Some(_))) => say("it was mapped all the time"),
            (Ok(()), Some(Some(rights))) if !rights.allows(access) => say("nobody gave that right"),
            (Err(FaultError::Rights), Some(Some(rights))) if rights.allows(access) => {
                say("the right was there all the time")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_lie_apart_and_show_parts_of_objects() {
        let mut all: Vec<Run> = WINDOWS.iter().map(|w| w.run).collect();
        all.sort_by_key(|r| r.first);
        assert!(all.windows(2).all(|w| w[0].first + w[0].pages <= w[1].first), "{all:?}");
        for (n, window) in WINDOWS.iter().enumerate() {
            assert!(window.part < PAGES[window.object]);
            let Some(other) = window.other.map(|n| &WINDOWS[n]) else { continue };
            assert_eq!(
                (other.other, other.object, other.part),
                (Some(n), window.object, window.part)
            );
            assert_eq!(other.run.pages, window.run.pages);
        }
        let past = Spot { window: 1, page: 80 };
        assert_eq!((past.word(0), past.index()), (None, 80));
    }
}
