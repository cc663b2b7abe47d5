//! The state, the place and the machine of the pages when a scenario begins.

use vellum::addr::{Va, VaRange};
use vellum::config::{Config, Thp, ZeroHuge};
use vellum::machine::MmuRules;
use vellum::space::Rights;

use super::acts::{PageChoice, PageRange};
use crate::small::SAMPLES;
use crate::small::disk::Trouble;

/// What was done to the pages before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PageState {
    /// Mapped and never touched.
    Reserved,
    /// Read.
    Read,
    /// Written.
    Private,
    /// Written, then the space forked; the child is there.
    Shared,
    /// Written, then made inaccessible.
    Inaccessible,
    /// Written, then made read-only.
    ReadOnly,
}

/// A state of the pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartState {
    /// Its name, part of a scenario's.
    pub name: &'static str,
    /// What was done to the pages.
    pub kind: PageState,
    /// Huge pages, or places for them.
    pub huge: bool,
    /// All the same the pages are base pages, in a table that can be made a huge page.
    pub small: bool,
    /// What a read of untouched memory maps.
    pub zeros: ZeroHuge,
    /// The page's neighbours are read-only.
    pub island: bool,
    /// That many single frames are left, and no huge block.
    pub frames_left: Option<u8>,
    /// The pages are those of an object.
    pub object: bool,
    /// They lie in blocks of 2 MiB; with `small` entries of 4 KiB map them.
    pub block: bool,
    /// The pages are those of the device.
    pub device: bool,
    /// Who writes them gets copies.
    pub private: bool,
    /// A pager has the object's contents.
    pub paged: bool,
    /// Writes to it are logged.
    pub logged: bool,
    /// The pager answers late.
    pub late: Option<Late>,
}

/// A pager that answers late, by a CPU of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Late {
    /// Pages are read ahead.
    pub ahead: bool,
    /// What goes wrong.
    pub trouble: Trouble,
}

impl StartState {
    /// Whether a space that came of a fork is there.
    pub fn has_child(&self) -> bool {
        self.kind == PageState::Shared
    }
    /// Whether a verb may say that there is no memory.
    pub fn is_scarce(&self) -> bool {
        self.frames_left.is_some()
    }
    /// The switches.
    pub fn config(&self) -> Config {
        let thp = if self.huge && !self.small { Thp::Always } else { Thp::Never };
        // With pages ahead all of the small object comes at once.
        let ahead = self.late.map_or(self.kind == PageState::Read, |late| late.ahead);
        let file_readahead = if ahead { 32 } else { 1 };
        let object_huge = if self.block { Thp::Always } else { Thp::Never };
        Config { thp, zero_huge: self.zeros, object_huge, file_readahead, ..Config::default() }
    }
    /// Where one of the object's pages is in it, as the model numbers them, or its end: in blocks
    /// the third stands for the rest of the first block, and the fourth for the second block.
    pub fn in_object(&self, page: usize) -> u64 {
        let page = page as u64;
        PAGE * if self.block && page > 2 { (page - 2) * (MIB2 / PAGE) } else { page }
    }
}

const fn state(name: &'static str, kind: PageState, huge: bool, zeros: ZeroHuge) -> StartState {
    StartState {
        name,
        kind,
        huge,
        small: false,
        zeros,
        island: false,
        frames_left: None,
        object: false,
        block: false,
        device: false,
        private: false,
        paged: false,
        logged: false,
        late: None,
    }
}
const fn island(name: &'static str, kind: PageState) -> StartState {
    StartState { island: true, ..state(name, kind, false, ZeroHuge::Off) }
}
const fn short(
    name: &'static str,
    kind: PageState,
    huge: bool,
    zeros: ZeroHuge,
    left: u8,
) -> StartState {
    StartState { frames_left: Some(left), ..state(name, kind, huge, zeros) }
}
const fn table(name: &'static str, kind: PageState) -> StartState {
    StartState { small: true, ..state(name, kind, true, ZeroHuge::Off) }
}

const fn object(name: &'static str, kind: PageState, frames_left: Option<u8>) -> StartState {
    StartState { object: true, frames_left, ..state(name, kind, false, ZeroHuge::Off) }
}

