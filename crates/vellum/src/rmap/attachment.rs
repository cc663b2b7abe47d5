//! Where an object may be mapped.
//!
//! An *attachment* says: a space, or the spaces of a fork family, may map page `p` of an object at
//! page number `p - shift`. Each region that maps an object names one, and it lasts as long as such
//! a region. So an object's attachments are at times wider than the truth and never narrower, and
//! an unmap needs no memory. Which entries do map the object the page tables tell.
//!
//! The list's lock keeps the attachments on it, and with them the spaces and families they name: a
//! space is freed after its regions, and a family after the regions of its last space.

use crate::error::{Invalid, NoMemory, ensure};
use crate::frame::{Owner, SlabRef};
use crate::machine::Machine;
use crate::platform::over;
use crate::rmap::Rmap;
use crate::space::SpaceRecord;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Above, Attachments, Lock, Queue, Token};

/// The attachments of an object, and who keeps the object. An object's record begins with it.
#[repr(C)]
pub(crate) struct AttachmentList {
    lock: AtomicU32,
    /// Writers that `validate` has found; 0 but for that.
    found: AtomicU32,
    /// The first attachment. Under the lock.
    first: AtomicU64,
    /// Attachments, handles that embedders hold, and verbs that have no handle. Anyone.
    refs: AtomicU64,
    /// Chains objects that nobody keeps; the chain is its holder's own.
    pub next: AtomicU64,
    /// Regions by which programs may write to the object; [`SEALED`]: there are none, and none
    /// comes. Anyone.
    writers: AtomicU64,
    /// Not 0 once there was a private view of it. Anyone, by exchange.
    viewed: AtomicU64,
}

const SEALED: u64 = 1 << 63;

/// An attachment as slabs keep it: 64 zero bytes at first.
#[repr(C)]
pub(crate) struct Attachment {
    /// Regions that name it. Anyone.
    refs: AtomicU64,
    /// The object's handle. For life.
    object: AtomicU64,
    /// Which spaces: an [`Owner`]. Under the list's lock.
    home: AtomicU64,
    /// Subtracted from the object's page index it gives the page number. For life.
    shift: AtomicU64,
    /// The neighbours on the list. Under its lock.
    next: AtomicU64,
    previous: AtomicU64,
}

impl AttachmentList {
    /// Of an object with one handle, mapped nowhere.
    pub fn new() -> AttachmentList {
        let (lock, found) = (AtomicU32::new(0), AtomicU32::new(0));
        let (first, refs, next) = (AtomicU64::new(0), AtomicU64::new(1), AtomicU64::new(0));
        let (writers, viewed) = (AtomicU64::new(0), AtomicU64::new(0));
        AttachmentList { lock, found, first, refs, next, writers, viewed }
    }

    /// A region comes by which programs see it and write to copies.
    pub fn begin_view(&self) {
        self.viewed.fetch_or(1, Ordering::AcqRel);
    }

    /// Whether there was one. Whose region comes later sees what the caller has written before.
    pub fn was_viewed(&self) -> bool {
        self.viewed.fetch_or(0, Ordering::AcqRel) != 0
    }

    /// A region comes by which programs may write. `false`: it may not, and nothing was counted.
    #[must_use]
    pub fn begin_writer(&self) -> bool {
        let is_open = self.writers.fetch_add(1, Ordering::AcqRel) & SEALED == 0;
        if !is_open {
            self.end_writer();
        }
        is_open
    }

