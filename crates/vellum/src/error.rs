//! What can go wrong, as small enums.
//!
//! One enum per question a caller can ask next. Exhaustion is an ordinary answer: no verb panics on
//! it, and every verb says in its doc what state a failure leaves behind.

use core::fmt;

/// Why three numbers are not a range of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeError {
    /// Start or length is not a multiple of 4096.
    Unaligned,
    /// The length is zero.
    Empty,
    /// The range wraps, or ends past [what programs may map](crate::vm::Vm::user_end).
    OutOfSpace,
    /// A mapping may not begin below 64 KiB: null pointers lead there.
    TooLow,
}

/// There is no frame, or no table node, to be had. The state is as it was before the verb.
///
/// Before a fault or a verb of spaces is refused for want of memory it waits, with nothing held,
/// for its turn and until others have put to use or given back what they had in hand at that
/// moment, and looks again: as long as others use or free memory between two looks, at most 64
/// times. One looks at a time, in the order of arrival. Only pages of exactly its size look for
/// memory in a [pool](crate::vm::Vm::pool).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory;

/// Why a verb on a space was refused. Unless the verb says otherwise, nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceError {
    /// The range is none.
    Range(RangeError),
    /// No frame or table node could be had: see [`NoMemory`].
    NoMemory,
    /// A page of the range lies in no region.
    Unmapped,
    /// Something is mapped there already and the caller did not ask to replace it.
    Occupied,
    /// No hole of that length and alignment exists in the user half.
    NoHole,
    /// The rights asked for are more than the region can give.
    Rights,
    /// The machine has no leaf of that size, or the range is not a multiple of it.
    LeafSize,
    /// A part of an object begins at no multiple of 4096, or ends past its last possible page.
    Part,
    /// A page of the range lies past the end of the object that is mapped there.
    Beyond,
    /// A page of the range could not be read from the pager of the object that is mapped there.
    Io,
    /// The object is a device, of which there are no private views.
    Device,
    /// The object is memory of the kernel's own, which no space maps.
    Kernel,
    /// The task is to end ([`Machine::stop_pending`](crate::machine::Machine::stop_pending)).
    Stopped,
}

impl From<ObjectError> for SpaceError {
    /// What a verb on a space says where one on an object that it maps fails.
    fn from(error: ObjectError) -> SpaceError {
        match error {
            ObjectError::Io => SpaceError::Io,
            ObjectError::Stopped => SpaceError::Stopped,
            ObjectError::Beyond => SpaceError::Beyond,
            ObjectError::Device => SpaceError::Device,
            _ => SpaceError::NoMemory,
        }
    }
}

/// Why a fault could not be served: what a kernel turns into a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultError {
    /// The address lies in no region (`SIGSEGV`, `SEGV_MAPERR`).
    Unmapped,
    /// The region does not give the right asked for (`SIGSEGV`, `SEGV_ACCERR`).
    Rights,
    /// The address lies in a region that maps an object, past the object's end (`SIGBUS`,
    /// `BUS_ADRERR`).
    Beyond,
    /// The address lies in a region that maps an object, whose pager could not read the page
    /// (`SIGBUS`, `BUS_ADRERR`).
    Io,
    /// The address lies in a region that maps a device, whose bytes a program reaches and no verb
    /// (`EFAULT`).
    Device,
    /// No frame or table node could be had: see [`NoMemory`].
    NoMemory,
    /// The task is to end ([`Machine::stop_pending`](crate::machine::Machine::stop_pending)) and
    /// the page was not cleared to its end. Nothing was mapped and the frame went back.
    Stopped,
}

/// Why a verb on an object was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectError {
    /// The range ends past the object's end.
    Beyond,
    /// The object's pager could not read or write a page.
    Io,
    /// The size is more than 2^64 - 4096 bytes.
    Size,
    /// A seal forbids that the size becomes this, or that the contents change.
    Sealed,
    /// The task is to end ([`Machine::stop_pending`](crate::Machine::stop_pending)): it did not
    /// wait for the pager, or clear a block of 2 MiB to its end.
    Stopped,
    /// Nobody logs what is written to the object.
    NotLogged,
    /// The object is not memory of the kernel's own, so its frames may change.
    NotKernel,
    /// Somebody else has the page in hand, or it would have to be waited for; or some region gives
    /// the right to write that is to be sealed.
    Busy,
    /// A device's memory begins or ends at no multiple of 4096, or has no bytes.
    Unaligned,
    /// A device's memory ends past the last frame that an entry can name.
    Address,
    /// Some of a device's memory is the library's.
    Owned,
    /// The machine's entries cannot say that cache mode.
    CacheMode,
    /// The object is a device: its size is fixed, and its bytes no verb reads or writes.
    Device,
    /// No frame could be had: see [`NoMemory`].
    NoMemory,
}

