//! Clearing and copying of blocks that nobody can see yet.
//!
//! Every frame that must be zero before anyone sees it passes through here. A block becomes up to
//! three ranges (`order`), a range becomes batches (`pace`), and a batch is one call of the
//! machine, which therefore knows how long it will store: fast string and non-temporal stores gain
//! with length. Where an interrupt may reschedule anywhere, a batch is the whole range. Where the
//! kernel must ask, a batch is limited and has a scheduling point before it. The preemption model
//! is read before every batch, since it may change meanwhile. A task that is to end stops between
//! two batches.
//!
//! The kind of stores is chosen by range: by its length and the machine's caches. The neighbourhood
//! of the fault always goes through the caches, since it is about to be used. Pages that nobody
//! waits for are one range, around the caches whatever its length.
//!
//! The caller owns what is filled, so no epoch is entered and no lock is held, with one exception:
//! a fault that was sent back 16 times holds the mmap lock (`Faults::patiently`), and while one
//! does, nobody's clearing has scheduling points.
//!
//! Copying is the same with another machine call (`Fill`). Rejected: a copy of this file for it.

pub(crate) mod fresh_block;
mod order;
mod pace;

use core::ops::Range;

use crate::addr::{Order, PAGE_SIZE, Pfn, Va};
use crate::clear::pace::Pace;
use crate::config::{ClearOrder, ClearStores, ClearUnit};
use crate::error::Stopped;
use crate::machine::{Act, Machine, Stores};
use crate::platform::above;
use crate::tlb::Tlb;

/// The layer that fills frames.
pub(crate) struct Clear<M: Machine> {
    tlb: Tlb<M>,
    /// How fast clearing has been, by memory node.
    pace: Pace,
}

above!(Clear, tlb: Tlb);

impl<M: Machine> Clear<M> {
    pub fn new(tlb: Tlb<M>) -> Clear<M> {
        Clear { tlb, pace: Pace::new() }
    }
}

/// A run of frames that is the caller's alone, and where it will be seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First frame.
    pub first: Pfn,
    /// Number of frames, at least 1.
    pub frames: u64,
    /// The address its first page will have. Matters to machines whose caches alias.
    pub at: Va,
    /// The page, counted from the first, that is used first: the one that faulted. `None`: nobody
    /// waits for any of them.
    pub fault: Option<u64>,
}

impl Extent {
    /// The block of a leaf of `order`, for a fault at `va`.
    pub fn of_leaf(first: Pfn, order: Order, va: Va) -> Extent {
        let at = va.align_down(order.bytes());
        let fault = Some((va.0 - at.0) / PAGE_SIZE as u64);
        Extent { first, frames: order.frames(), at, fault }
    }

    fn va(&self, page: u64) -> Va {
        Va(self.at.0.wrapping_add(page * PAGE_SIZE as u64))
    }
}

/// What frames are filled with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fill {
    Zeros,
    /// The frames from there on.
    Copy(Pfn),
}

/// A block being filled.
struct Job<'e> {
    fill: Fill,
    extent: &'e Extent,
    node: usize,
}

impl<M: Machine> Clear<M> {
    /// `Vm::clear_extent`.
    ///
    /// # Safety
    /// As for `Vm::clear_extent`.
    pub unsafe fn clear_extent(&self, extent: &Extent) -> Result<(), Stopped> {
        self.clear_block(extent)
    }

    /// `Vm::copy_extent`.
    ///
    /// # Safety
    /// As for `Vm::copy_extent`.
    pub unsafe fn copy_extent(&self, from: Pfn, extent: &Extent) -> Result<(), Stopped> {
        self.copy_block(from, extent)
    }

    /// `Vm::clear_extent` of a block that the library has just allocated.
    pub fn clear_block(&self, extent: &Extent) -> Result<(), Stopped> {
        self.fill(Fill::Zeros, extent)
    }

    /// `Vm::copy_extent` to a block that the library has just allocated, from one that cannot go
    /// meanwhile.
    pub fn copy_block(&self, from: Pfn, extent: &Extent) -> Result<(), Stopped> {
        self.fill(Fill::Copy(from), extent)
    }

    /// `Vm::clear_frames`.
    ///
    /// # Safety
    /// As for `Vm::clear_frames`.
    pub unsafe fn clear_frames(&self, frames: &[(Pfn, Va)]) -> Result<(), Stopped> {
        self.clear_each(frames, self.stores_for_nobody())
    }

    /// Clears base frames that lie anywhere, with a scheduling point before each portion and, if
    /// need be, a fence after it.
    pub fn clear_each(&self, frames: &[(Pfn, Va)], stores: Stores) -> Result<(), Stopped> {
        let m = &self.machine;
        let mut rest = frames;
        while let Some(&(first, _)) = rest.first() {
            let asks = self.asks();
            let node = m.topology().node_of(first).unwrap_or(0);
            let portion =
                if asks { self.batch(node).min(rest.len() as u64) as usize } else { rest.len() };
            self.pause(asks)?;
            let (now, later) = rest.split_at(portion);
            m.clear_singles(now, stores);
            if stores == Stores::NonTemporal {
                m.store_fence();
            }
            rest = later;
        }
        Ok(())
    }

    /// Clears one base frame that is the caller's alone and is used at once, as that of a fault.
    /// Never reschedules: locks may be held.
    #[inline(always)]
    pub fn clear_page(&self, pfn: Pfn, at: Va) {
        self.machine.clear_span(pfn, 1, Stores::Cached, at);
    }

