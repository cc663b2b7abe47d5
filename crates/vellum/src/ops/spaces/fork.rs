//! Copying a space; pages are shared until one side writes.
//!
//! Under the parent's mmap lock every node is copied; under its node's lock every leaf becomes
//! read-only on both sides and gets one mapping more. Nobody runs the child yet, so its table is
//! filled without locks. One flush of the parent ends the fork. Frames that two spaces share belong
//! to their *family*, which the child joins first, so that nobody who looks for a frame's mappings
//! misses it.
//!
//! The child's memory is the parent's at one instant: when the flush ends. From before the first
//! node is copied until then no fault of the parent changes an entry; it waits
//! (`SpaceRecord::edits`). A store that reaches memory before the flush goes to frames that both
//! sides map; a later one waits. The fork waits for entries in transit. Rejected: letting faults
//! copy meanwhile (a store to a private copy is not in the child, a later one to a page not yet
//! copied is: the child sees an effect without its cause; and a copy made before the flush misses
//! stores through old translations).
//!
//! Every table of the child is made before the first leaf is read, so a fork that runs out of
//! memory leaves the parent as it was, to the bit. Rejected: tables and leaves in one pass (a
//! failure leaves read-only leaves in the parent, and nobody knows which were writable).

use crate::addr::{Level, Order, PAGE_SHIFT, Pfn, Va};
use crate::entry::{Codec, Entry, Flags};
use crate::error::NoMemory;
use crate::fault::Faults;
use crate::frame::Owner;
use crate::machine::{Act, Machine, Verb, Work};
use crate::ops::spaces::create::Create;
use crate::ops::spaces::exit::Exit;
use crate::pagetable::cursor::Cursor;
use crate::pagetable::node::Node;
use crate::platform::over;
use crate::rmap::attachment::Attach;
use crate::space::{Space, SpaceRecord};
use crate::sync::Token;
use crate::sync::atomic::Ordering;
use crate::tlb::Receipt;
use crate::vma::edit::Edit;

/// What copying carries down the tree.
struct Copying {
    receipt: Receipt,
    /// The family that owns shared pages.
    family: u64,
}

/// The copying of one node's entries: how far it is.
struct CopyRun<'v> {
    at: Cursor<'v>,
    to: Node<'v>,
    slot: usize,
    slots: usize,
    /// Entries not copied yet; nothing follows the last one.
    left: u64,
    /// Resident pages copied, and pages of objects beside them.
    pages: u64,
    shared: u64,
}

impl CopyRun<'_> {
    #[inline(always)]
    fn goes_on(&self) -> bool {
        self.left != 0 && self.slot < self.slots
    }
}

pub(crate) struct Fork<'v, M: Machine>(pub &'v Faults<M>);

over!(Fork, Faults);

