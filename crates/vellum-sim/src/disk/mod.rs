//! The disk that has the contents of files: when each request is done, and what it holds.
//!
//! A request waits until fewer than `requests` are under way, takes its latency, and then its bytes
//! go over a line that all requests share, in the order in which they get there. The disk is done
//! by its own clock. A run of pages is answered when a CPU that waits asks for it
//! ([`Machine::page_answer`](vellum::machine::Machine::page_answer)). What goes to and from the
//! disk passes no cache, and takes no bandwidth of the memory.
//!
//! In hunting mode each request takes a time that the seed draws, so that answers come in any
//! order.

mod files;
mod folio;
mod pager;
mod time;

pub(crate) use files::Files;
pub(crate) use folio::Tails;
pub use time::DiskTimes;
pub(crate) use time::Line;

use vellum::machine::PageRun;

use crate::memory::Ticks;

/// A request that is under way.
pub(crate) struct Request {
    pub due: Ticks,
    /// Requests that are due at once are answered in the order in which they were made.
    pub number: u64,
    pub run: PageRun,
    pub writes: bool,
    /// It ends with an error.
    pub fails: bool,
}

/// A machine's disk.
pub(crate) struct Disk {
    /// Its line; `None` for a machine without disk, whose files are read and written in no time.
    pub line: Option<Line>,
    pub under_way: Vec<Request>,
    pub files: Files,
    /// Pages of files in memory that are mapped with others.
    pub tails: Tails,
    /// One request in so many fails; 0 for none.
    pub fails: u64,
    pub requests: u64,
}

impl Disk {
    pub(crate) fn new(times: Option<DiskTimes>, fails: u64) -> Disk {
        Disk {
            line: times.map(Line::new),
            under_way: Vec::new(),
            files: Files::default(),
            tails: Tails::default(),
            fails,
            requests: 0,
        }
    }

    /// When the next request is done.
    pub(crate) fn next_due(&self) -> Option<Ticks> {
        self.under_way.iter().map(|r| r.due).min()
    }

    /// Takes out the request that was done first, if that is before `now`.
    pub(crate) fn take_due(&mut self, now: Ticks) -> Option<Request> {
        let first = (0..self.under_way.len())
            .min_by_key(|&n| (self.under_way[n].due, self.under_way[n].number))?;
        (self.under_way[first].due <= now).then(|| self.under_way.swap_remove(first))
    }
}