    /// Not inlined, so that counts of instructions can tell it from the fault around it.
    #[inline(never)]
    fn fill(&self, fill: Fill, extent: &Extent) -> Result<(), Stopped> {
        let pages = extent.frames;
        let node = self.machine.topology().node_of(extent.first).unwrap_or(0);
        let job = Job { fill, extent, node };
        let Some(fault) = extent.fault else {
            return match self.config.clear_unit {
                ClearUnit::Page => self.one_by_one(&job, 0..pages),
                ClearUnit::Extent => self.range(&job, 0..pages, self.stores_for_nobody()),
            };
        };
        assert!(fault < pages, "the page that faulted lies in the extent");
        match (self.config.clear_unit, self.config.clear_order) {
            (ClearUnit::Page, ClearOrder::Ascending) => self.one_by_one(&job, 0..pages),
            // The order before extents was for huge pages; larger ones went from end to end.
            (ClearUnit::Page, ClearOrder::NearLast) if pages > Order::HUGE.frames() => {
                self.one_by_one(&job, 0..pages)
            }
            (ClearUnit::Page, ClearOrder::NearLast) => {
                self.one_by_one(&job, order::converge(pages, fault))
            }
            (ClearUnit::Extent, ClearOrder::Ascending) => {
                self.range(&job, 0..pages, self.stores(pages))
            }
            (ClearUnit::Extent, ClearOrder::NearLast) => {
                let ranges = order::ranges(pages, fault);
                for side in [ranges.right, ranges.left] {
                    let stores = self.stores(side.end - side.start);
                    self.range(&job, side, stores)?;
                }
                self.neighbourhood(&job, &ranges.near, fault)
            }
        }
    }

    fn one_by_one(&self, job: &Job<'_>, pages: impl Iterator<Item = u64>) -> Result<(), Stopped> {
        for page in pages {
            self.say(job, &(page..page + 1));
            self.pause(self.asks())?;
            self.run(job, page..page + 1, Stores::Cached);
        }
        Ok(())
    }

    /// A range away from the fault, in portions.
    fn range(&self, job: &Job<'_>, pages: Range<u64>, stores: Stores) -> Result<(), Stopped> {
        if pages.is_empty() {
            return Ok(());
        }
        let m = &self.machine;
        self.say(job, &pages);
        let mut next = pages.start;
        while next < pages.end {
            let asks = self.asks();
            let batch = if asks { self.batch(job.node) } else { u64::MAX };
            let portion = batch.min(pages.end - next);
            self.pause(asks)?;
            let began = Pace::times(portion, batch).then(|| m.now());
            self.run(job, next..next + portion, stores);
            if stores == Stores::NonTemporal {
                m.store_fence();
            }
            if let Some(began) = began {
                self.pace.took(job.node, m.now().wrapping_sub(began), portion);
            }
            next += portion;
        }
        Ok(())
    }

    /// The neighbourhood of the fault: one range and one portion, in three parts.
    fn neighbourhood(&self, job: &Job<'_>, pages: &Range<u64>, fault: u64) -> Result<(), Stopped> {
        self.say(job, pages);
        self.pause(self.asks())?;
        for part in order::parts(pages, fault) {
            if !part.is_empty() {
                self.run(job, part, Stores::Cached);
            }
        }
        Ok(())
    }

    /// What precedes every portion: the scheduling point of kernels that ask, then the question
    /// whether the task still needs it.
    #[inline]
    fn pause(&self, asks: bool) -> Result<(), Stopped> {
        if asks {
            self.give_turn();
        }
        if self.machine.stop_pending() { Err(Stopped) } else { Ok(()) }
    }

    /// How pages are stored that nobody waits for: around the caches, however few they are.
    fn stores_for_nobody(&self) -> Stores {
        let around = match self.config.clear_stores {
            ClearStores::Cached => false,
            ClearStores::Bypass => true,
            ClearStores::Auto => self.machine.nt_threshold() != u64::MAX,
        };
        if around { Stores::NonTemporal } else { Stores::Cached }
    }

    /// How a run of that many pages is stored, which may or may not be used soon.
    pub fn stores(&self, pages: u64) -> Stores {
        let bypass = match self.config.clear_stores {
            ClearStores::Cached => false,
            ClearStores::Bypass => true,
            ClearStores::Auto => {
                let shortest = match self.machine.nt_threshold() {
                    0 => self.machine.caches().l2.bytes() / 2,
                    measured => measured,
                };
                shortest != 0 && pages.saturating_mul(PAGE_SIZE as u64) >= shortest
            }
        };
        if bypass { Stores::NonTemporal } else { Stores::Cached }
    }

    fn say(&self, job: &Job<'_>, pages: &Range<u64>) {
        let first = job.extent.first.add(pages.start);
        self.machine.fill(first, pages.end - pages.start);
    }

    fn run(&self, job: &Job<'_>, pages: Range<u64>, stores: Stores) {
        let (first, frames) = (job.extent.first.add(pages.start), pages.end - pages.start);
        let from = match job.fill {
            Fill::Zeros => None,
            Fill::Copy(from) => Some(from.add(pages.start)),
        };
        self.fill_run(from, first, frames, stores, job.extent.va(pages.start));
    }

    /// One call of the machine: frames filled from others, or with zeros.
    pub fn fill_run(&self, from: Option<Pfn>, first: Pfn, frames: u64, stores: Stores, at: Va) {
        match from {
            None => self.machine.clear_span(first, frames, stores, at),
            Some(from) => self.machine.copy_span(first, from, frames, stores, at),
        }
    }
}
