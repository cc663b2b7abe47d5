//! Writing a trace as a stream: nothing is ever revisited, so a pipe will do.
use crate::codec::MAX_RANGE_LINES;
use crate::codec::encode::{Encoder, range_lines};
use crate::event::{Change, Event, Flags};
use crate::header::Header;
use crate::totals::Totals;
use crate::{LINE, TraceError, frame};
use std::io::Write;

/// zstd level for recordings: faster than the recorder feeds it.
pub const LEVEL_FAST: i32 = 3;
/// zstd level for traces that are kept: slow to write, equally fast to read.
pub const LEVEL_SMALL: i32 = 19;

/// Writes a trace.
///
/// Memory: about 4 MB, whatever the length of the trace (and 16 bytes a mapping).
pub struct TraceWriter<W: Write> {
    to: W,
    at: u64,
    encoder: Encoder,
    zstd: zstd::bulk::Compressor<'static>,
    raw: Vec<u8>,
    totals: Totals,
}

/// A place in a trace between two blocks.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    at: u64,
    totals: Totals,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the header. `level` is zstd's, see [`LEVEL_FAST`] and [`LEVEL_SMALL`].
    ///
    /// # Errors
    /// [`TraceError::Io`] if the header cannot be written.
    pub fn new(mut to: W, header: &Header, level: i32) -> Result<TraceWriter<W>, TraceError> {
        let bytes = frame::header_bytes(header);
        to.write_all(&bytes).map_err(TraceError::io("writing the trace"))?;
        Ok(TraceWriter {
            to,
            at: bytes.len() as u64,
            encoder: Encoder::new(),
            zstd: zstd::bulk::Compressor::new(level).map_err(TraceError::io("starting zstd"))?,
            raw: Vec::new(),
            totals: Totals::default(),
        })
    }

    /// Adds an event.
    ///
    /// # Errors
    /// [`TraceError::BadEvent`] if it breaks a rule of the format (nothing is added),
    /// [`TraceError::Io`].
    pub fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        if self.encoder.full(1) {
            self.flush_block()?;
        }
        self.encoder.push(event).map_err(|what| TraceError::BadEvent { what })?;
        count(&mut self.totals, event);
        Ok(())
    }

    /// Adds an [`Event::Access`] that keeps the rules of the format.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    #[inline(always)]
    pub(crate) fn access(
        &mut self,
        mapping: u32,
        offset: u64,
        size: u8,
        flags: Flags,
    ) -> Result<(), TraceError> {
        if self.encoder.full(1) {
            self.flush_block()?;
        }
        self.encoder.access(mapping, offset, size, flags);
        count_access(&mut self.totals, flags);
        Ok(())
    }

    /// Adds an [`Event::Fetch`] that keeps the rules of the format.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    #[inline(always)]
    pub(crate) fn fetch(&mut self, mapping: u32, offset: u64, insns: u8) -> Result<(), TraceError> {
        if self.encoder.full(1) {
            self.flush_block()?;
        }
        self.encoder.fetch(mapping, offset, insns);
        count_line(&mut self.totals, insns);
        Ok(())
    }

    /// Adds what the kernel read or wrote for the current thread: `len` bytes in one mapping. It
    /// comes back as one access a line.
    ///
    /// # Errors
    /// As [`TraceWriter::push`].
    pub fn kernel(
        &mut self,
        mapping: u32,
        offset: u64,
        len: u64,
        write: bool,
    ) -> Result<(), TraceError> {
        let mut at = offset;
        let mut left = len;
        while left > 0 {
            let most = MAX_RANGE_LINES * LINE - at % LINE;
            let part = left.min(most);
            let lines = range_lines(at, part) as usize;
            if self.encoder.full(lines) {
                self.flush_block()?;
            }
            let n = self
                .encoder
                .kernel(mapping, at, part, write)
                .map_err(|what| TraceError::BadEvent { what })?;
            self.totals.kernel += n as u64;
            at = at.wrapping_add(part);
            left -= part;
        }
        Ok(())
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.at
    }

    /// Sums so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// States how many distinct pages were touched.
    pub fn set_touched_pages(&mut self, pages: u64) {
        self.totals.touched_pages = pages;
    }

    fn flush_block(&mut self) -> Result<(), TraceError> {
        let events = self.encoder.take(&mut self.raw);
        if events == 0 {
            return Ok(());
        }
        let packed =
            self.zstd.compress(&self.raw).map_err(TraceError::io("compressing the trace"))?;
        let bytes = frame::block_bytes(self.raw.len(), events, &packed);
        self.to.write_all(&bytes).map_err(TraceError::io("writing the trace"))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Writes what is pending as a block of its own, so that it survives this process.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn flush(&mut self) -> Result<(), TraceError> {
        self.flush_block()?;
        self.to.flush().map_err(TraceError::io("writing the trace"))
    }

    /// Writes out what is pending and returns the trailer that would end the trace here, without
    /// writing it. A recorder that may have to go on (an `exec` that can still fail) writes these
    /// bytes itself and takes them back if it goes on.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn checkpoint(&mut self) -> Result<Vec<u8>, TraceError> {
        self.flush()?;
        Ok(frame::trailer_bytes(&self.totals, self.at))
    }

    /// Where the trace is, with all that it has, to be told to [`TraceWriter::take_back_call`].
    pub(crate) fn mark(&mut self) -> Result<Mark, TraceError> {
        self.flush()?;
        Ok(Mark { at: self.at, totals: self.totals })
    }

    /// The one call since then was none. What was written since then is to be cut off.
    pub(crate) fn take_back_call(&mut self, mark: Mark) -> u64 {
        self.encoder.take_back_call();
        (self.at, self.totals) = (mark.at, mark.totals);
        self.at
    }

    /// What is written to.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.to
    }

    /// Ends the trace and returns the totals and what was written to.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn finish(mut self) -> Result<(Totals, W), TraceError> {
        let trailer = self.checkpoint()?;
        self.to
            .write_all(&trailer)
            .and_then(|()| self.to.flush())
            .map_err(TraceError::io("writing the trace"))?;
        Ok((self.totals, self.to))
    }
}

#[inline(always)]
fn count_access(t: &mut Totals, flags: Flags) {
    if flags.kernel() {
        t.kernel += 1;
    } else if flags.write() {
        t.stores += 1;
    } else {
        t.loads += 1;
    }
}

#[inline(always)]
fn count_line(t: &mut Totals, insns: u8) {
    t.fetches += 1;
    t.instructions += u64::from(insns);
}

/// Adds an event to sums; reader and writer share it, so they cannot disagree.
#[inline(always)]
pub(crate) fn count(t: &mut Totals, event: &Event) {
    match event {
        Event::Access { flags, .. } => count_access(t, *flags),
        Event::Fetch { insns, .. } => count_line(t, *insns),
        Event::Switch { .. } | Event::ThreadEnd { .. } => {}
        Event::ThreadStart { .. } => t.threads += 1,
        Event::Skip { accesses, instructions } => {
            t.skipped_accesses = t.skipped_accesses.saturating_add(u64::from(*accesses));
            t.skipped_instructions = t.skipped_instructions.saturating_add(*instructions);
        }
        Event::Call(c) => {
            t.calls += 1;
            match c.change {
                Change::Map(_) => t.mappings += 1,
                Change::Fork { .. } | Change::Vfork => t.forks += 1,
                Change::Exec => t.execs += 1,
                _ => {}
            }
        }
    }
}
