//! How much a program does with files.
use crate::event::Change;

/// Sums over the files of a trace; all 0 in a trace of format 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileSums {
    /// Files named.
    pub files: u64,
    /// Bytes read by calls.
    pub read: u64,
    /// Bytes written by calls.
    pub written: u64,
    /// Bytes of all mappings that name a file.
    pub mapped: u64,
}

impl FileSums {
    pub(super) fn count(&mut self, change: &Change) {
        let mut add = |to: fn(&mut FileSums) -> &mut u64, n: u64| {
            let sum = to(self);
            *sum = sum.saturating_add(n);
        };
        match change {
            Change::File { .. } => add(|s| &mut s.files, 1),
            Change::FileRead { bytes, .. } => add(|s| &mut s.read, *bytes),
            Change::FileWrite { bytes, .. } => add(|s| &mut s.written, *bytes),
            Change::Map(m) if m.file.is_some() => add(|s| &mut s.mapped, m.len),
            _ => {}
        }
    }
}
