//! What every space shows, and what a call that is under way has yet to do to it.
//!
//! Extents of pages that are alike, with rights and two words; `object.rs` has the object's pages.

use vellum::space::Rights;

use super::object::{ObjectModel, ObjectPage};
use super::states::{EXTENTS, OBJECT_PAGES};

/// Words of a page that are looked at.
pub const WORDS: usize = 2;
/// Spaces there can be: the parent, the child that was there before, and one of each CPU's own
/// making.
pub const SIDES: usize = 5;

/// An extent of pages that are alike.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cell {
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) exec: bool,
    /// The page of the object that it is, which has its words.
    pub(super) object: Option<usize>,
    /// The page of the object that it shows until it is written.
    pub(super) view: Option<usize>,
    /// The page of the device that it is, which has its words.
    pub(super) device: Option<usize>,
    /// Its words, if it is private.
    pub words: [u32; WORDS],
}

impl Cell {
    /// Zeros.
    pub fn zero(rights: Rights) -> Cell {
        let (read, write, exec) = (!rights.is_none(), rights.write, rights.exec);
        Cell { read, write, exec, object: None, view: None, device: None, words: [0; WORDS] }
    }
    /// A page of the object, of which who writes may get a copy.
    pub fn of_object(rights: Rights, page: usize, private: bool) -> Cell {
        let view = private.then_some(page);
        Cell { object: Some(page), view, ..Cell::zero(rights) }
    }
    /// A page of the device.
    pub fn of_device(rights: Rights, page: usize) -> Cell {
        Cell { device: Some(page), ..Cell::zero(rights) }
    }
    /// What a word of it is.
    pub fn load(&self, word: usize, model: &Model) -> u32 {
        let device = self.device.map(|page| model.device[page]);
        let object = || self.object.map(|page| model.object.words(page));
        device.or_else(object).unwrap_or(self.words)[word]
    }
    /// Writes one.
    pub fn store(&mut self, word: usize, value: u32, model: &mut Model) {
        *self = self.copied(&model.object);
        match (self.device, self.object) {
            (Some(page), _) => model.device[page][word] = value,
            (_, Some(page)) => model.object.set(page, word, value),
            _ => self.words[word] = value,
        }
    }
    /// A view of a page that is there becomes a copy; anything else stays.
    pub(super) fn copied(self, object: &ObjectModel) -> Cell {
        match self.view.and(self.object) {
            Some(page) if object.pages[page] != ObjectPage::Gone => {
                Cell { object: None, words: object.words(page), ..self }
            }
            _ => self,
        }
    }
    /// Its rights.
    pub fn rights(self) -> Rights {
        Rights { read: self.read, write: self.write, exec: self.exec }
    }
    /// The same words with other rights.
    pub fn with(self, rights: Rights) -> Cell {
        let Cell { words, object, view, device, .. } = self;
        Cell { words, object, view, device, ..Cell::zero(rights) }
    }
}

pub(super) type Pages = [Option<Cell>; EXTENTS];

/// What every space shows.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Model {
    /// Each space's extents; none of a space that is not there.
    pub sides: [Option<Pages>; SIDES],
    /// The object.
    pub object: ObjectModel,
    /// The words of the device's pages.
    pub device: [[u32; WORDS]; OBJECT_PAGES],
}

/// What a verb that changes mappings has yet to do to an extent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Effect {
    Put(usize, Option<Cell>),
    Rights(usize, Rights),
    Forget(usize),
    Move(usize, usize),
    /// A view of the object's page becomes a copy.
    Copy(usize),
    /// A page of the object goes, or its words from one on are zero.
    Cut(usize),
    Clear(usize, usize),
    /// A page of the object is told as written, or is not: then it was not at that moment. From
    /// there on it is not.
    Harvest(usize, bool),
    /// A word of the object is this at some moment, which the pager had in the end.
    Saw(ObjectWord, u32),
}

/// A word of the object: its page, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ObjectWord {
    pub page: usize,
    pub word: usize,
}

impl Effect {
    pub(super) fn apply(self, model: &mut Model, side: usize) {
        match self {
            Effect::Cut(page) => {
                model.object.written[page] = false;
                return model.object.pages[page] = ObjectPage::Gone;
            }
            Effect::Clear(page, word) => {
                model.object.clear(page, word);
                // A hole is written; what lies past an end is not.
                if word == 0 {
                    model.object.note_write(page);
                }
                return;
            }
            Effect::Harvest(page, _) => return model.object.written[page] = false,
            _ => {}
        }
        let object = &model.object;
        let Some(pages) = &mut model.sides[side] else { return };
        match self {
            Effect::Cut(_) | Effect::Clear(..) | Effect::Harvest(..) | Effect::Saw(..) => {}
            Effect::Copy(n) => pages[n] = pages[n].map(|cell| cell.copied(object)),
            Effect::Put(n, cell) => pages[n] = cell,
            Effect::Rights(n, rights) => pages[n] = pages[n].map(|cell| cell.with(rights)),
            Effect::Forget(n) => {
                let forget = |cell: Cell| Cell {
                    words: [0; WORDS],
                    object: cell.view.or(cell.object),
                    ..cell
                };
                pages[n] = pages[n].map(forget);
            }
            Effect::Move(from, to) => pages[to] = pages[from].take(),
        }
    }
}
