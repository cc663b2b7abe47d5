//! Memory that was there before the first instruction: program image, interpreter, stack.
//!
//! The recorder reads it from the process's own list of mappings, which under user-mode emulation
//! also holds the emulator. A region therefore only becomes a mapping when the program touches it.
//! Images come as a group: neighbouring regions of one file and the anonymous tail behind them, so
//! that a replay keeps their distances.
use super::{Builder, FileState};
use crate::event::{Map, MapKind, Prot};
use crate::{PAGE, TraceError};
use std::collections::BTreeMap;
use std::io::Write;

/// A part of the address space found at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Rights.
    pub prot: Prot,
    /// What stands behind it: image, stack or unknown anonymous memory.
    pub kind: MapKind,
    /// Offset in the file, bytes.
    pub file_offset: u64,
    /// The file, if the recorder could ask about it.
    pub file: Option<FileState>,
    /// Regions with the same number belong to one image; 0 belongs to none.
    pub group: u32,
}

/// Regions not yet turned into mappings, by address.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    by_start: BTreeMap<u64, Region>,
}

impl Regions {
    pub(crate) fn new(list: Vec<Region>) -> Regions {
        let ok = |r: &Region| {
            r.start < r.end
                && r.end <= super::MAX_USER
                && r.start.is_multiple_of(PAGE)
                && r.end.is_multiple_of(PAGE)
        };
        Regions { by_start: list.into_iter().filter(ok).map(|r| (r.start, r)).collect() }
    }

    fn touching(&self, start: u64, end: u64) -> Option<Region> {
        let (_, r) = self.by_start.range(..end).next_back()?;
        (r.end > start).then(|| r.clone())
    }

    pub(crate) fn end_below(&self, addr: u64) -> u64 {
        let below = self.by_start.range(..=addr).next_back();
        below.map_or(0, |(_, r)| r.end)
    }

    pub(crate) fn start_above(&self, addr: u64) -> u64 {
        let above = self.by_start.range(addr..).next();
        above.map_or(u64::MAX, |(at, _)| *at)
    }

    /// Takes out a region and the rest of its group.
    fn take_group(&mut self, of: &Region) -> Vec<Region> {
        let in_group = |r: &Region| r.start == of.start || (of.group != 0 && r.group == of.group);
        let starts: Vec<u64> =
            self.by_start.values().filter(|r| in_group(r)).map(|r| r.start).collect();
        starts.iter().filter_map(|s| self.by_start.remove(s)).collect()
    }
}

impl<W: Write> Builder<W> {
    /// Turns the regions that overlap `start .. end` into mappings. Returns whether there were any.
    pub(super) fn materialise(&mut self, start: u64, end: u64) -> Result<bool, TraceError> {
        let mut any = false;
        while let Some(r) = self.regions.touching(start, end) {
            any = true;
            let group = self.regions.take_group(&r);
            let low = group.iter().map(|r| r.start).min().unwrap_or(r.start);
            let high = group.iter().map(|r| r.end).max().unwrap_or(r.end);
            let free = self.layout.parts(low, high).is_empty();
            let root = if group.len() > 1 && free {
                let root = (self.next_mapping, low);
                self.add(self.synthetic(low..high, MapKind::Image, Prot::NONE))?;
                Some(root)
            } else {
                None
            };
            for r in group {
                let inside = root.map(|(of, base)| (of, r.start - base));
                if inside.is_some() {
                    self.layout.carve(r.start, r.end);
                } else if !self.layout.parts(r.start, r.end).is_empty() {
                    // A call has already put something else here.
                    continue;
                }
                let file = self.mapped_file(r.file, r.file_offset, r.end - r.start)?;
                let map = self.synthetic(r.start..r.end, r.kind, r.prot);
                self.add(Map { file_offset: r.file_offset, file, inside, ..map })?;
            }
        }
        Ok(any)
    }
}
