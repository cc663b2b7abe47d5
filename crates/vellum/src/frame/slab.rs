//! Slabs: small objects of one size, such as regions, interval lists and spaces.
//!
//! A page holds at most 64 objects, so one word of the frame's record says which are taken. The
//! page itself has no header, and its objects are aligned as their size allows. The pages of a slab
//! are a ring through their records, those with room first. A page whose last object is freed is
//! freed at once. [`Record`](crate::frame::Record) has the words.
//!
//! The handle of an object is its physical address ([`SlabRef`]) and no pointer: records and tables
//! keep handles, which are the same on every host. A handle and a slot of a table fit one word.

use crate::addr::{Order, PAGE_SIZE, PFN_END, Pfn};
use crate::error::{Invalid, NoMemory, ensure};
use crate::frame::alloc::request::AllocRequest;
use crate::frame::frames::Frames;
use crate::frame::record::{SLAB_NEXT, SLAB_PREV, SLAB_SIZE, SLAB_TAKEN};
use crate::machine::{Machine, Use};
use crate::space::SlabRef;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{Above, Lock, Queue, Token};

/// The smallest object, in bytes. Sizes are rounded up to a multiple of it; 64 of them make a page.
const SMALLEST: usize = 64;

const _: () = assert!(PFN_END * PAGE_SIZE as u64 == 1 << 48 && PAGE_SIZE / SMALLEST <= 64);

/// What a slab holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SlabCounts {
    /// Frames.
    pub pages: u64,
    /// Objects taken.
    pub objects: u64,
}

/// A slab.
pub(crate) struct Slab {
    pub(crate) size: usize,
    pub(crate) lock: Lock<Queue>,
    /// First page of the ring: frame number + 1, 0 for none. Guarded by `lock`, as the counts are.
    head: AtomicU64,
    pages: AtomicU64,
    objects: AtomicU64,
}

impl Slab {
    /// A slab for objects of `size` bytes, which is rounded up to a multiple of 64.
    ///
    /// # Panics
    /// If the size is 0 or above 4096.
    pub const fn new(size: usize) -> Slab {
        assert!(size != 0 && size <= PAGE_SIZE, "a slab's objects have 1 to 4096 bytes");
        Slab {
            size: size.next_multiple_of(SMALLEST),
            lock: Lock::new(),
            head: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            objects: AtomicU64::new(0),
        }
    }

    /// Frames in use.
    pub fn pages(&self) -> u64 {
        self.pages.load(Relaxed)
    }

    /// Objects taken.
    pub fn objects(&self) -> u64 {
        self.objects.load(Relaxed)
    }

    /// The count of objects, for tests that make it wrong.
    #[cfg(test)]
    pub fn objects_raw(&self) -> &AtomicU64 {
        &self.objects
    }

    const fn per_page(&self) -> u32 {
        (PAGE_SIZE / self.size) as u32
    }

    const fn full(&self) -> u64 {
        !0 >> (64 - self.per_page())
    }

    /// An object, all bytes zero.
    pub fn alloc<M: Machine, H: Above<Queue>>(
        &self,
        m: &M,
        frames: &Frames,
        above: &mut Token<H>,
    ) -> Result<SlabRef, NoMemory> {
        let object = loop {
            {
                let _guard = self.lock.lock(m, above, 0);
                if let Some(object) = self.take(m, frames) {
                    break object;
                }
            }
            // Allocated with the lock dropped. Two CPUs may both come here; the second page is used
            // next.
            let pfn = frames.alloc(m, Order::BASE, &AllocRequest::kernel(Use::Slab))?;
            let record = frames.record(pfn);
            record.init(Use::Slab, Order::BASE);
            record.word(SLAB_SIZE).store(self.size as u64, Relaxed);
            let _guard = self.lock.lock(m, above, 0);
            self.link(frames, pfn, true);
            self.pages.store(self.pages() + 1, Relaxed);
            if let Some(object) = self.take(m, frames) {
                break object;
            }
        };
        // SAFETY: the object is ours alone, inside one frame of use `Slab`.
        unsafe { object.ptr(m).write_bytes(0, self.size) }
        Ok(object)
    }

    fn take<M: Machine>(&self, m: &M, frames: &Frames) -> Option<SlabRef> {
        let pfn = Pfn(self.head.load(Relaxed).checked_sub(1)?);
        let taken = frames.record(pfn).word(SLAB_TAKEN);
        let old = taken.load(Relaxed);
        if old == self.full() {
            return None;
        }
        let at = (!old).trailing_zeros();
        let new = old | 1 << at;
        taken.store(new, Relaxed);
        self.objects.store(self.objects() + 1, Relaxed);
        frames.count_pool_op(m);
        if new == self.full() {
            // Full pages go to the end, so that the first page shows whether there is room.
            self.unlink(frames, pfn);
            self.link(frames, pfn, false);
        }
        Some(SlabRef::new(pfn, at as usize * self.size))
    }

