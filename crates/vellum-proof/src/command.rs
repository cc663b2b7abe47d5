//! An operation with its arguments. A list of commands is a run.
//!
//! A command names addresses by rule ("the next mapped page from here on, as far as it is mapped"),
//! not by what the model held when the command was drawn. So a list from which commands were
//! removed is still valid, which shrinking needs.

use vellum::ReadPattern;
use vellum::addr::{Order, PAGE_SIZE};
use vellum::space::{Access, Advice, Attrs, HugeAdvice, LeafSize, Rights, Seals};
use vellum_host::stress::ops::Op;

use crate::small::SAMPLES;
use crate::source::Source;

/// CPUs there are.
pub const CPUS: usize = 3;
/// Spaces at once.
pub const SIDES: usize = 3;
/// First page of each part of the address space that is used: across a 1 GiB boundary, across a 512
/// GiB boundary, and at a 1 GiB boundary with room behind it.
const AREAS: [u64; 3] = [(1 << 18) - 512, (1 << 27) - 512, 64 << 18];
/// Pages of such a part.
pub const AREA: u64 = 1024;
/// Pages at the low end of the address space that are used.
const LOW: u64 = 32;
/// Objects with a handle at once.
pub const OBJECTS: usize = 6;
/// The slot of the only one that is larger than a block of 2 MiB.
const LARGE: u8 = 2;
/// Pages of an object that are used.
const REACH: u64 = 640;
const PAGE: u64 = PAGE_SIZE as u64;
/// Pages in 1 GiB.
pub const GIANT: u64 = 1 << 18;

/// A place, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageSpot {
    /// That page.
    Page(u64),
    /// So many pages before the end of the user half.
    End(u64),
    /// A page of one of the mappings that the library placed.
    Stray(u8, u64),
}

/// A range, to be found at the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// Where it starts.
    pub at: PageSpot,
    /// Start at the next mapped page instead, if one is near.
    pub near: bool,
    /// End with the first hole.
    pub fit: bool,
    /// Pages.
    pub pages: u64,
    /// Bytes added to the start, and to the length; nearly always 0.
    pub skew: (u16, u16),
}

/// Where a mapping goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapTarget {
    /// There.
    At(PageSpot),
    /// There, over anything.
    Replace(PageSpot),
    /// Anywhere.
    Anywhere,
    /// Where it is.
    Here,
}

/// A byte of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByteSpot {
    /// That byte.
    Byte(u64),
    /// So many bytes before the end.
    End(u64),
    /// So many bytes after it.
    Past(u64),
}

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// `Vm::map`; `true` insists on leaves of 2 MiB.
    Map(MapTarget, Stretch, Rights, Option<HugeAdvice>, bool),
    /// `Vm::unmap`.
    Unmap(Stretch),
    /// `Vm::protect`.
    Protect(Stretch, Rights),
    /// `Vm::remap`, to that many pages or as many as there are.
    Remap(Stretch, MapTarget, Option<u64>),
    /// `Vm::advise`.
    Advise(Stretch, Advice),
    /// A program's access, to a sample of a page.
    Access(PageSpot, bool, Access, u8),
    /// The same page as that many accesses of this CPU ago.
    Again(u8, Access),
    /// `Vm::copy_in` of so many bytes, from a byte of a page on.
    CopyIn(PageSpot, u16, u16),
    /// `Vm::write_forced` likewise.
    Force(PageSpot, u16, u16),
    /// `Vm::copy_out` likewise.
    CopyOut(PageSpot, u16, u16),
    /// `Vm::query`.
    Query(PageSpot),
    /// `Vm::fork`.
    Fork,
    /// `Vm::exit`; the last space stays, or is replaced by a new one when `true`.
    Exit(bool),
    /// `Vm::activate`, or `Vm::deactivate`.
    Switch(bool),
    /// A block of frames is taken.
    Take(Order),
    /// The n-th block is given back.
    Give(u8),
    /// `Frames::drain` of this CPU.
    Drain,
    /// `Vm::poison`.
    Poison(PageSpot),
    /// `Vm::forbid_zeros`.
    Forbid,
    /// `Vm::map_object` of a device, which goes again at once.
    Device,
    /// `Vm::shrink_zeros`.
    Shrink,
    /// `Vm::map_object`, of what begins there in the n-th object. The object is made if it is not
    /// there, by all that follow, too. `true`: `Vm::map_private`.
    MapObject(MapTarget, Stretch, Attrs, (u8, u64), bool),
    /// `Objects::read`, of so many bytes.
    ReadObject(u8, ByteSpot, u32),
    /// `Objects::write` likewise.
    WriteObject(u8, ByteSpot, u32),
    /// `Objects::resize`, to an end there.
    Resize(u8, ByteSpot),
    /// `Objects::punch`, of so many bytes.
    Punch(u8, ByteSpot, u64),
    /// `Objects::next_data` and `Objects::next_hole`.
    Seek(u8, ByteSpot),
    /// `Objects::seal`.
    Seal(u8, Seals),
    /// `Objects::discard`.
    Discard(u8),
    /// `Objects::sync`, of so many bytes.
    Sync(u8, ByteSpot, u64),
    /// `Objects::evict` likewise.
    Evict(u8, ByteSpot, u64),
    /// `Objects::write_back` likewise.
    WriteBack(u8, ByteSpot, u64),
    /// `Objects::will_need` likewise.
    WillNeed(u8, ByteSpot, u64),
    /// `Objects::advise`.
    Pattern(u8, ReadPattern),
    /// `Objects::grab` of so many pages, a store to each, and `Objects::release`.
    Grab(u8, ByteSpot, u8),
    /// `Objects::back` of so many pages, and a store to each.
    Back(u8, ByteSpot, u8),
    /// `Objects::invalidate` of so many bytes.
    Invalidate(u8, ByteSpot, u64),
    /// `Objects::collapse`, or `Objects::split`.
    Block(u8, ByteSpot, bool),
    /// `Objects::harvest`, with room for so many pages.
    Harvest(u8, ByteSpot, u8),
    /// From here on pagers fail to read, and to write.
    Fail(bool, bool),
}

