//! What a store of an entry takes away, and from which CPUs.
//!
//! Each store into a node of a known tree is classified by what hardware reads before and after it.
//! A store that only adds (absent to present, more rights) leaves nothing stale, since neither
//! format caches absence. A store that takes something away marks the cached entries that depend on
//! it, on every CPU that may hold the tree, and opens an obligation.

use vellum::machine::Use;

use super::Rule;
use super::notes::FrameNote;
use super::stop::Note;
use super::two_pages::Shown;
use crate::format::{Format, Meaning, Rights};
use crate::machine::SimState;

/// An entry that is stored, or is found below one.
#[derive(Clone, Copy)]
pub(crate) struct EntryAt {
    /// The tree it belongs to.
    pub root: u32,
    /// The first address it translates.
    pub va: u64,
    /// The level of its table.
    pub level: u8,
    /// Its own physical address.
    pub source: u64,
}

impl<F: Format> SimState<F> {
    /// The library wrote an entry.
    pub(crate) fn stored(&mut self, c: usize, table: u64, slot: usize, old: u64, new: u64) {
        self.note(c, Note::Store { table, slot, old, new });
        let note = &mut self.oracle.tables[table as usize];
        note.stores = note.stores.wrapping_add(1);
        let note = *note;
        self.charge_entry(c, note.level, old, new);
        if note.level == 0 || old == new {
            return;
        }
        if self.oracle.is_zero_table(table) {
            let why = "a shared table of zeros is written after an entry named it".into();
            return self.fail(c, Rule::Zero, Some(note.va), Some(table), why);
        }
        let (level, root) = (note.level, note.root - 1);
        let va = note.va + ((slot as u64) << (12 + 9 * (u32::from(level) - 1)));
        let source = table << 12 | (slot as u64) << 3;
        let at = EntryAt { root, va, level, source };
        match (F::meaning(old, level), F::meaning(new, level)) {
            (_, Meaning::Malformed) => self.malformed(c, new, level, va),
            (Meaning::Absent | Meaning::Malformed, Meaning::Absent) => {}
            (Meaning::Absent | Meaning::Malformed, Meaning::Leaf(frame, rights)) => {
                self.made_after_break(c, root, va, level, frame);
                self.leaf_comes(c, at, frame, rights);
            }
            (Meaning::Absent | Meaning::Malformed, Meaning::Table(child, _)) => {
                self.made_after_break(c, root, va, level, u64::MAX);
                self.link(c, child >> 12, level - 1, va, root);
            }
            (Meaning::Leaf(a, ra), Meaning::Leaf(b, rb)) if a == b => {
                self.rights_change(c, at, a, ra, rb)
            }
            (Meaning::Leaf(a, ra), Meaning::Leaf(b, rb)) => {
                let equal = || {
                    (0..1u64 << (9 * (level - 1)))
                        .all(|n| self.contents.equal((a >> 12) + n, (b >> 12) + n))
                };
                if self.mmu.break_before_make && (ra.write || rb.write || !equal()) {
                    let why = format!(
                        "the entry goes from frame {:#x} to {:#x} while it is live, and not \
                         read-only with equal bytes",
                        a >> 12,
                        b >> 12
                    );
                    return self.fail(c, Rule::BreakBeforeMake, Some(va), Some(b >> 12), why);
                }
                self.leaf_goes(a, level, ra.write);
                self.mark_leaf(root, va, level, source);
                self.open_leaf(c, at, a, ra);
                self.leaf_comes(c, at, b, rb);
            }
            (Meaning::Leaf(frame, rights), after) => {
                self.leaf_goes(frame, level, rights.write);
                self.mark_leaf(root, va, level, source);
                if let (Meaning::Table(..), true) = (after, self.mmu.break_before_make) {
                    return self.fail(
                        c,
                        Rule::Size,
                        Some(va),
                        Some(frame >> 12),
                        "a live block becomes a table without break-before-make".into(),
                    );
                }
                self.open_leaf(c, at, frame, rights);
                if let Meaning::Table(child, _) = after {
                    self.link(c, child >> 12, level - 1, va, root);
                }
            }
            (Meaning::Table(a, _), Meaning::Table(b, _)) if a == b => {}
            (Meaning::Table(child, _), after) => {
                if after != Meaning::Absent && self.mmu.break_before_make {
                    return self.fail(
                        c,
                        Rule::Size,
                        Some(va),
                        Some(child >> 12),
                        "a live table is replaced without break-before-make".into(),
                    );
                }
                self.oracle.next_cut += 1;
                self.mark_below(root, va, level);
                if self.oracle.is_zero_table(child >> 12) {
                    let next =
                        if let Meaning::Table(next, _) = after { Some(next >> 12) } else { None };
                    self.zeros_go(c, root, va, level, next);
                } else {
                    self.open_table(c, root, va, level);
                    self.unlink(c, child >> 12);
                }
                match after {
                    Meaning::Leaf(frame, rights) => self.leaf_comes(c, at, frame, rights),
                    Meaning::Table(next, _) => self.link(c, next >> 12, level - 1, va, root),
                    _ => {}
                }
            }
        }
    }

