//! The load: a recorded compilation as pages that objects get and lose, among cache lines that the
//! program touches.
//!
//! Each anonymous mapping is an object, as in the published system, and its first touch of a page
//! is a call that allocates. A file is an object too: the parts of an image are one file, and its
//! pages are allocated in the first run alone. A write to a private file's page allocates another
//! in an object of the mapping. What follows from a call of the program (unmap, contents dropped, a
//! mapping over another, a shorter heap) takes pages out; the end of the program takes all of them
//! but those of files.

use std::path::Path;

use vellum_sim::cache::Kind;
use vellum_trace::event::{Advice, Change, Event, Map, MapKind};
use vellum_trace::{LINE, PAGE, TraceReader};

use crate::error::LabError;

/// A page of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ObjectPage {
    /// The object.
    pub object: usize,
    /// The page in it.
    pub index: u64,
}

/// What happens to objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// A page is touched first.
    Touch(Touched),
    /// It leaves its object.
    Drop(Touched),
}

/// A page of the program, and the object that it is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touched {
    /// Number of the program's page.
    pub page: u32,
    /// Where it is.
    pub of: ObjectPage,
    /// Of a file's object, which keeps it from run to run.
    pub is_file: bool,
}

/// An act among the lines.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Lines touched before it.
    pub at: usize,
    /// Lines touched in a row up to it, without one that the recorder left out.
    pub warm: usize,
    /// What happens.
    pub act: Act,
}

/// A run of the program.
#[derive(Default)]
pub struct Load {
    lines: Vec<u32>,
    /// In order.
    pub moments: Vec<Moment>,
    /// Pages of the program that were numbered.
    pub pages: usize,
    /// Objects that were numbered.
    pub objects: usize,
}

impl Load {
    /// Reads a trace.
    pub fn read(path: &Path) -> Result<Load, LabError> {
        let failed = |e| LabError::failed(format_args!("{}: {e}", path.display()));
        let mut reader = TraceReader::open(path).map_err(failed)?;
        let (mut reading, mut block) = (Reading::default(), Vec::new());
        while reader.next_block(&mut block).map_err(failed)? {
            for event in &block {
                reading.event(event)?;
            }
        }
        let Reading { mut load, state, maps, .. } = reading;
        (load.pages, load.objects) = (state.len(), 2 * maps.len());
        Ok(load)
    }

    /// The lines between two numbers: the program's page, the line in it, and what is done.
    pub fn lines(&self, range: std::ops::Range<usize>) -> impl Iterator<Item = Line> + '_ {
        self.lines[range].iter().map(|&packed| Line {
            page: packed >> 8,
            line: packed >> 2 & 63,
            kind: [Kind::Load, Kind::Store, Kind::Fetch][packed as usize & 3],
        })
    }

    /// Lines touched in all.
    pub fn touched(&self) -> usize {
        self.lines.len()
    }
}

/// A line that the program touches.
pub struct Line {
    /// Number of the program's page.
    pub page: u32,
    /// The line in it.
    pub line: u32,
    /// What is done.
    pub kind: Kind,
}

/// What is known of a page of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Has {
    Nothing,
    File(ObjectPage),
    Own(ObjectPage),
}

#[derive(Default)]
struct Reading {
    load: Load,
    maps: Vec<Map>,
    /// Numbers of each mapping's pages, more by one; 0: none yet.
    numbers: Vec<Vec<u32>>,
    state: Vec<Has>,
    warm: usize,
}

impl Reading {
    fn event(&mut self, event: &Event) -> Result<(), LabError> {
        match event {
            Event::Access { mapping, offset, size, flags } => {
                let last = offset + u64::from((*size).max(1)) - 1;
                for line in offset / LINE..=last / LINE {
                    self.line(*mapping, line * LINE, u32::from(flags.write()))?;
                }
            }
            Event::Fetch { mapping, offset, .. } => self.line(*mapping, *offset, 2)?,
            Event::Skip { .. } => self.warm = 0,
            Event::Call(call) => self.change(&call.change),
            _ => {}
        }
        Ok(())
    }

