//! A minimal machine: one thread plays all CPUs in turn, and a data page has sixteen bytes.
//!
//! The model is about what programs see. Sixteen bytes of a page show that as well as 4096: its
//! first and last words and two between. Clearing a huge page is 8 KiB of work instead of 2 MiB,
//! and a core does about a million operations a second. Table nodes and slabs are real memory,
//! since the library accesses them through pointers.
//!
//! Each CPU has a TLB and a walk cache of about two entries, kept until the library flushes them,
//! so the CPU that runs next uses stale entries. The use of every frame is checked: a program
//! reaches data only, the library's entries are in table nodes only, and a frame is freed once.
//! Freed memory is filled with junk. Rejected: the host machine, which pays for atomics, polling
//! and whole pages.

pub mod disk;
mod hardware;
pub mod pool;
mod program;

use std::cell::{Cell, RefCell};
use std::io;
use std::marker::PhantomData;

use vellum::addr::{ENTRIES, Order, PAGE_SIZE, Pfn};
use vellum::entry::Codec;
use vellum::machine::{CpuId, MmuRules, NodeInfo, Root, Topology};
use vellum_host::mmu::buffer::{Buffer, Shape};
use vellum_host::mmu::walk::WalkCache;

use pool::Lent;

/// The first frame's number: frame 0 is unused.
pub const FIRST: Pfn = Pfn(512);
/// Where in a page the bytes lie that exist: four words of four bytes.
pub const SAMPLES: [usize; 4] = [0, 1000, 2044, PAGE_SIZE - 4];
/// Bytes of a page that exist.
pub const BYTES: usize = 4 * SAMPLES.len();
/// The first frame of a device's memory: no node of the machine has it, and only programs reach it.
pub const DEVICE: Pfn = Pfn(1 << 20);
/// Frames of it.
pub const DEVICE_FRAMES: usize = 8;
/// What a page holds.
pub type Contents = [u8; BYTES];
/// What freed memory holds: as a table entry, one that names a frame no machine here has.
const JUNK: u64 = 0x000f_eeee_eeee_e023;

/// The bytes of `[start, start + len)` of a page that exist: position in [`Contents`], and position
/// in the range.
pub fn samples(start: usize, len: usize) -> impl Iterator<Item = (usize, usize)> {
    let all = SAMPLES
        .into_iter()
        .enumerate()
        .flat_map(|(n, at)| (0..4).map(move |b| (4 * n + b, at + b)));
    all.filter(move |&(_, at)| start <= at && at < start + len).map(move |(i, at)| (i, at - start))
}

/// What to build.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// CPUs.
    pub cpus: usize,
    /// Memory nodes, of equal size; CPUs go round them.
    pub nodes: usize,
    /// Frames of each node.
    pub frames: u64,
    /// The rules of the MMU.
    pub rules: MmuRules,
    /// Lengths of each CPU's TLB.
    pub tlb: Shape,
}

impl Plan {
    fn topology(&self) -> Topology {
        let mut t = Topology::flat(self.cpus, FIRST, self.frames);
        t.nodes = self.nodes;
        for n in 0..self.nodes {
            t.node[n] = NodeInfo { first: FIRST.add(n as u64 * self.frames), frames: self.frames };
            (0..self.nodes).filter(|&to| to != n).for_each(|to| t.distance[n][to] = 20);
        }
        (0..self.cpus).for_each(|cpu| t.cpu_node[cpu] = (cpu % self.nodes) as u8);
        t
    }
}

struct Core {
    buffer: Buffer,
    cache: WalkCache,
    root: Option<Root>,
}

/// The machine.
pub struct Small<C: Codec> {
    plan: Plan,
    topology: Topology,
    /// The words of tables and slabs; a frame of data has none.
    ground: Lent,
    /// Frames whose words are not zero, a bit each.
    soiled: Box<[Cell<u64>]>,
    data: Box<[Cell<Contents>]>,
    device: [Cell<Contents>; DEVICE_FRAMES],
    uses: Box<[Cell<u8>]>,
    cores: Box<[RefCell<Core>]>,
    cpu: Cell<CpuId>,
    preempt_off: Cell<u32>,
    clock: Cell<u64>,
    /// What is behind objects with a pager.
    pub disk: RefCell<disk::Disk>,
    codec: PhantomData<C>,
}

