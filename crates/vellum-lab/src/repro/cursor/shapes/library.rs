//! The same calls on the library's own trie, of nodes with eight and with 512 slots.
//!
//! From the root, a call searches three times, as the published one does: a reader without a lock,
//! then under the guard, then to insert. (The library keeps no sorted list, so the second search is
//! for the page itself.) With a cursor it searches once.

use vellum::addr::{Order, Pfn};
use vellum::stats::Counter;
use vellum::unstable::{Token, Trie, TrieEntry};
use vellum::vm::Vm;
use vellum_sim::SimMachine;
use vellum_sim::format::Format;

use super::disciplines::{Discipline, Tries, Visits};
use crate::error::LabError;
use crate::repro::cursor::load::ObjectPage;

/// A trie of the library for each object.
pub struct Library<'v, F: Format> {
    vm: &'v Vm<SimMachine<F>>,
    tries: Vec<Option<Trie>>,
    counted: Visits,
    refused: Option<LabError>,
}

impl<'v, F: Format> Library<'v, F> {
    /// No object yet.
    pub fn new(vm: &'v Vm<SimMachine<F>>) -> Self {
        Library { vm, tries: Vec::new(), counted: Visits::default(), refused: None }
    }

    /// What was counted, and whether every page had memory for its node.
    pub fn end(mut self) -> Result<Visits, LabError> {
        let visits = self.counted;
        (0..self.tries.len()).for_each(|object| self.clear(object));
        self.refused.take().map_or(Ok(visits), Err)
    }

    /// Nodes that `act` visits in the trie of an object.
    fn visited(&mut self, object: usize, act: impl FnOnce(&Trie)) -> u64 {
        if self.tries.len() <= object {
            self.tries.resize_with(object + 1, || None);
        }
        let vm = self.vm;
        let trie = self.tries[object].get_or_insert_with(|| vm.tries().create());
        let read = || vm.stats().get(Counter::ObjectNodeVisits);
        let before = read();
        act(trie);
        (read() - before) as u64
    }

    /// A page is looked up, and put in: by one cursor, or anew each time.
    fn put(&mut self, page: ObjectPage, keeps: bool) {
        let (vm, ObjectPage { object, index }) = (self.vm, page);
        let Some(entry) = TrieEntry::new(Pfn(1), Order::BASE) else { return };
        let mut is_there = false;
        let depth = self.visited(object, |trie| {
            is_there = vm.tries().read(trie).lookup(index).is_some();
        });
        if is_there {
            self.counted.visits += depth;
            return;
        }
        // Counted by itself, so that what the insertion adds is known.
        let search = self.visited(object, |trie| {
            vm.tries().lock(trie, &mut Token::top()).cursor().lookup(index);
        });
        let mut done = Ok(());
        let both = self.visited(object, |trie| {
            let mut top = Token::top();
            let mut guard = vm.tries().lock(trie, &mut top);
            let mut cursor = guard.cursor();
            if keeps {
                cursor.lookup(index);
            }
            done = cursor.insert(index, entry);
        });
        if done.is_err() {
            self.refused.get_or_insert(LabError::failed("the machine has no memory for nodes"));
        }
        let counted = &mut self.counted;
        counted.calls += 1;
        counted.visits += if keeps { both } else { depth + search + both };
        counted.insertion += if keeps { both - search } else { both };
        counted.depth += depth;
        counted.deepest = counted.deepest.max(depth);
    }
}

impl<F: Format> Tries for Library<'_, F> {
    fn fault(&mut self, page: ObjectPage, discipline: Discipline) {
        self.put(page, discipline == Discipline::Faults);
    }
    fn grab(&mut self, first: ObjectPage, pages: u64, discipline: Discipline) {
        let indices = first.index..first.index + pages;
        if discipline == Discipline::Root {
            return indices.for_each(|index| self.put(ObjectPage { index, ..first }, false));
        }
        let Some(entry) = TrieEntry::new(Pfn(1), Order::BASE) else { return };
        let (vm, mut put) = (self.vm, 0);
        let visits = self.visited(first.object, |trie| {
            let mut top = Token::top();
            let mut guard = vm.tries().lock(trie, &mut top);
            let mut cursor = guard.cursor();
            for index in indices {
                put += u64::from(
                    cursor.lookup(index).is_none() && cursor.insert(index, entry).is_ok(),
                );
            }
        });
        self.counted.calls += put;
        self.counted.visits += visits;
    }
    fn remove(&mut self, page: ObjectPage) {
        let vm = self.vm;
        self.visited(page.object, |trie| {
            let mut top = Token::top();
            let mut guard = vm.tries().lock(trie, &mut top);
            let mut cursor = guard.cursor();
            if cursor.lookup(page.index).is_some() {
                cursor.remove();
            }
        });
    }
    fn clear(&mut self, object: usize) {
        if let Some(trie) = self.tries.get_mut(object).and_then(Option::take) {
            self.vm.tries().destroy(trie, |_, _| ());
        }
    }
    fn visits(&self) -> Visits {
        self.counted
    }
}
