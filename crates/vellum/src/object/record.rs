//! An object: contents that several spaces may map, and the handle that embedders hold.

use core::ptr::NonNull;

use crate::addr::{Order, PAGE_SHIFT, PAGE_SIZE};
use crate::config::MOST_AHEAD;
use crate::frame::{Owner, SlabRef};
use crate::machine::Machine;
use crate::object::DeviceMemory;
use crate::object::trie::{INDEX_END, Trie};
use crate::rmap::attachment::AttachmentList;
use crate::space::Seals;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::touch;

/// An object: pages that several spaces may map. It lasts as long as a handle of it or a mapping.
/// [`Objects::discard`](crate::vm::Objects::discard) takes the handle back; one that is dropped
/// instead keeps the object for ever.
///
/// It belongs to the `Vm` that made it. A verb of another one panics before it looks at it.
#[must_use = "an object whose handle is dropped keeps its memory for ever"]
#[derive(Debug)]
pub struct Object {
    pub(crate) handle: SlabRef,
    /// Whose it is: the id of its `Platform`.
    vm: usize,
    record: NonNull<ObjectRecord>,
    /// Errors of the pager that this handle was told of. Anyone who has the handle.
    heard: AtomicU64,
}

// SAFETY: the record is made of atomics and locks, and only the object's own `Vm` looks at it,
// which is `Sync` if that may be anywhere.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

#[cold]
#[inline(never)]
fn foreign() -> ! {
    panic!("the object belongs to another Vm")
}

impl Object {
    /// A handle that was told of so many errors.
    pub(super) fn new(
        handle: SlabRef,
        vm: usize,
        record: NonNull<ObjectRecord>,
        errors: u64,
    ) -> Object {
        Object { handle, vm, record, heard: AtomicU64::new(errors) }
    }

    /// The same object's, kept by the caller.
    pub(super) fn another(&self, errors: u64) -> Object {
        Object::new(self.handle, self.vm, self.record, errors)
    }

    /// Whether there were errors that this handle was not told of, so far; it is from here on.
    pub(crate) fn hears(&self, errors: u64) -> bool {
        self.heard.fetch_max(errors, Ordering::Relaxed) < errors
    }

    /// The record.
    ///
    /// # Safety
    /// The `Vm` of that id still is.
    ///
    /// # Panics
    /// If the object is another's.
    #[inline]
    pub(super) unsafe fn record(&self, vm: usize) -> &ObjectRecord {
        if self.vm != vm {
            foreign();
        }
        // SAFETY: the `Vm` that made the object is there, by the caller's promise, and this handle
        // keeps the record.
        unsafe { self.record.as_ref() }
    }

    /// A number no other living object of the same `Vm` has.
    pub fn id(&self) -> u64 {
        self.handle.raw()
    }
}

/// Bytes that an object may have, at most: what is left of 2^64 so that no end wraps.
pub(crate) const MOST_BYTES: u64 = !(PAGE_SIZE as u64 - 1);

/// Bits that say how many pages the last fetch had; the index after it has the rest.
const FETCHED_BITS: u32 = 10;
const FETCHED_MASK: u64 = (1 << FETCHED_BITS) - 1;

const _: () = assert!(MOST_AHEAD <= FETCHED_MASK && INDEX_END <= u64::MAX >> FETCHED_BITS);

/// How an object with a pager will be read: see
/// [`Objects::advise`](crate::vm::Objects::advise).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u32)]
pub enum ReadPattern {
    /// Pages are read ahead while they are wanted in order.
    #[default]
    Normal,
    /// As many as are allowed are read ahead from the first page on, and after each jump.
    Sequential,
    /// None are read ahead.
    Random,
}

/// Part of an object: what a mapping begins with.
#[derive(Clone, Copy, Debug)]
pub struct ObjectPart<'o> {
    /// The object.
    pub object: &'o Object,
    /// The first byte, a multiple of 4096. It may lie past the object's end.
    pub offset: u64,
}

/// Where an object's contents are, apart from the pages that it has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// Nowhere: what was never touched is zero. `logged`: writes are noted for who harvests them.
    Zeros { logged: bool },
    /// At the pager of that number.
    Pager(u64),
    /// In memory that is not the library's. It has no pages.
    Device(DeviceMemory),
    /// Nowhere, and no space maps it: the kernel does, in tables of its own.
    Kernel,
}

