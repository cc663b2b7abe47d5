//! The pages of an object: found, made, taken out.

use crate::addr::{Order, Pfn, Va};
use crate::error::NoMemory;
use crate::frame::{AllocRequest, Data, Record, SlabRef};
use crate::machine::{Machine, Use};
use crate::object::at_place::{AtPlace, entry_for};
use crate::object::record::{ObjectRecord, owner_of};
use crate::object::{
    BLOCK_PAGES, InsertError, ObjectBlock, ObjectIo, ObjectLayer, PageMark, TrieEntry, TriePlace,
    Tries,
};
use crate::rmap::object_page::ObjectFrame;
use crate::stats::{Counter, CpuCounters};
use crate::sync::{Above, EpochGuard, Object, Token};

/// Pages that are looked at under the guard at once, beside those that are frozen. Basis: a guess;
/// it bounds how long others wait for the guard.
pub(crate) const MOST_SEEN: usize = 512;

/// Which pages of an object are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageKind {
    Any,
    /// Those that no pager has to write.
    Clean,
}

/// A page that was taken out of an object, or is frozen: a frame, and its index. Or a block: its
/// first frame, which says so.
pub(crate) type ObjectPage = (Pfn, u64);

/// What [`ObjectLayer::freeze_pages`] has done.
#[derive(Default)]
pub(crate) struct Frozen {
    /// So many pages are frozen, or one block.
    pub count: usize,
    /// Where to go on; none at the end.
    pub next: Option<u64>,
    /// The index of a block that is next, and crosses an end of the range.
    pub crossing: Option<u64>,
}

impl<M: Machine> ObjectLayer<M> {
    /// Puts a page of zeros where there is none; it will be seen at `va` first. `false`: the index
    /// lies past the end. The caller keeps the object, holds no lock below its guard, and is in no
    /// epoch.
    pub fn make_page<H: Above<Object>>(
        &self,
        object: SlabRef,
        index: u64,
        (want, va): (&AllocRequest, Va),
        token: &mut Token<H>,
    ) -> Result<bool, NoMemory> {
        let _in_hand = self.hands.begin(&self.machine);
        let want = AllocRequest { use_: Use::Object, ..*want };
        let pfn = self.take_zeros((object, index), (&want, va))?;
        let record = self.object(object);
        let done = {
            let mut guard = Tries::new(self).lock(&record.trie, token);
            entry_for(record, index, pfn).and_then(|entry| guard.cursor().insert(index, entry))
        };
        match done {
            Ok(()) => {
                self.count_object_pages(record, 1);
                return Ok(true);
            }
            Err(_) => self.untake(pfn, Order::BASE),
        }
        match done {
            Err(InsertError::Index) => Ok(false),
            // Somebody was faster.
            Err(InsertError::Occupied) => Ok(true),
            _ => Err(NoMemory),
        }
    }

    /// The same for an object without a pager, inside the epoch in which a lookup found nothing,
    /// and from where it ended; the page. `None`, and nothing was done, where that is not to be had
    /// at once. `counters` are this CPU's. In line, for faults.
    #[inline(always)]
    pub fn make_page_near<'e>(
        &'e self,
        (object, record): (SlabRef, &'e ObjectRecord),
        place: TriePlace<'e>,
        (want, va): (&AllocRequest, Va),
        counters: &CpuCounters,
        epoch: &'e EpochGuard<'_, M>,
    ) -> Option<(Pfn, &'e Record)> {
        let (pfn, index) = (self.frames.alloc_base(epoch, want).ok()?, want.index);
        let frame = zeros_in(self, pfn, (object, index), va);
        let place = if self.config.alloc_cursor { place } else { TriePlace::START };
        // Made anew for the seldom case, so that the other one needs no memory for it.
        let at = || AtPlace { objects: self, record, index, place };
        match at().fill(pfn, epoch) {
            Some(true) => counters.add(Counter::CursorKept, 1),
            Some(false) if at().insert(pfn, epoch).is_some() => {}
            _ => {
                self.untake(pfn, Order::BASE);
                return None;
            }
        }
        counters.add(Counter::ShmemPages, 1);
        Some((pfn, frame))
    }

    /// A frame of zeros for a page of an object, which the request says.
    pub(super) fn take_zeros(
        &self,
        (object, index): (SlabRef, u64),
        (want, va): (&AllocRequest, Va),
    ) -> Result<Pfn, NoMemory> {
        let pfn = self.frames.alloc(&self.machine, Order::BASE, want)?;
        zeros_in(self, pfn, (object, index), va);
        Ok(pfn)
    }

    /// Freezes the page at an index, or the block that it lies in; `None` if there is none. Waits
    /// while somebody else has it frozen, or a pager is at it. The caller keeps the object, holds
    /// no lock and is in no epoch. From here on nobody maps the page or touches its bytes but
    /// through an entry.
    pub fn freeze(&self, object: SlabRef, index: u64) -> Option<ObjectPage> {
        loop {
            match ObjectIo(self).freeze_or_keep(object, index)? {
                Ok(page) => return Some(page),
                Err(taken) => ObjectIo(self).wait_for_page(taken),
            }
        }
    }

