//! The other half of `zero.huge=auto`: scattered reads, compared by accessed bits.
//!
//! First faults of scattered reads say nothing of the reads that follow them, and the accessed bits of one form say nothing of the other: the
//! same 2 MiB are visited, however long a visit takes. What two forms can be compared by is how many *different* 2 MiB a program comes by in
//! the same time, bits cleared and TLBs flushed before: as long as not all have been visited, more visited is more done. So a *look* lets the
//! table have one side of it and the page the other, each at least as long as the kernel's timer takes to call again
//! ([`Vm::reconsider_zeros`](crate::vm::Vm::reconsider_zeros)):
//!
//! ```text
//! paid for     every mapping names the table, bits clear     -- table's side -->
//! next call    bits counted; every mapping names the page    -- page's side -->
//! next call    bits counted; the page stays if it visited more, else the table comes back, by whole GiB
//! ```
//! By the page the bit is the leaf's, by the table that of the entry above it, the parent's. Both are set by the walk that fills the TLB, so
//! clearing without the flush would count misses of the TLB and not visits; the flush is that of the exchange, which is needed anyway.
//!
//! The table is presumed: the page must have visited more in the same time, by four times what chance would make of visits that fall
//! anywhere; if its side was the longer one, more than the table can have visited in it at most. Ahead by less it has its side once
//! more, three in all. Where all was visited by both nothing is known, and the table stays: a few hundred MiB read a hundred million
//! times a second are like that.
//!
//! What a look costs is two exchanges and half of the time of the side that lost; like everything of `auto` it is begun again only when that
//! is a 64th of what went by. While the page stays, looks go on; where the table does, the next thing done is to forget.
//!
//! Where there are no such bits there are no looks, and scattered reads keep the table: table descriptors of aarch64 have none, and an MMU
//! that leaves the access flag to software would fault at each of them. Rejected: software's bits, as first faults in a sample of the
//! memory (each visit costs a fault, so a sample as large as a look's would cost the time it measures); clearing without a flush.

use crate::zero::auto::ZeroForm;

/// A side lasts that many times what the exchange before it took, so that cold caches and TLBs do not count for much.
const SETTLED: u64 = 2;
/// Sides that the page may have while it is ahead by what may be chance: in its first the huge page of zeros comes from memory.
const SIDES: u64 = 3;
/// The part of a side's time in which timers may differ.
const JITTER: u64 = 16;
/// The square of four times what chance would make of it.
const CHANCE: u64 = 4 * 4;

/// Where a look is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u64)]
pub(crate) enum Side {
    #[default]
    None,
    Table,
    Page,
    /// Somebody is exchanging.
    Between,
}

/// What is kept of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Look {
    pub side: Side,
    /// When the side began, and what its exchange took; then what both took.
    began: u64,
    spent: u64,
    all: u64,
    /// The table's side: how long, and visited mappings.
    time: u64,
    visited: u64,
    /// Sides the page has had.
    sides: u64,
    /// Whether the last look gave the page to scattered reads.
    pub page: bool,
    /// Whether the last one left the table, and nothing was forgotten since.
    pub over: bool,
}

/// What came of a side: mappings of 2 MiB, and those of them that were visited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Visits {
    pub visited: u64,
    pub of: u64,
}

pub(super) const WORDS: usize = 9;

impl Look {
    pub fn words(&self) -> [u64; WORDS] {
        let (side, page, over) = (self.side as u64, u64::from(self.page), u64::from(self.over));
        [side, self.began, self.spent, self.all, self.time, self.visited, page, over, self.sides]
    }

    pub fn of(w: [u64; WORDS]) -> Look {
        Look {
            side: [Side::None, Side::Table, Side::Page, Side::Between][w[0] as usize % 4],
            began: w[1],
            spent: w[2],
            all: w[3],
            time: w[4],
            visited: w[5],
            page: w[6] != 0,
            over: w[7] != 0,
            sides: w[8],
        }
    }

    /// None, but what scattered reads get.
    pub fn forgotten(&self) -> Look {
        Look { page: self.page, ..Look::default() }
    }

    /// Whether a side has lasted long enough.
    pub fn is_due(&self, now: u64) -> bool {
        let time = now.saturating_sub(self.began);
        let least = if self.side == Side::Page { self.time - self.time / JITTER } else { 0 };
        time >= least.max(self.spent.saturating_mul(SETTLED))
    }

    /// A side begins, after an exchange from `began` to `now`.
    pub fn begins(&mut self, side: Side, began: u64, now: u64) {
        if side == Side::Table {
            (self.all, self.sides) = (0, 0);
        }
        (self.side, self.began, self.spent) = (side, now, now.saturating_sub(began));
        self.all = self.all.saturating_add(self.spent);
    }

    /// The table's side is over.
    pub fn table_was(&mut self, visits: Visits, now: u64) {
        (self.time, self.visited) = (now.saturating_sub(self.began), visits.visited);
    }

