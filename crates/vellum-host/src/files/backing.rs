//! What is behind an object: a file, or what behaves like one.
//!
//! The bytes of a page go between the file and the frame without a buffer in between. A frame that
//! is written to the file may be stored to by programs meanwhile, so there is no slice of it: a
//! [`Buffers`] hands pointers to the system.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// Memory that a file is read into or written from: pieces, one after the other.
#[derive(Clone, Debug)]
pub struct Buffers(Vec<Piece>);

#[derive(Clone, Copy, Debug)]
struct Piece {
    at: NonNull<u8>,
    bytes: usize,
}

impl Buffers {
    /// # Safety
    /// Each piece is memory that stays valid for reads and writes while the value lives. Nobody
    /// else uses what is read into.
    pub(super) unsafe fn new(pieces: impl Iterator<Item = (NonNull<u8>, usize)>) -> Buffers {
        let used = pieces.filter(|&(_, bytes)| bytes != 0);
        Buffers(used.map(|(at, bytes)| Piece { at, bytes }).collect())
    }
    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|piece| piece.bytes as u64).sum()
    }
    /// All but so many bytes at the beginning.
    pub fn after(mut self, mut skipped: u64) -> Buffers {
        self.0.retain_mut(|piece| {
            let gone = skipped.min(piece.bytes as u64) as usize;
            skipped -= gone as u64;
            // SAFETY: inside the piece, or one past its end.
            piece.at = unsafe { piece.at.add(gone) };
            piece.bytes -= gone;
            piece.bytes != 0
        });
        self
    }
    /// At most so many bytes from the beginning.
    pub fn up_to(mut self, mut kept: u64) -> Buffers {
        self.0.retain_mut(|piece| {
            piece.bytes = kept.min(piece.bytes as u64) as usize;
            kept -= piece.bytes as u64;
            piece.bytes != 0
        });
        self
    }
    fn vectors(&self) -> Vec<libc::iovec> {
        let vector = |piece: &Piece| libc::iovec {
            iov_base: piece.at.as_ptr().cast(),
            iov_len: piece.bytes,
        };
        self.0.iter().map(vector).collect()
    }
}

/// What is behind an object. Its methods are called by I/O threads, several at once. One that never
/// returns keeps who waits for the page, and the end of the pager, for ever.
pub trait Backing: Send + Sync {
    /// How long it is.
    fn size(&self) -> io::Result<u64>;
    /// Reads from a byte on; says how much, 0 only at the end.
    fn read(&self, into: &Buffers, offset: u64) -> io::Result<u64>;
    /// Writes from a byte on; says how much.
    fn write(&self, from: &Buffers, offset: u64) -> io::Result<u64>;
    /// Makes it longer, with zeros, or shorter.
    fn set_size(&self, bytes: u64) -> io::Result<()>;
    /// Brings what was written to the disk.
    fn flush(&self) -> io::Result<()>;
}

impl Backing for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
    fn read(&self, into: &Buffers, offset: u64) -> io::Result<u64> {
        let (vectors, fd) = (into.vectors(), self.as_raw_fd());
        let offset = in_range(offset)?;
        // SAFETY: the pieces are memory that nobody else uses, as who made the buffers promised.
        let done = unsafe { libc::preadv(fd, vectors.as_ptr(), vectors.len() as i32, offset) };
        u64::try_from(done).map_err(|_| io::Error::last_os_error())
    }
    fn write(&self, from: &Buffers, offset: u64) -> io::Result<u64> {
        let (vectors, fd) = (from.vectors(), self.as_raw_fd());
        let offset = in_range(offset)?;
        // SAFETY: the pieces are valid memory. The system reads it while programs may store there;
        // what it gets of such a word is written once more later.
        let done = unsafe { libc::pwritev(fd, vectors.as_ptr(), vectors.len() as i32, offset) };
        u64::try_from(done).map_err(|_| io::Error::last_os_error())
    }
    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
    fn flush(&self) -> io::Result<()> {
        self.sync_data()
    }
}

fn in_range(offset: u64) -> io::Result<i64> {
    i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_shortened_from_the_beginning_across_pieces() {
        let mut memory = [0u8; 30];
        let base = NonNull::from(&mut memory).cast::<u8>();
        let piece = |at: usize, bytes| (base.map_addr(|a| a.checked_add(at).unwrap()), bytes);
        // SAFETY: pieces of the array above, which nobody uses meanwhile.
        let all = unsafe { Buffers::new([piece(0, 10), piece(20, 0), piece(10, 7)].into_iter()) };
        let left = |skipped| {
            let rest = all.clone().after(skipped);
            rest.0.iter().map(|p| (p.at.addr().get() - base.addr().get(), p.bytes)).collect()
        };
        let none: Vec<(usize, usize)> = Vec::new();
        assert_eq!(left(0), [(0, 10), (10, 7)]);
        assert_eq!(left(4), [(4, 6), (10, 7)]);
        assert_eq!(left(10), [(10, 7)]);
        assert_eq!(left(16), [(16, 1)]);
        assert_eq!((all.clone().up_to(12).bytes(), all.clone().up_to(99).bytes()), (12, 17));
        assert_eq!((left(17), left(99)), (none.clone(), none));
    }
}
