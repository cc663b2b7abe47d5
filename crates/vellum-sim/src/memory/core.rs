//! A core and its clock: what overlaps with a miss and what waits for it.
//!
//! An out-of-order core goes on past a miss until one of three things runs out: its line-fill
//! buffers (each miss holds one until its line arrives), its window (instructions retire in order,
//! so the core is at most a window ahead of the oldest unfinished load), or the data (a load whose
//! address is the result of the load before starts when that one ends). So independent misses cost
//! `latency / buffers` each, dependent ones `latency`. Page walks are limited by the number of
//! walkers, and delay their access.
//!
//! The model has two short queues: loads in program order, which is the order of retirement, and
//! fill buffers in the order in which they become free. Each operation looks at the head of one of
//! them. Rejected: a cycle-by-cycle pipeline, a hundred times slower and with unpublished
//! constants; a fixed "memory parallelism" divisor, which cannot tell a chain from a stride.

use super::pending::{CAPACITY, Pending, Queue};
use super::ticks::Ticks;

/// The constants of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overlap {
    /// Line-fill buffers: misses of the first level in flight, 1 to 64.
    pub fill_buffers: u32,
    /// Page walks in flight, 1 to 8.
    pub walkers: u32,
    /// Instructions the core runs ahead of its oldest unfinished load.
    pub window: u32,
    /// Time an instruction takes when nothing misses.
    pub instruction: Ticks,
    /// Load-to-use time of a first-level hit.
    pub l1: Ticks,
    /// Time a load keeps the port that all loads go through; zero where loads are not limited by
    /// it.
    pub load: Ticks,
}

/// When an access is translated, and by what.
#[derive(Clone, Copy, Default)]
pub struct Ready {
    /// The translation is there.
    pub at: Ticks,
    /// A page walk brought it, not the second-level TLB.
    pub walked: bool,
}

/// Waits for which translations are to blame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Translating {
    /// Lookups in the second-level TLB.
    pub second_level: Ticks,
    /// Page walks.
    pub walks: Ticks,
}

/// Times before which an access cannot be done.
#[derive(Clone, Copy, Default)]
struct Bounds {
    /// Its address is known.
    known: Ticks,
    /// It is translated.
    ready: Ready,
    /// Its line, fetched ahead, arrives; zero for all others.
    arrival: Ticks,
}

/// A core: its clock, its retired instructions and its unfinished accesses.
#[derive(Clone, Debug)]
pub struct Core {
    now: Ticks,
    position: u64,
    /// Retiring this instruction must first look at unfinished loads.
    limit: u64,
    overlap: Overlap,
    /// When the data of the last load is there.
    last: Ticks,
    walkers: [Ticks; 8],
    /// When the load port has issued all loads so far.
    port: Ticks,
    /// By position.
    loads: Queue,
    /// By the time they come free. Those that are free already are taken out when all seem in use.
    fills: Queue,
    /// Since they were last taken.
    translating: Translating,
}

impl Core {
    /// A core at time zero.
    pub fn new(overlap: Overlap) -> Core {
        debug_assert!(
            (1..=CAPACITY as u32).contains(&overlap.fill_buffers)
                && (1..=8).contains(&overlap.walkers)
        );
        Core {
            now: Ticks::ZERO,
            position: 0,
            limit: u64::MAX,
            overlap,
            last: Ticks::ZERO,
            walkers: [Ticks::ZERO; 8],
            port: Ticks::ZERO,
            loads: Queue::EMPTY,
            fills: Queue::EMPTY,
            translating: Translating::default(),
        }
    }

    /// This core's time.
    #[inline]
    pub fn now(&self) -> Ticks {
        self.now
    }

    /// Misses of the first level that it has in flight at most.
    pub fn fill_buffers(&self) -> u32 {
        self.overlap.fill_buffers
    }

    /// Instructions retired.
    #[inline]
    pub fn instructions(&self) -> u64 {
        self.position
    }

    /// Runs instructions that do not touch memory, or the non-memory part of ones that do. Returns
    /// the time lost because the window was full, on top of the instructions' own.
    #[inline]
    pub fn retire(&mut self, instructions: u64) -> Ticks {
        self.now += self.overlap.instruction * instructions;
        self.position += instructions;
        if self.position < self.limit { Ticks::ZERO } else { self.window_full() }
    }

