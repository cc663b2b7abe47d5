//! Writing to a program's memory whatever its rights say: what a debugger does to set a breakpoint.
//!
//! The page becomes the space's own first, exactly as a write fault would make it so, only that the
//! entry gets no right the region does not give. Then the bytes go to the frame behind the entry,
//! under the node's lock and after a second look: *this* frame, mapped by this entry alone, and not
//! zeros. Rejected: asking a mark ("dirty, so it was copied already"), which others may have set;
//! that is how Linux wrote into the huge page of zeros (CVE-2017-1000405).

use crate::addr::{Order, Pfn, Va};
use crate::entry::{Codec, Entry, Flags};
use crate::error::FaultError;
use crate::fault::Faults;
use crate::fault::object::ObjectFault;
use crate::fault::{FaultRequest, Seen, Serve, Step, Unshare, ZeroTable};
use crate::machine::{Act, Machine, Verb};
use crate::memory::retry::Refusal;
use crate::ops::copy::CopyBytes;
use crate::platform::over;
use crate::space::{Access, Space, SpaceRecord};
use crate::sync::Token;

/// How an attempt ended that did not fail.
enum Forced {
    Written,
    /// A step was done on the way: look again.
    Look(Step),
}

pub(crate) struct WriteForced<'v, M: Machine>(pub &'v Faults<M>);

over!(WriteForced, Faults);

impl<M: Machine> WriteForced<'_, M> {
    /// `Vm::write_forced_part`.
    pub fn write_forced_part(
        self,
        space: &Space,
        to: Va,
        bytes: &[u8],
    ) -> (usize, Result<(), FaultError>) {
        self.verb(Verb::Copy, || {
            CopyBytes(self.0).chunks(to, bytes.len(), |va, from, end| {
                if va >= self.user_end() {
                    return Err(FaultError::Unmapped);
                }
                let space = self.record_of(space);
                let (ask, bytes) = (FaultRequest::own(va), &bytes[from..end]);
                let (mut huge, mut restarts, mut refusal) = (true, 0, Refusal::<M>::default());
                loop {
                    let force = || self.force(space, va, bytes, huge);
                    let tried = Serve(self.0).with_page(space, ask, restarts, force);
                    match tried?.transpose() {
                        Ok(Some(Forced::Written)) => return Ok(()),
                        Ok(Some(Forced::Look(Step::Smaller))) => huge = false,
                        // Somebody has the object's page, perhaps a task of this CPU.
                        Ok(Some(Forced::Look(Step::Frozen))) => {
                            refusal = Refusal::default();
                            self.machine.relax();
                            self.let_others_run();
                        }
                        Ok(Some(Forced::Look(Step::Split))) => {
                            refusal = Refusal::default();
                            ObjectFault(self.0).split(space, ask)?;
                        }
                        Ok(Some(Forced::Look(_))) => {
                            restarts += 1;
                            self.wait_while_stopped(space);
                        }
                        Ok(None) => {
                            restarts += 1;
                            refusal = Refusal::default();
                            Serve(self.0).serve(space, ask)?;
                        }
                        // It asks for no more than that there are any rights.
                        Err(error) => {
                            self.confirm(space, ask, error, restarts, &mut refusal)?;
                            restarts += 1;
                        }
                    }
                }
            })
        })
    }

    /// Writes if the page is there and the space's own, or goes a step on the way; `None` if the
    /// space has no page there, or somebody is at the entry.
    fn force(
        self,
        space: &SpaceRecord,
        va: Va,
        bytes: &[u8],
        huge: bool,
    ) -> Option<Result<Forced, FaultError>> {
        let m = &self.machine;
        let epoch = self.epochs.enter(m);
        let edits = space.edits();
        let spot = self.descend(space, va);
        let entry = M::Codec::decode(spot.raw, spot.level);
        if matches!(entry, Entry::Empty) {
            return Some(Err(FaultError::Unmapped));
        }
        let region = self.region(spot.region?);
        let attrs = region.packed();
        // What it writes to an object, others see: that takes the right to write.
        if attrs.rights().is_none() || attrs.is_shared_view() && !attrs.allows(Access::Write) {
            return Some(Err(FaultError::Rights));
        }
        let seen = Seen { space, va, edits, spot, region, attrs };
        match (entry, spot.level.leaf_order()) {
            (Entry::Leaf(pfn, flags), Some(order)) => {
                if self.is_zero(pfn) || !self.is_exclusive(pfn, order) {
                    // Without a huge page in mind: private tables of zeros stay what they are.
                    return Some(
                        Unshare(self.0)
                            .unshare(&seen, epoch, false, (pfn, flags))
                            .map(Forced::Look),
                    );
                }
                let mut top = Token::top();
                let _guard = spot.node.lock(m, &mut top);
                if !self.still(&seen) || self.is_zero(pfn) || !self.is_exclusive(pfn, order) {
                    return Some(Ok(Forced::Look(Step::Again)));
                }
                self.write_page(&seen, pfn.add(va.page() & (order.frames() - 1)), bytes);
                Some(Ok(Forced::Written))
            }
            (Entry::Shared(pfn, _), _) if attrs.is_private_view() => {
                Some(ObjectFault(self.0).copy_mapped(&seen, pfn).map(Forced::Look))
            }
            (Entry::Shared(pfn, flags), _) if !flags.write && attrs.is_tracked_view() => {
                let noted = ObjectFault(self.0).write_mapped(
                    &seen,
                    FaultRequest::own(seen.va),
                    (pfn, flags),
                    epoch,
                );
                Some(noted.map(Forced::Look))
            }
            (Entry::Shared(first, flags), order) => {
                let pages = order.unwrap_or(Order::BASE).frames();
                let pfn = first.add(va.page() & (pages - 1));
                let mut top = Token::top();
                let _guard = spot.node.lock(m, &mut top);
                // A `protect` may be on its way here.
                if !self.still(&seen) || !flags.write {
                    return Some(Ok(Forced::Look(Step::Again)));
                }
                self.write_page(&seen, pfn, bytes);
                Some(Ok(Forced::Written))
            }
            (Entry::ZeroTable(_), _) => {
                Some(ZeroTable(self.0).write_zero_table(&seen, epoch, huge).map(Forced::Look))
            }
            _ => None,
        }
    }

    /// Writes to the page behind the seen entry, under its node's lock.
    fn write_page(self, seen: &Seen<'_>, page: Pfn, bytes: &[u8]) {
        let spot = &seen.spot;
        self.machine.write_bytes(page, seen.va.offset(), bytes);
        self.exchange(spot.at, |entry| match entry.flags() {
            Some(flags) if flags.write && !flags.dirty => {
                let flags = Flags { accessed: true, dirty: true, ..flags };
                Some(M::Codec::encode(entry.with_flags(flags), spot.level))
            }
            _ => None,
        });
    }
}
