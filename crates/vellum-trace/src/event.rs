//! What can happen in a trace.
//!
//! An [`Event`] is 16 bytes, so that a block of a quarter million of them stays in a second-level
//! cache while a simulator eats it. The rare, large things (memory system calls) are boxed.
//!
//! Order: events of one thread appear in program order. Events of different threads appear so that
//! an access never precedes the call that made its memory, and a call that takes memory away never
//! precedes an access which happened before it. Between such points the interleaving of threads is
//! coarse (a few thousand events at a time) and a replay is free to run threads side by side;
//! [`Call::order`] numbers the points at which they have to agree.

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A load or store, by the program or by the kernel for it.
    Access {
        /// Which mapping, see [`Map::mapping`].
        mapping: u32,
        /// Bytes, 1 to 64.
        size: u8,
        /// Write, kernel, dependent.
        flags: Flags,
        /// Byte offset inside the mapping.
        offset: u64,
    },
    /// Execution entered a 64-byte instruction line.
    Fetch {
        /// Which mapping.
        mapping: u32,
        /// Instructions that begin in this line and ran before the next `Fetch`; 0 when only the
        /// tail of an instruction reaches into the line.
        insns: u8,
        /// Byte offset of the line inside the mapping, a multiple of 64.
        offset: u64,
    },
    /// The following events belong to this thread.
    Switch {
        /// Thread number.
        thread: u32,
    },
    /// A thread begins. Numbers count from 0 and are never used twice.
    ThreadStart {
        /// Its number.
        thread: u32,
    },
    /// A thread has ended.
    ThreadEnd {
        /// Its number.
        thread: u32,
    },
    /// Events of the current thread that the sampling windows left out here. First touches of pages
    /// are never left out.
    Skip {
        /// Loads and stores left out.
        accesses: u32,
        /// Instructions left out.
        instructions: u64,
    },
    /// A system call that changed the address space or a file, or the end of the program.
    Call(Box<Call>),
}

/// Properties of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Flags(u8);

impl Flags {
    /// A load by the program.
    pub const READ: Flags = Flags(0);
    /// A store by the program.
    pub const WRITE: Flags = Flags(1);
    /// The kernel does it for the program (`read`, `write`, ...).
    pub const KERNEL: Flags = Flags(2);
    /// The address was computed from the value of an earlier load of the same thread that may still
    /// be on its way: no more than about 250 instructions back. Found in the code, not in values;
    /// `docs/trace-format.md` says what is seen and what is not.
    pub const DEPENDENT: Flags = Flags(4);
    /// The first load behind a branch on a loaded value that two bits for each branch predict
    /// wrongly. The core came to it only when the value was there and it had begun anew.
    pub const MISPREDICTED: Flags = Flags(8);

    /// All bits in use.
    pub(crate) const MASK: u8 = 15;

    /// Store or load?
    pub fn write(self) -> bool {
        self.0 & 1 != 0
    }
    /// By the kernel, for the program?
    pub fn kernel(self) -> bool {
        self.0 & 2 != 0
    }
    /// Does the address depend on a load shortly before? See [`Flags::DEPENDENT`].
    pub fn dependent(self) -> bool {
        self.0 & 4 != 0
    }
    /// Is it behind a branch that was predicted wrongly? See [`Flags::MISPREDICTED`].
    pub fn mispredicted(self) -> bool {
        self.0 & 8 != 0
    }
    /// As stored.
    pub fn bits(self) -> u8 {
        self.0
    }
    /// From stored bits; unknown bits give `None`.
    pub fn from_bits(bits: u8) -> Option<Flags> {
        (bits & !Self::MASK == 0).then_some(Flags(bits))
    }
    /// These and those.
    #[must_use]
    pub fn with(self, more: Flags) -> Flags {
        Flags(self.0 | more.0)
    }
}

/// Protection of a mapping, as in `mmap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Prot(pub u8);

