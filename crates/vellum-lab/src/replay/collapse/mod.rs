//! Linux's collapse of base pages in the background, which its thread khugepaged does.
//!
//! Each ten seconds, or as it is set, the scan looks at some pages of the program's memory, goes on
//! where it stopped, and makes a huge page where there are base pages enough. Basis: outside,
//! `mm/khugepaged.c` of Linux 6.x. Only private anonymous memory is collapsed here; nothing is
//! swapped out, so that `max_ptes_swap` has nothing to forbid.
//!
//! *When.* A program is registered once it has a page in memory that may be collapsed. If it is the
//! only one, Linux's thread is woken and scans at once; otherwise it is somewhere in its sleep.
//! Here it is woken with `thp=advise`, since few programs advise; with `thp=always` nearly all are
//! registered, and the first scan comes a whole sleep later. This program has all of each scan.
//! Time is that of the CPUs, with what the recorder left out; of a program asleep a trace knows
//! nothing.
//!
//! *Who pays.* The first CPU of the program that comes to that moment does the scan between two
//! slices, as work of the kernel. Rejected: a CPU of its own, which has a clock among those that
//! decide whose turn it is, so that threads would run in another order before anything is scanned.

mod regions;
mod scanner;

pub use regions::{BLOCK, Regions};
pub use scanner::Scanner;

/// Pages of a huge page.
pub const BLOCK_PAGES: u64 = 512;

/// When and how much is scanned and collapsed: the switches `collapse.*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollapseScan {
    /// Pages that a scan looks at (`pages_to_scan`); 0: there is none.
    pub pages: u32,
    /// Milliseconds from a scan to the next (`scan_sleep_millisecs`).
    pub sleep: u32,
    /// Pages of a block that may be missing (`max_ptes_none`).
    pub most_missing: u32,
}

impl Default for CollapseScan {
    fn default() -> CollapseScan {
        CollapseScan { pages: 0, sleep: 10_000, most_missing: BLOCK_PAGES as u32 - 1 }
    }
}

impl CollapseScan {
    /// Sets `collapse.scan`. Says whether it takes that value.
    pub fn set_pages(&mut self, value: &str) -> bool {
        let pages = if value == "off" { Some(0) } else { number(value).filter(|pages| *pages > 0) };
        pages.map(|pages| self.pages = pages).is_some()
    }

    /// Sets `collapse.sleep`. Says whether it takes that value.
    pub fn set_sleep(&mut self, value: &str) -> bool {
        let sleep = number(value).filter(|sleep| *sleep > 0);
        sleep.map(|sleep| self.sleep = sleep).is_some()
    }

    /// Sets `collapse.none`. Says whether it takes that value.
    pub fn set_most_missing(&mut self, value: &str) -> bool {
        let most = number(value).filter(|most| u64::from(*most) < BLOCK_PAGES);
        most.map(|most| self.most_missing = most).is_some()
    }
}

/// Digits and nothing else.
fn number(value: &str) -> Option<u32> {
    value.bytes().all(|b| b.is_ascii_digit()).then(|| value.parse().ok())?
}