    fn line(&mut self, mapping: u32, offset: u64, kind: u32) -> Result<(), LabError> {
        let Some(numbers) = self.numbers.get_mut(mapping as usize) else {
            return Err(LabError::failed("the trace touches a mapping that it never made"));
        };
        let at = (offset / PAGE) as usize;
        if numbers.len() <= at {
            numbers.resize(at + 1, 0);
        }
        if numbers[at] == 0 {
            self.state.push(Has::Nothing);
            numbers[at] = self.state.len() as u32;
        }
        let page = numbers[at] - 1;
        let writes = kind == 1;
        match self.state[page as usize] {
            Has::Own(_) => {}
            Has::File(_) if !writes => {}
            _ => self.touch(mapping, at as u64, page, writes),
        }
        self.load.lines.push(page << 8 | ((offset % PAGE / LINE) as u32) << 2 | kind);
        self.warm += 1;
        Ok(())
    }

    /// A first touch: a page of the file, then one of the mapping where it is written.
    fn touch(&mut self, mapping: u32, at: u64, page: u32, writes: bool) {
        let map = &self.maps[mapping as usize];
        let own = ObjectPage { object: 2 * mapping as usize, index: at };
        let (is_file, is_private) = (map.kind.is_file(), map.kind != MapKind::FileShared);
        if is_file && self.state[page as usize] == Has::Nothing {
            let file = map.inside.map_or(mapping, |(outer, _)| outer);
            let of =
                ObjectPage { object: 2 * file as usize + 1, index: map.file_offset / PAGE + at };
            self.state[page as usize] = Has::File(of);
            self.act(Act::Touch(Touched { page, of, is_file: true }));
        }
        if !is_file || writes && is_private {
            self.state[page as usize] = Has::Own(own);
            self.act(Act::Touch(Touched { page, of: own, is_file: false }));
        }
    }

    fn act(&mut self, act: Act) {
        let (at, warm) = (self.load.lines.len(), self.warm);
        self.load.moments.push(Moment { at, warm, act });
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Map(map) => {
                self.drop_addresses(map.base, map.len);
                self.maps.push(map.clone());
                self.numbers.push(Vec::new());
            }
            Change::Unmap { mapping, offset, len }
            | Change::Advise { mapping, offset, len, advice: Advice::DontNeed } => {
                self.drop_pages(*mapping, *offset, *len);
            }
            Change::Brk { mapping, len } => {
                if let Some(map) = self.maps.get_mut(*mapping as usize) {
                    map.len = *len;
                }
                self.drop_pages(*mapping, *len, u64::MAX - *len);
            }
            Change::Remap { old, offset, len, new } => self.remap(*old, *offset, *len, *new),
            _ => {}
        }
    }

    /// Pages keep their objects when they move.
    fn remap(&mut self, old: u32, offset: u64, len: u64, new: u32) {
        let Some(from) = self.numbers.get_mut(old as usize) else { return };
        let first = ((offset / PAGE) as usize).min(from.len());
        let end = (offset.saturating_add(len).div_ceil(PAGE) as usize).min(from.len());
        let moved = from[first..end].iter_mut().map(std::mem::take).collect();
        if let Some(to) = self.numbers.get_mut(new as usize) {
            *to = moved;
        }
    }

    /// A mapping takes its addresses from those that had them.
    fn drop_addresses(&mut self, base: u64, len: u64) {
        for mapping in 0..self.maps.len() {
            let map = &self.maps[mapping];
            let (first, end) = (base.max(map.base), (base + len).min(map.base + map.len));
            if first < end {
                self.drop_pages(mapping as u32, first - map.base, end - first);
            }
        }
    }

    fn drop_pages(&mut self, mapping: u32, offset: u64, len: u64) {
        let Some(numbers) = self.numbers.get(mapping as usize) else { return };
        let first = ((offset / PAGE) as usize).min(numbers.len());
        let end = (offset.saturating_add(len).div_ceil(PAGE) as usize).min(numbers.len());
        let gone: Vec<u32> = numbers[first..end].iter().filter_map(|n| n.checked_sub(1)).collect();
        for page in gone {
            if let Has::Own(of) = std::mem::replace(&mut self.state[page as usize], Has::Nothing) {
                self.act(Act::Drop(Touched { page, of, is_file: false }));
            }
        }
    }
}
