//! Making the ends of a range boundaries between slots: all of it, or nothing.
//!
//! An end inside a large slot takes a table for each level below it: where nothing is mapped or a
//! promise stands the table says the same in each slot, and a large leaf is split. The tables are
//! counted and their frames taken before the first is linked, so a verb that does not get them
//! leaves leaves whole and promises high. Faults that come in between can only make tables that are
//! wanted here, too. Rejected: undoing what was opened (a split leaf stays split, its frames count
//! one by one).

use crate::addr::{Level, Order, Pfn, Va, VaRange};
use crate::entry::{Codec, Entry};
use crate::error::NoMemory;
use crate::frame::AllocRequest;
use crate::machine::{Act, Event, Machine, Use, Work};
use crate::pagetable::PageTables;
use crate::pagetable::cursor::Place;
use crate::space::SpaceRecord;
use crate::sync::Token;

/// Frames for tables, chained through their own first words.
#[must_use = "spare frames are freed by `Vm::free_spare`"]
#[derive(Default)]
pub(crate) struct Spare {
    /// The first frame + 1, 0 for none.
    first: u64,
}

/// The tables an end of a range lacks: levels from `below` down to `last`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lack {
    pub below: Level,
    pub last: Level,
}

impl<M: Machine> PageTables<M> {
    /// Makes both ends of a range boundaries between slots. `create` makes tables where nothing is
    /// mapped, too. Under the layout lock; the caller is in no epoch.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing changed.
    pub(crate) fn open(
        &self,
        space: &SpaceRecord,
        range: VaRange,
        create: bool,
    ) -> Result<(), NoMemory> {
        let (start, end) = (range.start(), range.end());
        let (low, high) = (self.lack(space, start, create), self.lack(space, end, create));
        if low.is_none() && high.is_none() {
            return Ok(());
        }
        let mut spare = self.spare(tables((start, low), (end, high)))?;
        let done = self.open_with(space, range, create, &mut spare);
        self.free_spare(spare);
        done
    }

    /// The same with frames that were taken for it; no memory is asked for while there are any.
    pub(crate) fn open_with(
        &self,
        space: &SpaceRecord,
        range: VaRange,
        create: bool,
        spare: &mut Spare,
    ) -> Result<(), NoMemory> {
        self.open_at(space, range.start(), create, spare)?;
        self.open_at(space, range.end(), create, spare)
    }

    /// That many frames for tables.
    pub(crate) fn spare(&self, tables: usize) -> Result<Spare, NoMemory> {
        let mut spare = Spare::default();
        for _ in 0..tables {
            match self.table_frame() {
                Ok(frame) => self.put_spare(&mut spare, frame),
                Err(error) => {
                    self.free_spare(spare);
                    return Err(error);
                }
            }
        }
        Ok(spare)
    }

    /// Puts a frame back that was not needed after all.
    pub(crate) fn put_spare(&self, spare: &mut Spare, frame: Pfn) {
        // SAFETY: the frame was allocated for a table and is linked nowhere, so its words are ours
        // alone.
        unsafe { self.machine.direct(frame).cast::<u64>().write(spare.first) };
        spare.first = frame.0 + 1;
    }

    /// One of them, or another if there are none left.
    pub(crate) fn take_spare(&self, spare: &mut Spare) -> Result<Pfn, NoMemory> {
        let Some(frame) = spare.first.checked_sub(1).map(Pfn) else { return self.table_frame() };
        // SAFETY: as in `put_spare`, which wrote the word.
        spare.first = unsafe { self.machine.direct(frame).cast::<u64>().read() };
        Ok(frame)
    }

    /// Gives back what was not needed.
    pub(crate) fn free_spare(&self, mut spare: Spare) {
        while spare.first != 0
            && let Ok(frame) = self.take_spare(&mut spare)
        {
            self.untake(frame, Order::BASE);
        }
    }

    /// A frame that will be a table.
    pub(crate) fn table_frame(&self) -> Result<Pfn, NoMemory> {
        self.frames.alloc(&self.machine, Order::BASE, &AllocRequest::kernel(Use::Table))
    }

    /// What is missing at an address for it to be a boundary.
    pub(crate) fn lack(&self, space: &SpaceRecord, va: Va, create: bool) -> Option<Lack> {
        let mut level = self.top();
        let mut table = space.root();
        while !va.is_aligned(level.entry_bytes()) {
            self.machine.hook(Event::Work(Work::Descend, 1));
            match self.load(table, level.slot(va), level) {
                Entry::Table(child) => (table, level) = (child, level.child()),
                Entry::Empty | Entry::Gone(_) if !create => return None,
                _ => {
                    let mut last = level.child();
                    while !va.is_aligned(last.entry_bytes()) {
                        last = last.child();
                    }
                    return Some(Lack { below: level.child(), last });
                }
            }
        }
        None
    }

    fn open_at(
        &self,
        space: &SpaceRecord,
        va: Va,
        create: bool,
        spare: &mut Spare,
    ) -> Result<(), NoMemory> {
        let m = &self.machine;
        let mut node = self.node(space.root());
        let mut level = self.top();
        while !va.is_aligned(level.entry_bytes()) {
            m.hook(Event::Work(Work::Descend, 1));
            let slot = level.slot(va);
            let raw = m.entry(node.pfn, slot);
            let entry = M::Codec::decode(raw, level);
            match entry {
                Entry::Table(child) => {
                    node = self.node(child);
                    level = level.child();
                    continue;
                }
                Entry::Empty | Entry::Gone(_) if !create => return Ok(()),
                Entry::Busy(_) => {
                    m.relax();
                    continue;
                }
                _ => {}
            }
            let frame = self.take_spare(spare)?;
            let at = Place { node, level, slot, raw };
            let used = match entry {
                Entry::Leaf(..) | Entry::Parked(_) => self.split_leaf(space, at, va, frame),
                Entry::ZeroTable(_) => self.open_zeros(space, at, va, frame),
                _ => self.push_down(at, frame),
            };
            if !used {
                self.put_spare(spare, frame);
            }
        }
        Ok(())
    }

    /// Puts a table in `frame` below a slot that holds nothing or a promise, of which every slot
    /// then says the same. If the entry is not as it was seen any more nothing happens, the frame
    /// is still the caller's, and it looks again.
    pub(crate) fn push_down(
        &self,
        Place { node, level, slot, raw }: Place<'_>,
        frame: Pfn,
    ) -> bool {
        let m = &self.machine;
        let below = level.child();
        let fill = match M::Codec::decode(raw, level) {
            Entry::Reserved => M::Codec::encode(Entry::Reserved, below),
            _ => 0,
        };
        let child = self.dress_node(frame, below, Some((node.pfn, slot)), fill);
        let mut top = Token::top();
        let _guard = node.lock(m, &mut top);
        if node.state().dead() || m.entry(node.pfn, slot) != raw {
            drop(_guard);
            self.undress_node(child);
            return false;
        }
        self.store(node.pfn, slot, level, Entry::Table(child.pfn));
        m.hook(Event::Work(Work::Entry, 1));
        if fill == 0 {
            node.set_state(node.state().with_count(node.state().count() + 1));
        }
        true
    }
}

/// How many tables two ends take. Those that cover both are made once.
pub(crate) fn tables((start, low): (Va, Option<Lack>), (end, high): (Va, Option<Lack>)) -> usize {
    let count =
        |lack: Option<Lack>| lack.map_or(0, |lack| (lack.below.0 - lack.last.0 + 1) as usize);
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
