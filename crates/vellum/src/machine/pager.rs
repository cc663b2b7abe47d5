//! What a machine is asked of the contents of objects that have a pager.
//!
//! A *pager* is whoever has an object's contents while they are not in memory: a file, another
//! host, a disk. The library knows it by a number. It asks the machine to read or to write a run of
//! pages, and the machine answers: at once, or later and from any CPU.

use core::ptr::NonNull;

use crate::addr::{PAGE_SHIFT, PAGE_SIZE, Pfn};
use crate::sync::atomic::AtomicU64;

/// Pages of a run, at most. Basis: outside; what Linux reads ahead by default
/// (`VM_READAHEAD_PAGES`, 128 KiB).
pub const RUN_PAGES: usize = 32;

/// Pages of one object, one after the other, that its pager is to read or to write. Until it is
/// answered they stay what they are, and nobody else writes to those that are read.
///
/// It is answered once: by [`Machine::page_in`](super::Machine::page_in) or
/// [`Machine::page_out`](super::Machine::page_out) themselves, or by
/// [`Objects::answer`](crate::vm::Objects::answer).
#[must_use = "pages of a run that is never answered stay busy for ever"]
#[derive(Debug)]
pub struct PageRun {
    pub(crate) vm: usize,
    /// The object's handle, which the run keeps.
    pub(crate) object: u64,
    pub(crate) writes: bool,
    pub(crate) pager: u64,
    /// The first page's index.
    pub(crate) first: u64,
    pub(crate) len: usize,
    pub(crate) frames: [Pfn; RUN_PAGES],
    pub(crate) bytes: u64,
    /// Where who wrote waits for how it ended.
    pub(crate) outcome: Option<NonNull<AtomicU64>>,
}

// SAFETY: the outcome is an atomic of who waits for the run's end, and lives until then.
unsafe impl Send for PageRun {}

impl PageRun {
    /// The pager's number, as the object was made with.
    pub fn pager(&self) -> u64 {
        self.pager
    }

    /// The first byte, a multiple of 4096.
    pub fn offset(&self) -> u64 {
        self.first << PAGE_SHIFT
    }

    /// Bytes, counted from there, that lie before the object's end: those a writer writes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The frames, one for each page.
    pub fn frames(&self) -> &[Pfn] {
        &self.frames[..self.len]
    }

    /// Each frame with the bytes of it that count.
    pub fn parts(&self) -> impl Iterator<Item = PagePart> + '_ {
        self.frames().iter().enumerate().map(|(n, &frame)| {
            let at = (n * PAGE_SIZE) as u64;
            let len = self.bytes.saturating_sub(at).min(PAGE_SIZE as u64) as usize;
            PagePart { frame, offset: self.offset() + at, len }
        })
    }

    /// The answer that so many bytes from the first on were read or written. What was not read is
    /// zero. A run that was written counts as written only if all of [`bytes`](PageRun::bytes)
    /// were.
    pub fn done(self, bytes: u64) -> PageAnswer {
        PageAnswer { run: self, done: Some(bytes) }
    }

    /// The answer that it cannot be read, or written.
    pub fn failed(self) -> PageAnswer {
        PageAnswer { run: self, done: None }
    }
}

/// A page of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagePart {
    /// Its frame.
    pub frame: Pfn,
    /// Its first byte in the object.
    pub offset: u64,
    /// Bytes of it that lie before the object's end.
    pub len: usize,
}

/// What became of a run.
#[must_use = "pages of a run that is never answered stay busy for ever"]
#[derive(Debug)]
pub struct PageAnswer {
    pub(crate) run: PageRun,
    /// Bytes; `None` for an error.
    pub(crate) done: Option<u64>,
}
