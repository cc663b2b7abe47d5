//! Several entries in one call.

use super::TrieCursor;
use crate::addr::{Order, Pfn};
use crate::machine::Machine;
use crate::object::trie::edit::prefix;
use crate::object::trie::insert::InsertError;
use crate::object::trie::node::Node;
use crate::object::trie::page_in;
use crate::object::trie::remove::remove_pages;
use crate::object::trie::word::{TrieEntry, Word};
use crate::sync::atomic::Ordering;

impl<'t, M: Machine> TrieCursor<'_, 't, M> {
    /// Entries from an index on, without a hole between them; the first one covers the index. Says
    /// how many.
    pub fn lookup_run(&mut self, index: u64, out: &mut [TrieEntry]) -> usize {
        let (mut next, mut count) = (index, 0);
        while count < out.len() {
            let Some(entry) = self.lookup(next) else { break };
            out[count] = entry;
            count += 1;
            next = prefix(next, entry.order().get() as u32) + entry.order().frames();
            let Some((node, left)) = self.at.base_pages(next) else { continue };
            for (place, slot) in out[count..].iter_mut().zip(&node.slots_from(next)[..left]) {
                let Some(entry) = page_in(slot) else { return count };
                *place = entry;
                count += 1;
                next += 1;
            }
        }
        count
    }

    /// Puts base pages at an index and those that follow it.
    ///
    /// # Errors
    /// How many are in place, and why the next one is not.
    pub fn insert_run(&mut self, index: u64, frames: &[Pfn]) -> Result<(), (usize, InsertError)> {
        let mut done = 0;
        while let Some(frame) = frames.get(done) {
            let entry = TrieEntry::new(*frame, Order::BASE).ok_or((done, InsertError::Index))?;
            self.insert(index + done as u64, entry).map_err(|error| (done, error))?;
            done += 1;
            let next = index + done as u64;
            let Some((node, left)) = self.at.base_pages(next) else { continue };
            done += self.fill(node, next, &frames[done..frames.len().min(done + left)]);
        }
        Ok(())
    }

    /// Puts base pages into empty slots of a node of the lowest level. Says how many.
    fn fill(&mut self, node: Node<'t>, from: u64, frames: &[Pfn]) -> usize {
        let (mut at, mut last) = (from, self.at.found);
        for frame in frames {
            let (slot, entry) = (node.slot_of(at), TrieEntry::new(*frame, Order::BASE));
            let Some(entry) = entry.filter(|_| slot.load(Ordering::Relaxed) == 0) else { break };
            last = entry.at(at);
            slot.store(last.0, Ordering::Release);
            at += 1;
        }
        let count = at - from;
        if count != 0 {
            let header = self.at.edit.objects.header(node);
            header.set_counts(header.counts().plus(count));
            self.at.count_inserted(count);
            (self.at.index, self.at.found) = (at - 1, last);
        }
        count as usize
    }

    /// Tells of the entries from an index on, in order, until `each` says no.
    pub(in super::super) fn walk(
        &mut self,
        from: u64,
        mut each: impl FnMut(u64, TrieEntry) -> bool,
    ) {
        let mut next = from;
        while let Some((index, entry)) = self.lookup_ge(next) {
            if !each(index, entry) {
                return;
            }
            next = index + entry.order().frames();
            let Some((node, left)) = self.at.base_pages(next) else { continue };
            for slot in &node.slots_from(next)[..left] {
                let word = Word(slot.load(Ordering::Relaxed));
                if !word.is_empty() && !each(next, word.entry()) {
                    return;
                }
                next += 1;
            }
        }
    }

    /// Takes out the base pages at some indices, which ascend, and tells of each that was there. A
    /// node that is left with little is looked at once.
    pub(in super::super) fn remove_pages(
        &mut self,
        indices: impl Iterator<Item = u64>,
        mut each: impl FnMut(TrieEntry),
    ) {
        let mut indices = indices.peekable();
        while let Some(&index) = indices.peek() {
            let found = self.lookup(index);
            let Some((node, left)) = self.at.base_pages(index).filter(|_| found.is_some()) else {
                if let Some(entry) = self.remove() {
                    each(entry);
                }
                indices.next();
                continue;
            };
            let end = index + left as u64;
            let here = core::iter::from_fn(|| indices.next_if(|&index| index < end));
            let edit = self.at.edit;
            let mut tell = |word: Word| each(word.entry());
            let (gone, few) =
                self.with_supply(|supply| remove_pages(edit, node, here, supply, &mut tell));
            (self.at.found, self.at.is_located) = (Word::EMPTY, false);
            if few {
                self.at.leave_dead();
            }
            self.at.count_removed(gone as u64);
        }
    }

    /// Takes out all entries that lie in `[from, end)` whole, and tells of each, in order. Blocks
    /// that cross an end stay. Says how many went. Nodes inside the range go as they are.
    pub fn remove_range(
        &mut self,
        from: u64,
        end: u64,
        mut each: impl FnMut(u64, TrieEntry),
    ) -> u64 {
        let (mut next, mut count) = (from, 0);
        while next < end
            && let Some((index, entry)) = self.at.seek_up(next, 0)
        {
            next = index + entry.order().frames();
            if index < from || next > end {
                continue;
            }
            let Some(node) = self.at.highest_inside(from, end) else {
                count += self.remove().map_or(0, |_| 1);
                each(index, entry);
                continue;
            };
            let (edit, at) = (self.at.edit, self.at.edit.spot_of(node));
            next = edit.objects.header(node).base() + (1 << node.word.top());
            let mut tell = |index: u64, word: Word| each(index, word.entry());
            let went = self.with_supply(|supply| edit.detach(at, supply, &mut tell));
            self.at.count_removed(went);
            self.at.leave_dead();
            self.at.found = Word::EMPTY;
            count += went;
        }
        count
    }
}
