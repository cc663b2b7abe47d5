//! One ring a virtual CPU: the CPU pushes, whoever holds the order lock takes.
//!
//! An event is one 64-bit word, so an event is never seen half written.
use crate::children::Pipe;
use crate::exclude::Exclusive;
use crate::flow::carry::Carry;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Words in a ring; also the most events that run together when threads interleave.
pub const WORDS: usize = 8192;

const KIND: u32 = 62;
const ADDR: u64 = (1 << 48) - 1;

/// An event as it travels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// Load or store: address, log2 of size, store?, which instruction of its block (modulo 512),
    /// and whether its address was loaded a moment ago.
    Access { addr: u64, shift: u8, store: bool, tag: u16, dependent: bool },
    /// An instruction line and the instructions that begin in it.
    Fetch { addr: u64, insns: u8 },
    /// The kernel touched 1 to 8192 bytes.
    Kernel { addr: u64, len: u32, write: bool },
}

/// Most bytes in one [`Word::Kernel`].
pub const KERNEL_MAX: u64 = 8192;

/// An access as a word.
#[inline(always)]
pub fn access(addr: u64, shift: u32, store: bool, tag: u64, dependent: bool) -> u64 {
    let flags = u64::from(store) << 51 | u64::from(dependent) << 61;
    (addr & ADDR) | u64::from(shift & 7) << 48 | flags | (tag & 511) << 52
}

/// A line as a word. It doubles as the callback's user data, so that the hot path computes nothing.
pub fn fetch(addr: u64, insns: u8) -> u64 {
    1 << KIND | (addr & ADDR & !63) | u64::from(insns) << 48
}

/// A kernel access as a word.
pub fn kernel(addr: u64, len: u64, write: bool) -> u64 {
    2 << KIND | (addr & ADDR) | (len - 1) << 48 | u64::from(write) << 61
}

/// Back from a word.
#[inline(always)]
pub fn unpack(w: u64) -> Word {
    let addr = w & ADDR;
    match w >> KIND {
        0 => Word::Access {
            addr,
            shift: (w >> 48) as u8 & 7,
            store: w >> 51 & 1 != 0,
            tag: (w >> 52) as u16 & 511,
            dependent: w >> 61 & 1 != 0,
        },
        1 => Word::Fetch { addr: addr & !63, insns: (w >> 48) as u8 & 127 },
        _ => Word::Kernel { addr, len: (w >> 48) as u32 % 8192 + 1, write: w >> 61 & 1 != 0 },
    }
}

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
    words: Box<[UnsafeCell<u64>]>,
    pending: UnsafeCell<Pending>,
    carry: UnsafeCell<Carry>,
}

// SAFETY: a slot is written only by the ring's CPU while it lies outside tail..head, and read only
// by the holder of the order lock while it lies inside; head and tail hand it over with release and
// acquire. `pending` and `carry` are touched only by the ring's CPU.
unsafe impl Sync for Ring {}

impl Ring {
    pub fn new() -> Ring {
        Ring {
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            words: (0..WORDS).map(|_| UnsafeCell::new(0)).collect(),
            pending: UnsafeCell::new(Pending::default()),
            carry: UnsafeCell::new(Carry::new()),
        }
    }

    /// Appends a word unless the ring is full.
    ///
    /// # Safety
    /// Only the ring's own CPU may call this.
    #[inline(always)]
    pub unsafe fn push(&self, word: u64) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        if head.wrapping_sub(self.tail.load(Ordering::Acquire)) == WORDS {
            return false;
        }
        let slot = &self.words[head % WORDS];
        // SAFETY: the slot is outside tail..head and we are the only writer.
        unsafe { *slot.get() = word };
        self.head.store(head.wrapping_add(1), Ordering::Release);
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
        for i in 0..n {
            let slot = &self.words[tail.wrapping_add(i) % WORDS];
            // SAFETY: the slot is inside tail..head, so its CPU does not write it.
            out.push(unsafe { *slot.get() });
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

    /// Which registers of this CPU hold a loaded value.
    ///
    /// # Safety
    /// Only the ring's own CPU may call this, and must not keep the reference across callbacks.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    pub unsafe fn carry(&self) -> &mut Carry {
        // SAFETY: as stated above, nobody else looks.
        unsafe { &mut *self.carry.get() }
    }
}
