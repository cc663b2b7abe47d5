//! The same acts by the kernel under us, on a file in its page cache and on shared memory.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::ptr::{self, NonNull};

use super::PAGE;
use crate::bench::linux::{shared_memory, touch};
use crate::bench::measure::{Timed, time, timed};

/// A file in the page cache, clean; it goes with the value.
pub(super) struct CachedFile {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl CachedFile {
    pub fn new(bytes: u64) -> io::Result<CachedFile> {
        let path = std::env::temp_dir().join(format!("vellum-bench-{}", std::process::id()));
        let mut options = File::options();
        let mut file = options.read(true).write(true).create(true).truncate(true).open(&path)?;
        let page = vec![1; PAGE as usize];
        let written = (0..bytes / PAGE).try_for_each(|_| file.write_all(&page));
        let cached = CachedFile { file, path, bytes };
        written?;
        cached.file.sync_all()?;
        File::open(&cached.path)?.read_to_end(&mut Vec::with_capacity(bytes as usize))?;
        Ok(cached)
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A shared mapping of a part of a file.
pub(super) struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    pub fn new(file: &File, offset: u64, bytes: u64) -> io::Result<Mapping> {
        let (rights, bytes) = (libc::PROT_READ | libc::PROT_WRITE, bytes as usize);
        // SAFETY: a fresh mapping at an address of the system's choice disturbs nothing.
        let at = unsafe {
            let fd = file.as_raw_fd();
            libc::mmap(ptr::null_mut(), bytes, rights, libc::MAP_SHARED, fd, offset as i64)
        };
        let at = (at != libc::MAP_FAILED).then_some(at);
        let at = at.and_then(|at| NonNull::new(at.cast())).ok_or_else(io::Error::last_os_error)?;
        let mapping = Mapping { at, bytes };
        mapping.advise(libc::MADV_NOHUGEPAGE);
        Ok(mapping)
    }
    fn advise(&self, advice: i32) {
        // SAFETY: the range is ours; a system that refuses goes on as before.
        let _ = unsafe { libc::madvise(self.at.as_ptr().cast(), self.bytes, advice) };
    }
    pub fn touch(&self, write: bool) {
        // SAFETY: inside the mapping, which nobody else touches, nor cuts.
        unsafe { touch(self.at.as_ptr(), self.bytes, PAGE as usize, write) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and nobody uses it any more.
        let _ = unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// What was found: nanoseconds a page.
pub(super) struct Found {
    pub read: Timed,
    pub copy: f64,
    /// In the order of `Turn::shared`.
    pub shared: [f64; 3],
}

/// One turn through the acts.
pub(super) fn turn(cached: &CachedFile, around: bool) -> io::Result<Found> {
    let pages = cached.bytes / PAGE;
    let read = {
        let mapping = Mapping::new(&cached.file, 0, cached.bytes)?;
        mapping.advise(if around { libc::MADV_NORMAL } else { libc::MADV_RANDOM });
        timed(pages, || mapping.touch(false))
    };
    let mut page = vec![0; PAGE as usize];
    let mut copied = Ok(());
    let copy = time(pages, || {
        copied = (0..pages).try_for_each(|n| {
            cached.file.read_exact_at(&mut page, n * PAGE)?;
            std::hint::black_box(&page);
            Ok(())
        });
    });
    copied.and_then(|()| Ok(Found { read, copy, shared: shared(cached.bytes)? }))
}

fn shared(bytes: u64) -> io::Result<[f64; 3]> {
    let (file, pages) = (shared_memory(bytes)?, bytes / PAGE);
    let write = || -> io::Result<f64> {
        let mapping = Mapping::new(&file, 0, bytes)?;
        Ok(time(pages, || mapping.touch(true)))
    };
    let (make, again) = (write()?, write()?);
    let mut cut = Ok(());
    let took = time(pages, || cut = file.set_len(0));
    cut.map(|()| [make, again, took])
}
