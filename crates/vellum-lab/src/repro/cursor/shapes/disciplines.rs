//! How a page gets into its object's trie: three searches from the root, or one.
//!
//! The published system searched three times: for the page that is not there, for the page before
//! it (it kept a sorted list beside the trie), and for the place to insert. The cursor was first
//! used in calls that take many pages in a row (M1), then in the page fault (M2).

use std::collections::HashSet;

use super::nodes::{Nodes, Place, Steps};
use crate::repro::cursor::load::{Act, Load, ObjectPage};

/// Who has a cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discipline {
    /// Nobody: the original.
    Root,
    /// Loops that take many pages: M1.
    Grabs,
    /// The page fault as well: M2.
    Faults,
}

impl Discipline {
    /// In their order.
    pub const ALL: [Discipline; 3] = [Discipline::Root, Discipline::Grabs, Discipline::Faults];
}

/// Calls that allocate a page, and what they visited.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Visits {
    /// Calls.
    pub calls: u64,
    /// Nodes visited, climbs included.
    pub visits: u64,
    /// Nodes reached from below.
    pub climbs: u64,
    /// Visits of insertions, by those that begin at the root.
    pub insertion: u64,
    /// Nodes above the page before it was inserted.
    pub depth: u64,
    /// The most of them.
    pub deepest: u64,
}

impl Visits {
    /// A figure for each call.
    pub fn each(&self, figure: u64) -> f64 {
        figure as f64 / self.calls.max(1) as f64
    }
}

/// A trie of each object.
pub trait Tries {
    /// Puts a page in, in a fault.
    fn fault(&mut self, page: ObjectPage, discipline: Discipline);
    /// Puts pages in that follow each other, those that are not there.
    fn grab(&mut self, first: ObjectPage, pages: u64, discipline: Discipline);
    /// Takes a page out.
    fn remove(&mut self, page: ObjectPage);
    /// Takes all pages of an object out.
    fn clear(&mut self, object: usize);
    /// What was counted.
    fn visits(&self) -> Visits;
}

/// The published shape.
#[derive(Default)]
pub struct Published {
    /// Its nodes.
    pub nodes: Nodes,
    counted: Visits,
}

impl Published {
    fn put(&mut self, page: ObjectPage, place: &mut Place, keeps: bool) {
        let ObjectPage { object, index } = page;
        let depth = self.nodes.depth(object, index);
        self.counted.calls += 1;
        self.counted.depth += depth;
        self.counted.deepest = self.counted.deepest.max(depth);
        if keeps {
            self.nodes.predecessor_near(place, index);
            let before = self.nodes.steps.visits;
            self.nodes.insert(place, index);
            self.counted.insertion += self.nodes.steps.visits - before;
        } else {
            self.nodes.predecessor(object, index);
            let before = self.nodes.steps.visits;
            self.nodes.insert(&mut Place::root(object), index);
            self.counted.insertion += self.nodes.steps.visits - before;
        }
    }
}

impl Tries for Published {
    fn fault(&mut self, page: ObjectPage, discipline: Discipline) {
        let mut place = Place::root(page.object);
        if !self.nodes.lookup(&mut place, page.index) {
            self.put(page, &mut place, discipline == Discipline::Faults);
        }
    }
    fn grab(&mut self, first: ObjectPage, pages: u64, discipline: Discipline) {
        let keeps = discipline != Discipline::Root;
        let mut place = Place::root(first.object);
        for index in first.index..first.index + pages {
            if !keeps {
                place = Place::root(first.object);
            }
            if !self.nodes.lookup(&mut place, index) {
                self.put(ObjectPage { index, ..first }, &mut place, keeps);
            }
        }
    }
    fn remove(&mut self, page: ObjectPage) {
        self.nodes.remove(page.object, page.index);
    }
    fn clear(&mut self, object: usize) {
        self.nodes.clear(object);
    }
    fn visits(&self) -> Visits {
        let Steps { visits, climbs } = self.nodes.steps;
        Visits { visits, climbs, ..self.counted }
    }
}

/// Runs the program so many times. Pages of files stay.
pub fn runs(load: &Load, times: usize, discipline: Discipline, tries: &mut dyn Tries) {
    let mut files = HashSet::new();
    for _ in 0..times {
        for moment in &load.moments {
            match moment.act {
                Act::Touch(touched) if touched.is_file && !files.insert(touched.of) => {}
                Act::Touch(touched) => tries.fault(touched.of, discipline),
                Act::Drop(touched) => tries.remove(touched.of),
            }
        }
        // Objects of mappings have even numbers.
        (0..load.objects).step_by(2).for_each(|object| tries.clear(object));
    }
}
