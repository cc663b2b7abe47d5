//! The object of a scenario: its pages, and what accesses and calls find there.
//!
//! `resize` to less sets the size in one instant, for all calls and all faults. Until it returns, a
//! page past the new end that some space still maps may be used through that mapping, or not.
//! `punch` and the clearing of a last page's rest take effect page by page, in one instant each.
//! What programs store past the end is in no pager: a page that is read anew has zeros there.

use super::acts::Action;
use super::model::{Effect, ObjectWord, WORDS};
use super::spec::{Outcome, Refusal};
use super::states::{OBJECT_BYTES, OBJECT_PAGES};
use crate::small::SAMPLES;

const PAGE: u64 = 4096;

/// A page of the object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ObjectPage {
    /// With these words.
    There([u32; WORDS]),
    /// Past the end since a call that has not returned.
    Going([u32; WORDS]),
    /// Past the end.
    Gone,
}

/// The object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ObjectModel {
    /// Its size.
    bytes: u64,
    /// Whether that may not change.
    is_sealed: bool,
    /// Pages that were written since they were last harvested, if that is logged.
    pub written: [bool; OBJECT_PAGES],
    /// Whether it is.
    pub is_logged: bool,
    /// Its pages.
    pub pages: [ObjectPage; OBJECT_PAGES],
}

impl Default for ObjectModel {
    fn default() -> Self {
        let pages = [ObjectPage::There([0; WORDS]); OBJECT_PAGES];
        let written = [false; OBJECT_PAGES];
        ObjectModel { bytes: OBJECT_BYTES, is_sealed: false, written, is_logged: false, pages }
    }
}

impl ObjectModel {
    /// An access through a mapping, if it can end as it did.
    pub(super) fn access(
        &mut self,
        page: usize,
        outcome: Outcome,
        act: impl FnOnce(&mut [u32; WORDS]) -> Outcome,
    ) -> Option<Vec<Effect>> {
        let beyond = outcome == Outcome::Refused(Refusal::Beyond);
        let fits = match &mut self.pages[page] {
            ObjectPage::There(words) => act(words) == outcome,
            ObjectPage::Going(words) => beyond || act(words) == outcome,
            ObjectPage::Gone => beyond,
        };
        fits.then(Vec::new)
    }

    /// The words of a page; zeros past the end.
    pub(super) fn words(&self, page: usize) -> [u32; WORDS] {
        match self.pages[page] {
            ObjectPage::There(words) | ObjectPage::Going(words) => words,
            ObjectPage::Gone => [0; WORDS],
        }
    }

    /// Sets a word of a page.
    pub(super) fn set(&mut self, page: usize, word: usize, value: u32) {
        if let ObjectPage::There(words) = &mut self.pages[page] {
            words[word] = value;
            self.written[page] = self.is_logged;
        }
    }

    /// Zeros the words of a page from one on.
    pub(super) fn clear(&mut self, page: usize, first: usize) {
        if let ObjectPage::There(words) | ObjectPage::Going(words) = &mut self.pages[page] {
            words[first..].fill(0);
        }
    }

    /// A page was written.
    pub(super) fn note_write(&mut self, page: usize) {
        if let ObjectPage::There(_) = self.pages[page] {
            self.written[page] = self.is_logged;
        }
    }

