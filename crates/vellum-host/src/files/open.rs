//! A file that is open: what is behind it, and the errors it had.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::backing::{Backing, Buffers};
use super::error::{FileError, FileErrorKind, FileOp};

/// The last errors of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Errors {
    read: Option<FileError>,
    write: Option<FileError>,
    /// Runs that could not be written.
    pub writes_failed: u64,
    /// What was written may be lost: of the pages in question nobody knows, and the system counts
    /// them as written.
    pub lost: Option<FileError>,
}

/// An open file.
pub(super) struct OpenFile {
    pub backing: Box<dyn Backing>,
    errors: Mutex<Errors>,
    /// Held by who brings the file to the disk.
    flushing: Mutex<()>,
    /// Somebody changes the size.
    changing: AtomicBool,
    /// The file has bytes past the object's end that are no longer the object's.
    pub has_stale_end: AtomicBool,
}

impl OpenFile {
    pub fn new(backing: Box<dyn Backing>) -> OpenFile {
        OpenFile {
            backing,
            errors: Mutex::default(),
            flushing: Mutex::default(),
            changing: AtomicBool::new(false),
            has_stale_end: AtomicBool::new(false),
        }
    }

    pub fn errors(&self) -> MutexGuard<'_, Errors> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn last_error(&self, op: FileOp) -> Option<FileError> {
        match op {
            FileOp::Read => self.errors().read,
            FileOp::Write => self.errors().write,
            FileOp::Flush => self.errors().lost,
            FileOp::Open | FileOp::SetLen => None,
        }
    }

    /// Whether the caller may change the size now; then [`end_change`](OpenFile::end_change).
    pub fn begin_change(&self) -> bool {
        !self.changing.swap(true, Ordering::Acquire)
    }
    pub fn end_change(&self) {
        self.changing.store(false, Ordering::Release);
    }

    /// Reads all of the buffers, or says why not. The pager asks again for one page of several that
    /// failed together, so `is_last` says whether this counts.
    pub fn read(&self, into: Buffers, offset: u64, is_last: bool) -> Result<u64, FileError> {
        let bytes = into.bytes();
        let step = |rest: &Buffers, at| self.backing.read(rest, at);
        let done = go_through(into, offset, step);
        let done = done.map_err(|(error, at)| FileError::of(FileOp::Read, &error, at));
        let done = done.and_then(|done| match done < bytes {
            true => Err(FileError::plain(FileOp::Read, FileErrorKind::Cut, offset + done)),
            false => Ok(done),
        });
        if let (Err(error), true) = (done, is_last) {
            self.errors().read = Some(error);
        }
        done
    }

    /// Writes all of the buffers, or says why not.
    pub fn write(&self, from: Buffers, offset: u64) -> Result<u64, FileError> {
        let bytes = from.bytes();
        let step = |rest: &Buffers, at| self.backing.write(rest, at);
        let done = go_through(from, offset, step);
        let done = done.map_err(|(error, at)| FileError::of(FileOp::Write, &error, at));
        let done = done.and_then(|done| match done < bytes {
            true => Err(FileError::plain(FileOp::Write, FileErrorKind::Other, offset + done)),
            false => Ok(done),
        });
        if let Err(error) = done {
            let mut errors = self.errors();
            errors.write = Some(error);
            errors.writes_failed += 1;
        }
        done
    }

    /// Brings what was written to the disk. After a failure the system counts as written what it
    /// has lost, so a second attempt says nothing: the failure stays.
    pub fn flush(&self) -> Result<(), FileError> {
        // The system tells of a failure once. Who asks beside the one that is told is to hear of
        // it, too, and so comes after it.
        let _turn = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lost) = self.errors().lost {
            return Err(lost);
        }
        let done = loop {
            let panicked = |_| Err(io::Error::other("a panic"));
            match catch_unwind(AssertUnwindSafe(|| self.backing.flush())).unwrap_or_else(panicked) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => break done,
            }
        };
        done.map_err(|error| {
            let error = FileError::of(FileOp::Flush, &error, 0);
            *self.errors().lost.get_or_insert(error)
        })
    }
}

/// Repeats a step until everything is done, or it does nothing, or fails; says how much was done,
/// or why not and where.
fn go_through(
    all: Buffers,
    offset: u64,
    step: impl Fn(&Buffers, u64) -> io::Result<u64>,
) -> Result<u64, (io::Error, u64)> {
    let (bytes, mut rest, mut done) = (all.bytes(), all, 0);
    while done < bytes {
        match step(&rest, offset + done) {
            Ok(0) => break,
            Ok(more) => {
                rest = rest.after(more);
                done += more;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((error, offset + done)),
        }
    }
    Ok(done)
}
