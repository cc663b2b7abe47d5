//! What a recording and its recorder tell each other while the program runs.
//!
//! One file beside the trace: a page of counters that both sides map, then the trace's header. The
//! recorder deletes the file as soon as it has both, so nothing stays behind however it ends.
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes in front of the header.
const PAGE: usize = 4096;

/// The counters.
#[derive(Default)]
#[repr(C)]
struct Counters {
    accesses: AtomicU64,
    written: AtomicU64,
    begun: AtomicU32,
    /// 1 and the exit code that the trace shall end with; 0: go on.
    finish: AtomicU32,
    finished: AtomicU32,
    /// The system's number of the error that ended the writing.
    failure: AtomicU32,
}

/// The shared page.
pub struct Shared {
    page: NonNull<Counters>,
}

// SAFETY: the page holds atomics alone and stays mapped while the value lives.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Writes the file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(path: &Path, header: &[u8]) -> io::Result<Shared> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        file.write_all_at(&[0; PAGE], 0)?;
        file.write_all_at(header, PAGE as u64)?;
        Shared::map(&file)
    }

    /// Reads the file, and deletes it: the page and the header, encoded.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn take(path: &Path) -> io::Result<(Shared, Vec<u8>)> {
        let file = File::options().read(true).write(true).open(path)?;
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        let Some(len) = len.checked_sub(PAGE) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let mut header = vec![0; len];
        file.read_exact_at(&mut header, PAGE as u64)?;
        let shared = Shared::map(&file)?;
        std::fs::remove_file(path)?;
        Ok((shared, header))
    }

    fn map(file: &File) -> io::Result<Shared> {
        let (prot, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a new mapping, at a place of the kernel's choice, of a page that the file has.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, prot, libc::MAP_SHARED, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Shared { page })
    }

    fn counters(&self) -> &Counters {
        // SAFETY: the page is mapped, aligned and large enough; all its bits are values.
        unsafe { self.page.as_ref() }
    }

    /// The recorder is there.
    pub fn begin(&self) {
        self.counters().begun.store(1, Ordering::Release);
    }

    /// Is the recorder there?
    pub fn has_begun(&self) -> bool {
        self.counters().begun.load(Ordering::Acquire) != 0
    }

    /// States how many accesses there were, and how many bytes the trace has.
    pub fn count(&self, accesses: u64, written: u64) {
        self.counters().accesses.store(accesses, Ordering::Relaxed);
        self.counters().written.store(written, Ordering::Relaxed);
    }

    /// How many accesses there were.
    pub fn accesses(&self) -> u64 {
        self.counters().accesses.load(Ordering::Relaxed)
    }

    /// Bytes of the trace so far.
    pub fn written(&self) -> u64 {
        self.counters().written.load(Ordering::Relaxed)
    }

    /// Asks the recorder to end the trace with this exit code.
    pub fn finish(&self, code: i32) {
        self.counters().finish.store(code.unsigned_abs() + 1, Ordering::Release);
    }

    /// The exit code that the trace shall end with now.
    pub fn asked_to_finish(&self) -> Option<i32> {
        let code = self.counters().finish.load(Ordering::Acquire).checked_sub(1)?;
        i32::try_from(code).ok()
    }

    /// The trace is complete.
    pub fn finished(&self) {
        self.counters().finished.store(1, Ordering::Release);
    }

    /// Is the trace complete, or past saving?
    pub fn is_finished(&self) -> bool {
        self.counters().finished.load(Ordering::Acquire) != 0 || self.failure().is_some()
    }

    /// Writing has failed.
    pub fn fail(&self, e: &io::Error) {
        let number = e.raw_os_error().unwrap_or(libc::EIO);
        self.counters().failure.store(number.unsigned_abs(), Ordering::Release);
    }

    /// Why writing has failed.
    pub fn failure(&self) -> Option<io::Error> {
        let number = self.counters().failure.load(Ordering::Acquire);
        (number != 0).then(|| io::Error::from_raw_os_error(number.cast_signed()))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and nobody has a reference any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE) };
    }
}
