//! What a verb took out of the tree and may free only when no lock-free reader can still be in it.
//!
//! Dead nodes, interval lists and regions, each chained through memory of their own that nobody
//! needs any more. A verb fills its list while it works and empties it once at its end, after one
//! wait for the epochs: a verb that took nothing out waits for nobody. Rejected: a queue shared by
//! verbs (memory held back without bound while nobody comes by), and a wait per object.

use crate::addr::Pfn;
use crate::frame::SlabRef;
use crate::machine::Machine;
use crate::pagetable::node::Node;
use crate::rmap::attachment::Attach;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{self, Above, Attachments, Token};
use crate::tlb::Flushed;
use crate::vma::Regions;

/// Objects that nobody keeps, chained; 0 is the end.
#[must_use = "the objects are freed by `ObjectLayer::free_orphans`"]
pub(crate) struct Orphans(pub u64);

/// The chains: 0 is the end of each.
#[must_use = "deferred is emptied by `ObjectLayer::free_deferred`"]
#[derive(Default)]
pub(crate) struct DeferredFree {
    nodes: u64,
    lists: [u64; 3],
    regions: u64,
    /// Regions that map objects.
    mappings: u64,
    /// Regions that have replaced others, with a reference to both: these go when the verb has
    /// flushed what programs could do by the old ones.
    fresh: u64,
}

impl DeferredFree {
    /// A dead node whose translations are flushed everywhere.
    pub(super) fn node(&mut self, node: Node<'_>, flushed: &Flushed) {
        let _ = flushed;
        node.chain().store(self.nodes, Ordering::Relaxed);
        self.nodes = node.pfn.0 + 1;
    }

    /// An interval list no node names.
    pub(super) fn list<M: Machine>(&mut self, vm: &Regions<M>, list: SlabRef, class: usize) {
        // A reader may be reading this very word as a pair. The list left its node inside the
        // node's sequence count, so the reader will find the count changed and read again.
        last_word(vm, list, class).store(self.lists[class], Ordering::Relaxed);
        self.lists[class] = list.raw();
    }

    /// A region nobody names.
    pub(super) fn region<M: Machine>(&mut self, vm: &Regions<M>, region: SlabRef) {
        let record = vm.region(region);
        let chain =
            if record.packed().has_object() { &mut self.mappings } else { &mut self.regions };
        record.next.store(*chain, Ordering::Relaxed);
        *chain = region.raw();
    }

    /// Regions that have replaced others.
    pub(super) fn replaced<M: Machine>(&mut self, vm: &Regions<M>, first: Option<SlabRef>) {
        let Some(first) = first else { return };
        let mut last = first;
        while let Some(next) = SlabRef::from_raw(vm.region(last).next.load(Ordering::Relaxed)) {
            last = next;
        }
        vm.region(last).next.store(self.fresh, Ordering::Relaxed);
        self.fresh = first.raw();
    }

    /// Gives the references of those up. The verb has flushed.
    #[inline]
    pub fn drop_replaced<M: Machine>(&mut self, vm: &Regions<M>) {
        if let Some(first) = SlabRef::from_raw(core::mem::take(&mut self.fresh)) {
            drop_names(vm, Some(first), self);
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.nodes == 0 && self.regions == 0 && self.mappings == 0 && self.lists == [0; 3]
    }
}

/// Gives up a chain of fresh regions, and what they have replaced, or were to.
#[cold]
pub(super) fn drop_names<M: Machine>(
    vm: &Regions<M>,
    mut next: Option<SlabRef>,
    deferred: &mut DeferredFree,
) {
    while let Some(handle) = next {
        let region = vm.region(handle);
        next = SlabRef::from_raw(region.next.load(Ordering::Relaxed));
        if let Some(old) = SlabRef::from_raw(region.replaces()) {
            region.set_replaces(0);
            vm.drop_region(old, deferred);
        }
        vm.drop_region(handle, deferred);
    }
}

fn last_word<M: Machine>(vm: &Regions<M>, list: SlabRef, class: usize) -> &AtomicU64 {
    let words = list.ptr(&vm.machine).cast::<AtomicU64>();
    // SAFETY: list objects of a class have that many words; the object is live until the list
    // frees it.
    unsafe { words.add(crate::vma::interval::pairs::LIST_PAIRS[class] - 1).as_ref() }
}

impl<M: Machine> Regions<M> {
    /// Waits for the readers and frees everything. The caller is in no epoch and holds no node.
    #[cold]
    pub fn wait_and_free<H>(&self, deferred: DeferredFree, token: &mut Token<H>) -> Orphans
    where
        H: Above<Attachments> + Above<sync::TableLock> + Above<sync::Queue>,
    {
        let m = &self.machine;
        if deferred.mappings != 0 {
            // Before the tables go: who walks from an object to its mappings finds the space no
            // more.
            self.detach_all(&deferred, token);
        }
        self.epochs.synchronize(m, token);
        let mut next = deferred.nodes;
        while next != 0 {
            let node = self.node(Pfn(next - 1));
            next = node.chain().load(Ordering::Relaxed);
            self.free_node(node.pfn);
        }
        for (class, &first) in deferred.lists.iter().enumerate() {
            let mut next = SlabRef::from_raw(first);
            while let Some(list) = next {
                next = SlabRef::from_raw(last_word(self, list, class).load(Ordering::Relaxed));
                self.lists[class].free(m, &self.frames, token, list);
            }
        }
        let mut next = SlabRef::from_raw(deferred.regions);
        while let Some(region) = next {
            next = SlabRef::from_raw(self.region(region).next.load(Ordering::Relaxed));
            self.regions.free(m, &self.frames, token, region);
        }
        let mut orphans = Orphans(0);
        let mut next = SlabRef::from_raw(deferred.mappings);
        while let Some(region) = next {
            next = SlabRef::from_raw(self.region(region).next.load(Ordering::Relaxed));
            let attachment = self.region(region).attachment();
            if let Some(object) =
                attachment.and_then(|gone| Attach(self).free_attachment(gone, token))
            {
                Attach(self).list_of(object).next.store(orphans.0, Ordering::Relaxed);
                orphans.0 = object.raw();
            }
            self.regions.free(m, &self.frames, token, region);
        }
        orphans
    }

    /// Takes the attachments off their lists that no other region names. What is left in the
    /// regions is the caller's.
    fn detach_all<H: Above<Attachments>>(&self, deferred: &DeferredFree, token: &mut Token<H>) {
        let mut next = SlabRef::from_raw(deferred.mappings);
        while let Some(handle) = next {
            let region = self.region(handle);
            next = SlabRef::from_raw(region.next.load(Ordering::Relaxed));
            let Some(attachment) = region.attachment() else { continue };
            if region.packed().writes_object() {
                Attach(self).users_of(attachment).end_writer();
            }
            if !Attach(self).detach(attachment, token) {
                region.forget_attachment();
            }
        }
    }
}
