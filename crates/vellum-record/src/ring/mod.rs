//! One ring a virtual CPU: the CPU pushes words ([`word`]), whoever holds the order lock takes.
pub mod word;

use crate::children::Pipe;
use crate::exclude::Exclusive;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Words in a ring; also the most events that run together when threads interleave.
pub const WORDS: usize = 8192;

/// A system call between entry and return.
#[derive(Clone, Copy, Default)]
pub struct Pending {
    pub num: i64,
    pub args: [u64; 6],
    /// Which calls does this CPU keep from running meanwhile?
    pub holds: Option<&'static Exclusive>,
    /// What tells the end of the child that this call makes.
    pub pipe: Option<Pipe>,
}

/// See the file's head.
pub struct Ring {
    head: AtomicUsize,
    tail: AtomicUsize,
    words: [UnsafeCell<u64>; WORDS],
    pending: UnsafeCell<Pending>,
}

// SAFETY: a slot is written only by the ring's CPU while it lies outside tail..head, and read only
// by the holder of the order lock while it lies inside; head and tail hand it over with release and
// acquire. `pending` is touched only by the ring's CPU.
unsafe impl Sync for Ring {}

impl Ring {
    pub fn new() -> Ring {
        Ring {
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            words: [const { UnsafeCell::new(0) }; WORDS],
            pending: UnsafeCell::new(Pending::default()),
        }
    }

    /// Appends words unless there is no room for all.
    ///
    /// # Safety
    /// Only the ring's own CPU may call this.
    #[inline(always)]
    pub unsafe fn push<const N: usize>(&self, words: [u64; N]) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        if head.wrapping_sub(self.tail.load(Ordering::Acquire)) > WORDS - N {
            return false;
        }
        for (i, word) in words.into_iter().enumerate() {
            let slot = &self.words[head.wrapping_add(i) % WORDS];
            // SAFETY: the slot is outside tail..head and we are the only writer.
            unsafe { *slot.get() = word };
        }
        self.head.store(head.wrapping_add(N), Ordering::Release);
        true
    }

    /// Takes everything out.
    ///
    /// # Safety
    /// Only the holder of the order lock may call this.
    pub unsafe fn drain(&self) -> Vec<u64> {
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Relaxed);
        let n = head.wrapping_sub(tail);
        let mut out = Vec::with_capacity(n);
        let from = tail % WORDS;
        let wrapped = (from + n).saturating_sub(WORDS);
        for part in [&self.words[from..from + n - wrapped], &self.words[..wrapped]] {
            // SAFETY: the part is inside tail..head, so its CPU does not write it; an UnsafeCell is
            // laid out as what it holds.
            out.extend_from_slice(unsafe {
                std::slice::from_raw_parts(part.as_ptr().cast::<u64>(), part.len())
            });
        }
        self.tail.store(head, Ordering::Release);
        out
    }

    /// Throws everything away, for a process that must not record.
    pub fn discard(&self) {
        self.tail.store(self.head.load(Ordering::Relaxed), Ordering::Release);
    }

    /// The system call this CPU is in.
    ///
    /// # Safety
    /// Only the ring's own CPU may call this, and must not keep the reference across callbacks.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn pending(&self) -> &mut Pending {
        // SAFETY: as stated above, nobody else looks.
        unsafe { &mut *self.pending.get() }
    }
}
