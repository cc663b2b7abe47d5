//! From addresses to events: what the recorder and the importers share.
//!
//! A [`Builder`] takes what a tool sees (addresses, system calls with their results) in an order
//! that respects cause and effect, follows the address space, names mappings, applies sampling
//! windows and writes the trace. It runs in the recorder's background thread, so a hit in its page
//! cache has to be cheap: a word of a table with 65,536 answers "which mapping, which offset,
//! is this a first touch".
mod calls;
mod files;
mod layout;
mod maps;
mod pages;
mod regions;
mod touch;
mod window;

pub use calls::MapRequest;
pub use files::{FileCall, FileId, FilePart, FileState};
pub use maps::parse_maps;
pub use regions::Region;
pub use window::{BadWindow, Clock, Window};

use crate::event::{Call, Change, Event, Flags, Map, MapKind, Prot};
use crate::totals::Totals;
use crate::writer::Mark;
use crate::{LINE, PAGE, TraceError, TraceWriter};
use layout::{Layout, Piece};
use pages::Pages;
use regions::Regions;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::ops::Range;
pub(crate) use touch::{Mixer, Touches};
use touch::{READ, WRITTEN};
use window::Position;

/// Addresses from here on (the kernel's half, and the `vsyscall` page) are not recorded.
pub const MAX_USER: u64 = 1 << 47;
/// Memory of unknown origin is mapped in blocks of this size.
const NEIGHBOURHOOD: u64 = 2 << 20;

/// Turns addresses and calls into a trace.
pub struct Builder<W: Write> {
    writer: TraceWriter<W>,
    layout: Layout,
    regions: Regions,
    touches: Touches,
    pages: Pages,
    /// Where the page lay that was not known last, and where that piece begins.
    last_piece: Option<(u64, Piece)>,
    window: Position,
    /// The thread that calls are about, and the one the trace was last switched to: a switch is
    /// written when something of the thread is, or windows would be full of switches between
    /// nothing.
    thread: u32,
    written: Option<u32>,
    /// Nothing is to be written before the current thread's next event.
    settled: bool,
    /// What the windows left out of the current thread's and no `Skip` has told yet.
    skipped: (u64, u64),
    /// The same of other threads.
    skipped_elsewhere: BTreeMap<u32, (u64, u64)>,
    next_thread: u32,
    next_mapping: u32,
    heap: Option<calls::Heap>,
    /// Children that were numbered.
    children: u32,
    files: files::Files,
    /// What lies behind a mapping of a file, unless it is the beginning of an unknown one.
    behind: HashMap<u32, Behind>,
    calls: u64,
    /// Where the trace was before an `execve` that may fail.
    before_exec: Option<Mark>,
}

/// The part of a file that a mapping shows.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Behind {
    file: Option<u32>,
    offset: u64,
}

/// An address in the trace's terms.
#[derive(Clone, Copy)]
struct Resolved {
    mapping: u32,
    offset: u64,
    /// This is the page's first touch.
    first: bool,
}

impl<W: Write> Builder<W> {
    /// A builder on an empty address space.
    pub fn new(writer: TraceWriter<W>, window: Option<Window>) -> Builder<W> {
        Builder {
            writer,
            layout: Layout::default(),
            regions: Regions::default(),
            touches: Touches::default(),
            pages: Pages::new(),
            last_piece: None,
            window: Position::new(window),
            thread: 0,
            written: None,
            settled: false,
            skipped: (0, 0),
            skipped_elsewhere: BTreeMap::new(),
            next_thread: 0,
            next_mapping: 0,
            heap: None,
            children: 0,
            files: files::Files::default(),
            behind: HashMap::new(),
            calls: 0,
            before_exec: None,
        }
    }

    /// Memory that may exist before the first instruction. A region becomes a mapping when it is
    /// first touched or named by a call, so a list that also holds the tool's own memory does no
    /// harm.
    pub fn set_regions(&mut self, regions: Vec<Region>) {
        self.regions = Regions::new(regions);
    }