const fn block(name: &'static str, kind: PageState, frames_left: Option<u8>) -> StartState {
    StartState { block: true, huge: true, ..object(name, kind, frames_left) }
}

const fn device(name: &'static str, kind: PageState, frames_left: Option<u8>) -> StartState {
    StartState { device: true, frames_left, ..state(name, kind, false, ZeroHuge::Off) }
}

const fn view(name: &'static str, kind: PageState, frames_left: Option<u8>) -> StartState {
    StartState { private: true, ..object(name, kind, frames_left) }
}

const fn paged(name: &'static str, kind: PageState, frames_left: Option<u8>) -> StartState {
    StartState { paged: true, ..object(name, kind, frames_left) }
}

const fn logged(name: &'static str, kind: PageState) -> StartState {
    StartState { logged: true, ..object(name, kind, None) }
}

const fn late(name: &'static str, kind: PageState, ahead: bool, trouble: Trouble) -> StartState {
    StartState { late: Some(Late { ahead, trouble }), ..paged(name, kind, None) }
}

/// A file that ends in the middle of its second page.
const SHORT: Trouble = Trouble::Short(PAGE + SAMPLES[1] as u64);

/// Every state.
pub const STATES: &[StartState] = &[
    state("reserved", PageState::Reserved, false, ZeroHuge::Off),
    state("zero", PageState::Read, false, ZeroHuge::Off),
    state("private", PageState::Private, false, ZeroHuge::Off),
    state("shared", PageState::Shared, false, ZeroHuge::Off),
    state("inaccessible", PageState::Inaccessible, false, ZeroHuge::Off),
    state("readonly", PageState::ReadOnly, false, ZeroHuge::Off),
    island("island-reserved", PageState::Reserved),
    island("island-shared", PageState::Shared),
    table("table-private", PageState::Private),
    state("huge-reserved", PageState::Reserved, true, ZeroHuge::Page),
    state("huge-private", PageState::Private, true, ZeroHuge::Off),
    state("huge-shared", PageState::Shared, true, ZeroHuge::Off),
    state("huge-inaccessible", PageState::Inaccessible, true, ZeroHuge::Off),
    state("huge-zero", PageState::Read, true, ZeroHuge::Page),
    state("zero-table", PageState::Read, true, ZeroHuge::Table),
    state("private-zero-table", PageState::Read, true, ZeroHuge::TablePrivate),
    short("no-huge-reserved", PageState::Reserved, true, ZeroHuge::Page, 16),
    short("no-huge-shared", PageState::Shared, true, ZeroHuge::Off, 16),
    short("no-huge-zero", PageState::Read, true, ZeroHuge::Page, 16),
    short("no-huge-table", PageState::Read, true, ZeroHuge::Table, 16),
    short("none-reserved", PageState::Reserved, false, ZeroHuge::Off, 0),
    short("none-shared", PageState::Shared, false, ZeroHuge::Off, 0),
    short("none-huge-shared", PageState::Shared, true, ZeroHuge::Off, 0),
    short("one-shared", PageState::Shared, false, ZeroHuge::Off, 1),
    short("one-huge-private", PageState::Private, true, ZeroHuge::Off, 1),
    short("one-huge-zero", PageState::Read, true, ZeroHuge::Page, 1),
    short("two-huge-shared", PageState::Shared, true, ZeroHuge::Off, 2),
    short("two-zero-table", PageState::Read, true, ZeroHuge::Table, 2),
    short("three-private", PageState::Private, false, ZeroHuge::Off, 3),
    object("object-reserved", PageState::Reserved, None),
    object("object", PageState::Private, None),
    object("object-shared", PageState::Shared, None),
    object("one-object-reserved", PageState::Reserved, Some(1)),
    object("none-object-shared", PageState::Shared, Some(0)),
    block("block-reserved", PageState::Reserved, None),
    block("block", PageState::Private, None),
    block("block-shared", PageState::Shared, None),
    block("one-block", PageState::Private, Some(1)),
    block("none-block-shared", PageState::Shared, Some(0)),
    StartState { small: true, ..block("block-small", PageState::Private, None) },
    StartState { private: true, ..block("block-view", PageState::Read, None) },
    StartState { logged: true, ..block("block-logged", PageState::Read, None) },
    device("device-reserved", PageState::Reserved, None),
    device("device", PageState::Private, None),
    device("device-shared", PageState::Shared, None),
    device("none-device", PageState::Private, Some(0)),
    view("view", PageState::Read, None),
    view("view-shared", PageState::Shared, None),
    view("one-view", PageState::Read, Some(1)),
    paged("paged-reserved", PageState::Reserved, None),
    paged("paged-read", PageState::Read, None),
    paged("paged", PageState::Private, None),
    paged("paged-shared", PageState::Shared, None),
    paged("one-paged", PageState::Read, Some(1)),
    logged("logged", PageState::Read),
    logged("logged-shared", PageState::Shared),
    late("late", PageState::Reserved, false, Trouble::None),
    late("late-once", PageState::Reserved, false, Trouble::ReadOnce),
    late("late-ahead", PageState::Reserved, true, Trouble::ReadOnce),
    late("late-bad", PageState::Reserved, true, Trouble::BadPage(1)),
    late("late-short", PageState::Reserved, true, SHORT),
    late("late-clean", PageState::Read, false, Trouble::ReadOnce),
    late("late-dirty", PageState::Private, false, Trouble::WriteHalf),
    late("late-shared", PageState::Shared, false, Trouble::WriteOnce),
    StartState { private: true, ..late("late-view", PageState::Reserved, false, Trouble::None) },
];

