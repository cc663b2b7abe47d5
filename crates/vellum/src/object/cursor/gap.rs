//! Indices at which there is nothing.

use super::TrieCursor;
use crate::machine::Machine;
use crate::object::trie::edit::prefix;

impl<M: Machine> TrieCursor<'_, '_, M> {
    /// The first index from one on at which there is nothing, below the limit. Full nodes of base
    /// pages are passed over.
    pub fn next_gap(&mut self, index: u64) -> Option<u64> {
        let mut next = index;
        while next < self.at.limit {
            let Some(entry) = self.lookup(next) else { return Some(next) };
            next = prefix(next, entry.order().get() as u32) + entry.order().frames();
            if let Some(node) = self.at.node
                && node.word.level() == 0
                && self.at.edit.counts(node).used() == node.slots()
            {
                next = prefix(self.at.base, node.word.top()) + node.slots() as u64;
            }
        }
        None
    }

    /// The first index from one on with nothing at it and at so many after it, all below the limit.
    pub fn next_gap_of(&mut self, index: u64, pages: u64) -> Option<u64> {
        let mut next = index;
        loop {
            let gap = self.next_gap(next)?;
            let end = self.lookup_ge(gap).map_or(self.at.limit, |(first, _)| first);
            if end - gap >= pages {
                return Some(gap);
            }
            next = end;
        }
    }
}
