//! The high-water mark of the program's resident set, which Linux has as `hiwater_rss`.
//!
//! The library's gauges count what the entries of all spaces map. A forked child runs nothing, so
//! what its space maps changes with its fork, its end, and files that lose pages: it is counted
//! then, and the gauges less the children's share are the program's own. They are read before what
//! takes pages away, and at the end.
//!
//! Rejected: frames in use, which count a page once that the program maps at several places, and
//! those that only a child has.

use std::collections::BTreeMap;

use vellum::stats::Counter;
use vellum::vm::Vm;
use vellum_sim::SimMachine;
use vellum_sim::format::Format;

/// Base pages of an anonymous huge page as the gauge counts them.
const HUGE_PAGES: i64 = 512;

/// Pages of 4 KiB that the program has had in its entries.
#[derive(Clone, Debug, Default)]
pub struct Resident {
    peak: u64,
    /// Those of living children, by number.
    children: BTreeMap<u32, u64>,
    /// Forks under way, whose children are in the gauges in part.
    forks: u32,
}

impl Resident {
    /// Raises the mark to what the program has now.
    pub fn note<F: Format>(&mut self, vm: &Vm<SimMachine<F>>) {
        if self.forks > 0 {
            return;
        }
        let stats = vm.stats();
        let anonymous = stats.get(Counter::AnonPages) + stats.get(Counter::AnonHuge) * HUGE_PAGES;
        let all = anonymous + stats.get(Counter::ObjectRss);
        let children = self.children.values().sum();
        self.peak = self.peak.max((all.max(0) as u64).saturating_sub(children));
    }

    /// A fork begins.
    pub fn fork_begins(&mut self) {
        self.forks += 1;
    }

    /// A fork is over, and its child, if it lives, has so many pages.
    pub fn fork_ends(&mut self, child: Option<(u32, u64)>) {
        self.forks -= 1;
        self.children.extend(child);
    }

    /// A child has so many pages from here on.
    pub fn child_has(&mut self, child: u32, pages: u64) {
        self.children.insert(child, pages);
    }

    /// A child has ended.
    pub fn child_ends(&mut self, child: u32) {
        self.children.remove(&child);
    }

    /// The most pages so far.
    pub fn peak(&self) -> u64 {
        self.peak
    }
}
