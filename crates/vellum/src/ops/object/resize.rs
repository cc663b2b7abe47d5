//! Making an object longer or shorter, holes in it, and seals of its size.
//!
//! A page that goes is frozen, so that nobody maps it anew, leaves every space, then the object,
//! and is freed at last: 64 pages at a time, with nothing held in between. So nobody finds zeros in
//! one place while others still use the page in another. Where a range begins or ends inside a
//! page, the page is frozen and its part cleared.
//!
//! Bytes past the end read as zeros, also those that a program wrote there through a mapping: what
//! the last page has past the end is cleared when the object becomes shorter, and again before it
//! becomes longer. A block of 2 MiB goes as a whole, or is split; where there is no memory for that
//! its part becomes zero, and stays. Of the calls for one object one runs at a time: so a seal is
//! set when no change of the size is under way, and each later one finds it.

use core::iter;

use crate::addr::{PAGE_SIZE, Pfn};
use crate::error::{NoMemory, ObjectError};
use crate::fault::Faults;
use crate::fault::object::{BATCH, Split, UnmapObject};
use crate::frame::SlabRef;
use crate::machine::{Machine, Verb};
use crate::object::{
    BLOCK_PAGES, INDEX_END, MOST_BYTES, Object, ObjectBlock, ObjectIo, ObjectPage, ObjectRecord,
    PageKind, Source, Tries,
};
use crate::ops::object::bytes::ObjectBytes;
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;
use crate::space::Seals;
use crate::sync::Token;

const PAGE: u64 = PAGE_SIZE as u64;

/// A call that others for its object wait for.
struct Changing<'r, M: Machine>(&'r ObjectRecord, &'r M);

impl<M: Machine> Drop for Changing<'_, M> {
    fn drop(&mut self) {
        self.0.end_change(self.1);
    }
}

pub(crate) struct Resize<'v, M: Machine>(pub &'v Faults<M>);

over!(Resize, Faults);