    /// Loads go through the load port, wherever their data is. The core runs ahead of the port by a
    /// window of instructions, so that bursts cost nothing as long as instructions between them
    /// take as long.
    #[inline]
    pub fn issue(&mut self, loads: u64) {
        if self.overlap.load == Ticks::ZERO {
            return;
        }
        self.port = self.port.max(self.now) + self.overlap.load * loads;
        let ahead = self.overlap.instruction * u64::from(self.overlap.window);
        self.now = self.now.max(self.port.saturating_sub(ahead));
    }

    /// Waits for the oldest loads until the window has room.
    #[inline(never)]
    fn window_full(&mut self) -> Ticks {
        let start = self.now;
        let window = u64::from(self.overlap.window);
        while let Some(p) = self.loads.first().filter(|p| p.position + window <= self.position) {
            self.wait_for(p);
            self.loads.pop();
        }
        self.set_limit();
        self.now - start
    }

    #[inline]
    fn set_limit(&mut self) {
        let window = u64::from(self.overlap.window);
        self.limit = self.loads.first().map_or(u64::MAX, |p| p.position + window);
    }

    #[inline]
    fn wait_for(&mut self, p: Pending) {
        let wait = p.done.saturating_sub(self.now);
        self.now += wait;
        let blamed =
            if p.walked { &mut self.translating.walks } else { &mut self.translating.second_level };
        *blamed += p.blame(wait);
    }

    /// Time lost by waiting for translations (walks, second-level lookups) since this was last
    /// asked: of each wait for an access, the part that its translation had in the access's time.
    #[inline]
    pub fn take_translating(&mut self) -> Translating {
        std::mem::take(&mut self.translating)
    }

    /// The same, left where it is.
    pub fn translating(&self) -> Translating {
        self.translating
    }

    /// Starts an access that is not done at once; returns when it is. `loads`: it retires only when
    /// it is done. `fills`: it holds a fill buffer until then.
    #[inline]
    fn start(&mut self, bounds: Bounds, latency: Ticks, loads: bool, fills: bool) -> Ticks {
        if fills && self.fills.len() == self.overlap.fill_buffers as usize {
            let first = *self.fills.at(0);
            self.wait_for(first);
            self.fills.pop();
        }
        if loads && self.loads.len() == CAPACITY {
            let first = *self.loads.at(0);
            self.wait_for(first);
            self.loads.pop();
        }
        let issue = self.now.max(bounds.known);
        let done = (issue.max(bounds.ready.at) + latency).max(bounds.arrival);
        let late = bounds.ready.at.saturating_sub(issue).0;
        let translation = if late == 0 { 0 } else { (late * 255 / (done - issue).0) as u8 };
        let walked = bounds.ready.walked;
        let p = Pending { done, position: self.position, translation, walked };
        if fills {
            self.fills.push_by_time(p);
        }
        if loads {
            self.loads.push(p);
            self.set_limit();
        }
        done
    }

    /// A load that hits the first level. Independent ones are hidden by the pipeline and cost
    /// nothing; one whose address is the last load's result waits for that.
    #[inline]
    pub fn hit(&mut self, dependent: bool) -> Ticks {
        if dependent {
            return self.load_after(Ready::default(), self.overlap.l1, true, false);
        }
        // What depends next depends on this load, not on a miss before it: `a[b[i]]` waits for
        // `b[i]`.
        self.last = self.now + self.overlap.l1;
        Ticks::ZERO
    }

    /// A load that misses the first level and whose data takes `latency`. Returns the time the core
    /// lost right now.
    #[inline]
    pub fn load(&mut self, latency: Ticks, dependent: bool) -> Ticks {
        self.load_after(Ready::default(), latency, dependent, true)
    }

    /// A page walk that takes `latency`, on the first walker that is free. Returns when the
    /// translation is there.
    #[inline]
    pub fn walk(&mut self, latency: Ticks) -> Ready {
        self.walk_after(Ticks::ZERO, latency)
    }

    /// A page walk for an address that is known at `known`.
    #[inline]
    pub fn walk_after(&mut self, known: Ticks, latency: Ticks) -> Ready {
        let walkers = &mut self.walkers[..self.overlap.walkers as usize];
        let mut first = 0;
        for i in 1..walkers.len() {
            if walkers[i] < walkers[first] {
                first = i;
            }
        }
        let done = walkers[first].max(self.now).max(known) + latency;
        walkers[first] = done;
        Ready { at: done, walked: true }
    }

