//! The model: a map from page to rights and bytes.
//!
//! It has no tables, regions or frames, so the library's answers must match whatever those do. Its
//! one optimisation: 2 MiB of equal pages are one cell, which copies share until one of them
//! changes. A page of an object is named by its cell, and its bytes are in the object.

pub mod object;

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use vellum::space::Rights;

use crate::small::{BYTES, Contents};

/// Pages kept together.
const CHUNK: u64 = 512;

/// A mapped page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// What its region gives.
    pub rights: Rights,
    /// Whether its region insists on huge leaves.
    pub exactly: bool,
    /// What is behind it.
    pub page: Page,
}

/// What is behind a mapped page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// Bytes that are the space's own.
    Own(Contents),
    /// A page of an object: the object's name, and the index.
    Object(u64, u64),
    /// The same, of which who writes gets a copy, and the copy.
    View(u64, u64, Option<Contents>),
}

impl Page {
    /// Zeros that are the space's own.
    pub const ZERO: Page = Page::Own([0; BYTES]);

    /// The page of an object that it shows: the object's name, and the index.
    pub fn shows(self) -> Option<(u64, u64)> {
        match self {
            Page::Object(name, index) | Page::View(name, index, None) => Some((name, index)),
            _ => None,
        }
    }

    /// What it holds of the space's own.
    pub fn own(self) -> Option<Contents> {
        match self {
            Page::Own(contents) | Page::View(_, _, Some(contents)) => Some(contents),
            _ => None,
        }
    }

    /// The page once the space has bytes of its own there.
    pub fn with_own(self, contents: Contents) -> Page {
        match self {
            Page::View(name, index, _) => Page::View(name, index, Some(contents)),
            _ => Page::Own(contents),
        }
    }
}

impl Cell {
    /// A page of zeros.
    pub fn zero(rights: Rights, exactly: bool) -> Cell {
        Cell { rights, exactly, page: Page::ZERO }
    }

    /// Forgets what it holds. An object does not.
    pub fn forget(&mut self) {
        match &mut self.page {
            Page::Own(_) => self.page = Page::ZERO,
            Page::View(_, _, copy) => *copy = None,
            Page::Object(..) => {}
        }
    }

    /// The page so many pages further on, of the same region, when nothing was written there.
    pub fn ahead(self, pages: u64) -> Cell {
        let page = match self.page {
            Page::Own(_) => Page::ZERO,
            Page::Object(name, index) => Page::Object(name, index + pages),
            Page::View(name, index, _) => Page::View(name, index + pages, None),
        };
        Cell { page, ..self }
    }
}

type Cells = [Option<Cell>; CHUNK as usize];

#[derive(Clone, Debug)]
enum Chunk {
    Alike(Cell),
    Mixed(Rc<Cells>),
}

/// The pages of a space, by page number.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    chunks: BTreeMap<u64, Chunk>,
}

/// The parts of a range, one per chunk: chunk, and pages inside it.
fn parts(range: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    (range.start / CHUNK..range.end.div_ceil(CHUNK)).map(move |n| {
        let from = range.start.max(n * CHUNK) - n * CHUNK;
        let to = range.end.min((n + 1) * CHUNK) - n * CHUNK;
        (n, from as usize..to as usize)
    })
}

impl Pages {
    /// A page, if it is mapped.
    pub fn get(&self, page: u64) -> Option<Cell> {
        match self.chunks.get(&(page / CHUNK))? {
            Chunk::Alike(cell) => Some(*cell),
            Chunk::Mixed(cells) => cells[(page % CHUNK) as usize],
        }
    }

    fn cells(&mut self, n: u64) -> &mut Cells {
        let chunk =
            self.chunks.entry(n).or_insert_with(|| Chunk::Mixed(Rc::new([None; CHUNK as usize])));
        if let Chunk::Alike(cell) = *chunk {
            *chunk = Chunk::Mixed(Rc::new([Some(cell); CHUNK as usize]));
        }
        match chunk {
            Chunk::Mixed(cells) => Rc::make_mut(cells),
            Chunk::Alike(_) => unreachable!("it was made mixed above"),
        }
    }

    /// Makes every page of a range that, or unmaps it.
    pub fn fill(&mut self, range: Range<u64>, cell: Option<Cell>) {
        for (n, part) in parts(range) {
            match cell {
                Some(cell) if part.len() as u64 == CHUNK => {
                    drop(self.chunks.insert(n, Chunk::Alike(cell)))
                }
                None if part.len() as u64 == CHUNK => drop(self.chunks.remove(&n)),
                None if !self.chunks.contains_key(&n) => {}
                _ => self.cells(n)[part].fill(cell),
            }
        }
    }

    /// Maps a range to one region, of which nothing was touched, with that first page.
    pub fn lay(&mut self, range: Range<u64>, first: Cell) {
        match first.page {
            Page::Own(_) => self.fill(range, Some(first)),
            Page::Object(..) | Page::View(..) => {
                (0..).zip(range).for_each(|(n, page)| self.set(page, Some(first.ahead(n))))
            }
        }
    }

    /// Makes one page that, or unmaps it.
    pub fn set(&mut self, page: u64, cell: Option<Cell>) {
        self.cells(page / CHUNK)[(page % CHUNK) as usize] = cell;
    }

    /// Changes every mapped page of a range.
    pub fn each(&mut self, range: Range<u64>, change: impl Fn(&mut Cell)) {
        for (n, part) in parts(range) {
            match self.chunks.get_mut(&n) {
                None => {}
                Some(Chunk::Alike(cell)) if part.len() as u64 == CHUNK => change(cell),
                Some(_) => self.cells(n)[part].iter_mut().flatten().for_each(&change),
            }
        }
    }

