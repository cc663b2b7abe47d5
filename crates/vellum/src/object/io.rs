//! Reading an object's pages from its pager, and writing them to it.
//!
//! ```text
//!   absent  --a frozen page is put in-->  reading  --filled-->  present, clean
//!                                            |--failed-->  absent; who waited is told
//!   dirty   --frozen, read-only everywhere-->  writing, clean  --written-->  clean
//!                                            |--failed-->  dirty
//! ```
//! A page is dirty by a mark in the trie, which whoever writes sets before he writes, and looks at
//! again inside the epoch in which he writes or maps the page writable. Who writes pages back
//! freezes them, which waits for those epochs, and makes them read-only in every space. Then the
//! mark goes, and only then the pager reads the bytes: what is written after that sets the mark
//! anew. Rejected: marking a page as dirty when it is mapped (a page that is only read would be
//! written), and asking the entries' marks (they go with each unmap, and with each space).
//!
//! Who waits for a pager keeps the frame by a reference, so that its record can say how it ended.

use core::ops::Range;
use core::ptr::NonNull;

use crate::addr::{Order, PAGE_SIZE, Pfn};
use crate::error::{FaultError, ObjectError};
use crate::frame::{Data, PageIo, SlabRef, has_failed, io_of, is_taken};
use crate::machine::{Act, Machine, PageAnswer, PageRun, RUN_PAGES};
use crate::object::{Object, ObjectLayer, ObjectPage, PageMark, ReadPattern, Tries};
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;
use crate::stats::Counter;
use crate::sync::Token;
use crate::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = PAGE_SIZE as u64;
/// What is cleared with, a piece at a time.
static ZEROS: [u8; 256] = [0; 256];

/// How a run that is written ends.
const UNDER_WAY: u64 = 0;
const WRITTEN: u64 = 1;
const FAILED: u64 = 2;

/// The next page that has to be written.
pub(crate) enum NextDirty {
    /// So many pages, one after the other, are frozen.
    Frozen(usize),
    /// Somebody is at this one, whose frame is kept.
    Taken(ObjectPage),
    None,
}

/// The outcome of a run, which who answers has in hand. A machine whose wait unwinds does not take
/// it from him.
struct Lent<'o>(&'o AtomicU64);

impl Lent<'_> {
    fn is_out(&self) -> bool {
        self.0.load(Ordering::Acquire) == UNDER_WAY
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        while self.is_out() {
            core::hint::spin_loop();
        }
    }
}

/// A pager has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PagerFailed;

/// Why a page was not waited for to the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unread {
    /// Its pager has failed.
    Failed,
    /// The task that waits is to end.
    Stopped,
}

impl From<Unread> for FaultError {
    fn from(why: Unread) -> FaultError {
        match why {
            Unread::Failed => FaultError::Io,
            Unread::Stopped => FaultError::Stopped,
        }
    }
}

impl From<Unread> for ObjectError {
    fn from(why: Unread) -> ObjectError {
        match why {
            Unread::Failed => ObjectError::Io,
            Unread::Stopped => ObjectError::Stopped,
        }
    }
}

/// What is done with pagers.
pub(crate) struct ObjectIo<'v, M: Machine>(pub &'v ObjectLayer<M>);

over!(ObjectIo, ObjectLayer);

