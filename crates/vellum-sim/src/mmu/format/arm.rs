//! aarch64 stage-1 descriptors with the 4 KiB granule: Arm ARM DDI 0487, D8.3.
//!
//! The manual counts levels from the root (0 to 3), this project from the leaves (4 to 1). A
//! descriptor with bit 0 clear is invalid; bit 1 clear is a block at the manual's levels 1 and 2
//! and reserved (treated as invalid by hardware) at levels 0 and 3. AP[1] (bit 6) admits EL0, AP[2]
//! (bit 7) takes writes away, bit 10 is the access flag, bits 53 and 54 forbid execution. With
//! hardware dirty state (TCR.HD) a set DBM (bit 51) makes a set AP[2] mean "writable, clean". Table
//! descriptors take rights away from what is below: APTable[0] (61) user access, APTable[1] (62)
//! writes, UXNTable (60) execution; they have no access flag.

use super::{Format, Meaning, Rights};

/// The aarch64 format.
#[derive(Clone, Copy, Debug)]
pub struct Arm;

const VALID: u64 = 1;
const TYPE: u64 = 1 << 1;
const AP1: u64 = 1 << 6;
const AP2: u64 = 1 << 7;
const AF: u64 = 1 << 10;
const DBM: u64 = 1 << 51;
const UXN: u64 = 1 << 54;
const UXN_TABLE: u64 = 1 << 60;
const AP_TABLE_USER: u64 = 1 << 61;
const AP_TABLE_WRITE: u64 = 1 << 62;
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

impl Format for Arm {
    type Codec = vellum::entry::Aarch64;
    const NAME: &'static str = "aarch64";
    const TABLES_ACCESSED: bool = false;

    #[inline(always)]
    fn meaning(raw: u64, level: u8) -> Meaning {
        if raw & VALID == 0 {
            return Meaning::Absent;
        }
        let address = raw & ADDRESS;
        if raw & TYPE != 0 && level > 1 {
            let rights = Rights {
                write: raw & AP_TABLE_WRITE == 0,
                exec: raw & UXN_TABLE == 0,
                user: raw & AP_TABLE_USER == 0,
                accessed: true,
                dirty: false,
            };
            return Meaning::Table(address, rights);
        }
        let leaf = if level == 1 { raw & TYPE != 0 } else { level <= 3 };
        let size = 1u64 << (12 + 9 * (level as u32 - 1));
        if !leaf || address & (size - 1) != 0 {
            return Meaning::Malformed;
        }
        Meaning::Leaf(
            address,
            Rights {
                write: raw & AP2 == 0 || raw & DBM != 0,
                exec: raw & UXN == 0,
                user: raw & AP1 != 0,
                accessed: raw & AF != 0,
                dirty: raw & AP2 == 0,
            },
        )
    }

    /// AttrIndx.
    #[inline]
    fn memory_type(raw: u64, _level: u8) -> u64 {
        raw >> 2 & 7
    }

    #[inline(always)]
    fn accessed(raw: u64) -> u64 {
        raw | AF
    }

    #[inline(always)]
    fn dirty(raw: u64) -> u64 {
        (raw | AF) & !AP2
    }

    fn user_end(_levels: u8) -> u64 {
        1 << 48
    }
}
