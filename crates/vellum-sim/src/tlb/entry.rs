//! What one TLB or walk-cache entry says.

use std::ops::{BitAnd, BitOr, BitOrAssign, Not};

/// The context number that stands for "every context" in keys; no space may have it.
pub const GLOBAL_CONTEXT: u16 = u16::MAX;

/// A leaf size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Deserialize)]
#[repr(u8)]
pub enum PageSize {
    /// 4 KiB
    #[serde(rename = "4K")]
    K4,
    /// 2 MiB
    #[serde(rename = "2M")]
    M2,
    /// 1 GiB
    #[serde(rename = "1G")]
    G1,
}

impl PageSize {
    /// All sizes, smallest first.
    pub const ALL: [PageSize; 3] = [PageSize::K4, PageSize::M2, PageSize::G1];

    /// log2 of the bytes.
    #[inline]
    pub const fn shift(self) -> u32 {
        12 + 9 * self as u32
    }
    /// Bytes of such a page.
    #[inline]
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }
    /// The first address of the page that holds `address`.
    #[inline]
    pub const fn base(self, address: u64) -> u64 {
        address & !(self.bytes() - 1)
    }
}

/// Rights and marks of an entry, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// No bit.
    pub const NONE: Flags = Flags(0);
    /// May be written.
    pub const WRITE: Flags = Flags(1);
    /// May be executed.
    pub const EXECUTE: Flags = Flags(2);
    /// May be used in user mode.
    pub const USER: Flags = Flags(4);
    /// The entry in memory has its dirty bit set.
    pub const DIRTY: Flags = Flags(8);
    /// Matches every context.
    pub const GLOBAL: Flags = Flags(16);
    /// The entry in memory has its accessed bit set.
    pub const ACCESSED: Flags = Flags(32);
    /// The three rights.
    pub const RIGHTS: Flags = Flags(7);

    /// Whether all of `other`'s bits are set.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
    /// These bits and `other`'s if `condition` holds.
    #[inline]
    pub const fn with(self, other: Flags, condition: bool) -> Flags {
        if condition { Flags(self.0 | other.0) } else { self }
    }
}

impl BitOr for Flags {
    type Output = Flags;
    #[inline]
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    #[inline]
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}

impl BitAnd for Flags {
    type Output = Flags;
    #[inline]
    fn bitand(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }
}

impl Not for Flags {
    type Output = Flags;
    #[inline]
    fn not(self) -> Flags {
        Flags(!self.0)
    }
}

/// A cached translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// First virtual address it translates.
    pub va: u64,
    /// Physical byte address that `va` translates to.
    pub frame: u64,
    /// Physical byte address of the leaf entry it was read from.
    pub source: u64,
    /// Whatever its user wants to keep with it.
    pub tag: u32,
    /// The context it belongs to.
    pub ctx: u16,
    /// Bytes it translates: the page's size, or less if this TLB keeps large pages in pieces, or
    /// if the hypervisor's page below is smaller.
    pub size: PageSize,
    /// The page's size in the page table.
    pub leaf: PageSize,
    /// Rights and marks.
    pub flags: Flags,
    /// The leaf entry has changed since (the oracle's mark).
    pub stale: bool,
}

impl Entry {
    /// The physical address that a virtual one in this page translates to.
    #[inline]
    pub const fn translate(&self, va: u64) -> u64 {
        self.frame + (va & (self.size.bytes() - 1))
    }
    /// The part of it that a page of `size` around `va` covers; all of it, if it is not larger.
    #[inline]
    pub(crate) const fn piece(mut self, size: PageSize, va: u64) -> Entry {
        if (size as u8) < self.size as u8 {
            let offset = size.base(va & (self.size.bytes() - 1));
            self.va += offset;
            self.frame += offset;
            self.size = size;
        }
        self
    }
    /// The context to key it by.
    #[inline]
    pub(crate) const fn key_context(&self) -> u16 {
        if self.flags.contains(Flags::GLOBAL) { GLOBAL_CONTEXT } else { self.ctx }
    }
}

/// A cached entry that points to a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableEntry {
    /// First virtual address below it.
    pub va: u64,
    /// Physical byte address of the table it points to.
    pub table: u64,
    /// Physical byte address of the entry itself.
    pub source: u64,
    /// Whatever its user wants to keep with it.
    pub tag: u32,
    /// The context it belongs to.
    pub ctx: u16,
    /// The level of the entry: 2 points to a table of 4 KiB leaves and covers 2 MiB, up to 5.
    pub level: u8,
    /// Rights that this entry and those above it leave.
    pub flags: Flags,
    /// The entry has changed since.
    pub stale: bool,
}

impl TableEntry {
    /// log2 of the bytes an entry of a level covers.
    #[inline]
    pub const fn shift(level: u8) -> u32 {
        12 + 9 * (level as u32 - 1)
    }
    /// Bytes this entry covers.
    #[inline]
    pub const fn bytes(&self) -> u64 {
        1 << Self::shift(self.level)
    }
}
