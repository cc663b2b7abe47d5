//! An event as one 64-bit word, so that none is ever seen half written.
use vellum_trace::Flags;

const KIND: u32 = 62;
const ADDR: u64 = (1 << 48) - 1;

/// An event as it travels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// Load or store: address, log2 of size, which instruction of its block (modulo 512), and what
    /// else is known of it.
    Access { addr: u64, shift: u8, tag: u16, flags: Flags },
    /// An instruction line and the instructions that begin in it.
    Fetch { addr: u64, insns: u8 },
    /// The kernel touched 1 to 8192 bytes.
    Kernel { addr: u64, len: u32, write: bool },
}

/// Most bytes in one [`Word::Kernel`].
pub const KERNEL_MAX: u64 = 8192;

/// The kind of an access behind a branch that was predicted wrongly; that of others is 0.
const MISPREDICTED: u64 = 3;

/// An access as a word.
#[inline(always)]
pub fn access(addr: u64, shift: u32, tag: u64, flags: Flags) -> u64 {
    let kind = if flags.mispredicted() { MISPREDICTED << KIND } else { 0 };
    let bits = u64::from(flags.write()) << 51 | u64::from(flags.dependent()) << 61;
    kind | (addr & ADDR) | u64::from(shift & 7) << 48 | bits | (tag & 511) << 52
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
        kind @ (0 | MISPREDICTED) => {
            let mut flags = if w >> 51 & 1 != 0 { Flags::WRITE } else { Flags::READ };
            if w >> 61 & 1 != 0 {
                flags = flags.with(Flags::DEPENDENT);
            }
            if kind == MISPREDICTED {
                flags = flags.with(Flags::MISPREDICTED);
            }
            Word::Access { addr, shift: (w >> 48) as u8 & 7, tag: (w >> 52) as u16 & 511, flags }
        }
        1 => Word::Fetch { addr: addr & !63, insns: (w >> 48) as u8 & 127 },
        _ => Word::Kernel { addr, len: (w >> 48) as u32 % 8192 + 1, write: w >> 61 & 1 != 0 },
    }
}