    /// The opposite, of a region that programs write by no more.
    pub fn end_writer(&self) {
        self.writers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Forbids such regions for good. `false`: there is one, and nothing changed.
    #[must_use]
    pub fn seal_writes(&self) -> bool {
        let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
        let done = self.writers.compare_exchange(0, SEALED, done, seen);
        done.is_ok() || done.is_err_and(|now| now & SEALED != 0)
    }

    /// Whether they are forbidden.
    pub fn is_sealed(&self) -> bool {
        self.writers.load(Ordering::Acquire) & SEALED != 0
    }

    /// `validate` has found one.
    pub fn note_writer(&self) {
        self.found.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there are, and how many it has found since the last time.
    pub fn take_writers(&self) -> (u64, u64) {
        let writers = self.writers.load(Ordering::Relaxed) & !SEALED;
        (writers, u64::from(self.found.swap(0, Ordering::Relaxed)))
    }

    fn lock(&self) -> &Lock<Attachments> {
        Lock::from_word(&self.lock)
    }

    /// Keeps the object from being freed. The caller knows that something else does, too.
    pub fn keep(&self) {
        self.refs.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes that back. `true`: nobody keeps it any more, and the caller frees it.
    #[must_use]
    pub fn let_go(&self) -> bool {
        self.refs.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Attachment {
    /// The object's handle.
    pub fn object(&self) -> u64 {
        self.object.load(Ordering::Relaxed)
    }

    /// Added to a page number it gives the object's page index (wrapping).
    pub fn shift(&self) -> u64 {
        self.shift.load(Ordering::Relaxed)
    }

    /// One more region names it.
    pub fn share(&self) {
        self.refs.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is done with attachments.
pub(crate) struct Attach<'v, M: Machine>(pub &'v Rmap<M>);

over!(Attach, Rmap);

impl<'v, M: Machine> Attach<'v, M> {
    /// An attachment's record. A region names it, or the caller holds the list's lock.
    pub fn attachment(self, handle: SlabRef) -> &'v Attachment {
        // SAFETY: handles of attachments are objects of 64 bytes that were zero at first and live
        // while they are named.
        unsafe { handle.ptr(&self.0.machine).cast::<Attachment>().as_ref() }
    }

    /// The list of an object that the caller keeps.
    pub fn list_of(self, object: SlabRef) -> &'v AttachmentList {
        // SAFETY: the record of an object begins with the list, and lives while it is kept: by an
        // attachment here.
        unsafe { object.ptr(&self.0.machine).cast::<AttachmentList>().as_ref() }
    }

    /// The same of the object of an attachment that a region names.
    pub fn users_of(self, attachment: SlabRef) -> &'v AttachmentList {
        let object = SlabRef::from_raw(self.attachment(attachment).object());
        // What is named is an attachment of some object.
        self.list_of(object.unwrap_or(attachment))
    }

    /// A new attachment of an object that the caller keeps, named once: of the space alone, even if
    /// it is of a family. A fork shares it. Under the mmap lock of the space, so none is under way.
    pub fn attach<H: Above<Attachments> + Above<Queue>>(
        self,
        space: &SpaceRecord,
        object: SlabRef,
        shift: u64,
        token: &mut Token<H>,
    ) -> Result<SlabRef, NoMemory> {
        let handle = self.small.alloc(&self.machine, &self.frames, token)?;
        let (made, list) = (self.attachment(handle), self.list_of(object));
        made.refs.store(1, Ordering::Relaxed);
        made.object.store(object.raw(), Ordering::Relaxed);
        made.shift.store(shift, Ordering::Relaxed);
        made.home.store(Owner::Space(space.id()).pack(), Ordering::Relaxed);
        list.keep();
        let _guard = list.lock().lock(&self.machine, token, object.raw());
        let first = list.first.load(Ordering::Relaxed);
        made.next.store(first, Ordering::Relaxed);
        if let Some(first) = SlabRef::from_raw(first) {
            self.attachment(first).previous.store(handle.raw(), Ordering::Relaxed);
        }
        list.first.store(handle.raw(), Ordering::Relaxed);
        Ok(handle)
    }

    /// One region less names it. `true`: it was the last, and the attachment is on no list any
    /// more. Faults may still read it.
    pub fn detach<H: Above<Attachments>>(self, handle: SlabRef, token: &mut Token<H>) -> bool {
        let gone = self.attachment(handle);
        if gone.refs.fetch_sub(1, Ordering::AcqRel) != 1 {
            return false;
        }
        let Some(object) = SlabRef::from_raw(gone.object()) else { return true };
        let list = self.list_of(object);
        let _guard = list.lock().lock(&self.machine, token, object.raw());
        let (next, previous) =
            (gone.next.load(Ordering::Relaxed), gone.previous.load(Ordering::Relaxed));
        match SlabRef::from_raw(previous) {
            Some(previous) => self.attachment(previous).next.store(next, Ordering::Relaxed),
            None => list.first.store(next, Ordering::Relaxed),
        }
        if let Some(next) = SlabRef::from_raw(next) {
            self.attachment(next).previous.store(previous, Ordering::Relaxed);
        }
        true
    }

    /// Takes back the caller's name of an attachment that no fault has seen by it.
    pub fn unattach<H: Above<Attachments> + Above<Queue>>(
        self,
        handle: SlabRef,
        token: &mut Token<H>,
    ) {
        if self.detach(handle, token) {
            let orphan = self.free_attachment(handle, token);
            debug_assert!(orphan.is_none(), "who attaches an object keeps it");
        }
    }

    /// Frees a detached attachment that no fault reads any more. Says which object nobody keeps
    /// after that, if so.
    pub fn free_attachment<H: Above<Queue>>(
        self,
        handle: SlabRef,
        token: &mut Token<H>,
    ) -> Option<SlabRef> {
        let object = SlabRef::from_raw(self.attachment(handle).object());
        self.small.free(&self.machine, &self.frames, token, handle);
        object.filter(|&object| self.list_of(object).let_go())
    }

    /// The space's attachments are its family's from here on. Under its mmap lock.
    pub fn share_attachment<H: Above<Attachments>>(
        self,
        handle: SlabRef,
        space: &SpaceRecord,
        token: &mut Token<H>,
    ) {
        let shared = self.attachment(handle);
        let Some(object) = SlabRef::from_raw(shared.object()) else { return };
        let _guard = self.list_of(object).lock().lock(&self.machine, token, object.raw());
        let family = Owner::Family(space.family.load(Ordering::Relaxed));
        shared.home.store(family.pack(), Ordering::Relaxed);
    }

    /// Calls `each` with every space that may map an object, and the shift at which. Spaces that
    /// their forks have not finished are nobody else's to look into: says the lowest number of such
    /// a fork, or the highest number there is. Holds the list's lock, and one family's at a time.
    pub fn for_each_attachment<H: Above<Attachments>>(
        self,
        object: SlabRef,
        token: &mut Token<H>,
        mut each: impl FnMut(&SpaceRecord, u64),
    ) -> u64 {
        let m = &self.machine;
        let list = self.list_of(object);
        let mut guard = list.lock().lock(m, token, object.raw());
        let (mut next, mut unfinished) = (list.first.load(Ordering::Relaxed), u64::MAX);
        while let Some(handle) = SlabRef::from_raw(next) {
            let attachment = self.attachment(handle);
            next = attachment.next.load(Ordering::Relaxed);
            let shift = attachment.shift();
            match Owner::unpack(attachment.home.load(Ordering::Relaxed)) {
                Owner::Space(space) => {
                    if let Some(space) = SlabRef::from_raw(space) {
                        each(self.space_record(space), shift);
                    }
                }
                Owner::Family(family) => {
                    let Some(handle) = SlabRef::from_raw(family) else { continue };
                    let family = self.family(handle);
                    let _guard = family.lock().lock(m, guard.token(), handle.raw());
                    let mut member = self.first_member(family);
                    while let Some(space) = member {
                        if space.is_unfinished() {
                            unfinished = unfinished.min(space.fork());
                        } else {
                            each(space, shift);
                        }
                        member = self.sibling(space);
                    }
                }
                _ => {}
            }
        }
        unfinished
    }

    /// Whether the list is chained both ways and of this object; says how many there are. For
    /// `validate`.
    pub(crate) fn check_attachments(self, object: SlabRef) -> Result<u64, Invalid> {
        let list = self.list_of(object);
        let (mut count, mut before) = (0, 0);
        let mut next = list.first.load(Ordering::Relaxed);
        while let Some(handle) = SlabRef::from_raw(next) {
            let at = self.attachment(handle);
            let check = |what, kept, found| ensure(kept == found, what, handle.raw(), kept, found);
            check("an attachment's object", at.object(), object.raw())?;
            check("an attachment's neighbour", at.previous.load(Ordering::Relaxed), before)?;
            let refs = at.refs.load(Ordering::Relaxed);
            ensure(refs != 0, "regions that name an attachment", handle.raw(), refs, 1)?;
            (before, next) = (next, at.next.load(Ordering::Relaxed));
            count += 1;
        }
        let refs = list.refs.load(Ordering::Relaxed);
        ensure(refs >= count, "who keeps an object", object.raw(), refs, count)?;
        Ok(count)
    }
}

const _: () = assert!(size_of::<Attachment>() <= 64 && size_of::<AttachmentList>() <= 64);
