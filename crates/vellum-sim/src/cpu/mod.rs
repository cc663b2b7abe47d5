//! One simulated CPU.
//!
//! Everything that an access needs is in one struct behind one pointer: first the shortcuts (the
//! last page and line of data and instructions), then the core's clock, the TLBs and the counts.
//! The shortcuts are exact: the last page is the most recent entry of its TLB set, and the last
//! line the most recent of its cache set, so another lookup would change no state. Whatever could
//! change that (an invalidation, another agent's access, another CPU's turn) drops the shortcuts.

pub(crate) mod access;
mod begin;
mod counters;
mod handle;
pub(crate) mod prefetch;
mod price;
mod program;
pub(crate) mod translate;

use core::ops::Range;

pub use access::{PageFault, Seen};
pub use counters::Counters;
pub use handle::{Begun, Cpu};
pub(crate) use price::{Charges, PRICES, Price};
pub use program::Program;

use vellum::machine::{Verb, Work};

use crate::cache::{First, Kind as CacheKind, Prefetcher};
use crate::machine::parts::Parts;
use crate::memory::{Core, SOURCES, Ticks};
use crate::tlb::{NestedTlb, Tlb, WalkCache};

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A data read.
    Load,
    /// A data write.
    Store,
    /// An instruction fetch.
    Fetch,
}

impl Kind {
    pub(crate) fn of_cache(self) -> CacheKind {
        match self {
            Kind::Load => CacheKind::Load,
            Kind::Store => CacheKind::Store,
            Kind::Fetch => CacheKind::Fetch,
        }
    }
}

/// What a CPU's cycles are spent on. Every tick of a CPU's clock belongs to exactly one account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Account {
    /// The program itself, cache misses included.
    Program,
    /// What hits of the second-level TLB held it up.
    SecondLevelTlb,
    /// What page walks held it up.
    Walk,
    /// Faults, apart from clearing and flushing.
    Fault,
    /// Clearing and copying frames.
    Clear,
    /// Invalidating translations here, waiting for others to, and serving their requests.
    Flush,
    /// Verbs other than faults, and system calls.
    Call,
    /// Nothing to do, or waiting for a lock.
    Idle,
    /// Waiting for the disk.
    Io,
}

/// Number of [`Account`]s.
pub const ACCOUNTS: usize = 9;

/// Counts of one CPU; the names that users see are in [`Counters`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub loads: u64,
    pub stores: u64,
    pub fetches: u64,
    pub quick_lines: u64,
    pub quick_fetches: u64,
    pub hits_checked: u64,
    pub dtlb_l1_misses: u64,
    pub itlb_l1_misses: u64,
    pub stlb_hits: u64,
    pub walks_data: u64,
    pub walks_fetch: u64,
    pub walk_steps: u64,
    pub walk_time: Ticks,
    /// Parts of it: reads, by what served them, and what walks take beside them.
    pub walk_reads: [Ticks; SOURCES],
    pub walk_starts: Ticks,
    pub nested_steps: u64,
    pub page_faults: u64,
    pub dirty_assists: u64,
    pub ipi_sent: u64,
    pub ipi_received: u64,
    pub broadcasts: u64,
    pub flush_page: u64,
    pub flush_range: u64,
    pub flush_space: u64,
    pub flush_all: u64,
    pub root_loads: u64,
    pub lines_cleared: u64,
    pub lines_copied: u64,
    pub speculative_walks: u64,
    pub prefetches: u64,
    pub prefetch_hits: u64,
}

/// No page, no line.
pub(crate) const NONE: u64 = u64::MAX;

/// The page or line an access used last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recent {
    /// Page number, or [`NONE`].
    pub page: u64,
    /// Physical address of its first byte.
    pub base: u64,
    /// It may be stored into without another look, and its frame is marked as written.
    pub writable: bool,
    /// Physical line number, or [`NONE`].
    pub line: u64,
    /// The line is dirty.
    pub dirty: bool,
}

impl Recent {
    pub(crate) const NOTHING: Recent =
        Recent { page: NONE, base: 0, writable: false, line: NONE, dirty: false };
}

/// A root this CPU may hold translations of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedRoot {
    pub root: u32,
    pub ctx: u16,
    /// A reduction under this root happened while it was not loaded here, and no flush has covered
    /// it since.
    pub missed: bool,
}

/// A flush asked for by another CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub scope: vellum::machine::Scope,
    pub from: usize,
    pub due: Ticks,
}

