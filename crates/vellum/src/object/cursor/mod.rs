//! A cursor: a place in a trie that the next operation begins at.
//!
//! It borrows the guard, so it cannot be used when the guard is not held, and there is one at a
//! time: no other way into the trie can change it meanwhile. What drops the guard consumes the
//! cursor into an inert token; under the guard again the token becomes a cursor, which goes on at
//! its node if no node has left the trie meanwhile, and at the root otherwise.
//!
//! It knows the lowest node that covers its index, and climbs by the headers' parents only as far
//! as the next index demands. After a failed lookup it stands where the index would be.

mod change;
mod gap;
mod guard;
mod marks;
mod near;
mod order;
mod runs;
mod seek;
mod standing;

pub use guard::{TrieGuard, TrieToken};

use super::trie::supply::Supply;
use super::trie::word::{INDEX_END, TrieEntry, Word};
use crate::machine::Machine;
use crate::sync::Object;
use crate::sync::atomic::Ordering::Relaxed;
use standing::Standing;

/// A place in a trie under its guard.
pub struct TrieCursor<'g, 't, M: Machine> {
    guard: &'g mut TrieGuard<'t, M>,
    at: Standing<'t, M>,
}

impl<'t, M: Machine> TrieGuard<'t, M> {
    /// A cursor at the root, without a limit.
    #[inline]
    pub fn cursor(&mut self) -> TrieCursor<'_, 't, M> {
        let at = Standing::new(self.edit);
        TrieCursor { guard: self, at }
    }

    /// The cursor of a token, at its index, with its limit.
    ///
    /// # Panics
    /// If the token is of another trie.
    pub fn resume(&mut self, token: TrieToken) -> TrieCursor<'_, 't, M> {
        let (trie, objects) = (self.edit.trie, self.edit.objects);
        assert!((token.vm, token.name) == (trie.vm, trie.name), "a token of another trie");
        let is_kept = token.changes == trie.changes.load(Relaxed);
        if is_kept {
            self.kept += 1
        } else {
            self.restarted += 1
        }
        let mut at = Standing::new(self.edit);
        (at.index, at.limit) = (token.index, token.limit);
        if is_kept && token.node.is_node() {
            at.stand(Some(objects.node(token.node)), token.base);
        }
        TrieCursor { guard: self, at }
    }
}

impl<'t, M: Machine> TrieCursor<'_, 't, M> {
    /// Where the cursor is: the index of the last entry found, or the one that was asked for.
    pub fn index(&self) -> u64 {
        self.at.index
    }

    /// Nothing at this index or above is found from here on.
    pub fn set_limit(&mut self, limit: u64) {
        self.at.limit = limit.min(INDEX_END);
        self.at.is_located = false;
    }

    /// Gives the cursor up for a token that outlives the guard.
    pub fn into_token(self) -> TrieToken {
        let trie = self.at.edit.trie;
        TrieToken {
            vm: trie.vm,
            name: trie.name,
            node: self.at.node.map_or(Word::EMPTY, |node| node.word),
            base: self.at.base,
            index: self.at.index,
            limit: self.at.limit,
            changes: trie.changes.load(Relaxed),
        }
    }

    /// What is at an index, or covers it.
    #[inline]
    pub fn lookup(&mut self, index: u64) -> Option<TrieEntry> {
        self.at.lookup(index)
    }

    /// Memory for nodes, taken under the guard.
    #[inline]
    fn with_supply<R>(&mut self, act: impl FnOnce(&mut Supply<'_, 't, M, Object>) -> R) -> R {
        let objects = self.at.edit.objects;
        act(&mut Supply::Now(objects, self.guard.token()))
    }
}

impl<M: Machine> Drop for TrieCursor<'_, '_, M> {
    #[inline]
    fn drop(&mut self) {
        self.guard.visits += self.at.visits;
    }
}
