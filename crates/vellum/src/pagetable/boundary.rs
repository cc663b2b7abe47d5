//! Making the ends of a range boundaries between slots: all of it, or nothing.
//!
//! An end inside a large slot takes a table for each level below it: where nothing is mapped or a
//! reserved entry is the table says the same in each slot, and a large leaf is split. The tables
//! are counted and their frames taken before the first is linked, so a verb that does not get them
//! leaves large leaves and large reserved entries as they are. Faults that come in between can only
//! make tables that are wanted here, too. Rejected: undoing what was opened (a split leaf stays
//! split, its frames count one by one).

use crate::addr::{Level, Pfn, Va, VaRange};
use crate::entry::{Codec, Entry};
use crate::error::NoMemory;
use crate::machine::{Act, Machine};
use crate::pagetable::PageTables;
use crate::pagetable::cursor::Place;
use crate::pagetable::preallocated::Preallocated;
use crate::pagetable::split::{split_device, zap_block};
use crate::space::SpaceRecord;
use crate::stats::Counter;
use crate::sync::Token;

/// The tables an end of a range lacks: levels from `below` down to `last`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct MissingTables {
    pub below: Level,
    pub last: Level,
}

impl<M: Machine> PageTables<M> {
    /// Makes both ends of a range boundaries between slots. `create` makes tables where nothing is
    /// mapped, too. Under the mmap lock; the caller is in no epoch.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing changed.
    pub fn make_boundaries(
        &self,
        space: &SpaceRecord,
        range: VaRange,
        create: bool,
    ) -> Result<(), NoMemory> {
        let (start, end) = (range.start(), range.end());
        let (low, high) =
            (self.missing_tables(space, start, create), self.missing_tables(space, end, create));
        if low.is_none() && high.is_none() {
            return Ok(());
        }
        let mut frames = Preallocated::new(self, tables((start, low), (end, high)))?;
        let done = self.make_boundaries_from(space, range, create, &mut frames);
        frames.free(self);
        done
    }

    /// The same with frames that were taken for it; no memory is asked for while there are any.
    pub fn make_boundaries_from(
        &self,
        space: &SpaceRecord,
        range: VaRange,
        create: bool,
        frames: &mut Preallocated,
    ) -> Result<(), NoMemory> {
        self.make_boundary(space, range.start(), create, frames)?;
        self.make_boundary(space, range.end(), create, frames)
    }

    /// What is missing at an address for it to be a boundary.
    pub fn missing_tables(
        &self,
        space: &SpaceRecord,
        va: Va,
        create: bool,
    ) -> Option<MissingTables> {
        let mut level = self.top();
        let mut table = space.root();
        while !va.is_aligned(level.entry_bytes()) {
            match M::Codec::decode(self.visit_entry(table, level.slot(va)), level) {
                Entry::Table(child) => (table, level) = (child, level.child()),
                Entry::Empty if !create => return None,
                // It goes as a whole, or moves: no end of a range cuts what is in it.
                Entry::Detached(_) => return None,
                _ => {
                    let mut last = level.child();
                    while !va.is_aligned(last.entry_bytes()) {
                        last = last.child();
                    }
                    return Some(MissingTables { below: level.child(), last });
                }
            }
        }
        None
    }

    fn make_boundary(
        &self,
        space: &SpaceRecord,
        va: Va,
        create: bool,
        frames: &mut Preallocated,
    ) -> Result<(), NoMemory> {
        let m = &self.machine;
        let mut node = self.node(space.root());
        let mut level = self.top();
        while !va.is_aligned(level.entry_bytes()) {
            let slot = level.slot(va);
            let raw = self.visit_entry(node.pfn, slot);
            let entry = M::Codec::decode(raw, level);
            match entry {
                Entry::Table(child) => {
                    node = self.node(child);
                    level = level.child();
                    continue;
                }
                Entry::Empty if !create => return Ok(()),
                Entry::Busy(busy) if busy.is_transit() => {
                    m.relax();
                    continue;
                }
                _ => {}
            }
            let frame = frames.take(self)?;
            let at = Place { node, level, slot, raw };
            let used = match entry {
                Entry::Leaf(..) | Entry::Inaccessible(_) => {
                    self.split_leaf(space, at, va, frame, || true)
                }
                Entry::Shared(..) => zap_block(self, space, at, va, frame),
                Entry::Device(..) => split_device(self, space, at, va, frame),
                Entry::ZeroTable(_) => self.open_zeros(space, at, va, frame),
                _ => self.push_down(at, frame),
            };
            if !used {
                frames.put(&self.machine, frame);
            }
        }
        Ok(())
    }

    /// Puts a table in `frame` below a slot that holds nothing or a reserved entry, of which every
    /// slot then says the same. If the entry is not as it was seen any more nothing happens, the
    /// frame is still the caller's, and it looks again.
    fn push_down(&self, Place { node, level, slot, raw }: Place<'_>, frame: Pfn) -> bool {
        let m = &self.machine;
        let below = level.child();
        let fill = match M::Codec::decode(raw, level) {
            Entry::Reserved => M::Codec::encode(Entry::Reserved, below),
            _ => 0,
        };
        let child = self.init_node(frame, below, Some((node.pfn, slot)), fill);
        let mut top = Token::top();
        let _guard = node.lock(m, &mut top);
        if node.state().dead() || m.entry(node.pfn, slot) != raw {
            drop(_guard);
            self.count(Counter::TablePages, -1);
            return false;
        }
        self.write_entry(node.pfn, slot, level, Entry::Table(child.pfn));
        if fill == 0 {
            node.set_state(node.state().with_count(node.state().count() + 1));
        }
        true
    }
}

/// How many tables two ends take. Those that cover both are made once.
fn tables(
    (start, low): (Va, Option<MissingTables>),
    (end, high): (Va, Option<MissingTables>),
) -> usize {
    let count = |lack: Option<MissingTables>| {
        lack.map_or(0, |lack| (lack.below.0 - lack.last.0 + 1) as usize)
    };
    let mut shared = 0;
    if let (Some(low), Some(high)) = (low, high) {
        let mut level = low.below.min(high.below);
        while level >= low.last.max(high.last) {
            let span = level.entry_bytes() << 9;
            shared += usize::from(start.align_down(span) == end.align_down(span));
            if level == Level::ONE {
                break;
            }
            level = level.child();
        }
    }
    count(low) + count(high) - shared
}
