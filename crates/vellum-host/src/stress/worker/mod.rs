//! One thread of the stress: operates on its own pages, keeps the model, and compares.
//!
//! `verbs` changes mappings, `bytes` contents, `look` reads what others own.

mod bytes;
mod look;
mod verbs;

use vellum::addr::{Order, Pfn, Va};
use vellum::entry::Codec;
use vellum::error::{FaultError, SpaceError};
use vellum::machine::Use;
use vellum::space::{Access, Page as Seen, Rights, Space};
use vellum::unstable::AllocRequest;

use super::alone;
use super::ops::Op;
use super::owned_pages::{OwnedPages, Run, SAMPLES, Window};
use super::published::PublishedState;
use super::state::{Child, Outcome, Shared};
use crate::machine::CpuGuard;
use crate::rng::Rng;

use std::collections::BTreeMap;

/// Which space a worker runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SpaceChoice {
    Shared(usize),
    Child(usize),
}

/// The thread.
pub struct Worker<'a, C: Codec> {
    shared: &'a Shared<'a, C>,
    guard: &'a CpuGuard<'a, C, true>,
    window: Window,
    me: u64,
    rng: Rng,
    /// The thread's pages of each shared space.
    owned: Vec<OwnedPages>,
    at: Option<SpaceChoice>,
    blocks: Vec<(Pfn, Order)>,
    /// Pages of others this thread looks at again and again.
    favourites: Vec<(u64, u64)>,
    outcome: Outcome,
}

/// Pages of others a thread looks at again and again.
const FAVOURITES: usize = 40;
/// Forks a thread keeps at once.
const CHILDREN: usize = 3;
/// Faults at one address without getting anywhere before that is an error.
const PATIENCE: u32 = 100_000;

/// What a verb runs on: the space and its owned pages.
struct On<'w> {
    space: &'w Space,
    owned: &'w mut OwnedPages,
    /// Where others look, if the space is shared.
    published: Option<&'w PublishedState>,
}

impl On<'_> {
    /// These pages are about to change.
    fn begin(&self, runs: &[Run]) {
        if let Some(published) = self.published {
            runs.iter().flat_map(|r| r.numbers()).for_each(|page| published.take_down(page));
        }
    }
    /// They changed, or not: they are as the model says.
    fn settled(&mut self, runs: &[Run]) {
        if let Some(published) = self.published {
            self.owned.serial += 1;
            let owned = &self.owned;
            runs.iter()
                .flat_map(|r| r.numbers())
                .for_each(|page| published.publish(page, owned.pages.get(&page), owned.serial));
        }
    }
}

