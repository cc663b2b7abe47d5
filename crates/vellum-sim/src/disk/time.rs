//! How long requests take.

use crate::memory::Ticks;

/// The times of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskTimes {
    /// From the request to its first byte.
    pub read_latency: Ticks,
    /// The same for a write.
    pub write_latency: Ticks,
    /// A page of 4 KiB on the line.
    pub read_page: Ticks,
    /// The same for a write.
    pub write_page: Ticks,
    /// Requests under way at once, at least 1.
    pub requests: u32,
    /// What a request takes of the CPU: to begin it, to sleep, to be told that it is done.
    pub cpu: Ticks,
}

/// When the places and the line of a disk are free again.
pub(crate) struct Line {
    pub times: DiskTimes,
    places: Vec<Ticks>,
    free: Ticks,
}

impl Line {
    pub(crate) fn new(times: DiskTimes) -> Line {
        Line { times, places: Vec::new(), free: Ticks::ZERO }
    }

    /// Begins a request of so many pages; says when it is done.
    pub(crate) fn begin(&mut self, now: Ticks, pages: u64, writes: bool) -> Ticks {
        let t = self.times;
        let (latency, page) = match writes {
            true => (t.write_latency, t.write_page),
            false => (t.read_latency, t.read_page),
        };
        self.places.retain(|&done| done > now);
        self.places.sort_unstable();
        let ahead = self.places.len().checked_sub(t.requests as usize);
        let begins = ahead.map_or(now, |last| self.places[last]);
        let done = (begins + latency).max(self.free) + page * pages;
        self.free = done;
        self.places.push(done);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(requests: u32) -> Line {
        let t = Ticks::from_cycles;
        Line::new(DiskTimes {
            read_latency: t(100),
            write_latency: t(20),
            read_page: t(5),
            write_page: t(7),
            requests,
            cpu: t(1),
        })
    }

    /// When reads that begin at these cycles, of so many pages each, are done.
    fn dones(mut line: Line, reads: &[(u64, u64)]) -> Vec<u64> {
        let at = Ticks::from_cycles;
        reads.iter().map(|&(now, pages)| line.begin(at(now), pages, false).cycles()).collect()
    }

    #[test]
    fn latencies_overlap_and_bytes_do_not() {
        assert_eq!(dones(line(8), &[(0, 1), (0, 4), (3, 1), (500, 1)]), [105, 125, 130, 605]);
        assert_eq!(line(8).begin(Ticks::ZERO, 2, true).cycles(), 34, "a write");
    }

    #[test]
    fn a_request_past_the_last_place_waits_for_one() {
        assert_eq!(dones(line(1), &[(0, 1); 4]), [105, 210, 315, 420]);
        assert_eq!(dones(line(2), &[(0, 1); 4]), [105, 110, 210, 215]);
    }
}