impl Prot {
    /// No access.
    pub const NONE: Prot = Prot(0);
    /// Readable.
    pub const READ: Prot = Prot(1);
    /// Writable.
    pub const WRITE: Prot = Prot(2);
    /// Executable.
    pub const EXEC: Prot = Prot(4);

    /// Readable?
    pub fn read(self) -> bool {
        self.0 & 1 != 0
    }
    /// Writable?
    pub fn write(self) -> bool {
        self.0 & 2 != 0
    }
    /// Executable?
    pub fn exec(self) -> bool {
        self.0 & 4 != 0
    }
}

/// What stands behind a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapKind {
    /// Private anonymous memory.
    Anon,
    /// Shared anonymous memory.
    AnonShared,
    /// Private mapping of a file: a write copies the page.
    FilePrivate,
    /// Shared mapping of a file.
    FileShared,
    /// A part of an executable or its interpreter that was there before the first instruction (file
    /// backed and private).
    Image,
    /// Zero-filled tail of such an image.
    ImageBss,
    /// The first thread's stack.
    Stack,
    /// The heap that `brk` moves; its length changes with [`Change::Brk`].
    Heap,
    /// Memory that was touched although the recorder never saw it mapped.
    Unknown,
}

impl MapKind {
    /// Every kind, in the order of their stored numbers.
    pub const ALL: [MapKind; 9] = [
        MapKind::Anon,
        MapKind::AnonShared,
        MapKind::FilePrivate,
        MapKind::FileShared,
        MapKind::Image,
        MapKind::ImageBss,
        MapKind::Stack,
        MapKind::Heap,
        MapKind::Unknown,
    ];

    /// Backed by a file's page cache?
    pub fn is_file(self) -> bool {
        matches!(self, MapKind::FilePrivate | MapKind::FileShared | MapKind::Image)
    }
}

/// A system call that concerns memory or files, as it took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Position among all calls of the recording, from 0, without gaps.
    pub order: u64,
    /// What it changed.
    pub change: Change,
}

