//! The state of every page of a shared space, published by its owner for other threads to compare.
//!
//! An owner knows its pages exactly, but its CPU is the least likely to hold a stale translation:
//! its verbs flush there first. So the owner publishes each page's state in one word, and clears
//! that word while a verb or a store on the page is under way. Another thread reads the word, then
//! the page, then the word again. If the word is set and unchanged, the page must have been in that
//! state. Every publication has a fresh serial number, so equal words mean that nothing happened in
//! between.

use std::sync::atomic::{AtomicU64, Ordering};

use vellum::space::Rights;

use super::owned_pages::{Page, Window, stamp};

/// What a look at a page must find in its first word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Published {
    /// No region.
    Unmapped,
    /// A region without rights.
    NoAccess,
    /// Zeros.
    Zero,
    /// The owner's stamp of that serial number.
    Stamp(u64),
}

/// One shared space's pages.
#[derive(Debug)]
pub struct PublishedState {
    first: u64,
    words: Box<[AtomicU64]>,
}

impl PublishedState {
    /// For a window in which nothing is mapped and nothing published.
    pub fn new(window: Window) -> PublishedState {
        let words = (0..window.pages()).map(|_| AtomicU64::new(0)).collect();
        PublishedState { first: window.first(), words }
    }
    fn word(&self, page: u64) -> Option<&AtomicU64> {
        self.words.get(page.wrapping_sub(self.first) as usize)
    }
    /// The page is about to change. Its owner calls it.
    pub fn take_down(&self, page: u64) {
        if let Some(word) = self.word(page) {
            word.store(0, Ordering::SeqCst);
        }
    }
    /// The page is as its owner knows it; `serial` is fresh. Its owner calls it.
    pub fn publish(&self, page: u64, state: Option<&Page>, serial: u64) {
        let Some(word) = self.word(page) else { return };
        let value = match state {
            None => serial << 2,
            Some(p) if p.rights == Rights::NONE => serial << 2 | 1,
            Some(p) if p.words[0] == 0 => serial << 2 | 2,
            // A stamp is written once, so its own number will do.
            Some(p) => (p.words[0] & ((1 << 40) - 1)) << 2 | 3,
        };
        word.store(value, Ordering::SeqCst);
    }
    /// The word of a page; 0 if nothing is published.
    pub fn read(&self, page: u64) -> u64 {
        self.word(page).map_or(0, |word| word.load(Ordering::SeqCst))
    }
}

/// What a published word says, if it says anything.
pub fn meaning(word: u64) -> Option<Published> {
    match (word, word & 3) {
        (0, _) => None,
        (_, 0) => Some(Published::Unmapped),
        (_, 1) => Some(Published::NoAccess),
        (_, 2) => Some(Published::Zero),
        _ => Some(Published::Stamp(word >> 2)),
    }
}

impl Published {
    /// The first word of such a page, where it can be read.
    pub fn word(self, lineage: u64, owner: u64) -> Option<u64> {
        match self {
            Published::Zero => Some(0),
            Published::Stamp(serial) => Some(stamp(lineage, owner, serial)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_what_is_read() {
        let window = Window { threads: 2 };
        let published = PublishedState::new(window);
        let page = window.first() + 7;
        assert_eq!(meaning(published.read(page)), None);
        let mut p = Page { rights: Rights::READ_WRITE, words: [0; 3] };
        published.publish(page, Some(&p), 5);
        assert_eq!(meaning(published.read(page)), Some(Published::Zero));
        p.words[0] = stamp(1, 1, 77);
        published.publish(page, Some(&p), 6);
        assert_eq!(meaning(published.read(page)).and_then(|m| m.word(1, 1)), Some(p.words[0]));
        p.rights = Rights::NONE;
        published.publish(page, Some(&p), 7);
        assert_eq!(meaning(published.read(page)), Some(Published::NoAccess));
        published.publish(page, None, 8);
        assert_eq!(meaning(published.read(page)), Some(Published::Unmapped));
        published.take_down(page);
        assert_eq!(meaning(published.read(page)), None);
        assert_eq!(published.read(0), 0);
    }
}
