//! A stream prefetcher, as beside the second level of each core: it watches the misses of the first
//! level, and fetches ahead of those that follow one another.
//!
//! Each tracker follows one physical page of 4 KiB, in one direction. A step of one line or two in
//! its direction goes on with the stream (lines between are fetched, too: the prefetcher knows no
//! strides); a longer step, or one the other way, begins anew. After `train` misses in a row it
//! fetches one line ahead, and twice as far with each further miss, to `depth` lines at most and
//! never past the page. One that follows virtual addresses goes on in the next page, and so do the
//! lines ahead; a stream of walks does not, for tables lie anywhere. Where all trackers are in use,
//! a miss in another page takes the one that was idle longest. Intel's second-level streamer works
//! so (Intel 64 and IA-32 Architectures Optimization Reference Manual, "Data Prefetch to L1/L2/L3
//! Caches": up to 32 streams, up to 20 lines ahead, one direction a page); how fast it
//! begins is not published. On an EPYC of family 26 no page that is read in a row begins with a
//! wait; on one of family 25 walks through tables in a row do not wait for memory either.
//!
//! This file knows no caches and no clock: it says which lines to fetch, and remembers when those
//! that were fetched arrive.

use super::geometry::{Divider, Geometry};
use super::recent::{NONE, Recent};
use crate::memory::Ticks;

/// What a [`Prefetcher`] is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefetchShape {
    /// Pages it follows at once, 1 or more.
    pub streams: u32,
    /// Misses in a row after which it fetches, 2 to 63.
    pub train: u32,
    /// Lines it is ahead at most, 1 to 63.
    pub depth: u32,
    /// Whether the misses of page walks train it, too.
    pub walks: bool,
    /// Whether it follows virtual addresses, from page to page.
    pub crosses_pages: bool,
}

impl PrefetchShape {
    /// Whether a stream goes on behind a page. Tables of pages lie anywhere.
    fn crosses(&self, page: u64) -> bool {
        self.crosses_pages && page & (OF_WALKS / LINES) == 0
    }
}

/// What tells lines that walks read from those of the program, whose numbers may be equal: no
/// address of 64 bits has so large a line.
const OF_WALKS: u64 = 1 << 60;
/// Most pages that a prefetcher follows.
pub const MAX_STREAMS: u32 = 256;
/// Lines of a page.
const LINES: u64 = 64;
/// The longest step, in lines, that goes on with a stream.
const STEP: i64 = 2;

/// One tracker. Positions are lines of its page, 0 to 63.
#[derive(Clone, Copy, Debug)]
struct Stream {
    page: u64,
    /// The last miss.
    last: i64,
    /// 1 ascending, -1 descending, 0 after the first miss.
    direction: i64,
    /// Misses in a row in this direction.
    run: u32,
    /// Lines ahead of the last miss that it has fetched, or would have without the page's end; 0
    /// until it is trained.
    ahead: i64,
    /// The position to fetch next.
    next: i64,
}

/// Lines to fetch, one after the other; of one page, unless the prefetcher crosses pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetch {
    next: u64,
    count: u32,
    descending: bool,
}

impl Fetch {
    const NOTHING: Fetch = Fetch { next: 0, count: 0, descending: false };
}

impl Iterator for Fetch {
    type Item = u64;
    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.count = self.count.checked_sub(1)?;
        let line = self.next;
        self.next = line.wrapping_add_signed(if self.descending { -1 } else { 1 });
        Some(line)
    }
}

/// The prefetcher of one core.
#[derive(Clone, Debug)]
pub struct Prefetcher {
    shape: PrefetchShape,
    streams: Vec<Stream>,
    /// Which of them follows a page.
    recent: Recent,
    /// Lines fetched and not used since, and when they arrive, by the sets of the cache that they
    /// are fetched into: what this has no room for, that has none for either.
    fetched: Vec<(u64, Ticks)>,
    sets: Divider,
    ways: usize,
    /// Frames of virtual pages that were fetched from, for the simulator's speed.
    frames: [(u64, u64); FRAMES],
}

