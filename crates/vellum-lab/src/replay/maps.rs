//! The address of each mapping of the trace in the replay, and the calls on it that are still to
//! come.
//!
//! The number of a mapping is its index: the trace counts mappings from 0. One access reads one
//! entry (base, length, next call), so entries are small and flat. The set of later calls is kept
//! apart.

use std::collections::BTreeSet;

use vellum_trace::event::{Change, MapKind, Prot};

use super::events::Wait;

/// No call is due.
const OPEN: u64 = u64::MAX;

/// A mapping.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its address, once it is placed.
    pub base: u64,
    /// Bytes it has now.
    pub len: u64,
    /// Number of the earliest call on it that is not done; accesses with later numbers wait.
    pub next_call: u64,
    /// What stands behind it.
    pub kind: MapKind,
    /// Every right it was ever given.
    pub given: Prot,
    /// Rights at the time it was made.
    pub made: Prot,
    /// The file that it shows, where the trace names one.
    pub file: Option<u32>,
}

/// A file when it appeared.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileStart {
    /// Its size.
    pub bytes: u64,
    /// It is a memfd, which no disk has.
    pub is_memory: bool,
}

/// What is known of a mapping when an access asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessLookup {
    /// The byte lies here.
    At(u64),
    /// A call before the access is not done yet.
    Wait,
    /// The trace never made such a mapping.
    Unknown,
    /// The mapping is shorter.
    Beyond(u64),
}

/// All mappings of a replay.
#[derive(Debug, Default)]
pub struct Maps {
    places: Vec<Place>,
    due: BTreeSet<(u32, u64)>,
    /// What each file was when it appeared.
    files: Vec<FileStart>,
    /// Calls on files that are not done: the file's number and the call's.
    file_due: BTreeSet<(u32, u64)>,
    calls_done: u64,
}

impl Maps {
    /// No mappings.
    pub fn new() -> Maps {
        Maps::default()
    }

    /// The address of `size` bytes of a mapping for the event of this number.
    #[inline(always)]
    pub fn find(&self, mapping: u32, offset: u64, size: u64, number: u64) -> AccessLookup {
        let Some(p) = self.places.get(mapping as usize) else { return AccessLookup::Unknown };
        if p.next_call <= number {
            return AccessLookup::Wait;
        }
        if offset.checked_add(size).is_none_or(|end| end > p.len) {
            return AccessLookup::Beyond(p.len);
        }
        AccessLookup::At(p.base + offset)
    }

    /// A mapping, if the trace has announced it.
    pub fn get(&self, mapping: u32) -> Option<&Place> {
        self.places.get(mapping as usize)
    }

    /// Whether no call before `number` is due on a mapping. Unknown mappings are open: whoever asks
    /// will find that out.
    pub fn is_open(&self, mapping: u32, number: u64) -> bool {
        self.get(mapping).is_none_or(|p| p.next_call >= number)
    }

    /// Whether no call before `number` is due on a file.
    pub fn is_file_open(&self, file: u32, number: u64) -> bool {
        self.file_due.range((file, 0)..(file, number)).next().is_none()
    }

    /// What a file was when it appeared.
    pub fn file(&self, file: u32) -> FileStart {
        self.files.get(file as usize).copied().unwrap_or_default()
    }

    /// A call was read: its mappings are closed to what comes after it.
    pub fn announce(&mut self, change: &Change, number: u64) {
        if let Change::Map(m) = change {
            while self.places.len() <= m.mapping as usize {
                self.places.push(Place {
                    base: 0,
                    len: 0,
                    next_call: OPEN,
                    kind: m.kind,
                    given: Prot::NONE,
                    made: m.prot,
                    file: m.file,
                });
            }
        }
        if let Change::File { bytes, name, .. } = change {
            let is_memory = name.as_ref().is_some_and(|name| name.starts_with("memfd:"));
            self.files.push(FileStart { bytes: *bytes, is_memory });
        }
        if let Some(file) = changed_file(change) {
            self.file_due.insert((file, number));
        }
        for mapping in concerned(change) {
            if (mapping as usize) < self.places.len() {
                self.due.insert((mapping, number));
                self.find_next_call(mapping);
            }
        }
    }

    /// How many calls are done.
    pub fn calls_done(&self) -> u64 {
        self.calls_done
    }

    /// A call is done.
    pub fn done(&mut self, change: &Change, number: u64) {
        self.calls_done += 1;
        if let Some(file) = changed_file(change) {
            self.file_due.remove(&(file, number));
        }
        for mapping in concerned(change) {
            self.due.remove(&(mapping, number));
            self.find_next_call(mapping);
        }
    }

    /// A mapping lies here now.
    pub fn place(&mut self, mapping: u32, base: u64, len: u64, prot: Prot) {
        if let Some(p) = self.places.get_mut(mapping as usize) {
            p.base = base;
            p.len = len;
            p.given = Prot(p.given.0 | prot.0);
        }
    }

    /// A mapping has other rights in a part.
    pub fn give(&mut self, mapping: u32, prot: Prot) {
        if let Some(p) = self.places.get_mut(mapping as usize) {
            p.given = Prot(p.given.0 | prot.0);
        }
    }