/// The state of one CPU.
pub(crate) struct CpuState {
    pub data: Recent,
    pub code: Recent,
    /// The clock at which to look at interrupts and other CPUs.
    pub until: Ticks,
    pub core: Core,
    pub counts: Counts,
    /// Index of the loaded root, and its context.
    pub root: Option<u32>,
    pub ctx: u16,
    /// The loaded context missed an invalidation; no program may run on it.
    pub suspect: bool,
    pub node: usize,
    pub tlb_l1d: Tlb,
    pub tlb_l1i: Tlb,
    pub tlb_l2: Option<Tlb>,
    pub walk_cache: WalkCache,
    /// Guest-physical translations, on a machine that is a guest. The guest cannot drop them.
    pub nested: Option<Box<NestedTlb>>,
    pub prefetcher: Option<Box<Prefetcher>>,
    /// What the first level of data does beside holding lines.
    pub first: Option<Box<First>>,
    pub charges: Charges,
    /// Time by account, up to `marked`.
    pub spent: [Ticks; ACCOUNTS],
    pub account: Account,
    pub marked: Ticks,
    pub roots: Vec<CachedRoot>,
    pub requests: Vec<Request>,
    pub acks_missing: u32,
    pub acked_at: Ticks,
    /// A coroutine is alive on it.
    pub running: bool,
    /// Its program acts as another CPU for the moment.
    pub aside: bool,
    /// Verbs entered and not left.
    pub depth: u32,
    /// The outermost of them.
    pub verb: Option<Verb>,
    /// The page of an object whose entry a fault has taken out.
    pub lifted: Option<u64>,
    /// It is in a system call that moves bytes, which has a price of its own.
    pub moves: Moves,
    /// Where the last runs of bytes ended that such calls moved, as physical addresses.
    pub moved_to: [u64; 4],
    /// How it maps pages of files.
    pub folio: FolioMapping,
    pub preempt_off: u32,
    /// One past the last frame this CPU cleared, as long as it did nothing else since.
    pub cleared_to: u64,
    /// Its task is to end.
    pub stop_pending: bool,
    /// What it does now counts as done before the run.
    pub beforehand: bool,
}

/// Whether a CPU is in a system call that moves bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moves {
    /// It is not.
    Nothing,
    /// It is, and waits for the first line.
    First,
    /// It is, and has begun: lines that follow are on their way.
    More,
}

/// How a CPU maps pages of files.
#[derive(Clone, Copy, Default)]
pub(crate) struct FolioMapping {
    /// Pages that each folio has; 0: pages are mapped by themselves.
    pub pages: u64,
    /// Pages mapped so far.
    pub mapped: u64,
}

impl CpuState {
    pub(crate) fn new(parts: &Parts, cpu: usize) -> CpuState {
        CpuState {
            data: Recent::NOTHING,
            code: Recent::NOTHING,
            until: Ticks::MAX,
            core: Core::new(parts.core),
            counts: Counts::default(),
            root: None,
            ctx: 0,
            suspect: false,
            node: usize::from(parts.cpu_node[cpu]),
            tlb_l1d: Tlb::new(&parts.tlb_l1d),
            tlb_l1i: Tlb::new(&parts.tlb_l1i),
            tlb_l2: parts.tlb_l2.as_ref().map(Tlb::new),
            walk_cache: WalkCache::new(&parts.walk_cache),
            nested: parts.nested.as_ref().map(|shape| Box::new(NestedTlb::new(shape))),
            prefetcher: parts
                .prefetch
                .map(|shape| Box::new(Prefetcher::new(shape, &parts.caches.l2))),
            first: First::new(parts.first, &parts.caches.l1d),
            charges: Charges::NONE,
            spent: [Ticks::ZERO; ACCOUNTS],
            account: Account::Program,
            marked: Ticks::ZERO,
            roots: Vec::new(),
            requests: Vec::new(),
            acks_missing: 0,
            acked_at: Ticks::ZERO,
            running: false,
            aside: false,
            depth: 0,
            verb: None,
            lifted: None,
            moves: Moves::Nothing,
            moved_to: [u64::MAX; 4],
            folio: FolioMapping::default(),
            preempt_off: 0,
            cleared_to: u64::MAX,
            stop_pending: false,
            beforehand: false,
        }
    }

