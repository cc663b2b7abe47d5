//! The handle of a small object: its physical address, which is the same on every host.

use core::num::NonZeroU64;
use core::ptr::NonNull;

use crate::addr::{PAGE_SIZE, PFN_END, Pfn};
use crate::machine::Machine;

const _: () = assert!(PFN_END * PAGE_SIZE as u64 == 1 << 48);

/// An object of a slab: its physical address, which is even, + 1; below 2^49.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub(crate) struct SlabRef(NonZeroU64);

impl SlabRef {
    #[inline]
    pub(crate) fn new(pfn: Pfn, offset: usize) -> SlabRef {
        SlabRef(NonZeroU64::MIN.saturating_add(pfn.addr() + offset as u64))
    }
    /// What [`raw`](SlabRef::raw) gave; `None` for 0.
    #[inline]
    pub fn from_raw(raw: u64) -> Option<SlabRef> {
        NonZeroU64::new(raw).map(SlabRef)
    }
    /// A number that is not 0 and below 2^49.
    #[inline]
    pub fn raw(self) -> u64 {
        self.0.get()
    }
    /// The frame it lies in.
    #[inline]
    pub fn pfn(self) -> Pfn {
        // The 1 is the lowest bit.
        Pfn(self.raw() / PAGE_SIZE as u64)
    }
    #[inline]
    pub(crate) fn offset(self) -> usize {
        self.raw() as usize & (PAGE_SIZE - 2)
    }
    /// Where it is. Valid until the object is freed.
    #[inline]
    pub fn ptr<M: Machine>(self, m: &M) -> NonNull<u8> {
        // SAFETY: the offset is below the page's 4096 bytes, all of which `direct` makes valid.
        unsafe { m.direct(self.pfn()).add(self.offset()) }
    }
}
