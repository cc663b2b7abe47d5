//! The words of the objects, recorded outside of them, and what a look at one may find.
//!
//! Each thread has one word of every page, which only it stores to. A store to a word is *wiped*
//! by a punch or a change of the size that takes the word. Stores of a word are numbered, and so
//! are its wipes. Records are written before and after each operation, so each rule names two
//! instants, as in [`expected`](crate::stress::shared::expected):
//!
//! - a look finds zeros, or a store that has begun before the look ended;
//! - it finds nothing older than a store that was done, or seen, before the look began;
//! - it finds zeros only if a wipe ended after that store began, and began before the look ended;
//! - it does not find a store that was done before a wipe began that ended before the look began;
//! - once zeros were seen, what was done or seen before that look began never comes back. So nobody
//!   finds zeros in one place while others still use the page in another.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::size::Size;
use crate::stress::shared::word;

/// Pages that each object has at most: more than the library takes out at once, and few.
pub const PAGES: [u64; 2] = [80, 12];
/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// No number of wipes.
const NEVER: u64 = u64::MAX;

/// A thread's word of a page of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// The object.
    pub object: usize,
    /// The page of it.
    pub page: u64,
    /// The thread that stores there.
    pub writer: usize,
}

impl Word {
    fn slot(self) -> usize {
        (PAGES[..self.object].iter().sum::<u64>() + self.page) as usize
    }
    /// Where in the object it lies, in bytes.
    pub fn offset(self) -> u64 {
        self.page * PAGE + self.in_page()
    }
    /// Where in its page it lies.
    pub fn in_page(self) -> u64 {
        word::offset(self.writer, self.slot()) as u64
    }
    /// What its thread's store of that number puts there.
    pub fn value(self, count: u64) -> u64 {
        word::word(self.writer, self.slot(), count)
    }
    /// The store that left this value, 0 for zeros; `None` if none can have.
    pub fn count(self, value: u64) -> Option<u64> {
        word::count(value, self.writer, self.slot())
    }
}

/// What is recorded of a word.
#[derive(Debug, Default)]
struct Cell {
    /// The last store begun, and the last done.
    started: AtomicU64,
    done: AtomicU64,
    /// Wipes begun when that store began, if all were over; otherwise [`NEVER`].
    before: AtomicU64,
    /// Wipes begun when it was done.
    after: AtomicU64,
    /// The latest store that any thread saw.
    seen: AtomicU64,
    /// Stores up to this one are gone: zeros were seen later.
    gone: AtomicU64,
    /// Wipes begun, and ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// The latest wipe that has ended, by its number among those begun.
    wiped: AtomicU64,
}

/// A store that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Store {
    word: Word,
    count: u64,
    before: u64,
    /// The store begun before it.
    old: u64,
}

/// A wipe of one word that is under way: the word, and the wipe's number there.
pub type Wipe = (Word, u64);

/// What was known of a word before a look at it.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    word: Word,
    done: u64,
    /// `before` and `after` of that store, if no other began while they were read.
    wipes: Option<(u64, u64)>,
    /// Nothing older than this may be found.
    least: u64,
    gone: u64,
    wiped: u64,
}

/// All of it.
#[derive(Debug)]
pub struct Contents {
    writers: usize,
    cells: Box<[Cell]>,
    /// What is known of each object's size.
    pub sizes: [Size; PAGES.len()],
}

impl Contents {
    /// Of objects that are as long as they may be, and zero.
    pub fn new(writers: usize) -> Contents {
        let cells = PAGES.iter().sum::<u64>() as usize * writers;
        Contents {
            writers,
            cells: (0..cells).map(|_| Cell::default()).collect(),
            sizes: PAGES.map(|pages| Size::new(pages * PAGE)),
        }
    }

    /// How many threads store.
    pub fn writers(&self) -> usize {
        self.writers
    }

