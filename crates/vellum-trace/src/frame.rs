//! The outer shape of a file: header, blocks, trailer, footer; each with its own checksum.
//!
//! A hostile length can ask for at most 64 KiB (header), 300 KiB (block) or 4 KiB (trailer):
//! lengths are compared with those limits before anything is allocated. Checksums cover the lengths
//! too. The footer repeats the trailer's position, so that a seekable file gives up its totals in
//! two reads.
use crate::TraceError;
use crate::header::{Header, MAX_HEADER};
use crate::totals::Totals;
use std::io::{ErrorKind, Read};

/// First bytes of every trace. The carriage return and line feed betray a transfer in text mode.
pub(crate) const MAGIC: [u8; 8] = *b"VELLUM\r\n";
/// Last bytes of every trace.
const END: [u8; 8] = *b"\n\rMULLEV";
/// Format version written.
pub(crate) const VERSION: u32 = 2;
/// Oldest format version read.
const OLDEST: u32 = 1;
/// Most bytes of a block before compression.
pub(crate) const MAX_RAW: usize = 256 << 10;
/// Most bytes of a block after compression (zstd's bound for incompressible data is below this).
const MAX_PACKED: usize = MAX_RAW + (MAX_RAW >> 7) + 512;
/// Most events in a block.
pub(crate) const MAX_EVENTS: usize = 1 << 18;
/// Most bytes of an encoded trailer.
const MAX_TRAILER: usize = 4 << 10;

const TAG_BLOCK: u8 = b'B';
const TAG_TRAILER: u8 = b'T';

fn crc(parts: &[&[u8]]) -> [u8; 4] {
    let mut h = crc32fast::Hasher::new();
    for p in parts {
        h.update(p);
    }
    h.finalize().to_le_bytes()
}

/// Bytes of the header.
pub(crate) fn header_bytes(h: &Header) -> Vec<u8> {
    let body = h.encode();
    let mut out = Vec::with_capacity(body.len() + 24);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    let sum = crc(&[&out, &body]);
    out.extend_from_slice(&body);
    out.extend_from_slice(&sum);
    out
}

/// Bytes of a block around its compressed contents.
pub(crate) fn block_bytes(raw_len: usize, events: usize, packed: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(packed.len() + 17);
    out.push(TAG_BLOCK);
    out.extend_from_slice(&(raw_len as u32).to_le_bytes());
    out.extend_from_slice(&(packed.len() as u32).to_le_bytes());
    out.extend_from_slice(&(events as u32).to_le_bytes());
    let sum = crc(&[&out, packed]);
    out.extend_from_slice(packed);
    out.extend_from_slice(&sum);
    out
}

/// Bytes of trailer and footer for a trailer that begins at `at`.
pub(crate) fn trailer_bytes(totals: &Totals, at: u64) -> Vec<u8> {
    let body = totals.encode();
    let mut out = Vec::with_capacity(body.len() + 32);
    out.push(TAG_TRAILER);
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    let sum = crc(&[&out, &body]);
    out.extend_from_slice(&body);
    out.extend_from_slice(&sum);
    out.extend_from_slice(&at.to_le_bytes());
    out.extend_from_slice(&END);
    out
}

/// Reads frames and knows where it is.
pub(crate) struct Frames<R> {
    from: R,
    at: u64,
    version: u32,
}

/// What [`Frames::next`] found.
pub(crate) enum Frame {
    /// A block: its position, raw length and number of events; the compressed bytes are in the
    /// buffer.
    Block { at: u64, raw_len: usize, events: usize },
    /// The trailer; nothing follows.
    Trailer(Totals),
}

impl<R: Read> Frames<R> {
    pub(crate) fn new(from: R) -> Frames<R> {
        Frames { from, at: 0, version: VERSION }
    }

    /// Continues at a known position.
    pub(crate) fn resume(from: R, at: u64) -> Frames<R> {
        Frames { from, at, version: VERSION }
    }

