//! Everything there is to see of some spaces, to the bit: for tests of verbs that fail.

use std::fmt::Display;

use super::ext::{MachineExt, VmExt};
use super::fixture::Fixture;

use vellum::addr::{ENTRIES, Level, Pfn, Va};
use vellum::entry::{Codec, Entry};
use vellum::machine::Machine;
use vellum::space::{Audit, Space, Usage};
use vellum::stats::Counter;

/// One entry that is not empty: level, first address, the entry as hardware sees it.
pub type Raw = (u8, u64, u64);

/// A state. Two are equal if no entry of any table differs, every use has as many frames, and every
/// gauge says the same.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    pub tables: Vec<Vec<Raw>>,
    pub usage: Vec<Usage>,
    pub audit: Audit,
    pub gauges: Vec<i64>,
}

const GAUGES: [Counter; 6] = [
    Counter::AnonPages,
    Counter::AnonHuge,
    Counter::TablePages,
    Counter::SlabPages,
    Counter::ShmemPages,
    Counter::Mapped,
];

impl<C: Codec> Fixture<C> {
    /// The state of everything; `spaces` are all there are, and nobody uses them meanwhile.
    pub fn state(&self, spaces: &[&Space]) -> State {
        let stats = self.vm.stats();
        State {
            tables: spaces.iter().map(|space| self.entries(space)).collect(),
            usage: spaces.iter().map(|space| self.vm.usage(space)).collect(),
            audit: self.vm.audit(spaces).expect("a valid state"),
            gauges: GAUGES.iter().map(|&counter| stats.get(counter)).collect(),
        }
    }

    /// Every entry of a space's table.
    pub fn entries(&self, space: &Space) -> Vec<Raw> {
        self.vm.activate(space);
        let root = self.m().last_root();
        self.vm.deactivate();
        let mut seen = Vec::new();
        self.entries_below(root, Level(self.m().rules().levels), 0, &mut seen);
        seen
    }

    fn entries_below(&self, table: Pfn, level: Level, base: u64, seen: &mut Vec<Raw>) {
        for slot in 0..ENTRIES {
            let raw = self.m().entry(table, slot);
            if raw == 0 {
                continue;
            }
            let va = base + ((slot as u64) << level.shift());
            seen.push((level.0, va, raw));
            if let Entry::Table(below) = C::decode(raw, level) {
                self.entries_below(below, Level(level.0 - 1), va, seen);
            }
        }
    }

    /// The entry that decides about an address now, in the space whose root was loaded last.
    pub fn entry_at(&self, va: Va) -> Entry {
        let m = self.m();
        let (mut table, mut level) = (m.last_root(), Level(m.rules().levels));
        loop {
            match C::decode(m.entry(table, level.slot(va)), level) {
                Entry::Table(below) => (table, level) = (below, Level(level.0 - 1)),
                entry => return entry,
            }
        }
    }
}

/// Two states are equal, or the test says in what they differ.
#[track_caller]
pub fn assert_same(before: &State, after: &State, when: impl Display) {
    assert!(before == after, "{when}: {}", difference(before, after));
}

/// The first thing in which two states differ, in words.
fn difference(before: &State, after: &State) -> String {
    for (n, (old, new)) in before.tables.iter().zip(&after.tables).enumerate() {
        let gone = old.iter().find(|raw| !new.contains(raw));
        let come = new.iter().find(|raw| !old.contains(raw));
        if gone.is_some() || come.is_some() {
            return format!("table {n}: {gone:x?} went, {come:x?} came");
        }
    }
    format!("{:?} {:?} became {:?} {:?}", before.audit, before.gauges, after.audit, after.gauges)
}