/// An object's record.
#[repr(C)]
pub(crate) struct ObjectRecord {
    /// Comes first: layers below know this much of an object.
    pub attachments: AttachmentList,
    /// Bytes. Written under the guard; a fault reads it without.
    size: AtomicU64,
    /// Where the contents are. For life.
    source: Source,
    /// Runs that the pager could not write. Anyone.
    errors: AtomicU64,
    /// Where the last fetch from the pager ended, and below that, in six bits, how many pages it
    /// had. Anyone; it decides about speed alone.
    fetched: AtomicU64,
    /// A [`ReadPattern`]. Anyone; it decides about speed alone.
    pattern: AtomicU32,
    /// Pages with the mark `Dirty`. Under the guard.
    dirty: AtomicU64,
    /// Blocks of 2 MiB. Under the guard.
    blocks: AtomicU64,
    /// Not 0 while a call takes pages out. Anyone, by exchange.
    changing: AtomicU64,
    /// Bit 0: it becomes no shorter; bit 1: no longer; bit 2: its contents stay. Set by who has
    /// begun a change, read by anyone.
    seals: AtomicU64,
    /// The neighbours on the list of all objects, under its lock.
    pub(super) next: AtomicU64,
    pub(super) previous: AtomicU64,
    /// The pages, and the guard.
    pub trie: Trie,
}

impl ObjectRecord {
    pub(super) fn new(bytes: u64, source: Source, trie: Trie) -> ObjectRecord {
        let (changing, size) = (AtomicU64::new(0), AtomicU64::new(bytes));
        let (next, previous) = (AtomicU64::new(0), AtomicU64::new(0));
        let attachments = AttachmentList::new();
        let (dirty, seals) = (AtomicU64::new(0), AtomicU64::new(0));
        let blocks = AtomicU64::new(0);
        let errors = AtomicU64::new(0);
        let (fetched, pattern) = (AtomicU64::new(0), AtomicU32::new(0));
        ObjectRecord {
            attachments,
            size,
            source,
            errors,
            fetched,
            pattern,
            dirty,
            blocks,
            changing,
            seals,
            next,
            previous,
            trie,
        }
    }

    /// Its size in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Where its contents are.
    pub fn source(&self) -> Source {
        self.source
    }

    /// The number of its pager, if it has one.
    #[inline]
    pub fn pager(&self) -> Option<u64> {
        match self.source {
            Source::Pager(pager) => Some(pager),
            _ => None,
        }
    }

    /// The memory of a device.
    #[inline]
    pub fn device(&self) -> Option<DeviceMemory> {
        match self.source {
            Source::Device(memory) => Some(memory),
            _ => None,
        }
    }

    /// Whether no space maps it.
    pub fn is_kernels(&self) -> bool {
        matches!(self.source, Source::Kernel)
    }

    /// Whether what it has no page of is somewhere else all the same.
    pub fn has_all(&self) -> bool {
        matches!(self.source, Source::Pager(_) | Source::Device(_))
    }

    /// Whether it gets blocks of 2 MiB by themselves.
    pub fn gets_blocks(&self) -> bool {
        matches!(self.source, Source::Zeros { logged: false })
    }

    /// Whether writes are noted for who harvests them.
    pub fn is_logged(&self) -> bool {
        matches!(self.source, Source::Zeros { logged: true })
    }

    /// Whether a page is marked as dirty before it is written.
    #[inline]
    pub fn notes_writes(&self) -> bool {
        matches!(self.source, Source::Pager(_) | Source::Zeros { logged: true })
    }

    /// Runs that the pager could not write.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// One more.
    pub(super) fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The index after the pages of the last fetch, and how many they were; 0 if there was none.
    pub(super) fn fetched(&self) -> (u64, u64) {
        let word = self.fetched.load(Ordering::Relaxed);
        (word >> FETCHED_BITS, word & FETCHED_MASK)
    }

    /// Notes a fetch.
    pub(super) fn set_fetched(&self, next: u64, pages: u64) {
        self.fetched.store(next << FETCHED_BITS | pages, Ordering::Relaxed);
    }

