//! x86_64 entries (Intel SDM volume 3, chapter 4; AMD APM volume 2, chapter 5), 4 and 5 levels.
//!
//! Bits of a present entry: 0 present, 1 writable, 2 user, 5 accessed, 6 dirty, 7 page size (levels
//! 2 and 3), 9 shared zeros (ours, in entries that name tables), 10 page of an object (ours, in
//! leaves), 11 memory of a device (ours, in leaves), 12..=51 frame address, 63 no-execute. Tables
//! give every right; leaves decide.
//!
//! Leaves of devices choose an entry of the page attribute table by bits 3 and 4; all others choose
//! entry 0, and PAT (bit 7, or 12 in a large leaf) is kept 0. Expected in `IA32_PAT`: 0 write-back,
//! 1 write-through, 3 uncached, as a processor starts with, and 2 write-combining, which at first
//! is uncached: so who does not program it loses speed and nothing else. `0x0007_0406_0001_0406`
//! is such a value.
//!
//! Absent entries: bit 0 clear, kind in bits 1..=4, payload in bits 12..=63. Frame payloads are
//! kept with their address bits *inverted*: the processor may speculate past the present bit
//! (L1TF), and an inverted address points above any memory.

use super::{Busy, CacheMode, Codec, Entry, Flags};
use crate::addr::{Level, PAGE_SIZE, Pfn, Va};

const PRESENT: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const WRITE_THROUGH: u64 = 1 << 3;
const CACHE_OFF: u64 = 1 << 4;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const SIZE: u64 = 1 << 7;
/// One of the bits the processor ignores in entries that name tables.
const ZEROS: u64 = 1 << 9;
/// One of the bits the processor ignores in leaves.
const OBJECT: u64 = 1 << 10;
/// The same.
const DEVICE: u64 = 1 << 11;
const NO_EXEC: u64 = 1 << 63;
const ADDR: u64 = ((1 << 52) - 1) & !0xfff;

const KIND: u64 = 0xf << 1;
const RESERVED: u64 = 1 << 1;
const INACCESSIBLE: u64 = 2 << 1;
const PAGE: u64 = 3 << 1;
const DETACHED: u64 = 4 << 1;
const EXCHANGE: u64 = 6 << 1;
const NOTHING: u64 = 7 << 1;
const EXCHANGE_NOTHING: u64 = 8 << 1;
const MIGRATE: u64 = 9 << 1;
const SHARED: u64 = 10 << 1;

/// The x86_64 format.
#[derive(Clone, Copy, Debug)]
pub struct X86_64;

#[inline]
const fn inverted(pfn: Pfn) -> u64 {
    !pfn.addr() & ADDR
}

/// A leaf.
#[inline(always)]
fn leaf(p: Pfn, f: Flags, level: Level) -> u64 {
    PRESENT
        | USER
        | if f.write { WRITE } else { 0 }
        | if f.accessed { ACCESSED } else { 0 }
        | if f.dirty { DIRTY } else { 0 }
        | if f.exec { 0 } else { NO_EXEC }
        | if level > Level::ONE { SIZE } else { 0 }
        | p.addr()
}

const fn cache_bits(cache: CacheMode) -> u64 {
    match cache {
        CacheMode::WriteBack => 0,
        CacheMode::WriteThrough => WRITE_THROUGH,
        CacheMode::WriteCombining => CACHE_OFF,
        CacheMode::Uncached => CACHE_OFF | WRITE_THROUGH,
    }
}

const fn cache_of(raw: u64) -> CacheMode {
    match raw & (CACHE_OFF | WRITE_THROUGH) {
        0 => CacheMode::WriteBack,
        WRITE_THROUGH => CacheMode::WriteThrough,
        CACHE_OFF => CacheMode::WriteCombining,
        _ => CacheMode::Uncached,
    }
}

impl Codec for X86_64 {
    const FRAME: u64 = ADDR;

    #[inline(always)]
    fn encode(entry: Entry, level: Level) -> u64 {
        match entry {
            Entry::Empty => 0,
            Entry::Reserved => RESERVED,
            Entry::Table(p) => PRESENT | WRITE | USER | ACCESSED | p.addr(),
            // Gives no right but to read, whatever the entries below say.
            Entry::ZeroTable(p) => PRESENT | USER | ACCESSED | ZEROS | NO_EXEC | p.addr(),
            Entry::Leaf(p, f) => leaf(p, f, level),
            Entry::Shared(p, f) => leaf(p, f, level) | OBJECT,
            Entry::Device(p, f, cache) => leaf(p, f, level) | DEVICE | cache_bits(cache),
            Entry::Inaccessible(p) => INACCESSIBLE | inverted(p),
            Entry::Busy(Busy::Page(p)) => PAGE | inverted(p),
            Entry::Busy(Busy::Shared(p)) => SHARED | inverted(p),
            Entry::Busy(Busy::Nothing) => NOTHING,
            Entry::Busy(Busy::Exchange(p)) => EXCHANGE | inverted(p),
            Entry::Busy(Busy::ExchangeNothing) => EXCHANGE_NOTHING,
            Entry::Busy(Busy::Migrate(p)) => MIGRATE | inverted(p),
            Entry::Detached(p) => DETACHED | inverted(p),
        }
    }

    #[inline(always)]
    fn decode(raw: u64, level: Level) -> Entry {
        // What every walk asks three times: one mask, one compare.
        if level > Level::ONE && raw & (PRESENT | SIZE | ZEROS) == PRESENT {
            return Entry::Table(Pfn((raw & ADDR) >> 12));
        }
        if raw & PRESENT != 0 {
            let pfn = Pfn((raw & ADDR) >> 12);
            if level > Level::ONE && raw & SIZE == 0 {
                return Entry::ZeroTable(pfn);
            }
            let flags = Flags {
                write: raw & WRITE != 0,
                exec: raw & NO_EXEC == 0,
                accessed: raw & ACCESSED != 0,
                dirty: raw & DIRTY != 0,
            };
            return match raw & (OBJECT | DEVICE) {
                0 => Entry::Leaf(pfn, flags),
                OBJECT => Entry::Shared(pfn, flags),
                _ => Entry::Device(pfn, flags, cache_of(raw)),
            };
        }
        let pfn = Pfn((!raw & ADDR) >> 12);
        match raw & KIND {
            RESERVED => Entry::Reserved,
            INACCESSIBLE => Entry::Inaccessible(pfn),
            PAGE => Entry::Busy(Busy::Page(pfn)),
            SHARED => Entry::Busy(Busy::Shared(pfn)),
            NOTHING => Entry::Busy(Busy::Nothing),
            EXCHANGE => Entry::Busy(Busy::Exchange(pfn)),
            EXCHANGE_NOTHING => Entry::Busy(Busy::ExchangeNothing),
            MIGRATE => Entry::Busy(Busy::Migrate(pfn)),
            DETACHED => Entry::Detached(pfn),
            _ => Entry::Empty,
        }
    }

    #[inline]
    fn is_accessed(raw: u64, _: Level) -> bool {
        raw & ACCESSED != 0
    }

    #[inline]
    fn unaccessed(raw: u64, _: Level) -> u64 {
        raw & !ACCESSED
    }

    #[inline]
    fn has_cache_mode(_: CacheMode) -> bool {
        true
    }

    /// The last page of the user half stays empty. A system call in its last bytes would return to
    /// the first address past it, which is not canonical; `sysret` then faults on the user's stack
    /// with the kernel's rights (CVE-2012-0217).
    fn user_end(levels: u8) -> Va {
        Va((1 << if levels == 5 { 56 } else { 47 }) - PAGE_SIZE as u64)
    }
}