/// Why a page was not taken out of use. Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoisonError {
    /// No page of memory is behind the address: it lies in no region, or nothing was made there
    /// yet.
    NotMapped,
    /// The shared zeros are, in one of their forms.
    Zero,
    /// Memory of a device is, which is not the library's.
    Device,
    /// There is no frame for the copy, or for the tables below a large leaf.
    NoMemory,
}

/// A long clear or copy was broken off, because the task is to end. The frames hold old bytes and
/// new ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stopped;

/// Why a library cannot be set up on a machine: what its topology, or the memory handed in, has
/// wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitError {
    /// The topology has no CPU.
    NoCpu,
    /// More CPUs than [`MAX_CPUS`](crate::machine::MAX_CPUS).
    TooManyCpus,
    /// The topology has no memory node.
    NoNode,
    /// More nodes than [`MAX_NODES`](crate::machine::MAX_NODES).
    TooManyNodes,
    /// A node has no frames.
    EmptyNode,
    /// Two nodes share frames.
    NodesOverlap,
    /// A CPU names a node that does not exist.
    CpuNode,
    /// The nodes together have more frames than 2^31, or one starts above frame 2^36.
    TooLarge,
    /// The memory handed in is not aligned as the layout asked.
    Unaligned,
    /// The number of page-table levels asked for is none the machine walks.
    Levels,
    /// `zero.huge` asks for tables of zeros, which the machine's format does not have.
    ZeroTables,
    /// The switch `numa` names a memory node that the topology does not have.
    NumaNode,
    /// A frame the library needs for itself could not be had.
    NoMemory,
}

/// Why frames cannot be [reserved](crate::vm::Vm::reserve). Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReserveError {
    /// Something was allocated already: the frames may belong to somebody.
    InUse,
    /// Some of the frames are reserved already.
    Twice,
}

/// What a `validate` found wrong. It stops at the first thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// The sentence that does not hold.
    pub what: &'static str,
    /// Where: a frame number, an address or an index, as `what` says.
    pub at: u64,
    /// What was recorded.
    pub expected: u64,
    /// What a recount found.
    pub found: u64,
}

impl Invalid {
    /// A finding.
    pub const fn new(what: &'static str, at: u64, expected: u64, found: u64) -> Invalid {
        Invalid { what, at, expected, found }
    }
}

/// That finding, unless a sentence holds.
#[inline]
pub(crate) fn ensure(
    holds: bool,
    what: &'static str,
    at: u64,
    expected: u64,
    found: u64,
) -> Result<(), Invalid> {
    if holds { Ok(()) } else { Err(Invalid::new(what, at, expected, found)) }
}

/// A switch that does not exist, or a value it does not take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// No switch has that name.
    UnknownSwitch,
    /// The switch does not take that value; the string says what it takes.
    BadValue(&'static str),
}

/// An error that is an error of a verb, too.
macro_rules! is_also {
    ($($from:ty, $to:ty: $how:expr;)*) => {$(
        impl From<$from> for $to {
            fn from(error: $from) -> Self {
                $how(error)
            }
        }
    )*};
}

is_also! {
    NoMemory, SpaceError: |_| SpaceError::NoMemory;
    NoMemory, FaultError: |_| FaultError::NoMemory;
    NoMemory, PoisonError: |_| PoisonError::NoMemory;
    NoMemory, ObjectError: |_| ObjectError::NoMemory;
    Stopped, FaultError: |_| FaultError::Stopped;
    Stopped, ObjectError: |_| ObjectError::Stopped;
    RangeError, SpaceError: SpaceError::Range;
}

/// What errors say.
macro_rules! says {
    ($($error:ty, $self:pat => $text:expr;)*) => {$(
        impl $error {
            fn text(self) -> &'static str {
                let $self = self;
                $text
            }
        }

        impl fmt::Display for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.text())
            }
        }

        impl core::error::Error for $error {}
    )*};
}