/// A command: who, on what, and what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// The CPU that does it.
    pub cpu: u8,
    /// The space it is done to.
    pub side: u8,
    /// What is done.
    pub act: Operation,
}

impl Command {
    /// Draws one.
    pub fn draw<S: Source>(from: &mut S) -> Command {
        let op = from.op();
        let (cpu, side) = (from.below(CPUS as u64) as u8, from.below(SIDES as u64) as u8);
        Command { cpu, side, act: act(op, from) }
    }
}

fn act<S: Source>(op: Op, from: &mut S) -> Operation {
    match op {
        Op::Map => map(MapTarget::At(spot(from)), from),
        Op::Replace => map(MapTarget::Replace(spot(from)), from),
        Op::MapAnywhere => map(MapTarget::Anywhere, from),
        Op::Unmap => Operation::Unmap(stretch(from, true)),
        Op::Protect => Operation::Protect(stretch(from, true), rights(from)),
        Op::Remap => {
            let old = stretch(from, false);
            let to = match from.below(6) {
                0..3 => MapTarget::At(spot(from)),
                3 => MapTarget::Replace(spot(from)),
                4 => MapTarget::Here,
                _ => MapTarget::Anywhere,
            };
            Operation::Remap(old, to, from.once_in(2).then(|| pages(from, false)))
        }
        Op::DontNeed => Operation::Advise(stretch(from, true), Advice::DontNeed),
        Op::Huge => {
            let advice =
                from.pick(&[Advice::Collapse, Advice::Collapse, Advice::Huge, Advice::NoHuge]);
            let mut range = stretch(from, false);
            if let (Advice::Collapse, PageSpot::Page(page)) = (advice, &mut range.at) {
                *page &= !511;
                range = Stretch { near: false, pages: 512, ..range };
            }
            Operation::Advise(range, advice)
        }
        Op::Populate => {
            Operation::Advise(stretch(from, false), Advice::Populate { write: from.once_in(2) })
        }
        Op::Touch => Operation::Access(spot(from), near(from), Access::Read, from.below(4) as u8),
        Op::Write => Operation::Access(spot(from), near(from), Access::Write, from.below(4) as u8),
        Op::Fetch => Operation::Access(spot(from), near(from), Access::Exec, from.below(4) as u8),
        Op::CopyIn => copy(Operation::CopyIn, from),
        Op::CopyOut => copy(Operation::CopyOut, from),
        Op::Force => copy(Operation::Force, from),
        Op::Query => Operation::Query(spot(from)),
        Op::Fork => Operation::Fork,
        Op::Exit => Operation::Exit(from.once_in(16)),
        Op::Switch => Operation::Switch(!from.once_in(5)),
        Op::Peek => Operation::Again(
            from.below(8) as u8,
            from.pick(&[Access::Read, Access::Read, Access::Write]),
        ),
        Op::Frame => match from.below(2) {
            0 => Operation::Take(Order::new(from.below(10) as u8).unwrap_or(Order::BASE)),
            _ => Operation::Give(from.below(256) as u8),
        },
        Op::Rest => Operation::Drain,
        Op::Poison => Operation::Poison(spot(from)),
        Op::Forbid => Operation::Forbid,
        Op::Shrink => Operation::Shrink,
        Op::MapObject => map_object(from, false),
        Op::MapPrivate => map_object(from, true),
        Op::ReadObject => Operation::ReadObject(object(from), byte(from), length(from)),
        Op::WriteObject => Operation::WriteObject(object(from), byte(from), length(from)),
        Op::Resize if from.once_in(6) => Operation::Discard(object(from)),
        Op::Resize => Operation::Resize(object(from), byte(from)),
        Op::Sync if from.once_in(4) => Operation::Fail(from.once_in(4), from.once_in(4)),
        Op::Sync => Operation::Sync(object(from), byte(from), span(from)),
        Op::Evict => Operation::Evict(object(from), byte(from), span(from)),
        Op::WriteBack => Operation::WriteBack(object(from), byte(from), span(from)),
        Op::Ahead if from.once_in(4) => {
            let all = [ReadPattern::Normal, ReadPattern::Sequential, ReadPattern::Random];
            Operation::Pattern(object(from), from.pick(&all))
        }
        Op::Ahead => Operation::WillNeed(object(from), byte(from), from.below(40) * PAGE),
        Op::Grab if from.once_in(4) => Operation::Invalidate(object(from), byte(from), span(from)),
        Op::Grab if from.once_in(3) => {
            Operation::Back(object(from), byte(from), from.below(70) as u8)
        }
        Op::Grab => Operation::Grab(object(from), byte(from), from.below(40) as u8),
        Op::Harvest => Operation::Harvest(object(from), byte(from), from.below(40) as u8),
        Op::Punch => {
            let bytes = match from.below(8) {
                0..3 => length(from) as u64,
                3..6 => from.below(90) * PAGE + from.below(PAGE),
                6 => from.below(REACH) * PAGE,
                _ => u64::MAX - from.below(2) * PAGE,
            };
            Operation::Punch(object(from), byte(from), bytes)
        }
        Op::Block => Operation::Block(object(from), byte(from), from.below(3) != 0),
        Op::Seek => Operation::Seek(object(from), byte(from)),
        // Seals never go away but with their object.
        Op::MapDevice => Operation::Device,
        Op::Seal if from.once_in(2) => Operation::Discard(object(from)),
        Op::Seal => {
            let write = from.once_in(3);
            let seals = Seals { shrink: from.once_in(2), grow: from.once_in(2), write };
            Operation::Seal(object(from), seals)
        }
    }
}

