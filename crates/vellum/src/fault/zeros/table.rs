//! Faults and boundaries where a table of zeros stands for what was read.
//!
//! A *shared* table of zeros is a value in an entry, like a leaf: whoever needs another entry for a
//! part of it puts a copy in its place, private to the space and equal but for what is to differ,
//! one for each level that is shared there. The entry names one table before and another after, and
//! both translate alike, so hardware may use either; but what is about to differ is absent (`Busy`)
//! in the copy until every CPU has dropped its translation of that page, and with it the walk
//! caches that lead to the shared table. Where the MMU wants break-before-make, the entry itself is
//! absent meanwhile, and all it translated is flushed.
//!
//! A *private* table of zeros is an ordinary node that remembers what it was made for: while
//! nothing but zeros is in it, a write lets the whole table give way to a huge page. That takes the
//! node out of the tree, which is for holders of the mmap lock alone; it is the one fault that
//! takes it. Rejected: base pages in such tables from the first write on (no lock, and no huge page
//! ever again).

use crate::addr::{ENTRIES, Level, Order, Pfn, Va, VaRange};
use crate::entry::{Busy, Codec, Entry, Flags};
use crate::error::{FaultError, NoMemory};
use crate::fault::reserved::Reserved;
use crate::fault::{Faults, Seen, Step};
use crate::frame::{AllocRequest, Data};
use crate::machine::{Machine, Use, Work};
use crate::pagetable::cursor::Cursor;
use crate::pagetable::node::Node;
use crate::pagetable::transit::{Settled, Transit};
use crate::pagetable::unlinked::UnlinkedPath;
use crate::platform::over;
use crate::space::{Access, Fault, Rights, SpaceRecord};
use crate::stats::Counter;
use crate::sync::{EpochGuard, MmapLock, Token};
use crate::tlb::Receipt;
use crate::vma::edit::Edit;

pub(crate) struct ZeroTable<'v, M: Machine>(pub &'v Faults<M>);

over!(ZeroTable, Faults);

