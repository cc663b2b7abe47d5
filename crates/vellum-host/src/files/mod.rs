//! A pager of real files: objects whose contents are files of this computer.
//!
//! [`FileVm`] is a [`HostVm`] with I/O threads. A file is opened, its object mapped, stored to and
//! brought to the disk:
//!
//! ```text
//!   fault, read    page_in  -> queue -> I/O thread: preadv  -> Objects::answer -> who waits wakes
//!   sync           page_out -> queue -> I/O thread: pwritev -> Objects::answer
//!                  then        queue -> I/O thread: fdatasync
//! ```
//! The library says [`Io`](vellum::FaultError::Io) and no more; [`PagedFile::last_error`] has the
//! name and the system's number. `docs/objects.md` says what is promised.
//!
//! Rejected: answering from the CPU that waits (nobody may wait for the page yet), and io_uring
//! (not everywhere allowed, and a thread does here).

mod backing;
mod error;
mod open;
mod queue;
mod verbs;
mod worker;

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use vellum::config::Config;
use vellum::entry::Codec;
use vellum::{Object, ObjectPart};

pub use backing::{Backing, Buffers};
pub use error::{FileError, FileErrorKind, FileOp};

use crate::host_vm::HostVm;
use crate::machine::Plan;
use open::OpenFile;
use queue::Queue;

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// Its pages cannot be written back: `sync` of a dirty one is denied.
    ReadOnly,
    /// They can.
    ReadWrite,
}

/// A file, and the object that has its pages.
#[must_use = "a file that is not closed stays open as long as the pager"]
pub struct PagedFile {
    object: Object,
    open: Arc<OpenFile>,
    /// Runs that could not be written, of which it was told.
    told: AtomicU64,
}

impl PagedFile {
    /// The object, to be mapped, read, written and evicted. Its size is changed by
    /// [`FileVm::set_len`] alone, which changes the file's, too.
    pub fn object(&self) -> &Object {
        &self.object
    }
    /// A part of it, to be mapped.
    pub fn part(&self, offset: u64) -> ObjectPart<'_> {
        ObjectPart { object: &self.object, offset }
    }
    /// The last error of a kind that the file had: of [`FileOp::Read`], [`FileOp::Write`] or
    /// [`FileOp::Flush`].
    pub fn last_error(&self, op: FileOp) -> Option<FileError> {
        self.open.last_error(op)
    }
}

/// A [`HostVm`] with a pager of real files. Dropping it ends the I/O threads first: they serve what
/// they have been asked for and answer it, then the `Vm` goes.
pub struct FileVm<C: Codec + 'static, const WATCH: bool> {
    host: Arc<HostVm<C, WATCH>>,
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
    next: AtomicU64,
}

impl<C: Codec + 'static, const WATCH: bool> FileVm<C, WATCH> {
    /// The machine of a plan, with so many I/O threads, at least one. Each is a CPU more, after
    /// those of the plan, which programs cannot have.
    ///
    /// # Errors
    /// As [`HostVm::new`], or no thread could be made.
    pub fn new(plan: Plan, config: Config, io_threads: usize) -> io::Result<Self> {
        let (first, io_threads) = (plan.cpus, io_threads.max(1));
        let host = Arc::new(HostVm::with_devices(plan, config, io_threads)?);
        let queue = Arc::new(Queue::default());
        host.vm.machine().set_pager(queue.clone());
        // Dropped early, it ends the threads that there are.
        let mut vm = FileVm { host, queue, threads: Vec::new(), next: AtomicU64::new(1) };
        for cpu in first..first + io_threads {
            let (host, queue) = (vm.host.clone(), vm.queue.clone());
            let thread = thread::Builder::new().name(format!("vellum-io-{cpu}"));
            vm.threads.push(thread.spawn(move || worker::serve(&host, &queue, cpu))?);
        }
        Ok(vm)
    }

    /// Opens a file; its length is the object's size.
    ///
    /// # Errors
    /// [`FileErrorKind::Gone`], [`Denied`](FileErrorKind::Denied),
    /// [`Directory`](FileErrorKind::Directory), [`NotAFile`](FileErrorKind::NotAFile), what else
    /// the system says, or memory is missing.
    pub fn open(&self, path: &Path, mode: OpenMode) -> Result<PagedFile, FileError> {
        let mut options = OpenOptions::new();
        // Without a wait: a pipe that nobody writes to would be waited for.
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        options.read(true).write(mode == OpenMode::ReadWrite);
        let file = self.vm.machine().parked(|| options.open(path));
        self.adopt(file.map_err(|error| FileError::of(FileOp::Open, &error, 0))?)
    }

    /// The same for a file that is open already, and not for appending: the system would write
    /// every page at its end, wherever it belongs. Nobody may make it so later, by another
    /// descriptor of the same open file.
    ///
    /// # Errors
    /// As [`open`](FileVm::open), or [`Appends`](FileErrorKind::Appends).
    pub fn adopt(&self, file: File) -> Result<PagedFile, FileError> {
        let kind = file.metadata().map_err(|error| FileError::of(FileOp::Open, &error, 0))?;
        if kind.is_dir() {
            let error = io::Error::from_raw_os_error(libc::EISDIR);
            return Err(FileError::of(FileOp::Open, &error, 0));
        }
        if !kind.is_file() {
            return Err(FileError::plain(FileOp::Open, FileErrorKind::NotAFile, 0));
        }
        // SAFETY: a question about an open descriptor.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) } & libc::O_APPEND != 0 {
            return Err(FileError::plain(FileOp::Open, FileErrorKind::Appends, 0));
        }
        self.adopt_backing(Box::new(file))
    }

    /// The same for what behaves like a file.
    ///
    /// # Errors
    /// As [`open`](FileVm::open).
    pub fn adopt_backing(&self, backing: Box<dyn Backing>) -> Result<PagedFile, FileError> {
        let size = backing.size().map_err(|error| FileError::of(FileOp::Open, &error, 0))?;
        let pager = self.next.fetch_add(1, Ordering::Relaxed);
        let open = Arc::new(OpenFile::new(backing));
        let object = self.host.vm.objects().create_paged(size, pager);
        let object = object
            .map_err(|error| FileError::plain(FileOp::Open, FileErrorKind::Object(error), 0))?;
        self.queue.add_file(pager, open.clone());
        Ok(PagedFile { object, open, told: AtomicU64::new(0) })
    }
}

impl<C: Codec + 'static, const WATCH: bool> Deref for FileVm<C, WATCH> {
    type Target = HostVm<C, WATCH>;
    fn deref(&self) -> &HostVm<C, WATCH> {
        &self.host
    }
}

impl<C: Codec + 'static, const WATCH: bool> Drop for FileVm<C, WATCH> {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}