fn map_object<S: Source>(from: &mut S, private: bool) -> Operation {
    if from.once_in(8) {
        return map_blocks(from, private);
    }
    let to = match from.below(8) {
        0..5 => MapTarget::At(spot(from)),
        5..7 => MapTarget::Replace(spot(from)),
        _ => MapTarget::Anywhere,
    };
    let range = Stretch {
        at: PageSpot::Page(0),
        near: false,
        fit: false,
        pages: pages(from, false),
        skew: skew(from),
    };
    let thp = from.pick(&[None, Some(HugeAdvice::Huge)]);
    let leaf = match from.below(32) {
        0..24 => LeafSize::Policy,
        24..31 => LeafSize::Exactly(Order::BASE),
        _ => LeafSize::Exactly(Order::HUGE),
    };
    let offset = match from.below(32) {
        0..8 => 0,
        8..16 => from.below(8) * PAGE,
        16..30 => from.below(REACH) * PAGE,
        30 => (u64::MAX - from.below(20) * PAGE) & !(PAGE - 1),
        _ => from.below(REACH) * PAGE + from.below(PAGE),
    };
    let attrs = Attrs { rights: rights(from), thp, numa: None, leaf };
    Operation::MapObject(to, range, attrs, (object(from), offset), private)
}

/// Where blocks of 2 MiB fit, mostly.
fn map_blocks<S: Source>(from: &mut S, private: bool) -> Operation {
    let to = MapTarget::Replace(PageSpot::Page(AREAS[0] + (from.below(AREA) & !511)));
    let (at, pages) = (PageSpot::Page(0), 512 + from.below(2) * 80);
    let range = Stretch { at, near: false, fit: false, pages, skew: (0, 0) };
    let thp = Some(HugeAdvice::Huge);
    let attrs = Attrs { rights: Rights::READ_WRITE, thp, numa: None, leaf: LeafSize::Policy };
    let offset = if from.once_in(4) { from.below(REACH) * PAGE } else { 0 };
    Operation::MapObject(to, range, attrs, (LARGE, offset), private)
}

fn object<S: Source>(from: &mut S) -> u8 {
    from.below(OBJECTS as u64) as u8
}

