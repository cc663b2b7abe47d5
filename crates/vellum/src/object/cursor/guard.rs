//! The guard of a trie, and what is kept of a cursor while it is not held.

use crate::error::Invalid;
use crate::machine::{Machine, Work};
use crate::object::layer::ObjectLayer;
use crate::object::trie::edit::Edit;
use crate::object::trie::retire::BATCH;
use crate::object::trie::{Shape, Trie, word::Word};
use crate::stats::Counter;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Above, Guard, Object, Token};

/// The right to change a trie: its lock. Inside an epoch it is tried some times, and not waited
/// for: whoever holds it may wait for the epoch.
#[must_use = "the guard is given back at once"]
pub struct TrieGuard<'t, M: Machine> {
    pub(super) edit: Edit<'t, M>,
    /// `None` only at the end.
    guard: Option<Guard<'t, Object, M>>,
    /// Taken inside an epoch, in which nobody may wait for the readers.
    is_inside: bool,
    /// Counted here until the guard is given back.
    pub(super) visits: u64,
    pub(super) kept: u64,
    pub(super) restarted: u64,
}

/// What is left of a cursor without its guard: it can do nothing but become a cursor again.
#[derive(Clone, Copy, Debug)]
pub struct TrieToken {
    pub(super) vm: usize,
    pub(super) name: u64,
    pub(super) node: Word,
    pub(super) base: u64,
    pub(super) index: u64,
    pub(super) limit: u64,
    pub(super) changes: u64,
}

impl TrieToken {
    /// The index at which the cursor was.
    pub fn index(&self) -> u64 {
        self.index
    }
}

impl<'t, M: Machine> TrieGuard<'t, M> {
    pub(in super::super) fn new<H: Above<Object>>(
        trie: &'t Trie,
        objects: &'t ObjectLayer<M>,
        token: &'t mut Token<H>,
    ) -> Self {
        debug_assert!(
            !objects.epochs.is_inside(&objects.machine),
            "an object's guard is taken inside an epoch"
        );
        let guard = trie.lock.lock(&objects.machine, token, trie.name);
        Self::of(trie, objects, guard, false)
    }

    /// The guard inside an epoch, if nobody has it and no dead nodes have to be freed.
    #[inline]
    pub(in super::super) fn try_inside<H: Above<Object>>(
        trie: &'t Trie,
        objects: &'t ObjectLayer<M>,
        token: &'t mut Token<H>,
    ) -> Option<Self> {
        let guard = trie.lock.try_lock(&objects.machine, token, trie.name)?;
        let guard = Self::of(trie, objects, guard, true);
        (trie.dead_weight.load(Relaxed) < BATCH).then_some(guard)
    }

    #[inline]
    fn of(
        trie: &'t Trie,
        objects: &'t ObjectLayer<M>,
        guard: Guard<'t, Object, M>,
        is_inside: bool,
    ) -> Self {
        let edit = Edit { objects, trie };
        TrieGuard { edit, guard: Some(guard), is_inside, visits: 0, kept: 0, restarted: 0 }
    }

    /// What is needed to take locks below.
    pub(super) fn token(&mut self) -> &mut Token<Object> {
        match &mut self.guard {
            Some(guard) => guard.token(),
            None => unreachable!("a guard is used after it was given back"),
        }
    }

    /// Entries there are, a block counting once.
    pub fn entries(&self) -> u64 {
        self.edit.trie.entries.load(Relaxed)
    }

    /// Recounts everything. Other CPUs may read meanwhile.
    ///
    /// # Errors
    /// The first sentence that does not hold.
    pub fn validate(&self) -> Result<Shape, Invalid> {
        self.edit.validate()
    }

    /// Frees what has left the trie, after one wait for the readers.
    pub fn free_dead(&mut self) {
        let dead = self.edit.take_dead(1);
        let objects = self.edit.objects;
        objects.free_dead(dead, self.token());
    }
}

impl<M: Machine> Drop for TrieGuard<'_, M> {
    #[inline]
    fn drop(&mut self) {
        let objects = self.edit.objects;
        if self.visits != 0 {
            objects.count_here(Counter::ObjectNodeVisits, self.visits as i64);
            objects.machine.work(Work::Descend, self.visits);
        }
        if self.kept + self.restarted != 0 {
            objects.count_here(Counter::CursorKept, self.kept as i64);
            objects.count_here(Counter::CursorRestarted, self.restarted as i64);
        }
        if self.is_inside {
            self.guard = None;
            return;
        }
        let dead = self.edit.take_dead(BATCH);
        self.guard = None;
        objects.free_dead(dead, &mut Token::top());
    }
}
