//! A region: what may be done with some pages, and by which policy. Immutable once a table node
//! names it.
//!
//! Many intervals, of many spaces after a fork, name one region, and none is counted per fault. To
//! change attributes is to make another region and exchange the handles. `refs` counts them (and
//! a space's memory of its latest region); the last one to go puts the region on the verb's list of
//! deferred frees, which is emptied when no lock-free reader can still hold it.

use crate::addr::Va;
use crate::frame::SlabRef;
use crate::machine::Machine;
use crate::rmap::attachment::Attach;
use crate::space::attrs::{Packed, ViewKind};
use crate::space::{Attrs, Backing, View};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Above, Queue, Token};
use crate::vma::Regions;
use crate::vma::deferred_free::DeferredFree;

use crate::error::NoMemory;

/// A region as slabs keep it: 64 zero bytes at first.
#[repr(C)]
pub(crate) struct Region {
    /// Names of it. Atomic: spaces with different mmap locks share regions.
    pub refs: AtomicU64,
    /// [`Attrs::pack`]. Written before the region is named, never again.
    attrs: AtomicU64,
    /// Added to a page number to give the page's index (wrapping); not zero where pages were moved.
    /// As `attrs`.
    shift: AtomicU64,
    /// Chains regions nobody names: a verb's fresh ones, then its deferred frees. Guarded by being
    /// the verb's own.
    pub next: AtomicU64,
    /// While fresh: the region this one will replace, or of a remap the end of its part.
    origin: AtomicU64,
    /// The attachment of the object that is mapped, 0 for private memory. As `attrs`.
    attachment: AtomicU64,
    /// What the attachment says, so that faults do without it: the object, 0 for none, and what is
    /// added to a page number to give the object's page index.
    object: AtomicU64,
    object_shift: AtomicU64,
}

impl Region {
    #[inline]
    pub fn attrs(&self) -> Attrs {
        self.packed().attrs()
    }
    #[inline]
    pub fn packed(&self) -> Packed {
        Packed(self.attrs.load(Ordering::Relaxed))
    }
    /// Whether the other region means the same.
    pub(super) fn same_attrs(&self, other: &Region) -> bool {
        self.packed() == other.packed() && self.backing() == other.backing()
    }
    /// Whether it is what those attributes would make, unmoved.
    pub fn is_plain(&self, attrs: Attrs) -> bool {
        self.packed() == attrs.pack() && self.shift() == 0
    }
    #[inline]
    pub fn shift(&self) -> u64 {
        self.shift.load(Ordering::Relaxed)
    }
    /// Where its pages come from.
    pub fn backing(&self) -> Backing {
        let (attachment, packed) = (self.attachment(), self.packed());
        let kind = attachment.map_or(ViewKind::Private, |_| packed.view_kind());
        Backing { shift: self.shift(), attachment, kind }
    }
    /// The attachment of the object that is mapped.
    #[inline]
    pub fn attachment(&self) -> Option<SlabRef> {
        SlabRef::from_raw(self.attachment.load(Ordering::Relaxed))
    }
    /// The object that is mapped, and the index of its page at an address; `None` for private
    /// memory, and for a region that is on its way out. The region is seen inside an epoch, or
    /// under the mmap lock.
    #[inline]
    pub fn object_at(&self, va: Va) -> Option<(SlabRef, u64)> {
        let object = SlabRef::from_raw(self.object.load(Ordering::Relaxed))?;
        Some((object, va.page().wrapping_add(self.object_shift.load(Ordering::Relaxed))))
    }
    /// How it shows an object, moved by so many pages; `None` as above. Under the mmap lock.
    pub fn moved_view(&self, pages: u64) -> Option<View> {
        let (object, shift) = self.object_at(Va(0))?;
        let copies = self.packed().is_private_view().then(|| self.shift().wrapping_sub(pages));
        Some(View { object, shift: shift.wrapping_sub(pages), copies })
    }
    /// Forgets both, of a region that nobody names: it was dropped, or is the caller's now.
    pub(super) fn forget_attachment(&self) {
        self.attachment.store(0, Ordering::Relaxed);
        self.object.store(0, Ordering::Relaxed);
    }
    pub fn replaces(&self) -> u64 {
        self.origin.load(Ordering::Relaxed)
    }
    /// Whether `validate` counts in that word.
    pub fn counting(&self) -> bool {
        self.replaces() & COUNTING != 0
    }
    pub fn set_replaces(&self, old: u64) {
        self.origin.store(old, Ordering::Relaxed);
    }
    /// While a remap makes it: where the part of the new place ends that it is for, and whether
    /// its index shift is new.
    pub fn set_part(&self, end: Va, new_shift: bool) {
        self.set_replaces(end.0 | u64::from(new_shift));
    }
    /// The end of that part.
    pub fn part_end(&self) -> u64 {
        self.replaces() & !1
    }
    /// The region of the part behind it.
    pub fn next_part(&self) -> Option<SlabRef> {
        SlabRef::from_raw(self.next.load(Ordering::Relaxed))
    }
    /// The remap is over. Says whether its index shift was new.
    pub fn end_part(&self) -> bool {
        let word = self.replaces();
        self.set_replaces(0);
        word & 1 != 0
    }
    #[inline]
    pub(super) fn share(&self) {
        self.refs.fetch_add(1, Ordering::Relaxed);
    }
}

