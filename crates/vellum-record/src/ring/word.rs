//! An event as one 64-bit word, so that none is ever seen half written.

const KIND: u32 = 62;
/// The address in a word.
pub const ADDR: u64 = (1 << 48) - 1;
const SHIFT: u32 = 48;
/// The access is a store.
pub const STORE: u64 = 1 << 51;
const PLACE: u32 = 52;

/// An event as it travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// Load or store: address, log2 of size, and the instruction's place in its block.
    Access { addr: u64, shift: u8, store: bool, place: u16 },
    /// A block begins; this is where it is told what it does.
    Enter { at: usize },
    /// An instruction line and the instructions that begin in it.
    Fetch { addr: u64, insns: u8 },
    /// The kernel touched 1 to 8192 bytes.
    Kernel { addr: u64, len: u32, write: bool },
}

/// Most bytes in one [`Word::Kernel`].
pub const KERNEL_MAX: u64 = 8192;

/// What is known of an access before it happens; the rest is [`access`]'s.
pub fn tag(place: usize, shift: u8, store: bool) -> u64 {
    (place as u64 & 511) << PLACE | sized(shift.into()) | if store { STORE } else { 0 }
}

/// The size of an access that is not known before it happens.
#[inline(always)]
pub fn sized(shift: u32) -> u64 {
    u64::from(shift & 7) << SHIFT
}

/// An access as a word.
#[inline(always)]
pub fn access(addr: u64, tag: u64) -> u64 {
    addr & ADDR | tag
}

/// The beginning of a block as a word.
#[inline(always)]
pub fn enter(at: usize) -> u64 {
    1 << KIND | at as u64 & ADDR
}

/// A kernel access as a word.
pub fn kernel(addr: u64, len: u64, write: bool) -> u64 {
    2 << KIND | (addr & ADDR) | (len - 1) << 48 | u64::from(write) << 61
}

/// A line as a word. It doubles as the callback's user data, so that the hot path computes nothing.
pub fn fetch(addr: u64, insns: u8) -> u64 {
    3 << KIND | (addr & ADDR & !63) | u64::from(insns) << 48
}

/// Back from a word.
#[inline(always)]
pub fn unpack(w: u64) -> Word {
    let addr = w & ADDR;
    if w >> KIND == 0 {
        let (shift, place) = ((w >> SHIFT) as u8 & 7, (w >> PLACE) as u16 & 511);
        return Word::Access { addr, shift, store: w & STORE != 0, place };
    }
    match w >> KIND {
        1 => Word::Enter { at: addr as usize },
        2 => Word::Kernel { addr, len: (w >> 48) as u32 % 8192 + 1, write: w >> 61 & 1 != 0 },
        _ => Word::Fetch { addr: addr & !63, insns: (w >> 48) as u8 & 127 },
    }
}
