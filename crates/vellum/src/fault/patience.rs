//! What a fault does that other verbs send back, again and again.
//!
//! It looks again, 16 times without a lock. After that its attempts are made under the mmap lock,
//! where no verb edits anything. A refusal is final where it is found under that lock, or for
//! memory when others have none in hand (`memory/retry.rs`).

use crate::entry::{Codec, Entry};
use crate::error::FaultError;
use crate::fault::{FaultOrigin, FaultRequest, Faults};
use crate::machine::Machine;
use crate::memory::retry::Refusal;
use crate::space::{Access, SpaceRecord};
use crate::sync::Token;
use crate::sync::atomic::Ordering;

/// How often a fault, a copy or a forced write looks again before it takes the mmap lock. Each
/// time another CPU got on, so 16 in a row mean that one edits the space in a loop. Basis: a guess;
/// the count decides only when the lock is worth its price.
pub(super) const PATIENCE: u32 = 16;

impl<M: Machine> Faults<M> {
    /// Makes an attempt that edits of the space may send back. After so many that were, it is made
    /// under the mmap lock. What it clears or copies then has no scheduling points.
    #[inline]
    pub(super) fn patiently<R>(
        &self,
        space: &SpaceRecord,
        restarts: u32,
        attempt: impl FnOnce() -> R,
    ) -> R {
        if restarts < PATIENCE {
            return attempt();
        }
        self.with_mmap_lock(space, || {
            self.holding.fetch_add(1, Ordering::Relaxed);
            let done = attempt();
            self.holding.fetch_sub(1, Ordering::Relaxed);
            done
        })
    }

    /// What a refusal needs to be one: `Ok` if the access has to look again. `restarts` are those
    /// of the attempt that was refused; the caller holds nothing.
    #[cold]
    pub(crate) fn confirm<'a>(
        &'a self,
        space: &SpaceRecord,
        ask: FaultRequest,
        error: FaultError,
        restarts: u32,
        refusal: &mut Refusal<'a, M>,
    ) -> Result<(), FaultError> {
        match error {
            FaultError::NoMemory if self.look_again(refusal) => Ok(()),
            FaultError::NoMemory | FaultError::Stopped | FaultError::Io => Err(error),
            // It was made under the mmap lock.
            _ if restarts >= PATIENCE => Err(error),
            _ => self.with_mmap_lock(space, || self.refusal(space, ask)),
        }
    }

    /// Whether an access is refused: `Ok` if it has to look again. Under the mmap lock.
    ///
    /// A descent without that lock can meet the middle of a verb: the hole before what a map puts
    /// in its place, a table that a collapse has emptied, a right that is taken while another CPU
    /// still uses it. A program may be told of none of them. Under the lock no verb is under way,
    /// and what the last one did holds on every CPU.
    pub(crate) fn refusal(
        &self,
        space: &SpaceRecord,
        FaultRequest { va, access, origin }: FaultRequest,
    ) -> Result<(), FaultError> {
        let spot = self.descend(space, va);
        match (M::Codec::decode(spot.raw, spot.level), spot.region) {
            (Entry::Empty, _) | (_, None) => Err(FaultError::Unmapped),
            (entry, Some(handle)) => {
                let region = self.region(handle);
                // Who writes to an object whatever the region says needs the right all the same.
                let owns = origin == FaultOrigin::Owner && region.packed().is_shared_view();
                let access = if owns { Access::Write } else { access };
                let is_beyond = |(object, index)| index >= self.object(object).pages();
                if !region.packed().allows(access) {
                    Err(FaultError::Rights)
                } else if region.packed().is_device() && origin.touches_bytes() {
                    Err(FaultError::Device)
                } else if entry == Entry::Reserved && region.object_at(va).is_some_and(is_beyond) {
                    Err(FaultError::Beyond)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Does what no edit of the space is to meet. The caller holds no lock.
    pub(crate) fn with_mmap_lock<R>(&self, space: &SpaceRecord, body: impl FnOnce() -> R) -> R {
        let mut top = Token::top();
        let _layout = space.mmap_lock().lock(&self.machine, &mut top, space.id());
        body()
    }

    /// Waits until no verb stops the space's faults. The caller holds no lock and no entry, and is
    /// in no epoch.
    pub(crate) fn wait_while_stopped(&self, space: &SpaceRecord) {
        while space.faults_stopped() {
            self.machine.relax();
        }
    }
}