impl<M: Machine> ZeroTable<'_, M> {
    /// Serves a read by the shared table, from 1 GiB down.
    pub fn map_shared(self, seen: &Seen<'_>) -> Result<Step, FaultError> {
        let spot = &seen.spot;
        let level = spot.level.min(Level::THREE);
        let path = self.unlinked_path(spot.at, seen.va, level)?;
        let Ok(table) = self.zero_table(level) else {
            self.free_path(path);
            self.count_here(Counter::ThpZeroAllocFailed, 1);
            return Ok(Step::Smaller);
        };
        Ok(self.zero_table_mapped(seen, path, Entry::ZeroTable(table), level))
    }

    /// Serves a read of 2 MiB by a table of its own.
    pub fn map_private(self, seen: &Seen<'_>) -> Result<Step, FaultError> {
        let spot = &seen.spot;
        let level = Level::TWO;
        let above = self.unlinked_path(spot.at, seen.va, level)?;
        let parent = above
            .as_ref()
            .map_or((spot.node.pfn, spot.slot), |path| (path.last.pfn, level.slot(seen.va)));
        let fill = M::Codec::encode(Entry::Reserved, Level::ONE);
        let child = match self.make_node(Level::ONE, Some(parent), fill) {
            Ok(child) => child,
            Err(error) => {
                self.free_path(above);
                return Err(error.into());
            }
        };
        let flags = Flags { exec: seen.attrs.rights().exec, ..Flags::default() };
        self.fill_zeros(child, seen.va.align_down(level.entry_bytes()), flags);
        child.set_of_zeros();
        let step = self.zero_table_mapped(seen, above, Entry::Table(child.pfn), level);
        if !matches!(step, Step::Done(_)) {
            self.untake_node(child.pfn);
        }
        Ok(step)
    }

    fn zero_table_mapped(
        self,
        seen: &Seen<'_>,
        path: Option<UnlinkedPath<'_>>,
        table: Entry,
        level: Level,
    ) -> Step {
        if !self.plant(seen, path, table, false) {
            return Step::Again;
        }
        self.count_here(Counter::FaultsZero, 1);
        self.count_here(Counter::FaultsZeroTable, 1);
        Step::Done(Fault::ZeroTable(level))
    }

    /// Serves a write where a shared table of zeros is.
    #[cold]
    pub fn write_zero_table(
        self,
        seen: &Seen<'_>,
        epoch: EpochGuard<'_, M>,
        huge: bool,
    ) -> Result<Step, FaultError> {
        let m = &self.machine;
        let (space, va, attrs) = (seen.space, seen.va, seen.attrs);
        let _in_hand = self.hands.begin(m);
        let (new, _epoch) = if self.large_order(attrs, Order::HUGE, huge).is_some() {
            let want = self.want_block(seen, Order::HUGE);
            drop(epoch);
            (Reserved(self.0).fresh_block(Order::HUGE, &want, va, false)?, self.epochs.enter(m))
        } else {
            (None, epoch)
        };
        if let Some(seen) = self.seen(space, va)
            && matches!(M::Codec::decode(seen.spot.raw, seen.spot.level), Entry::ZeroTable(_))
            && seen.attrs == attrs
        {
            if let Some(new) = new {
                return self.unshare_zeros(&seen, new, Order::HUGE);
            }
            let new = self.frames.alloc(m, Order::BASE, &self.want(&seen))?;
            self.clear_page(new, va);
            return self.unshare_zeros(&seen, new, Order::BASE);
        }
        if let Some(new) = new {
            self.untake(new, Order::HUGE);
        }
        Ok(Step::Again)
    }

    /// Puts a cleared page where a shared table of zeros was seen, with private tables above it.
    /// The page is freed if it cannot be.
    fn unshare_zeros(self, seen: &Seen<'_>, new: Pfn, order: Order) -> Result<Step, FaultError> {
        let m = &self.machine;
        let level = seen.spot.level;
        let leaf = if order == Order::BASE { Level::ONE } else { Level::TWO };
        let path = match self.private_zeros(seen.spot.at, seen.va, leaf) {
            Ok(path) => path,
            Err(NoMemory) => {
                self.untake(new, order);
                // With the huge page given back there may be enough for a base page and its tables.
                return if order == Order::BASE { Err(NoMemory.into()) } else { Ok(Step::Smaller) };
            }
        };
        self.init_page(seen, new, order);
        let page = Entry::Leaf(new, seen.own_flags());
        let mut receipt = Receipt::new();
        receipt.span(seen.va.align_down(order.bytes()), order.bytes());
        let live = !self.rules.break_before_make;
        let done = match &path {
            None => {
                self.exchange_seen(seen, false, receipt, Settled::new(page, 1), || {}).is_some()
            }
            Some(path) if live => self.link_zeros(seen, path, receipt, page),
            Some(path) => {
                path.write_last(&self.machine, seen.va, page);
                path.last.set_state(path.last.state().with_resident(1));
                receipt.span(seen.va.align_down(level.entry_bytes()), level.entry_bytes());
                let table = Settled::new(Entry::Table(path.first.pfn), 0);
                self.exchange_seen(seen, false, receipt, table, || {}).is_some()
            }
        };
        if !done {
            self.free_path(path);
            self.untake(new, order);
            return Ok(Step::Again);
        }
        self.count_pages(order, 1);
        self.count_here(Counter::ZeroTableUnshare, path.map_or(0, |path| path.nodes as i64));
        if order == Order::HUGE {
            m.work(Work::Large, 1);
            self.count_here(Counter::ThpFaultAlloc, 1);
            return Ok(Step::Done(Fault::Huge));
        }
        self.count_here(Counter::CowCopies, 1);
        Ok(Step::Done(Fault::Copied(leaf)))
    }

    /// Puts private copies of the tables in the place of the shared one that was seen, live, with a
    /// page where it is written: absent until no CPU uses the zeros there. `false` if the shared
    /// one is not there any more.
    fn link_zeros(
        self,
        seen: &Seen<'_>,
        path: &UnlinkedPath<'_>,
        receipt: Receipt,
        page: Entry,
    ) -> bool {
        let m = &self.machine;
        let spot = &seen.spot;
        path.write_last(&self.machine, seen.va, Entry::Busy(Busy::ExchangeNothing));
        let transit = Transit::begin(path.last_place(seen.va));
        {
            let mut top = Token::top();
            let _guard = spot.node.lock(m, &mut top);
            if !self.still(seen) {
                transit.drop_with_node();
                return false;
            }
            let table = Entry::Table(path.first.pfn);
            self.write_entry(spot.node.pfn, spot.slot, spot.level, table);
        }
        self.settle(transit, || {
            let _flushed = self.flush(seen.space, receipt);
            (Settled::new(page, 1), ())
        });
        true
    }

    /// Whether a write should let a private table of zeros give way to a huge page, as far as can
    /// be seen without its lock.
    #[inline]
    pub fn may_replace_zero_table(self, seen: &Seen<'_>, huge: bool) -> bool {
        let node = seen.spot.node;
        node.is_of_zeros()
            && self.holds_only_zeros(node)
            && self.large_order(seen.attrs, Order::HUGE, huge).is_some()
    }

    /// Whether nothing but zeros, reserved entries and tables is in a node, all of it of one
    /// region.
    fn holds_only_zeros(self, node: Node<'_>) -> bool {
        let state = node.state();
        state.count() == ENTRIES as u64
            && state.resident() == 0
            && state.listed() == 0
            && node.transit() == 0
            && !state.dead()
    }

    /// Lets the private table of zeros at `va` give way to a huge page for a write. No epoch and no
    /// lock is held.
    #[cold]
    #[inline(never)]
    pub fn replace_zero_table(
        self,
        space: &SpaceRecord,
        va: Va,
        access: Access,
    ) -> Result<Step, FaultError> {
        let m = &self.machine;
        let found = {
            let _epoch = self.epochs.enter(m);
            let spot = self.descend(space, va);
            spot.region
                .map(|handle| self.region(handle))
                .map(|region| (region.packed(), region.shift()))
        };
        let Some((attrs, shift)) = found else { return Ok(Step::Again) };
        let base = va.align_down(Order::HUGE.bytes());
        let index = base.page().wrapping_add(shift);
        let want = AllocRequest {
            policy: attrs.numa().unwrap_or(self.config.numa),
            index,
            use_: Use::Data,
            optional: false,
        };
        let _in_hand = self.hands.begin(m);
        let Some(new) = Reserved(self.0).fresh_block(Order::HUGE, &want, va, false)? else {
            return Ok(Step::Smaller);
        };
        let done = self.edit(space, |edit| {
            let spot = self.descend(space, va);
            let same = spot.region.is_some_and(|handle| {
                let region = self.region(handle);
                region.packed() == attrs && region.shift() == shift && attrs.allows(access)
            });
            let gives_way = same
                && spot.level == Level::ONE
                && spot.node.is_of_zeros()
                && self.kill_zeros(spot.node, edit.token);
            if gives_way {
                let Rights { write, exec, .. } = attrs.rights();
                let flags = Flags { write, exec, accessed: true, dirty: write };
                Data::init(self.frames.record(new), Order::HUGE, space.owner(), index);
                self.exchange_table(edit, spot.node, base, Entry::Leaf(new, flags));
            }
            gives_way
        });
        if !done {
            self.untake(new, Order::HUGE);
            return Ok(Step::Again);
        }
        m.work(Work::Large, 1);
        self.count_pages(Order::HUGE, 1);
        self.count(Counter::ThpFaultAlloc, 1);
        Ok(Step::Done(Fault::Huge))
    }

    /// Marks a private table dead if there still is nothing but zeros in it; from then on faults
    /// below it wait.
    fn kill_zeros(self, node: Node<'_>, token: &mut Token<MmapLock>) -> bool {
        let _guard = node.lock(&self.machine, token);
        let still = self.holds_only_zeros(node);
        if still {
            node.set_state(node.state().with_dead());
        }
        still
    }

    /// Puts a huge page where a dead table of zeros was, which had no intervals.
    fn exchange_table(self, edit: &mut Edit<'_>, child: Node<'_>, base: Va, page: Entry) {
        let m = &self.machine;
        let Some((parent, slot)) = child.parent() else { return };
        let (parent, level) = (self.node(parent), Level::TWO);
        debug_assert_eq!(
            child.state().listed(),
            0,
            "what is mapped by the table's intervals is exchanged"
        );
        {
            let mut top = Token::top();
            let _guard = parent.lock(m, &mut top);
            self.store(parent.pfn, slot, level, Entry::Detached(child.pfn));
        }
        let mut receipt = Receipt::new();
        receipt.table(base, Va(base.0 + level.entry_bytes()));
        let flushed = self.flush(edit.space, receipt);
        {
            let mut top = Token::top();
            let _guard = parent.lock(m, &mut top);
            self.store(parent.pfn, slot, level, page);
            parent.add_resident(1);
        }
        m.work(Work::Entry, 2);
        if let Ok(range) = VaRange::new(base, level.entry_bytes(), self.user_end()) {
            let at = Cursor { node: child, level: level.child(), base: base.0 };
            self.free_tree(&flushed, at, range, edit.deferred);
        }
    }
}
