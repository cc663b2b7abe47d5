//! What a CPU does in a scenario, from the one table of operations.
//!
//! [`scripts_of`] gives the scripts of each operation. A new operation does not compile before it
//! is in the matrix.

use vellum::space::Rights;
use vellum_host::stress::ops::{Op, TABLE};

use super::states::OBJECT_BYTES;
use crate::small::SAMPLES;

/// A page that has a word to look at, by what it is to the scenario.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PageChoice {
    /// The page that everybody is about.
    Page,
    /// Its neighbour, in the same table (or the same huge page).
    Next,
    /// A page in another table (or another huge page).
    Other,
    /// The first page of an extent, by its number: what is looked at when all is over.
    Extent(usize),
}

/// A range of pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PageRange {
    /// [`PageChoice::Page`].
    Page,
    /// [`PageChoice::Next`].
    Next,
    /// [`PageChoice::Page`] and its neighbour.
    Pair,
    /// Both, and what else is of the same huge page.
    Both,
    /// Everything that is mapped.
    Whole,
    /// A page where nothing is mapped, in the same table.
    Hole,
    /// As long as [`PageRange::Both`], where nothing is mapped, in another table, at a distance of
    /// whole tables.
    Far,
    /// A page where nothing is mapped, in another table, at another distance.
    Odd,
}

/// What one call or access does. Words are numbered in their page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A program's load.
    Load(PageChoice, usize),
    /// A program's store.
    Store(PageChoice, usize),
    /// A program's fetch.
    Fetch(PageChoice),
    /// `Vm::copy_in`.
    CopyIn(PageChoice, usize),
    /// `Vm::copy_out`.
    CopyOut(PageChoice, usize),
    /// `Vm::write_forced`.
    Force(PageChoice, usize),
    /// `Vm::query`.
    Query(PageChoice),
    /// `Vm::advise`, to populate, for writing or not.
    Populate(PageRange, bool),
    /// `Vm::map` at a place.
    Map(PageRange, Rights),
    /// `Vm::map` over what is there.
    Replace(PageRange, Rights),
    /// `Vm::map` of a page anywhere.
    Anywhere,
    /// `Vm::unmap`.
    Unmap(PageRange),
    /// `Vm::protect`.
    Protect(PageRange, Rights),
    /// `Vm::remap` to a place.
    Remap(PageRange, PageRange),
    /// `Vm::advise`, to forget.
    DontNeed(PageRange),
    /// `Vm::advise`, to collapse.
    Collapse,
    /// `Vm::advise`, for huge pages or against them.
    Huge(bool),
    /// `Vm::fork`.
    Fork,
    /// `Vm::exit` of the child that was there before.
    Exit,
    /// `Vm::activate`.
    Activate,
    /// `Vm::deactivate`.
    Idle,
    /// `Vm::poison`.
    Poison(PageChoice),
    /// `Vm::forbid_zeros`.
    Forbid,
    /// `Vm::shrink_zeros`.
    Shrink,
    /// A block of frames is taken.
    Take(u8),
    /// `Frames::drain` of this CPU.
    Drain,
    /// `Vm::map_object` at a place, from a page of the object on; `true` over what is there.
    MapObject(PageRange, usize, bool),
    /// `Vm::map_private` likewise.
    MapPrivate(PageRange, usize, bool),
    /// `Vm::map_object` of the device likewise.
    MapDevice(PageRange, usize, bool),
    /// `Objects::read` of a word of a page.
    ReadObject(usize, usize),
    /// `Objects::write` of one.
    WriteObject(usize, usize),
    /// `Objects::resize` to so many bytes.
    Resize(u64),
    /// `Objects::punch` of the first pages, so many.
    Punch(usize),
    /// `Objects::collapse` of the first block.
    Join,
    /// `Objects::split` of it.
    Split,
    /// `Objects::sync` of all.
    Sync,
    /// `Objects::evict` of all.
    Evict,
    /// `Objects::write_back` of all.
    WriteBack,
    /// `Objects::will_need` of all.
    WillNeed,
    /// `Objects::grab` of a page, a store to a word of it, and `Objects::release`.
    Grab(usize, usize),
    /// `Objects::harvest` of all.
    Harvest,
    /// `Objects::next_data`, from a page on.
    NextData(usize),
    /// `Objects::next_hole`, from a page on.
    NextHole(usize),
    /// `Objects::seal`, of both ways that a size may change.
    Seal,
    /// The others go on.
    Yield,
}

