//! Reads of pages that other threads own: a forgotten flush shows here.

use vellum::addr::Va;
use vellum::entry::Codec;
use vellum::error::FaultError;
use vellum::space::{Access, Space};

use super::{Child, FAVOURITES, SpaceChoice, Worker};
use crate::stress::owned_pages::{SAMPLES, is_sane};
use crate::stress::published::{Published, meaning};

impl<C: Codec> Worker<'_, C> {
    pub(super) fn sane(&mut self, space: &Space, va: Va, word: u64, lineage: u64, owner: u64) {
        self.outcome.peeked += 1;
        assert!(
            is_sane(word, lineage, owner),
            "{va:?} of space {} ({:?}) holds {word:#x}, which is not of lineage {lineage}, owner \
             {owner}; seed {}",
            space.id(),
            self.at,
            self.shared.plan.seed
        );
    }

    /// A page of another owner: usually one looked at before, since only that can be in this CPU's
    /// TLB.
    pub(super) fn favourite(&mut self) -> Option<(u64, u64)> {
        let n = self.rng.below(FAVOURITES as u64) as usize;
        if n >= self.favourites.len() || self.rng.once_in(100) {
            let found = self.window.foreign(self.me, &mut self.rng)?;
            if n < self.favourites.len() {
                self.favourites[n] = found
            } else {
                self.favourites.push(found)
            }
            return Some(found);
        }
        self.favourites.get(n).copied()
    }

    pub(super) fn peek(&mut self, children: &mut [Child]) {
        for _ in 0..4 {
            let Some((page, whose)) = self.favourite() else { return };
            let sample = self.rng.below(6).saturating_sub(3) as usize;
            let va = Va((page << 12) + SAMPLES[sample]);
            match self.at {
                Some(SpaceChoice::Shared(n)) => self.peek_shared(n, page, sample, whose),
                Some(SpaceChoice::Child(n)) => {
                    let child = &mut children[n];
                    self.look_at_frozen(child, va);
                    if let Some(&Some(word)) = child.frozen.get(&va) {
                        self.sane(&child.space, va, word, child.owned.lineage, whose);
                    }
                }
                None => return,
            }
        }
    }

    /// Looks at what another thread may be changing now: it must be what its owner published, if
    /// that stood all the time.
    pub(super) fn peek_shared(&mut self, n: usize, page: u64, sample: usize, whose: u64) {
        let shared = self.shared;
        let (space, published) = (&shared.spaces[n], &shared.published[n]);
        let va = Va((page << 12) + SAMPLES[sample]);
        let before = published.read(page);
        let seen = self.access(space, va, Access::Read, 0);
        let stood = published.read(page) == before;
        if let Ok(word) = seen {
            self.sane(space, va, word, n as u64, whose);
        }
        let Some(state) = meaning(before).filter(|_| stood && seen != Err(FaultError::NoMemory))
        else {
            return;
        };
        let fits = match (state, seen) {
            (Published::Unmapped, seen) => seen == Err(FaultError::Unmapped),
            (Published::NoAccess, seen) => seen == Err(FaultError::Rights),
            (state, Ok(word)) => sample != 0 || state.word(n as u64, whose) == Some(word),
            (_, Err(_)) => false,
        };
        self.outcome.stood += 1;
        assert!(
            fits,
            "{va:?} of shared space {n}, owner {whose}: CPU {} saw {seen:x?} while the owner had \
             {state:x?}; library says {:?}; seed {}",
            self.guard.cpu(),
            shared.vm.query(space, va),
            shared.plan.seed
        );
    }

    /// In a space of this thread's own nobody else writes: what another owner held when first
    /// looked at, it holds for ever.
    pub(super) fn look_at_frozen(&mut self, child: &mut Child, va: Va) {
        let now = match self.access(&child.space, va, Access::Read, 0) {
            Ok(word) => Some(word),
            Err(FaultError::NoMemory) => return,
            Err(_) => None,
        };
        self.outcome.compared += 1;
        let first = *child.frozen.entry(va).or_insert(now);
        assert!(
            now == first,
            "{va:?} of a forked space changed from {first:x?} to {now:x?} though nobody works \
             there; library says {:?}; seed {}",
            self.shared.vm.query(&child.space, va),
            self.shared.plan.seed
        );
    }
}
