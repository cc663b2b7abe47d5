//! What is behind objects with a pager: pages by pager and index, that fail or answer late when a
//! test says so.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use vellum::addr::{PAGE_SIZE, Pfn};
use vellum::machine::{CpuId, PageAnswer, PageRun};

use super::whims::{Told, Whims};

/// A page.
pub type Block = [u8; PAGE_SIZE];

/// How the disk answers.
#[derive(Clone, Copy, Default)]
pub struct Habits {
    /// Nothing can be read.
    pub fails_reads: bool,
    /// Nothing can be written.
    pub fails_writes: bool,
    /// It answers when a test calls [`Disk::waiting`].
    pub late: bool,
    /// Bytes that it reads of a run, at most.
    pub most: Option<u64>,
}

/// What it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskCall {
    pub writes: bool,
    pub pager: u64,
    /// The first page.
    pub page: u64,
    /// Bytes.
    pub bytes: u64,
}

#[derive(Default)]
struct State {
    blocks: BTreeMap<(u64, u64), Block>,
    habits: Habits,
    whims: Option<Whims>,
    waiting: Vec<Kept>,
    calls: Vec<DiskCall>,
    gone: Vec<u64>,
}

/// A run that the disk has in hand.
struct Kept {
    run: PageRun,
    writes: bool,
    /// How it is answered, if that is decided.
    habits: Option<Habits>,
}

impl State {
    /// How a run is answered, where that hangs on no run before.
    fn decide(&mut self, run: &PageRun, writes: bool, cpu: CpuId) -> Option<Habits> {
        let last = (0..run.frames().len() as u64).rev().find(|n| {
            let page = run.offset() / PAGE_SIZE as u64 + n;
            self.blocks.contains_key(&(run.pager(), page))
        });
        // What lies behind the last block that there is is not read.
        let there = last.map_or(0, |n| (n + 1) * PAGE_SIZE as u64);
        let whims = self.whims.as_mut()?;
        Some(if writes { whims.write(run, cpu) } else { whims.read(run, there) })
    }
}

/// The disk.
#[derive(Default)]
pub struct Disk(Mutex<State>);

/// Frames, as the disk reads and writes them.
pub trait Ram {
    fn fill(&self, pfn: Pfn, bytes: &[u8]);
    fn take(&self, pfn: Pfn, bytes: &mut [u8]);
}

impl Disk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics with the disk in hand")
    }
    pub fn set(&self, habits: Habits) {
        self.state().habits = habits;
    }
    /// Puts a word at the beginning of a page.
    pub fn put(&self, pager: u64, page: u64, word: u64) {
        let mut state = self.state();
        let block = state.blocks.entry((pager, page)).or_insert([0; PAGE_SIZE]);
        block[..8].copy_from_slice(&word.to_le_bytes());
    }
    /// A page; zeros where nothing was written.
    pub fn block(&self, pager: u64, page: u64) -> Block {
        self.state().blocks.get(&(pager, page)).copied().unwrap_or([0; PAGE_SIZE])
    }
    /// The word at the beginning of a page.
    pub fn word(&self, pager: u64, page: u64) -> u64 {
        u64::from_le_bytes(self.block(pager, page)[..8].try_into().expect("eight bytes"))
    }
    /// The calls since the last time it was asked this.
    pub fn calls(&self) -> Vec<DiskCall> {
        std::mem::take(&mut self.state().calls)
    }
    /// The runs that were not answered yet, answered now.
    pub fn waiting(&self, ram: &impl Ram) -> Vec<PageAnswer> {
        let waiting = std::mem::take(&mut self.state().waiting);
        waiting.into_iter().map(|kept| self.answer(ram, kept)).collect()
    }

    /// The pagers whose objects are gone, since the last time it was asked this.
    pub fn gone(&self) -> Vec<u64> {
        std::mem::take(&mut self.state().gone)
    }
    pub(super) fn object_gone(&self, pager: u64) {
        self.state().gone.push(pager);
    }

    /// From here on habits are drawn anew for each run, or no more.
    pub fn set_whims(&self, whims: Option<Whims>) {
        self.state().whims = whims;
    }
    /// What came of it.
    pub fn told(&self) -> Told {
        self.state().whims.as_ref().map_or_else(Told::default, |whims| whims.told)
    }
    /// One of the runs that were not answered yet, answered now; whether somebody is told by it
    /// that a page cannot be read.
    pub fn one_waiting(&self, ram: &impl Ram) -> Option<(PageAnswer, bool)> {
        let kept = {
            let mut state = self.state();
            let State { whims, waiting, .. } = &mut *state;
            let n = whims.as_mut()?.choose(waiting.len() as u64)?;
            waiting.swap_remove(n as usize)
        };
        let is_alone = !kept.writes && kept.run.frames().len() == 1;
        let fails = is_alone && kept.habits.is_some_and(|habits| habits.fails_reads);
        Some((self.answer(ram, kept), fails))
    }
    /// Those who waited for a read that fails have been told.
    pub fn has_told(&self) {
        self.state().whims.iter_mut().for_each(|whims| whims.told.reads_over += 1);
    }

    pub(super) fn ask(
        &self,
        ram: &impl Ram,
        run: PageRun,
        (writes, cpu): (bool, CpuId),
    ) -> Option<PageAnswer> {
        let call = DiskCall {
            writes,
            pager: run.pager(),
            page: run.offset() / PAGE_SIZE as u64,
            bytes: run.bytes(),
        };
        let kept = {
            let mut state = self.state();
            let habits = state.decide(&run, writes, cpu);
            let kept = Kept { run, writes, habits };
            if habits.is_none() {
                state.calls.push(call);
            }
            if habits.unwrap_or(state.habits).late {
                state.waiting.push(kept);
                return None;
            }
            kept
        };
        Some(self.answer(ram, kept))
    }

    fn answer(&self, ram: &impl Ram, Kept { run, writes, habits }: Kept) -> PageAnswer {
        let mut state = self.state();
        let habits = habits.unwrap_or(state.habits);
        if writes && habits.fails_writes || !writes && habits.fails_reads {
            return run.failed();
        }
        let (pager, first) = (run.pager(), run.offset() / PAGE_SIZE as u64);
        let most = habits.most.unwrap_or(u64::MAX);
        for (n, part) in (first..).zip(run.parts()) {
            if writes {
                let block = state.blocks.entry((pager, n)).or_insert([0; PAGE_SIZE]);
                let left = most.saturating_sub(part.offset - run.offset());
                ram.take(part.frame, &mut block[..left.min(part.len as u64) as usize]);
            } else {
                // Bytes past the end, too, as a disk has blocks.
                let block = state.blocks.get(&(pager, n)).copied().unwrap_or([0; PAGE_SIZE]);
                let left = most.saturating_sub(part.offset - run.offset());
                ram.fill(part.frame, &block[..left.min(PAGE_SIZE as u64) as usize]);
            }
        }
        // It reads whole blocks, and says so.
        let bytes = if writes { run.bytes() } else { (run.frames().len() * PAGE_SIZE) as u64 };
        run.done(bytes.min(most))
    }
}
