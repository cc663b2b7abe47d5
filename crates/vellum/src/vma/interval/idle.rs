//! Regions that keep an object although nothing of it is mapped.
//!
//! An interval may reach past what is mapped, over slots that are empty. For private memory that
//! costs nothing. A region that maps an object keeps all of its pages, so in a space that maps
//! objects an unmap looks for intervals of such regions that no entry goes by any more.

use crate::addr::{ENTRIES, Level};
use crate::entry::Entry;
use crate::machine::Machine;
use crate::pagetable::node::Node;
use crate::vma::edit::Edit;
use crate::vma::interval::Intervals;
use crate::vma::interval::pairs::Pair;

impl<M: Machine> Intervals<'_, M> {
    /// Lets intervals of this node and those above it speak for no object that nothing is mapped
    /// of. Needs no memory. Under the mmap lock.
    #[cold]
    pub fn forget_idle(&self, edit: &mut Edit<'_>) {
        self.forget_idle_here(edit);
        if let Some((parent, _)) = self.node.parent() {
            self.regions.intervals(self.regions.node(parent)).forget_idle(edit);
        }
    }

    fn forget_idle_here(&self, edit: &mut Edit<'_>) {
        let mut pairs = self.pairs();
        let idle = |i: usize| {
            let end = if i + 1 < pairs.len { pairs.get(i + 1).slot() } else { ENTRIES };
            let region = pairs.get(i).region().map(|region| self.regions.region(region));
            region.is_some_and(|region| region.packed().has_object())
                && !self.is_asked(pairs.get(i).slot(), end)
        };
        if !(0..pairs.len).any(idle) {
            return;
        }
        let _guard = self.node.lock(&self.regions.machine, edit.token);
        let _change = self.change(edit.space);
        for i in 0..pairs.len {
            let pair = pairs.get(i);
            if let Some(region) = pair.region()
                && idle(i)
            {
                pairs.set(i, Pair::new(pair.slot(), None));
                self.regions.drop_region(region, edit.deferred);
            }
        }
        let len = pairs.len;
        self.merge(&mut pairs, 0, len, edit.deferred);
        pairs.publish();
    }

    /// Whether some entry in `[first, end)`, or below it, goes by what this node says there.
    fn is_asked(&self, first: usize, end: usize) -> bool {
        let level = self.node.state().level();
        (first..end).any(|slot| match self.regions.load(self.node.pfn, slot, level) {
            Entry::Empty => false,
            Entry::Table(child) if level > Level::ONE => self.asks_above(self.regions.node(child)),
            _ => true,
        })
    }

    /// Whether some entry of a node, or below it, goes by what the nodes above say.
    fn asks_above(&self, node: Node<'_>) -> bool {
        let own = self.regions.intervals(node);
        let level = node.state().level();
        let (mut left, mut slot) = (node.state().count(), 0);
        while left != 0 && slot < ENTRIES {
            let entry = self.regions.load(node.pfn, slot, level);
            let asks = match entry {
                Entry::Empty => false,
                _ if own.from(slot).1.is_some() => false,
                Entry::Table(child) if level > Level::ONE => {
                    self.asks_above(self.regions.node(child))
                }
                _ => true,
            };
            if asks {
                return true;
            }
            left -= u64::from(entry != Entry::Empty);
            slot += 1;
        }
        false
    }
}
