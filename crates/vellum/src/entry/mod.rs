//! What a page-table entry can mean, apart from how a machine writes it down.
//!
//! The page table is the only map of an address space, so an entry says more than hardware asks:
//! whether a slot belongs to a region that has no page there yet, and, for absent pages, what
//! became of them. Hardware ignores every bit of an entry that is not present, which gives the
//! software kinds their room. A [`Codec`] writes these meanings in the format of one MMU; `x86_64`
//! and `aarch64` are the two.
//!
//! Leaves carry two software bits, which tell `Shared` and `Device` from `Leaf`. Whether a
//! read-only leaf is copy-on-write follows from its region and its frame.

pub mod aarch64;
pub mod x86_64;

use crate::addr::{Level, Pfn, Va};

pub use aarch64::Aarch64;
pub use x86_64::X86_64;

/// Rights and marks of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// May be written without a fault.
    pub write: bool,
    /// May be fetched from.
    pub exec: bool,
    /// Was used since the bit was last cleared.
    pub accessed: bool,
    /// Was written since the bit was last cleared. Never set on a leaf that is not writable:
    /// `protect` and `fork` drop the mark of a page that becomes read-only. The library decides
    /// nothing by it.
    pub dirty: bool,
}

impl Flags {
    /// The flags in the four low bits of a number, for notes in busy entries.
    #[inline]
    pub fn bits(self) -> u64 {
        self.write as u64
            | (self.exec as u64) << 1
            | (self.accessed as u64) << 2
            | (self.dirty as u64) << 3
    }

    /// The opposite of [`Flags::bits`]; ignores the other bits.
    #[inline]
    pub fn from_bits(bits: u64) -> Flags {
        let bit = |n: u32| bits >> n & 1 != 0;
        Flags { write: bit(0), exec: bit(1), accessed: bit(2), dirty: bit(3) }
    }
}

/// What the CPU's caches do with accesses to a device's memory. Each format says which entry of the
/// machine's table of memory types it names for each; the embedder fills that table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CacheMode {
    /// Loads and stores are cached, as those to ordinary memory.
    WriteBack,
    /// Loads are cached; stores go to memory at once.
    WriteThrough,
    /// Nothing is cached, and nothing is loaded that no program asked for: registers.
    Uncached,
    /// Nothing is cached; stores may be gathered and come in another order: frame buffers.
    WriteCombining,
}

/// The meaning of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Nothing is mapped here and no region claims it. All bits zero in every format.
    Empty,
    /// In a region, no page yet. At level 2 and up it stands for everything below the slot.
    Reserved,
    /// The node one level down.
    Table(Pfn),
    /// A table of zeros that everybody shares, one level down. Everything below the slot reads as
    /// zeros. Not at level 1.
    ZeroTable(Pfn),
    /// A mapped block; its size is the level's.
    Leaf(Pfn, Flags),
    /// The same of a page that an object has and the region shares. Only at level 1.
    Shared(Pfn, Flags),
    /// A mapped block of a device's memory, of which no frame is the library's.
    Device(Pfn, Flags, CacheMode),
    /// A resident frame nobody may access through this entry (`PROT_NONE`).
    Inaccessible(Pfn),
    /// Absent while a CPU works on what is mapped here. Whoever else meets it waits.
    Busy(Busy),
    /// A node cut off from the tree, its invalidation under way. Whoever meets it waits.
    Detached(Pfn),
}

impl Entry {
    /// A leaf with other flags; anything else as it is.
    #[inline(always)]
    #[must_use]
    pub fn with_flags(self, flags: Flags) -> Entry {
        match self {
            Entry::Leaf(pfn, _) => Entry::Leaf(pfn, flags),
            Entry::Shared(pfn, _) => Entry::Shared(pfn, flags),
            Entry::Device(pfn, _, cache) => Entry::Device(pfn, flags, cache),
            entry => entry,
        }
    }

    /// A leaf's flags.
    #[inline(always)]
    pub fn flags(self) -> Option<Flags> {
        match self {
            Entry::Leaf(_, flags) | Entry::Shared(_, flags) | Entry::Device(_, flags, _) => {
                Some(flags)
            }
            _ => None,
        }
    }
}

