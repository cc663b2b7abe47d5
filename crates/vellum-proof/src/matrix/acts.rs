//! What a CPU does in a scenario, drawn from the one table of operations.
//!
//! [`scripts_of`] says for each operation of the table what stands for it here. A new operation
//! does not compile before it is in the matrix.

use vellum::space::Rights;
use vellum_host::stress::ops::{Op, TABLE};

/// A page that has a word to look at, by what it is to the scenario.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum At {
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
pub enum Span {
    /// [`At::Page`].
    Page,
    /// [`At::Next`].
    Next,
    /// [`At::Page`] and its neighbour.
    Pair,
    /// Both, and what else is of the same huge page.
    Both,
    /// Everything that is mapped.
    Whole,
    /// A page where nothing is mapped, in the same table.
    Hole,
    /// As long as [`Span::Both`], where nothing is mapped, in another table.
    Far,
}

/// What one call or access does. Words are numbered in their page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Act {
    /// A program's load.
    Load(At, usize),
    /// A program's store.
    Store(At, usize),
    /// A program's fetch.
    Fetch(At),
    /// `Vm::copy_in`.
    CopyIn(At, usize),
    /// `Vm::copy_out`.
    CopyOut(At, usize),
    /// `Vm::write_forced`.
    Force(At, usize),
    /// `Vm::query`.
    Query(At),
    /// `Vm::advise`, to populate, for writing or not.
    Populate(Span, bool),
    /// `Vm::map` at a place.
    Map(Span, Rights),
    /// `Vm::map` over what is there.
    Replace(Span, Rights),
    /// `Vm::map` of a page anywhere.
    Anywhere,
    /// `Vm::unmap`.
    Unmap(Span),
    /// `Vm::protect`.
    Protect(Span, Rights),
    /// `Vm::remap` to a place.
    Remap(Span, Span),
    /// `Vm::advise`, to forget.
    DontNeed(Span),
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
    /// `Vm::idle`.
    Idle,
    /// `Vm::poison`.
    Poison(At),
    /// `Vm::forbid_zeros`.
    Forbid,
    /// `Vm::shrink_zeros`.
    Shrink,
    /// A block of frames is taken.
    Take(u8),
    /// `Frames::drain` of this CPU.
    Drain,
    /// The others go on.
    Yield,
}

/// An act, and the space it is done in: 0 is the parent, 1 the child that was there before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// What is done.
    pub act: Act,
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
    fn new(name: &str, acts: &[Act]) -> Line {
        Line {
            name: name.to_string(),
            steps: acts.iter().map(|&act| Step { act, side: 0 }).collect(),
        }
    }
    fn of_child(name: &str, acts: &[Act]) -> Line {
        let here = Step { act: Act::Activate, side: 1 };
        let steps = acts.iter().map(|&act| Step { act, side: 1 });
        Line { name: name.to_string(), steps: std::iter::once(here).chain(steps).collect() }
    }
    /// Whether it is about the child that was there before.
    pub fn wants_child(&self) -> bool {
        self.steps.iter().any(|s| s.side == 1 || s.act == Act::Exit)
    }
}

/// What stands for an operation of the table.
pub fn scripts_of(op: Op) -> Vec<Line> {
    use Act::*;
    use At::{Next, Other, Page};
    const R: Rights = Rights::READ;
    const RW: Rights = Rights::READ_WRITE;
    const RX: Rights = Rights::READ_EXEC;
    match op {
        Op::Map => vec![
            Line::new("map", &[Map(Span::Hole, RW)]),
            Line::new("unmap-map", &[Unmap(Span::Page), Map(Span::Page, R)]),
        ],
        Op::Replace => vec![
            Line::new("replace", &[Replace(Span::Page, R)]),
            Line::new("replace-none", &[Replace(Span::Page, Rights::NONE)]),
            Line::new("replace-both", &[Replace(Span::Both, RW)]),
        ],
        Op::MapAnywhere => vec![Line::new("map-anywhere", &[Anywhere])],
        Op::Unmap => vec![
            Line::new("unmap", &[Unmap(Span::Page)]),
            Line::new("unmap-both", &[Unmap(Span::Both)]),
            Line::new("unmap-whole", &[Unmap(Span::Whole)]),
        ],
        Op::Protect => vec![
            Line::new("protect", &[Protect(Span::Page, R)]),
            Line::new("protect-none", &[Protect(Span::Both, Rights::NONE)]),
            Line::new(
                "protect-twice",
                &[Protect(Span::Page, Rights::NONE), Protect(Span::Page, RW)],
            ),
            Line::new("protect-exec", &[Protect(Span::Both, Rights::ALL), Protect(Span::Page, RW)]),
            Line::new("protect-flip", &[Protect(Span::Page, RX), Protect(Span::Page, RW)]),
        ],
        Op::Remap => vec![
            Line::new("remap", &[Remap(Span::Page, Span::Hole)]),
            Line::new("remap-both", &[Remap(Span::Both, Span::Far)]),
        ],
        Op::DontNeed => {
            vec![
                Line::new("forget", &[DontNeed(Span::Page)]),
                Line::new("forget-both", &[DontNeed(Span::Both)]),
            ]
        }
        Op::Huge => vec![
            Line::new("collapse", &[Collapse]),
            Line::new("no-huge", &[Huge(false), Huge(true)]),
        ],
        Op::Populate => vec![
            Line::new("populate", &[Populate(Span::Pair, true)]),
            Line::new("populate-read", &[Populate(Span::Pair, false)]),
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
    }
}

/// Every script of every operation of the table, in its order.
pub fn scripts() -> Vec<Line> {
    TABLE.iter().flat_map(|&(op, _)| scripts_of(op)).collect()
}