says! {
    NoMemory, _ => "out of physical memory";
    Stopped, _ => "the task is to end";
    RangeError, error => match error {
        RangeError::Unaligned => "start and length must be multiples of 4096",
        RangeError::Empty => "the length is zero",
        RangeError::OutOfSpace => "the range ends past what programs may map of the address space",
        RangeError::TooLow => "the range begins below 64 KiB, where nothing is mapped",
    };
    SpaceError, error => match error {
        SpaceError::Range(error) => error.text(),
        SpaceError::NoMemory => NoMemory.text(),
        SpaceError::Unmapped => "part of the range is not mapped",
        SpaceError::Occupied => "part of the range is mapped already",
        SpaceError::NoHole => "no hole of that length",
        SpaceError::Rights => "the region does not allow those rights",
        SpaceError::Stopped => Stopped.text(),
        SpaceError::Part => {
            "a part of an object begins at a multiple of 4096 and ends by page 2^52"
        }
        SpaceError::Beyond => "part of the range lies past the end of the object",
        SpaceError::Io => "a page of the range could not be read",
        SpaceError::Device => "a device has no private views",
        SpaceError::Kernel => "no space maps memory of the kernel's own",
        SpaceError::LeafSize => {
            "the machine has no leaf of that size, or the range is no multiple of it"
        }
    };
    FaultError, error => match error {
        FaultError::Unmapped => "the address is not mapped",
        FaultError::Rights => "the region does not allow that access",
        FaultError::Beyond => "the address lies past the end of the object",
        FaultError::Io => "the page could not be read",
        FaultError::Device => "the address is a device's, which no verb reads or writes",
        FaultError::NoMemory => NoMemory.text(),
        FaultError::Stopped => Stopped.text(),
    };
    ObjectError, error => match error {
        ObjectError::Beyond => "the range ends past the end of the object",
        ObjectError::Io => "a page could not be read or written",
        ObjectError::Size => "an object has at most 2^64 - 4096 bytes",
        ObjectError::Sealed => "a seal of the object forbids it",
        ObjectError::Stopped => Stopped.text(),
        ObjectError::NotLogged => "nobody logs what is written to the object",
        ObjectError::NotKernel => "the object is not memory of the kernel's own",
        ObjectError::Busy => "somebody else has the page in hand, or the right to write",
        ObjectError::Unaligned => {
            "a device's memory begins and ends at multiples of 4096 and has some bytes"
        }
        ObjectError::Address => "a device's memory ends past what an entry can name",
        ObjectError::Owned => "some of the device's memory is the library's",
        ObjectError::CacheMode => "the machine's entries cannot say that cache mode",
        ObjectError::Device => "a device has a fixed size, and no verb reads or writes it",
        ObjectError::NoMemory => NoMemory.text(),
    };
    PoisonError, error => match error {
        PoisonError::NotMapped => "no page is mapped at the address",
        PoisonError::Zero => "the page is the shared zeros",
        PoisonError::Device => "the page is a device's",
        PoisonError::NoMemory => NoMemory.text(),
    };
    InitError, error => match error {
        InitError::NoCpu => "the topology has no CPU",
        InitError::TooManyCpus => "the topology has more than 256 CPUs",
        InitError::NoNode => "the topology has no memory node",
        InitError::TooManyNodes => "the topology has more than 16 memory nodes",
        InitError::EmptyNode => "a memory node has no frames",
        InitError::NodesOverlap => "two memory nodes share frames",
        InitError::CpuNode => "a CPU names a memory node that does not exist",
        InitError::TooLarge => "more memory than 8 TiB, or a frame number above 2^36",
        InitError::Unaligned => "the memory handed in is not aligned as its layout asks",
        InitError::Levels => "the machine does not walk tables of that many levels",
        InitError::ZeroTables => {
            "zero.huge asks for tables of zeros, which the machine's entry format leaves out"
        }
        InitError::NumaNode => "the switch numa names a memory node that the machine does not have",
        InitError::NoMemory => "too little memory for the frames the library needs for itself",
    };
    ReserveError, error => match error {
        ReserveError::InUse => {
            "frames are reserved before the first allocation, and something was allocated already"
        }
        ReserveError::Twice => "some of the frames are reserved already",
    };
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: at {:#x}, {} kept, {} found", self.what, self.at, self.expected, self.found)
    }
}

impl core::error::Error for Invalid {}
