//! Index shifts: where a space sees pages at other addresses than their index.
//!
//! A frame's index is fixed for life: the page number at which it was first touched, plus its
//! region's shift. An address shows an index by identity, or by one of the shifts on the space's
//! list; whoever looks for a frame's mappings tries them all. One entry is made per distance a
//! remap moves pages, and fork copies the list, so remap touches no record.
//!
//! The list is a chain of 64-byte objects, seven shifts each; a shift is added once. A remap does
//! not take the shift of the old place off, since other regions may have it. Instead, when enough
//! were added to pay for the search, the verb makes a new list of those that regions have
//! (`ops/remap/live_shifts.rs`). So the list is as long as the space has moved regions, and not as
//! long as its history.

use crate::error::NoMemory;
use crate::frame::SlabRef;
use crate::machine::Machine;
use crate::platform::over;
use crate::rmap::Rmap;
use crate::space::SpaceRecord;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Above, Family, Queue, Token};

/// Seven shifts, 0 for none (no shift is 0: that is identity).
#[repr(C)]
pub(crate) struct ShiftList {
    next: AtomicU64,
    shifts: [AtomicU64; 7],
}

/// The lists themselves.
pub(crate) struct ShiftLists<'v, M: Machine>(pub &'v Rmap<M>);

over!(ShiftLists, Rmap);

impl<'v, M: Machine> ShiftLists<'v, M> {
    fn node(self, handle: SlabRef) -> &'v ShiftList {
        // SAFETY: names on a list are objects of 64 bytes that were zero at first, and live while
        // they are on it; nobody who walks a list is at one that leaves (`exchange`).
        unsafe { handle.ptr(&self.0.machine).cast::<ShiftList>().as_ref() }
    }

    /// Calls `each` with every shift of a list, until it says `false`.
    fn walk(self, list: &AtomicU64, mut each: impl FnMut(u64) -> bool) {
        let mut next = SlabRef::from_raw(list.load(Ordering::Acquire));
        while let Some(handle) = next {
            let node = self.node(handle);
            for shift in &node.shifts {
                let shift = shift.load(Ordering::Relaxed);
                if shift != 0 && !each(shift) {
                    return;
                }
            }
            next = SlabRef::from_raw(node.next.load(Ordering::Relaxed));
        }
    }

    /// Adds a shift to a list, as above; the list is the caller's alone, or a space's.
    pub fn add<H: Above<Queue>>(
        self,
        list: &AtomicU64,
        shift: u64,
        token: &mut Token<H>,
    ) -> Result<bool, NoMemory> {
        let mut known = shift == 0;
        self.walk(list, |other| {
            known |= other == shift;
            !known
        });
        if known {
            return Ok(false);
        }
        self.push(list, shift, token).map(|()| true)
    }

    /// Puts a shift on a list that does not have it.
    fn push<H: Above<Queue>>(
        self,
        list: &AtomicU64,
        shift: u64,
        token: &mut Token<H>,
    ) -> Result<(), NoMemory> {
        let first = list.load(Ordering::Relaxed);
        if let Some(handle) = SlabRef::from_raw(first)
            && let Some(free) =
                self.node(handle).shifts.iter().find(|s| s.load(Ordering::Relaxed) == 0)
        {
            free.store(shift, Ordering::Release);
            return Ok(());
        }
        let handle = self.small.alloc(&self.machine, &self.frames, token)?;
        let node = self.node(handle);
        node.next.store(first, Ordering::Relaxed);
        node.shifts[0].store(shift, Ordering::Relaxed);
        list.store(handle.raw(), Ordering::Release);
        Ok(())
    }

    /// Lets the space's list begin with another object; gives the one that was first. Whoever
    /// holds the family's lock may be walking the list, so nobody is at what leaves it.
    fn exchange<H: Above<Family>>(
        self,
        space: &SpaceRecord,
        first: u64,
        token: &mut Token<H>,
    ) -> u64 {
        let family = SlabRef::from_raw(space.family.load(Ordering::Relaxed));
        let lock = family.map(|family| (self.family(family).lock(), family.raw()));
        let _guard = lock.map(|(lock, key)| lock.lock(&self.machine, token, key));
        space.shifted.swap(first, Ordering::AcqRel)
    }

    /// Frees a list that nobody else walks.
    pub fn drop_list<H: Above<Queue>>(self, list: &AtomicU64, token: &mut Token<H>) {
        let mut next = SlabRef::from_raw(list.swap(0, Ordering::AcqRel));
        while let Some(handle) = next {
            next = SlabRef::from_raw(self.node(handle).next.load(Ordering::Relaxed));
            self.small.free(&self.machine, &self.frames, token, handle);
        }
    }
}

