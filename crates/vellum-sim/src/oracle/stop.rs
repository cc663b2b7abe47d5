//! Why a run was stopped, and what happened just before.

use std::collections::VecDeque;
use std::fmt;

use crate::memory::Ticks;

/// Which rule was broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Two equal faults in a row without progress (line 1).
    NoProgress,
    /// A cached accessed or dirty mark that no walk could have left (line 2).
    Marks,
    /// A stale translation was used with no open obligation to excuse it (line 3).
    Stale,
    /// A verb returned, or a frame was reused, while some CPU may still hold what was taken away
    /// (line 3).
    OpenObligation,
    /// CPUs may use two frames at one address, and not both read-only with equal bytes (line 3).
    TwoPages,
    /// A deferred translation that is not read-only, clean, pending and equal (line 4).
    Deferral,
    /// Page sizes: overlapping entries, or a size change without break-before-make (line 5).
    Size,
    /// A walk, a walk cache or a loaded root reached a table that was freed (line 6).
    FreedTable,
    /// An output address changed without break-before-make.
    BreakBeforeMake,
    /// An entry that hardware cannot read.
    Malformed,
    /// A frame was used out of turn: freed twice, given twice, mapped while free, freed while
    /// mapped.
    FrameState,
    /// A frame is in use and nobody knows it.
    Leak,
    /// The shared zeros can be written, or are not zero.
    Zero,
    /// A page mapped more than once can be written through one of its mappings.
    Shared,
    /// A frame is mapped in another cache mode than it must be.
    MemoryType,
    /// A frame reached a new owner with old contents.
    Dirty,
    /// Walk checking found a difference that incremental checking had not marked.
    Incremental,
    /// A program ran with no root loaded, or the machine was used in a way its contract excludes.
    Contract,
    /// Every CPU waits and nothing can end it.
    Livelock,
}

impl Rule {
    /// The rule in one sentence.
    pub const fn text(self) -> &'static str {
        match self {
            Rule::NoProgress => "oracle 1: two equal faults in a row without progress",
            Rule::Marks => "oracle 2: a dirty mark is cached that the entry no longer has",
            Rule::Stale => {
                "oracle 3: a stale translation was used and no open obligation excuses it"
            }
            Rule::OpenObligation => {
                "oracle 3: an old translation may still be held where it must be gone"
            }
            Rule::TwoPages => "oracle 3: CPUs see two pages at one address",
            Rule::Deferral => {
                "oracle 4: a deferred translation must be read-only, clean, of a pending frame, \
                 and read equal bytes"
            }
            Rule::Size => "oracle 5: one address is translated with two page sizes",
            Rule::FreedTable => "oracle 6: a table frame was freed that hardware can still reach",
            Rule::BreakBeforeMake => "break-before-make: a live entry changed its address",
            Rule::Malformed => "an entry has a reserved bit set",
            Rule::FrameState => "a frame is not in the state this needs",
            Rule::Leak => "a frame is in use and nobody has it",
            Rule::Zero => "the shared zeros must be zero and read-only",
            Rule::Shared => "a shared page is writable",
            Rule::MemoryType => "a frame is mapped in the wrong cache mode",
            Rule::Dirty => "a frame reaches a new owner with old contents",
            Rule::Incremental => "the incremental oracle missed a difference",
            Rule::Contract => "the machine's contract was broken",
            Rule::Livelock => "all CPUs wait for each other",
        }
    }
}

/// A stopped run. `Display` prints a report of a few lines.
#[derive(Clone, Debug)]
pub struct Stop {
    /// Which rule.
    pub rule: Rule,
    /// The CPU on which it was found.
    pub cpu: usize,
    /// The virtual address concerned, if one is.
    pub va: Option<u64>,
    /// The frame concerned, if one is.
    pub pfn: Option<u64>,
    /// What was found, and what would have been right.
    pub explanation: String,
    /// The CPU's clock, in cycles.
    pub clock: u64,
    /// The seed that brings the run back.
    pub seed: u64,
    /// The last things that happened on the machine, oldest first.
    pub events: Vec<String>,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "STOPPED by the oracle: {}", self.rule.text())?;
        writeln!(f, "  {}", self.explanation)?;
        write!(f, "  cpu {} at cycle {}, seed {}", self.cpu, self.clock, self.seed)?;
        if let Some(va) = self.va {
            write!(f, ", address {va:#x}")?;
        }
        if let Some(pfn) = self.pfn {
            write!(f, ", frame {pfn:#x}")?;
        }
        writeln!(f)?;
        writeln!(f, "  last events, oldest first:")?;
        for e in &self.events {
            writeln!(f, "    {e}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Stop {}

/// Something worth remembering for a report.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Note {
    Store { table: u64, slot: usize, old: u64, new: u64 },
    Flush(vellum::machine::Scope),
    Ask { targets: usize, scope: vellum::machine::Scope },
    Frame { first: u64, frames: u64, to: vellum::machine::Use },
    Root(Option<u64>),
    Fault { va: u64, kind: crate::cpu::Kind },
    Begin(vellum::machine::Verb),
    End(vellum::machine::Verb),
}

/// The last few notes.
#[derive(Default)]
pub(crate) struct Ring(VecDeque<(u16, Ticks, Note)>);

/// Notes kept.
const KEPT: usize = 24;

impl Ring {
    #[inline]
    pub(crate) fn push(&mut self, cpu: usize, at: Ticks, note: Note) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((cpu as u16, at, note));
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|(cpu, at, note)| {
                let what = match note {
                    Note::Store { table, slot, old, new } => {
                        format!("store in table {table:#x} slot {slot}: {old:#x} -> {new:#x}")
                    }
                    Note::Flush(scope) => format!("flush {scope:?}"),
                    Note::Ask { targets, scope } => {
                        format!("ask {targets} CPUs to flush {scope:?}")
                    }
                    Note::Frame { first, frames, to } => {
                        format!("frames {first:#x}+{frames} become {to:?}")
                    }
                    Note::Root(root) => {
                        root.map_or("load no root".into(), |r| format!("load root {r:#x}"))
                    }
                    Note::Fault { va, kind } => format!("fault: {kind:?} at {va:#x}"),
                    Note::Begin(v) => format!("begin {v:?}"),
                    Note::End(v) => format!("end {v:?}"),
                };
                format!("cpu {cpu} cycle {}: {what}", at.cycles())
            })
            .collect()
    }
}