/// An MMU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mmu {
    /// x86_64 without identifiers of contexts.
    X86,
    /// x86_64 with them.
    X86Contexts,
    /// aarch64, marks set by faults.
    Arm,
}

impl Mmu {
    /// All three.
    pub const ALL: [Mmu; 3] = [Mmu::X86, Mmu::X86Contexts, Mmu::Arm];

    /// Its name, part of a scenario's.
    pub fn name(self) -> &'static str {
        match self {
            Mmu::X86 => "x86",
            Mmu::X86Contexts => "x86-pcid",
            Mmu::Arm => "arm",
        }
    }

    /// Its rules.
    pub fn rules(self) -> MmuRules {
        match self {
            Mmu::X86 => MmuRules::X86_64,
            Mmu::X86Contexts => MmuRules { asids: 8, ..MmuRules::X86_64 },
            Mmu::Arm => MmuRules { hardware_ad: false, asids: 8, ..MmuRules::AARCH64 },
        }
    }
}

/// Which CPUs run the space, and what a third one does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ThirdCpu {
    /// There is none.
    None,
    /// It has used the page before, and stores.
    HeldStore,
    /// It has used the page before, and loads twice.
    HeldLoad,
    /// Only the first CPU runs the space; the others come meanwhile, the third loads twice.
    ComeLoad,
    /// Likewise; the third stores.
    ComeStore,
}

impl ThirdCpu {
    /// All of them.
    pub const ALL: [ThirdCpu; 5] = [
        ThirdCpu::None,
        ThirdCpu::HeldStore,
        ThirdCpu::HeldLoad,
        ThirdCpu::ComeLoad,
        ThirdCpu::ComeStore,
    ];

    /// Its name, part of a scenario's.
    pub fn name(self) -> &'static str {
        match self {
            ThirdCpu::None => "two",
            ThirdCpu::HeldStore => "held-store",
            ThirdCpu::HeldLoad => "held-load",
            ThirdCpu::ComeLoad => "come-load",
            ThirdCpu::ComeStore => "come-store",
        }
    }
    /// Whether the CPUs but the first run the space only when they come.
    pub fn comes(self) -> bool {
        matches!(self, ThirdCpu::ComeLoad | ThirdCpu::ComeStore)
    }
}

const AT: u64 = 0x4000_0000;
/// Base pages lie inside a table, with neighbours on either side.
const INSIDE: u64 = 16 * PAGE;
const PAGE: u64 = 4096;
const MIB2: u64 = 2 << 20;
/// Pages of an object; the mapped ones are its first three.
pub const OBJECT_PAGES: usize = 4;
/// Bytes of it, in the beginning.
pub const OBJECT_BYTES: u64 = OBJECT_PAGES as u64 * PAGE;