impl<C: Codec> Small<C> {
    /// The machine of a plan.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn new(plan: Plan) -> io::Result<Small<C>> {
        let frames = plan.frames as usize * plan.nodes;
        let core = || Core {
            buffer: Buffer::new(plan.tlb, plan.rules.asids != 0),
            cache: WalkCache::new(plan.tlb.nodes, plan.rules.levels, plan.rules.asids != 0),
            root: None,
        };
        Ok(Small {
            plan,
            topology: plan.topology(),
            ground: Lent::new(frames * PAGE_SIZE)?,
            soiled: vec![Cell::new(0); frames.div_ceil(64)].into(),
            data: vec![Cell::new([0; BYTES]); frames].into(),
            device: Default::default(),
            uses: vec![Cell::new(0); frames].into(),
            cores: (0..plan.cpus).map(|_| RefCell::new(core())).collect(),
            cpu: Cell::new(0),
            preempt_off: Cell::new(0),
            clock: Cell::new(0),
            disk: RefCell::default(),
            codec: PhantomData,
        })
    }

    /// Where the words of tables and slabs lie, and how many bytes that are.
    pub fn ground(&self) -> (usize, usize) {
        (self.ground.base().as_ptr() as usize, self.data.len() * PAGE_SIZE)
    }

    /// From here the thread is that CPU. Between verbs only.
    pub fn run_on(&self, cpu: CpuId) {
        assert!(cpu < self.plan.cpus, "this machine has no CPU {cpu}");
        assert!(self.preempt_off.get() == 0, "a verb returned with preemption off");
        self.cpu.set(cpu);
    }

    /// As [`run_on`](Small::run_on), in the middle of a verb: with that many `preempt_off`. Says
    /// how many the CPU before had.
    pub fn change_to(&self, cpu: CpuId, preempt_off: u32) -> u32 {
        self.cpu.set(cpu);
        self.preempt_off.replace(preempt_off)
    }

    /// What a page of data holds.
    pub fn contents(&self, pfn: Pfn) -> Contents {
        self.data[self.index(pfn)].get()
    }

    /// Where the bytes of a page are that a program reaches.
    fn reached(&self, pfn: Pfn) -> &Cell<Contents> {
        let device = self.device.get(pfn.0.wrapping_sub(DEVICE.0) as usize);
        device.unwrap_or_else(|| &self.data[self.index(pfn)])
    }

    #[inline]
    fn index(&self, pfn: Pfn) -> usize {
        let i = pfn.0.wrapping_sub(FIRST.0) as usize;
        assert!(i < self.data.len(), "{pfn:?} is no memory of this machine");
        i
    }

    fn is_soiled(&self, i: usize) -> bool {
        self.soiled[i / 64].get() >> (i % 64) & 1 != 0
    }

    #[inline]
    fn soil(&self, i: usize) {
        let word = &self.soiled[i / 64];
        word.set(word.get() | 1 << (i % 64));
    }

    /// Zeros for the words of frames `[from, to)`.
    fn wash(&self, from: usize, to: usize) {
        let mut i = from;
        while i < to {
            let word = &self.soiled[i / 64];
            if word.get() == 0 {
                i = (i / 64 + 1) * 64;
                continue;
            }
            if self.is_soiled(i) {
                // SAFETY: a frame of this machine, which one thread uses.
                unsafe { self.ground.base().add(i * PAGE_SIZE).write_bytes(0, PAGE_SIZE) };
                word.set(word.get() & !(1 << (i % 64)));
            }
            i += 1;
        }
    }

    /// The ends of what was freed become junk; so do all its contents.
    fn scribble(&self, first: usize, order: Order) {
        let frames = order.frames() as usize;
        self.data[first..first + frames].iter().for_each(|page| page.set([0xee; BYTES]));
        for i in [first, first + frames - 1] {
            // Only memory that was words before: junk everywhere would make each huge page 2 MiB
            // again.
            if self.is_soiled(i) {
                (0..ENTRIES).for_each(|slot| {
                    self.word(i, slot).store(JUNK, std::sync::atomic::Ordering::Relaxed)
                });
            }
        }
    }
}

impl<C: Codec> Drop for Small<C> {
    fn drop(&mut self) {
        self.wash(0, self.data.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_a_page_find_the_bytes_that_exist() {
        assert_eq!(samples(0, PAGE_SIZE).count(), BYTES);
        assert_eq!(samples(2, 999).collect::<Vec<_>>(), [(2, 0), (3, 1), (4, 998)]);
        assert_eq!(samples(4095, 1).collect::<Vec<_>>(), [(15, 0)]);
        assert_eq!(samples(4, 900).count(), 0);
    }
}
