//! What is in a trace: memory touched, reuse, pressure on a TLB.
//!
//! One pass, memory proportional to the pages touched (24 bytes each). The figures are meant for
//! choosing traces and for knowing what to expect of a simulation, not for replacing one: the TLB
//! is a plain model with true LRU, a private one for each thread, at the recorded addresses.
mod files;
mod pages;
mod show;
mod small;
mod tlb;

use crate::event::{Change, Event, MapKind};
use crate::header::Header;
use crate::totals::Totals;
use crate::{TraceError, TraceReader};
pub use files::FileSums;
use pages::Pages;
pub use small::too_small;
use std::collections::BTreeMap;
use std::io::Read;
use tlb::Tlb;
pub use tlb::{Geometry, Pressure};

/// Buckets of the reuse histogram: bucket *b* counts returns after 2^b to 2^(b+1) - 1 accesses.
pub const REUSE_BUCKETS: usize = 40;

/// The result of [`analyse`].
#[derive(Debug, Clone)]
pub struct Info {
    /// The trace's header.
    pub header: Header,
    /// The trace's totals.
    pub totals: Totals,
    /// Does it end before its program did?
    pub partial: bool,
    /// Program loads whose address was loaded a moment before, see
    /// [`Flags::DEPENDENT`](crate::Flags::DEPENDENT).
    pub dependent_loads: u64,
    /// Program stores of that kind.
    pub dependent_stores: u64,
    /// Program loads behind a branch that was predicted wrongly, see
    /// [`Flags::MISPREDICTED`](crate::Flags::MISPREDICTED).
    pub mispredicted: u64,
    /// Most threads alive at once.
    pub threads_alive: u64,
    /// Distinct 4 KiB pages accessed.
    pub pages: u64,
    /// Of those, pages a thread came back to after it had been elsewhere.
    pub revisited: u64,
    /// Distinct 2 MiB blocks accessed, at recorded addresses.
    pub blocks: u64,
    /// Pages by what stands behind them.
    pub by_kind: Vec<(MapKind, u64)>,
    /// Files, and what calls and mappings moved of them.
    pub files: FileSums,
    /// Returns to a page by the number of accesses since the last visit.
    pub reuse: [u64; REUSE_BUCKETS],
    /// Misses with 4 KiB pages.
    pub tlb_4k: Pressure,
    /// The same accesses if every page were 2 MiB.
    pub tlb_2m: Pressure,
}

struct Lane {
    small: Tlb,
    large: Tlb,
    last_page: u64,
}

/// What is known of a mapping.
struct Place {
    base: u64,
    kind: MapKind,
}

/// Decodes a whole trace and sums it up. `geometry` is that of the modelled TLB.
///
/// # Errors
/// As [`TraceReader::next_block`].
pub fn analyse<R: Read>(
    reader: &mut TraceReader<R>,
    geometry: Geometry,
) -> Result<Info, TraceError> {
    let mut block = Vec::new();
    let mut places: Vec<Place> = Vec::new();
    let mut lanes: BTreeMap<u32, Lane> = BTreeMap::new();
    let mut current = 0;
    let mut pages = Pages::default();
    let (mut small, mut large) = (Pressure::default(), Pressure::default());
    let mut reuse = [0u64; REUSE_BUCKETS];
    let (mut now, mut alive) = (0u64, 0);
    let mut dependent = [0u64; 2];
    let mut mispredicted = 0;
    let mut files = FileSums::default();
    let mut fetched = None;
    while reader.next_block(&mut block)? {
        let mut lane = lanes.remove(&current);
        for event in &block {
            match event {
                Event::Access { mapping, offset, flags, size } => {
                    let (Some(lane), Some(place)) = (&mut lane, places.get(*mapping as usize))
                    else {
                        continue;
                    };
                    now += 1;
                    let page = (place.base + offset) / crate::PAGE;
                    if !flags.kernel() {
                        dependent[usize::from(flags.write())] += u64::from(flags.dependent());
                        mispredicted += u64::from(flags.mispredicted());
                        small.accesses += 1;
                        large.accesses += 1;
                        lane.small.access(page, &mut small);
                        lane.large.access(page / 512, &mut large);
                    }
                    if lane.last_page != page {
                        lane.last_page = page;
                        if let Some(gap) = pages.visit(*mapping, offset / crate::PAGE, now) {
                            let bucket = gap.max(1).ilog2() as usize;
                            reuse[bucket.min(REUSE_BUCKETS - 1)] += 1;
                        }
                    }
                    let last = (offset + u64::from(*size).max(1) - 1) / crate::PAGE;
                    if last != offset / crate::PAGE {
                        pages.touch(*mapping, last);
                    }
                }
                Event::Switch { thread } => {
                    if let Some(l) = lane.take() {
                        lanes.insert(current, l);
                    }
                    current = *thread;
                    lane = lanes.remove(thread);
                }
                Event::ThreadStart { thread } => {
                    let new = Lane {
                        small: Tlb::new(geometry),
                        large: Tlb::new(geometry),
                        last_page: u64::MAX,
                    };
                    lanes.insert(*thread, new);
                    alive = alive.max(lanes.len() as u64 + u64::from(lane.is_some()));
                }
                Event::ThreadEnd { thread } => {
                    if *thread == current {
                        lane = None;
                    }
                    lanes.remove(thread);
                }
                Event::Call(c) => {
                    files.count(&c.change);
                    if let Change::Map(m) = &c.change {
                        places.push(Place { base: m.base, kind: m.kind });
                    }
                }
                Event::Fetch { mapping, offset, .. } => {
                    let page = (*mapping, offset / crate::PAGE);
                    if fetched.replace(page) != Some(page) {
                        pages.touch(page.0, page.1);
                    }
                }
                Event::Skip { .. } => {}
            }
        }
        if let Some(l) = lane {
            lanes.insert(current, l);
        }
    }
    let mut by_kind: Vec<(MapKind, u64)> = Vec::new();
    for kind in MapKind::ALL {
        let n = pages.count(|m| places.get(m as usize).is_some_and(|p| p.kind == kind));
        if n > 0 {
            by_kind.push((kind, n));
        }
    }
    let base = |m: u32| places.get(m as usize).map_or(0, |p| p.base);
    Ok(Info {
        header: reader.header().clone(),
        totals: reader.totals(),
        partial: reader.is_partial(),
        dependent_loads: dependent[0],
        dependent_stores: dependent[1],
        mispredicted,
        threads_alive: alive,
        pages: pages.count(|_| true),
        revisited: pages.revisited(),
        blocks: pages.blocks(base),
        by_kind,
        files,
        reuse,
        tlb_4k: small,
        tlb_2m: large,
    })
}
