//! Making objects, and freeing those that nobody keeps.

use crate::addr::{Order, Pfn};
use crate::error::{Invalid, NoMemory, ObjectError, ensure};
use crate::frame::{Data, SlabRef};
use crate::machine::{Machine, Use, Verb};
use crate::object::record::{Object, ObjectRecord, Source, owner_of};
use crate::object::{BLOCK_PAGES, MOST_BYTES, ObjectBlock, ObjectLayer, Tries};
use crate::rmap::object_page::ObjectFrame;
use crate::space::{ObjectUsage, SpaceRecord};
use crate::stats::Counter;
use crate::sync::atomic::Ordering;
use crate::sync::{self, Above, Attachments, Token, Top};
use crate::vma::deferred_free::{DeferredFree, Orphans};
use crate::vma::edit::Edit;

impl<M: Machine> ObjectLayer<M> {
    /// `Objects::create`, and those for other kinds.
    pub fn create_object(&self, bytes: u64, source: Source) -> Result<Object, ObjectError> {
        if bytes > MOST_BYTES {
            return Err(ObjectError::Size);
        }
        self.verb_with_memory(Verb::Object, || Ok(self.make_object(bytes, source)?))
    }

    /// `Objects::usage`.
    pub fn object_usage(&self, object: &Object) -> ObjectUsage {
        let record = self.record_of_object(object);
        let mut top = Token::top();
        let guard = Tries::new(self).lock(&record.trie, &mut top);
        let (bytes, huge_pages) = (record.bytes(), record.blocks());
        let pages = guard.entries() + huge_pages * (BLOCK_PAGES - 1);
        ObjectUsage { bytes, pages, huge_pages, dirty_pages: record.dirty(), seals: record.seals() }
    }

    /// An object of so many bytes.
    fn make_object(&self, bytes: u64, source: Source) -> Result<Object, NoMemory> {
        let mut token = Token::top();
        let handle = self.objects.alloc(&self.machine, &self.frames, &mut token)?;
        let place = handle.ptr(&self.machine).cast::<ObjectRecord>();
        let record = ObjectRecord::new(bytes, source, Tries::new(self).create());
        // SAFETY: the slab's object is large enough, aligned to 64 bytes and the caller's alone.
        unsafe { place.write(record) };
        let made = self.object(handle);
        let _guard = self.list.lock(&self.machine, &mut token, 0);
        let first = self.first.load(Ordering::Relaxed);
        made.next.store(first, Ordering::Relaxed);
        if let Some(first) = SlabRef::from_raw(first) {
            self.object(first).previous.store(handle.raw(), Ordering::Relaxed);
        }
        self.first.store(handle.raw(), Ordering::Relaxed);
        Ok(Object::new(handle, self.id(), place, 0))
    }

    /// The record of an object that the caller keeps, or that an epoch does: a region that it saw
    /// maps it.
    #[inline]
    pub fn object(&self, handle: SlabRef) -> &ObjectRecord {
        // SAFETY: `make_object` wrote a record there, which lives as long as the object is kept.
        unsafe { handle.ptr(&self.machine).cast::<ObjectRecord>().as_ref() }
    }

    /// The record of a handle.
    ///
    /// # Panics
    /// If the object is another `Vm`'s.
    pub fn record_of_object<'o>(&'o self, object: &'o Object) -> &'o ObjectRecord {
        // SAFETY: this is the `Vm` of that id, and still there.
        unsafe { object.record(self.id()) }
    }

    /// Gives a handle back.
    pub fn discard(&self, object: Object) {
        self.verb(Verb::Object, || {
            let _in_hand = self.hands.begin(&self.machine);
            if self.record_of_object(&object).attachments.let_go() {
                self.free_object(object.handle);
            }
        });
    }

    /// The end of a verb's own hold of an object.
    pub fn let_go_of(&self, handle: SlabRef) {
        if self.object(handle).attachments.let_go() {
            self.free_object(handle);
        }
    }

