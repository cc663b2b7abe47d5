//! Reading a trace as a stream, a block at a time.
use crate::TraceError;
use crate::build::Touches;
use crate::codec::decode::{Decoded, Decoder};
use crate::event::Event;
use crate::frame::{self, Frame, Frames};
use crate::header::Header;
use crate::totals::Totals;
use crate::writer::count;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// Reads a trace.
///
/// Memory: about 3 MB and 16 bytes a mapping, plus the caller's vector of at most 262,144 events
/// (4 MB) a block.
pub struct TraceReader<R: Read> {
    frames: Frames<R>,
    header: Header,
    decoder: Decoder,
    zstd: zstd::bulk::Decompressor<'static>,
    packed: Vec<u8>,
    raw: Vec<u8>,
    /// Of callers who do not ask for them.
    others: Vec<u32>,
    sums: Totals,
    end: Option<Totals>,
    /// Is a trace without its end taken up to its last whole block?
    takes_partial: bool,
    partial: bool,
}

impl TraceReader<BufReader<File>> {
    /// Opens a file and reads its header. A file without its end is a recording that was killed: it
    /// is read up to its last whole block, and [`TraceReader::is_partial`] says so then.
    ///
    /// # Errors
    /// Every way in which a file can fail to be a trace of this version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let file = BufReader::with_capacity(1 << 18, open_file(path.as_ref())?);
        Ok(TraceReader::new(file)?.up_to_the_last_block())
    }
}

/// Opens a regular file. Pipes and devices are refused: they may wait for ever or never end, and
/// have no end to find the totals at.
fn open_file(path: &Path) -> Result<File, TraceError> {
    let meta = std::fs::metadata(path).map_err(TraceError::io("opening the trace"))?;
    if !meta.is_file() {
        return Err(TraceError::NotAFile);
    }
    File::open(path).map_err(TraceError::io("opening the trace"))
}

impl<R: Read> TraceReader<R> {
    /// Reads the header from any stream. A stream that ends early is an error: its sender failed.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub fn new(from: R) -> Result<TraceReader<R>, TraceError> {
        let mut frames = Frames::new(from);
        let header = frames.header()?;
        let decoder = Decoder::new(frames.version());
        Ok(TraceReader {
            frames,
            header,
            decoder,
            zstd: zstd::bulk::Decompressor::new().map_err(TraceError::io("starting zstd"))?,
            packed: Vec::new(),
            raw: Vec::new(),
            others: Vec::new(),
            sums: Totals::default(),
            end: None,
            takes_partial: false,
            partial: false,
        })
    }

    /// Takes a trace without its end, as [`TraceReader::open`] does.
    pub fn up_to_the_last_block(self) -> TraceReader<R> {
        TraceReader { takes_partial: true, ..self }
    }

    /// Who was recorded.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Does the trace end before its trailer? Known when [`TraceReader::next_block`] has answered
    /// `false`.
    pub fn is_partial(&self) -> bool {
        self.partial
    }

    /// Replaces the contents of `out` by the events of the next block. `false` means the trace has
    /// ended and its totals were right, or that it is partial; `out` is empty then.
    ///
    /// # Errors
    /// [`TraceError::Truncated`], [`TraceError::Corrupt`] or [`TraceError::Io`]; `out` is empty.
    pub fn next_block(&mut self, out: &mut Vec<Event>) -> Result<bool, TraceError> {
        let mut others = std::mem::take(&mut self.others);
        let read = self.next_block_with(out, &mut others);
        self.others = others;
        read
    }

    /// The same; `others` gets the positions in `out` of those events that are neither accesses nor
    /// fetches: few, and for many users all that has to be looked at.
    ///
    /// # Errors
    /// As [`TraceReader::next_block`].
    pub fn next_block_with(
        &mut self,
        out: &mut Vec<Event>,
        others: &mut Vec<u32>,
    ) -> Result<bool, TraceError> {
        out.clear();
        others.clear();
        if self.end.is_some() {
            return Ok(false);
        }
        let frame = match self.frames.next(&mut self.packed) {
            Err(TraceError::Truncated { .. }) if self.takes_partial && self.sums.threads > 0 => {
                self.partial = true;
                self.end = Some(self.sums);
                return Ok(false);
            }
            other => other?,
        };
        match frame {
            Frame::Block { at, raw_len, events } => {
                let result = self.decode(raw_len, events, out, others);
                if let Err(what) = result {
                    out.clear();
                    others.clear();
                    return Err(TraceError::Corrupt { at, what });
                }
                Ok(true)
            }
            Frame::Trailer(totals) => {
                if totals.countable() != self.sums {
                    return Err(TraceError::Corrupt {
                        at: 0,
                        what: "the totals do not match the events",
                    });
                }
                self.end = Some(totals);
                Ok(false)
            }
        }
    }

    fn decode(
        &mut self,
        raw_len: usize,
        events: usize,
        out: &mut Vec<Event>,
        others: &mut Vec<u32>,
    ) -> Result<(), &'static str> {
        self.raw.resize(raw_len, 0);
        match self.zstd.decompress_to_buffer(&self.packed, &mut self.raw[..]) {
            Ok(n) if n == raw_len => {}
            _ => return Err("a block does not decompress to its length"),
        }
        self.decoder.block(&self.raw, events, &mut Decoded { events: out, others })?;
        self.decoder.add_to(&mut self.sums);
        others.iter().for_each(|&other| count(&mut self.sums, &out[other as usize]));
        Ok(())
    }

    /// Sums of the events read so far; at the end also the pages touched.
    pub fn totals(&self) -> Totals {
        self.end.unwrap_or(self.sums)
    }
}