impl Action {
    /// Whether it is about an object, which is there in some states.
    pub fn wants_object(self) -> bool {
        self.takes_from_object()
            || matches!(
                self,
                Action::MapObject(..)
                    | Action::MapPrivate(..)
                    | Action::ReadObject(..)
                    | Action::WriteObject(..)
                    | Action::Grab(..)
                    | Action::Join
                    | Action::Split
                    | Action::NextData(_)
                    | Action::NextHole(_)
            )
            || self.wants_pager()
            || self.wants_log()
    }
    /// Whether it is about an object that has a pager.
    pub fn wants_pager(self) -> bool {
        matches!(self, Action::Sync | Action::Evict | Action::WriteBack | Action::WillNeed)
    }
    /// Whether it is about an object of which writes are logged.
    pub fn wants_log(self) -> bool {
        self == Action::Harvest
    }
    /// Whether it takes pages out of an object, or seals it, which one call at a time does.
    pub fn takes_from_object(self) -> bool {
        matches!(self, Action::Resize(_) | Action::Punch(_) | Action::Seal)
    }
}

/// An act, and the space it is done in: 0 is the parent, 1 the child that was there before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// What is done.
    pub act: Action,
    /// In which space.
    pub side: usize,
}

/// What one CPU does.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Line {
    /// A short name, part of a scenario's.
    pub name: String,
    /// One after the other.
    pub steps: Vec<Step>,
}

impl Line {
    fn new(name: &str, acts: &[Action]) -> Line {
        Line {
            name: name.to_string(),
            steps: acts.iter().map(|&act| Step { act, side: 0 }).collect(),
        }
    }
    fn of_child(name: &str, acts: &[Action]) -> Line {
        let here = Step { act: Action::Activate, side: 1 };
        let steps = acts.iter().map(|&act| Step { act, side: 1 });
        Line { name: name.to_string(), steps: std::iter::once(here).chain(steps).collect() }
    }
    /// Whether it is about blocks of an object.
    pub fn wants_blocks(&self) -> bool {
        self.steps.iter().any(|s| matches!(s.act, Action::Join | Action::Split))
    }
    /// Whether it makes a hole of several pages.
    pub fn punches_many(&self) -> bool {
        self.steps.iter().any(|s| matches!(s.act, Action::Punch(pages) if pages > 1))
    }
    /// Whether it is about an object.
    pub fn wants_object(&self) -> bool {
        self.steps.iter().any(|s| s.act.wants_object())
    }
    /// Whether it is about an object that has a pager.
    pub fn wants_pager(&self) -> bool {
        self.steps.iter().any(|s| s.act.wants_pager())
    }
    /// Whether it is about an object of which writes are logged.
    pub fn wants_log(&self) -> bool {
        self.steps.iter().any(|s| s.act.wants_log())
    }
    /// Whether it looks for data or holes.
    pub fn seeks(&self) -> bool {
        self.steps.iter().any(|s| matches!(s.act, Action::NextData(_) | Action::NextHole(_)))
    }
    /// Whether it changes an object's size.
    pub fn resizes(&self) -> bool {
        self.steps.iter().any(|s| matches!(s.act, Action::Resize(_)))
    }
    /// Whether it is about the child that was there before.
    pub fn wants_child(&self) -> bool {
        self.steps.iter().any(|s| s.side == 1 || s.act == Action::Exit)
    }
}

