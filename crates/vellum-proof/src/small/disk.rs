//! What is behind objects with a pager: the bytes that exist of pages, by pager and index.
//!
//! It answers at once, or keeps what it is asked for until somebody takes it
//! ([`Small::take_waiting`]) and answers it ([`Small::answer_late`]). Then something may go wrong
//! ([`Trouble`]), too.

use std::collections::BTreeMap;
use std::mem::replace;

use vellum::addr::{PAGE_SIZE, Pfn};
use vellum::entry::Codec;
use vellum::machine::{PageAnswer, PageRun};

use super::{BYTES, Contents, Small, samples};
use crate::explore::footprint::Touch;
use crate::explore::{is_explored, tale, touch};

const PAGE: u64 = PAGE_SIZE as u64;

/// What goes wrong with a disk that answers late.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trouble {
    /// Nothing.
    #[default]
    None,
    /// The first run that is read fails.
    ReadOnce,
    /// Each run fails that is read and has this page.
    BadPage(u64),
    /// It has no more than so many bytes, until more are written: what it reads is short.
    Short(u64),
    /// The first run that is written fails.
    WriteOnce,
    /// Half of the first run that is written is.
    WriteHalf,
}

/// A run that waits for its answer.
pub struct Waiting {
    /// The run.
    pub run: PageRun,
    /// Whether it is written.
    pub writes: bool,
    is_seen: bool,
}

/// The disk.
#[derive(Default)]
pub struct Disk {
    pages: BTreeMap<(u64, u64), Contents>,
    /// Nothing can be read.
    pub fails_reads: bool,
    /// Nothing can be written.
    pub fails_writes: bool,
    /// It answers later.
    pub is_late: bool,
    /// What goes wrong with the answers then.
    pub trouble: Trouble,
    waiting: Vec<Waiting>,
}

/// Zeros for what a page of that index has from a byte of all on.
pub fn cut(page: &mut Contents, index: u64, bytes: u64) {
    let kept = bytes.saturating_sub(index.saturating_mul(PAGE)).min(PAGE) as usize;
    samples(kept, PAGE_SIZE - kept).for_each(|(i, _)| page[i] = 0);
}

impl Disk {
    /// What it has of a page.
    pub fn page(&self, pager: u64, index: u64) -> Contents {
        self.pages.get(&(pager, index)).copied().unwrap_or([0; BYTES])
    }

    /// Puts a page.
    pub fn put(&mut self, pager: u64, index: u64, page: Contents) {
        self.pages.insert((pager, index), page);
    }

    /// Whether something waits for its answer.
    pub fn is_asked(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// It has no more than so many bytes of that pager's.
    pub fn truncate(&mut self, pager: u64, bytes: u64) {
        if let Trouble::Short(end) = &mut self.trouble {
            *end = bytes.min(*end);
        }
        for (&(of, index), page) in &mut self.pages {
            if of == pager {
                cut(page, index, bytes);
            }
        }
    }
}

impl<C: Codec> Small<C> {
    fn tell_disk(&self, run: &PageRun, what: &str) {
        self.touch_disk();
        tale::tell(self.cpu.get(), || format!("{what} {:x?}", run.frames()));
    }

    fn touch_disk(&self) {
        if is_explored() {
            touch(Touch::word(self.disk.as_ptr() as usize, true));
        }
    }

    fn frames_of(run: &PageRun) -> impl Iterator<Item = (u64, Pfn)> {
        (run.offset() / PAGE..).zip(run.frames().iter().copied())
    }

    pub(super) fn ask_disk(&self, run: PageRun, writes: bool) -> Option<PageAnswer> {
        let late = self.disk.borrow().is_late;
        let what = match (writes, late) {
            (false, false) => "read",
            (true, false) => "write",
            (false, true) => "ask to read",
            (true, true) => "ask to write",
        };
        self.tell_disk(&run, what);
        let mut disk = self.disk.borrow_mut();
        if !late {
            let fails = if writes { disk.fails_writes } else { disk.fails_reads };
            return Some(match (fails, writes) {
                (true, _) => run.failed(),
                (_, true) => self.write_disk(&mut disk, run, u64::MAX),
                _ => self.read_disk(&disk, run, u64::MAX),
            });
        }
        disk.waiting.push(Waiting { run, writes, is_seen: false });
        None
    }

    /// A run that was kept, the last one first. Each is passed over once, so that who waits for
    /// nothing goes on before.
    pub fn take_waiting(&self) -> Option<Waiting> {
        if !replace(&mut self.disk.borrow_mut().waiting.last_mut()?.is_seen, true) {
            return None;
        }
        self.touch_disk();
        self.disk.borrow_mut().waiting.pop()
    }

    /// The answer to a run that was kept, and whether it fails.
    pub fn answer_late(&self, Waiting { run, writes, .. }: Waiting) -> (PageAnswer, bool) {
        self.tell_disk(&run, if writes { "written" } else { "read" });
        for (_, pfn) in Self::frames_of(&run) {
            touch(Touch::page(pfn.0, !writes));
        }
        let mut disk = self.disk.borrow_mut();
        let trouble = disk.trouble;
        let fails = match trouble {
            Trouble::ReadOnce => !writes,
            Trouble::BadPage(bad) => !writes && Self::frames_of(&run).any(|(n, _)| n == bad),
            Trouble::WriteOnce | Trouble::WriteHalf => writes,
            Trouble::None | Trouble::Short(_) => false,
        };
        if fails && !matches!(trouble, Trouble::BadPage(_)) {
            disk.trouble = Trouble::None;
        }
        let (offset, bytes) = (run.offset(), run.bytes());
        let most = match &mut disk.trouble {
            Trouble::Short(end) if writes => {
                *end = (*end).max(offset + bytes);
                bytes
            }
            Trouble::Short(end) => end.saturating_sub(offset),
            _ => u64::MAX,
        };
        let answer = match (fails, writes) {
            (true, true) if trouble == Trouble::WriteHalf => {
                self.write_disk(&mut disk, run, bytes / 2)
            }
            (true, _) => run.failed(),
            (_, true) => self.write_disk(&mut disk, run, most),
            _ => self.read_disk(&disk, run, most),
        };
        (answer, fails)
    }

    /// Reads that many bytes at most; frames keep what they had beyond.
    fn read_disk(&self, disk: &Disk, run: PageRun, most: u64) -> PageAnswer {
        let end = run.offset().saturating_add(most);
        for (index, pfn) in Self::frames_of(&run) {
            let (new, mut page) = (disk.page(run.pager(), index), self.contents(pfn));
            let filled = end.saturating_sub(index * PAGE).min(PAGE) as usize;
            samples(0, filled).for_each(|(i, _)| page[i] = new[i]);
            self.data[self.index(pfn)].set(page);
        }
        // It reads whole blocks, past the end, too.
        let bytes = run.frames().len() as u64 * PAGE;
        run.done(bytes.min(most))
    }

    fn write_disk(&self, disk: &mut Disk, run: PageRun, most: u64) -> PageAnswer {
        let bytes = run.bytes().min(most);
        let end = run.offset() + bytes;
        for (index, pfn) in Self::frames_of(&run) {
            let (mut new, old) = (self.contents(pfn), disk.page(run.pager(), index));
            let kept = end.saturating_sub(index * PAGE).min(PAGE) as usize;
            samples(kept, PAGE_SIZE - kept).for_each(|(i, _)| new[i] = old[i]);
            disk.put(run.pager(), index, new);
        }
        run.done(bytes)
    }
}
