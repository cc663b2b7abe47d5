//! Detached subtrees: marked dead before the flush, taken apart after it.
//!
//! A subtree that goes as a whole costs its parent one entry; what is in it is looked at once
//! before the flush, to mark the nodes so that no fault adds to them, and once after, to let go of
//! the pages. Nobody else touches it in between or after, so nothing here holds a lock for longer
//! than a mark. Nodes leave with no entry that keeps a page.

use crate::addr::{Level, Pfn, VaRange};
use crate::entry::{Busy, Codec, Entry};
use crate::machine::{Act, Machine, Work};
use crate::pagetable::cursor::Cursor;
use crate::pagetable::node::{Node, raised};
use crate::pagetable::walk::each_table_below;
use crate::stats::Counter;
use crate::sync::Token;
use crate::tlb::Flushed;
use crate::vma::Regions;
use crate::vma::deferred_free::DeferredFree;

/// Nodes below each other that were detached together.
pub(crate) struct Chain<'v> {
    /// Where they were.
    pub node: Node<'v>,
    slot: usize,
    level: Level,
    /// The uppermost, and the lowest.
    first: Node<'v>,
    lowest: Node<'v>,
}

impl<'v> Chain<'v> {
    /// The lowest node, which goes with all it has, and the nodes above it in which is nothing but
    /// the way there, up to one that `stays`. A root does not go. Under the mmap lock.
    pub fn of<M: Machine>(
        regions: &'v Regions<M>,
        lowest: Node<'v>,
        stays: Option<Pfn>,
    ) -> Option<Chain<'v>> {
        let (mut first, (mut above, mut slot)) = (lowest, lowest.parent()?);
        loop {
            let node = regions.node(above);
            let goes = node.state().count() == 1 && Some(above) != stays;
            let Some(next) = node.parent().filter(|_| goes) else {
                return Some(Chain { node, slot, level: node.state().level(), first, lowest });
            };
            (first, (above, slot)) = (node, next);
        }
    }

    /// Detaches them, and marks each dead once no fault holds an entry of it.
    pub fn detach<M: Machine>(&self, regions: &Regions<M>) {
        let m = &regions.machine;
        {
            let mut top = Token::top();
            let _guard = self.node.lock(m, &mut top);
            regions.store(self.node.pfn, self.slot, self.level, Entry::Detached(self.first.pfn));
        }
        m.work(Work::Entry, 1);
        let mut going = self.lowest;
        wait_and_mark_dead(m, going);
        while going.pfn != self.first.pfn
            && let Some((above, _)) = going.parent()
        {
            going = regions.node(above);
            wait_and_mark_dead(m, going);
        }
    }

    /// Leaves nothing where they were, and puts them in the deferred frees. What they mapped is
    /// gone already, but for the way down. `freed` pages became a hole.
    pub fn end<M: Machine>(
        &self,
        regions: &Regions<M>,
        flushed: &Flushed,
        freed: u64,
        deferred: &mut DeferredFree,
    ) {
        let mut going = self.lowest;
        loop {
            let above = going.parent();
            regions.intervals(going).clear(deferred);
            deferred.node(going, flushed);
            if going.pfn == self.first.pfn {
                break;
            }
            let Some((table, slot)) = above else { break };
            going = regions.node(table);
            regions.machine.set_entry(going.pfn, slot, 0);
        }
        let mut top = Token::top();
        let _guard = self.node.lock(&regions.machine, &mut top);
        regions.write_entry(self.node.pfn, self.slot, self.level, Entry::Empty);
        self.node.set_state(raised(self.node.state().without(1, 0), freed));
    }
}

/// Marks a node dead once no fault holds an entry of it.
fn wait_and_mark_dead<M: Machine>(m: &M, node: Node<'_>) {
    loop {
        let mut top = Token::top();
        let _guard = node.lock(m, &mut top);
        if node.transit() == 0 {
            node.set_state(node.state().with_dead());
            break;
        }
        drop(_guard);
        m.relax();
    }
}

impl<M: Machine> Regions<M> {
    /// Marks a node dead that nobody will add to: its own entries are marked already.
    pub(crate) fn mark_dead(&self, node: Node<'_>) {
        let mut top = Token::top();
        let _guard = node.lock(&self.machine, &mut top);
        debug_assert_eq!(node.transit(), 0, "a node dies while a fault holds an entry of it");
        node.set_state(node.state().with_dead());
    }

