//! Reading a trace as a stream, a block at a time.
use crate::TraceError;
use crate::codec::decode::Decoder;
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
    sums: Totals,
    end: Option<Totals>,
}

impl TraceReader<BufReader<File>> {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// Every way in which a file can fail to be a trace of this version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        TraceReader::new(BufReader::with_capacity(1 << 18, open_file(path.as_ref())?))
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
    /// Reads the header from any stream.
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
            sums: Totals::default(),
            end: None,
        })
    }

    /// Who was recorded.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Replaces the contents of `out` by the events of the next block. `false` means the trace has
    /// ended and its totals were right; `out` is empty then.
    ///
    /// # Errors
    /// [`TraceError::Truncated`], [`TraceError::Corrupt`] or [`TraceError::Io`]; `out` is empty.
    pub fn next_block(&mut self, out: &mut Vec<Event>) -> Result<bool, TraceError> {
        out.clear();
        if self.end.is_some() {
            return Ok(false);
        }
        match self.frames.next(&mut self.packed)? {
            Frame::Block { at, raw_len, events } => {
                let result = self.decode(raw_len, events, out);
                if let Err(what) = result {
                    out.clear();
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
    ) -> Result<(), &'static str> {
        self.raw.resize(raw_len, 0);
        match self.zstd.decompress_to_buffer(&self.packed, &mut self.raw[..]) {
            Ok(n) if n == raw_len => {}
            _ => return Err("a block does not decompress to its length"),
        }
        self.decoder.block(&self.raw, events, out)?;
        for e in out.iter() {
            count(&mut self.sums, e);
        }
        Ok(())
    }

    /// Sums of the events read so far; at the end also the pages touched.
    pub fn totals(&self) -> Totals {
        self.end.unwrap_or(self.sums)
    }
}

/// The totals of a file, read from its end without decoding it.
///
/// # Errors
/// As [`TraceReader::open`]; a file that was cut is [`TraceError::Truncated`].
pub fn read_totals(path: impl AsRef<Path>) -> Result<Totals, TraceError> {
    let mut file = open_file(path.as_ref())?;
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