impl<M: Machine> Regions<M> {
    /// A region's record. The handle must come from an interval the caller may read (inside an
    /// epoch, or under the mmap lock).
    #[inline]
    pub fn region(&self, handle: SlabRef) -> &Region {
        // SAFETY: objects of the region slab are `Region`s (zero is one) of 64 bytes, and stay one
        // while named or while an epoch that saw them named lasts.
        unsafe { handle.ptr(&self.machine).cast::<Region>().as_ref() }
    }

    /// A new region with one reference, the caller's. It names the attachment, too.
    ///
    /// # Errors
    /// There is no memory; or the object was sealed since the caller asked, who asks again.
    pub fn make_region<H: Above<Queue>>(
        &self,
        attrs: Attrs,
        backing: Backing,
        token: &mut Token<H>,
    ) -> Result<SlabRef, NoMemory> {
        let handle = self.regions.alloc(&self.machine, &self.frames, token)?;
        let region = self.region(handle);
        let mut packed = attrs.pack();
        if let Some(attachment) = backing.attachment {
            packed = packed.with_object(backing.kind);
            if packed.writes_object() && !Attach(self).users_of(attachment).begin_writer() {
                self.regions.free(&self.machine, &self.frames, token, handle);
                return Err(NoMemory);
            }
            if backing.kind == ViewKind::Private {
                Attach(self).users_of(attachment).begin_view();
            }
            let attached = Attach(self).attachment(attachment);
            attached.share();
            region.attachment.store(attachment.raw(), Ordering::Relaxed);
            region.object.store(attached.object(), Ordering::Relaxed);
            region.object_shift.store(attached.shift(), Ordering::Relaxed);
        }
        region.attrs.store(packed.0, Ordering::Relaxed);
        region.shift.store(backing.shift, Ordering::Relaxed);
        region.refs.store(1, Ordering::Release);
        Ok(handle)
    }

    /// Takes one reference to a region away; the last one defers its free.
    pub fn drop_region(&self, handle: SlabRef, deferred: &mut DeferredFree) {
        if self.region(handle).refs.fetch_sub(1, Ordering::AcqRel) == 1 {
            deferred.region(self, handle);
        }
    }

    /// What becomes of the caller's reference to a region it has made: the space keeps it in `cell`
    /// for the next verb that wants the same, instead of the one there, or if the verb failed it
    /// goes. Not for one that maps an object, which it would keep from being freed.
    #[cold]
    pub fn keep_region(
        &self,
        cell: &AtomicU64,
        made: SlabRef,
        keep: bool,
        deferred: &mut DeferredFree,
    ) {
        let goes = if keep {
            let old = cell.load(Ordering::Relaxed);
            cell.store(made.raw(), Ordering::Relaxed);
            SlabRef::from_raw(old)
        } else {
            Some(made)
        };
        if let Some(goes) = goes {
            self.drop_region(goes, deferred);
        }
    }
}

/// Whether an object is sealed against the writes that a region of it would give: who makes such a
/// region asks before.
pub(super) fn seal_forbids<M: Machine>(vm: &Regions<M>, backing: Backing, attrs: Attrs) -> bool {
    let gives = |_: &SlabRef| attrs.pack().with_object(backing.kind).writes_object();
    backing.attachment.filter(gives).is_some_and(|at| Attach(vm).users_of(at).is_sealed())
}

/// Added to counts kept in a region's spare word, so that an old value there is told from a count.
pub(crate) const COUNTING: u64 = 1 << 63;
