//! What can go wrong with a file, by name and with the system's number.

use std::fmt;
use std::io;

use vellum::ObjectError;

/// What was done when it went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileOp {
    /// The file was opened.
    Open,
    /// A page was read, for a fault or for `Objects::read`.
    Read,
    /// A page was written, for a sync.
    Write,
    /// The file was made longer or shorter.
    SetLen,
    /// What was written was brought to the disk.
    Flush,
}

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileErrorKind {
    /// There is no room: on the disk, in the quota, or below the limit of a file's size.
    Full,
    /// There is no such file, or no longer.
    Gone,
    /// The file ends before the object does: somebody else has made it shorter.
    Cut,
    /// It is not allowed, by the file's permissions or by how it was opened.
    Denied,
    /// It is a directory.
    Directory,
    /// It is neither a file nor a directory.
    NotAFile,
    /// It is open for appending: what is written goes to its end, wherever it belongs.
    Appends,
    /// The library refuses: see there.
    Object(ObjectError),
    /// Everything else: the number says what.
    Other,
}

/// An error of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileError {
    /// What was done.
    pub op: FileOp,
    /// What went wrong.
    pub kind: FileErrorKind,
    /// The system's number, where the system said so.
    pub errno: Option<i32>,
    /// The first byte concerned.
    pub offset: u64,
}

impl FileError {
    /// Of what the system says.
    pub(super) fn of(op: FileOp, error: &io::Error, offset: u64) -> FileError {
        let errno = error.raw_os_error();
        let kind = match errno.unwrap_or(0) {
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => FileErrorKind::Full,
            libc::ENOENT | libc::ESTALE | libc::ENODEV | libc::ENXIO => FileErrorKind::Gone,
            libc::EACCES | libc::EPERM | libc::EBADF | libc::EROFS => FileErrorKind::Denied,
            // A file that is open for reading only is not made shorter.
            libc::EINVAL if op == FileOp::SetLen => FileErrorKind::Denied,
            libc::EISDIR => FileErrorKind::Directory,
            _ => FileErrorKind::Other,
        };
        FileError { op, kind, errno, offset }
    }

    /// Of what no system call has said.
    pub(super) fn plain(op: FileOp, kind: FileErrorKind, offset: u64) -> FileError {
        FileError { op, kind, errno: None, offset }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = match self.op {
            FileOp::Open => "opening",
            FileOp::Read => "reading",
            FileOp::Write => "writing",
            FileOp::SetLen => "changing the length",
            FileOp::Flush => "bringing to the disk",
        };
        write!(f, "{done} at byte {}: {:?}", self.offset, self.kind)?;
        match self.errno {
            Some(errno) => write!(f, " ({})", io::Error::from_raw_os_error(errno)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FileError {}