    /// A new thread; returns its number. The next [`Builder::switch`] can name it.
    ///
    /// # Errors
    /// As [`TraceWriter::push`], here and below.
    pub fn start_thread(&mut self) -> Result<u32, TraceError> {
        let thread = self.next_thread;
        self.next_thread += 1;
        self.writer.push(&Event::ThreadStart { thread })?;
        Ok(thread)
    }

    /// The following belongs to this thread.
    ///
    /// # Errors
    /// As [`TraceWriter::push`].
    pub fn switch(&mut self, thread: u32) -> Result<(), TraceError> {
        if thread >= self.next_thread {
            return Err(TraceError::BadEvent { what: "a switch to a thread that never started" });
        }
        if thread != self.thread {
            if self.skipped != (0, 0) {
                self.skipped_elsewhere.insert(self.thread, self.skipped);
            }
            self.skipped = self.skipped_elsewhere.remove(&thread).unwrap_or_default();
            self.thread = thread;
            self.settled = false;
        }
        Ok(())
    }

    /// A thread has ended.
    ///
    /// # Errors
    /// As [`TraceWriter::push`].
    pub fn end_thread(&mut self, thread: u32) -> Result<(), TraceError> {
        self.switch(thread)?;
        if self.skipped != (0, 0) {
            self.settle()?;
        }
        if self.written == Some(thread) {
            self.written = None;
            self.settled = false;
        }
        self.writer.push(&Event::ThreadEnd { thread })
    }

    /// Switches the trace to the current thread and tells what was left out.
    #[cold]
    fn settle(&mut self) -> Result<(), TraceError> {
        if self.written != Some(self.thread) {
            self.writer.push(&Event::Switch { thread: self.thread })?;
            self.written = Some(self.thread);
        }
        while self.skipped != (0, 0) {
            let accesses = self.skipped.0.min(u64::from(u32::MAX));
            let instructions = self.skipped.1;
            self.writer.push(&Event::Skip { accesses: accesses as u32, instructions })?;
            self.skipped = (self.skipped.0 - accesses, 0);
        }
        self.settled = true;
        Ok(())
    }

    /// Tells what was left out of every thread.
    fn settle_all(&mut self) -> Result<(), TraceError> {
        let threads: Vec<u32> = self.skipped_elsewhere.keys().copied().collect();
        let current = self.thread;
        for thread in threads {
            self.switch(thread)?;
            self.settle()?;
        }
        if current < self.next_thread {
            self.switch(current)?;
        }
        if self.skipped != (0, 0) { self.settle() } else { Ok(()) }
    }

    /// Where an address lies in the trace's terms.
    #[inline(always)]
    fn resolve(&mut self, addr: u64, write: bool) -> Result<Resolved, TraceError> {
        let touches = if write { READ | WRITTEN } else { READ };
        match self.pages.find(addr, touches) {
            Some((mapping, base)) => Ok(Resolved { mapping, offset: addr - base, first: false }),
            None => self.resolve_slow(addr, write),
        }
    }

    /// An access to this address comes soon. Saying so is never needed.
    #[inline(always)]
    pub fn expect(&self, addr: u64) {
        self.pages.expect(addr);
    }

    #[cold]
    fn resolve_slow(&mut self, addr: u64, write: bool) -> Result<Resolved, TraceError> {
        let last = self.last_piece.filter(|(start, piece)| (*start..piece.end).contains(&addr));
        let found = match last.or_else(|| self.layout.find(addr)) {
            Some(found) => found,
            None => self.discover(addr)?,
        };
        self.last_piece = Some(found);
        let (_, piece) = found;
        let offset = addr - piece.base;
        let (first, bits) = self.touches.touch(piece.mapping, offset, write);
        self.pages.learn(addr, (piece.mapping, piece.base), bits);
        Ok(Resolved { mapping: piece.mapping, offset, first })
    }

