//! Families: the spaces that come from one by forks, and may share its frames.

use crate::error::{Invalid, NoMemory, ensure};
use crate::frame::SlabRef;
use crate::machine::Machine;
use crate::rmap::Rmap;
use crate::space::{MAX_SPACES, Space, SpaceRecord};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{self, Above, Family, Lock, Token};

/// The spaces that come from one by forks.
#[repr(C)]
pub(crate) struct ForkFamily {
    lock: AtomicU32,
    /// Spaces on the list: all there are, at most.
    members: AtomicU32,
    /// The first space's handle; the others follow by `SpaceRecord::sibling`.
    first: AtomicU64,
    /// Spaces that name the family: those on the list, and those that left it and may still have
    /// regions whose attachments name it. Under the lock.
    names: AtomicU64,
}

const _: () = assert!(MAX_SPACES <= u32::MAX as u64);

impl ForkFamily {
    pub(super) fn lock(&self) -> &Lock<Family> {
        Lock::from_word(&self.lock)
    }
}

impl<M: Machine> Rmap<M> {
    /// The first space of a family. Under the family's lock.
    pub(super) fn first_member(&self, family: &ForkFamily) -> Option<&SpaceRecord> {
        SlabRef::from_raw(family.first.load(Ordering::Relaxed))
            .map(|handle| self.space_record(handle))
    }

    /// The space after one on its family's list. Under the family's lock.
    pub(super) fn sibling(&self, space: &SpaceRecord) -> Option<&SpaceRecord> {
        SlabRef::from_raw(space.sibling.load(Ordering::Relaxed))
            .map(|handle| self.space_record(handle))
    }

    pub(super) fn family(&self, handle: SlabRef) -> &ForkFamily {
        // SAFETY: families are slab objects of 64 bytes, zero at first, that live while a space
        // names them.
        unsafe { handle.ptr(&self.machine).cast::<ForkFamily>().as_ref() }
    }

    pub(super) fn space_record(&self, handle: SlabRef) -> &SpaceRecord {
        // SAFETY: spaces on a family's list live until they leave it under the family's lock, which
        // the caller holds.
        unsafe { handle.ptr(&self.machine).cast::<SpaceRecord>().as_ref() }
    }

    /// Puts the child on the parent's family list, making the family if there is none; says whether
    /// it did.
    pub fn join_family<H>(
        &self,
        parent: &Space,
        child: &Space,
        token: &mut Token<H>,
    ) -> Result<(SlabRef, bool), NoMemory>
    where
        H: Above<Family> + Above<sync::Queue>,
    {
        let m = &self.machine;
        let record = self.record_of(parent);
        let known = SlabRef::from_raw(record.family.load(Ordering::Relaxed));
        let handle = match known {
            Some(handle) => handle,
            None => {
                let handle = self.small.alloc(m, &self.frames, token)?;
                let family = self.family(handle);
                family.first.store(parent.handle.raw(), Ordering::Relaxed);
                family.members.store(1, Ordering::Relaxed);
                family.names.store(1, Ordering::Relaxed);
                record.family.store(handle.raw(), Ordering::Release);
                handle
            }
        };
        let family = self.family(handle);
        let _guard = family.lock().lock(m, token, handle.raw());
        let other = self.record_of(child);
        other.family.store(handle.raw(), Ordering::Relaxed);
        if let Some(first) = self.first_member(family) {
            first.before.store(child.handle.raw(), Ordering::Relaxed);
        }
        other.sibling.store(family.first.load(Ordering::Relaxed), Ordering::Relaxed);
        family.first.store(child.handle.raw(), Ordering::Release);
        family.members.store(family.members.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        family.names.store(family.names.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Ok((handle, known.is_none()))
    }

    /// The opposite of [`join_family`](Rmap::join_family), for a child that shares nothing yet.
    pub fn undo_join_family(
        &self,
        parent: &Space,
        child: &Space,
        (handle, made): (SlabRef, bool),
        token: &mut Token<sync::MmapLock>,
    ) {
        self.leave_family(child, token);
        self.drop_family(self.record_of(child), token);
        if made {
            // No page was shared, so none names the family as its owner, and no attachment does.
            self.record_of(parent).family.store(0, Ordering::Relaxed);
            self.small.free(&self.machine, &self.frames, token, handle);
        }
    }

    /// Whether every family has as many members on its list as it says, chained both ways, and
    /// every space that names it is one. If they are all the spaces there are, they are all found.
    pub(crate) fn check_families(&self, spaces: &[&Space], all: bool) -> Result<(), Invalid> {
        let (mut named, mut listed) = (0, 0);
        for space in spaces {
            let record = self.record_of(space);
            let Some(handle) = SlabRef::from_raw(record.family.load(Ordering::Relaxed)) else {
                continue;
            };
            named += 1;
            let family = self.family(handle);
            // Each family once: by the member its list begins with.
            if family.first.load(Ordering::Relaxed) != space.handle.raw() {
                continue;
            }
            let members = family.members.load(Ordering::Relaxed) as u64;
            let (mut at, mut before, mut found) = (Some(space.handle), 0, 0);
            while let Some(here) = at
                && found <= members
            {
                let other = self.space_record(here);
                let own = other.family.load(Ordering::Relaxed);
                ensure(own == handle.raw(), "a member of a fork family", handle.raw(), 1, 0)?;
                let told = other.before.load(Ordering::Relaxed);
                ensure(told == before, "a neighbour in a fork family", handle.raw(), before, told)?;
                found += 1;
                (before, at) =
                    (here.raw(), SlabRef::from_raw(other.sibling.load(Ordering::Relaxed)));
            }
            ensure(found == members, "members of a fork family", handle.raw(), members, found)?;
            listed += found;
        }
        ensure(!all || named == listed, "spaces of fork families", 0, named, listed)
    }

    /// Takes a space off its family's list.
    pub(crate) fn leave_family<H: Above<Family>>(&self, space: &Space, top: &mut Token<H>) {
        let m = &self.machine;
        let Some(handle) = SlabRef::from_raw(self.record_of(space).family.load(Ordering::Relaxed))
        else {
            return;
        };
        let family = self.family(handle);
        let _guard = family.lock().lock(m, top, handle.raw());
        let record = self.record_of(space);
        let (before, next) = (record.before.load(Ordering::Relaxed), self.sibling(record));
        let link = match SlabRef::from_raw(before) {
            Some(before) => &self.space_record(before).sibling,
            None => &family.first,
        };
        link.store(record.sibling.load(Ordering::Relaxed), Ordering::Relaxed);
        if let Some(next) = next {
            next.before.store(before, Ordering::Relaxed);
        }
        family.members.store(family.members.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    /// A space that has left its family has no region any more; the last one takes the family
    /// along.
    pub(crate) fn drop_family<H>(&self, space: &SpaceRecord, top: &mut Token<H>)
    where
        H: Above<Family> + Above<sync::Queue>,
    {
        let m = &self.machine;
        let Some(handle) = SlabRef::from_raw(space.family.swap(0, Ordering::Relaxed)) else {
            return;
        };
        let family = self.family(handle);
        let last = {
            let _guard = family.lock().lock(m, top, handle.raw());
            let names = family.names.load(Ordering::Relaxed) - 1;
            family.names.store(names, Ordering::Relaxed);
            names == 0
        };
        if last {
            self.small.free(m, &self.frames, top, handle);
        }
    }
}
