//! The kernel reads and writes a program's memory.
//!
//! Page by page: the leaf is looked up and its node locked, so that the frame cannot go while its
//! bytes are touched; where the leaf does not give the access, a fault is served first, exactly as
//! the program's own would be, or, where many pages are to be written that were never touched, a
//! batch of them is made. The machine's own translation is not used, so it does not matter whether
//! this CPU runs the space.

use crate::addr::{PAGE_SIZE, Va};
use crate::entry::{Codec, Entry, Flags};
use crate::error::FaultError;
use crate::fault::Faults;
use crate::fault::populate::Populate;
use crate::fault::{FaultOrigin, FaultRequest, Serve};
use crate::machine::{Act, Machine, Stores, Verb};
use crate::platform::over;
use crate::space::{Access, Space, SpaceRecord};
use crate::sync::Token;

/// Which way the bytes go.
enum Direction<'b> {
    In(&'b [u8]),
    Out(&'b mut [u8]),
}

pub(crate) struct CopyBytes<'v, M: Machine>(pub &'v Faults<M>);

over!(CopyBytes, Faults);

impl<M: Machine> CopyBytes<'_, M> {
    /// `Vm::copy_in_part`.
    pub fn copy_in_part(
        self,
        space: &Space,
        to: Va,
        bytes: &[u8],
    ) -> (usize, Result<(), FaultError>) {
        self.verb(Verb::Copy, || {
            let last = Va(to.0.saturating_add(bytes.len() as u64));
            self.chunks(to, bytes.len(), |va, from, end| {
                self.touch(self.record_of(space), va, Direction::In(&bytes[from..end]), last)
            })
        })
    }

    /// `Vm::copy_out_part`.
    pub fn copy_out_part(
        self,
        space: &Space,
        from: Va,
        bytes: &mut [u8],
    ) -> (usize, Result<(), FaultError>) {
        self.verb(Verb::Copy, || {
            self.chunks(from, bytes.len(), |va, from, end| {
                self.touch(self.record_of(space), va, Direction::Out(&mut bytes[from..end]), va)
            })
        })
    }

    /// Cuts a range of bytes at page boundaries, and says how many went well.
    pub(super) fn chunks(
        self,
        start: Va,
        len: usize,
        mut each: impl FnMut(Va, usize, usize) -> Result<(), FaultError>,
    ) -> (usize, Result<(), FaultError>) {
        let mut done = 0;
        while done < len {
            let va = start.0.checked_add(done as u64).map(Va).ok_or(FaultError::Unmapped);
            let one = va.and_then(|va| {
                let end = len.min(done + PAGE_SIZE - va.offset());
                each(va, done, end).map(|()| end)
            });
            match one {
                Ok(end) => done = end,
                Err(error) => return (done, Err(error)),
            }
        }
        (done, Ok(()))
    }

    /// Touches the bytes at `va`, of which more follow up to `end`.
    fn touch(
        self,
        space: &SpaceRecord,
        va: Va,
        mut bytes: Direction<'_>,
        end: Va,
    ) -> Result<(), FaultError> {
        let access = if matches!(bytes, Direction::In(_)) { Access::Write } else { Access::Read };
        if va >= self.user_end() {
            return Err(FaultError::Unmapped);
        }
        for restarts in 0.. {
            let ask = FaultRequest { va, access, origin: FaultOrigin::Bytes };
            let touch = || self.touch_present(space, va, access, &mut bytes).then_some(());
            if Serve(self.0).with_page(space, ask, restarts, touch)?.is_some() {
                break;
            }
            if access == Access::Read || !self.write_ahead(space, va, end)? {
                Serve(self.0).serve(space, ask)?;
            }
        }
        Ok(())
    }

    /// Makes the pages that will be written from `va`, which is not there, up to `end`, as many as
    /// go into a batch. They are cleared through the caches, for they are written at once. `false`
    /// if there are not several, or another case is at hand.
    fn write_ahead(self, space: &SpaceRecord, va: Va, end: Va) -> Result<bool, FaultError> {
        let (va, end) =
            (va.align_down(PAGE_SIZE as u64), end.0.checked_next_multiple_of(PAGE_SIZE as u64));
        let end = Va(end.unwrap_or(u64::MAX).min(self.user_end().0));
        Ok(end.0 - va.0 > PAGE_SIZE as u64
            && Populate(self.0).make_pages(space, va, end, (Access::Write, Stores::Cached))? != 0)
    }

    /// `false` if no leaf there gives the access.
    fn touch_present(
        self,
        space: &SpaceRecord,
        va: Va,
        access: Access,
        bytes: &mut Direction<'_>,
    ) -> bool {
        let m = &self.machine;
        let _epoch = self.epochs.enter(m);
        let spot = self.descend(space, va);
        let mut top = Token::top();
        let _guard = spot.node.lock(m, &mut top);
        let entry = self.load(spot.node.pfn, spot.slot, spot.level);
        if let (Entry::ZeroTable(table), Direction::Out(bytes)) = (entry, &mut *bytes)
            && let Some(pfn) = self.zeros_below(table, spot.level.child(), va)
        {
            m.read_bytes(pfn, va.offset(), bytes);
            return true;
        }
        let (Entry::Leaf(first, flags) | Entry::Shared(first, flags), Some(order)) =
            (entry, spot.level.leaf_order())
        else {
            return false;
        };
        if spot.node.state().dead() || access == Access::Write && !flags.write {
            return false;
        }
        let pfn = first.add(va.page() & (order.frames() - 1));
        match bytes {
            Direction::Out(bytes) => m.read_bytes(pfn, va.offset(), bytes),
            // A fork may be under way. Where the leaf gives writes it has yet to come by, and the
            // frame will be the child's, too, with these bytes; where it has been it gives none,
            // and a fault waits for it.
            Direction::In(bytes) => {
                m.write_bytes(pfn, va.offset(), bytes);
                // The page is as dirty as if the program had written it.
                self.exchange(spot.at, |entry| match entry.flags() {
                    Some(flags) if !flags.dirty => {
                        let flags = Flags { accessed: true, dirty: true, ..flags };
                        Some(M::Codec::encode(entry.with_flags(flags), spot.level))
                    }
                    _ => None,
                });
            }
        }
        true
    }
}