    /// Mapped pages of a range.
    pub fn count(&self, range: Range<u64>) -> u64 {
        let of = |(n, part): (u64, Range<usize>)| match self.chunks.get(&n) {
            None => 0,
            Some(Chunk::Alike(_)) => part.len() as u64,
            Some(Chunk::Mixed(cells)) => cells[part].iter().flatten().count() as u64,
        };
        parts(range).map(of).sum()
    }

    /// Whether a page of the range satisfies it.
    pub fn any(&self, range: Range<u64>, is: impl Fn(&Cell) -> bool) -> bool {
        parts(range).any(|(n, part)| match self.chunks.get(&n) {
            None => false,
            Some(Chunk::Alike(cell)) => is(cell),
            Some(Chunk::Mixed(cells)) => cells[part].iter().flatten().any(&is),
        })
    }

    /// Whether a page of that object may be written.
    pub fn writes_object(&self, name: u64) -> bool {
        let is = |cell: &Cell| {
            cell.rights.write && matches!(cell.page, Page::Object(of, _) if of == name)
        };
        self.chunks().any(|chunk| self.any(chunk..chunk + CHUNK, is))
    }

    /// Whether a page of that object is mapped.
    pub fn has_object(&self, name: u64) -> bool {
        let is = |cell: &Cell| match cell.page {
            Page::Own(_) => false,
            Page::Object(of, _) | Page::View(of, ..) => of == name,
        };
        self.chunks().any(|chunk| self.any(chunk..chunk + CHUNK, is))
    }

    /// Every page mapped.
    pub fn len(&self) -> u64 {
        self.chunks.keys().map(|&n| self.count(n * CHUNK..(n + 1) * CHUNK)).sum()
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first mapped page from `page` on that is less than `within` pages away.
    pub fn next(&self, page: u64, within: u64) -> Option<u64> {
        parts(page..page + within).find_map(|(n, part)| match self.chunks.get(&n)? {
            Chunk::Alike(_) => Some(n * CHUNK + part.start as u64),
            Chunk::Mixed(cells) => {
                let at = cells[part.clone()].iter().position(Option::is_some)?;
                Some(n * CHUNK + (part.start + at) as u64)
            }
        })
    }

    /// How many pages from the first of the range on are mapped without a hole.
    pub fn run(&self, range: Range<u64>) -> u64 {
        let mut run = 0;
        for (n, part) in parts(range) {
            let here = match self.chunks.get(&n) {
                None => 0,
                Some(Chunk::Alike(_)) => part.len(),
                Some(Chunk::Mixed(cells)) => {
                    cells[part.clone()].iter().take_while(|cell| cell.is_some()).count()
                }
            };
            run += here as u64;
            if here < part.len() {
                break;
            }
        }
        run
    }

    /// Every mapped page, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Cell)> + '_ {
        self.chunks.keys().flat_map(move |&n| {
            (n * CHUNK..(n + 1) * CHUNK).filter_map(|page| Some((page, self.get(page)?)))
        })
    }

    /// The 2 MiB in which something is mapped, by their first pages.
    pub fn chunks(&self) -> impl Iterator<Item = u64> + '_ {
        self.chunks.keys().map(|&n| n * CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_host::rng::Rng;

    /// The model of the model: really one entry a page.
    #[test]
    fn chunks_are_only_a_quicker_map() {
        let mut rng = Rng::new(5);
        let (mut pages, mut map) = (Pages::default(), BTreeMap::new());
        for step in 0..3000u32 {
            let first = rng.below(2000);
            let count = if rng.once_in(3) { 512 } else { 1 + rng.below(700) };
            let first = if rng.once_in(3) { first & !511 } else { first };
            let range = first..first + count;
            let cell =
                Cell::zero([Rights::READ, Rights::ALL][rng.below(2) as usize], rng.once_in(2));
            match rng.below(5) {
                0 => {
                    pages.fill(range.clone(), Some(cell));
                    map.extend(range.map(|p| (p, cell)));
                }
                1 => {
                    pages.fill(range.clone(), None);
                    map.retain(|p, _| !range.contains(p));
                }
                3 => {
                    let cell = Cell { page: Page::Object(step as u64, first), ..cell };
                    pages.lay(range.clone(), cell);
                    map.extend(
                        range.map(|p| (p, Cell { page: Page::Object(step as u64, p), ..cell })),
                    );
                }
                2 => {
                    let page = Page::Own([step as u8; BYTES]);
                    pages.each(range.clone(), |c| c.page = page);
                    map.range_mut(range).for_each(|(_, c)| c.page = page);
                }
                _ => {
                    let copy = pages.clone();
                    pages.set(first, Some(cell));
                    assert_eq!(copy.get(first), map.get(&first).copied());
                    map.insert(first, cell);
                }
            }
            let range = first..first + count;
            assert_eq!(pages.count(range.clone()), map.range(range.clone()).count() as u64);
            assert_eq!(
                pages.next(first, 900),
                map.range(first..first + 900).next().map(|(&p, _)| p)
            );
            assert_eq!(
                pages.run(range.clone()),
                range.clone().take_while(|p| map.contains_key(p)).count() as u64
            );
            assert_eq!(
                pages.any(range.clone(), |c| c.exactly),
                map.range(range).any(|(_, c)| c.exactly)
            );
        }
        assert!(pages.iter().eq(map.iter().map(|(&p, &c)| (p, c))));
        assert_eq!(pages.len(), map.len() as u64);
    }
}
