//! The verbs on objects.

use crate::addr::Pfn;
use crate::config::NumaPolicy;
use crate::error::ObjectError;
use crate::machine::{Machine, PageAnswer};
use crate::object::{DeviceMemory, GrabWait, Grabbed, Object, ObjectIo, ReadPattern, Source};
use crate::ops::object::bytes::ObjectBytes;
use crate::ops::object::collapse::CollapseObject;
use crate::ops::object::grab::Grab;
use crate::ops::object::invalidate::Invalidate;
use crate::ops::object::resize::Resize;
use crate::ops::object::sparse::Sparse;
use crate::ops::object::sync::Sync;
use crate::space::{KeptPage, ObjectUsage, Seals};
use crate::vm::Vm;

/// The objects of a `Vm`: see [`Vm::objects`].
///
/// An object is a run of bytes that several spaces may map, each anywhere, by
/// [`Vm::map_object`]. Its pages are made when they are first touched and read as zeros until
/// then. They are the object's: an unmap, an exit or `Advice::DontNeed` takes them out of a space
/// and no more, and a fork shares them.
pub struct Objects<'v, M: Machine>(&'v Vm<M>);

impl<M: Machine> Clone for Objects<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Objects<'_, M> {}

impl<M: Machine> Vm<M> {
    /// The verbs on objects.
    pub fn objects(&self) -> Objects<'_, M> {
        Objects(self)
    }
}

