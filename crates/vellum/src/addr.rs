//! Addresses, page numbers and sizes.
//!
//! Physical frames, virtual addresses and page sizes are different things with the same machine
//! representation, and every virtual-memory subsystem has had a bug that mixed two of them. Here
//! each is a type; conversions exist only between neighbours (a frame number and the frames next to
//! it, an address and the slot it has in a table).

use core::fmt;

/// Bytes in a base page. The formats supported (x86_64, aarch64 with the 4 KiB granule) share it.
pub const PAGE_SIZE: usize = 4096;
/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// Entries in a table node of every level.
pub const ENTRIES: usize = 512;
/// log2 of [`ENTRIES`].
pub const ENTRY_SHIFT: u32 = 9;

/// Frame numbers are below this: 48 address bits, what entries of both formats and the library's
/// own words have room for.
pub(crate) const PFN_END: u64 = 1 << 36;

/// The number of a 4 KiB physical frame (physical address / 4096).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Pfn(pub u64);

impl Pfn {
    /// Physical byte address of the frame's first byte.
    #[inline]
    pub const fn addr(self) -> u64 {
        self.0 << PAGE_SHIFT
    }
    /// The frame `n` frames above this one.
    #[inline]
    pub const fn add(self, n: u64) -> Pfn {
        Pfn(self.0 + n)
    }
    /// Whether the frame starts a naturally aligned block of `order`.
    #[inline]
    pub const fn is_aligned(self, order: Order) -> bool {
        self.0 & (order.frames() - 1) == 0
    }
    /// First frame of the naturally aligned block of `order` that holds this frame.
    #[inline]
    pub const fn align_down(self, order: Order) -> Pfn {
        Pfn(self.0 & !(order.frames() - 1))
    }
}

impl fmt::Debug for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pfn {:#x}", self.0)
    }
}

/// log2 of a block's length in 4 KiB frames: 0 is 4 KiB, 9 is 2 MiB, 18 is 1 GiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Order(u8);

impl Order {
    /// One 4 KiB frame.
    pub const BASE: Order = Order(0);
    /// 2 MiB.
    pub const HUGE: Order = Order(9);
    /// 1 GiB, the largest block there is.
    pub const GIANT: Order = Order(18);

    /// An order from 0 to 18; `None` above.
    #[inline]
    pub const fn new(order: u8) -> Option<Order> {
        if order <= Self::GIANT.0 { Some(Order(order)) } else { None }
    }
    /// The number itself, 0 to 18.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }
    /// Frames in a block of this order.
    #[inline]
    pub const fn frames(self) -> u64 {
        1 << self.0
    }
    /// Bytes in a block of this order.
    #[inline]
    pub const fn bytes(self) -> u64 {
        1 << (self.0 as u32 + PAGE_SHIFT)
    }
}

/// A level of the page table, counted from the leaves: a level-1 node's entries map 4 KiB each,
/// level 2 2 MiB, level 3 1 GiB. The root is level 4 or 5.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Level(pub u8);

impl Level {
    /// Nodes whose entries are 4 KiB leaves.
    pub const ONE: Level = Level(1);
    /// Nodes whose entries map 2 MiB or name a level-1 node.
    pub const TWO: Level = Level(2);
    /// Nodes whose entries map 1 GiB or name a level-2 node.
    pub const THREE: Level = Level(3);

    /// log2 of the bytes one entry of a node of this level covers.
    #[inline]
    pub const fn shift(self) -> u32 {
        PAGE_SHIFT + ENTRY_SHIFT * (self.0 as u32 - 1)
    }
    /// Bytes one entry of a node of this level covers.
    #[inline]
    pub const fn entry_bytes(self) -> u64 {
        1 << self.shift()
    }
    /// Order of the block a leaf at this level maps; `None` above 1 GiB, where no leaf exists.
    #[inline]
    pub const fn leaf_order(self) -> Option<Order> {
        match self.0 {
            1 => Some(Order::BASE),
            2 => Some(Order::HUGE),
            3 => Some(Order::GIANT),
            _ => None,
        }
    }
    /// The slot of `va` in a node of this level.
    #[inline]
    pub const fn slot(self, va: Va) -> usize {
        ((va.0 >> self.shift()) as usize) & (ENTRIES - 1)
    }
    /// The level of the nodes that entries of this level name. Not to be asked of level 1.
    #[inline]
    pub const fn child(self) -> Level {
        Level(self.0 - 1)
    }
}

/// A virtual byte address in the user half. Any value can be held; the verbs check what they are
/// given.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Va(pub u64);

impl Va {
    /// The page the address lies in, as address / 4096.
    #[inline]
    pub const fn page(self) -> u64 {
        self.0 >> PAGE_SHIFT
    }
    /// Byte offset in its 4 KiB page.
    #[inline]
    pub const fn offset(self) -> usize {
        (self.0 & (PAGE_SIZE as u64 - 1)) as usize
    }
    /// Rounded down to a multiple of `bytes`, a power of two.
    #[inline]
    pub const fn align_down(self, bytes: u64) -> Va {
        Va(self.0 & !(bytes - 1))
    }
    /// Whether it is a multiple of `bytes`, a power of two.
    #[inline]
    pub const fn is_aligned(self, bytes: u64) -> bool {
        self.0 & (bytes - 1) == 0
    }
}

impl fmt::Debug for Va {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "va {:#x}", self.0)
    }
}

/// A non-empty, page-aligned range of virtual addresses `[start, end)`. `end` may be the first
/// address past the user half.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VaRange {
    start: Va,
    end: Va,
}

impl VaRange {
    /// The range of `bytes` bytes at `start`, or the reason it is none: unaligned, empty, or past
    /// `top` (or wrapping).
    #[inline]
    pub const fn new(start: Va, bytes: u64, top: Va) -> Result<VaRange, crate::error::RangeError> {
        use crate::error::RangeError;
        if !start.is_aligned(PAGE_SIZE as u64) || bytes & (PAGE_SIZE as u64 - 1) != 0 {
            return Err(RangeError::Unaligned);
        }
        if bytes == 0 {
            return Err(RangeError::Empty);
        }
        match start.0.checked_add(bytes) {
            Some(end) if end <= top.0 => Ok(VaRange { start, end: Va(end) }),
            _ => Err(RangeError::OutOfSpace),
        }
    }
    /// First address.
    #[inline]
    pub const fn start(self) -> Va {
        self.start
    }
    /// First address past the range.
    #[inline]
    pub const fn end(self) -> Va {
        self.end
    }
    /// Length in bytes, at least 4096.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.end.0 - self.start.0
    }
    /// Length in 4 KiB pages, at least 1.
    #[inline]
    pub const fn pages(self) -> u64 {
        self.bytes() >> PAGE_SHIFT
    }
    /// Whether `va` lies in the range.
    #[inline]
    pub const fn contains(self, va: Va) -> bool {
        self.start.0 <= va.0 && va.0 < self.end.0
    }
    /// The part of this range inside `other`, if any.
    #[inline]
    pub fn intersect(self, other: VaRange) -> Option<VaRange> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(VaRange { start, end })
    }
}