fn byte<S: Source>(from: &mut S) -> ByteSpot {
    match from.below(16) {
        // Mostly about a sample.
        0..3 => {
            ByteSpot::Byte(from.below(REACH) * PAGE + from.pick(&SAMPLES) as u64 + from.below(6))
        }
        3..6 => ByteSpot::Byte(from.below(REACH) * PAGE + from.below(PAGE)),
        6..9 => ByteSpot::Byte(from.below(8) * PAGE + from.below(PAGE)),
        9 => ByteSpot::Byte(from.below(REACH) * PAGE),
        10 => ByteSpot::End(from.below(8)),
        11 => ByteSpot::Past(from.below(2 * PAGE)),
        12..14 => ByteSpot::End(from.below(PAGE)),
        14 => ByteSpot::End(from.below(REACH) * PAGE),
        _ => ByteSpot::Byte(from.pick(&[0, 1 << 63, !(PAGE - 1), u64::MAX])),
    }
}

/// Mostly all of it.
fn span<S: Source>(from: &mut S) -> u64 {
    if from.once_in(3) { from.below(90 * PAGE) } else { u64::MAX }
}

/// Mostly a few words; now and then many pages.
fn length<S: Source>(from: &mut S) -> u32 {
    let bytes = match from.below(8) {
        0 => 1 + from.below(3 * PAGE),
        1 => PAGE * (1 + from.below(3)),
        2 => PAGE * from.below(200) + from.below(PAGE),
        _ => 1 + from.below(16),
    };
    bytes as u32
}

fn map<S: Source>(to: MapTarget, from: &mut S) -> Operation {
    let exactly = from.once_in(16);
    // Room for huge pages is made more often than the rest would make it.
    let whole = from.once_in(4);
    let pages = if exactly || whole { 512 } else { pages(from, true) };
    let to = match to {
        MapTarget::At(PageSpot::Page(page)) if whole => MapTarget::At(PageSpot::Page(page & !511)),
        MapTarget::Replace(PageSpot::Page(page)) if whole => {
            MapTarget::Replace(PageSpot::Page(page & !511))
        }
        to => to,
    };
    let range = Stretch { at: PageSpot::Page(0), near: false, fit: false, pages, skew: skew(from) };
    let thp = from.pick(&[None, None, Some(HugeAdvice::Huge), Some(HugeAdvice::NoHuge)]);
    Operation::Map(to, range, rights(from), thp, exactly)
}

fn copy<S: Source>(act: fn(PageSpot, u16, u16) -> Operation, from: &mut S) -> Operation {
    let at = spot(from);
    // Mostly a few words about a sample; now and then many pages.
    let (start, bytes) = match from.below(4) {
        0 => (from.below(4096), 1 + from.below(3 * 4096)),
        1 => (4096 - 1 - from.below(8), 1 + from.below(16)),
        2 => (0, 4096 * (1 + from.below(3))),
        _ => (2040 + from.below(8), 1 + from.below(16)),
    };
    act(at, start as u16, bytes as u16)
}

fn spot<S: Source>(from: &mut S) -> PageSpot {
    let within = |from: &mut S| {
        let page = from.below(AREA);
        if from.once_in(3) { page & !511 } else { page }
    };
    match from.below(16) {
        0..8 => PageSpot::Page(AREAS[0] + within(from)),
        8..11 => PageSpot::Page(AREAS[1] + within(from)),
        11..14 => PageSpot::Page(AREAS[2] + within(from)),
        14 => match from.below(AREA) {
            n if n < AREA - LOW => PageSpot::End(n),
            // What may be mapped begins in the middle of these.
            n => PageSpot::Page(n - (AREA - LOW)),
        },
        _ => PageSpot::Stray(from.below(4) as u8, from.below(AREA)),
    }
}

fn near<S: Source>(from: &mut S) -> bool {
    !from.once_in(8)
}

fn pages<S: Source>(from: &mut S, giant: bool) -> u64 {
    match from.below(12) {
        0..5 => 1,
        5..9 => 1 + from.below(20),
        9 => 512 * (1 + from.below(2)),
        10 => 1 + from.below(1200),
        _ if giant && from.once_in(4) => GIANT,
        _ => 1 + from.below(64),
    }
}

fn stretch<S: Source>(from: &mut S, giant: bool) -> Stretch {
    Stretch {
        at: spot(from),
        near: near(from),
        fit: near(from),
        pages: pages(from, giant),
        skew: skew(from),
    }
}

fn skew<S: Source>(from: &mut S) -> (u16, u16) {
    if from.once_in(64) { (from.below(2) as u16 * 8, from.below(4096) as u16) } else { (0, 0) }
}

fn rights<S: Source>(from: &mut S) -> Rights {
    match from.below(16) {
        0..10 => Rights::READ_WRITE,
        10..12 => Rights::ALL,
        12..14 => Rights::READ,
        14 => Rights::READ_EXEC,
        _ => Rights::NONE,
    }
}