/// Pages that are alike whatever happens, as the model keeps them: one of them has words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First address.
    pub start: u64,
    /// Length.
    pub bytes: u64,
}

/// Extents there are at most.
pub const EXTENTS: usize = 9;
/// Extents that a name of [`PageChoice`] stands for: the first ones.
pub const NAMED: usize = 3;

/// Where pages lie.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    huge: bool,
    /// The extents that count; those of `PageChoice` first.
    pub extents: [Extent; EXTENTS],
}

impl Places {
    /// For base or for huge pages.
    pub fn new(huge: bool) -> Places {
        let first = if huge { AT } else { AT + INSIDE };
        let at = |start: u64, bytes: u64| Extent { start: first + start, bytes };
        let extents = if huge {
            let rest = MIB2 - 2 * PAGE;
            [
                at(0, PAGE),
                at(PAGE, PAGE),
                at(MIB2, MIB2),
                at(2 * PAGE, rest),
                at(16 * MIB2, PAGE),
                at(32 * MIB2, PAGE),
                at(32 * MIB2 + PAGE, PAGE),
                at(32 * MIB2 + 2 * PAGE, rest),
                at(64 * MIB2, PAGE),
            ]
        } else {
            [
                at(0, PAGE),
                at(PAGE, PAGE),
                at(MIB2 + 3 * PAGE, PAGE),
                at(8 * PAGE, PAGE),
                at(9 * PAGE, PAGE),
                at(8 * MIB2, PAGE),
                at(8 * MIB2 + PAGE, PAGE),
                // The neighbour below, which only islands have.
                Extent { start: first - PAGE, bytes: PAGE },
                at(64 * MIB2, PAGE),
            ]
        };
        Places { huge, extents }
    }

    /// The extent of a page.
    pub fn extent(&self, at: PageChoice) -> usize {
        match at {
            PageChoice::Page => 0,
            PageChoice::Next => 1,
            PageChoice::Other => 2,
            PageChoice::Extent(n) => n,
        }
    }
    /// Its address.
    pub fn va(&self, extent: usize) -> Va {
        Va(self.extents[extent].start)
    }
    /// A range's first address and length.
    pub fn span(&self, span: PageRange) -> (Va, u64) {
        let both = if self.huge { MIB2 } else { 2 * PAGE };
        let first = self.extents[0].start;
        let (start, bytes) = match span {
            PageRange::Page => (first, PAGE),
            PageRange::Next => (first + PAGE, PAGE),
            PageRange::Pair => (first, 2 * PAGE),
            PageRange::Both => (first, both),
            PageRange::Whole => (AT, 2 * MIB2),
            PageRange::Hole => (self.extents[if self.huge { 4 } else { 3 }].start, PAGE),
            PageRange::Far => (self.extents[5].start, both),
            PageRange::Odd => (self.extents[6].start, PAGE),
        };
        (Va(start), bytes)
    }
    /// The extents of a range.
    pub fn within(&self, (start, bytes): (Va, u64)) -> impl Iterator<Item = usize> + '_ {
        let inside = move |e: &Extent| start.0 <= e.start && e.start + e.bytes <= start.0 + bytes;
        (0..EXTENTS).filter(move |&n| inside(&self.extents[n]))
    }
    /// What is mapped in the beginning: ranges with their rights.
    pub fn mapped(&self, island: bool) -> Vec<(VaRange, Rights)> {
        let range = |start: u64, bytes: u64| {
            VaRange::new(Va(start), bytes, Va(1 << 47)).expect("a range in the user half")
        };
        let (rw, r) = (Rights::READ_WRITE, Rights::READ);
        if self.huge {
            vec![(range(AT, 2 * MIB2), rw)]
        } else if island {
            let (first, other) = (self.extents[0].start, self.extents[2].start);
            vec![
                (range(first - PAGE, 3 * PAGE), r),
                (range(first, PAGE), rw),
                (range(other, PAGE), rw),
            ]
        } else {
            vec![
                (range(self.extents[0].start, 2 * PAGE), rw),
                (range(self.extents[2].start, PAGE), rw),
            ]
        }
    }
}