    /// Marks every node of a detached subtree dead, each once no fault holds an entry of it.
    pub(crate) fn mark_subtree_dead(&self, table: Pfn, level: Level) {
        wait_and_mark_dead(&self.machine, self.node(table));
        each_table_below(self, table, level, |child| {
            self.mark_subtree_dead(child, level.child());
        });
    }

    /// Lets go of everything a dead, flushed subtree maps, empties its nodes and puts them in the
    /// deferred frees. Nothing is mapped in it outside of `range`.
    pub(crate) fn free_tree(
        &self,
        flushed: &Flushed,
        at: Cursor<'_>,
        range: VaRange,
        deferred: &mut DeferredFree,
    ) {
        let node = at.node;
        if at.level == Level::ONE {
            let p = at.part(range);
            self.free_leaves(flushed, node, (p.first, p.end));
        } else {
            self.free_entries(flushed, at, range, deferred);
        }
        self.intervals(node).clear(deferred);
        deferred.node(node, flushed);
    }

    /// The entries of a dead node above the lowest.
    fn free_entries(
        &self,
        flushed: &Flushed,
        at: Cursor<'_>,
        range: VaRange,
        deferred: &mut DeferredFree,
    ) {
        let m = &self.machine;
        let (node, level) = (at.node, at.level);
        let p = at.part(range);
        let (mut left, mut next, mut pages) = (node.state().count(), p.first, 0);
        while left != 0 && next < p.end {
            let slot = next;
            next += 1;
            match self.load(node.pfn, slot, level) {
                Entry::Empty => continue,
                Entry::Table(child) | Entry::Detached(child) => {
                    self.free_tree(flushed, at.below(slot, self.node(child)), range, deferred);
                }
                entry => {
                    if let Some(pfn) = self.shared_page_of(entry) {
                        self.release_shared(flushed, pfn, level);
                    } else if let Some(pfn) = self.page_of(entry)
                        && let Some(order) = level.leaf_order()
                    {
                        self.release(flushed, pfn, order);
                        pages += 1;
                    }
                }
            }
            m.set_entry(node.pfn, slot, 0);
            left -= 1;
        }
        m.work(Work::Scan, (next - p.first) as u64);
        if let Some(order) = level.leaf_order()
            && pages != 0
        {
            self.count_pages(order, -pages);
        }
    }

    /// The entries of a dead lowest node.
    #[inline(always)]
    pub(crate) fn free_leaves(
        &self,
        flushed: &Flushed,
        node: Node<'_>,
        (first, end): (usize, usize),
    ) {
        let m = &self.machine;
        let zeros = self.zero_span();
        let (mut left, mut slot, mut pages) = (node.state().count(), first, 0);
        while left != 0 && slot < end {
            let raw = m.entry(node.pfn, slot);
            if raw != 0 {
                let page = match M::Codec::decode(raw, Level::ONE) {
                    Entry::Shared(pfn, _) | Entry::Busy(Busy::Shared(pfn)) => {
                        self.release_shared(flushed, pfn, Level::ONE);
                        None
                    }
                    Entry::Leaf(pfn, _) if pfn.0.wrapping_sub(zeros.0.0) >= zeros.1 => Some(pfn),
                    entry => self.page_of(entry),
                };
                if let Some(pfn) = page {
                    self.release_base(flushed, pfn);
                    pages += 1;
                }
                m.set_entry(node.pfn, slot, 0);
                left -= 1;
            }
            slot += 1;
        }
        m.work(Work::Scan, (slot - first) as u64);
        if pages != 0 {
            self.count(Counter::AnonPages, -pages);
        }
    }

    /// The page of an object that an entry of a dead node keeps.
    fn shared_page_of(&self, entry: Entry) -> Option<Pfn> {
        match entry {
            Entry::Shared(pfn, _) | Entry::Busy(Busy::Shared(pfn)) => Some(pfn),
            _ => None,
        }
    }

    /// The data frame that an entry of a dead node keeps; none for zeros, nor for what is busy in
    /// their place.
    fn page_of(&self, entry: Entry) -> Option<Pfn> {
        match entry {
            Entry::Leaf(pfn, _) => (!self.is_zero(pfn)).then_some(pfn),
            Entry::Inaccessible(pfn) | Entry::Busy(Busy::Page(pfn)) => Some(pfn),
            _ => None,
        }
    }
}
