//! Spaces made by fork: they map the same objects.

use vellum::entry::Codec;

use super::Worker;
use crate::stress::meeting::lock;
use crate::stress::objects::place::Place;
use crate::stress::ops::Op;

/// Forked spaces that are kept.
const CHILDREN: usize = 4;

impl<C: Codec> Worker<'_, C> {
    /// Takes a forked space that nobody holds.
    fn take_child(&mut self) -> Option<Place> {
        let mut children = lock(&self.shared.children);
        let n = children.len() as u64;
        (n != 0).then(|| children.swap_remove(self.rng.below(n) as usize))
    }

    /// Leaves it to others.
    fn give_child(&mut self, child: Place) {
        self.shared.vm.activate(&self.shared.places[self.at].space);
        lock(&self.shared.children).push(child);
    }

    /// Forks a space that everybody works in, or a forked one.
    pub(super) fn fork(&mut self) {
        let shared = self.shared;
        self.outcome.operations += 1;
        if lock(&shared.children).len() >= CHILDREN {
            self.end_child();
        }
        let parent = if self.rng.once_in(4) { self.take_child() } else { None };
        let place = parent.as_ref().unwrap_or(&shared.places[self.at]);
        let before = place.all();
        match shared.vm.fork(&place.space) {
            Ok(space) => {
                self.outcome.forks += 1;
                let child = place.forked(space, &before);
                self.work_in(child);
            }
            Err(_) => self.refused(),
        }
        parent.into_iter().for_each(|parent| self.give_child(parent));
    }

    /// Works in a forked space for a while, then leaves it to others.
    fn work_in(&mut self, child: Place) {
        for _ in 0..self.rng.below(16) {
            match self.op() {
                Op::Forbid => self.shared.vm.forbid_zeros(&child.space),
                op => self.step_in(op, &child),
            }
        }
        self.give_child(child);
    }

    /// Works in another space.
    pub(super) fn switch(&mut self) {
        self.outcome.operations += 1;
        match self.rng.below(3) {
            0 => self.shared.vm.deactivate(),
            1 => self.at = self.rng.below(self.shared.places.len() as u64) as usize,
            _ => {
                if let Some(child) = self.take_child() {
                    self.work_in(child);
                }
            }
        }
    }

    /// Ends a forked space, now and then after a look at all of it.
    pub(super) fn end_child(&mut self) {
        self.outcome.operations += 1;
        let Some(child) = self.take_child() else { return };
        if self.rng.once_in(4) {
            self.look_through(&child);
        }
        if self.rng.once_in(2) {
            self.shared.vm.activate(&self.shared.places[self.at].space);
        }
        self.shared.vm.exit(child.space);
    }
}