    /// Forgets the last page and line: the next access looks everything up again.
    #[inline(always)]
    pub(crate) fn forget(&mut self) {
        self.data = Recent::NOTHING;
        self.code = Recent::NOTHING;
        if let Some(prefetcher) = &mut self.prefetcher {
            prefetcher.flush();
        }
    }

    /// Forgets the last lines only.
    #[inline(always)]
    pub(crate) fn forget_lines(&mut self) {
        self.data.line = NONE;
        self.code.line = NONE;
    }

    /// Charges on the account of the moment.
    #[inline]
    pub(crate) fn sums(&mut self) -> &mut [Ticks; PRICES] {
        &mut self.charges.sums[usize::from(self.account != Account::Program)]
    }

    /// A system call moves bytes: whether they follow on what such a call moved.
    pub(crate) fn goes_on(&mut self, bytes: Range<u64>) -> bool {
        let known = self.moved_to.iter().position(|end| *end == bytes.start);
        self.moved_to[..=known.unwrap_or(3)].rotate_right(1);
        self.moved_to[0] = bytes.end;
        known.is_some()
    }

    /// Passes time that a constant sets.
    #[inline]
    pub(crate) fn charge(&mut self, price: Price, time: Ticks) {
        self.sums()[price as usize] += time;
        self.core.advance(time);
    }

    /// Waits for others until `time`.
    #[inline]
    pub(crate) fn wait_until(&mut self, time: Ticks) {
        let wait = self.core.advance_to(time);
        self.sums()[Price::Waiting as usize] += wait;
    }

    /// Passes the time of pieces of work.
    #[inline]
    pub(crate) fn work(&mut self, work: Work, time: Ticks) {
        self.sums()[Price::work(work)] += time;
        self.core.advance(time);
    }

    /// Time from here on belongs to `account`; returns the account until now.
    #[inline]
    pub(crate) fn switch(&mut self, account: Account) -> Account {
        let now = self.core.now();
        if self.account == Account::Program {
            let translating = self.core.take_translating();
            self.attribute(translating.second_level, Account::SecondLevelTlb);
            self.attribute(translating.walks, Account::Walk);
        } else {
            let waits = self.core.waits().since(&self.charges.marked);
            self.charges.elsewhere.add(&waits);
        }
        self.charges.marked = self.core.waits();
        self.spent[self.account as usize] += now - self.marked;
        self.marked = now;
        core::mem::replace(&mut self.account, account)
    }

    /// Moves `time`, which has passed on the current account, to another.
    #[inline]
    pub(crate) fn attribute(&mut self, time: Ticks, to: Account) {
        self.spent[to as usize] += time;
        self.marked += time;
    }

    /// Drops what a scope names from TLBs and walk caches; `ctx` `None` means in every context.
    pub(crate) fn drop_pages(&mut self, ctx: u16, va: u64, bytes: u64) {
        for tlb in [Some(&mut self.tlb_l1d), Some(&mut self.tlb_l1i), self.tlb_l2.as_mut()]
            .into_iter()
            .flatten()
        {
            if bytes == 4096 {
                tlb.invalidate_page(Some(ctx), va, false);
            } else {
                tlb.invalidate_range(Some(ctx), va, bytes, false);
            }
        }
        if bytes == 4096 {
            self.walk_cache.invalidate_page(Some(ctx), va);
        } else {
            self.walk_cache.invalidate_range(Some(ctx), va, bytes);
        }
        self.forget();
    }

    pub(crate) fn drop_context(&mut self, ctx: u16) {
        self.tlb_l1d.invalidate_context(ctx);
        self.tlb_l1i.invalidate_context(ctx);
        if let Some(tlb) = &mut self.tlb_l2 {
            tlb.invalidate_context(ctx);
        }
        self.walk_cache.invalidate_context(ctx);
        self.forget();
    }

    pub(crate) fn drop_everything(&mut self) {
        self.tlb_l1d.invalidate_all(true);
        self.tlb_l1i.invalidate_all(true);
        if let Some(tlb) = &mut self.tlb_l2 {
            tlb.invalidate_all(true);
        }
        self.walk_cache.invalidate_all();
        self.forget();
    }

    /// Every TLB of this CPU.
    pub(crate) fn tlbs(&mut self) -> impl Iterator<Item = &mut Tlb> {
        [Some(&mut self.tlb_l1d), Some(&mut self.tlb_l1i), self.tlb_l2.as_mut()]
            .into_iter()
            .flatten()
    }
}