    /// Changes a space under its mmap lock, and frees afterwards what no reader can still see.
    #[inline(always)]
    pub fn edit<R>(&self, space: &SpaceRecord, change: impl FnOnce(&mut Edit<'_>) -> R) -> R {
        let mut top: Token<Top> = Token::top();
        let mut deferred = DeferredFree::default();
        let done = {
            let mut layout = space.mmap_lock().lock(&self.machine, &mut top, space.id());
            change(&mut Edit { space, token: layout.token(), deferred: &mut deferred })
        };
        self.free_deferred(deferred, &mut top);
        done
    }

    /// Waits for the readers and frees everything, objects that nobody keeps any more included. The
    /// caller is in no epoch and holds no node.
    #[inline]
    pub fn free_deferred<H>(&self, mut deferred: DeferredFree, token: &mut Token<H>)
    where
        H: Above<Attachments> + Above<sync::TableLock> + Above<sync::Queue>,
    {
        deferred.drop_replaced(self);
        if !deferred.is_empty() {
            let orphans = self.wait_and_free(deferred, token);
            if orphans.0 != 0 {
                self.free_orphans(orphans);
            }
        }
    }

    #[cold]
    fn free_orphans(&self, orphans: Orphans) {
        let mut next = SlabRef::from_raw(orphans.0);
        while let Some(handle) = next {
            next = SlabRef::from_raw(self.object(handle).attachments.next.load(Ordering::Relaxed));
            self.free_object(handle);
        }
    }

    /// Frees an object that nobody keeps: no space maps it, and no fault reads it.
    fn free_object(&self, handle: SlabRef) {
        let record = self.object(handle);
        let mut token = Token::top();
        {
            let _guard = self.list.lock(&self.machine, &mut token, 0);
            let next = record.next.load(Ordering::Relaxed);
            let previous = record.previous.load(Ordering::Relaxed);
            match SlabRef::from_raw(previous) {
                Some(previous) => self.object(previous).next.store(next, Ordering::Relaxed),
                None => self.first.store(next, Ordering::Relaxed),
            }
            if let Some(next) = SlabRef::from_raw(next) {
                self.object(next).previous.store(previous, Ordering::Relaxed);
            }
        }
        let mut pages = 0;
        Tries::new(self).clear(&record.trie, |_, entry| {
            match entry.order() {
                Order::BASE => ObjectFrame(self).free(entry.pfn()),
                _ => ObjectBlock(self).free(record, entry.pfn()),
            }
            pages += entry.order().frames() as i64;
        });
        self.count_object_pages(record, -pages);
        self.count(Counter::DirtyPages, -(record.dirty() as i64));
        let pager = record.pager();
        self.objects.free(&self.machine, &self.frames, &mut token, handle);
        if let Some(pager) = pager {
            self.machine.object_gone(pager);
        }
    }

    /// Calls `each` with every object. Nobody makes or frees any meanwhile. For `validate`.
    pub(crate) fn for_each_object(
        &self,
        mut each: impl FnMut(SlabRef, &ObjectRecord) -> Result<(), Invalid>,
    ) -> Result<(), Invalid> {
        let (mut next, mut before, mut count) = (self.first.load(Ordering::Relaxed), 0, 0);
        while let Some(handle) = SlabRef::from_raw(next) {
            let record = self.object(handle);
            let kept = record.previous.load(Ordering::Relaxed);
            ensure(kept == before, "an object's neighbour", next, kept, before)?;
            each(handle, record)?;
            (before, next) = (next, record.next.load(Ordering::Relaxed));
            count += 1;
        }
        let there = self.objects.objects();
        ensure(there == count, "objects on the list of all", 0, there, count)
    }

    /// Whether a page of an object is what its record says, and how many entries map it by that.
    pub(crate) fn check_object_page(
        &self,
        object: SlabRef,
        index: u64,
        pfn: Pfn,
    ) -> Result<u64, Invalid> {
        let record = self.frames.record(pfn);
        let check = |what, kept, found| ensure(kept == found, what, pfn.0, kept, found);
        let use_ = record.use_() as u64;
        check("the use of an object's page", Use::Data as u64, use_)?;
        let data = Data::of(record);
        check("the owner of an object's page", data.owner().pack(), owner_of(object).pack())?;
        check("the index of an object's page", data.index(), index)?;
        check("a page is frozen at rest", 0, data.is_frozen() as u64)?;
        check("references of an object's page", data.uses(), data.map_count() as u64)?;
        check("a pager is at a page at rest", 0, data.io().is_some() as u64)?;
        Ok(data.map_count() as u64 - 1)
    }
}

impl<M: Machine> ObjectLayer<M> {
    /// Counts pages of an object that came, or went.
    pub(super) fn count_object_pages(&self, record: &ObjectRecord, pages: i64) {
        let counter = match record.source() {
            Source::Pager(_) => Counter::FilePages,
            Source::Kernel => Counter::KernelPages,
            _ => Counter::ShmemPages,
        };
        self.count(counter, pages);
    }
}