/// What the end of a file says, or, where it has none, what its blocks come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sums {
    /// Sums over all events.
    pub totals: Totals,
    /// The file has no end: its recording ended before its program. The sums are those of its whole
    /// blocks.
    pub partial: bool,
}

/// The totals of a file, read from its end without decoding it. A file without its end is decoded
/// up to its last whole block.
///
/// # Errors
/// As [`TraceReader::open`]; a file without one whole block is [`TraceError::Truncated`].
pub fn read_totals(path: impl AsRef<Path>) -> Result<Sums, TraceError> {
    match trailer(path.as_ref()) {
        Ok(totals) => Ok(Sums { totals, partial: false }),
        Err(TraceError::Truncated { .. }) => add_up(path.as_ref()),
        Err(e) => Err(e),
    }
}

fn trailer(path: &Path) -> Result<Totals, TraceError> {
    let mut file = open_file(path)?;
    Frames::new(&mut file).header()?;
    let seek = TraceError::io("seeking in the trace");
    let len = file.seek(SeekFrom::End(0)).map_err(seek)?;
    if len < 16 {
        return Err(TraceError::Truncated { at: len });
    }
    let io = TraceError::io("reading the trace");
    let mut foot = [0u8; 16];
    file.seek(SeekFrom::End(-16)).and_then(|_| file.read_exact(&mut foot)).map_err(io)?;
    let at = frame::trailer_position(&foot, len)?;
    file.seek(SeekFrom::Start(at)).map_err(TraceError::io("seeking in the trace"))?;
    match Frames::resume(&mut file, at).next(&mut Vec::new())? {
        Frame::Trailer(totals) => Ok(totals),
        Frame::Block { .. } => Err(TraceError::Corrupt { at, what: "footer" }),
    }
}

/// Decodes a file for its sums, and counts the pages that its trailer would have told.
fn add_up(path: &Path) -> Result<Sums, TraceError> {
    let mut reader = TraceReader::open(path)?;
    let mut touches = Touches::default();
    let (mut block, mut last) = (Vec::new(), None);
    while reader.next_block(&mut block)? {
        for event in &block {
            let (mapping, offset, size) = match event {
                Event::Access { mapping, offset, size, .. } => (*mapping, *offset, *size),
                Event::Fetch { mapping, offset, .. } => (*mapping, *offset, 1),
                _ => continue,
            };
            for at in [offset, offset.saturating_add(u64::from(size.max(1)) - 1)] {
                if last != Some((mapping, at / crate::PAGE)) {
                    last = Some((mapping, at / crate::PAGE));
                    touches.touch(mapping, at, false);
                }
            }
        }
    }
    let totals = Totals { touched_pages: touches.distinct(), ..reader.totals() };
    Ok(Sums { totals, partial: reader.is_partial() })
}
