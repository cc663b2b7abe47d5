//! The workloads of the frame allocators, generic, so that each is compiled for itself.
//!
//! A workload starts and ends with all memory free. It reports phases by name. Filling and
//! shuffling between phases is not timed, and all lists are allocated and touched before the clock
//! runs. Each thread has its own list, as programs have their own pages.

use super::peers::{Allocator, FRAMES};
use crate::bench::measure::{Effort, Start, time, time_enough};
use crate::rng::Rng;

/// What a thread of a workload has.
pub struct Part<'a, C> {
    /// The allocator.
    pub on: &'a C,
    /// This thread's CPU.
    pub cpu: usize,
    /// Threads taking part.
    pub threads: usize,
    /// Where they meet.
    pub start: &'a Start,
    /// How much.
    pub effort: Effort,
    /// The repetition's seed.
    pub seed: u64,
}

/// A phase's name and its nanoseconds per operation.
pub type Phase = (&'static str, f64);

fn shuffle<T>(list: &mut [T], rng: &mut Rng) {
    for i in (1..list.len()).rev() {
        list.swap(i, rng.below(i as u64 + 1) as usize);
    }
}

impl<C: Allocator> Part<'_, C> {
    fn rng(&self) -> Rng {
        Rng::new(self.seed ^ (self.cpu as u64) << 32)
    }
    fn take(&self, order: u8) -> u32 {
        self.on.alloc(self.cpu, order).expect("a workload asks for no more than there is")
    }
    /// Fills `list` from its length to its capacity; timed.
    fn fill(&self, list: &mut Vec<u32>, n: usize, order: u8) -> f64 {
        list.clear();
        list.resize(n, 0);
        self.start.meet();
        time(n as u64, || {
            for slot in list.iter_mut() {
                *slot = self.take(order);
            }
        })
    }
    fn empty(&self, list: &[u32], order: u8) -> f64 {
        self.start.meet();
        time(list.len() as u64, || list.iter().for_each(|&f| self.on.free(self.cpu, f, order)))
    }
    fn pairs(&self, order: u8) -> f64 {
        self.start.meet();
        let each = time_enough(self.effort, |n| {
            for _ in 0..n {
                let f = self.take(order);
                self.on.free(self.cpu, std::hint::black_box(f), order);
            }
        });
        self.start.meet();
        each
    }

    /// 256 Ki frames: all taken, given back in the same order, taken, given back at random, taken
    /// again.
    pub fn bulk(&self) -> Vec<Phase> {
        let n = ((256 << 10) / self.effort.shrink) as usize;
        let mut list = Vec::with_capacity(n);
        let mut phases =
            vec![("bulk-alloc", self.fill(&mut list, n, 0)), ("bulk-free", self.empty(&list, 0))];
        self.fill(&mut list, n, 0);
        shuffle(&mut list, &mut self.rng());
        phases.push(("random-free", self.empty(&list, 0)));
        phases.push(("alloc-after-random-free", self.fill(&mut list, n, 0)));
        self.empty(&list, 0);
        phases
    }

    /// One frame taken and given back, over and over, all memory being free.
    pub fn hot(&self) -> Vec<Phase> {
        vec![("hot-pair", self.pairs(0))]
    }

    /// The same with an eighth of memory used, a frame here and there. Of all memory each thread
    /// holds its share; the rest of what was taken is given back in random order.
    pub fn scattered(&self) -> Vec<Phase> {
        // A 32nd stays back, for allocators that keep frames aside per CPU.
        let n = (FRAMES / 32 * 31) as usize / self.threads;
        let mut list = Vec::with_capacity(n);
        self.fill(&mut list, n, 0);
        shuffle(&mut list, &mut self.rng());
        let kept = list.split_off(n / 8 * 7);
        self.empty(&list, 0);
        let pair = self.pairs(0);
        self.empty(&kept, 0);
        vec![("hot-pair-scattered", pair)]
    }

    /// Nearly all of memory taken, holes punched at random, 64 Ki frames taken from the holes.
    pub fn holes(&self) -> Vec<Phase> {
        let n = (FRAMES / 32 * 31) as usize / self.threads;
        let wanted = ((64 << 10) / self.effort.shrink) as usize / self.threads;
        let mut list = Vec::with_capacity(n);
        self.fill(&mut list, n, 0);
        shuffle(&mut list, &mut self.rng());
        let kept = list.split_off(n / 8);
        self.empty(&list, 0);
        let each = self.fill(&mut list, wanted, 0);
        self.empty(&list, 0);
        self.empty(&kept, 0);
        vec![("holes-alloc", each)]
    }

    /// 2 MiB blocks: three quarters of memory taken and given back, then one over and over.
    pub fn huge(&self) -> Vec<Phase> {
        let n = (FRAMES / 512 / 4 * 3) as usize / self.threads;
        let mut list = Vec::with_capacity(n);
        let take = self.fill(&mut list, n, 9);
        let give = self.empty(&list, 9);
        vec![("2m-alloc", take), ("2m-free", give), ("2m-pair", self.pairs(9))]
    }

    /// Orders 0 to 9 alike often: half of memory filled, then a random block given back and another
    /// taken, over and over. A step that finds no block of its order holds one less and goes on.
    pub fn mixed(&self) -> Vec<Phase> {
        let mut rng = self.rng();
        let share = FRAMES / 2 / self.threads as u64 / self.effort.shrink.min(4);
        let (mut orders, mut frames) = (Vec::new(), 0);
        while frames + 512 <= share {
            let order = rng.below(10) as u8;
            frames += 1 << order;
            orders.push(order);
        }
        let mut held: Vec<(u32, u8)> = vec![(0, 0); orders.len()];
        self.start.meet();
        let fill = time(orders.len() as u64, || {
            for (slot, &order) in held.iter_mut().zip(&orders) {
                *slot = (self.take(order), order);
            }
        });
        // Two steps on the same place would wait for each other; the plan of all steps is drawn
        // before the clock runs.
        let n = (200_000 / self.effort.shrink) as usize;
        let plan: Vec<(u32, u8)> =
            (0..n).map(|_| (rng.below(held.len() as u64) as u32, rng.below(10) as u8)).collect();
        self.start.meet();
        let step = time(n as u64, || {
            for &(at, order) in &plan {
                let slot = &mut held[at as usize];
                if slot.1 != u8::MAX {
                    self.on.free(self.cpu, slot.0, slot.1);
                }
                *slot = self.on.alloc(self.cpu, order).map_or((0, u8::MAX), |f| (f, order));
            }
        });
        self.start.meet();
        for (f, order) in held {
            if order != u8::MAX {
                self.on.free(self.cpu, f, order);
            }
        }
        self.start.meet();
        vec![("mixed-fill", fill), ("mixed-step", step)]
    }
}