    /// Frees a frozen page that the object has no more. Nobody can find it, but who waited for it
    /// may keep its frame for a moment.
    pub(super) fn free_found_page(&self, pfn: Pfn) {
        if ObjectFrame(self).leave(pfn) {
            ObjectFrame(self).give_back(pfn);
        }
    }

    /// Others may use the page again.
    pub fn thaw(&self, pfn: Pfn) {
        ObjectFrame(self).thaw(pfn);
    }

    /// Puts another frame in place of a frozen one, of which no fault looks at the record any more
    /// afterwards.
    pub fn replace_frozen(&self, object: SlabRef, index: u64, new: Pfn) {
        Data::init(self.frames.record(new), Order::BASE, owner_of(object), index);
        {
            let mut top = Token::top();
            let mut guard = Tries::new(self).lock(&self.object(object).trie, &mut top);
            let mut cursor = guard.cursor();
            if let Some(old) = cursor.lookup(index) {
                let entry = TrieEntry::page(new);
                let dirty = old.is_marked(PageMark::Dirty);
                cursor.replace(if dirty { entry.with_mark(PageMark::Dirty) } else { entry });
            }
        }
        self.epochs.synchronize(&self.machine, &mut Token::top());
    }

    /// Freezes the pages of `[first, end)`, only those of the kind, as many as `out` has room for,
    /// up to one that may not be frozen now; clean pages of which that is so are passed over. Or
    /// one block. As [`freeze`](ObjectLayer::freeze), but it waits for nobody. Out of line, so that
    /// its loop has the registers.
    #[inline(never)]
    pub fn freeze_pages(
        &self,
        object: SlabRef,
        (first, end): (u64, u64),
        kind: PageKind,
        out: &mut [ObjectPage],
    ) -> Frozen {
        let mut count = out.len();
        let (mut places, mut passed, mut next) = (out.iter_mut(), 0, None);
        let (mut block, mut crossing) = (None, None);
        {
            let mut top = Token::top();
            let mut guard = Tries::new(self).lock(&self.object(object).trie, &mut top);
            let mut cursor = guard.cursor();
            cursor.set_limit(end);
            cursor.walk(first, |index, entry| {
                let frame = self.frames.record(entry.pfn());
                let taken = Data::of(frame).is_taken_or_block();
                if taken && entry.order() != Order::BASE {
                    block = Some((index, entry));
                    return false;
                }
                let dirty = entry.is_marked(PageMark::Dirty);
                let passes = kind == PageKind::Clean && (taken || dirty);
                if passes && passed < MOST_SEEN {
                    passed += 1;
                    return true;
                }
                if !passes
                    && !taken
                    && let Some(place) = places.next()
                {
                    ObjectFrame(self).freeze_in(frame);
                    *place = (entry.pfn(), index);
                    return true;
                }
                next = Some(index);
                false
            });
            count -= places.len();
            // Not in the walk, whose loop is short then.
            if let Some((index, entry)) = block {
                let data = Data::of(self.frames.record(entry.pfn()));
                let after = index + entry.order().frames();
                next = Some(index.max(first));
                if kind == PageKind::Clean && data.is_taken() {
                    next = Some(after).filter(|&after| after < end);
                } else if index < first || after > end {
                    crossing = Some(index);
                } else if count == 0 && !data.is_taken() {
                    ObjectFrame(self).freeze(entry.pfn());
                    out[0] = (entry.pfn(), index);
                    (count, next) = (1, Some(after));
                }
            }
        }
        if count != 0 {
            self.epochs.synchronize(&self.machine, &mut Token::top());
        }
        Frozen { count, next, crossing }
    }

    /// Takes frozen pages, or a frozen block, that no space maps out of the object, and frees them
    /// when nobody can still be looking at their records. Out of line as above.
    #[inline(never)]
    pub fn free_pages(&self, object: SlabRef, pages: &[ObjectPage]) {
        let (record, mut dirty) = (self.object(object), 0);
        let block = ObjectFrame(self).is_block(pages).then(|| pages[0].0);
        {
            let mut top = Token::top();
            let mut guard = Tries::new(self).lock(&record.trie, &mut top);
            guard.cursor().remove_pages(pages.iter().map(|page| page.1), |entry| {
                dirty += i64::from(entry.is_marked(PageMark::Dirty));
            });
            record.count_dirty(-dirty);
            record.count_blocks(-i64::from(block.is_some()));
        }
        self.epochs.synchronize(&self.machine, &mut Token::top());
        if let Some(first) = block {
            ObjectBlock(self).free(record, first);
            return self.count_object_pages(record, -(BLOCK_PAGES as i64));
        }
        let frames = pages.iter().map(|&(pfn, _)| pfn);
        let frames = frames.filter(|&pfn| ObjectFrame(self).leave(pfn));
        self.frames.give_back_all(&self.machine, frames);
        self.count_object_pages(record, -(pages.len() as i64));
        self.count(Counter::DirtyPages, -dirty);
    }
}

/// Makes a fresh frame one of zeros for a page of an object; the frame's record.
#[inline(always)]
fn zeros_in<M: Machine>(
    objects: &ObjectLayer<M>,
    pfn: Pfn,
    (object, index): (SlabRef, u64),
    va: Va,
) -> &Record {
    objects.clear_page(pfn, va);
    let frame = objects.frames.record(pfn);
    Data::init(frame, Order::BASE, owner_of(object), index);
    frame
}