    /// The words of an object that lie in a range of its bytes.
    pub fn words_in(&self, object: usize, bytes: Range<u64>) -> impl Iterator<Item = Word> {
        let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE).min(PAGES[object]);
        let writers = self.writers;
        let all =
            pages.flat_map(move |page| (0..writers).map(move |w| Word { object, page, writer: w }));
        all.filter(move |word| bytes.contains(&word.offset()))
    }

    fn cell(&self, word: Word) -> &Cell {
        &self.cells[word.slot() * self.writers + word.writer]
    }

    /// The word's thread is about to store.
    pub fn store(&self, word: Word, count: u64) -> Store {
        let cell = self.cell(word);
        let old = cell.started.swap(count, SeqCst);
        let ended = cell.ended.load(SeqCst);
        let begun = cell.begun.load(SeqCst);
        Store { word, count, before: if ended == begun { begun } else { NEVER }, old }
    }

    /// It has stored, or was refused.
    pub fn stored(&self, store: Store, done: bool) {
        let cell = self.cell(store.word);
        if !done {
            return cell.started.store(store.old, SeqCst);
        }
        cell.before.store(store.before, SeqCst);
        cell.after.store(cell.begun.load(SeqCst), SeqCst);
        cell.done.store(store.count, SeqCst);
    }

    /// Bytes of an object are about to become zero; what to hand to [`Contents::wiped`].
    pub fn wipe(&self, object: usize, bytes: Range<u64>) -> Vec<Wipe> {
        let begin = |word| (word, self.cell(word).begun.fetch_add(1, SeqCst) + 1);
        self.words_in(object, bytes).map(begin).collect()
    }

    /// They did.
    pub fn wiped(&self, wipes: &[Wipe]) {
        for &(word, number) in wipes {
            let cell = self.cell(word);
            cell.wiped.fetch_max(number, SeqCst);
            cell.ended.fetch_add(1, SeqCst);
        }
    }

    /// Before a look at a word.
    pub fn look(&self, word: Word) -> Look {
        let cell = self.cell(word);
        let started = cell.started.load(SeqCst);
        let done = cell.done.load(SeqCst);
        let wipes = (cell.before.load(SeqCst), cell.after.load(SeqCst));
        let still = started == done && cell.started.load(SeqCst) == started;
        Look {
            word,
            done,
            wipes: still.then_some(wipes),
            least: done.max(cell.seen.load(SeqCst)),
            gone: cell.gone.load(SeqCst),
            wiped: cell.wiped.load(SeqCst),
        }
    }

    /// Whether a look may have found the store number `count`; 0 is zeros. Says whether nothing
    /// else could have been there.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn may_be(&self, look: &Look, count: u64) -> Result<bool, String> {
        let cell = self.cell(look.word);
        let (begun, started) = (cell.begun.load(SeqCst), cell.started.load(SeqCst));
        let say = |what: &str| {
            Err(format!("{what}: store {count} was found, {look:x?}, {cell:x?}, {begun} begun"))
        };
        let alone = look.wipes.filter(|_| started == look.done);
        if count == 0 {
            if look.done != 0 && look.wipes.is_some_and(|(before, _)| before == begun) {
                return say("a store is lost though no wipe has begun since before it");
            }
            cell.gone.fetch_max(look.least, SeqCst);
            return Ok(alone.is_some_and(|(_, after)| look.done == 0 || look.wiped > after));
        }
        if count > started {
            return say("a store that had not begun");
        }
        if count < look.least {
            return say("an older store than one that was there before");
        }
        if count <= look.gone {
            return say("a store that others no longer found");
        }
        if let Some((_, after)) = look.wipes
            && count <= look.done
            && look.wiped > after
        {
            return say("a store is still there after a wipe that began when it was done");
        }
        cell.seen.fetch_max(count, SeqCst);
        Ok(alone.is_some_and(|(before, _)| before == begun))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: Word = Word { object: 1, page: 3, writer: 1 };

    fn done(contents: &Contents, count: u64) {
        contents.stored(contents.store(WORD, count), true);
    }

    /// Which of these a look that began at `look` may find.
    fn fits<const N: usize>(contents: &Contents, look: &Look, counts: [u64; N]) -> [bool; N] {
        counts.map(|count| contents.may_be(look, count).is_ok())
    }

    #[test]
    fn words_have_values_of_their_own_and_lie_in_their_page() {
        let contents = Contents::new(8);
        let all: Vec<Word> = (0..2).flat_map(|o| contents.words_in(o, 0..u64::MAX / 2)).collect();
        assert_eq!(all.len(), 92 * 8);
        for word in &all {
            assert_eq!((word.offset() / PAGE, word.count(word.value(9))), (word.page, Some(9)));
        }
        let page = contents.words_in(0, PAGE..2 * PAGE);
        assert!(page.count() == 8 && contents.words_in(1, 12 * PAGE..90 * PAGE).count() == 0);
        let word = Word { object: 0, page: 0, writer: 0 };
        assert_eq!(contents.words_in(0, word.offset()..word.offset() + 8).next(), Some(word));
    }

    #[test]
    fn a_store_stays_until_it_is_wiped() {
        let contents = Contents::new(2);
        assert_eq!(contents.may_be(&contents.look(WORD), 0), Ok(true));
        let store = contents.store(WORD, 5);
        let during = contents.look(WORD);
        assert_eq!(fits(&contents, &during, [0, 5, 6]), [true, true, false]);
        contents.stored(store, true);
        let look = contents.look(WORD);
        assert_eq!(fits(&contents, &look, [0, 4, 6]), [false; 3]);
        assert_eq!(contents.may_be(&look, 5), Ok(true));
        // A store that was refused changes nothing.
        contents.stored(contents.store(WORD, 7), false);
        assert_eq!(contents.may_be(&contents.look(WORD), 5), Ok(true));
    }

    #[test]
    fn zeros_are_allowed_beside_a_wipe_and_wanted_after_it() {
        let contents = Contents::new(2);
        done(&contents, 5);
        let early = contents.look(WORD);
        let wipe = contents.wipe(1, 3 * PAGE..4 * PAGE);
        let beside = contents.look(WORD);
        assert_eq!(contents.may_be(&beside, 5), Ok(false));
        assert_eq!(contents.may_be(&early, 0), Ok(false));
        // Who looks later does not find it any more.
        assert_eq!(fits(&contents, &contents.look(WORD), [0, 5]), [true, false]);
        contents.wiped(&wipe);
        let late = contents.look(WORD);
        assert_eq!(contents.may_be(&late, 0), Ok(true));
        assert_eq!(fits(&contents, &late, [5]), [false]);
        done(&contents, 6);
        assert_eq!(fits(&contents, &contents.look(WORD), [0, 5, 6]), [false, false, true]);
    }

    #[test]
    fn a_store_beside_a_wipe_may_stay_or_go() {
        let contents = Contents::new(2);
        let wipe = contents.wipe(1, 0..12 * PAGE);
        done(&contents, 5);
        contents.wiped(&wipe);
        assert_eq!(fits(&contents, &contents.look(WORD), [5]), [true]);
        let look = contents.look(WORD);
        assert_eq!(contents.may_be(&look, 0), Ok(false));
        assert_eq!(fits(&contents, &contents.look(WORD), [5]), [false]);
    }
}