impl<M: Machine> ObjectIo<'_, M> {
    /// `Objects::another`.
    pub fn another_handle(self, object: &Object) -> Object {
        let record = self.record_of_object(object);
        record.attachments.keep();
        object.another(record.errors())
    }

    /// `Objects::advise`.
    pub fn advise(self, object: &Object, pattern: ReadPattern) {
        self.record_of_object(object).set_pattern(pattern);
    }

    /// Pages that follow each other, frozen for the pager, without those that lie past the end by
    /// now, of which it has nothing.
    pub(super) fn run_to_fill(self, object: SlabRef, pages: &[ObjectPage]) -> PageRun {
        self.run_of(object, pages, false)
    }

    /// Asks the pager for a run, if there is one.
    pub(super) fn ask_for(self, run: Option<PageRun>) {
        let Some(run) = run else { return };
        let answer = if run.bytes == 0 { Some(run.done(0)) } else { self.machine.page_in(run) };
        if let Some(answer) = answer {
            self.answer(answer);
        }
    }

    /// A run for the pager, which keeps the object.
    fn run_of(self, object: SlabRef, pages: &[ObjectPage], writes: bool) -> PageRun {
        let record = self.object(object);
        record.attachments.keep();
        let mut frames = [Pfn(0); RUN_PAGES];
        let first = pages.first().map_or(0, |page| page.1);
        frames.iter_mut().zip(pages).for_each(|(frame, page)| *frame = page.0);
        let left = record.bytes().saturating_sub(first * PAGE);
        PageRun {
            vm: self.id(),
            object: object.raw(),
            writes,
            pager: record.pager().unwrap_or(0),
            first,
            len: pages.len(),
            frames,
            bytes: left.min(pages.len() as u64 * PAGE),
            outcome: None,
        }
    }

    /// `Objects::answer`.
    ///
    /// # Panics
    /// If the run is another `Vm`'s.
    pub fn answer(self, PageAnswer { run, done }: PageAnswer) {
        assert!(run.vm == self.id(), "the run belongs to another Vm");
        let Some(object) = SlabRef::from_raw(run.object) else { return };
        if run.writes {
            self.end_write(object, &run, done.is_none_or(|bytes| bytes < run.bytes));
        } else {
            match done {
                Some(bytes) => self.end_read(object, &run, bytes),
                None => self.end_failed_read(object, &run),
            }
        }
        self.let_go_of(object);
    }

    /// The pages are filled up to a byte.
    fn end_read(self, object: SlabRef, run: &PageRun, bytes: u64) {
        // What lies past the end reads as zeros. Who changes the size waits for the page.
        let size = self.object(object).bytes().saturating_sub(run.offset());
        let bytes = bytes.min(size);
        let mut ahead = 0;
        for (n, &pfn) in run.frames().iter().enumerate() {
            let filled = bytes.saturating_sub(n as u64 * PAGE).min(PAGE);
            match filled {
                0 => self.machine.clear_frames(pfn, 1),
                _ => self.clear_bytes(pfn, filled as usize, PAGE_SIZE),
            }
            let data = Data::of(self.frames.record(pfn));
            // What the pager does not have is not read.
            if filled == 0 {
                data.end_ahead();
            }
            ahead += i64::from(data.is_ahead());
            ObjectFrame(self.0).end_read(pfn, false);
        }
        self.count(Counter::PageIn, (bytes.div_ceil(1024)) as i64);
        self.count(Counter::ReadaheadPages, ahead);
        self.count(Counter::ReadaheadUnused, ahead);
    }

    /// The pages are absent again. Of several only the first is certain to be wanted, and another
    /// may be the one that cannot be read: so the pager is asked for the first one alone.
    fn end_failed_read(self, object: SlabRef, run: &PageRun) {
        let record = self.object(object);
        let kept = usize::from(run.len > 1);
        let gone = &run.frames()[kept..];
        let mut dirty = 0;
        {
            let mut top = Token::top();
            let mut guard = Tries::new(self.0).lock(&record.trie, &mut top);
            let mut cursor = guard.cursor();
            for index in run.first + kept as u64..run.first + run.len as u64 {
                if let Some(entry) = cursor.lookup(index) {
                    // By who was about to write to the page that was there before.
                    dirty += i64::from(entry.is_marked(PageMark::Dirty));
                    cursor.remove();
                }
            }
            record.count_dirty(-dirty);
        }
        self.count(Counter::DirtyPages, -dirty);
        for &pfn in gone {
            match kept {
                0 => ObjectFrame(self.0).end_read(pfn, true),
                _ => ObjectFrame(self.0).drop_read(pfn),
            }
        }
        // Who found them before is at his end, or has a reference.
        self.epochs.synchronize(&self.machine, &mut Token::top());
        gone.iter().for_each(|&pfn| self.free_found_page(pfn));
        self.count_object_pages(record, -(gone.len() as i64));
        if kept != 0 {
            record.set_fetched(run.first + 1, 0);
            self.ask_for(Some(self.run_to_fill(object, &[(run.frames[0], run.first)])));
        }
    }

    /// Clears the bytes of a page from one on up to another.
    pub fn clear_bytes(self, pfn: Pfn, from: usize, to: usize) {
        let mut at = from;
        while at < to {
            let piece = (to - at).min(ZEROS.len());
            self.machine.write_bytes(pfn, at, &ZEROS[..piece]);
            at += piece;
        }
    }

    /// Waits until the pager has filled a page whose frame the caller keeps, or the task that waits
    /// is to end; gives the frame back. The caller holds no lock and is in no epoch.
    pub fn wait_for_pager(self, pfn: Pfn) -> Result<(), Unread> {
        let record = self.frames.record(pfn);
        let is_read = || io_of(record) != Some(PageIo::Read);
        self.sleep_while(pfn, &|| !is_read() && !self.machine.stop_pending());
        let done = match has_failed(record) {
            true => Err(Unread::Failed),
            false if is_read() => Ok(()),
            false => Err(Unread::Stopped),
        };
        ObjectFrame(self.0).let_go(pfn);
        done
    }

    /// Freezes the page at an index, or the block that it lies in; or keeps the frame of one that
    /// may not be frozen now, for [`wait_for_page`](ObjectIo::wait_for_page). `None`: there is
    /// none. The caller keeps the object, holds no lock and is in no epoch.
    pub fn freeze_or_keep(self, object: SlabRef, index: u64) -> Option<Result<ObjectPage, Pfn>> {
        let page = {
            let mut top = Token::top();
            let mut guard = Tries::new(self.0).lock(&self.object(object).trie, &mut top);
            let entry = guard.cursor().lookup(index)?;
            let pfn = entry.pfn();
            if Data::of(self.frames.record(pfn)).is_taken() {
                ObjectFrame(self.0).keep(pfn);
                return Some(Err(pfn));
            }
            ObjectFrame(self.0).freeze(pfn);
            (pfn, index & !(entry.order().frames() - 1))
        };
        // Who found it before is at his end.
        self.epochs.synchronize(&self.machine, &mut Token::top());
        Some(Ok(page))
    }

    /// Waits until nobody has a page frozen whose frame the caller keeps, and no pager is at it;
    /// gives the frame back. As [`wait_for_pager`](ObjectIo::wait_for_pager).
    pub fn wait_for_page(self, pfn: Pfn) {
        let record = self.frames.record(pfn);
        self.sleep_while(pfn, &|| is_taken(record));
        ObjectFrame(self.0).let_go(pfn);
    }

    fn sleep_while(self, pfn: Pfn, still: &dyn Fn() -> bool) {
        while still() {
            if let Some(answer) = self.machine.page_answer() {
                self.answer(answer);
                continue;
            }
            self.machine.wait(pfn.0, still);
            self.let_others_run();
        }
    }

    /// Marks pages as written, so that they may be. The caller keeps the object, holds no lock and
    /// is in no epoch. It has the pages frozen, or looks again afterwards.
    pub fn mark_dirty(self, object: SlabRef, indices: impl Iterator<Item = u64>) {
        let (record, mut marked) = (self.object(object), 0);
        {
            let mut top = Token::top();
            let mut guard = Tries::new(self.0).lock(&record.trie, &mut top);
            let mut cursor = guard.cursor();
            for index in indices {
                // Not a block, into which pages may have been made since.
                let is_page = cursor.lookup(index).is_some_and(|at| at.order() == Order::BASE);
                marked += i64::from(is_page && cursor.set_mark(PageMark::Dirty));
            }
            record.count_dirty(marked);
        }
        self.count(Counter::DirtyPages, marked);
        self.count(Counter::Dirtied, marked);
    }

    /// Freezes dirty pages of `[first, end)` that follow each other, as many as `out` has room for.
    pub fn freeze_dirty(
        self,
        object: SlabRef,
        (first, end): (u64, u64),
        out: &mut [ObjectPage],
    ) -> NextDirty {
        let mut count = 0;
        {
            let mut top = Token::top();
            let mut guard = Tries::new(self.0).lock(&self.object(object).trie, &mut top);
            let mut cursor = guard.cursor();
            let mut next = |mark| cursor.next_marked(first, mark).map(|(index, _)| index);
            let dirty = next(PageMark::Dirty);
            // A page that is being written was dirty, and will be if that fails.
            let written = if dirty == Some(first) { None } else { next(PageMark::Writeback) };
            let first = dirty.into_iter().chain(written).min().unwrap_or(end);
            let (mut taken, mut at) = (None, first);
            cursor.set_limit(end.min(first.saturating_add(out.len() as u64)));
            cursor.walk(first, |index, entry| {
                let frame = self.frames.record(entry.pfn());
                let is_taken = Data::of(frame).is_taken();
                if is_taken && count == 0 {
                    ObjectFrame(self.0).keep(entry.pfn());
                    taken = Some((entry.pfn(), index));
                }
                if is_taken || index != at || !entry.is_marked(PageMark::Dirty) {
                    return false;
                }
                ObjectFrame(self.0).freeze_in(frame);
                out[count] = (entry.pfn(), index);
                (at, count) = (at + 1, count + 1);
                true
            });
            if let Some(page) = taken {
                return NextDirty::Taken(page);
            }
        }
        if count == 0 {
            return NextDirty::None;
        }
        self.epochs.synchronize(&self.machine, &mut Token::top());
        NextDirty::Frozen(count)
    }

    /// Has the pager write frozen pages that follow each other, which no space may write, and waits
    /// for it. From here on others may use them. The caller keeps the object, holds no lock and is
    /// in no epoch.
    pub fn write_pages(self, object: SlabRef, pages: &[ObjectPage]) -> Result<(), PagerFailed> {
        let Some(&(first, _)) = pages.first() else { return Ok(()) };
        // Of this run alone: others may write the pages before the caller looks.
        let outcome = AtomicU64::new(UNDER_WAY);
        self.begin_write(object, pages, Some(NonNull::from(&outcome)));
        // Nobody has the outcome in hand any more when it says how the run ended.
        let lent = Lent(&outcome);
        self.sleep_while(first, &|| lent.is_out());
        if outcome.load(Ordering::Relaxed) == FAILED { Err(PagerFailed) } else { Ok(()) }
    }

    /// The same without waiting. An outcome stays where it is until it says how the run ended.
    pub fn begin_write(
        self,
        object: SlabRef,
        pages: &[ObjectPage],
        outcome: Option<NonNull<AtomicU64>>,
    ) {
        self.change_marks(object, indices(pages), PageMark::Dirty, Some(PageMark::Writeback));
        let mut run = self.run_of(object, pages, true);
        run.outcome = outcome;
        for &(pfn, _) in pages {
            ObjectFrame(self.0).begin_write(pfn);
        }
        if let Some(answer) = self.machine.page_out(run) {
            self.answer(answer);
        }
    }

    /// Takes the mark from frozen pages that follow each other, of which somebody knows by now that
    /// they were written.
    pub fn end_dirty(self, object: SlabRef, pages: &[ObjectPage]) {
        self.change_marks(object, indices(pages), PageMark::Dirty, None);
    }

    fn end_write(self, object: SlabRef, run: &PageRun, failed: bool) {
        // Before somebody else can write a page of it, and say that all went well.
        if failed {
            self.object(object).count_error();
        }
        let again = failed.then_some(PageMark::Dirty);
        let pages = run.first..run.first + run.len as u64;
        self.change_marks(object, pages, PageMark::Writeback, again);
        for &pfn in run.frames() {
            ObjectFrame(self.0).end_write(pfn);
        }
        match failed {
            true => self.count(Counter::WritebackErrors, 1),
            false => {
                self.count(Counter::PageOut, run.bytes.div_ceil(1024) as i64);
                self.count(Counter::Written, run.len as i64);
            }
        }
        if let Some(outcome) = run.outcome {
            // SAFETY: who wrote keeps it until it says how the run ended, which is here.
            unsafe { outcome.as_ref() }
                .store(if failed { FAILED } else { WRITTEN }, Ordering::Release);
        }
        if let Some(first) = run.frames().first() {
            self.machine.wake(first.0);
        }
    }

    /// Takes a mark from pages that follow each other, and gives them another.
    fn change_marks(
        self,
        object: SlabRef,
        pages: Range<u64>,
        from: PageMark,
        to: Option<PageMark>,
    ) {
        let record = self.object(object);
        let mut changes = [0; PageMark::ALL.len()];
        {
            let mut top = Token::top();
            let mut guard = Tries::new(self.0).lock(&record.trie, &mut top);
            let (lost, got) = guard.cursor().exchange_marks(pages, (from, to));
            changes[from as usize] = -lost;
            if let Some(to) = to {
                changes[to as usize] = got;
            }
            record.count_dirty(changes[PageMark::Dirty as usize]);
        }
        self.count(Counter::DirtyPages, changes[PageMark::Dirty as usize]);
        self.count(Counter::WritebackPages, changes[PageMark::Writeback as usize]);
    }
}

/// The indices of pages that follow each other.
fn indices(pages: &[ObjectPage]) -> Range<u64> {
    pages.first().map_or(0..0, |first| first.1..first.1 + pages.len() as u64)
}