/// Pages whose frames are remembered.
const FRAMES: usize = 16;

impl Prefetcher {
    /// It follows nothing yet. `cache`: the one that it fetches into.
    pub fn new(shape: PrefetchShape, cache: &Geometry) -> Prefetcher {
        let idle = Stream { page: NONE, last: 0, direction: 0, run: 0, ahead: 0, next: 0 };
        let count = shape.streams.clamp(1, MAX_STREAMS) as usize;
        Prefetcher {
            shape,
            streams: vec![idle; count],
            recent: Recent::new(count),
            fetched: vec![(NONE, Ticks::ZERO); cache.lines() as usize],
            sets: Divider::new(cache.sets, cache.index),
            ways: cache.ways as usize,
            frames: [(NONE, 0); FRAMES],
        }
    }

    /// The frame of a virtual page, if it was told since the last flush.
    #[inline]
    pub fn frame_of(&self, page: u64) -> Option<u64> {
        let (known, frame) = self.frames[page as usize % FRAMES];
        (known == page).then_some(frame)
    }

    /// A virtual page lies in that frame.
    pub fn knows(&mut self, page: u64, frame: u64) {
        self.frames[page as usize % FRAMES] = (page, frame);
    }

    /// Translations were flushed.
    pub fn flush(&mut self) {
        self.frames = [(NONE, 0); FRAMES];
    }

    /// Whether it watches the misses of page walks.
    pub fn watches_walks(&self) -> bool {
        self.shape.walks
    }

    /// Whether it follows virtual lines, from page to page.
    pub fn crosses_pages(&self) -> bool {
        self.shape.crosses_pages
    }

    /// A walk missed a physical line; returns what to fetch, of the same page of the tables.
    pub fn miss_of_walk(&mut self, line: u64) -> Fetch {
        let fetch = self.miss(line | OF_WALKS);
        Fetch { next: fetch.next & !OF_WALKS, ..fetch }
    }

    /// The first level missed a line, virtual if pages are crossed, physical if not; returns what
    /// to fetch.
    pub fn miss(&mut self, line: u64) -> Fetch {
        let (page, at) = (line / LINES, (line % LINES) as i64);
        let Some(n) = self.recent.find(page).or_else(|| self.crossing(page, at)) else {
            let idle = self.recent.oldest();
            self.streams[idle] = Stream::begin(page, at);
            self.recent.rename(idle, page);
            self.recent.touch(idle);
            return Fetch::NOTHING;
        };
        self.recent.touch(n);
        let stream = &mut self.streams[n];
        if !stream.follow(at) || stream.run < self.shape.train {
            return Fetch::NOTHING;
        }
        stream.fetch(&self.shape)
    }

    /// The tracker that comes to a page from the one beside it, and follows it from now on.
    fn crossing(&mut self, page: u64, at: i64) -> Option<usize> {
        if !self.shape.crosses(page) {
            return None;
        }
        let beside = [page.wrapping_sub(1), page.wrapping_add(1)].into_iter();
        let mut known = beside.filter_map(|page| self.recent.find(page));
        let n = known.find(|&n| self.streams[n].comes_to(page, at))?;
        self.streams[n].cross();
        self.recent.rename(n, page);
        Some(n)
    }

    /// A line was fetched, and arrives then.
    #[inline]
    pub fn sent(&mut self, line: u64, arrives: Ticks) {
        let places = self.places(line);
        let same = places.iter().position(|p| p.0 == line);
        let oldest = || places.iter().enumerate().min_by_key(|(_, p)| p.1).map(|(at, _)| at);
        if let Some(at) = same.or_else(oldest) {
            places[at] = (line, arrives);
        }
    }

    /// Where a line may be remembered.
    #[inline]
    fn places(&mut self, line: u64) -> &mut [(u64, Ticks)] {
        let first = self.sets.split(line).0 * self.ways;
        &mut self.fetched[first..first + self.ways]
    }

