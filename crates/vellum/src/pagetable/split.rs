//! Cutting a large leaf into a table of smaller ones.
//!
//! The entry goes absent (`Busy`), the old translation is flushed everywhere, and only then the
//! table appears: at no moment two sizes translate one address. The frame for the table is
//! allocated first, so a split that cannot be had changes nothing; no tables are kept in reserve
//! for the day a leaf is split. The frames stay where they are; from here they count one by one.

use crate::addr::{ENTRIES, Level, Order, PAGE_SHIFT, Pfn, Va};
use crate::entry::{Codec, Entry};
use crate::machine::{Machine, Work};
use crate::pagetable::PageTables;
use crate::pagetable::cursor::Place;
use crate::pagetable::node::Node;
use crate::pagetable::transit::{Settled, frame_of};
use crate::rmap::map_count::smaller;
use crate::space::SpaceRecord;
use crate::stats::Counter;
use crate::tlb::{Flushed, Receipt};

impl<M: Machine> PageTables<M> {
    /// Splits the leaf that was seen at `va` into a table in `frame`, if `still` says so under the
    /// node's lock. If not, or if the entry maps something else by now, nothing happens, and the
    /// frame is still the caller's. An epoch or the mmap lock keeps the node alive; no node lock is
    /// held.
    pub(crate) fn split_leaf(
        &self,
        space: &SpaceRecord,
        at: Place<'_>,
        va: Va,
        frame: Pfn,
        still: impl FnOnce() -> bool,
    ) -> bool {
        let Place { node, level, slot, raw } = at;
        let (Some(pfn), Some(order)) = (frame_of(M::Codec::decode(raw, level)), level.leaf_order())
        else {
            return false;
        };
        let below = level.child();
        let child = self.init_node(
            frame,
            below,
            Some((node.pfn, slot)),
            M::Codec::encode(Entry::Reserved, below),
        );
        // Asked under the lock: what was read may have gone meanwhile, and become the zeros.
        let busy =
            |entry| M::Codec::encode(Self::busy(entry, self.is_zero_leaf(pfn, level)), level);
        let Some((taken, transit)) = self.make_busy(at, still, busy) else {
            self.count(Counter::TablePages, -1);
            return false;
        };
        let zeros = matches!(taken, Entry::Leaf(..)) && self.is_zero_leaf(pfn, level);
        self.settle(transit, || {
            let mut receipt = Receipt::new();
            receipt.leaf(va, level);
            let _flushed = self.flush(space, receipt);
            if let Entry::Leaf(_, flags) = taken
                && zeros
            {
                self.fill_zeros(child, va.align_down(level.entry_bytes()), flags);
            } else {
                self.split_block(pfn, order);
                self.fill_sub_blocks(child, below, pfn, |sub_block| match taken {
                    Entry::Leaf(_, flags) => Entry::Leaf(sub_block, flags),
                    _ => Entry::Inaccessible(sub_block),
                });
            }
            (Settled::new(Entry::Table(child.pfn), if zeros { 0 } else { -1 }), ())
        });
        if zeros {
            self.count(Counter::ThpZeroSplit, 1);
            return true;
        }
        self.count_pages(order, -1);
        self.count_pages(smaller(order), ENTRIES as i64);
        if order == Order::HUGE {
            self.count(Counter::ThpSplit, 1);
        }
        true
    }

    /// Writes the sub-blocks of a block into every entry of a node that is linked nowhere yet; its
    /// entries are of `level`.
    pub(crate) fn fill_sub_blocks(
        &self,
        node: Node<'_>,
        level: Level,
        block: Pfn,
        entry: impl Fn(Pfn) -> Entry,
    ) {
        let words = self.machine.direct(node.pfn).cast::<u64>();
        let frames = level.entry_bytes() >> PAGE_SHIFT;
        for i in 0..ENTRIES {
            let raw = M::Codec::encode(entry(block.add(i as u64 * frames)), level);
            // SAFETY: the node is linked nowhere yet, so its 512 words are ours alone.
            unsafe { words.add(i).write(raw) };
        }
        self.machine.work(Work::Entry, ENTRIES as u64);
        node.set_state(node.state().with_resident(ENTRIES as u64));
    }
}

/// As [`PageTables::split_leaf`], for a leaf of a device, whose frames nobody counts.
#[cold]
pub(super) fn split_device<M: Machine>(
    tables: &PageTables<M>,
    space: &SpaceRecord,
    at: Place<'_>,
    va: Va,
    frame: Pfn,
) -> bool {
    open_leaf(tables, space, at, (va, frame), |child, taken, _| {
        if let Entry::Device(pfn, flags, cache) = taken {
            let below = at.level.child();
            tables.fill_sub_blocks(child, below, pfn, |part| Entry::Device(part, flags, cache));
            child.set_state(child.state().with_resident(0));
        }
        0
    })
}

/// The same for a leaf that maps a block of an object: nothing is mapped after that, and faults map
/// its pages anew.
#[cold]
pub(super) fn zap_block<M: Machine>(
    tables: &PageTables<M>,
    space: &SpaceRecord,
    at: Place<'_>,
    va: Va,
    frame: Pfn,
) -> bool {
    open_leaf(tables, space, at, (va, frame), |_, taken, flushed| {
        if let Entry::Shared(block, _) = taken {
            tables.release_shared(flushed, block, at.level);
        }
        -1
    })
}

/// Puts a table of reserved entries in a frame in place of a leaf, which `fill` may change before
/// it is linked, when no CPU has a translation of the leaf; it says what that adds to the resident
/// pages of the node above.
fn open_leaf<M: Machine>(
    tables: &PageTables<M>,
    space: &SpaceRecord,
    at: Place<'_>,
    (va, frame): (Va, Pfn),
    fill: impl FnOnce(Node<'_>, Entry, &Flushed) -> i64,
) -> bool {
    let Place { node, level, slot, .. } = at;
    let below = level.child();
    let reserved = M::Codec::encode(Entry::Reserved, below);
    let child = tables.init_node(frame, below, Some((node.pfn, slot)), reserved);
    // A device has no frame that somebody could look for.
    let is_device = matches!(M::Codec::decode(at.raw, level), Entry::Device(..));
    let busy = |entry| M::Codec::encode(PageTables::<M>::busy(entry, is_device), level);
    let Some((taken, transit)) = tables.make_busy(at, || true, busy) else {
        tables.count(Counter::TablePages, -1);
        return false;
    };
    tables.settle(transit, || {
        let mut receipt = Receipt::new();
        receipt.leaf(va, level);
        let flushed = tables.flush(space, receipt);
        let resident = fill(child, taken, &flushed);
        (Settled::new(Entry::Table(child.pfn), resident), ())
    });
    true
}