/// Who made an entry busy, and the frame it keeps mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Busy {
    /// A verb takes the page out, or moves it. Only the holder of the space's mmap lock writes and
    /// ends it, so whoever holds that lock knows it for its own.
    Page(Pfn),
    /// The same of an entry that was `Entry::Shared`.
    Shared(Pfn),
    /// The same where no frame is kept: of zeros, and where an entry was reserved.
    Nothing,
    /// A CPU exchanges the entry and comes back to it; the node's transit count is up meanwhile.
    /// Only that CPU ends it; the holder of the mmap lock waits, too.
    Exchange(Pfn),
    /// The same where no frame is kept.
    ExchangeNothing,
    /// As `Exchange`, by a CPU that exchanges every mapping of the frame.
    Migrate(Pfn),
}

impl Busy {
    /// Whether a CPU comes back to the entry, for which the holder of the mmap lock waits.
    #[inline]
    pub fn is_transit(self) -> bool {
        !matches!(self, Busy::Page(_) | Busy::Shared(_) | Busy::Nothing)
    }
}

/// The lowest of the bits of a busy entry that formats leave clear, up to bit 63: whoever made the
/// entry busy keeps a note there of what it was.
pub const NOTE_SHIFT: u32 = 52;

/// The format of one MMU.
///
/// Rules, tested for every format: `decode(encode(e), level) == e` for every entry that is legal at
/// the level; `Empty` is 0; an entry is present to hardware exactly when it is `Table`,
/// `ZeroTable`, `Leaf`, `Shared` or `Device`.
pub trait Codec: Copy + 'static {
    /// Writes a meaning down. `level` is that of the node the entry stands in.
    fn encode(entry: Entry, level: Level) -> u64;
    /// Reads it back.
    fn decode(raw: u64, level: Level) -> Entry;
    /// First address past what programs may map, for a table of `levels` levels: the user half, but
    /// for what must stay empty at its end.
    fn user_end(levels: u8) -> Va;
    /// The bits of a `Leaf` that name its frame, by its physical address. All others follow from
    /// its flags and level, so leaves that agree in them are changed alike: by one exclusive or.
    const FRAME: u64;
    /// Whether a present entry's accessed bit is set; `true` where entries of its kind have none.
    fn is_accessed(raw: u64, level: Level) -> bool;
    /// A present entry with its accessed bit clear, if entries of its kind have one.
    fn unaccessed(raw: u64, level: Level) -> u64;
    /// Frame numbers at or above this do not fit an entry.
    const PFN_END: u64 = crate::addr::PFN_END;
    /// Whether a leaf of a device can say that cache mode.
    fn has_cache_mode(cache: CacheMode) -> bool {
        let _ = cache;
        false
    }
    /// Whether there are tables of zeros, as `zero.huge=table` and `table-private` make them.
    const ZERO_TABLES: bool = true;
}

/// A format without tables of zeros. [`Vm::new`](crate::vm::Vm::new) refuses the switches that
/// would make any, and what serves them is not in the program: 3 % of the library's text.
#[derive(Clone, Copy, Debug)]
pub struct NoZeroTables<C>(core::marker::PhantomData<C>);

impl<C: Codec> Codec for NoZeroTables<C> {
    const FRAME: u64 = C::FRAME;
    const PFN_END: u64 = C::PFN_END;
    const ZERO_TABLES: bool = false;

    #[inline(always)]
    fn encode(entry: Entry, level: Level) -> u64 {
        C::encode(entry, level)
    }

    #[inline(always)]
    fn decode(raw: u64, level: Level) -> Entry {
        match C::decode(raw, level) {
            // Nobody makes one. Said here, it lets the compiler leave out what handles them.
            Entry::ZeroTable(_) => Entry::Empty,
            entry => entry,
        }
    }

    fn user_end(levels: u8) -> Va {
        C::user_end(levels)
    }

    fn is_accessed(raw: u64, level: Level) -> bool {
        C::is_accessed(raw, level)
    }

    fn unaccessed(raw: u64, level: Level) -> u64 {
        C::unaccessed(raw, level)
    }

    fn has_cache_mode(cache: CacheMode) -> bool {
        C::has_cache_mode(cache)
    }
}
