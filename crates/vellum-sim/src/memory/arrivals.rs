//! Lines on their way into the first level of a core.
//!
//! A cache here has a line from the access that misses it. That tells nothing of the time in
//! between, in which a core runs on: an access to a line that is on its way waits for the same
//! arrival and asks for nothing, even where lines that were missed later have pushed it out again;
//! and lines that come into one set come one after the other. Both decide what independent reads of
//! more lines than a set has ways take.

use super::ticks::Ticks;

/// A line on its way.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    line: u64,
    set: usize,
    /// What it is known by beside its number: a line that comes for one linear address does not
    /// come for another, where ways are predicted by these.
    tag: u8,
    source: u8,
    at: Ticks,
    /// By how much it comes after the one before it in its set, at least.
    gap: Ticks,
}

/// A line that was missed.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    /// Its number.
    pub line: u64,
    /// The set of the first level that it comes into.
    pub set: usize,
    /// What it is known by beside its number, as in [`Arrivals::find`].
    pub tag: u8,
    /// What serves it.
    pub source: u8,
}

/// Time between two lines that come into one set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refill {
    /// Where a clean line leaves, or none.
    pub clean: Ticks,
    /// Where a dirty line has to be put away first.
    pub dirty: Ticks,
}

/// Lines on their way, and those that came a moment ago.
#[derive(Clone, Debug)]
pub struct Arrivals {
    refill: Refill,
    /// In no order.
    lines: Vec<Arrival>,
    /// After the last of them nothing is on its way.
    last: Ticks,
}

impl Arrivals {
    /// None yet.
    pub fn new(refill: Refill) -> Arrivals {
        Arrivals { refill, lines: Vec::with_capacity(64), last: Ticks::ZERO }
    }

    /// When a line is there that an access finds on its way at `start`, and what serves it.
    #[inline]
    pub fn find(&self, line: u64, tag: u8, start: Ticks) -> Option<(Ticks, u8)> {
        if start >= self.last {
            return None;
        }
        let found = self.lines.iter().find(|a| a.line == line && a.tag == tag && a.at > start)?;
        Some((found.at, found.source))
    }

    /// Whether no access from `now` on finds the line on its way.
    #[inline]
    pub fn lacks(&self, line: u64, now: Ticks) -> bool {
        now >= self.last || self.lines.iter().all(|a| a.line != line)
    }

    /// A line comes into a set, at `at` if nothing else does; returns when. `pushed`: a dirty line
    /// leaves for it. `now`: no access will ask for an earlier time.
    pub fn add(&mut self, line: Coming, pushed: bool, now: Ticks, mut at: Ticks) -> Ticks {
        let Refill { clean, dirty } = self.refill;
        let gap = if pushed { dirty } else { clean };
        self.lines.retain(|a| a.at + clean.max(dirty) > now);
        let is_near = |a: &Arrival, at| {
            if a.at <= at { a.at + gap > at } else { at + a.gap > a.at }
        };
        while let Some(near) = self.lines.iter().find(|a| a.set == line.set && is_near(a, at)) {
            at = near.at + gap;
        }
        let Coming { line, set, tag, source } = line;
        self.lines.push(Arrival { line, set, tag, source, at, gap });
        self.last = self.last.max(at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(cycles: u64) -> Ticks {
        Ticks::from_cycles(cycles)
    }

    const CLEAN: bool = false;
    const PUSHED: bool = true;

    fn arrivals(clean: u64, dirty: u64) -> Arrivals {
        Arrivals::new(Refill { clean: at(clean), dirty: at(dirty) })
    }

    fn coming(line: u64, set: usize) -> Coming {
        Coming { line, set, tag: 1, source: 2 }
    }

    #[test]
    fn a_line_on_its_way_is_found_until_it_is_there() {
        let mut lines = arrivals(10, 10);
        lines.add(coming(7, 3), CLEAN, at(0), at(100));
        assert_eq!(lines.find(7, 1, at(99)), Some((at(100), 2)));
        assert_eq!(lines.find(7, 1, at(100)), None, "it is there");
        assert_eq!([(8, 1), (7, 2)].map(|(line, tag)| lines.find(line, tag, at(0))), [None; 2]);
    }

    #[test]
    fn lines_come_into_one_set_one_after_the_other() {
        let mut lines = arrivals(10, 10);
        let mut comes = |set, when| lines.add(coming(when, set), CLEAN, at(0), at(when));
        assert_eq!([comes(3, 100), comes(3, 100), comes(3, 101)], [100, 110, 120].map(at));
        assert_eq!(comes(4, 100), at(100), "another set");
        assert_eq!(comes(3, 500), at(500), "from memory");
        assert_eq!(comes(3, 130), at(130), "long before that");
        assert_eq!(comes(3, 495), at(510), "neither just before it");
        assert_eq!(lines.add(coming(9, 3), CLEAN, at(519), at(519)), at(520));
        assert_eq!(lines.lines.len(), 2, "what came long ago is forgotten");
    }

    #[test]
    fn a_line_for_which_a_dirty_one_leaves_comes_later() {
        let mut lines = arrivals(10, 40);
        let mut comes = |pushed, when| lines.add(coming(when, 3), pushed, at(0), at(when));
        assert_eq!([comes(CLEAN, 100), comes(PUSHED, 100)], [100, 140].map(at));
        assert_eq!(comes(CLEAN, 100), at(150), "not just before the one that needs the set");
        assert_eq!(comes(PUSHED, 181), at(190));
        assert_eq!(comes(CLEAN, 60), at(60), "long before all of them");
    }
}