    /// The same frame under other rights or marks.
    fn rights_change(&mut self, c: usize, at: EntryAt, frame: u64, old: Rights, new: Rights) {
        let EntryAt { root, va, level, source } = at;
        if !self.is_of_type(c, at, frame >> 12) {
            return;
        }
        if old.write != new.write {
            self.count_writers(frame, level, if new.write { 1 } else { u32::MAX });
            if new.write {
                self.writable(c, frame, level, va);
                self.shows(c, root, va, level, Shown::Frame(frame >> 12, true));
            }
        }
        let fewer = old.write && !new.write || old.exec && !new.exec || old.user && !new.user;
        // Only a writable page has a dirty mark: what goes with the right to write is counted
        // there.
        let cleaned = old.write && new.write && old.dirty && !new.dirty;
        if fewer || cleaned {
            self.mark_leaf(root, va, level, source);
            self.open_leaf(c, at, frame, old);
        }
    }

    /// Under break-before-make, nothing new may stand where an old translation can live.
    fn made_after_break(&mut self, c: usize, root: u32, va: u64, level: u8, frame: u64) {
        if !self.mmu.break_before_make || self.oracle.open == 0 {
            return;
        }
        let (start, end) = (va >> 12, (va >> 12) + (1u64 << (9 * (u32::from(level) - 1))));
        let old = self.oracle.parts.iter().flatten().find(|p| {
            p.root == root && p.start < end && start < p.end && !p.deferred && !p.open.is_empty()
        });
        let Some(old) = old else { return };
        let same = frame != u64::MAX && old.level == level && old.cut == 0 && {
            self.took(old, start, frame >> 12)
        };
        if !same {
            let why = format!(
                "a new translation is made while CPUs {:?} may still hold the old one",
                old.open
            );
            self.fail(c, Rule::BreakBeforeMake, Some(va), None, why);
        }
    }

    /// A leaf becomes visible to hardware.
    pub(crate) fn leaf_comes(&mut self, c: usize, at: EntryAt, frame: u64, rights: Rights) {
        let EntryAt { root, va, level, .. } = at;
        let pages = 1u64 << (9 * (level - 1));
        let first = frame >> 12;
        if first + pages > self.ram.frames() {
            return self.malformed(c, frame, level, va);
        }
        if !self.is_of_type(c, at, first) {
            return;
        }
        for pfn in first..first + pages {
            let used = self.oracle.uses[pfn as usize];
            if self.ram.is_device(pfn) {
                // Whatever is in it is the device's, and everybody's.
                self.oracle.frames[pfn as usize].memory_type =
                    F::memory_type(self.ram.load(at.source), level);
            } else if used == Use::Zero as u8 {
                if rights.write {
                    return self.fail(
                        c,
                        Rule::Zero,
                        Some(va),
                        Some(pfn),
                        "the shared zero frame is mapped writable".into(),
                    );
                }
                if !self.contents.is_zero(pfn) {
                    return self.fail(
                        c,
                        Rule::Zero,
                        Some(va),
                        Some(pfn),
                        "the shared zero frame is mapped and is not known to be zero".into(),
                    );
                }
            } else if !super::frames::is_data(used) {
                let used = super::frames::use_of(used);
                return self.fail(
                    c,
                    Rule::FrameState,
                    Some(va),
                    Some(pfn),
                    format!("an entry maps a frame that is {used:?}"),
                );
            } else if self.contents.is_foreign(pfn) {
                let why =
                    "it is mapped before it was cleared or fully overwritten: its last owner's \
                     bytes are in it"
                        .into();
                return self.fail(c, Rule::Dirty, Some(va), Some(pfn), why);
            }
            let note = &mut self.oracle.frames[pfn as usize];
            note.maps += 1;
            note.writers += u32::from(rights.write);
        }
        self.writable(c, frame, level, va);
        self.shows(c, root, va, level, Shown::Frame(first, rights.write));
    }