impl<M: Machine> Objects<'_, M> {
    /// An object of so many bytes, all zero. It has no pages yet.
    ///
    /// # Errors
    /// [`ObjectError::Size`], [`ObjectError::NoMemory`].
    pub fn create(self, bytes: u64) -> Result<Object, ObjectError> {
        self.0.layers.create_object(bytes, Source::Zeros { logged: false })
    }

    /// As [`create`](Objects::create), of which writes are logged: [`harvest`](Objects::harvest)
    /// says which pages were written since the last time. The first store to a page after that is a
    /// fault. A hole that is punched is written, with zeros.
    ///
    /// # Errors
    /// As [`create`](Objects::create).
    pub fn create_logged(self, bytes: u64) -> Result<Object, ObjectError> {
        self.0.layers.create_object(bytes, Source::Zeros { logged: true })
    }

    /// Memory of the kernel's own: an object of so many bytes that no space maps
    /// ([`SpaceError::Kernel`](crate::SpaceError::Kernel)). The kernel maps the frames that
    /// [`back`](Objects::back) tells it in tables of its own, and gives pages back by
    /// [`punch`](Objects::punch) when nobody uses them.
    ///
    /// # Errors
    /// As [`create`](Objects::create).
    pub fn create_kernel(self, bytes: u64) -> Result<Object, ObjectError> {
        self.0.layers.create_object(bytes, Source::Kernel)
    }

    /// Has pages of the kernel's own memory there, from the one of a byte on, and tells their
    /// frames, as many as `frames` has room for; says how many it has told. A page that is missing
    /// is made, of zeros, from the memory nodes of that policy. The frames stay as they are until
    /// the pages are punched, or cut off by `resize`. The caller holds no lock.
    ///
    /// # Errors
    /// [`ObjectError::Beyond`]: they reach past the object's end. [`ObjectError::NoMemory`]. The
    /// pages before stay. [`ObjectError::NotKernel`]: it was not made by
    /// [`create_kernel`](Objects::create_kernel).
    pub fn back(
        self,
        object: &Object,
        offset: u64,
        numa: NumaPolicy,
        frames: &mut [Pfn],
    ) -> (usize, Result<(), ObjectError>) {
        Grab(&self.0.layers).back(object, offset, numa, frames)
    }

    /// An object of so many bytes whose contents a pager has: a file, or memory elsewhere. Pages
    /// are read from it by [`Machine::page_in`] when they are first touched, and written to it by
    /// [`Machine::page_out`] when [`sync`](Objects::sync) is called, if they were written. `pager`
    /// is the number by which the machine knows it.
    ///
    /// # Errors
    /// As [`create`](Objects::create).
    pub fn create_paged(self, bytes: u64, pager: u64) -> Result<Object, ObjectError> {
        self.0.layers.create_object(bytes, Source::Pager(pager))
    }

    /// Another handle of the object, to be given back by itself. It is told of the errors that come
    /// from here on.
    pub fn another(self, object: &Object) -> Object {
        ObjectIo(&self.0.layers).another_handle(object)
    }

    /// A device: an object whose memory is not the library's, as registers or a frame buffer. A
    /// mapping of it shows that memory in that cache mode, for which the embedder has filled the
    /// machine's table of memory types (`IA32_PAT`, `MAIR_EL1`) as the entry format says
    /// ([`X86_64`](crate::X86_64), [`Aarch64`](crate::Aarch64)). The library never reads, clears,
    /// copies, counts or frees it. Leaves are of 2 MiB or 1 GiB where address, offset and size
    /// allow.
    ///
    /// There are no private views of it, and nothing is executed in it. `read`, `write`, `punch`,
    /// `grab` and `resize` give [`ObjectError::Device`].
    ///
    /// # Errors
    /// [`ObjectError::Unaligned`], [`ObjectError::Address`], [`ObjectError::Owned`] if some of the
    /// memory is the machine's [`topology`](Machine::topology)'s, [`ObjectError::CacheMode`],
    /// [`ObjectError::NoMemory`]; nothing changed.
    ///
    /// # Safety
    /// Programs that map the object may load from the memory, and store to it if it is `writable`,
    /// in that cache mode and at any time, until no space maps it and the handle is discarded.
    pub unsafe fn create_device(self, memory: DeviceMemory) -> Result<Object, ObjectError> {
        self.0.layers.create_device(memory)
    }

    /// Answers a run that a pager was asked for and that it kept. From any CPU; the caller holds no
    /// lock. Of a run of several pages that cannot be read the first one is asked for again, by
    /// [`Machine::page_in`] from in here.
    ///
    /// # Panics
    /// If the run is another `Vm`'s.
    pub fn answer(self, answer: PageAnswer) {
        ObjectIo(&self.0.layers).answer(answer);
    }

    /// Writes what is dirty in so many bytes from `offset` on to the pager, and waits for it. What
    /// was written before the call is written when it returns; what programs write meanwhile may
    /// be dirty afterwards. Without a pager there is nothing to do. The caller holds no lock.
    ///
    /// # Errors
    /// [`ObjectError::Io`]: some page could not be written, now or since this handle was told last,
    /// whoever asked for it. What could not be written now stays dirty; the others are written.
    pub fn sync(self, object: &Object, offset: u64, bytes: u64) -> Result<(), ObjectError> {
        Sync(&self.0.layers).sync(object, offset, bytes)
    }

    /// Has the pager write what is dirty among so many bytes from `offset` on, and does not wait
    /// for it. Pages that somebody has in hand are passed over. The next [`sync`](Objects::sync) of
    /// each handle tells of errors. The caller holds no lock.
    pub fn write_back(self, object: &Object, offset: u64, bytes: u64) {
        Sync(&self.0.layers).write_back(object, offset, bytes);
    }

    /// The offsets of pages that were written since they were last harvested, or since the object
    /// was made: in ascending order, from the page of `from` on, as many as `pages` has room for;
    /// says how many. Fewer than that: there are no more. What was written before the call is told,
    /// what is written meanwhile by this call or the next one. A page that is told becomes
    /// read-only in every space, so that its next store is noted; what is read of it afterwards is
    /// not older than what it was told for. The caller holds no lock.
    ///
    /// # Errors
    /// [`ObjectError::NotLogged`]: it was not made by [`create_logged`](Objects::create_logged).
    pub fn harvest(
        self,
        object: &Object,
        from: u64,
        pages: &mut [u64],
    ) -> Result<usize, ObjectError> {
        Sync(&self.0.layers).harvest(object, from, pages)
    }

    /// Takes up to 32 pages from the one of `offset` on for the caller alone: for input and output
    /// to their frames, or to fill them. They are in memory, made or read if they were absent, and
    /// no space maps them. As many as can be had one after the other, at least one. Who takes runs
    /// of one object in several calls takes them in ascending order, and meanwhile does nothing
    /// else with those pages. The caller holds no lock.
    ///
    /// # Errors
    /// None could be had: [`ObjectError::Beyond`], [`ObjectError::NoMemory`]; with a pager
    /// [`ObjectError::Io`], [`ObjectError::Stopped`]; where the caller does not wait
    /// [`ObjectError::Busy`]. [`ObjectError::Device`]: it is one.
    pub fn grab(
        self,
        object: &Object,
        offset: u64,
        pages: usize,
        wait: GrabWait,
    ) -> Result<Grabbed, ObjectError> {
        Grab(&self.0.layers).grab(object, offset, pages, wait)
    }

    /// Gives pages back. `written`: the holder has changed them. The caller holds no lock.
    ///
    /// # Panics
    /// If they are another `Vm`'s.
    pub fn release(self, pages: Grabbed, written: bool) {
        Grab(&self.0.layers).release(pages, written);
    }

    /// As [`evict`](Objects::evict), for who is about to go past the pages, to their pager itself.
    /// Says how many went, and which pages are there afterwards: as many as `kept` has room for,
    /// in ascending order, and how many those are. The caller holds no lock.
    pub fn invalidate(
        self,
        object: &Object,
        (offset, bytes): (u64, u64),
        kept: &mut [KeptPage],
    ) -> (u64, usize) {
        Invalidate(&self.0.layers).invalidate(object, (offset, bytes), kept)
    }

    /// Frees the pages among so many bytes from `offset` on that the pager has as they are, and
    /// says how many: they are read again when they are touched. Pages that are dirty, or that a
    /// pager is at, stay; so do all without a pager. Of a block of 2 MiB that lies in the range in
    /// part all goes where there is no memory to split it. The caller holds no lock.
    pub fn evict(self, object: &Object, offset: u64, bytes: u64) -> u64 {
        Resize(&self.0.layers).evict(object, offset, bytes)
    }

    /// Says how an object with a pager will be read, by everybody: what is read ahead. Wrong advice
    /// costs time alone.
    pub fn advise(self, object: &Object, pattern: ReadPattern) {
        ObjectIo(&self.0.layers).advise(object, pattern);
    }

    /// Asks the pager for what is absent among so many bytes from `offset` on, and does not wait
    /// for it. It ends early where memory does. The caller holds no lock.
    pub fn will_need(self, object: &Object, offset: u64, bytes: u64) {
        ObjectBytes(&self.0.layers).will_need(object, offset, bytes);
    }

    /// Gives the handle back. The object goes now, or with its last mapping, and what is dirty then
    /// is lost: who wants it calls [`sync`](Objects::sync) before, when no space maps the object
    /// any more. The caller holds no lock.
    ///
    /// # Panics
    /// If the object is another `Vm`'s, as all verbs here.
    pub fn discard(self, object: Object) {
        self.0.layers.discard(object);
    }

    /// Size, pages and seals.
    pub fn usage(self, object: &Object) -> ObjectUsage {
        self.0.layers.object_usage(object)
    }

    /// Reads bytes from `offset` on; says how many there were before the object's end. What has no
    /// page reads as zeros and gets none, or is read from the pager.
    ///
    /// # Errors
    /// With a pager: [`ObjectError::Io`], [`ObjectError::NoMemory`]. What comes before that is
    /// read; the number says how much. [`ObjectError::Device`].
    pub fn read(
        self,
        object: &Object,
        offset: u64,
        bytes: &mut [u8],
    ) -> (usize, Result<(), ObjectError>) {
        ObjectBytes(&self.0.layers).read(object, offset, bytes)
    }

    /// Writes bytes from `offset` on. Pages that are missing are made.
    ///
    /// # Errors
    /// [`ObjectError::Beyond`]: they reach past the object's end. [`ObjectError::NoMemory`],
    /// [`ObjectError::Stopped`], [`ObjectError::Sealed`]; with a pager [`ObjectError::Io`]. What
    /// comes before that is written; the number says how much. [`ObjectError::Device`].
    pub fn write(
        self,
        object: &Object,
        offset: u64,
        bytes: &[u8],
    ) -> (usize, Result<(), ObjectError>) {
        ObjectBytes(&self.0.layers).write(object, offset, bytes)
    }

    /// Makes the object longer or shorter. Pages past the new end are freed, and a program that
    /// touches them through a mapping gets [`FaultError::Beyond`](crate::FaultError::Beyond). What
    /// is added reads as zeros. The caller holds no lock.
    ///
    /// # Errors
    /// [`ObjectError::Size`], [`ObjectError::Sealed`], [`ObjectError::Device`]; nothing changed.
    pub fn resize(self, object: &Object, bytes: u64) -> Result<(), ObjectError> {
        Resize(&self.0.layers).resize(object, bytes)
    }

    /// Forbids for good that the object becomes shorter, or longer, or has other contents, in
    /// addition to what is forbidden already: memfd's `F_SEAL_SHRINK`, `F_SEAL_GROW` and
    /// `F_SEAL_WRITE`. A size that stays the same is allowed as before.
    ///
    /// Contents that are sealed can be mapped without the right to write alone
    /// ([`SpaceError::Rights`](crate::SpaceError::Rights)), or privately; `write` and `punch` give
    /// [`ObjectError::Sealed`]. Pages that somebody has grabbed are his to change until he gives
    /// them back, a pager still reads pages, and what `resize` adds is zero.
    ///
    /// `resize`, `punch` and `seal` of one object run one after the other (with a pager or a log
    /// `punch` page by page). So when this returns no
    /// change of the size is under way that it forbids, and none comes. It waits for a `resize` or
    /// a `punch` that is under way, and for each `write` to end or to find the seal; the caller
    /// holds no lock.
    ///
    /// # Errors
    /// [`ObjectError::Busy`]: some region gives the right to write to the contents;
    /// [`ObjectError::Device`]: a device has none. Nothing changed.
    pub fn seal(self, object: &Object, seals: Seals) -> Result<(), ObjectError> {
        Resize(&self.0.layers).seal(object, seals)
    }

    /// Makes so many bytes from `offset` on zero, and frees the pages that lie among them as a
    /// whole. Past the end there is nothing to do. Where a pager has the contents zeros are written
    /// instead, and the pages stay. The caller holds no lock.
    ///
    /// # Errors
    /// With a pager or a log only, as [`write`](Objects::write); [`ObjectError::Sealed`],
    /// [`ObjectError::Device`].
    pub fn punch(self, object: &Object, offset: u64, bytes: u64) -> Result<(), ObjectError> {
        Resize(&self.0.layers).punch(object, offset, bytes)
    }

    /// Makes one block of 2 MiB of the pages around a byte, as Linux's `MADV_COLLAPSE`, and says
    /// whether there is one now. Where the object has no page one of zeros is added; where a pager
    /// has the contents, what is absent is read first. Each space that maps the pages maps the
    /// block at its next touch, by entries of 4 KiB where it has a table of those:
    /// [`Advice::Collapse`](crate::Advice::Collapse) takes that away as well.
    ///
    /// `false`, and nothing changed but that pages may have been read: the object has no page there
    /// and no pager, or ends there, or is the kernel's, or somebody has a page in hand. Of one with
    /// a pager or a log also if a page is dirty; its block is clean, is mapped without the right to
    /// write, and the first store to it makes it pages again. The caller holds no lock.
    ///
    /// # Errors
    /// [`ObjectError::NoMemory`], [`ObjectError::Io`], [`ObjectError::Stopped`],
    /// [`ObjectError::Device`]; nothing changed but that pages were read.
    pub fn collapse(self, object: &Object, offset: u64) -> Result<bool, ObjectError> {
        CollapseObject(&self.0.layers).collapse(object, offset)
    }

    /// Makes pages of the block around a byte, if there is one. The caller holds no lock.
    ///
    /// # Errors
    /// [`ObjectError::NoMemory`]: it takes a frame; nothing changed.
    pub fn split(self, object: &Object, offset: u64) -> Result<(), ObjectError> {
        CollapseObject(&self.0.layers).split(object, offset)
    }

    /// The first byte from `offset` on that lies in a page which the object has, as lseek's
    /// `SEEK_DATA`. `None`, for which lseek has `ENXIO`: there is none before the object's end.
    ///
    /// A page counts as a whole: also one that was written zeros, or read through a mapping, has
    /// data. Of a device, or an object with a pager, all is data. No page is made. The answer was
    /// true at one moment of the call. The call takes the object's guard; the caller holds no lock.
    pub fn next_data(self, object: &Object, offset: u64) -> Option<u64> {
        Sparse(&self.0.layers).next_data(object, offset)
    }

    /// The first byte from `offset` on that lies in no page, as lseek's `SEEK_HOLE`. The object's
    /// end counts as a hole, so this is its size, which need not be a multiple of 4096, if every
    /// page up to there is present, or a pager or a device has them. `None`, for which lseek has
    /// `ENXIO`: `offset` is the end, or lies past it.
    ///
    /// No page is made. The answer was a hole at a moment of the call, and each page before it was
    /// present at one, not all of them at the same one: the call takes the object's guard, and
    /// gives it back after 512 pages at most. The caller holds no lock.
    pub fn next_hole(self, object: &Object, offset: u64) -> Option<u64> {
        Sparse(&self.0.layers).next_hole(object, offset)
    }
}
