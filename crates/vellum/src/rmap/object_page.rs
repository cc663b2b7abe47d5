//! Who keeps the frame of an object's page: the object, and those who wait for its pager.

use crate::addr::{Order, Pfn};
use crate::error::NoMemory;
use crate::frame::{Data, PageIo, REFERENCE, Record, USES};
use crate::machine::{Machine, Work};
use crate::platform::over;
use crate::rmap::Rmap;
use crate::rmap::map_count::{MOST_SHARED, is_objects_alone};
use crate::sync::atomic::Ordering;
use crate::sync::{Token, touch};
use crate::tlb::Flushed;

pub(crate) struct ObjectFrame<'v, M: Machine>(pub &'v Rmap<M>);

over!(ObjectFrame, Rmap);

impl<M: Machine> ObjectFrame<'_, M> {
    /// Keeps the frame for who waits. The object keeps it at the moment: inside an epoch in which
    /// it was found, or under the guard.
    pub fn keep(self, pfn: Pfn) {
        let word = self.count_word(pfn);
        touch(&self.machine, word, true);
        word.fetch_add(REFERENCE, Ordering::AcqRel);
    }

    /// The opposite.
    pub fn let_go(self, pfn: Pfn) {
        self.drop_use(pfn, REFERENCE);
    }

    /// The object has a frozen page no more, which nobody maps and which nobody will find. Says
    /// whether nobody keeps its frame, which the caller frees then. Who keeps it waits for a page
    /// that is not frozen.
    pub fn leave(self, pfn: Pfn) -> bool {
        debug_assert!(self.is_unmapped(pfn), "a page of an object goes while it is mapped");
        let word = self.count_word(pfn);
        touch(&self.machine, word, true);
        if word.load(Ordering::Acquire) & USES == 1 {
            return true;
        }
        self.thaw(pfn);
        word.fetch_sub(1, Ordering::AcqRel) & USES == 1
    }

    /// The object has the page no more, which nobody maps and which nobody will find.
    pub fn free(self, pfn: Pfn) {
        debug_assert!(self.is_unmapped(pfn), "a page of an object goes while it is mapped");
        self.drop_use(pfn, 1);
    }

    /// An entry more that maps the page; says whether it is the only one, which the caller has yet
    /// to count.
    ///
    /// # Errors
    /// The page is mapped too often already.
    #[inline]
    pub fn add_mapping(self, pfn: Pfn) -> Result<bool, NoMemory> {
        self.add_mapping_in(self.frames.record(pfn))
    }

    /// The same by the frame's record.
    #[inline(always)]
    pub fn add_mapping_in(self, frame: &Record) -> Result<bool, NoMemory> {
        let word = frame.word(1);
        touch(&self.machine, word, true);
        let old = word.fetch_add(1, Ordering::AcqRel);
        if is_objects_alone(old) {
            return Ok(true);
        }
        if old as u32 as u64 >= MOST_SHARED {
            word.fetch_sub(1, Ordering::AcqRel);
            return Err(NoMemory);
        }
        Ok(false)
    }

    /// The opposite, of an entry of which no CPU has a translation.
    #[inline]
    pub fn sub_mapping(self, pfn: Pfn) -> bool {
        let word = self.count_word(pfn);
        touch(&self.machine, word, true);
        let old = word.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(!is_objects_alone(old), "{pfn:?} is its object's no more, and was mapped");
        is_objects_alone(old - 1)
    }

    /// The same with the flush of the entry as proof.
    #[inline]
    pub fn release(self, _flushed: &Flushed, pfn: Pfn) -> bool {
        self.sub_mapping(pfn)
    }

    /// An entry more that maps a block as a whole.
    pub fn add_leaf(self, first: Pfn) {
        let leaves = Data::of(self.frames.record(first)).leaves();
        touch(&self.machine, leaves, true);
        let is_first = leaves.fetch_add(1, Ordering::AcqRel) == 0;
        let pages = Order::HUGE.frames() as i64;
        self.count_object(pages, if is_first { pages } else { 0 });
    }

    /// The opposite, of an entry of which no CPU has a translation.
    pub fn sub_leaf(self, first: Pfn) {
        let leaves = Data::of(self.frames.record(first)).leaves();
        touch(&self.machine, leaves, true);
        let is_last = leaves.fetch_sub(1, Ordering::AcqRel) == 1;
        let pages = Order::HUGE.frames() as i64;
        self.count_object(-pages, if is_last { -pages } else { 0 });
    }

    /// Whether frozen pages, with their indices, are one block by its first page.
    pub fn is_block(self, pages: &[(Pfn, u64)]) -> bool {
        matches!(pages, [page] if Data::of(self.frames.record(page.0)).is_block())
    }

    /// Whether no entry maps a frozen block or a page of it.
    pub fn is_block_unmapped(self, first: Pfn) -> bool {
        let data = Data::of(self.frames.record(first));
        touch(&self.machine, data.leaves(), false);
        let pages = if data.is_cut() { Order::HUGE.frames() } else { 1 };
        self.machine.work(Work::Scan, pages);
        let is_alone = |page| {
            let word = self.count_word(first.add(page));
            is_objects_alone(word.load(Ordering::Acquire)) || self.is_unmapped(first.add(page))
        };
        data.leaves().load(Ordering::Acquire) == 0 && (0..pages).all(is_alone)
    }

    /// Gives each frame of a block a record of its own, so that entries of 4 KiB can map its pages.
    /// Inside an epoch in which the block was found, or by who has it frozen.
    pub fn cut(self, first: Pfn) {
        let (m, data) = (&self.machine, Data::of(self.frames.record(first)));
        if data.is_cut() {
            return;
        }
        let mut top = Token::top();
        let _busy = data.busy().lock(m, &mut top, first.0);
        if data.is_cut() {
            return;
        }
        // SAFETY: the object keeps the block, which is freed by who has it frozen.
        unsafe { self.frames.split(m, first, Order::HUGE, Order::BASE) };
        m.work(Work::Scan, Order::HUGE.frames());
        for page in 1..Order::HUGE.frames() {
            let record = self.frames.record(first.add(page));
            Data::init(record, Order::BASE, data.owner(), data.index() + page);
        }
        data.set_cut();
    }

    /// Freezes the page. Under the object's guard.
    pub fn freeze(self, pfn: Pfn) {
        self.changed(pfn).freeze();
    }

    /// The same by the frame's record.
    #[inline]
    pub fn freeze_in(self, frame: &Record) {
        touch(&self.machine, frame, true);
        Data::of(frame).freeze();
    }

    /// Others may use the page again, and look whether they may.
    pub fn thaw(self, pfn: Pfn) {
        self.changed(pfn).thaw();
        self.machine.wake(pfn.0);
    }

    /// As [`Data::end_block`], and wakes who waits.
    pub fn end_block(self, first: Pfn) {
        self.changed(first).end_block();
        self.machine.wake(first.0);
    }

    /// The pager of a frozen page writes it from here on, and others may use it.
    pub fn begin_write(self, pfn: Pfn) {
        let data = self.changed(pfn);
        data.begin_io(PageIo::Write);
        data.thaw();
        self.machine.wake(pfn.0);
    }

    /// As [`Data::end_read`], and wakes who waits.
    pub fn end_read(self, pfn: Pfn, failed: bool) {
        self.changed(pfn).end_read(failed);
        self.machine.wake(pfn.0);
    }

    /// As [`Data::drop_read`], and wakes who waits.
    pub fn drop_read(self, pfn: Pfn) {
        self.changed(pfn).drop_read();
        self.machine.wake(pfn.0);
    }

    /// As [`Data::end_write`], and wakes who waits.
    pub fn end_write(self, pfn: Pfn) {
        self.changed(pfn).end_write();
        self.machine.wake(pfn.0);
    }

    fn changed(&self, pfn: Pfn) -> Data<'_> {
        let record = self.frames.record(pfn);
        touch(&self.machine, record, true);
        Data::of(record)
    }

    fn drop_use(self, pfn: Pfn, one: u64) {
        let word = self.count_word(pfn);
        touch(&self.machine, word, true);
        if word.fetch_sub(one, Ordering::AcqRel) & USES == one {
            self.give_back(pfn);
        }
    }

    /// Frees a frame; a block as a whole, whose frames have no records of their own.
    pub fn give_back(self, pfn: Pfn) {
        let order = self.frames.record(pfn).order();
        self.frames.give_back(&self.machine, pfn, order);
    }
}
