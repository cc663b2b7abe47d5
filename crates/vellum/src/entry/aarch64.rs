//! aarch64 stage-1 entries, 4 KiB granule, 4 levels (Arm ARM DDI 0487, chapter D8), TTBR0 half.
//!
//! Bits of a valid descriptor: 0 valid, 1 table or page (clear: block), 2..=4 AttrIndx, 6 user
//! (`AP[1]`), 7 read-only (`AP[2]`), 8..=9 inner shareable, 10 access flag, 11 not global, 12..=47
//! address, 51 dirty-bit modifier, 53 and 54 no-execute. With hardware-managed dirty state
//! (FEAT_HAFDBS) a leaf with DBM set and `AP[2]` set is *writable-clean*: hardware clears `AP[2]`
//! on the first write. So writable = DBM, dirty = DBM and not `AP[2]`; a read-only leaf has DBM
//! clear and `AP[2]` set.
//!
//! AttrIndx chooses a memory type of `MAIR_EL1`. Expected there: 0 write-back (`0xff`), 1
//! write-through (`0xbb`), 2 normal and not cacheable (`0x44`), which gathers stores, 3
//! Device-nGnRE (`0x04`): uncached. Only leaves of devices choose another than 0.
//!
//! Invalid descriptors: bit 0 clear, kind in bits 1..=4, payload in bits 12..=63. Not inverted: Arm
//! does not speculate past an invalid descriptor.

use super::{Busy, CacheMode, Codec, Entry, Flags};
use crate::addr::{Level, Pfn, Va};

const VALID: u64 = 1 << 0;
const TABLE: u64 = 1 << 1;
const ATTRIBUTES: u64 = 7 << 2;
const USER: u64 = 1 << 6;
const READ_ONLY: u64 = 1 << 7;
const SHAREABLE: u64 = 3 << 8;
const ACCESS_FLAG: u64 = 1 << 10;
const NOT_GLOBAL: u64 = 1 << 11;
const DBM: u64 = 1 << 51;
const PXN: u64 = 1 << 53;
const UXN: u64 = 1 << 54;
/// One of the bits the processor leaves to software in table descriptors.
const ZEROS: u64 = 1 << 55;
/// One of those in leaves.
const OBJECT: u64 = 1 << 56;
/// The same.
const DEVICE: u64 = 1 << 57;
const TABLE_NO_EXEC: u64 = 3 << 59;
const TABLE_READ_ONLY: u64 = 1 << 62;
const ADDR: u64 = ((1 << 48) - 1) & !0xfff;

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

/// The aarch64 format.
#[derive(Clone, Copy, Debug)]
pub struct Aarch64;

/// Whether a present entry names a table: bit 10 is the table's then, not an access flag.
#[inline]
const fn is_table(raw: u64, level: Level) -> bool {
    level.0 > 1 && raw & TABLE != 0
}

/// A leaf.
#[inline(always)]
fn leaf(p: Pfn, f: Flags, level: Level) -> u64 {
    VALID
        | USER
        | SHAREABLE
        | NOT_GLOBAL
        | PXN
        | if level == Level::ONE { TABLE } else { 0 }
        | if f.write { DBM } else { 0 }
        | if f.write && f.dirty { 0 } else { READ_ONLY }
        | if f.accessed { ACCESS_FLAG } else { 0 }
        | if f.exec { 0 } else { UXN }
        | p.addr()
}

const fn cache_bits(cache: CacheMode) -> u64 {
    match cache {
        CacheMode::WriteBack => 0,
        CacheMode::WriteThrough => 1 << 2,
        CacheMode::WriteCombining => 2 << 2,
        CacheMode::Uncached => 3 << 2,
    }
}

const fn cache_of(raw: u64) -> CacheMode {
    match (raw & ATTRIBUTES) >> 2 {
        0 => CacheMode::WriteBack,
        1 => CacheMode::WriteThrough,
        2 => CacheMode::WriteCombining,
        _ => CacheMode::Uncached,
    }
}

impl Codec for Aarch64 {
    const FRAME: u64 = ADDR;

    #[inline(always)]
    fn encode(entry: Entry, level: Level) -> u64 {
        match entry {
            Entry::Empty => 0,
            Entry::Reserved => RESERVED,
            Entry::Table(p) => VALID | TABLE | p.addr(),
            // Gives no right but to read, whatever the entries below say.
            Entry::ZeroTable(p) => {
                VALID | TABLE | ZEROS | TABLE_NO_EXEC | TABLE_READ_ONLY | p.addr()
            }
            Entry::Leaf(p, f) => leaf(p, f, level),
            Entry::Shared(p, f) => leaf(p, f, level) | OBJECT,
            Entry::Device(p, f, cache) => leaf(p, f, level) | DEVICE | cache_bits(cache),
            Entry::Inaccessible(p) => INACCESSIBLE | p.addr(),
            Entry::Busy(Busy::Page(p)) => PAGE | p.addr(),
            Entry::Busy(Busy::Shared(p)) => SHARED | p.addr(),
            Entry::Busy(Busy::Nothing) => NOTHING,
            Entry::Busy(Busy::Exchange(p)) => EXCHANGE | p.addr(),
            Entry::Busy(Busy::ExchangeNothing) => EXCHANGE_NOTHING,
            Entry::Busy(Busy::Migrate(p)) => MIGRATE | p.addr(),
            Entry::Detached(p) => DETACHED | p.addr(),
        }
    }

    #[inline(always)]
    fn decode(raw: u64, level: Level) -> Entry {
        let pfn = Pfn((raw & ADDR) >> 12);
        if level > Level::ONE && raw & (VALID | TABLE | ZEROS) == VALID | TABLE {
            return Entry::Table(pfn);
        }
        if raw & VALID != 0 {
            if level > Level::ONE && raw & TABLE != 0 {
                return Entry::ZeroTable(pfn);
            }
            let flags = Flags {
                write: raw & DBM != 0,
                exec: raw & UXN == 0,
                accessed: raw & ACCESS_FLAG != 0,
                dirty: raw & DBM != 0 && raw & READ_ONLY == 0,
            };
            return match raw & (OBJECT | DEVICE) {
                0 => Entry::Leaf(pfn, flags),
                OBJECT => Entry::Shared(pfn, flags),
                _ => Entry::Device(pfn, flags, cache_of(raw)),
            };
        }
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
    fn is_accessed(raw: u64, level: Level) -> bool {
        raw & ACCESS_FLAG != 0 || is_table(raw, level)
    }

    #[inline]
    fn unaccessed(raw: u64, level: Level) -> u64 {
        if is_table(raw, level) { raw } else { raw & !ACCESS_FLAG }
    }

    #[inline]
    fn has_cache_mode(_: CacheMode) -> bool {
        true
    }

    fn user_end(_levels: u8) -> Va {
        Va(1 << 48)
    }
}