    /// A line is used; returns when it arrives, or has arrived, if it was fetched ahead and not
    /// used since.
    #[inline]
    pub fn take(&mut self, line: u64) -> Option<Ticks> {
        let place = self.places(line).iter_mut().find(|p| p.0 == line)?;
        let arrives = place.1;
        *place = (NONE, Ticks::ZERO);
        Some(arrives)
    }

    /// No page has two trackers, none has fetched too far, and each fetched line is remembered in
    /// its set, once.
    pub fn validate(&self) -> Result<(), String> {
        self.recent.validate()?;
        for (n, s) in self.streams.iter().enumerate().filter(|(_, s)| s.page != NONE) {
            if self.recent.find(s.page) != Some(n) {
                return Err(format!("page {} has two trackers, or none by its number", s.page));
            }
            let furthest = s.last + s.direction * (s.ahead + 1);
            let beyond = (s.next - furthest) * s.direction > 0;
            let is_outside = !self.shape.crosses(s.page) && !(-1..=LINES as i64).contains(&s.next);
            if s.ahead > 0 && (beyond || is_outside) {
                return Err(format!("page {}: line {} after {}", s.page, s.next, s.last));
            }
            if s.ahead > self.shape.depth.into() || s.ahead > 0 && s.run < self.shape.train {
                return Err(format!("page {}: {} lines ahead", s.page, s.ahead));
            }
        }
        for (set, places) in self.fetched.chunks(self.ways).enumerate() {
            for (n, &(line, _)) in places.iter().enumerate().filter(|(_, p)| p.0 != NONE) {
                if self.sets.split(line).0 != set || places[..n].iter().any(|p| p.0 == line) {
                    return Err(format!("fetched line {line} is in set {set}, or there twice"));
                }
            }
        }
        Ok(())
    }
}

impl Stream {
    /// After the first miss of a page.
    fn begin(page: u64, at: i64) -> Stream {
        Stream { page, last: at, direction: 0, run: 1, ahead: 0, next: 0 }
    }

    /// The next miss of the page; says whether it may go on with a stream.
    fn follow(&mut self, at: i64) -> bool {
        let step = at - self.last;
        if step == 0 {
            return false;
        }
        if step.abs() > STEP {
            *self = Stream::begin(self.page, at);
            return false;
        }
        if step.signum() == self.direction {
            self.run = self.run.saturating_add(1);
        } else {
            // The miss before this one is the first of the new direction.
            *self = Stream { run: 2, direction: step.signum(), ahead: 0, ..*self };
        }
        self.last = at;
        true
    }

    /// Whether a miss in another page is the next step.
    fn comes_to(&self, page: u64, at: i64) -> bool {
        let step = (at - self.last) * self.direction + LINES as i64;
        self.page.wrapping_add_signed(self.direction) == page && (1..=STEP).contains(&step)
    }

    /// Follows the next page in its direction.
    fn cross(&mut self) {
        let lines = LINES as i64 * self.direction;
        self.page = self.page.wrapping_add_signed(self.direction);
        self.last -= lines;
        self.next -= lines;
    }

    /// Goes further ahead, up to the depth, and to the end of the page if it is not crossed.
    fn fetch(&mut self, shape: &PrefetchShape) -> Fetch {
        let following = self.last + self.direction;
        self.next = match self.direction {
            _ if self.ahead == 0 => following,
            1 => self.next.max(following),
            _ => self.next.min(following),
        };
        self.ahead = (self.ahead * 2).clamp(1, shape.depth.into());
        let mut end = self.last + self.direction * self.ahead;
        if !shape.crosses(self.page) {
            end = end.clamp(0, LINES as i64 - 1);
        }
        let count = (end - self.next) * self.direction + 1;
        if count <= 0 {
            return Fetch::NOTHING;
        }
        let first = (self.page * LINES).wrapping_add_signed(self.next);
        self.next = end + self.direction;
        Fetch { next: first, count: count as u32, descending: self.direction < 0 }
    }
}

#[cfg(test)]
#[path = "prefetch_tests.rs"]
mod tests;
