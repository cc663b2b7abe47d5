//! What the visited lines cost among the compiler's own accesses.
//!
//! The lines of the program go through the caches of a machine. At a call the lines of the visited
//! nodes are read one after the other, as a search that follows pointers does, and each costs the
//! latency of the level that had it; then the new page is cleared, or copied, through the caches.
//! Nothing else of a kernel is there: not the page's record, the object, the tables. A call counts
//! if enough lines in a row precede it without one that the recorder left out.

use std::collections::HashMap;

use vellum_sim::cache::{Agent, Hierarchy, Kind};
use vellum_sim::file::Machine;
use vellum_sim::memory::Ticks;

use super::load::{Act, Load, Moment, ObjectPage, Touched};
use super::shapes::disciplines::{Discipline, Published, Tries};
use crate::error::LabError;

/// Lines of a frame.
const LINES: u64 = 64;
/// Frames of the slab of nodes; those of the program follow.
const SLAB: u64 = 4096;

/// Lines of visited nodes, by the level that had them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Price {
    /// Calls counted.
    pub calls: u64,
    served: [u64; 4],
}

impl Price {
    /// Lines read for each call.
    pub fn lines(&self) -> f64 {
        self.each(self.served.iter().sum::<u64>() as f64)
    }
    /// Cycles for each call, by the latencies of the levels.
    pub fn cycles(&self, latencies: [f64; 4]) -> f64 {
        self.each(self.served.iter().zip(latencies).map(|(n, each)| *n as f64 * each).sum())
    }
    fn each(&self, sum: f64) -> f64 {
        sum / self.calls.max(1) as f64
    }
}

/// Cycles of a line by the level that has it: the three of caches, and memory beside the CPU.
pub fn latencies(machine: &Machine) -> [f64; 4] {
    let [l1, l2, llc, _] = machine.hierarchy(1).latency;
    let cycles = |ticks: Ticks| ticks.0 as f64 / Ticks::PER_CYCLE as f64;
    let node = machine.node_of_cpu(0);
    [l1, l2, llc, machine.numa().latency[node][node]].map(cycles)
}

/// Lines in a row before a call that counts, and twice as many, to see what that does. Basis: a
/// guess; a first level has 512 or 768, and a program like this one replaces them in 20,000.
pub const WARM: [usize; 2] = [100_000, 200_000];

/// Runs the program so many times on a machine, and prices each run's calls: one pair for each run,
/// by [`WARM`].
pub fn price(
    machine: &Machine,
    load: &Load,
    discipline: Discipline,
    times: usize,
) -> Result<Vec<[Price; 2]>, LabError> {
    let caches = Hierarchy::new(&machine.hierarchy(1)).map_err(LabError::usage)?;
    let mut tries = Published::default();
    tries.nodes.lines = Some(Vec::new());
    let mut pricing = Pricing {
        caches,
        tries,
        discipline,
        frames: vec![0; load.pages],
        files: HashMap::new(),
        free: Vec::new(),
        next: SLAB,
        total: Default::default(),
    };
    Ok((0..times).map(|_| pricing.run(load)).collect())
}

struct Pricing {
    caches: Hierarchy,
    tries: Published,
    discipline: Discipline,
    /// The frame of each page of the program.
    frames: Vec<u64>,
    /// Those of pages of files.
    files: HashMap<ObjectPage, u64>,
    /// The one freed last is used next.
    free: Vec<u64>,
    next: u64,
    total: [Price; 2],
}

impl Pricing {
    fn run(&mut self, load: &Load) -> [Price; 2] {
        self.total = Default::default();
        let mut done = 0;
        for moment in &load.moments {
            self.program(load, done..moment.at);
            done = moment.at;
            self.act(moment);
        }
        self.program(load, done..load.touched());
        for frame in self.frames.iter().filter(|frame| **frame != 0) {
            if !self.files.values().any(|file| file == frame) {
                self.free.push(*frame);
            }
        }
        self.frames.fill(0);
        (0..load.objects).step_by(2).for_each(|object| self.tries.clear(object));
        self.total
    }

    fn program(&mut self, load: &Load, range: std::ops::Range<usize>) {
        for line in load.lines(range) {
            let at = self.frames[line.page as usize] * LINES + u64::from(line.line);
            self.caches.access(0, Agent::Demand, at, line.kind);
        }
    }

    fn act(&mut self, moment: &Moment) {
        match moment.act {
            Act::Touch(touched) if touched.is_file && self.files.contains_key(&touched.of) => {
                self.frames[touched.page as usize] = self.files[&touched.of];
            }
            Act::Touch(touched) => self.touch(touched, moment.warm),
            Act::Drop(Touched { page, of, .. }) => {
                self.tries.remove(of);
                self.free.push(std::mem::take(&mut self.frames[page as usize]));
            }
        }
    }

    fn touch(&mut self, Touched { page, of, is_file }: Touched, warm: usize) {
        if let Some(lines) = &mut self.tries.nodes.lines {
            lines.clear();
        }
        self.tries.fault(of, self.discipline);
        let lines = self.tries.nodes.lines.take().unwrap_or_default();
        let mut served = [0; 4];
        for line in &lines {
            let level = self.caches.access(0, Agent::Kernel, *line, Kind::Load).level;
            served[level as usize] += 1;
        }
        for (total, _) in self.total.iter_mut().zip(WARM).filter(|(_, asked)| warm >= *asked) {
            total.calls += 1;
            (0..served.len()).for_each(|level| total.served[level] += served[level]);
        }
        self.tries.nodes.lines = Some(lines);
        let frame = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        // A frame that a device fills is in no cache afterwards.
        let copied = std::mem::replace(&mut self.frames[page as usize], frame);
        if is_file {
            self.files.insert(of, frame);
            self.caches.discard(frame * LINES, LINES);
            return;
        }
        if copied != 0 {
            for line in copied * LINES..(copied + 1) * LINES {
                self.caches.access(0, Agent::Kernel, line, Kind::Load);
            }
        }
        self.caches.store_stream(0, Agent::Kernel, frame * LINES, LINES, false);
    }
}
