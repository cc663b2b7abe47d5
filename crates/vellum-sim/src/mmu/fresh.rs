//! A walk of the page table as it is now, without caches, time or marks: the oracle compares with
//! it.

use super::format::{Format, Meaning};
use crate::machine::ram::Ram;
use crate::tlb::{Flags, PageSize};

/// What a fresh walk finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fresh {
    /// A leaf.
    Leaf {
        /// Physical address of the block's first byte.
        frame: u64,
        size: PageSize,
        flags: Flags,
        /// Physical address of the leaf entry.
        source: u64,
    },
    /// Nothing present: the table where the walk ended, and the entry it found there.
    Absent { table: u64, raw: u64 },
    /// A reserved bit.
    Malformed { raw: u64, level: u8 },
}

/// The flags of a leaf under tables that left `limits`.
#[inline(always)]
pub(crate) fn flags_of(r: super::format::Rights, limits: Flags) -> Flags {
    let rights = Flags::NONE
        .with(Flags::WRITE, r.write)
        .with(Flags::EXECUTE, r.exec)
        .with(Flags::USER, r.user)
        & limits;
    rights
        .with(Flags::DIRTY, r.dirty && rights.contains(Flags::WRITE))
        .with(Flags::ACCESSED, r.accessed)
}

/// Size of a leaf in a node of `level`, 1 to 3.
#[inline(always)]
pub(crate) fn size_of_level(level: u8) -> PageSize {
    match level {
        1 => PageSize::K4,
        2 => PageSize::M2,
        _ => PageSize::G1,
    }
}

/// Slot of an address in a node of `level`, as a byte offset.
#[inline(always)]
pub(crate) fn offset_of(va: u64, level: u8) -> u64 {
    (va >> (12 + 9 * (level as u32 - 1)) & 511) << 3
}

/// Walks from the root at physical address `root`.
pub(crate) fn walk<F: Format>(ram: &Ram, root: u64, levels: u8, va: u64) -> Fresh {
    let (mut table, mut limits) = (root, Flags::RIGHTS);
    let mut level = levels;
    loop {
        let source = table | offset_of(va, level);
        let raw = ram.load(source);
        match F::meaning(raw, level) {
            Meaning::Absent => return Fresh::Absent { table, raw },
            Meaning::Malformed => return Fresh::Malformed { raw, level },
            Meaning::Leaf(frame, r) => {
                return Fresh::Leaf {
                    frame,
                    size: size_of_level(level),
                    flags: flags_of(r, limits),
                    source,
                };
            }
            Meaning::Table(next, _) if next >> 12 >= ram.frames() || level == 1 => {
                return Fresh::Malformed { raw, level };
            }
            Meaning::Table(next, r) => {
                limits = limits & flags_of(r, Flags::RIGHTS);
                table = next;
                level -= 1;
            }
        }
    }
}
