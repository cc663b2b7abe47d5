//! What is done with an open file beside mapping it. The calling thread is a CPU, in no verb.

use std::sync::atomic::{AtomicU64, Ordering};

use vellum::ObjectError;
use vellum::entry::Codec;
use vellum::machine::Machine;

use super::error::{FileError, FileErrorKind, FileOp};
use super::open::OpenFile;
use super::{FileVm, PagedFile};

/// Ends a change of the size, however it ends.
struct Change<'f>(&'f OpenFile);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.end_change();
    }
}

fn refused(op: FileOp, error: ObjectError, offset: u64) -> FileError {
    FileError::plain(op, FileErrorKind::Object(error), offset)
}

impl<C: Codec + 'static, const WATCH: bool> FileVm<C, WATCH> {
    /// Brings to the disk what was stored before the call: dirty pages are written, then
    /// `fdatasync` is called.
    ///
    /// # Errors
    /// Why a page could not be written, now or since this file was told last, whoever asked for it:
    /// it stays dirty, and the next call tries again. An error of
    /// [`FileOp::Flush`] stays until the file is opened anew: what was written before it may be
    /// lost, and nobody can say which pages.
    pub fn sync(&self, file: &PagedFile) -> Result<(), FileError> {
        let done = self.vm.objects().sync(file.object(), 0, u64::MAX);
        let failed = file.open.errors().writes_failed;
        let is_new = file.told.swap(failed, Ordering::Relaxed) != failed;
        if let Err(error) = done {
            let errors = file.open.last_error(FileOp::Write);
            let named = errors.filter(|_| is_new && error == ObjectError::Io);
            return Err(named.unwrap_or_else(|| refused(FileOp::Write, error, 0)));
        }
        self.vm.machine().parked(|| self.queue.flush(file.open.clone()))
    }

    /// Makes the file and its object longer, with zeros, or shorter. What another process has put
    /// behind the object's end stays, and becomes the object's where it gets longer.
    ///
    /// # Errors
    /// What the system says, [`FileErrorKind::Cut`] where another made the file shorter than the
    /// object (make it shorter, too, and then longer), or [`FileErrorKind::Object`]; the object's
    /// size is what it was, but where it became shorter: then only the file is longer than it
    /// should be, which the next call puts right.
    pub fn set_len(&self, file: &PagedFile, bytes: u64) -> Result<(), FileError> {
        let (open, machine) = (&*file.open, self.vm.machine());
        while !open.begin_change() {
            machine.relax();
        }
        let _change = Change(open);
        let set_size = |bytes| {
            let done = machine.parked(|| open.backing.set_size(bytes));
            done.map_err(|error| FileError::of(FileOp::SetLen, &error, bytes))
        };
        let resize = || {
            let done = self.vm.objects().resize(file.object(), bytes);
            done.map_err(|error| refused(FileOp::SetLen, error, bytes))
        };
        let usage = self.vm.objects().usage(file.object());
        if bytes < usage.bytes {
            // No page past the new end is written any more when this returns.
            resize()?;
            open.has_stale_end.store(true, Ordering::Relaxed);
            set_size(bytes)?;
            open.has_stale_end.store(false, Ordering::Relaxed);
            return Ok(());
        }
        if bytes > usage.bytes && usage.seals.grow {
            return Err(refused(FileOp::SetLen, ObjectError::Sealed, bytes));
        }
        // Somebody else cut it: with zeros in place of what is gone nobody would hear of it.
        let there = machine.parked(|| open.backing.size());
        let there = there.map_err(|error| FileError::of(FileOp::SetLen, &error, bytes))?;
        if there < usage.bytes {
            return Err(FileError::plain(FileOp::SetLen, FileErrorKind::Cut, there));
        }
        if open.has_stale_end.load(Ordering::Relaxed) {
            set_size(usage.bytes)?;
            open.has_stale_end.store(false, Ordering::Relaxed);
        }
        set_size(bytes)?;
        resize()
    }

    /// The same file once more, to be closed by itself. Each of the two is told of an error once,
    /// by its own next `sync`.
    pub fn another(&self, file: &PagedFile) -> PagedFile {
        let (open, told) = (file.open.clone(), file.open.errors().writes_failed);
        PagedFile {
            object: self.vm.objects().another(&file.object),
            open,
            told: AtomicU64::new(told),
        }
    }

    /// Gives the file back. It is closed when nobody has it and no space maps it any more; what is
    /// dirty then is lost: [`sync`](FileVm::sync) before.
    pub fn close(&self, file: PagedFile) {
        self.vm.objects().discard(file.object);
    }
}