impl<M: Machine> Fork<'_, M> {
    /// `Vm::fork`.
    pub fn fork(self, space: &Space) -> Result<Space, NoMemory> {
        self.verb_with_memory(Verb::Fork, || {
            let record = self.record_of(space);
            let child = Create(self.0).make_space()?;
            let done = self.edit(record, |edit| self.copy_space(edit, space, &child));
            if done.is_err() {
                let mut top = Token::top();
                Exit(self.0).take_apart(self.record_of(&child), &mut top);
                self.spaces.free(&self.machine, &self.frames, &mut top, child.handle);
            }
            done.map(|()| child)
        })
    }

    fn copy_space(self, edit: &mut Edit<'_>, space: &Space, child: &Space) -> Result<(), NoMemory> {
        let (from, to) = (edit.space, self.record_of(child));
        if !from.takes_zeros() {
            to.forbid_zeros();
        }
        // Who goes from a frame to its mappings leaves the child alone until it is finished.
        to.begin_child(self.forks.fetch_add(1, Ordering::SeqCst) + 1);
        let (family, made) = self.join_family(space, child, edit.token)?;
        from.stop_faults();
        let done = self.copy_tables(edit, to);
        if done.is_err() {
            from.let_faults_go();
            self.undo_join_family(space, child, (family, made), edit.token);
            return done;
        }
        if from.maps_objects() {
            self.share_objects(edit, to);
        }
        let mut copying = Copying { receipt: Receipt::new(), family: family.raw() };
        self.copy_node(&mut copying, self.root(from), self.node(to.root()));
        self.share_huge_zero(from, to);
        let _flushed = self.flush(from, copying.receipt);
        to.finish_child();
        from.let_faults_go();
        Ok(())
    }

    /// The child may come to map what the parent maps of objects.
    #[cold]
    fn share_objects(self, edit: &mut Edit<'_>, to: &SpaceRecord) {
        to.note_object();
        self.share_below(edit, self.root(edit.space));
    }

    fn share_below(self, edit: &mut Edit<'_>, at: Cursor<'_>) {
        let space = edit.space;
        self.intervals(at.node).check(|region| {
            if let Some(attachment) = self.region(region).attachment() {
                Attach(self.0).share_attachment(attachment, space, edit.token);
            }
        });
        if at.level == Level::ONE {
            return;
        }
        // No entry comes or goes under the lock, so the count says when nothing more can follow.
        let (mut left, mut slot) = (at.node.state().count(), 0);
        while left != 0 && slot < self.slots(at.level) {
            let entry = self.load(at.node.pfn, slot, at.level);
            if let Entry::Table(child) = entry {
                self.share_below(edit, at.below(slot, self.node(child)));
            }
            left -= u64::from(entry != Entry::Empty);
            slot += 1;
        }
    }

    /// What of a fork takes memory, after the family: the list of index shifts, every table, every
    /// list of intervals.
    fn copy_tables(self, edit: &mut Edit<'_>, to: &SpaceRecord) -> Result<(), NoMemory> {
        let from = edit.space;
        self.copy_shifts(from, to, edit.token)?;
        self.copy_table(edit, self.node(from.root()), self.node(to.root()), self.top())
    }

    fn copy_table(
        self,
        edit: &mut Edit<'_>,
        from: Node<'_>,
        to: Node<'_>,
        level: Level,
    ) -> Result<(), NoMemory> {
        let m = &self.machine;
        self.intervals(to).copy_from(from, edit)?;
        if level == Level::ONE {
            return Ok(());
        }
        // A fault that was about to make a table here has made it, or knows of the fork.
        drop(from.lock(m, edit.token));
        let words = m.direct(to.pfn).cast::<u64>();
        let (mut left, mut slot, mut tables) = (from.state().count(), 0, 0);
        let mut done = Ok(());
        while left != 0 && slot < self.slots(level) && done.is_ok() {
            match self.load(from.pfn, slot, level) {
                Entry::Busy(_) => {
                    m.relax();
                    continue;
                }
                Entry::Table(below) => match self.make_node(level.child(), Some((to.pfn, slot)), 0)
                {
                    Ok(child) => {
                        if self.node(below).is_of_zeros() {
                            child.set_of_zeros();
                        }
                        // SAFETY: nobody walks the child's table yet, and `to` is one of its nodes.
                        unsafe {
                            words.add(slot).write(M::Codec::encode(Entry::Table(child.pfn), level))
                        };
                        tables += 1;
                        done = self.copy_table(edit, self.node(below), child, level.child());
                    }
                    Err(error) => done = Err(error),
                },
                _ => {}
            }
            left -= u64::from(m.entry(from.pfn, slot) != 0);
            slot += 1;
        }
        m.work(Work::Scan, slot as u64);
        to.set_state(to.state().with_count(tables));
        done
    }

    fn copy_node(self, copying: &mut Copying, at: Cursor<'_>, to: Node<'_>) {
        let m = &self.machine;
        let (from, level) = (at.node, at.level);
        let mut run = CopyRun {
            at,
            to,
            slot: 0,
            slots: self.slots(level),
            left: from.state().count(),
            pages: 0,
            shared: 0,
        };
        while run.goes_on() {
            // Tables below are copied without this node's lock; leaves in one go under it.
            let slot = run.slot;
            if level > Level::ONE
                && let Entry::Table(below) = self.load(from.pfn, slot, level)
            {
                let copy = self.load(to.pfn, slot, level);
                self.copy_below(copying, at.below(slot, self.node(below)), copy);
                run.left -= 1;
                run.slot += 1;
                continue;
            }
            if level == Level::ONE {
                // The same, compiled for the level where nearly all entries are.
                self.copy_run(copying, &mut run, Level::ONE);
            } else {
                self.copy_run(copying, &mut run, level);
            }
            if run.goes_on() && matches!(self.load(from.pfn, run.slot, level), Entry::Busy(_)) {
                m.relax();
            }
        }
        m.work(Work::Scan, run.slot as u64);
        if let Some(order) = level.leaf_order()
            && run.pages != 0
        {
            self.count_pages(order, run.pages as i64);
        }
        // The child's holes are the parent's, so the parent's bound on the longest one holds for
        // it.
        let (count, state) = (from.state().count() - run.left, from.state());
        let resident = run.pages + run.shared;
        to.set_state(to.state().with_count(count).with_resident(resident).with_run(state.run()));
    }

    /// Copies what is below a table's entry to where the child's entry `to` leads.
    #[inline(never)]
    fn copy_below(self, copying: &mut Copying, at: Cursor<'_>, to: Entry) {
        debug_assert!(matches!(to, Entry::Table(_)), "a fault has made a table since: {to:?}");
        if let Entry::Table(child) = to {
            self.copy_node(copying, at, self.node(child));
        }
    }

    /// Copies entries under the node's lock, up to one that is not to be copied here and now.
    #[inline(always)]
    fn copy_run(self, copying: &mut Copying, run: &mut CopyRun<'_>, level: Level) {
        let m = &self.machine;
        let (node, base) = (run.at.node, run.at.base);
        let words = m.direct(run.to.pfn).cast::<u64>();
        let (zeros, owner) = (self.zero_span(), Owner::Family(copying.family));
        // First and last slot whose translation has changed.
        let (mut low, mut high) = (usize::MAX, 0);
        // A leaf without its frame (none yet: no leaf has all bits), and what changed in it: most
        // leaves of a node are alike.
        let (mut alike, mut change) = (u64::MAX, 0);
        let mut top = Token::top();
        let _guard = node.lock(m, &mut top);
        while run.goes_on() {
            let slot = run.slot;
            let raw = m.entry(node.pfn, slot);
            let pfn = Pfn((raw & M::Codec::FRAME) >> PAGE_SHIFT);
            if level == Level::ONE
                && raw & !M::Codec::FRAME == alike
                && pfn.0.wrapping_sub(zeros.0.0) >= zeros.1
                && self.replace_entry(node.pfn, slot, raw, raw ^ change).is_ok()
            {
                high = slot;
                self.add_mapping(pfn, Order::BASE, owner);
                // SAFETY: as in `copy_table`.
                unsafe { words.add(slot).write(raw ^ change) };
                run.pages += 1;
                run.left -= 1;
                run.slot += 1;
                continue;
            }
            let copy = match M::Codec::decode(raw, level) {
                // Both sides may write a page that an object has.
                Entry::Shared(pfn, _) => {
                    match self.add_shared_mapping(pfn, level) {
                        Ok(()) => {
                            run.shared += 1;
                            raw
                        }
                        // The object has the page.
                        Err(NoMemory) => M::Codec::encode(Entry::Reserved, level),
                    }
                }
                Entry::Leaf(pfn, flags) => {
                    let read_only = Flags { write: false, dirty: false, ..flags };
                    let shared = M::Codec::encode(Entry::Leaf(pfn, read_only), level);
                    if flags.write {
                        if self.replace_entry(node.pfn, slot, raw, shared).is_err() {
                            // Hardware has set a mark.
                            continue;
                        }
                        (low, high) = (low.min(slot), slot);
                        (alike, change) = (raw & !M::Codec::FRAME, raw ^ shared);
                    }
                    if !self.is_zero_leaf(pfn, level)
                        && let Some(order) = level.leaf_order()
                    {
                        self.add_mapping(pfn, order, owner);
                        run.pages += 1;
                    }
                    shared
                }
                Entry::Inaccessible(pfn) => {
                    if let Some(order) = level.leaf_order() {
                        self.add_mapping(pfn, order, owner);
                        run.pages += 1;
                    }
                    raw
                }
                Entry::Reserved | Entry::ZeroTable(_) | Entry::Device(..) => raw,
                Entry::Empty => {
                    run.slot += 1;
                    continue;
                }
                Entry::Table(_) | Entry::Busy(_) | Entry::Detached(_) => break,
            };
            // SAFETY: as in `copy_table`.
            unsafe { words.add(slot).write(copy) };
            run.left -= 1;
            run.slot += 1;
        }
        if low <= high {
            for slot in [low, high] {
                copying.receipt.leaf(Va(base + ((slot as u64) << level.shift())), level);
            }
        }
    }

    /// Whether an entry keeps a data frame resident.
    pub(crate) fn is_page(self, entry: Entry) -> bool {
        match entry {
            Entry::Leaf(pfn, _) => !self.is_zero(pfn),
            Entry::Shared(..) | Entry::Inaccessible(_) => true,
            _ => false,
        }
    }
}