    /// Frees an object, which nobody may read any more: for readers without locks an epoch must
    /// have ended.
    pub fn free<M: Machine, H: Above<Queue>>(
        &self,
        m: &M,
        frames: &Frames,
        above: &mut Token<H>,
        object: SlabRef,
    ) {
        let (pfn, at) = (object.pfn(), object.offset() / self.size);
        let record = frames.record(pfn);
        let known = record.use_() == Use::Slab
            && record.word(SLAB_SIZE).load(Relaxed) == self.size as u64
            && object.offset().is_multiple_of(self.size);
        debug_assert!(known, "{object:?} is no object of this slab");
        let _guard = self.lock.lock(m, above, 0);
        let taken = record.word(SLAB_TAKEN);
        let old = taken.load(Relaxed);
        let bit = 1 << at;
        debug_assert!(old & bit != 0, "{object:?} freed twice");
        if !known || old & bit == 0 {
            return;
        }
        taken.store(old & !bit, Relaxed);
        self.objects.store(self.objects() - 1, Relaxed);
        frames.count_pool_op(m);
        if old == bit {
            self.unlink(frames, pfn);
            self.pages.store(self.pages() - 1, Relaxed);
            // Under the lock: a CPU that finds no page in the ring finds this frame free.
            frames.give_back(m, pfn, Order::BASE);
        } else if old == self.full() {
            self.unlink(frames, pfn);
            self.link(frames, pfn, true);
        }
    }

    /// Links a page at the front of the ring, or at its end.
    fn link(&self, frames: &Frames, pfn: Pfn, in_front: bool) {
        let this = frames.record(pfn);
        let this_page = pfn.0 + 1;
        match self.head.load(Relaxed).checked_sub(1) {
            None => {
                this.word(SLAB_NEXT).store(this_page, Relaxed);
                this.word(SLAB_PREV).store(this_page, Relaxed);
                self.head.store(this_page, Relaxed);
            }
            Some(first) => {
                let head = frames.record(Pfn(first));
                let last = head.word(SLAB_PREV).load(Relaxed);
                this.word(SLAB_NEXT).store(first + 1, Relaxed);
                this.word(SLAB_PREV).store(last, Relaxed);
                head.word(SLAB_PREV).store(this_page, Relaxed);
                frames.record(Pfn(last - 1)).word(SLAB_NEXT).store(this_page, Relaxed);
                if in_front {
                    self.head.store(this_page, Relaxed);
                }
            }
        }
    }

    fn unlink(&self, frames: &Frames, pfn: Pfn) {
        let record = frames.record(pfn);
        let (next, prev) =
            (record.word(SLAB_NEXT).load(Relaxed), record.word(SLAB_PREV).load(Relaxed));
        if next == pfn.0 + 1 {
            self.head.store(0, Relaxed);
            return;
        }
        frames.record(Pfn(prev - 1)).word(SLAB_NEXT).store(next, Relaxed);
        frames.record(Pfn(next - 1)).word(SLAB_PREV).store(prev, Relaxed);
        if self.head.load(Relaxed) == pfn.0 + 1 {
            self.head.store(next, Relaxed);
        }
    }

    /// Recounts pages and objects. No CPU may use the slab meanwhile.
    ///
    /// # Errors
    /// The first sentence that does not hold.
    pub fn validate(&self, frames: &Frames) -> Result<SlabCounts, Invalid> {
        let mut counts = SlabCounts::default();
        let (head, full) = (self.head.load(Relaxed), self.full());
        let (mut at, mut seen_full) = (head, false);
        while at != 0 {
            let pfn = Pfn(at - 1);
            let record = frames.record(pfn);
            let word = |i: usize| record.word(i).load(Relaxed);
            let (taken, size, wanted) = (word(SLAB_TAKEN), word(SLAB_SIZE), self.size as u64);
            ensure(
                record.use_() == Use::Slab && size == wanted,
                "a slab's page belongs to another slab",
                pfn.0,
                wanted,
                size,
            )?;
            ensure(
                taken != 0 && taken & !full == 0,
                "a slab's page is empty, or has more objects than room",
                pfn.0,
                1,
                taken,
            )?;
            ensure(
                !seen_full || taken == full,
                "a slab's page with room comes after a full one",
                pfn.0,
                full,
                taken,
            )?;
            seen_full |= taken == full;
            let next = word(SLAB_NEXT);
            let back = next
                .checked_sub(1)
                .map_or(0, |n| frames.record(Pfn(n)).word(SLAB_PREV).load(Relaxed));
            ensure(back == at, "a slab's ring is broken", pfn.0, at, back)?;
            counts.pages += 1;
            counts.objects += taken.count_ones() as u64;
            if counts.pages > self.pages() {
                break;
            }
            at = if next == head { 0 } else { next };
        }
        let (pages, objects) = (self.pages(), self.objects());
        ensure(counts.pages == pages, "a slab's pages", 0, pages, counts.pages)?;
        ensure(counts.objects == objects, "a slab's objects", 0, objects, counts.objects)?;
        Ok(counts)
    }
}