/// What a call changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A new mapping.
    Map(Map),
    /// A part of a mapping went away. One `munmap` may give several.
    Unmap {
        /// Which mapping.
        mapping: u32,
        /// Byte offset of the part.
        offset: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// A part of a mapping has other rights now.
    Protect {
        /// Which mapping.
        mapping: u32,
        /// Byte offset of the part.
        offset: u64,
        /// Its length in bytes.
        len: u64,
        /// New rights.
        prot: Prot,
    },
    /// `mremap`: pages of an old part now belong to a new mapping, which a [`Change::Map`] with
    /// [`Map::moved`] announced directly before. The old part is gone.
    Remap {
        /// Old mapping.
        old: u32,
        /// Byte offset of the part in the old mapping.
        offset: u64,
        /// Length of the old part in bytes.
        len: u64,
        /// New mapping; its first `len` bytes carry the old pages.
        new: u32,
    },
    /// `madvise`.
    Advise {
        /// Which mapping.
        mapping: u32,
        /// Byte offset of the part.
        offset: u64,
        /// Its length in bytes.
        len: u64,
        /// Which advice.
        advice: Advice,
    },
    /// The heap mapping now has this length. What a shrinking heap loses is unmapped.
    Brk {
        /// The heap's mapping.
        mapping: u32,
        /// New length in bytes.
        len: u64,
    },
    /// A file appears: before the first call or mapping that names it.
    File {
        /// Number, counting from 0 in order of appearance.
        file: u32,
        /// Its size in bytes now.
        bytes: u64,
        /// Last part of its path, if it was recorded.
        name: Option<String>,
    },
    /// The kernel copied a part of a file to the program. What it wrote in the program's memory is
    /// told by kernel accesses.
    FileRead {
        /// Which file.
        file: u32,
        /// First byte.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// The kernel copied from the program to a file. A write past the end makes the file longer.
    FileWrite {
        /// Which file.
        file: u32,
        /// First byte.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// The file has another size now, and not by a [`Change::FileWrite`].
    FileResize {
        /// Which file.
        file: u32,
        /// New size in bytes.
        bytes: u64,
    },
    /// Changed pages of a part of a file are to be on its device.
    FileSync {
        /// Which file.
        file: u32,
        /// First byte.
        offset: u64,
        /// How many; `u64::MAX`: to the end.
        bytes: u64,
    },
    /// `posix_fadvise`, or `readahead` as 3 (`POSIX_FADV_WILLNEED`).
    FileAdvise {
        /// Which file.
        file: u32,
        /// First byte.
        offset: u64,
        /// How many; `u64::MAX`: to the end.
        bytes: u64,
        /// Linux's number of the advice.
        advice: u32,
    },
    /// The program forked. What the child does is not recorded; the parent's private pages became
    /// copy-on-write.
    Fork {
        /// Its number, counting from 0 in order of appearance: it has the parent's pages until its
        /// [`Change::ChildEnd`]. `None`: it is not known until when, and replayed as if it had
        /// ended at once.
        child: Option<u32>,
    },
    /// A forked child ended or executed another program, so that it has the parent's pages no more.
    ChildEnd {
        /// Its number.
        child: u32,
    },
    /// The program made a child that has its memory until it executes another program (`vfork`,
    /// `posix_spawn`). Nothing becomes copy-on-write.
    Vfork,
    /// The program replaced itself; the recording ends here.
    Exec,
    /// The program ended.
    Exit {
        /// Its exit code.
        code: i32,
    },
}

/// A new mapping. Its number stands for this one reservation for the rest of the trace: a fixed
/// mapping over a part of it gets a number of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// Number, counting from 0 in order of appearance.
    pub mapping: u32,
    /// Bytes, a multiple of 4096; 0 only for a heap that has not grown yet.
    pub len: u64,
    /// Rights.
    pub prot: Prot,
    /// What stands behind it.
    pub kind: MapKind,
    /// Address in the recorded run.
    pub base: u64,
    /// The mapping replaces a part of an older one, which has to keep its relative place: (mapping,
    /// byte offset). The older mapping's pages there are gone, as by unmap.
    pub inside: Option<(u32, u64)>,
    /// Offset in the file in bytes; 0 for memory without one. Fault-around is aligned by address,
    /// but a page cache is indexed by this.
    pub file_offset: u64,
    /// Number of the file, see [`Change::File`]. None for memory without a file, for a file that
    /// the recorder could not ask about (a replay gives the mapping a file of its own), and in
    /// traces of format 1.
    pub file: Option<u32>,
    /// Present before the first instruction or inferred from a touch, not made by a recorded call.
    pub synthetic: bool,
    /// Made by `mremap`: the next call is the [`Change::Remap`] that fills it.
    pub moved: bool,
    /// Asked for with `MAP_POPULATE` (or locked): all pages are present on return.
    pub populate: bool,
}

/// `madvise` advice that means something for memory's contents or page sizes; the rest is kept by
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Advice {
    /// The contents are dropped; the next touch faults (4).
    DontNeed,
    /// The contents may be dropped (8).
    Free,
    /// Huge pages wanted (14).
    HugePage,
    /// Huge pages not wanted (15).
    NoHugePage,
    /// Any other, by Linux's number.
    Other(u32),
}

impl Advice {
    /// From Linux's number.
    pub fn from_raw(raw: u32) -> Advice {
        match raw {
            4 => Advice::DontNeed,
            8 => Advice::Free,
            14 => Advice::HugePage,
            15 => Advice::NoHugePage,
            other => Advice::Other(other),
        }
    }
    /// Linux's number.
    pub fn raw(self) -> u32 {
        match self {
            Advice::DontNeed => 4,
            Advice::Free => 8,
            Advice::HugePage => 14,
            Advice::NoHugePage => 15,
            Advice::Other(other) => other,
        }
    }
}
