//! Making one huge page of a table of base pages.
//!
//! What only the table says of its slots, the table above says first. The frame comes next. Then
//! the table is cut off like one that is unmapped: its slot says `Detached`, it is dead, faults
//! wait; every CPU drops its translations and walk caches; the pages are copied, in peace, since
//! nobody can reach them any more; and the huge leaf appears. Whatever the table mapped is
//! released, shared pages included: the copy is this space's own.
//!
//! The copy has no scheduling points and is not stopped half-done: the layout is locked, faults
//! wait for the slot, and the table cannot come back.

use crate::addr::{ENTRIES, Level, Order, Pfn, Va, VaRange};
use crate::config::ClearUnit;
use crate::entry::{Entry, Flags};
use crate::error::{NoMemory, ObjectError};
use crate::fault::Faults;
use crate::fault::object::BlockFault;
use crate::frame::{AllocRequest, Data, SlabRef};
use crate::machine::{Act, Machine, Stores, Use, Work};
use crate::ops::object::collapse::CollapseObject;
use crate::ops::unmap::{Leftover, Unmap};
use crate::pagetable::cursor::Cursor;
use crate::pagetable::node::Node;
use crate::platform::over;
use crate::space::{HugeAdvice, LeafSize, SpaceRecord};
use crate::stats::Counter;
use crate::sync::Token;
use crate::tlb::Receipt;
use crate::vma::edit::Edit;

pub(super) struct Collapse<'v, M: Machine>(pub &'v Faults<M>);

over!(Collapse, Faults);

