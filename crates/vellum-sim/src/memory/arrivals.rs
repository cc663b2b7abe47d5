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
}

/// Lines on their way, and those that came a moment ago.
#[derive(Clone, Debug)]
pub struct Arrivals {
    /// Time between two lines that come into one set.
    refill: Ticks,
    /// In no order.
    lines: Vec<Arrival>,
    /// After the last of them nothing is on its way.
    last: Ticks,
}

impl Arrivals {
    /// None yet.
    pub fn new(refill: Ticks) -> Arrivals {
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

    /// The first time from `at` on at which a line can come into a set. `now`: no access will ask
    /// for an earlier one.
    pub fn after(&mut self, set: usize, now: Ticks, mut at: Ticks) -> Ticks {
        self.lines.retain(|a| a.at + self.refill > now);
        let is_near = |a: &Arrival, at| a.at + self.refill > at && at + self.refill > a.at;
        while let Some(near) = self.lines.iter().find(|a| a.set == set && is_near(a, at)) {
            at = near.at + self.refill;
        }
        at
    }

    /// A line is on its way.
    pub fn add(&mut self, line: u64, set: usize, tag: u8, source: u8, at: Ticks) {
        self.lines.push(Arrival { line, set, tag, source, at });
        self.last = self.last.max(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(cycles: u64) -> Ticks {
        Ticks::from_cycles(cycles)
    }

    #[test]
    fn a_line_on_its_way_is_found_until_it_is_there() {
        let mut lines = Arrivals::new(at(10));
        lines.add(7, 3, 1, 2, at(100));
        assert_eq!(lines.find(7, 1, at(99)), Some((at(100), 2)));
        assert_eq!(lines.find(7, 1, at(100)), None, "it is there");
        assert_eq!([(8, 1), (7, 2)].map(|(line, tag)| lines.find(line, tag, at(0))), [None; 2]);
    }

    #[test]
    fn lines_come_into_one_set_one_after_the_other() {
        let mut lines = Arrivals::new(at(10));
        let mut comes = |set, when| {
            let time = lines.after(set, at(0), at(when));
            lines.add(when, set, 0, 1, time);
            time
        };
        assert_eq!([comes(3, 100), comes(3, 100), comes(3, 101)], [100, 110, 120].map(at));
        assert_eq!(comes(4, 100), at(100), "another set");
        assert_eq!(comes(3, 500), at(500), "from memory");
        assert_eq!(comes(3, 130), at(130), "long before that");
        assert_eq!(comes(3, 495), at(510), "neither just before it");
        assert_eq!(lines.after(3, at(519), at(519)), at(520));
        assert_eq!(lines.lines.len(), 1, "what came long ago is forgotten");
    }
}