    /// The layout or the touched bits changed: what is known of pages is void.
    fn invalidate(&mut self) {
        self.last_piece = None;
        self.pages.forget();
    }

    /// A load or store by the program. One that crosses a page is two touches but stays one event
    /// unless its parts lie in different mappings.
    ///
    /// # Errors
    /// As [`TraceWriter::push`].
    #[inline(always)]
    pub fn access(&mut self, addr: u64, size: u8, flags: Flags) -> Result<(), TraceError> {
        let open = self.window.step();
        let size = size.clamp(1, 64);
        if addr % PAGE + u64::from(size) > PAGE {
            return self.crossing(addr, size, flags, open);
        }
        if addr >= MAX_USER {
            return Ok(());
        }
        let Resolved { mapping, offset, first } = self.resolve(addr, flags.write())?;
        if open || first {
            if !self.settled {
                self.settle()?;
            }
            self.writer.access(mapping, offset, size, flags)
        } else {
            (self.skipped.0, self.settled) = (self.skipped.0 + 1, false);
            Ok(())
        }
    }

    #[cold]
    fn crossing(
        &mut self,
        addr: u64,
        size: u8,
        flags: Flags,
        open: bool,
    ) -> Result<(), TraceError> {
        let Some(end) = addr.checked_add(u64::from(size)).filter(|end| *end <= MAX_USER) else {
            return Ok(());
        };
        let cut = (addr / PAGE + 1) * PAGE;
        let low = self.resolve(addr, flags.write())?;
        let high = self.resolve(cut, flags.write())?;
        if !(open || low.first || high.first) {
            (self.skipped.0, self.settled) = (self.skipped.0 + 1, false);
            return Ok(());
        }
        self.settle()?;
        let n = (cut - addr) as u8;
        if low.mapping == high.mapping && high.offset == low.offset + u64::from(n) {
            let Resolved { mapping, offset, .. } = low;
            return self.writer.access(mapping, offset, size, flags);
        }
        for (Resolved { mapping, offset, first }, size) in [(low, n), (high, (end - cut) as u8)] {
            if open || first {
                self.writer.access(mapping, offset, size, flags)?;
            }
        }
        Ok(())
    }

    /// Execution entered the instruction line at `addr` and began `insns` instructions there.
    ///
    /// # Errors
    /// As [`TraceWriter::push`].
    #[inline(always)]
    pub fn fetch(&mut self, addr: u64, insns: u8) -> Result<(), TraceError> {
        let (addr, insns) = (addr / LINE * LINE, insns.min(LINE as u8));
        if addr >= MAX_USER {
            return Ok(());
        }
        let Resolved { mapping, offset, first } = self.resolve(addr, false)?;
        if self.window.open || first {
            if !self.settled {
                self.settle()?;
            }
            self.writer.fetch(mapping, offset, insns)
        } else {
            self.skipped.1 += u64::from(insns);
            self.settled = false;
            Ok(())
        }
    }

    /// The kernel read or wrote `len` bytes for the current thread.
    ///
    /// # Errors
    /// As [`TraceWriter::push`].
    pub fn kernel(&mut self, addr: u64, len: u64, write: bool) -> Result<(), TraceError> {
        let Some(end) = addr.checked_add(len).filter(|end| *end <= MAX_USER) else {
            return Ok(());
        };
        let open = self.window.open;
        let mut at = addr;
        // A run of pages that lie behind each other in one mapping becomes one range.
        let mut run: Option<(u32, u64, u64)> = None;
        while at < end {
            let n = (PAGE - at % PAGE).min(end - at);
            let Resolved { mapping, offset, first } = self.resolve(at, write)?;
            at += n;
            if !(open || first) {
                continue;
            }
            // Outside windows one line of the page is enough to make it present.
            let n = if open { n } else { n.min(LINE) };
            run = match run {
                Some((m, o, l)) if m == mapping && o + l == offset => Some((m, o, l + n)),
                Some((m, o, l)) => {
                    self.settle()?;
                    self.writer.kernel(m, o, l, write)?;
                    Some((mapping, offset, n))
                }
                None => Some((mapping, offset, n)),
            };
        }
        if let Some((m, o, l)) = run {
            self.settle()?;
            self.writer.kernel(m, o, l, write)?;
        }
        Ok(())
    }