    /// Lets a call begin, if it can end as it did; says what is left to do.
    pub(super) fn step(
        &mut self,
        act: Action,
        value: u32,
        outcome: Outcome,
    ) -> Option<Vec<Effect>> {
        let beyond = Outcome::Refused(Refusal::Beyond);
        match act {
            Action::Grab(page, word) => {
                let done = match &mut self.pages[page] {
                    ObjectPage::There(words) => {
                        words[word] = value;
                        self.written[page] = self.is_logged;
                        Outcome::Done
                    }
                    _ => beyond,
                };
                (done == outcome).then(Vec::new)
            }
            Action::WriteBack | Action::WillNeed => Some(Vec::new()),
            Action::Harvest => {
                let Outcome::Harvested(told) = outcome else { return None };
                let page = |page| Effect::Harvest(page, told[page]);
                Some((0..OBJECT_PAGES).map(page).collect())
            }
            Action::ReadObject(page, word) | Action::WriteObject(page, word) => {
                if page as u64 * PAGE + SAMPLES[word] as u64 + 4 > self.bytes {
                    return (outcome == beyond).then(Vec::new);
                }
                let ObjectPage::There(words) = &mut self.pages[page] else { return None };
                let done = match act {
                    Action::WriteObject(..) => {
                        words[word] = value;
                        self.written[page] = self.is_logged;
                        Outcome::Done
                    }
                    _ => Outcome::Value(words[word]),
                };
                (done == outcome).then(Vec::new)
            }
            Action::Punch(pages) => Some((0..pages).map(|page| Effect::Clear(page, 0)).collect()),
            Action::Sync => match outcome {
                Outcome::Done => Some(Vec::new()),
                Outcome::Saved(pages) => {
                    let saw = |page: usize, word: usize| {
                        Effect::Saw(ObjectWord { page, word }, pages[page][word])
                    };
                    let words = |page: usize| (0..WORDS).map(move |word| saw(page, word));
                    Some((0..OBJECT_PAGES).flat_map(words).collect())
                }
                _ => None,
            },
            Action::Evict | Action::Join | Action::Split => {
                (outcome == Outcome::Done).then(Vec::new)
            }
            Action::Resize(bytes) if self.is_sealed && bytes != self.bytes => {
                (outcome == Outcome::Refused(Refusal::Sealed)).then(Vec::new)
            }
            Action::Resize(bytes) => (outcome == Outcome::Done).then(|| self.resize(bytes)),
            Action::Seal => {
                self.is_sealed = true;
                Some(Vec::new())
            }
            Action::NextData(_) | Action::NextHole(_) => self.may_find(act, outcome).then(Vec::new),
            _ => None,
        }
    }

    /// Whether a search may have that outcome. A page with a word that is not zero is present;
    /// nothing is known here of others.
    fn may_find(&self, act: Action, outcome: Outcome) -> bool {
        let is_present = |page: usize| match self.pages[page] {
            ObjectPage::There(words) => words != [0; WORDS],
            _ => false,
        };
        let found = match outcome {
            Outcome::Value(at) if at as u64 <= self.bytes => Some(at as u64),
            Outcome::Refused(Refusal::Beyond) => None,
            _ => return false,
        };
        match (act, found) {
            (Action::NextData(from), found) => {
                let end = found.unwrap_or(self.bytes).div_ceil(PAGE) as usize;
                found != Some(self.bytes) && !(from..end).any(is_present)
            }
            (Action::NextHole(_), Some(at)) => {
                at == self.bytes || !is_present((at / PAGE) as usize)
            }
            (Action::NextHole(from), None) => from as u64 * PAGE >= self.bytes,
            _ => false,
        }
    }

    /// Forgets what was stored past the end, as a page does that comes from the pager anew.
    pub(super) fn forget_rest(&mut self) {
        if let Some((page, word)) = rest(self.bytes) {
            self.clear(page, word);
        }
    }

    fn resize(&mut self, bytes: u64) -> Vec<Effect> {
        let old = std::mem::replace(&mut self.bytes, bytes);
        let kept = bytes.div_ceil(PAGE) as usize;
        if bytes >= old {
            if let Some((page, word)) = rest(old) {
                self.clear(page, word);
            }
            for page in &mut self.pages[..kept] {
                if *page == ObjectPage::Gone {
                    *page = ObjectPage::There([0; WORDS]);
                }
            }
            return Vec::new();
        }
        let mut effects = Vec::new();
        for (n, page) in self.pages.iter_mut().enumerate().skip(kept) {
            if let ObjectPage::There(words) = *page {
                *page = ObjectPage::Going(words);
                effects.push(Effect::Cut(n));
            }
        }
        effects.extend(rest(bytes).map(|(page, word)| Effect::Clear(page, word)));
        effects
    }
}

/// The first word past an end, and its page, where that page has words before the end.
fn rest(end: u64) -> Option<(usize, usize)> {
    let page = (end / PAGE) as usize;
    let word = SAMPLES[..WORDS].iter().position(|&at| at as u64 >= end % PAGE);
    word.filter(|_| !end.is_multiple_of(PAGE)).map(|word| (page, word))
}