    /// Format version, known after the header.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    fn exact(&mut self, buf: &mut [u8]) -> Result<(), TraceError> {
        let mut done = 0;
        while done < buf.len() {
            match self.from.read(&mut buf[done..]) {
                Ok(0) => {
                    return Err(TraceError::Truncated { at: self.at + done as u64 });
                }
                Ok(n) => done += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(TraceError::io("reading the trace")(e)),
            }
        }
        self.at += done as u64;
        Ok(())
    }

    fn four(&mut self) -> Result<[u8; 4], TraceError> {
        let mut b = [0; 4];
        self.exact(&mut b)?;
        Ok(b)
    }

    pub(crate) fn header(&mut self) -> Result<Header, TraceError> {
        let mut magic = [0u8; 8];
        match self.exact(&mut magic) {
            Err(TraceError::Truncated { .. }) => return Err(TraceError::NotATrace),
            other => other?,
        }
        if magic != MAGIC {
            return Err(TraceError::NotATrace);
        }
        let version = self.four()?;
        let found = u32::from_le_bytes(version);
        if !(OLDEST..=VERSION).contains(&found) {
            return Err(TraceError::Version { found, supported: VERSION });
        }
        self.version = found;
        let len = self.four()?;
        let n = u32::from_le_bytes(len) as usize;
        let corrupt = |what| TraceError::Corrupt { at: 0, what };
        if n > MAX_HEADER {
            return Err(corrupt("header length over 64 KiB"));
        }
        let mut body = vec![0; n];
        self.exact(&mut body)?;
        if self.four()? != crc(&[&magic, &version, &len, &body]) {
            return Err(corrupt("header checksum"));
        }
        Header::decode(&body).ok_or(corrupt("header fields"))
    }

    /// The next frame; a block's compressed bytes replace the contents of `packed`.
    pub(crate) fn next(&mut self, packed: &mut Vec<u8>) -> Result<Frame, TraceError> {
        let at = self.at;
        let corrupt = |what| TraceError::Corrupt { at, what };
        let mut tag = [0u8; 1];
        self.exact(&mut tag)?;
        match tag[0] {
            TAG_BLOCK => {
                let mut head = [0u8; 12];
                self.exact(&mut head)?;
                let word = |i: usize| {
                    u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]) as usize
                };
                let (raw_len, len, events) = (word(0), word(4), word(8));
                if raw_len > MAX_RAW || len > MAX_PACKED || events > MAX_EVENTS {
                    return Err(corrupt("block length over the limit"));
                }
                packed.clear();
                packed.resize(len, 0);
                self.exact(packed)?;
                if self.four()? != crc(&[&tag, &head, packed]) {
                    return Err(corrupt("block checksum"));
                }
                Ok(Frame::Block { at, raw_len, events })
            }
            TAG_TRAILER => {
                let len = self.four()?;
                let n = u32::from_le_bytes(len) as usize;
                if n > MAX_TRAILER {
                    return Err(corrupt("trailer length over 4 KiB"));
                }
                let mut body = vec![0; n];
                self.exact(&mut body)?;
                if self.four()? != crc(&[&tag, &len, &body]) {
                    return Err(corrupt("trailer checksum"));
                }
                let totals = Totals::decode(&body).ok_or(corrupt("trailer fields"))?;
                let mut foot = [0u8; 16];
                self.exact(&mut foot)?;
                if foot[..8] != at.to_le_bytes() || foot[8..] != END {
                    return Err(corrupt("footer"));
                }
                let mut more = [0u8; 1];
                match self.exact(&mut more) {
                    Err(TraceError::Truncated { .. }) => Ok(Frame::Trailer(totals)),
                    Err(e) => Err(e),
                    Ok(()) => Err(corrupt("bytes after the end")),
                }
            }
            _ => Err(corrupt("neither a block nor a trailer")),
        }
    }
}

/// Where the trailer begins, from the last 16 bytes of a file of `file_len` bytes.
pub(crate) fn trailer_position(foot: &[u8; 16], file_len: u64) -> Result<u64, TraceError> {
    if foot[8..] != END {
        return Err(TraceError::Truncated { at: file_len });
    }
    let mut at = [0u8; 8];
    at.copy_from_slice(&foot[..8]);
    let at = u64::from_le_bytes(at);
    if at >= file_len {
        return Err(TraceError::Corrupt { at: file_len, what: "footer" });
    }
    Ok(at)
}