    /// Whether a page is one of the last fetch.
    pub(super) fn is_newest(&self, index: u64) -> bool {
        let (next, last) = self.fetched();
        next.wrapping_sub(last) <= index && index < next
    }

    /// Takes the last fetch from the others, if a page is of it: the caller begins the next one.
    pub(super) fn end_newest(&self, index: u64) -> Option<(u64, u64)> {
        let (next, last) = self.fetched();
        let (old, new) = (next << FETCHED_BITS | last, next << FETCHED_BITS);
        let taken = self.is_newest(index)
            && self
                .fetched
                .compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        taken.then_some((next, last))
    }

    /// How it is read.
    pub(super) fn pattern(&self) -> ReadPattern {
        match self.pattern.load(Ordering::Relaxed) {
            1 => ReadPattern::Sequential,
            2 => ReadPattern::Random,
            _ => ReadPattern::Normal,
        }
    }

    /// Says how it will be read.
    pub(super) fn set_pattern(&self, pattern: ReadPattern) {
        self.pattern.store(pattern as u32, Ordering::Relaxed);
    }

    /// Pages that were written since they were last clean.
    pub fn dirty(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed)
    }

    /// Counts such pages. Under the guard.
    pub(super) fn count_dirty(&self, pages: i64) {
        let dirty = self.dirty().wrapping_add_signed(pages);
        self.dirty.store(dirty, Ordering::Relaxed);
    }

    /// Blocks of 2 MiB that it has.
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Counts such blocks. Under the guard.
    pub(super) fn count_blocks(&self, blocks: i64) {
        self.blocks.store(self.blocks().wrapping_add_signed(blocks), Ordering::Relaxed);
    }

    /// Whether a block of 2 MiB at an index may be mapped as a whole: all of it has bytes of it.
    pub fn has_block(&self, index: u64) -> bool {
        index + Order::HUGE.frames() <= self.bytes() / PAGE_SIZE as u64
    }

    /// Pages that have at least one byte of it.
    #[inline]
    pub fn pages(&self) -> u64 {
        pages_of(self.bytes())
    }

    /// Whether the page at an index has at least one byte of it.
    #[inline]
    pub fn has_page(&self, index: u64) -> bool {
        index < self.pages()
    }

    /// The size in bytes, if it covers some of the page at an index where one was found.
    #[inline]
    pub fn size_beyond(&self, index: u64) -> Option<u64> {
        let bytes = self.bytes();
        // Does not wrap: such an index is below `INDEX_END`.
        (index << PAGE_SHIFT < bytes).then_some(bytes)
    }

    /// Whether the caller may take pages out: nobody else does until [`ObjectRecord::end_change`].
    pub fn begin_change<M: Machine>(&self, m: &M) -> bool {
        touch(m, &self.changing, true);
        self.changing.swap(1, Ordering::Acquire) == 0
    }

    /// Others may.
    pub fn end_change<M: Machine>(&self, m: &M) {
        touch(m, &self.changing, true);
        self.changing.store(0, Ordering::Release);
    }

    /// Sets the size. Under the guard.
    pub fn set_bytes(&self, bytes: u64) {
        self.size.store(bytes, Ordering::Release);
    }

    /// What is forbidden of it.
    pub fn seals(&self) -> Seals {
        let bits = self.seals.load(Ordering::Acquire);
        Seals { shrink: bits & 1 != 0, grow: bits & 2 != 0, write: bits & 4 != 0 }
    }

    /// Forbids more. The caller has begun a change.
    pub fn add_seals(&self, seals: Seals) {
        let bits = u64::from(seals.shrink) | u64::from(seals.grow) << 1;
        let bits = bits | u64::from(seals.write) << 2;
        self.seals.fetch_or(bits, Ordering::Release);
    }
}

/// Pages that an object of a size has.
#[inline]
pub(crate) fn pages_of(bytes: u64) -> u64 {
    // Does not wrap: a size is at most `MOST_BYTES`.
    (bytes + (PAGE_SIZE as u64 - 1)) >> PAGE_SHIFT
}

/// The owner of an object's pages.
pub(super) fn owner_of(object: SlabRef) -> Owner {
    Owner::Object(object.raw())
}