    /// When the last load's data is there: what an access that depends on it must wait for.
    #[inline]
    pub fn last_load(&self) -> Ticks {
        self.last
    }

    /// A load whose translation is there at `ready`; `fills` says that it misses the first level.
    /// Returns the time lost now.
    #[inline]
    pub fn load_after(
        &mut self,
        ready: Ready,
        latency: Ticks,
        dependent: bool,
        fills: bool,
    ) -> Ticks {
        let bounds = Bounds { known: self.known(dependent), ready, arrival: Ticks::ZERO };
        self.load_within(bounds, latency, fills)
    }

    /// When the address of the next access is known.
    #[inline]
    fn known(&self, dependent: bool) -> Ticks {
        if dependent { self.last } else { Ticks::ZERO }
    }

    #[inline]
    fn load_within(&mut self, bounds: Bounds, latency: Ticks, fills: bool) -> Ticks {
        let start = self.now;
        self.last = self.start(bounds, latency, true, fills);
        self.now - start
    }

    /// A store that misses the first level. It has retired, so that the window does not wait for
    /// it, but it needs a fill buffer.
    #[inline]
    pub fn store(&mut self, latency: Ticks) -> Ticks {
        self.store_after(Ready::default(), latency, true)
    }

    /// A store whose translation is there at `ready`. The walk holds the window: a store retires
    /// only when it cannot fault.
    #[inline]
    pub fn store_after(&mut self, ready: Ready, latency: Ticks, fills: bool) -> Ticks {
        let start = self.now;
        let bounds = Bounds { ready, ..Bounds::default() };
        if ready.at > self.now {
            self.start(bounds, Ticks::ZERO, true, false);
        }
        if fills {
            self.start(bounds, latency, false, true);
        }
        self.now - start
    }

    /// When a miss would go beyond the first level that is translated at `ready`: with its address
    /// known and a fill buffer free.
    pub fn miss_starts(&self, ready: Ticks, dependent: bool) -> Ticks {
        let full = self.fills.len() == self.overlap.fill_buffers as usize;
        let buffer = if full { self.fills.at(0).done } else { Ticks::ZERO };
        self.now.max(self.known(dependent)).max(ready).max(buffer)
    }

    /// As [`load_after`](Core::load_after) for a load that misses the first level and whose line,
    /// fetched ahead, arrives at `arrival`.
    pub fn load_arriving(
        &mut self,
        ready: Ready,
        latency: Ticks,
        arrival: Ticks,
        dependent: bool,
    ) -> Ticks {
        let bounds = Bounds { known: self.known(dependent), ready, arrival };
        self.load_within(bounds, latency, true)
    }

    /// As [`store_after`](Core::store_after) for a store that misses the first level and whose
    /// line, fetched ahead, arrives at `arrival`.
    pub fn store_arriving(&mut self, ready: Ready, latency: Ticks, arrival: Ticks) -> Ticks {
        let start = self.now;
        self.store_after(ready, latency, false);
        self.start(Bounds { known: Ticks::ZERO, ready, arrival }, latency, false, true);
        self.now - start
    }

    /// Waits for everything unfinished: a fault, an interrupt, a fence, a root load.
    pub fn serialize(&mut self) -> Ticks {
        let start = self.now;
        let done = self.loads.iter().chain(self.fills.iter()).map(|p| p.done).max();
        let walked = self.walkers.iter().max().copied().unwrap_or_default();
        self.now = self.now.max(done.unwrap_or_default()).max(walked);
        self.loads.clear();
        self.fills.clear();
        self.set_limit();
        self.now - start
    }

    /// Passes time doing something of fixed cost. Unfinished accesses go on meanwhile.
    #[inline]
    pub fn advance(&mut self, time: Ticks) {
        self.now += time;
    }

    /// Waits until `time`, if that is in the future; returns how long.
    #[inline]
    pub fn advance_to(&mut self, time: Ticks) -> Ticks {
        let wait = time.saturating_sub(self.now);
        self.now += wait;
        wait
    }

