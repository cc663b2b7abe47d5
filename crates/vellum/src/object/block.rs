//! Blocks of 2 MiB of an object: one entry of the trie, one record, one leaf.
//!
//! The record of a block's first frame stands for all of it: who has that frozen has the block. A
//! block is *cut* when an entry of 4 KiB is to map a page of it: then each frame has a record that
//! counts such entries, and the leaves of 2 MiB are counted apart, so spaces may map one block in
//! both ways. It is *split* when one of its pages is to go, or to be held alone: then the object
//! has an entry for each page. A split takes memory for one node of the trie; who cannot have that
//! leaves the block as it is.

use crate::addr::{Order, Pfn};
use crate::frame::{Data, SlabRef};
use crate::machine::Machine;
use crate::object::record::{ObjectRecord, owner_of};
use crate::object::{InsertError, NodeReserve, ObjectLayer, ObjectPage, TrieEntry, Tries};
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;
use crate::stats::Counter;
use crate::sync::Token;

/// Pages of a block.
pub(crate) const BLOCK_PAGES: u64 = Order::HUGE.frames();

pub(crate) struct ObjectBlock<'v, M: Machine>(pub &'v ObjectLayer<M>);

over!(ObjectBlock, ObjectLayer);

impl<M: Machine> ObjectBlock<'_, M> {
    /// Whether the object has no page of a block, and reaches as far, just now. The
    /// caller keeps the object, holds no lock and is in no epoch.
    pub fn has_room(self, object: SlabRef, index: u64) -> bool {
        let record = self.object(object);
        let mut top = Token::top();
        let mut guard = Tries::new(self.0).lock(&record.trie, &mut top);
        let mut cursor = guard.cursor();
        cursor.set_limit(index + BLOCK_PAGES);
        record.has_block(index) && cursor.lookup_ge(index).is_none()
    }

    /// Puts a block at an index, where the object has no page of it, and reaches as far. It is
    /// frozen: others wait until the caller has cleared it. As `has_room`.
    ///
    /// # Errors
    /// Nothing changed; the block is still the caller's.
    pub fn put_frozen(self, object: SlabRef, index: u64, first: Pfn) -> Result<(), InsertError> {
        let record = self.object(object);
        Data::init_block(self.frames.record(first), owner_of(object), index).freeze();
        {
            let mut top = Token::top();
            let mut guard = Tries::new(self.0).lock(&record.trie, &mut top);
            let entry = TrieEntry::new(first, Order::HUGE).filter(|_| record.has_block(index));
            guard.cursor().insert(index, entry.ok_or(InsertError::Index)?)?;
            record.count_blocks(1);
        }
        self.count_object_pages(record, BLOCK_PAGES as i64);
        self.count_huge_pages(record, 1);
        Ok(())
    }

    /// Freezes the block that a page lies in, if there is one that may be frozen now. As
    /// `has_room`.
    pub fn freeze(self, object: SlabRef, index: u64) -> Option<ObjectPage> {
        let first = {
            let mut top = Token::top();
            let mut guard = Tries::new(self.0).lock(&self.object(object).trie, &mut top);
            let entry = guard.cursor().lookup(index)?;
            let data = Data::of(self.frames.record(entry.pfn()));
            if !data.is_block() || data.is_taken() {
                return None;
            }
            ObjectFrame(self.0).freeze(entry.pfn());
            entry.pfn()
        };
        // Who found it before is at his end.
        self.epochs.synchronize(&self.machine, &mut Token::top());
        Some((first, index & !(BLOCK_PAGES - 1)))
    }

    /// Whether a page of the object lies in a block, just now. As `has_room`.
    pub fn is_at(self, object: SlabRef, index: u64) -> bool {
        let mut top = Token::top();
        let mut guard = Tries::new(self.0).lock(&self.object(object).trie, &mut top);
        guard.cursor().lookup(index).is_some_and(|entry| entry.order() == Order::HUGE)
    }

    /// The first frame of the block that a page lies in, if somebody has that in hand: it is kept
    /// for who waits. As `has_room`.
    pub fn keep_taken(self, object: SlabRef, index: u64) -> Option<Pfn> {
        let mut top = Token::top();
        let mut guard = Tries::new(self.0).lock(&self.object(object).trie, &mut top);
        let entry = guard.cursor().lookup(index)?;
        let data = Data::of(self.frames.record(entry.pfn()));
        (data.is_block() && data.is_taken()).then(|| {
            ObjectFrame(self.0).keep(entry.pfn());
            entry.pfn()
        })
    }

    /// Gives the object an entry for each page of a frozen block that no space maps, in a node that
    /// was taken for it, and frees those past the object's end. The pages are not frozen then.
    pub fn split(self, object: SlabRef, (first, index): ObjectPage, node: &mut NodeReserve<'_, M>) {
        let record = self.object(object);
        ObjectFrame(self.0).cut(first);
        let pages = {
            let mut top = Token::top();
            let mut guard = Tries::new(self.0).lock(&record.trie, &mut top);
            let mut cursor = guard.cursor();
            cursor.lookup(index);
            // Who has lowered the size past the first one waits for it.
            let pages = record.pages().saturating_sub(index).clamp(1, BLOCK_PAGES);
            let is_split = cursor.split(pages, node);
            debug_assert!(is_split, "a frozen block is not there");
            record.count_blocks(-1);
            pages
        };
        // Who found the block is at his end before its first frame is a page like others.
        self.epochs.synchronize(&self.machine, &mut Token::top());
        ObjectFrame(self.0).end_block(first);
        self.frames.give_back_all(&self.machine, (pages..BLOCK_PAGES).map(|n| first.add(n)));
        self.count_object_pages(record, pages as i64 - BLOCK_PAGES as i64);
        self.count_huge_pages(record, -1);
        self.count(Counter::ThpSplitPage, 1);
    }

    /// Frees a block that the object has no more, which nobody maps and nobody will find. Who
    /// waited for it may keep its first frame for a moment.
    pub(super) fn free(self, record: &ObjectRecord, first: Pfn) {
        debug_assert!(ObjectFrame(self.0).is_block_unmapped(first), "a block goes while mapped");
        if Data::of(self.frames.record(first)).is_cut() {
            let others = (1..BLOCK_PAGES).map(|page| first.add(page));
            self.frames.give_back_all(&self.machine, others);
        }
        self.free_found_page(first);
        self.count_huge_pages(record, -1);
    }

    /// Counts blocks of an object that came, or went.
    pub(super) fn count_huge_pages(self, record: &ObjectRecord, blocks: i64) {
        let counter = match record.pager() {
            Some(_) => Counter::FileHugePages,
            None => Counter::ShmemHugePages,
        };
        self.count(counter, blocks);
    }
}
