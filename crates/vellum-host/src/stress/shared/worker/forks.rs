//! Spaces made by fork: looked at as snapshots, worked in, forked again, ended.

use vellum::addr::Va;
use vellum::entry::Codec;
use vellum::error::FaultError;
use vellum::space::{Access, Rights, Space};

use super::Worker;
use crate::stress::lock;
use crate::stress::shared::arena::{Kind, address};
use crate::stress::shared::snapshot::{Begun, Child, Ended, check};
use crate::stress::shared::word::{child_word, count};

/// Forked spaces that are kept.
const CHILDREN: usize = 4;

impl<C: Codec> Worker<'_, C> {
    /// Takes a forked space that nobody holds.
    pub(super) fn take_child(&mut self) -> Option<Child> {
        let mut children = lock(&self.shared.children);
        let n = children.len() as u64;
        (n != 0).then(|| children.swap_remove(self.rng.below(n) as usize))
    }

    /// Leaves it to others.
    pub(super) fn give_child(&mut self, child: Child) {
        self.home();
        lock(&self.shared.children).push(child);
    }

    /// Forks, and compares the child with what was stored before and beside.
    pub(super) fn fork(&mut self) {
        let shared = self.shared;
        if lock(&shared.children).len() >= CHILDREN {
            self.end_child();
        }
        if self.rng.once_in(5)
            && let Some(child) = self.take_child()
        {
            return self.fork_again(child);
        }
        let begun = Begun::now(&shared.expected, &shared.arena);
        let Ok(space) = shared.vm.fork(&shared.space) else { return self.refused() };
        let ended = Ended::now(&shared.expected, &shared.arena);
        self.outcome.forks += 1;
        let runs = self.rng.once_in(2);
        if runs {
            shared.vm.activate(&space);
        }
        let mut child = Child { space, picture: Vec::new(), away: Vec::new(), stores: 0 };
        if !self.make_readable(&child.space) || !self.find_places(&mut child) {
            self.refused();
            return self.exit(child);
        }
        for slot in 0..shared.arena.slots() {
            match self.words_of(&child, slot, runs) {
                Ok(words) => child.picture.push(words),
                Err(()) => return self.exit(child),
            }
        }
        let counts: Vec<_> = child
            .picture
            .iter()
            .enumerate()
            .map(|(slot, words)| self.counts(slot, words))
            .collect();
        match check(&shared.expected, &shared.arena, (&begun, &ended), &counts) {
            Ok(beside) => self.outcome.beside += beside,
            Err(what) => self.fail(format!(
                "space {}, read by {}: {what}",
                child.space.id(),
                if runs { "loads" } else { "copies" }
            )),
        }
        if self.rng.once_in(3) { self.work_in(child) } else { self.give_child(child) }
    }

    fn counts(&self, slot: usize, words: &Option<Vec<u64>>) -> Option<Vec<u64>> {
        let one = |(writer, &value): (usize, &u64)| {
            count(value, writer, slot).unwrap_or_else(|| {
                self.fail(format!(
                    "slot {slot} of a child has {value:#x} as thread {writer}'s word"
                ))
            })
        };
        words.as_ref().map(|words| words.iter().enumerate().map(one).collect())
    }

    /// A fork of a forked space has the same contents.
    fn fork_again(&mut self, child: Child) {
        let Ok(space) = self.shared.vm.fork(&child.space) else {
            self.refused();
            return self.give_child(child);
        };
        self.outcome.forks += 1;
        let again = Child {
            space,
            picture: child.picture.clone(),
            away: child.away.clone(),
            stores: child.stores,
        };
        if self.rng.once_in(2) {
            self.work_in(child);
            self.work_in(again);
        } else {
            self.work_in(again);
            self.give_child(child);
        }
    }

    /// No other thread works in the child, so its holder may change its rights.
    fn make_readable(&mut self, space: &Space) -> bool {
        let rights = self.shared.arena.extents.iter().filter(|e| e.kind == Kind::Rights);
        let mut all = rights.map(|e| {
            self.shared.vm.protect(space, e.run.start(), e.run.bytes(), Rights::READ_WRITE)
        });
        all.all(|done| done.is_ok())
    }

    /// Each range that is moved is at one place, all of it.
    fn find_places(&mut self, child: &mut Child) -> bool {
        for extent in &self.shared.arena.extents {
            let mapped = |page: u64| {
                let mut bytes = [0; 8];
                self.shared.vm.copy_out(&child.space, Va(page << 12), &mut bytes)
            };
            let away = match extent.kind {
                Kind::Moved => match (mapped(extent.run.first), mapped(extent.other)) {
                    (Ok(()), Err(FaultError::Unmapped)) => false,
                    (Err(FaultError::Unmapped), Ok(())) => true,
                    (Err(FaultError::NoMemory), _) | (_, Err(FaultError::NoMemory)) => {
                        return false;
                    }
                    got => self.fail(format!(
                        "a range that is moved gives {got:?} at its two places in a child"
                    )),
                },
                _ => false,
            };
            child.away.push(away);
        }
        true
    }

    /// Every thread's word of a slot in a forked space; `runs` if this CPU runs it.
    fn words_of(&mut self, child: &Child, slot: usize, runs: bool) -> Result<Option<Vec<u64>>, ()> {
        let away = child.away[self.shared.arena.number(slot)];
        let page = self.shared.arena.extent(slot).page(slot, away);
        let mut words = Vec::new();
        for writer in 0..self.shared.expected.writers() {
            let va = address(page, writer, slot);
            let got = if runs {
                self.access(&child.space, va, Access::Read, 0)
            } else {
                let mut bytes = [0xaa; 8];
                self.shared
                    .vm
                    .copy_out(&child.space, va, &mut bytes)
                    .map(|()| u64::from_ne_bytes(bytes))
            };
            match got {
                Ok(word) => words.push(word),
                Err(FaultError::Unmapped) if words.is_empty() => return Ok(None),
                Err(FaultError::NoMemory) => {
                    self.refused();
                    return Err(());
                }
                Err(error) => {
                    self.fail(format!("{va:?} of space {} gave {error:?}", child.space.id()))
                }
            }
        }
        Ok(Some(words))
    }

    /// Looks whether a forked space is what it was, and stores in it.
    pub(super) fn work_in(&mut self, mut child: Child) {
        self.shared.vm.activate(&child.space);
        for _ in 0..1 + self.rng.below(16) {
            let slot = self.slot();
            let Ok(words) = self.words_of(&child, slot, true) else { break };
            if words != child.picture[slot] {
                self.fail(format!(
                    "slot {slot} of the forked space {} was {:x?} and is {words:x?}, though \
                     nobody stored there",
                    child.space.id(),
                    child.picture[slot]
                ));
            }
            // What is wiped may be read only.
            if self.rng.once_in(2) && self.shared.arena.extent(slot).keeps() {
                self.store_in(&mut child, slot);
            }
        }
        self.give_child(child);
    }

    fn store_in(&mut self, child: &mut Child, slot: usize) {
        let away = child.away[self.shared.arena.number(slot)];
        let va = address(self.shared.arena.extent(slot).page(slot, away), self.me, slot);
        child.stores += 1;
        let value = child_word(self.me, slot, child.stores);
        match self.access(&child.space, va, Access::Write, value) {
            Ok(_) => {
                if let Some(words) = &mut child.picture[slot] {
                    words[self.me] = value;
                }
            }
            Err(FaultError::NoMemory) => self.refused(),
            Err(error) => {
                self.fail(format!("a store at {va:?} of space {} gave {error:?}", child.space.id()))
            }
        }
    }

    /// Ends a forked space, after a look at all of it.
    pub(super) fn end_child(&mut self) {
        let Some(child) = self.take_child() else { return };
        for slot in 0..self.shared.arena.slots() {
            match self.words_of(&child, slot, false) {
                Ok(words) if words == child.picture[slot] => {}
                Ok(words) => self.fail(format!(
                    "slot {slot} of the forked space {} was {:x?} and is {words:x?} at its end",
                    child.space.id(),
                    child.picture[slot]
                )),
                Err(()) => break,
            }
        }
        self.exit(child);
    }

    fn exit(&mut self, child: Child) {
        if self.rng.once_in(2) {
            self.home();
        }
        self.shared.vm.exit(child.space);
    }
}