    /// A mapping has another length.
    pub fn resize(&mut self, mapping: u32, len: u64) {
        if let Some(p) = self.places.get_mut(mapping as usize) {
            p.len = len;
        }
    }

    /// Whether giving exactly `prot` to a part may take a right that the part has.
    pub fn takes_rights(&self, mapping: u32, prot: Prot) -> bool {
        self.get(mapping).is_some_and(|p| p.given.0 & !prot.0 != 0)
    }

    /// Whether a new length is shorter than the present one.
    pub fn shrinks(&self, mapping: u32, len: u64) -> bool {
        self.get(mapping).is_some_and(|p| len < p.len)
    }

    fn find_next_call(&mut self, mapping: u32) {
        let first = self.due.range((mapping, 0)..=(mapping, OPEN)).next().map_or(OPEN, |&(_, n)| n);
        if let Some(p) = self.places.get_mut(mapping as usize) {
            p.next_call = first;
        }
    }
}

/// The mappings a call is about.
fn concerned(change: &Change) -> impl Iterator<Item = u32> + use<> {
    let (a, b) = match change {
        Change::Map(m) => (Some(m.mapping), None),
        Change::Unmap { mapping, .. }
        | Change::Protect { mapping, .. }
        | Change::Advise { mapping, .. }
        | Change::Brk { mapping, .. } => (Some(*mapping), None),
        Change::Remap { old, new, .. } => (Some(*old), Some(*new)),
        Change::Fork { .. }
        | Change::ChildEnd { .. }
        | Change::Vfork
        | Change::Exec
        | Change::Exit { .. } => (None, None),
        Change::File { .. }
        | Change::FileRead { .. }
        | Change::FileWrite { .. }
        | Change::FileResize { .. }
        | Change::FileSync { .. }
        | Change::FileAdvise { .. } => (None, None),
    };
    a.into_iter().chain(b)
}

/// The file that a call changes or reads.
fn changed_file(change: &Change) -> Option<u32> {
    match change {
        Change::FileRead { file, .. }
        | Change::FileWrite { file, .. }
        | Change::FileResize { file, .. }
        | Change::FileSync { file, .. }
        | Change::FileAdvise { file, .. } => Some(*file),
        _ => None,
    }
}

/// What the call of that number has to wait for: a call before it on one of its mappings, or on its
/// file.
pub(super) fn closed(change: &Change, number: u64, maps: &Maps) -> Option<Wait> {
    let file = match change {
        Change::Map(m) => m.file,
        change => changed_file(change),
    };
    let mapping = concerned(change).find(|&m| !maps.is_open(m, number));
    let file = file.filter(|&file| !maps.is_file_open(file, number));
    mapping.map(|m| Wait::Call(m, number)).or(file.map(|file| Wait::File(file, number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_trace::event::Map;

    fn map(mapping: u32, len: u64) -> Change {
        Change::Map(Map {
            mapping,
            len,
            prot: Prot(3),
            kind: MapKind::Anon,
            base: 0,
            inside: None,
            file_offset: 0,
            file: None,
            synthetic: false,
            moved: false,
            populate: false,
        })
    }

    #[test]
    fn an_access_waits_for_the_calls_before_it_and_not_for_those_after() {
        let mut maps = Maps::new();
        assert_eq!(maps.find(0, 0, 8, 3), AccessLookup::Unknown);
        maps.announce(&map(0, 4096), 2);
        assert_eq!(maps.find(0, 0, 8, 3), AccessLookup::Wait);
        maps.place(0, 0x10000, 4096, Prot(3));
        maps.done(&map(0, 4096), 2);
        assert_eq!(maps.find(0, 8, 8, 3), AccessLookup::At(0x10008));
        maps.announce(&Change::Unmap { mapping: 0, offset: 0, len: 4096 }, 9);
        assert_eq!(maps.find(0, 8, 8, 8), AccessLookup::At(0x10008));
        assert_eq!(maps.find(0, 8, 8, 10), AccessLookup::Wait);
    }

    #[test]
    fn an_access_past_the_end_is_told_the_length() {
        let mut maps = Maps::new();
        maps.announce(&map(0, 4096), 0);
        maps.place(0, 0x10000, 4096, Prot(3));
        maps.done(&map(0, 4096), 0);
        assert_eq!(maps.find(0, 4090, 8, 1), AccessLookup::Beyond(4096));
        assert_eq!(maps.find(0, u64::MAX, 8, 1), AccessLookup::Beyond(4096));
    }

    #[test]
    fn only_fewer_rights_and_shorter_heaps_take_something() {
        let mut maps = Maps::new();
        maps.announce(&map(0, 8192), 0);
        maps.place(0, 0x10000, 8192, Prot(1));
        assert!(!maps.takes_rights(0, Prot(3)));
        maps.give(0, Prot(3));
        assert!(maps.takes_rights(0, Prot(1)));
        assert!(maps.shrinks(0, 4096) && !maps.shrinks(0, 8192));
    }
}
