//! What is looked at when a scenario is over, and whether all that was seen can be explained.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use vellum::entry::Codec;
use vellum::space::Page as Answer;

use super::{Stage, side_name};
use crate::matrix::acts::{Action, PageChoice, Step};
use crate::matrix::model::{SIDES, WORDS};
use crate::matrix::spec::{Event, Spec};
use crate::matrix::states::{EXTENTS, NAMED, OBJECT_PAGES};

thread_local! {
    /// Histories of the scenario that runs which were explained.
    static EXPLAINED: RefCell<HashSet<u64>> = RefCell::default();
}

/// A new scenario begins.
pub fn forget_histories() {
    EXPLAINED.with_borrow_mut(HashSet::clear);
}

impl<C: Codec> Stage<C> {
    /// Reads everything from every CPU, and lets every CPU try what it is not allowed to do.
    pub(super) fn look(&self) -> Vec<Event> {
        let mut seen = Vec::new();
        let mut note = |cpu: usize, act: Action, side: usize, value: u32| {
            self.note(cpu, Step { act, side }, value, |event| seen.push(event));
        };
        let loads =
            |n: usize| (0..WORDS).map(move |word| Action::Load(PageChoice::Extent(n), word));
        // What the pager does not have is lost by this.
        let through_the_pager = [Action::Sync, Action::Evict].into_iter();
        let through_the_pager = through_the_pager.filter(|_| self.state.paged);
        self.enter(0);
        if let Some(object) = self.object.borrow().as_ref() {
            // Told of what has failed before.
            let _ = self.vm.objects().sync(object, 0, 0);
        }
        through_the_pager.clone().for_each(|act| note(0, act, 0, 0));
        for cpu in 0..self.cpus {
            self.enter(cpu);
            self.vm.activate(&self.side(0));
            let extents = if cpu == 0 { EXTENTS } else { NAMED };
            (0..extents).flat_map(loads).for_each(|act| note(cpu, act, 0, 0));
        }
        for cpu in 0..self.cpus {
            self.enter(cpu);
            for extent in 0..NAMED {
                let value = 0x3000_0000 | (cpu as u32) << 8 | extent as u32;
                note(cpu, Action::Fetch(PageChoice::Extent(extent)), 0, 0);
                note(cpu, Action::Store(PageChoice::Extent(extent), 1), 0, value);
                note(cpu, Action::CopyOut(PageChoice::Extent(extent), 1), 0, 0);
            }
        }
        self.enter(0);
        through_the_pager.for_each(|act| note(0, act, 0, 0));
        if self.state.logged {
            note(0, Action::Harvest, 0, 0);
        }
        if self.state.object {
            let words = |page: usize| (0..WORDS).map(move |word| Action::ReadObject(page, word));
            (0..OBJECT_PAGES).flat_map(words).for_each(|act| note(0, act, 0, 0));
        }
        self.enter(0);
        for side in (1..SIDES).filter(|&side| self.sides[side].borrow().is_some()) {
            self.vm.activate(&self.side(side));
            (0..EXTENTS).flat_map(loads).for_each(|act| note(0, act, side, 0));
        }
        seen
    }

    /// Where zeros were forbidden none are mapped, nor in spaces forked afterwards.
    pub(super) fn look_for_zeros(&self) {
        let events = self.events.borrow();
        let Some(forbidden) = events.iter().find(|e| e.step.act == Action::Forbid) else { return };
        let later =
            events.iter().filter(|e| e.step.act == Action::Fork && e.began > forbidden.ended);
        for side in
            later.map(|e| 2 + e.cpu).chain([0]).filter(|&side| self.sides[side].borrow().is_some())
        {
            for va in (0..EXTENTS).map(|extent| self.places.va(extent)) {
                let page = self.vm.query(&self.side(side), va);
                let zero = matches!(page, Answer::Mapped { zero: true, .. });
                assert!(
                    !zero,
                    "zeros are mapped at {va:?}{}, where they were forbidden",
                    side_name(side)
                );
            }
        }
    }

    /// Whether what was seen can be explained; once for each history.
    pub(super) fn explain(&self, after: &[Event]) {
        let events = self.events.borrow();
        let mut hasher = DefaultHasher::new();
        (&*events, after).hash(&mut hasher);
        let history = hasher.finish();
        if EXPLAINED.with_borrow(|known| known.contains(&history)) {
            return;
        }
        let scarce = self.state.is_scarce();
        let failures = self.failures.borrow();
        let by_page = self.state.paged || self.state.logged;
        let spec = Spec {
            places: &self.places,
            scarce,
            by_page,
            events: &events,
            failures: &failures,
            after,
        };
        if !spec.is_explained(&self.start) {
            let list =
                |events: &[Event]| events.iter().map(|e| format!("\n  {e}")).collect::<String>();
            // What was seen in the end is told if it is that which does not fit.
            let alone = Spec { after: &[], ..spec }.is_explained(&self.start);
            let last =
                if alone { format!("\nand in the end{}", list(after)) } else { String::new() };
            panic!("no order of the calls explains what was seen:{}{last}", list(&events));
        }
        EXPLAINED.with_borrow_mut(|known| known.insert(history));
    }
}