    /// Whether the entry at a place maps a block in the memory type that it must have: write-back
    /// (0 in both formats) what is memory, and in no two at once what is a device's.
    fn is_of_type(&mut self, c: usize, at: EntryAt, first: u64) -> bool {
        let EntryAt { va, level, source, .. } = at;
        let memory_type = F::memory_type(self.ram.load(source), level);
        // Who took the old mapping away flushes its own CPU before its program goes on.
        let held = |pfn: u64| {
            self.obligation_on(pfn).is_some_and(|mut open| {
                open.remove(c);
                !open.is_empty()
            })
        };
        let other = |pfn: &u64| {
            let note = &self.oracle.frames[*pfn as usize];
            note.memory_type != memory_type && (note.maps > 0 || held(*pfn))
        };
        let wrong = if self.ram.is_device(first) {
            (first..first + (1u64 << (9 * (level - 1)))).find(other)
        } else {
            (memory_type != 0).then_some(first)
        };
        if let Some(pfn) = wrong {
            let why = format!("an entry maps it by memory type {memory_type}, which is another's");
            self.fail(c, Rule::MemoryType, Some(va), Some(pfn), why);
        }
        wrong.is_none()
    }

    /// Hardware no longer finds a leaf.
    pub(crate) fn leaf_goes(&mut self, frame: u64, level: u8, write: bool) {
        for pfn in frame >> 12..(frame >> 12) + (1u64 << (9 * (level - 1))) {
            let note = &mut self.oracle.frames[pfn as usize];
            note.maps = note.maps.wrapping_sub(1);
            note.writers = note.writers.wrapping_sub(u32::from(write));
        }
    }

    fn count_writers(&mut self, frame: u64, level: u8, by: u32) {
        for pfn in frame >> 12..(frame >> 12) + (1u64 << (9 * (level - 1))) {
            let note = &mut self.oracle.frames[pfn as usize];
            note.writers = note.writers.wrapping_add(by);
        }
    }

    /// Stops the run if a frame that is mapped more than once can be written through one of its
    /// mappings, unless an object has it.
    fn writable(&mut self, c: usize, frame: u64, level: u8, va: u64) {
        for pfn in frame >> 12..(frame >> 12) + (1u64 << (9 * (level - 1))) {
            // The pages of an object are for all that map it, and so is a device.
            if self.oracle.uses[pfn as usize] == Use::Object as u8 || self.ram.is_device(pfn) {
                continue;
            }
            let shared = |n: &FrameNote| n.maps > 1 && n.writers > 0;
            if shared(&self.oracle.frames[pfn as usize]) {
                self.forget_unreachable(c); // What a dying tree still maps is no mapping any more.
            }
            let note = &self.oracle.frames[pfn as usize];
            if shared(note) {
                let why = format!(
                    "{} entries map it and {} of them may write it",
                    note.maps, note.writers
                );
                return self.fail(c, Rule::Shared, Some(va), Some(pfn), why);
            }
        }
    }

    /// Marks what CPUs hold of one leaf.
    fn mark_leaf(&mut self, root: u32, va: u64, level: u8, source: u64) {
        let bytes = 1u64 << (12 + 9 * (u32::from(level) - 1));
        for cpu in self.oracle.roots[root as usize].cpus.iter() {
            let mut marked = 0;
            for tlb in self.cpus[cpu].tlbs() {
                marked += if level == 1 {
                    tlb.mark_stale(va, source)
                } else {
                    tlb.mark_stale_range(va, bytes, |e| e.source == source)
                };
            }
            if marked > 0 {
                self.cpus[cpu].forget();
            }
        }
        for w in &mut self.in_flight {
            w.stale |= w.sources[..w.read].contains(&source);
        }
    }

    /// Marks what CPUs hold of everything below one table entry.
    fn mark_below(&mut self, root: u32, va: u64, level: u8) {
        let bytes = 1u64 << (12 + 9 * (u32::from(level) - 1));
        for cpu in self.oracle.roots[root as usize].cpus.iter() {
            for tlb in self.cpus[cpu].tlbs() {
                tlb.mark_stale_range(va, bytes, |e| e.tag == root);
            }
            self.cpus[cpu]
                .walk_cache
                .mark_stale_range(va, bytes, |e| e.tag == root && e.level <= level);
            self.cpus[cpu].forget();
        }
        for w in &mut self.in_flight {
            w.stale |= w.root == root && w.level < level && w.va >= va && w.va < va + bytes;
        }
    }
}
