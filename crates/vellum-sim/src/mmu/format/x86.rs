//! x86_64 entries: Intel SDM volume 3A, section 4.5 (tables 4-14 to 4-20); AMD APM volume 2,
//! section 5.3.
//!
//! Reserved and therefore malformed when set in a present entry: bit 7 in entries of level 4 and 5,
//! address bits below the size of a large leaf (bits 13 to 20 or 13 to 29; bit 12 is PAT), and bits
//! 52 and up of the address that no machine has. Bits 52 to 58 are ignored, 59 to 62 are a
//! protection key that only counts when enabled; neither is enabled here.

use super::{Format, Meaning, Rights};

/// The x86_64 format.
#[derive(Clone, Copy, Debug)]
pub struct X86;

const P: u64 = 1;
const RW: u64 = 1 << 1;
const US: u64 = 1 << 2;
const A: u64 = 1 << 5;
const D: u64 = 1 << 6;
const PS: u64 = 1 << 7;
const XD: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

impl Format for X86 {
    type Codec = vellum::entry::X86_64;
    const NAME: &'static str = "x86_64";
    const TABLES_ACCESSED: bool = true;

    #[inline(always)]
    fn meaning(raw: u64, level: u8) -> Meaning {
        if raw & P == 0 {
            return Meaning::Absent;
        }
        let rights = Rights {
            write: raw & RW != 0,
            exec: raw & XD == 0,
            user: raw & US != 0,
            accessed: raw & A != 0,
            dirty: raw & D != 0,
        };
        let address = raw & ADDRESS;
        match (level, raw & PS != 0) {
            (1, _) => Meaning::Leaf(address, rights),
            (2 | 3, true) => {
                let size = 1u64 << (12 + 9 * (level as u32 - 1));
                if address & (size - 1) & !0x1000 != 0 {
                    Meaning::Malformed
                } else {
                    Meaning::Leaf(address & !(size - 1), rights)
                }
            }
            (_, true) => Meaning::Malformed,
            (_, false) => Meaning::Table(address, rights),
        }
    }

    /// PAT, PCD and PWT.
    #[inline]
    fn memory_type(raw: u64, level: u8) -> u64 {
        let pat = if level == 1 { raw >> 7 } else { raw >> 12 };
        (pat & 1) << 2 | raw >> 3 & 3
    }

    #[inline(always)]
    fn accessed(raw: u64) -> u64 {
        raw | A
    }

    #[inline(always)]
    fn dirty(raw: u64) -> u64 {
        raw | A | D
    }

    fn user_end(levels: u8) -> u64 {
        1 << (12 + 9 * levels as u32 - 1)
    }
}