    fn call(&mut self, change: Change) -> Result<(), TraceError> {
        self.settle()?;
        let order = self.calls;
        self.writer.push(&Event::Call(Box::new(Call { order, change })))?;
        self.calls += 1;
        Ok(())
    }

    /// An address nobody has mapped: a region known from the start, or a neighbourhood of unknown
    /// origin.
    fn discover(&mut self, addr: u64) -> Result<(u64, Piece), TraceError> {
        if !self.materialise(addr, addr + 1)? {
            let low = addr / NEIGHBOURHOOD * NEIGHBOURHOOD;
            let (start, end) = self.layout.gap(addr, low, low + NEIGHBOURHOOD);
            let start = start.max(self.regions.end_below(addr));
            let end = end.min(self.regions.start_above(addr));
            self.add(self.synthetic(start..end, MapKind::Unknown, Prot(3)))?;
        }
        self.layout
            .find(addr)
            .ok_or(TraceError::BadEvent { what: "an address that cannot be mapped" })
    }

    /// The next mapping, made up for memory that no call has mapped.
    fn synthetic(&self, range: Range<u64>, kind: MapKind, prot: Prot) -> Map {
        Map {
            mapping: self.next_mapping,
            len: range.end - range.start,
            prot,
            kind,
            base: range.start,
            inside: None,
            file_offset: 0,
            file: None,
            synthetic: true,
            moved: false,
            populate: false,
        }
    }

    /// Announces a mapping and enters it in the layout; its place must be free.
    fn add(&mut self, map: Map) -> Result<(), TraceError> {
        let root = match map.inside {
            Some((of, at)) => (of, map.base - at),
            None => (map.mapping, map.base),
        };
        if map.len > 0 {
            self.layout.insert(
                map.base,
                Piece {
                    end: map.base + map.len,
                    mapping: map.mapping,
                    base: map.base,
                    root,
                    prot: map.prot,
                    kind: map.kind,
                },
            );
        }
        let behind = Behind { file: map.file, offset: map.file_offset };
        if behind != Behind::default() {
            self.behind.insert(map.mapping, behind);
        }
        self.next_mapping += 1;
        self.invalidate();
        self.call(Change::Map(map))
    }

    /// Sums so far.
    pub fn totals(&self) -> &Totals {
        self.writer.totals()
    }

    /// Keeps all accesses from here on, or only first touches, whatever window there was: the
    /// caller decides by its clock.
    pub fn keep(&mut self, all: bool) {
        self.window.set(all);
    }

    /// Writes out what is pending, so that it survives this process.
    ///
    /// # Errors
    /// As [`TraceWriter::flush`].
    pub fn flush(&mut self) -> Result<(), TraceError> {
        self.writer.flush()
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.writer.written()
    }

    /// The trailer that would end the trace here, see [`TraceWriter::checkpoint`].
    ///
    /// # Errors
    /// As [`TraceWriter::checkpoint`].
    pub fn checkpoint(&mut self) -> Result<Vec<u8>, TraceError> {
        self.settle_all()?;
        self.writer.set_touched_pages(self.touches.distinct());
        self.writer.checkpoint()
    }

    /// What is written to.
    pub fn get_mut(&mut self) -> &mut W {
        self.writer.get_mut()
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// As [`TraceWriter::finish`].
    pub fn finish(mut self) -> Result<(Totals, W), TraceError> {
        self.settle_all()?;
        self.writer.set_touched_pages(self.touches.distinct());
        self.writer.finish()
    }

    /// Is the followed address space consistent?
    pub fn validate(&self) -> bool {
        self.layout.validate()
    }
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