    /// The page's side is over: which form is better, what the table visited, and what the look took; `None` if the page is ahead by what may
    /// be chance, and has its side once more.
    pub fn judge(&mut self, visits: Visits, now: u64) -> Option<(ZeroForm, u64, u64)> {
        let (page, time) = (visits.visited, now.saturating_sub(self.began));
        let more = page.saturating_sub(within(self.visited, visits.of, (self.time, time)));
        let both = page.saturating_add(self.visited);
        let chance = both.min((2 * visits.of).saturating_sub(both)).max(1);
        let form = if more.saturating_mul(more) > CHANCE * chance { ZeroForm::Page } else { ZeroForm::Table };
        self.sides += 1;
        if form == ZeroForm::Table && more > 0 && self.sides < SIDES {
            return None;
        }
        let lost = if form == ZeroForm::Page { self.time } else { time };
        (self.side, self.page, self.over) = (Side::None, form == ZeroForm::Page, form == ZeroForm::Table);
        Some((form, self.visited, self.all.saturating_add(lost / 2)))
    }
}

/// Of `of` mappings `visited` were come by in a time; the most that can have been, had it been the other. Whatever the mixture of often and
/// seldom visited ones, the share that is not visited yet falls ever more slowly, so at worst as a power of the time.
fn within(visited: u64, of: u64, (time, other): (u64, u64)) -> u64 {
    if other <= time || visited >= of {
        return visited;
    }
    if time == 0 {
        return of;
    }
    let left = power(((of - visited) << ONE.ilog2()) / of, other / time, (other % time) * (1 << 16) / time);
    of - ((of * left) >> ONE.ilog2())
}

/// 1.0 of a share.
const ONE: u64 = 1 << 24;

/// A share to the power of a whole number and 65,536ths.
fn power(share: u64, whole: u64, part: u64) -> u64 {
    let times = |a: u64, b: u64| (a * b) >> ONE.ilog2();
    let mut result = ONE;
    for _ in 0..whole.min(64) {
        result = times(result, share);
    }
    let mut root = share;
    for bit in (0..16).rev() {
        root = (root << ONE.ilog2()).isqrt();
        if part >> bit & 1 == 1 {
            result = times(result, root);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look at 4096 mappings: what each side visited in its time. The page's last side is like its first.
    fn look(table: (u64, u64), page: (u64, u64)) -> (ZeroForm, u64) {
        let mut look = Look::default();
        look.begins(Side::Table, 0, 1000);
        assert!(!look.is_due(2999) && look.is_due(3000), "twice what exchanging took");
        look.table_was(Visits { visited: table.0, of: 4096 }, 1000 + table.1);
        loop {
            look.begins(Side::Page, 500_000, 501_000);
            assert!(
                look.is_due(501_000 + table.1 - table.1 / 16) && !look.is_due(501_000 + table.1 - table.1 / 16 - 1)
            );
            let judged = look.judge(Visits { visited: page.0, of: 4096 }, 501_000 + page.1);
            let Some((form, visited, cost)) = judged else { continue };
            let by_page = form == ZeroForm::Page;
            assert_eq!((visited, look.page, look.side, look.over), (table.0, by_page, Side::None, !by_page));
            return (form, cost);
        }
    }

    #[test]
    fn the_page_wins_by_visits_that_chance_does_not_explain_and_the_side_that_lost_is_paid_for() {
        assert_eq!(look((2000, 100_000), (2400, 100_000)), (ZeroForm::Page, 2000 + 50_000));
        assert_eq!(look((3000, 100_000), (2000, 100_000)), (ZeroForm::Table, 2000 + 50_000));
        // Of 4000 a spread of 63 is chance; ahead by less, the page had three sides.
        assert_eq!(look((2000, 100_000), (2250, 100_000)), (ZeroForm::Table, 4000 + 50_000));
        assert_eq!(look((1800, 100_000), (2054, 100_000)).0, ZeroForm::Page);
    }

    #[test]
    fn where_all_or_nothing_was_visited_the_table_is_presumed() {
        assert_eq!(look((4096, 100_000), (4096, 100_000)), (ZeroForm::Table, 2000 + 50_000));
        assert_eq!(look((0, 100_000), (0, 100_000)).0, ZeroForm::Table);
        assert_eq!(look((0, 100_000), (17, 100_000)).0, ZeroForm::Page, "17 are four times the spread of 17");
        // Nearly all: what was left out counts.
        assert_eq!(look((3930, 100_000), (4030, 100_000)).0, ZeroForm::Page);
        assert_eq!(look((4060, 100_000), (4085, 100_000)).0, ZeroForm::Table);
    }

    #[test]
    fn a_page_side_that_lasted_longer_must_have_visited_more_than_the_table_can_have() {
        // A quarter in a time is at most 7 of 16 in twice the time.
        assert_eq!(within(1024, 4096, (100, 200)), 1792);
        assert!((1026..=1028).contains(&within(550, 4096, (100, 200))), "{}", within(550, 4096, (100, 200)));
        assert_eq!(
            [within(9, 9, (1, 5)), within(7, 9, (5, 5)), within(7, 9, (0, 5)), within(0, 9, (1, 5))],
            [9, 7, 9, 0]
        );
        assert_eq!(look((1024, 100_000), (1792, 200_000)).0, ZeroForm::Table);
        assert_eq!(look((1024, 100_000), (2100, 200_000)).0, ZeroForm::Page);
        for percent in 101..200 {
            let most = within(3000, 4096, (100, percent));
            let least = 4096.0 - 4096.0 * (1096.0_f64 / 4096.0).powf(percent as f64 / 100.0);
            assert!((least - 1.0..least + 3.0).contains(&(most as f64)), "{percent} {most} {least}");
        }
    }

    #[test]
    fn a_look_keeps_every_word() {
        let words: [u64; WORDS] = [2, 11, 12, 13, 14, 15, 1, 1, 2];
        assert_eq!(Look::of(words).words(), words);
    }
}
