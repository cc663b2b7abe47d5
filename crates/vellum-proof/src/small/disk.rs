//! What is behind objects with a pager: the bytes that exist of pages, by pager and index.

use std::collections::BTreeMap;

use vellum::addr::{PAGE_SIZE, Pfn};
use vellum::entry::Codec;
use vellum::machine::{PageAnswer, PageRun};

use super::{BYTES, Contents, Small, samples};
use crate::explore::footprint::Touch;
use crate::explore::{is_explored, tale, touch};

const PAGE: u64 = PAGE_SIZE as u64;

/// The disk.
#[derive(Default)]
pub struct Disk {
    pages: BTreeMap<(u64, u64), Contents>,
    /// Nothing can be read.
    pub fails_reads: bool,
    /// Nothing can be written.
    pub fails_writes: bool,
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

    /// It has no more than so many bytes of that pager's.
    pub fn truncate(&mut self, pager: u64, bytes: u64) {
        for (&(of, index), page) in &mut self.pages {
            if of == pager {
                cut(page, index, bytes);
            }
        }
    }
}

impl<C: Codec> Small<C> {
    fn tell_disk(&self, run: &PageRun, what: &str) {
        if is_explored() {
            touch(Touch::word(self.disk.as_ptr() as usize, true));
        }
        tale::tell(self.cpu.get(), || format!("{what} {:x?}", run.frames()));
    }

    fn frames_of(run: &PageRun) -> Vec<(u64, Pfn)> {
        let first = run.offset() / PAGE;
        run.frames().iter().enumerate().map(|(n, &pfn)| (first + n as u64, pfn)).collect()
    }

    pub(super) fn read_disk(&self, run: PageRun) -> PageAnswer {
        self.tell_disk(&run, "read");
        let disk = self.disk.borrow();
        if disk.fails_reads {
            return run.failed();
        }
        for (index, pfn) in Self::frames_of(&run) {
            self.data[self.index(pfn)].set(disk.page(run.pager(), index));
        }
        // It reads whole blocks, past the end, too.
        let bytes = run.frames().len() as u64 * PAGE;
        run.done(bytes)
    }

    pub(super) fn write_disk(&self, run: PageRun) -> PageAnswer {
        self.tell_disk(&run, "write");
        let mut disk = self.disk.borrow_mut();
        if disk.fails_writes {
            return run.failed();
        }
        let end = run.offset() + run.bytes();
        for (index, pfn) in Self::frames_of(&run) {
            let (mut new, old) = (self.contents(pfn), disk.page(run.pager(), index));
            let kept = end.saturating_sub(index * PAGE).min(PAGE) as usize;
            samples(kept, PAGE_SIZE - kept).for_each(|(i, _)| new[i] = old[i]);
            disk.put(run.pager(), index, new);
        }
        let bytes = run.bytes();
        run.done(bytes)
    }
}
