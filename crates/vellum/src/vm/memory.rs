//! Large blocks, clearing, and the shared zeros.

use crate::addr::{Order, Pfn, Va};
use crate::clear::Extent;
use crate::error::{NoMemory, Stopped};
use crate::machine::Machine;
use crate::vm::Vm;

impl<M: Machine> Vm<M> {
    /// Has the pool of `order` hold `blocks` blocks: takes what is missing from the allocator,
    /// gives back what is too much. Of two calls at once the one has the last word that came last.
    /// Blocks come from this CPU's memory node and then from the others; a mapping gets one of the
    /// nodes that its policy allows, the nearest first.
    ///
    /// # Errors
    /// [`NoMemory`] if the allocator has not enough blocks of that size, after it looked as a fault
    /// does; those it had are kept, and freed ones will follow. Always for sizes other than 2 MiB
    /// and 1 GiB. The caller holds no lock.
    #[inline]
    pub fn pool(&self, order: Order, blocks: u64) -> Result<(), NoMemory> {
        self.layers.pool(order, blocks)
    }

    /// Clears frames that are the caller's alone. May be rescheduled: no lock may be held.
    ///
    /// # Errors
    /// [`Stopped`]; some frames hold old bytes.
    ///
    /// # Panics
    /// If the extent has no frames, or its `fault` lies outside.
    ///
    /// # Safety
    /// The caller has every frame of the extent by [`Frames::alloc`](crate::frame::Frames::alloc),
    /// or reserved it, and nobody else uses its memory meanwhile.
    #[inline]
    pub unsafe fn clear_extent(&self, extent: &Extent) -> Result<(), Stopped> {
        // SAFETY: the caller promises the same.
        unsafe { self.layers.clear_extent(extent) }
    }

    /// Copies frames that nobody changes meanwhile to frames that are the caller's alone, otherwise
    /// as [`clear_extent`](Vm::clear_extent).
    ///
    /// # Errors
    /// [`Stopped`]; some frames hold old bytes.
    ///
    /// # Panics
    /// As `clear_extent`.
    ///
    /// # Safety
    /// As for `clear_extent`. As many frames from `from` on are frames of the machine that nobody
    /// stores to, and the runs do not overlap.
    #[inline]
    pub unsafe fn copy_extent(&self, from: Pfn, extent: &Extent) -> Result<(), Stopped> {
        // SAFETY: the caller promises the same.
        unsafe { self.layers.copy_extent(from, extent) }
    }

    /// Clears base frames that lie anywhere, are the caller's alone and are not used at once. Where
    /// the machine has stores around its caches these are used, however few the frames: nobody
    /// misses them there. One fence a portion orders them; a fence for each frame would cost half
    /// the bandwidth.
    ///
    /// # Errors
    /// [`Stopped`]; some frames hold old bytes.
    ///
    /// # Safety
    /// As for [`clear_extent`](Vm::clear_extent), for each of the frames; none is named twice.
    #[inline]
    pub unsafe fn clear_frames(&self, frames: &[(Pfn, Va)]) -> Result<(), Stopped> {
        // SAFETY: the caller promises the same.
        unsafe { self.layers.clear_frames(frames) }
    }

    /// Bytes a second that the last clears on a memory node reached, by the measurements
    /// `clear.batch=auto` goes by; `None` before the first one, or where the clock's rate is
    /// unknown.
    #[inline]
    pub fn clear_bandwidth(&self, node: usize) -> Option<u64> {
        self.layers.clear_bandwidth(node)
    }

    /// First frame and number of the shared zeros that CPUs of a node map; none before the first
    /// space, with `zero.page=off`, or for a node without CPUs of its own colours. With one colour
    /// every node names the same frame.
    #[inline]
    pub fn zeros(&self, node: usize) -> (Pfn, u64) {
        self.layers.zeros(node)
    }

    /// Whether a frame is shared zeros, of any colour and node, or part of the huge page of zeros.
    #[inline]
    pub fn is_zero(&self, pfn: Pfn) -> bool {
        self.layers.is_zero(pfn)
    }

    /// The zero frame that a read of untouched memory at `va` maps on the CPU that asks, if there
    /// are any zeros.
    #[inline]
    pub fn zero_frame(&self, va: Va) -> Option<Pfn> {
        self.layers.zero_frame(va)
    }

    /// Zero faults served by frames of one colour so far, on all CPUs. 0 while there is one colour:
    /// `zero_page_fault` says it then.
    #[inline]
    pub fn zero_faults(&self, colour: usize) -> u64 {
        self.layers.zero_faults(colour)
    }

    /// The first frame of the huge page of zeros, if there is one. For a space that maps it the
    /// answer is the same until it ends.
    #[inline]
    pub fn huge_zero(&self) -> Option<Pfn> {
        self.layers.huge_zero()
    }

    /// Whether a frame is part of the huge page of zeros.
    #[inline]
    pub fn is_huge_zero(&self, pfn: Pfn) -> bool {
        self.layers.is_huge_zero(pfn)
    }

    /// Who holds the huge page of zeros: each space that was counted when it used it, and the
    /// shrinker; 0 if there is none.
    #[inline]
    pub fn huge_zero_references(&self) -> u64 {
        self.layers.huge_zero_references()
    }

    /// The number of base frames that [`shrink_zeros`](Vm::shrink_zeros) would give back now.
    #[inline]
    pub fn shrinkable_zeros(&self) -> u64 {
        self.layers.shrinkable_zeros()
    }

    /// Gives the huge page of zeros back if no space holds it; says how many base frames that were.
    /// The next read that wants it makes a new one. Any CPU, any lock held; never waits.
    #[inline]
    pub fn shrink_zeros(&self) -> u64 {
        self.layers.shrink_zeros()
    }

    /// Makes the huge page of zeros now and keeps it for ever: no use of it is counted from here
    /// on. The caller holds no lock; it may be rescheduled while the page is cleared.
    ///
    /// # Errors
    /// [`NoMemory`], after it looked as a fault does, or at once if the task is to end; nothing
    /// changed.
    #[inline]
    pub fn keep_zeros(&self) -> Result<(), NoMemory> {
        self.layers.keep_zeros()
    }
}