    /// Unfinished accesses are counted right and within bounds.
    pub fn validate(&self) -> Result<(), String> {
        if self.fills.len() > self.overlap.fill_buffers as usize {
            return Err(format!(
                "{} fill buffers in use of {}",
                self.fills.len(),
                self.overlap.fill_buffers
            ));
        }
        if !self.fills.iter().is_sorted_by_key(|p| p.done)
            || !self.loads.iter().is_sorted_by_key(|p| p.position)
        {
            return Err("a queue is out of order".into());
        }
        let oldest =
            self.loads.first().map_or(u64::MAX, |p| p.position + u64::from(self.overlap.window));
        if self.limit != oldest {
            return Err(format!(
                "the window ends at {}, by the oldest load at {oldest}",
                self.limit
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const L3: Ticks = Ticks::from_cycles(63);

    fn core(fill_buffers: u32) -> Core {
        let quarter = Ticks(64);
        Core::new(Overlap {
            fill_buffers,
            walkers: 1,
            window: 128,
            instruction: quarter,
            l1: Ticks::from_cycles(4),
            load: Ticks::ZERO,
        })
    }

    fn cycles_per_line(core: &mut Core, lines: u64, each: impl Fn(&mut Core)) -> f64 {
        let start = core.now();
        for _ in 0..lines {
            core.retire(5);
            each(core);
        }
        core.serialize();
        core.validate().expect("consistent");
        (core.now() - start).0 as f64 / 256.0 / lines as f64
    }

    #[test]
    fn stride_reads_at_63_cycles_with_8_to_10_buffers_cost_about_8_cycles_a_line() {
        for (buffers, expect) in [(8, 63.0 / 8.0), (9, 7.0), (10, 6.3)] {
            let cost = cycles_per_line(&mut core(buffers), 10_000, |c| {
                c.load(L3, false);
            });
            assert!((cost - expect).abs() < 0.1, "{buffers} buffers: {cost}");
        }
    }

    #[test]
    fn a_dependent_chain_at_63_cycles_costs_63_a_line() {
        let cost = cycles_per_line(&mut core(10), 10_000, |c| {
            c.load(L3, true);
        });
        assert!((cost - 63.0).abs() < 0.1, "{cost}");
    }

    #[test]
    fn a_chain_of_first_level_hits_costs_its_latency_and_independent_hits_nothing() {
        let cost = cycles_per_line(&mut core(10), 10_000, |c| {
            c.hit(true);
        });
        assert!((cost - 4.0).abs() < 0.1, "{cost}");
        let cost = cycles_per_line(&mut core(10), 10_000, |c| {
            c.hit(false);
        });
        assert_eq!(cost, 1.25);
    }

    #[test]
    fn loads_at_hand_are_issued_no_faster_than_the_load_port_takes_them() {
        let port = |load| Overlap { load: Ticks::from_cycles(load), ..core(10).overlap };
        let cost = |load| {
            let mut c = Core::new(port(load));
            cycles_per_line(&mut c, 10_000, |c| {
                c.issue(8);
                c.hit(false);
            })
        };
        assert!((cost(1) - 8.0).abs() < 0.1, "eight loads among few instructions: {}", cost(1));
        assert_eq!(cost(0), 1.25);
        // Where instructions take longer than the loads among them, the port is no limit.
        let mut c = Core::new(port(1));
        let cost = cycles_per_line(&mut c, 10_000, |c| {
            c.retire(35);
            c.issue(8);
        });
        assert!((cost - 10.0).abs() < 0.1, "{cost}");
    }

    #[test]
    fn an_index_read_from_the_first_level_does_not_wait_for_the_miss_before_it() {
        // `a[b[i]]`: b's lines are at hand, a's are not, and no turn needs the last one's element.
        let cost = cycles_per_line(&mut core(9), 10_000, |c| {
            c.hit(false);
            c.load(L3, true);
        });
        assert!((cost - 7.0).abs() < 0.2, "{cost}");
    }

    #[test]
    fn a_short_window_limits_overlap_before_the_buffers_do() {
        let mut c = Core::new(Overlap {
            fill_buffers: 16,
            walkers: 1,
            window: 10,
            instruction: Ticks(64),
            l1: Ticks::from_cycles(4),
            load: Ticks::ZERO,
        });
        let cost = cycles_per_line(&mut c, 10_000, |c| {
            c.load(L3, false);
        });
        assert!(cost > 63.0 / 3.0 && cost < 63.0, "two or three loads fit 10 instructions: {cost}");
    }

    #[test]
    fn work_overlaps_with_one_miss_in_flight() {
        let mut c = core(10);
        c.load(Ticks::from_cycles(20), false);
        c.retire(100);
        assert_eq!(c.now(), Ticks::from_cycles(25));
        assert_eq!(c.serialize(), Ticks::ZERO);
    }

    #[test]
    fn one_walker_makes_walks_wait_for_each_other_and_two_halve_that() {
        let run = |walkers| {
            let mut c = Core::new(Overlap {
                fill_buffers: 10,
                walkers,
                window: 128,
                instruction: Ticks(64),
                l1: Ticks::from_cycles(4),
                load: Ticks::ZERO,
            });
            cycles_per_line(&mut c, 10_000, |c| {
                let ready = c.walk(Ticks::from_cycles(27));
                c.load_after(ready, Ticks::from_cycles(4), false, false);
            })
        };
        assert!((run(1) - 27.0).abs() < 0.2, "{}", run(1));
        assert!((run(2) - 13.5).abs() < 0.2, "{}", run(2));
    }

    #[test]
    fn waits_are_blamed_on_translations_in_proportion() {
        let mut c = core(1);
        let ready = c.walk(Ticks::from_cycles(30));
        c.load_after(ready, Ticks::from_cycles(90), false, true);
        c.load(Ticks::from_cycles(10), false);
        let blamed = c.take_translating().walks;
        assert_eq!(
            c.now(),
            Ticks::from_cycles(120),
            "the second load waited for the only fill buffer"
        );
        assert!(blamed.0.abs_diff(Ticks::from_cycles(30).0) < 256, "{blamed}: a quarter of 120");
        assert_eq!(c.take_translating().walks, Ticks::ZERO);
    }

    #[test]
    fn store_misses_are_bound_by_the_buffers_and_not_by_the_window() {
        let mut c = Core::new(Overlap {
            fill_buffers: 10,
            walkers: 1,
            window: 6,
            instruction: Ticks(64),
            l1: Ticks::from_cycles(4),
            load: Ticks::ZERO,
        });
        let cost = cycles_per_line(&mut c, 10_000, |c| {
            c.store(L3);
        });
        assert!((cost - 6.3).abs() < 0.1, "{cost}");
    }

    #[test]
    fn serializing_waits_for_the_slowest_access_and_advancing_does_not_wait() {
        let mut c = core(10);
        c.load(Ticks::from_cycles(300), false);
        c.load(Ticks::from_cycles(100), false);
        c.advance(Ticks::from_cycles(50));
        assert_eq!(c.now(), Ticks::from_cycles(50));
        assert_eq!(c.serialize(), Ticks::from_cycles(250));
        assert_eq!(c.advance_to(Ticks::from_cycles(200)), Ticks::ZERO);
        assert_eq!(c.advance_to(Ticks::from_cycles(400)), Ticks::from_cycles(100));
    }

    #[test]
    fn a_line_on_its_way_takes_what_is_left_and_blames_translation_for_its_part_alone() {
        let at = Ticks::from_cycles;
        let mut c = core(10);
        c.load_arriving(Ready::default(), at(12), at(300), false);
        assert_eq!(c.last_load(), at(300), "not there before");
        c.load_arriving(Ready::default(), at(12), at(305), true);
        assert_eq!(c.last_load(), at(312), "there before the chain asks for it");
        assert_eq!(c.miss_starts(at(100), true), at(312));
        c.store_arriving(Ready::default(), at(12), at(400));
        assert_eq!((c.last_load(), c.serialize()), (at(312), at(400)));
        assert_eq!(c.take_translating().second_level, Ticks::ZERO);
        let mut c = core(1);
        c.load_arriving(Ready { at: at(50), walked: false }, at(12), at(100), false);
        assert_eq!(c.miss_starts(Ticks::ZERO, false), at(100), "the only buffer is in use");
        c.load(at(10), false);
        assert_eq!(
            (c.now(), c.take_translating().second_level),
            (at(100), Ticks(at(100).0 * 127 / 255))
        );
    }
}