/// What stands for an operation of the table.
pub fn scripts_of(op: Op) -> Vec<Line> {
    use Action::*;
    use PageChoice::{Next, Other, Page};
    const R: Rights = Rights::READ;
    const RW: Rights = Rights::READ_WRITE;
    const RX: Rights = Rights::READ_EXEC;
    const HOLE: PageChoice = PageChoice::Extent(3);
    const FAR: PageChoice = PageChoice::Extent(5);
    const ODD: PageChoice = PageChoice::Extent(6);
    match op {
        Op::Map => vec![
            Line::new("map", &[Map(PageRange::Hole, RW)]),
            Line::new("unmap-map", &[Unmap(PageRange::Page), Map(PageRange::Page, R)]),
        ],
        Op::Replace => vec![
            Line::new("replace", &[Replace(PageRange::Page, R)]),
            Line::new("replace-none", &[Replace(PageRange::Page, Rights::NONE)]),
            Line::new("replace-both", &[Replace(PageRange::Both, RW)]),
        ],
        Op::MapAnywhere => vec![Line::new("map-anywhere", &[Anywhere])],
        Op::Unmap => vec![
            Line::new("unmap", &[Unmap(PageRange::Page)]),
            Line::new("unmap-both", &[Unmap(PageRange::Both)]),
            Line::new("unmap-whole", &[Unmap(PageRange::Whole)]),
        ],
        Op::Protect => vec![
            Line::new("protect", &[Protect(PageRange::Page, R)]),
            Line::new("protect-none", &[Protect(PageRange::Both, Rights::NONE)]),
            Line::new(
                "protect-twice",
                &[Protect(PageRange::Page, Rights::NONE), Protect(PageRange::Page, RW)],
            ),
            Line::new(
                "protect-exec",
                &[Protect(PageRange::Both, Rights::ALL), Protect(PageRange::Page, RW)],
            ),
            Line::new(
                "protect-flip",
                &[Protect(PageRange::Page, RX), Protect(PageRange::Page, RW)],
            ),
        ],
        Op::Remap => vec![
            Line::new("remap", &[Remap(PageRange::Page, PageRange::Hole)]),
            Line::new("remap-both", &[Remap(PageRange::Both, PageRange::Far)]),
            Line::new(
                "remap-load",
                &[Remap(PageRange::Both, PageRange::Far), Load(FAR, 1), Load(FAR, 1)],
            ),
            Line::new(
                "remap-odd",
                &[Unmap(PageRange::Next), Remap(PageRange::Page, PageRange::Odd)],
            ),
            // A page that is alone, and what is read of it at its new place.
            Line::new(
                "remap-odd-load",
                &[
                    Unmap(PageRange::Next),
                    Remap(PageRange::Page, PageRange::Odd),
                    Load(ODD, 1),
                    Load(ODD, 1),
                ],
            ),
        ],
        Op::DontNeed => {
            vec![
                Line::new("forget", &[DontNeed(PageRange::Page)]),
                Line::new("forget-both", &[DontNeed(PageRange::Both)]),
            ]
        }
        Op::Huge => vec![
            Line::new("collapse", &[Collapse]),
            Line::new("no-huge", &[Huge(false), Huge(true)]),
        ],
        Op::Populate => vec![
            Line::new("populate", &[Populate(PageRange::Pair, true)]),
            Line::new("populate-read", &[Populate(PageRange::Pair, false)]),
        ],
        Op::Touch => vec![
            Line::new("load", &[Load(Page, 0)]),
            Line::new("load-load", &[Load(Page, 1), Load(Page, 1)]),
        ],
        Op::Write => vec![
            Line::new("store", &[Store(Page, 0)]),
            Line::new("store-next", &[Store(Next, 1)]),
            Line::new("store-store", &[Store(Page, 0), Store(Other, 0)]),
            Line::new("store-back", &[Store(Other, 1), Store(Page, 1)]),
            Line::new("load-store", &[Load(Page, 1), Store(Page, 1)]),
        ],
        Op::Fetch => {
            let after_a_store = Line::new("store-fetch", &[Store(Page, 0), Fetch(Page)]);
            vec![Line::new("fetch", &[Fetch(Page)]), after_a_store]
        }
        Op::CopyIn => vec![Line::new("copy-in", &[CopyIn(Page, 1)])],
        Op::CopyOut => vec![Line::new("copy-out", &[CopyOut(Page, 0)])],
        Op::Force => vec![Line::new("force", &[Force(Page, 1)])],
        Op::Query => vec![
            Line::new("query", &[Query(Page), Load(Page, 0)]),
            Line::new("query-store", &[Query(Page), Store(Page, 1)]),
        ],
        Op::Fork => vec![Line::new("fork", &[Fork])],
        Op::Exit => vec![Line::new("exit", &[Exit])],
        Op::Switch => vec![Line::new("switch", &[Idle, Activate, Store(Page, 0)])],
        Op::Peek => vec![
            Line::of_child("child-store", &[Store(Page, 0)]),
            Line::of_child("child-poison", &[Poison(Page)]),
            Line::of_child("child-load", &[Load(Page, 0), Load(Page, 1)]),
        ],
        Op::Frame => vec![Line::new("take-huge", &[Take(9), Load(Page, 0)])],
        Op::Rest => vec![Line::new("drain", &[Drain, Load(Page, 0)])],
        Op::Poison => vec![Line::new("poison", &[Poison(Page)])],
        Op::Forbid => vec![Line::new("forbid", &[Forbid])],
        Op::Shrink => vec![Line::new("shrink", &[Shrink, Load(Page, 1)])],
        Op::MapObject => vec![
            Line::new("map-object", &[MapObject(PageRange::Hole, 0, false), Load(HOLE, 0)]),
            Line::new("replace-object", &[MapObject(PageRange::Page, 1, true)]),
        ],
        Op::MapPrivate => vec![
            Line::new("map-private", &[MapPrivate(PageRange::Hole, 0, false), Store(HOLE, 0)]),
            Line::new("replace-private", &[MapPrivate(PageRange::Page, 1, true), Load(Page, 1)]),
        ],
        Op::ReadObject => vec![Line::new("read-object", &[ReadObject(0, 0), ReadObject(0, 1)])],
        Op::WriteObject => vec![
            Line::new("write-object", &[WriteObject(0, 1)]),
            Line::new("write-object-load", &[WriteObject(0, 1), Load(Page, 1), Load(Page, 1)]),
        ],
        Op::Resize => vec![
            Line::new("cut-all", &[Resize(0)]),
            Line::new("cut-in-page", &[Resize(SAMPLES[1] as u64), Resize(OBJECT_BYTES)]),
        ],
        Op::Sync => vec![
            Line::new("sync", &[Sync]),
            Line::new("sync-load", &[Sync, Load(Page, 0), Load(Page, 1)]),
        ],
        Op::Evict => vec![
            Line::new("evict", &[Evict]),
            Line::new("sync-evict", &[Sync, Evict, Load(Page, 1)]),
        ],
        Op::WriteBack => vec![Line::new("write-back", &[WriteBack, Store(Page, 1)])],
        Op::Ahead => vec![Line::new("will-need", &[WillNeed, Load(Page, 0)])],
        Op::Grab => vec![Line::new("grab", &[Grab(0, 0)])],
        Op::Harvest => vec![
            Line::new("harvest", &[Harvest]),
            Line::new("harvest-store", &[Harvest, Store(Page, 0), Harvest]),
        ],
        Op::Punch => vec![
            Line::new("punch", &[Punch(1)]),
            Line::new("punch-all", &[Punch(3), WriteObject(0, 0)]),
        ],
        Op::Block => vec![
            Line::new("join", &[Join, Load(Page, 0)]),
            Line::new("split-join", &[Split, Join, Store(Page, 1), Split]),
        ],
        Op::Seek => vec![
            Line::new("next-data", &[NextData(0), ReadObject(0, 0), NextData(0)]),
            Line::new("next-hole", &[NextHole(0), NextHole(1)]),
        ],
        Op::Seal => vec![
            Line::new("seal", &[Seal, ReadObject(2, 0)]),
            Line::new("seal-cut", &[Seal, Resize(0), Load(Page, 0)]),
        ],
        Op::MapDevice => vec![
            Line::new("map-device", &[MapDevice(PageRange::Hole, 0, false), Store(HOLE, 0)]),
            Line::new("replace-device", &[MapDevice(PageRange::Page, 1, true), Load(Page, 1)]),
        ],
    }
}

/// Every script of every operation of the table, in its order.
pub fn scripts() -> Vec<Line> {
    TABLE.iter().flat_map(|&(op, _)| scripts_of(op)).collect()
}