impl<M: Machine> Resize<'_, M> {
    /// `Objects::resize`.
    pub fn resize(self, object: &Object, bytes: u64) -> Result<(), ObjectError> {
        self.verb(Verb::Object, || {
            let (record, handle) = (self.record_of_object(object), object.handle);
            if record.device().is_some() {
                return Err(ObjectError::Device);
            }
            if bytes > MOST_BYTES {
                return Err(ObjectError::Size);
            }
            self.alone(record, || {
                let old = record.bytes();
                if record.seals().forbid(old, bytes) {
                    return Err(ObjectError::Sealed);
                }
                if bytes < old {
                    self.set_size(record, bytes, None);
                    self.take_out(handle, (bytes.div_ceil(PAGE), INDEX_END), PageKind::Any);
                    self.clear_part(handle, bytes, bytes.next_multiple_of(PAGE));
                    // A fault that found nothing past the end may be about to copy that.
                    if record.attachments.was_viewed() {
                        self.epochs.synchronize(&self.machine, &mut Token::top());
                    }
                } else {
                    let part = (old, old.next_multiple_of(PAGE));
                    let grow = |missing| self.set_size(record, bytes, missing);
                    while !self.with_part_cleared(handle, part, grow) {}
                }
                Ok(())
            })
        })
    }

    /// `Objects::evict`.
    pub fn evict(self, object: &Object, offset: u64, bytes: u64) -> u64 {
        self.verb(Verb::Object, || {
            let (record, handle) = (self.record_of_object(object), object.handle);
            let (first, end) = (offset / PAGE, offset.saturating_add(bytes).div_ceil(PAGE));
            let mut gone = 0;
            if record.pager().is_some() && bytes != 0 {
                self.alone(record, || gone = self.take_out(handle, (first, end), PageKind::Clean));
            }
            gone
        })
    }

    /// `Objects::seal`.
    pub fn seal(self, object: &Object, seals: Seals) -> Result<(), ObjectError> {
        self.verb(Verb::Object, || {
            let record = self.record_of_object(object);
            if record.device().is_some() && seals.write {
                return Err(ObjectError::Device);
            }
            self.alone(record, || {
                if seals.write && !record.attachments.seal_writes() {
                    return Err(ObjectError::Busy);
                }
                record.add_seals(seals);
                if seals.write {
                    // Who writes and has not seen it is at his end then.
                    self.epochs.synchronize(&self.machine, &mut Token::top());
                }
                Ok(())
            })
        })
    }

    /// `Objects::punch`.
    pub fn punch(self, object: &Object, offset: u64, bytes: u64) -> Result<(), ObjectError> {
        match self.record_of_object(object).source() {
            Source::Zeros { logged: false } | Source::Kernel => {
                self.punch_pages(object, offset, bytes)
            }
            // A page that went would come back from the pager as it was, or not be harvested.
            Source::Zeros { logged: true } | Source::Pager(_) => {
                self.verb(Verb::Object, || self.write_zeros(object, offset, bytes))
            }
            Source::Device(_) => Err(ObjectError::Device),
        }
    }

    /// Makes a range of bytes zero in pages that stay, as far as the object goes, and are dirty
    /// then.
    fn write_zeros(self, object: &Object, offset: u64, bytes: u64) -> Result<(), ObjectError> {
        let (record, handle) = (self.record_of_object(object), object.handle);
        let mut at = offset;
        loop {
            // Who makes the object shorter has taken out what lies past the end when this is over.
            let size = || (!record.seals().write).then(|| record.bytes());
            let size = self.alone(record, size).ok_or(ObjectError::Sealed)?;
            let end = offset.saturating_add(bytes).min(size);
            if at >= end {
                return Ok(());
            }
            let (index, end) = (at / PAGE, end.min((at / PAGE + 1) * PAGE));
            ObjectBytes(self.0).have_page(handle, index)?;
            let clear = || match record.seals().write {
                true => Err(ObjectError::Sealed),
                false => Ok(self.clear_noted(handle, at, end)?),
            };
            // Or it went before it was frozen.
            if self.alone(record, clear)? {
                at = end;
            }
        }
    }

    /// Clears bytes of a page of which writes are noted, and says whether it is there. Nobody
    /// collapses pages meanwhile.
    fn clear_noted(self, object: SlabRef, at: u64, end: u64) -> Result<bool, NoMemory> {
        Split(self.0).split(object, at / PAGE)?;
        Ok(self.with_part_cleared(object, (at, end), |missing| {
            if missing.is_none() {
                ObjectIo(self.0).mark_dirty(object, iter::once(at / PAGE));
            }
            missing.is_none()
        }))
    }

    fn punch_pages(self, object: &Object, offset: u64, bytes: u64) -> Result<(), ObjectError> {
        self.verb(Verb::Object, || {
            let (record, handle) = (self.record_of_object(object), object.handle);
            self.alone(record, || {
                if record.seals().write {
                    return Err(ObjectError::Sealed);
                }
                // What is past the end is zero already.
                let end = offset.saturating_add(bytes).min(record.bytes().next_multiple_of(PAGE));
                if offset < end {
                    self.empty(handle, offset, end);
                }
                Ok(())
            })
        })
    }

    /// Makes the bytes of `[offset, end)` zero, and frees the pages among them.
    fn empty(self, object: SlabRef, offset: u64, end: u64) {
        let (first, last) = (offset.next_multiple_of(PAGE), end / PAGE * PAGE);
        if first > last {
            return self.clear_part(object, offset, end);
        }
        self.clear_part(object, offset, first);
        self.take_out(object, (first / PAGE, last / PAGE), PageKind::Any);
        self.clear_part(object, last, end);
    }

    /// Runs `body` while no other such call for the object does.
    pub(super) fn alone<R>(self, record: &ObjectRecord, body: impl FnOnce() -> R) -> R {
        while !record.begin_change(&self.machine) {
            self.machine.relax();
            self.let_others_run();
        }
        // Also where a machine's wait unwinds.
        let _changing = Changing(record, &self.machine);
        body()
    }

    /// Sets the size, unless a page has come that was `missing`, in which a program may have
    /// written past the end since. Says whether it did.
    fn set_size(self, record: &ObjectRecord, bytes: u64, missing: Option<u64>) -> bool {
        let mut top = Token::top();
        let mut guard = Tries::new(self.0).lock(&record.trie, &mut top);
        let has_come = missing.is_some_and(|index| guard.cursor().lookup(index).is_some());
        if !has_come {
            record.set_bytes(bytes);
        }
        !has_come
    }

    /// Takes the pages of `[first, end)` out of every space and of the object, and frees them; only
    /// those of the kind. Says how many.
    fn take_out(self, object: SlabRef, (first, end): (u64, u64), kind: PageKind) -> u64 {
        let (mut next, mut gone) = (Some(first), 0);
        while let Some(first) = next {
            let mut pages: [ObjectPage; BATCH] = [(Pfn(0), 0); BATCH];
            let frozen = self.freeze_pages(object, (first, end), kind, &mut pages);
            let taken = frozen.count;
            next = frozen.next;
            if let Some(block) = frozen.crossing
                && taken == 0
            {
                if kind == PageKind::Any {
                    next = self.empty_part(object, block, (first, end));
                    continue;
                }
                let from = first.max(block);
                match Split(self.0).try_split(object, from) {
                    Ok(_) if ObjectBlock(self.0).is_at(object, from) => {
                        // Somebody has it in hand.
                        let after = block + BLOCK_PAGES;
                        next = (after < end).then_some(after);
                    }
                    Ok(_) => next = Some(from),
                    // All of it goes: the pager has it.
                    Err(NoMemory) => {
                        gone += self.free_clean_block(object, from);
                        next = Some(from);
                    }
                }
                continue;
            }
            if taken == 0 && next.is_some() {
                // Somebody has the next one frozen, perhaps a task of this CPU. Or a pager is at
                // it, and it may be that nobody else asks for the answer.
                match self.machine.page_answer() {
                    Some(answer) => ObjectIo(self.0).answer(answer),
                    None => {
                        self.machine.relax();
                        self.let_others_run();
                    }
                }
            }
            if taken == 0 {
                continue;
            }
            let _in_hand = self.hands.begin(&self.machine);
            let is_block = ObjectFrame(self.0).is_block(&pages[..taken]);
            UnmapObject(self.0).everywhere(object, &pages[..taken]);
            self.free_pages(object, &pages[..taken]);
            gone += if is_block { BLOCK_PAGES } else { taken as u64 };
        }
        gone
    }

    /// Has the pages of a block that lie in a range be single pages; where there is no memory for
    /// that, makes them zero, and they stay. Says where in the range to go on.
    #[cold]
    fn empty_part(self, object: SlabRef, block: u64, (first, end): (u64, u64)) -> Option<u64> {
        let (from, to) = (first.max(block), end.min(block + BLOCK_PAGES));
        if Split(self.0).split_now(object, from).is_ok() {
            return Some(from);
        }
        let Some(frozen) = self.freeze(object, from) else { return Some(from) };
        if !ObjectFrame(self.0).is_block(&[frozen]) {
            self.thaw(frozen.0);
            return Some(from);
        }
        UnmapObject(self.0).everywhere(object, &[frozen]);
        for page in from - block..to - block {
            ObjectIo(self.0).clear_bytes(frozen.0.add(page), 0, PAGE_SIZE);
        }
        self.thaw(frozen.0);
        (to < end).then_some(to)
    }

    /// Frees the block that a clean page lies in, if nobody has it in hand. Says how many pages.
    #[cold]
    fn free_clean_block(self, object: SlabRef, index: u64) -> u64 {
        let _in_hand = self.hands.begin(&self.machine);
        let Some(block) = ObjectBlock(self.0).freeze(object, index) else { return 0 };
        UnmapObject(self.0).everywhere(object, &[block]);
        self.free_pages(object, &[block]);
        BLOCK_PAGES
    }

    /// Clears the bytes of `[start, end)`, which lie in one page.
    fn clear_part(self, object: SlabRef, start: u64, end: u64) {
        self.with_part_cleared(object, (start, end), |_| true);
    }

    /// The same, and runs `then` before anybody else can use the page; it is told the index of a
    /// page that was to be cleared and is not there.
    fn with_part_cleared(
        self,
        object: SlabRef,
        (start, end): (u64, u64),
        then: impl FnOnce(Option<u64>) -> bool,
    ) -> bool {
        let index = (start < end).then_some(start / PAGE);
        let frozen = index.and_then(|index| self.freeze(object, index));
        if let Some((pfn, first)) = frozen {
            UnmapObject(self.0).everywhere(object, &[(pfn, first)]);
            let at = start as usize % PAGE_SIZE;
            // It may lie in a block, which is frozen as a whole.
            let page = pfn.add(start / PAGE - first);
            ObjectIo(self.0).clear_bytes(page, at, at + (end - start) as usize);
        }
        let done = then(index.filter(|_| frozen.is_none()));
        if let Some((pfn, _)) = frozen {
            self.thaw(pfn);
        }
        done
    }
}
