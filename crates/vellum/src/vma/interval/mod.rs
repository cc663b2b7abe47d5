//! Intervals: which region the slots of a table node belong to.
//!
//! A sorted list of (first slot, region); each holds up to the next one's first slot, and a slot
//! before the first or under a pair without region asks the node above. An interval may be wider
//! than the truth, never narrower: whether a slot is mapped at all its entry says, so unmapping
//! needs no memory here. Up to three pairs stand in the node's record, more in a list object of 16,
//! 128 or 512 pairs.
//!
//! Changed under the mmap lock and the node's lock, read without any under the node's sequence
//! count. A reader checks the count once more before it follows a list's address: words read across
//! a change are not an address.
//!
//! Every change of what a node's intervals say raises the space's edit count (`Change`), also one
//! that only drops what nothing is mapped by any more: a mapping that comes there afterwards may
//! find that its neighbours say what it wants and change nothing, and a fault that read the dropped
//! interval must find out all the same. Rejected: the verbs raise the count (unmapping did not, and
//! a fault installed a writable page in the read-only mapping that came after).
//!
//! Each pair with a region holds a reference to it. Room is made first
//! ([`Intervals::room`], which may fail); the changes themselves cannot.

mod change;
mod idle;
pub(crate) mod pairs;
mod room;
pub(crate) mod undo;

use crate::addr::ENTRIES;
use crate::frame::SlabRef;
use crate::machine::{Machine, Work};
use crate::pagetable::node::{IN_LIST, Node};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::touch;
use crate::vma::Regions;
use crate::vma::interval::pairs::{LIST_PAIRS, Pair, Pairs};

/// The intervals of a node.
pub(crate) struct Intervals<'v, M: Machine> {
    regions: &'v Regions<M>,
    node: Node<'v>,
}

impl<M: Machine> Regions<M> {
    #[inline(always)]
    pub fn intervals<'v>(&'v self, node: Node<'v>) -> Intervals<'v, M> {
        Intervals { regions: self, node }
    }

    fn list_words(&self, list: SlabRef, class: u64) -> &[AtomicU64] {
        let words = list.ptr(&self.machine).cast::<AtomicU64>();
        // SAFETY: list objects of a class are that many zero-initialised words, live while a node
        // names them or an epoch lasts.
        unsafe { core::slice::from_raw_parts(words.as_ptr(), LIST_PAIRS[class as usize]) }
    }

    /// Whether two intervals say the same: by handle, or by what the regions hold.
    pub(super) fn equivalent(&self, a: Option<SlabRef>, b: Option<SlabRef>) -> bool {
        match (a, b) {
            (Some(a), Some(b)) => a == b || self.region(a).same_attrs(self.region(b)),
            _ => a == b,
        }
    }
}

impl<'v, M: Machine> Intervals<'v, M> {
    /// The node's pairs. Under the mmap lock.
    fn pairs(&self) -> Pairs<'v> {
        let node = self.node;
        let listed = node.state().listed();
        if listed < IN_LIST {
            return Pairs { node, list: None, len: listed as usize };
        }
        let about = node.interval_word(1).load(Ordering::Relaxed);
        let list = SlabRef::from_raw(node.interval_word(0).load(Ordering::Relaxed));
        let words =
            list.map_or(&[] as &[AtomicU64], |list| self.regions.list_words(list, about >> 16));
        Pairs { node, list: Some((words, about >> 16)), len: (about & 0xffff) as usize }
    }

    /// The region the node's own intervals give a slot, if any. Inside an epoch, or under the
    /// mmap lock.
    #[inline(always)]
    pub(super) fn region_at(&self, slot: usize) -> Option<SlabRef> {
        let m = &self.regions.machine;
        let node = self.node;
        m.work(Work::Region, 1);
        let seen = node.sequence().begin(m);
        // The commonest node has one pair.
        if node.state().listed() == 1 {
            touch(m, node.interval_word(0), false);
            let pair = Pair(node.interval_word(0).load(Ordering::Relaxed));
            if !node.sequence().changed(m, seen) {
                return if pair.slot() <= slot { pair.region() } else { None };
            }
        }
        Self::region_among(self.regions, node, slot)
    }

    /// The same of a node with any number of pairs, which is handed on in registers.
    #[inline(never)]
    fn region_among(regions: &Regions<M>, node: Node<'_>, slot: usize) -> Option<SlabRef> {
        let m = &regions.machine;
        loop {
            let seen = node.sequence().begin(m);
            let listed = node.state().listed();
            touch(m, node.interval_word(0), false);
            if listed < IN_LIST {
                let mut found = Pair(0);
                for i in 0..listed as usize {
                    let pair = Pair(node.interval_word(i).load(Ordering::Relaxed));
                    if pair.slot() > slot {
                        break;
                    }
                    found = pair;
                }
                if !node.sequence().changed(m, seen) {
                    return found.region();
                }
                continue;
            }
            let about = node.interval_word(1).load(Ordering::Relaxed);
            touch(m, node.interval_word(0), false);
            let list = SlabRef::from_raw(node.interval_word(0).load(Ordering::Relaxed));
            if node.sequence().changed(m, seen) {
                continue;
            }
            let words =
                list.map_or(&[] as &[AtomicU64], |list| regions.list_words(list, about >> 16));
            let pairs =
                Pairs { node, list: Some((words, about >> 16)), len: (about & 0xffff) as usize };
            let found = pairs.find(slot);
            if !node.sequence().changed(m, seen) {
                return found;
            }
        }
    }

    /// The slot after the last one that shares `slot`'s interval, and the interval's region. Under
    /// the mmap lock.
    pub fn from(&self, slot: usize) -> (usize, Option<SlabRef>) {
        let pairs = self.pairs();
        let next = pairs.below(slot + 1);
        let end = if next < pairs.len { pairs.get(next).slot() } else { ENTRIES };
        (end, if next == 0 { None } else { pairs.get(next - 1).region() })
    }

    /// Whether an interval begins at a slot of the node: only such a one can speak for that slot
    /// alone. Under the mmap lock.
    #[inline(never)]
    pub fn begins(&self, slot: usize) -> bool {
        self.pairs().begins(slot)
    }

    /// Whether a node's pairs are in order, and the handles it holds, for `validate`.
    pub fn check(&self, mut handle: impl FnMut(SlabRef)) -> bool {
        let (listed, about) =
            (self.node.state().listed(), self.node.interval_word(1).load(Ordering::Relaxed));
        let fits = |&most: &usize| about & 0xffff <= most as u64;
        let in_list = |class| LIST_PAIRS.get(class as usize).is_some_and(fits);
        if listed > IN_LIST || listed == IN_LIST && !in_list(about >> 16) {
            return false;
        }
        let pairs = self.pairs();
        let mut last = None;
        for i in 0..pairs.len {
            let pair = pairs.get(i);
            if last.is_some_and(|last| last >= pair.slot()) {
                return false;
            }
            last = Some(pair.slot());
            if let Some(region) = pair.region() {
                handle(region);
            }
        }
        true
    }
}
