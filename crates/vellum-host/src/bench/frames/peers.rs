//! What a frame allocator needs for the benchmark, and the peers of ours.
//!
//! The crates from the registry are single-threaded, so they get the cheapest lock there is: one
//! swap to take it and one store to release it. The floor is no allocator: a stack of frame numbers
//! for each CPU behind the same lock, with one order and no balancing. Nothing that any CPU may
//! call can be faster.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};

use bitmap_allocator::{BitAlloc, BitAlloc1M};
use buddy_system_allocator::FrameAllocator;

/// Frames every allocator manages: 4 GiB.
pub const FRAMES: u64 = 1 << 20;

/// A frame allocator.
pub trait Allocator: Sync {
    /// Its name in reports.
    const NAME: &'static str;
    /// Whether it serves orders above 0.
    const ORDERS: bool = true;
    /// Runs `f` as CPU `cpu`.
    fn on_cpu<R>(&self, cpu: usize, f: impl FnOnce() -> R) -> R {
        let _ = cpu;
        f()
    }
    /// A block of 2^order frames.
    fn alloc(&self, cpu: usize, order: u8) -> Option<u32>;
    /// Gives one back.
    fn free(&self, cpu: usize, first: u32, order: u8);
}

/// One swap to lock, one store to unlock.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct SwapLock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only between the swap and the store.
unsafe impl<T: Send> Sync for SwapLock<T> {}

impl<T> SwapLock<T> {
    /// An open lock around a value.
    pub fn new(value: T) -> SwapLock<T> {
        SwapLock { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }
    /// Runs `f` with the value.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        while self.taken.swap(true, Ordering::Acquire) {
            while self.taken.load(Ordering::Relaxed) {
                spin_loop();
            }
        }
        // SAFETY: we hold the lock.
        let result = f(unsafe { &mut *self.value.get() });
        self.taken.store(false, Ordering::Release);
        result
    }
}

/// The crate `buddy_system_allocator`.
pub struct Buddy(SwapLock<FrameAllocator<20>>);

impl Buddy {
    /// With all frames free.
    pub fn new() -> Buddy {
        let mut frames = FrameAllocator::new();
        frames.add_frame(0, FRAMES as usize);
        Buddy(SwapLock::new(frames))
    }
}

impl Default for Buddy {
    fn default() -> Self {
        Buddy::new()
    }
}

impl Allocator for Buddy {
    const NAME: &'static str = "buddy";
    #[inline]
    fn alloc(&self, _cpu: usize, order: u8) -> Option<u32> {
        self.0.with(|b| b.alloc(1 << order)).map(|f| f as u32)
    }
    #[inline]
    fn free(&self, _cpu: usize, first: u32, order: u8) {
        self.0.with(|b| b.dealloc(first as usize, 1 << order));
    }
}

/// The crate `bitmap-allocator`.
pub struct Bitmap(SwapLock<Box<BitAlloc1M>>);

impl Bitmap {
    /// With all frames free.
    pub fn new() -> Bitmap {
        let mut bits = Box::<BitAlloc1M>::default();
        bits.insert(0..FRAMES as usize);
        Bitmap(SwapLock::new(bits))
    }
}

impl Default for Bitmap {
    fn default() -> Self {
        Bitmap::new()
    }
}

impl Allocator for Bitmap {
    const NAME: &'static str = "bitmap";
    #[inline]
    fn alloc(&self, _cpu: usize, order: u8) -> Option<u32> {
        let first = self.0.with(|b| match order {
            0 => b.alloc(),
            _ => b.alloc_contiguous(None, 1 << order, order as usize),
        });
        first.map(|f| f as u32)
    }
    #[inline]
    fn free(&self, _cpu: usize, first: u32, order: u8) {
        let done = self.0.with(|b| match order {
            0 => b.dealloc(first as usize),
            _ => b.dealloc_contiguous(first as usize, 1 << order),
        });
        debug_assert!(done, "a peer was given back what it never gave");
    }
}

/// A CPU's stack of frame numbers.
#[derive(Debug)]
pub struct Stack {
    length: usize,
    frames: Box<[u32]>,
}

/// The floor.
pub struct Floor(Vec<SwapLock<Stack>>);

impl Floor {
    /// All frames, dealt evenly to `cpus` CPUs.
    pub fn new(cpus: usize) -> Floor {
        let each = FRAMES as u32 / cpus as u32;
        let stack = |cpu: u32| Stack {
            length: each as usize,
            frames: (cpu * each..(cpu + 1) * each).rev().collect(),
        };
        Floor((0..cpus as u32).map(|cpu| SwapLock::new(stack(cpu))).collect())
    }
    /// Two swaps and two stores on a lock of one's own and nothing between: what a pair of locked
    /// acts costs at least.
    pub fn bare_pair(&self, cpu: usize) {
        for _ in 0..2 {
            self.0[cpu].with(|s| {
                std::hint::black_box(&mut s.length);
            });
        }
    }
}

impl Allocator for Floor {
    const NAME: &'static str = "floor";
    const ORDERS: bool = false;
    #[inline]
    fn alloc(&self, cpu: usize, _order: u8) -> Option<u32> {
        self.0[cpu].with(|s| {
            s.length = s.length.checked_sub(1)?;
            s.frames.get(s.length).copied()
        })
    }
    #[inline]
    fn free(&self, cpu: usize, first: u32, _order: u8) {
        self.0[cpu].with(|s| {
            if let Some(slot) = s.frames.get_mut(s.length) {
                *slot = first;
                s.length += 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn gives_every_frame_once(c: &impl Allocator) {
        let mut seen = HashSet::new();
        for _ in 0..FRAMES {
            assert!(seen.insert(c.alloc(0, 0).expect("a frame")));
        }
        assert_eq!(c.alloc(0, 0), None);
        seen.into_iter().for_each(|f| c.free(0, f, 0));
        assert!(c.alloc(0, 0).is_some());
    }

    #[test]
    fn every_peer_gives_every_frame_once() {
        gives_every_frame_once(&Floor::new(1));
        gives_every_frame_once(&Bitmap::new());
        gives_every_frame_once(&Buddy::new());
    }
}
