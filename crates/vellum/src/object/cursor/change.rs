//! Changes at the cursor.

use super::TrieCursor;
use crate::addr::Order;
use crate::machine::Machine;
use crate::object::trie::edit::prefix;
use crate::object::trie::exchange::{to_block, to_pages};
use crate::object::trie::insert::InsertError;
use crate::object::trie::node::Node;
use crate::object::trie::supply::{NodeReserve, Supply};
use crate::object::trie::word::{INDEX_END, TrieEntry, Word};
use crate::sync::Object;

impl<'t, M: Machine> TrieCursor<'_, 't, M> {
    /// Puts an entry at an index. After a failed lookup of the same index nothing is looked up
    /// again. If a node is needed it is allocated under the guard, which waits for nobody.
    ///
    /// # Errors
    /// Nothing changed, and the cursor stands where it would have stood.
    #[inline]
    pub fn insert(&mut self, index: u64, entry: TrieEntry) -> Result<(), InsertError> {
        if self.at.fill_slot(index, entry.at(index)) {
            return Ok(());
        }
        self.insert_elsewhere(index, entry)
    }

    #[inline(never)]
    fn insert_elsewhere(&mut self, index: u64, entry: TrieEntry) -> Result<(), InsertError> {
        if !self.at.is_at(index) && self.at.descend_and_fill(index, entry.at(index)) {
            return Ok(());
        }
        self.stand_for(index, entry)?;
        let (edit, at) = (self.at.edit, self.at.spot());
        let done = self.with_supply(|supply| edit.insert(at, index, entry.at(index), supply));
        self.inserted(index, entry, done)
    }

    /// As [`insert`](TrieCursor::insert), with nodes from a reserve alone.
    ///
    /// # Errors
    /// As `insert`. [`InsertError::NoNodes`]: the reserve is to be filled, without the guard.
    pub fn insert_with(
        &mut self,
        index: u64,
        entry: TrieEntry,
        reserve: &mut NodeReserve<'_, M>,
    ) -> Result<(), InsertError> {
        self.stand_for(index, entry)?;
        let mut supply = Supply::<M, Object>::Before(&mut reserve.stock);
        let done = self.at.edit.insert(self.at.spot(), index, entry.at(index), &mut supply);
        self.inserted(index, entry, done)
    }

    /// Goes to the lowest node that may have an entry of this order at an index.
    #[inline]
    fn stand_for(&mut self, index: u64, entry: TrieEntry) -> Result<(), InsertError> {
        let order = entry.order();
        if index > INDEX_END - order.frames() || index & (order.frames() - 1) != 0 {
            return Err(InsertError::Index);
        }
        if !self.at.is_at(index) {
            self.at.locate(index);
        }
        if self.at.found.is_leaf() {
            return Err(InsertError::Occupied);
        }
        while let Some(node) = self.at.node
            && node.word.level() < order.get() as u32
        {
            self.at.is_located = false;
            self.at.climb();
        }
        Ok(())
    }

    #[inline]
    fn inserted(
        &mut self,
        index: u64,
        entry: TrieEntry,
        done: Result<Option<Node<'t>>, InsertError>,
    ) -> Result<(), InsertError> {
        let node = done?;
        self.at.stand(node, node.map_or(0, |node| prefix(index, node.word.top())));
        (self.at.found, self.at.is_located) = (entry.at(index), true);
        self.at.count_inserted(1);
        Ok(())
    }

    /// Takes out the entry that the cursor has found, and says what it was.
    #[inline]
    pub fn remove(&mut self) -> Option<TrieEntry> {
        let word = self.take_found()?;
        if self.at.empty_slot(word) {
            self.at.count_removed(1);
            return Some(word.entry());
        }
        let (edit, at) = (self.at.edit, self.at.spot());
        if self.with_supply(|supply| edit.remove(at, supply)) {
            self.at.leave_dead();
        }
        self.at.count_removed(1);
        Some(word.entry())
    }

    /// What the cursor has found and, from here on, has not.
    #[inline]
    fn take_found(&mut self) -> Option<Word> {
        let is_found = self.at.is_located && self.at.found.is_leaf();
        is_found.then(|| core::mem::replace(&mut self.at.found, Word::EMPTY))
    }

    /// Exchanges the block of 2 MiB that the cursor has found for its first pages, with the marks
    /// that it had: so many, from 1 to 512. `false`, and nothing happens: it has found none, or the
    /// reserve has no node for that.
    pub fn split(&mut self, pages: u64, reserve: &mut NodeReserve<'_, M>) -> bool {
        let (block, pages) = (self.at.found, pages.clamp(1, Order::HUGE.frames()));
        if !self.at.is_located || !block.is_leaf() || block.entry().order() != Order::HUGE {
            return false;
        }
        let mut supply = Supply::<M, Object>::Before(&mut reserve.stock);
        let Ok(address) = supply.large() else { return false };
        let (at, index) = (self.at.spot(), prefix(self.at.index, block.order()));
        to_pages(self.at.edit, at, (index, pages), address);
        self.at.count_inserted(pages - 1);
        self.at.found = Word::EMPTY;
        self.at.leave_dead();
        true
    }

    /// Exchanges all entries of the 512 pages from an index on for a block, by one store: who looks
    /// one of them up without the guard finds it, or the block. Tells of each that was there.
    ///
    /// # Errors
    /// As [`insert`](TrieCursor::insert).
    pub fn join(
        &mut self,
        index: u64,
        block: TrieEntry,
        mut each: impl FnMut(u64, TrieEntry),
    ) -> Result<(), InsertError> {
        let end = index + Order::HUGE.frames();
        let first = match self.at.seek_up(index, 0) {
            Some((first, entry)) if first < end => match entry.order() {
                Order::BASE => first,
                _ => return Err(InsertError::Occupied),
            },
            _ => return self.insert(index, block),
        };
        let edit = self.at.edit;
        let at = match self.at.highest_inside(index, end) {
            Some(node) => edit.spot_of(node),
            None => self.at.spot(),
        };
        let mut tell = |index, word: Word| each(index, word.entry());
        let count =
            self.with_supply(|supply| to_block(edit, at, (first, block), supply, &mut tell))?;
        self.at.count_removed(count);
        self.at.count_inserted(1);
        self.at.found = Word::EMPTY;
        self.at.leave_dead();
        Ok(())
    }

    /// Exchanges the entry that the cursor has found for another of the same order, and says what
    /// it was. Whoever read the old one without the guard asks its page whose it is.
    pub fn replace(&mut self, entry: TrieEntry) -> Option<TrieEntry> {
        if !self.at.is_located || !self.at.found.is_leaf() {
            return None;
        }
        let old = self.at.found;
        let index = prefix(self.at.index, old.order());
        if entry.order() != old.entry().order() {
            return None;
        }
        self.at.store_found(entry.at(index));
        Some(old.entry())
    }
}