impl<M: Machine> Collapse<'_, M> {
    /// Collapses the 2 MiB at `va`, if there is a table whose pages are of one region that may have
    /// huge pages and at least one page is resident. `false` if there is not. Under the layout
    /// lock.
    pub fn collapse(self, edit: &mut Edit<'_>, va: Va) -> Result<bool, NoMemory> {
        let m = &self.machine;
        let space = edit.space;
        let level = Level::TWO;
        let spot = self.descend(space, va);
        // The lowest table is one of these two: the one the descent ended in, or none.
        if spot.level != Level::ONE {
            return Ok(false);
        }
        let child = spot.node;
        let state = child.state();
        let Some((parent, slot)) = child.parent() else { return Ok(false) };
        let parent = self.node(parent);
        let Some(region) = spot.region.map(|handle| self.region(handle)) else { return Ok(false) };
        let attrs = region.attrs();
        let (end, own) = self.intervals(child).from(0);
        if end != ENTRIES
            || state.count() != ENTRIES as u64
            || state.resident() == 0
            || attrs.rights.is_none()
            || region.packed().has_object()
            || attrs.thp == Some(HugeAdvice::NoHuge)
            || attrs.leaf == LeafSize::Exactly(Order::BASE)
        {
            return Ok(false);
        }
        if own.is_some() {
            self.intervals(parent).set(edit, (slot, slot + 1), own)?;
        }
        let index = va.page().wrapping_add(region.shift());
        let want = AllocRequest {
            policy: attrs.numa.unwrap_or(self.config.numa),
            index,
            use_: Use::Data,
            optional: false,
        };
        let new = self.alloc_exactly(Order::HUGE, &want)?;
        if self.config.alloc_zero {
            m.clear_frames(new, Order::HUGE.frames());
        }
        {
            let mut top = Token::top();
            let _guard = parent.lock(m, &mut top);
            self.store(parent.pfn, slot, level, Entry::Detached(child.pfn));
        }
        self.mark_subtree_dead(child.pfn, Level::ONE);
        let mut receipt = Receipt::new();
        receipt.table(va, Va(va.0 + level.entry_bytes()));
        let flushed = self.flush(space, receipt);
        self.gather(child, new, va);
        Data::init(self.frames.record(new), Order::HUGE, space.owner(), index);
        let rights = attrs.rights;
        let flags =
            Flags { write: rights.write, exec: rights.exec, accessed: true, dirty: rights.write };
        {
            let mut top = Token::top();
            let _guard = parent.lock(m, &mut top);
            self.store(parent.pfn, slot, level, Entry::Leaf(new, flags));
            parent.add_resident(1);
        }
        m.work(Work::Entry, 1);
        if let Ok(range) = VaRange::new(va, level.entry_bytes(), self.user_end()) {
            let at = Cursor { node: child, level: Level::ONE, base: va.0 };
            self.free_tree(&flushed, at, range, edit.deferred);
        }
        self.count_pages(Order::HUGE, 1);
        self.count(Counter::ThpCollapse, 1);
        Ok(true)
    }

    /// The same where a region shows an object, for all who map it: its pages become a block. The
    /// table in which this space has them goes, so that its next touch maps the block as a whole.
    /// The caller holds no lock and is in no epoch.
    pub fn collapse_object(self, space: &SpaceRecord, va: Va) -> Result<(), ObjectError> {
        let kept = {
            let _epoch = self.epochs.enter(&self.machine);
            let page = self.shown_at(space, va);
            page.inspect(|page| self.object(page.0).attachments.keep())
        };
        let Some(page) = kept else { return Ok(()) };
        let is_one =
            self.with_memory(|| self.in_hand(|| self.edit(space, |edit| self.says_one(edit, va))));
        let made = match is_one {
            Ok(true) => CollapseObject(self.0).collapse_at(page.0, page.1),
            Ok(false) => Ok(false),
            Err(error) => Err(error.into()),
        };
        if made == Ok(true) {
            let _in_hand = self.hands.begin(&self.machine);
            self.edit(space, |edit| {
                let table = self.descend(space, va);
                let range = VaRange::new(va, Order::HUGE.bytes(), self.user_end());
                if table.level == Level::ONE
                    && table.node.state().listed() == 0
                    && self.shown_at(space, va) == Some(page)
                    && let Ok(range) = range
                {
                    Unmap(self.0).take_out(edit, range, Leftover::Reserved);
                }
            });
        }
        self.let_go_of(page.0);
        made.map(drop)
    }

    /// Has the table above say of 2 MiB what a table of 4 KiB entries says by itself, as where a
    /// mapping has grown in parts. `false` if that is not one region for all of it.
    fn says_one(self, edit: &mut Edit<'_>, va: Va) -> Result<bool, NoMemory> {
        let spot = self.descend(edit.space, va);
        if spot.level != Level::ONE || spot.node.state().listed() == 0 {
            return Ok(true);
        }
        let intervals = self.intervals(spot.node);
        let ((end, own), parent) = (intervals.from(0), spot.node.parent());
        let (ENTRIES, Some(_), Some((parent, slot))) = (end, own, parent) else { return Ok(false) };
        self.intervals(self.node(parent)).set(edit, (slot, slot + 1), own)?;
        intervals.set(edit, (0, ENTRIES), None)?;
        Ok(true)
    }

    /// The object, and the page of it, that a region shows at the start of 2 MiB that a leaf may
    /// map. Inside an epoch, or under the mmap lock.
    fn shown_at(self, space: &SpaceRecord, va: Va) -> Option<(SlabRef, u64)> {
        let last = Va(va.0 + Order::HUGE.bytes() - Order::BASE.bytes());
        let (seen, last) = (self.seen(space, va)?, self.seen(space, last)?);
        let page = seen.region.object_at(va)?;
        let is_all = seen.spot.region == last.spot.region && !seen.attrs.rights().is_none();
        (is_all && BlockFault(self.0).may_fit(&seen, page)).then_some(page)
    }

    /// Fills a huge frame with the pages of a table that nobody reaches any more, stored as a run
    /// of 2 MiB is; with `clear.unit=page` through the caches. Page by page all the same: the
    /// layout is locked, and between two pages an interrupt is served.
    fn gather(self, child: Node<'_>, new: Pfn, va: Va) {
        let extents = self.config.clear_unit == ClearUnit::Extent;
        let stores = if extents { self.stores(Order::HUGE.frames()) } else { Stores::Cached };
        for i in 0..ENTRIES {
            let from = match self.load(child.pfn, i, Level::ONE) {
                Entry::Leaf(from, _) | Entry::Inaccessible(from) if !self.is_zero(from) => {
                    Some(from)
                }
                _ => None,
            };
            self.fill_run(
                from,
                new.add(i as u64),
                1,
                stores,
                Va(va.0 + ((i as u64) << Level::ONE.shift())),
            );
        }
        if stores == Stores::NonTemporal {
            self.machine.store_fence();
        }
    }
}