impl<'a, C: Codec> Worker<'a, C> {
    /// A thread that has done nothing yet.
    pub fn new(
        shared: &'a Shared<'a, C>,
        guard: &'a CpuGuard<'a, C, true>,
        window: Window,
        me: usize,
        rng: Rng,
    ) -> Worker<'a, C> {
        let me = me as u64;
        let owned =
            (0..shared.spaces.len() as u64).map(|s| OwnedPages::new(window, s, me)).collect();
        let (blocks, favourites, outcome) = (Vec::new(), Vec::new(), Outcome::default());
        Worker { shared, guard, window, me, rng, owned, at: None, blocks, favourites, outcome }
    }

    /// What it did.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Ends its forks and gives its blocks back, checking everything once more.
    pub fn finish(&mut self, children: &mut Vec<Child>) {
        for space in 0..self.owned.len() {
            self.go(SpaceChoice::Shared(space), children);
            self.on(children, |w, on| w.check_all(on));
        }
        while !children.is_empty() {
            self.end_child(children, 0);
        }
        self.give_blocks();
    }

    /// Gives back the frames taken for themselves, which no space can account for.
    pub fn give_blocks(&mut self) {
        for (first, order) in std::mem::take(&mut self.blocks) {
            // SAFETY: the worker had the block, and mapped it nowhere.
            unsafe { self.shared.vm.frames().free(self.shared.vm.machine(), first, order) };
        }
    }

    /// One operation.
    pub fn step(&mut self, children: &mut Vec<Child>) {
        let op = Op::draw(&mut self.rng);
        self.outcome.operations += 1;
        match op {
            Op::Rest => return self.guard.yield_core(),
            Op::Switch => return self.switch(children),
            Op::Frame => return self.frame(),
            Op::Fork => return self.fork(children),
            Op::Exit => {
                if !children.is_empty() {
                    let n = self.rng.below(children.len() as u64) as usize;
                    self.end_child(children, n);
                }
                return;
            }
            Op::Peek => return self.peek(children),
            Op::Shrink => {
                self.shared.vm.shrink_zeros();
                return;
            }
            _ => {}
        }
        if self.at.is_none() {
            self.go(SpaceChoice::Shared(0), children);
        }
        self.on(children, |w, on| match op {
            Op::Map => w.map(on, false),
            Op::Replace => w.map(on, true),
            Op::MapAnywhere => w.stray(on),
            Op::Unmap => w.unmap(on),
            Op::Protect => w.protect(on),
            Op::Remap => w.remap(on),
            Op::DontNeed => w.dont_need(on),
            Op::Huge | Op::Populate => w.advise(on, op),
            Op::Touch => w.touch(on, Access::Read),
            Op::Fetch => w.touch(on, Access::Exec),
            Op::Write => w.write(on),
            Op::CopyIn => w.copy_in(on, false),
            Op::Force => w.copy_in(on, true),
            Op::CopyOut => w.copy_out(on),
            Op::Query => w.query(on),
            Op::Poison => w.poison(on),
            // For good, so only of spaces that end before the run does.
            Op::Forbid if on.published.is_none() => w.shared.vm.forbid_zeros(on.space),
            Op::MapObject
            | Op::MapPrivate
            | Op::ReadObject
            | Op::WriteObject
            | Op::Resize
            | Op::Punch
            | Op::Sync
            | Op::Evict
            | Op::WriteBack
            | Op::Ahead
            | Op::Grab
            | Op::Harvest
            | Op::Seek
            | Op::Seal
            | Op::MapDevice
            | Op::Block => {
                w.play_alone(on, op);
            }
            _ => {}
        });
    }

    /// Runs `f` on the space this thread is in.
    fn on(&mut self, children: &mut [Child], f: impl FnOnce(&mut Self, On<'_>)) {
        match self.at {
            Some(SpaceChoice::Shared(n)) => {
                let window = self.window;
                let mut owned =
                    std::mem::replace(&mut self.owned[n], OwnedPages::new(window, 0, 0));
                let shared = self.shared;
                f(
                    self,
                    On {
                        space: &shared.spaces[n],
                        owned: &mut owned,
                        published: Some(&shared.published[n]),
                    },
                );
                self.owned[n] = owned;
            }
            Some(SpaceChoice::Child(n)) => {
                let Child { space, owned, .. } = &mut children[n];
                f(self, On { space, owned, published: None });
            }
            None => {}
        }
    }

    fn go(&mut self, to: SpaceChoice, children: &[Child]) {
        let space = match to {
            SpaceChoice::Shared(n) => &self.shared.spaces[n],
            SpaceChoice::Child(n) => &children[n].space,
        };
        self.shared.vm.activate(space);
        self.at = Some(to);
    }

    fn switch(&mut self, children: &[Child]) {
        let n = self.rng.below((self.owned.len() + children.len()) as u64 + 1) as usize;
        if n < self.owned.len() {
            self.go(SpaceChoice::Shared(n), children);
        } else if n < self.owned.len() + children.len() {
            self.go(SpaceChoice::Child(n - self.owned.len()), children);
        } else {
            self.shared.vm.deactivate();
            self.at = None;
        }
    }

    fn fork(&mut self, children: &mut Vec<Child>) {
        if children.len() == CHILDREN || self.at.is_none() {
            return;
        }
        let mut made = None;
        self.on(children, |w, on| match w.shared.vm.fork(on.space) {
            Ok(space) => {
                made = Some(Child { space, owned: on.owned.clone(), frozen: BTreeMap::new() })
            }
            Err(_) => w.outcome.refused += 1,
        });
        if let Some(child) = made {
            self.outcome.forks += 1;
            children.push(child);
            if self.rng.once_in(2) {
                self.go(SpaceChoice::Child(children.len() - 1), children);
            }
        }
    }

    fn end_child(&mut self, children: &mut Vec<Child>, n: usize) {
        self.go(SpaceChoice::Child(n), children);
        self.on(children, |w, on| w.check_all(on));
        let frozen: Vec<Va> = children[n].frozen.keys().copied().collect();
        for va in frozen {
            self.look_at_frozen(&mut children[n], va);
        }
        let child = children.swap_remove(n);
        self.go(SpaceChoice::Shared(0), children);
        self.shared.vm.exit(child.space);
    }

    /// A program's access, faults included.
    fn access(
        &mut self,
        space: &Space,
        va: Va,
        access: Access,
        store: u64,
    ) -> Result<u64, FaultError> {
        for _ in 0..PATIENCE {
            let tried = match access {
                Access::Read => self.guard.load(va),
                Access::Write => self.guard.store(va, store).map(|()| store),
                Access::Exec => self.guard.fetch(va),
            };
            match tried {
                Ok(word) => return Ok(word),
                Err(_) => {
                    self.outcome.faults += 1;
                    self.shared.vm.fault(space, va, access)?;
                }
            }
        }
        panic!("{access:?} at {va:?} faults for ever; seed {}", self.shared.plan.seed);
    }

    /// What the library must say to an access of a page.
    fn verdict(page: Option<Rights>, access: Access) -> Result<(), FaultError> {
        match page {
            None => Err(FaultError::Unmapped),
            Some(rights) if !rights.allows(access) => Err(FaultError::Rights),
            Some(_) => Ok(()),
        }
    }

    fn check_access(
        &mut self,
        on: &mut On<'_>,
        page: u64,
        sample: usize,
        access: Access,
        store: u64,
    ) -> bool {
        let known = on.owned.pages.get(&page).copied();
        let va = Va((page << 12) + SAMPLES[sample]);
        let verdict = Self::verdict(known.map(|p| p.rights), access);
        match (self.access(on.space, va, access, store), verdict) {
            (Err(FaultError::NoMemory), Ok(())) => {
                self.outcome.refused += 1;
                return false;
            }
            (Ok(word), Ok(())) => {
                if access != Access::Write {
                    let wanted = known.map_or(0, |p| p.words[sample]);
                    self.same(on, va, word, wanted);
                }
            }
            (Err(e), Err(wanted)) if e == wanted => return false,
            (got, wanted) => {
                panic!(
                    "{access:?} at {va:?} gave {got:?}, wanted {wanted:?} (page {known:?}), {}",
                    self.place(on)
                )
            }
        }
        true
    }

    fn same(&mut self, on: &On<'_>, va: Va, word: u64, wanted: u64) {
        self.outcome.compared += 1;
        assert!(
            word == wanted,
            "{va:?} holds {word:#x}, wanted {wanted:#x}; library says {:?}; {}",
            self.shared.vm.query(on.space, va),
            self.place(on)
        );
    }

    fn place(&self, on: &On<'_>) -> String {
        format!(
            "space {} ({:?}), owner {}, operation {} of seed {}",
            on.space.id(),
            self.at,
            on.owned.owner,
            self.outcome.operations,
            self.shared.plan.seed
        )
    }

    /// Whether a verb succeeded; refusals for memory are counted, other errors must be the one
    /// expected.
    fn verb<T>(
        &mut self,
        on: &On<'_>,
        what: &str,
        got: Result<T, SpaceError>,
        wanted: Result<(), SpaceError>,
    ) -> Option<T> {
        match (got, wanted) {
            (Ok(value), Ok(())) => Some(value),
            (Err(SpaceError::NoMemory), _) => {
                self.outcome.refused += 1;
                None
            }
            (Err(e), Err(w)) if e == w => None,
            (got, wanted) => {
                panic!("{what} gave {:?}, wanted {wanted:?}; {}", got.map(|_| ()), self.place(on))
            }
        }
    }

    /// Each takes a frame away for good, so few pages are.
    fn poison(&mut self, on: On<'_>) {
        if self.rng.once_in(64) {
            // What it says depends on what faults made; that no contents change later looks will
            // tell.
            let _ = self.shared.vm.poison(on.space, Va(self.some_page(on.owned) << 12));
        }
    }

    /// An object of this thread alone, mapped beside what it owns.
    fn play_alone(&mut self, on: On<'_>, op: Op) {
        let vm = self.shared.vm;
        let access = |va, access, store| self.access(on.space, va, access, store);
        match alone::play(vm, on.space, op, access) {
            Ok(true) => {}
            Ok(false) => self.outcome.refused += 1,
            Err(what) => panic!("{what}; {}", self.place(&on)),
        }
    }

    fn query(&mut self, on: On<'_>) {
        let page = self.some_page(on.owned);
        let known = on.owned.pages.get(&page).map(|p| p.rights);
        let seen = self.shared.vm.query(on.space, Va(page << 12));
        let fits = match (seen, known) {
            (Seen::Unmapped, None) => true,
            (Seen::Reserved { rights }, Some(known)) => rights == known,
            (Seen::Mapped { rights, .. }, Some(known)) => rights == known && !known.is_none(),
            (Seen::Inaccessible { .. }, Some(known)) => known.is_none(),
            _ => false,
        };
        assert!(
            fits,
            "query of {:?} says {seen:?}, the region gives {known:?}; {}",
            Va(page << 12),
            self.place(&on)
        );
    }

    fn frame(&mut self) {
        let (m, frames) = (self.shared.vm.machine(), self.shared.vm.frames());
        if self.blocks.len() > 12 || !self.blocks.is_empty() && self.rng.once_in(2) {
            let n = self.rng.below(self.blocks.len() as u64) as usize;
            let (first, order) = self.blocks.swap_remove(n);
            // SAFETY: the worker had the block, and mapped it nowhere.
            return unsafe { frames.free(m, first, order) };
        }
        let order = Order::new(self.rng.below(10) as u8).unwrap_or(Order::BASE);
        match frames.alloc(m, order, &AllocRequest::kernel(Use::Slab)) {
            Ok(first) => self.blocks.push((first, order)),
            Err(_) => self.outcome.refused += 1,
        }
    }

    /// Every page that it owns and that holds something, and a few of those that read as zeros.
    fn check_all(&mut self, mut on: On<'_>) {
        let pages: Vec<(u64, bool)> =
            on.owned.pages.iter().map(|(&n, p)| (n, p.words != [0; 3])).collect();
        for (page, written) in pages {
            if !written && !self.rng.once_in(16) {
                continue;
            }
            let sample = self.rng.below(3) as usize;
            self.check_access(&mut on, page, sample, Access::Read, 0);
        }
    }
}