impl<M: Machine> Rmap<M> {
    /// Calls `each` with every shift of the space but identity, until it says `false`. Under the
    /// mmap lock, or the family's lock.
    pub(crate) fn shifts(&self, space: &SpaceRecord, each: impl FnMut(u64) -> bool) {
        ShiftLists(self).walk(&space.shifted, each);
    }

    /// Adds a shift if it is not known, and says whether it did. Under the mmap lock.
    pub(crate) fn add_shift<H: Above<Queue>>(
        &self,
        space: &SpaceRecord,
        shift: u64,
        token: &mut Token<H>,
    ) -> Result<bool, NoMemory> {
        let added = ShiftLists(self).add(&space.shifted, shift, token)?;
        if added {
            let count = space.shifts_added.load(Ordering::Relaxed);
            space.shifts_added.store(count.saturating_add(1), Ordering::Relaxed);
        }
        Ok(added)
    }

    /// Gives the space another list, which has every shift that a region of it has; the old one is
    /// freed. Under the mmap lock.
    pub(crate) fn replace_shifts<H: Above<Family> + Above<Queue>>(
        &self,
        space: &SpaceRecord,
        list: &AtomicU64,
        token: &mut Token<H>,
    ) {
        let old = ShiftLists(self).exchange(space, list.load(Ordering::Relaxed), token);
        ShiftLists(self).drop_list(&AtomicU64::new(old), token);
    }

    /// Takes a shift back that was added by a verb that failed before it moved anything. Under the
    /// mmap lock.
    pub(crate) fn undo_shift<H: Above<Family> + Above<Queue>>(
        &self,
        space: &SpaceRecord,
        shift: u64,
        token: &mut Token<H>,
    ) {
        let lists = ShiftLists(self);
        let is = |wanted: u64| move |cell: &&AtomicU64| cell.load(Ordering::Relaxed) == wanted;
        let mut next = SlabRef::from_raw(space.shifted.load(Ordering::Relaxed));
        while let Some(handle) = next {
            if let Some(cell) = lists.node(handle).shifts.iter().find(is(shift)) {
                cell.store(0, Ordering::Release);
                break;
            }
            next = SlabRef::from_raw(lists.node(handle).next.load(Ordering::Relaxed));
        }
        // Nodes were added in front.
        while let Some(handle) = self.unlink_empty(space, token) {
            self.small.free(&self.machine, &self.frames, token, handle);
        }
    }

    /// Takes the first node off the list if no shift is in it.
    fn unlink_empty<H: Above<Family>>(
        &self,
        space: &SpaceRecord,
        token: &mut Token<H>,
    ) -> Option<SlabRef> {
        let handle = SlabRef::from_raw(space.shifted.load(Ordering::Relaxed))?;
        let node = ShiftLists(self).node(handle);
        if node.shifts.iter().any(|cell| cell.load(Ordering::Relaxed) != 0) {
            return None;
        }
        ShiftLists(self).exchange(space, node.next.load(Ordering::Relaxed), token);
        Some(handle)
    }

    /// Gives `to`, which has none, every shift of `from`, and what is known of those that no region
    /// has: the child's first remap need not look for them all.
    pub(crate) fn copy_shifts<H: Above<Queue>>(
        &self,
        from: &SpaceRecord,
        to: &SpaceRecord,
        token: &mut Token<H>,
    ) -> Result<(), NoMemory> {
        let mut done = Ok(());
        self.shifts(from, |shift| {
            done = ShiftLists(self).push(&to.shifted, shift, token);
            done.is_ok()
        });
        for (from, to) in
            [(&from.shifts_added, &to.shifts_added), (&from.shifts_due, &to.shifts_due)]
        {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        done
    }

    /// Frees the space's list.
    pub(crate) fn drop_shifts<H: Above<Queue>>(&self, space: &SpaceRecord, token: &mut Token<H>) {
        ShiftLists(self).drop_list(&space.shifted, token);
    }
}
