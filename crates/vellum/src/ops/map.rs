//! Promising pages to a range.

use crate::addr::{Level, Order, PAGE_SHIFT, PAGE_SIZE, Va, VaRange};
use crate::entry::Entry;
use crate::error::{NoMemory, RangeError, SpaceError};
use crate::fault::Faults;
use crate::frame::SlabRef;
use crate::machine::{Machine, Verb, Work};
use crate::object::{INDEX_END, ObjectPart, Source};
use crate::ops::unmap::Leftover;
use crate::ops::unmap::Unmap;
use crate::pagetable::cursor::Cursor;
use crate::platform::over;
use crate::rmap::attachment::Attach;
use crate::space::attrs::ViewKind;
use crate::space::{Attrs, Backing, LeafSize, Placement, Space, SpaceRecord, View};
use crate::sync::atomic::Ordering;
use crate::sync::{MmapLock, Token};
use crate::vma::edit::Edit;
use crate::vma::find_hole::{FindHole, LOWEST};
use crate::vma::interval::undo::Undo;

pub(crate) struct Map<'v, M: Machine>(pub &'v Faults<M>);

over!(Map, Faults);

impl<M: Machine> Map<'_, M> {
    /// `Vm::map`.
    pub fn map(
        self,
        space: &Space,
        at: Placement,
        bytes: u64,
        attrs: Attrs,
    ) -> Result<Va, SpaceError> {
        self.verb_with_memory(Verb::Map, || {
            let align = self.leaf_align(attrs.leaf)?;
            if bytes & (align - 1) != 0 && bytes & 0xfff == 0 {
                return Err(SpaceError::LeafSize);
            }
            let record = self.record_of(space);
            self.edit(record, |edit| {
                let range = self.place(record, at, bytes, align)?;
                let (region, made) = self.latest_region(record, attrs, edit.token)?;
                let mapped = self.map_range(edit, range, region, at);
                if made {
                    self.keep_region(&record.latest, region, mapped.is_ok(), edit.deferred);
                }
                mapped?;
                if at == Placement::Anywhere
                    && align == Order::BASE.bytes()
                    && bytes < Order::HUGE.bytes()
                {
                    record.found_hole(bytes, range.start());
                }
                Ok(range.start())
            })
        })
    }

    /// `Vm::map_object`.
    pub fn map_object(
        self,
        space: &Space,
        at: Placement,
        bytes: u64,
        attrs: Attrs,
        part: ObjectPart<'_>,
    ) -> Result<Va, SpaceError> {
        self.map_view(space, (at, bytes), attrs, part, None)
    }

    /// `Vm::map_private`.
    pub fn map_private(
        self,
        space: &Space,
        at: Placement,
        bytes: u64,
        attrs: Attrs,
        part: ObjectPart<'_>,
    ) -> Result<Va, SpaceError> {
        self.map_view(space, (at, bytes), attrs, part, Some(0))
    }

    /// Both; `copies` is the index shift of private copies.
    fn map_view(
        self,
        space: &Space,
        (at, bytes): (Placement, u64),
        attrs: Attrs,
        part: ObjectPart<'_>,
        copies: Option<u64>,
    ) -> Result<Va, SpaceError> {
        self.verb_with_memory(Verb::Map, || {
            let object = part.object.handle;
            let device = self.record_of_object(part.object).device();
            let (first, pages) = (part.offset >> PAGE_SHIFT, bytes.div_ceil(PAGE_SIZE as u64));
            // A device becomes no longer.
            let most = device.map_or(INDEX_END, |memory| memory.bytes >> PAGE_SHIFT);
            if part.offset & (PAGE_SIZE as u64 - 1) != 0
                || first.checked_add(pages).is_none_or(|end| end > most)
            {
                return Err(SpaceError::Part);
            }
            if self.record_of_object(part.object).is_kernels() {
                return Err(SpaceError::Kernel);
            }
            if device.is_some() && copies.is_some() {
                return Err(SpaceError::Device);
            }
            let kind = self.kind_of(object, copies);
            let is_sealed = self.record_of_object(part.object).attachments.is_sealed();
            let writes = attrs.pack().with_object(kind).writes_object();
            if !kind.may_give(attrs.rights) || is_sealed && writes {
                return Err(SpaceError::Rights);
            }
            // No object promises blocks of 2 MiB everywhere.
            if !matches!(attrs.leaf, LeafSize::Policy | LeafSize::Exactly(Order::BASE)) {
                return Err(SpaceError::LeafSize);
            }
            let record = self.record_of(space);
            self.edit(record, |edit| {
                let range = self.place(record, at, bytes, Order::BASE.bytes())?;
                let shift = first.wrapping_sub(range.start().page());
                let view = View { object, shift, copies };
                let beside = (!matches!(at, Placement::Replace(_))).then_some(range);
                let region = self.view_region(edit, attrs, (view, beside))?;
                record.note_object();
                let mapped = self.map_range(edit, range, region, at);
                self.drop_region(region, edit.deferred);
                mapped?;
                Ok(range.start())
            })
        })
    }

    /// A region that shows an object, with one reference, the caller's. `beside`: where it will
    /// be; if the mapping beside that is the same one, the region is of the same attachment, and
    /// says the same. `None` if something is taken out there first: room for intervals is made
    /// before that by what they say, and those that nothing is mapped by any more go with it.
    pub(super) fn view_region(
        self,
        edit: &mut Edit<'_>,
        attrs: Attrs,
        (View { object, shift, copies }, beside): (View, Option<VaRange>),
    ) -> Result<SlabRef, NoMemory> {
        let known = beside.and_then(|at| self.attachment_beside(edit.space, at, (object, shift)));
        let attachment = match known {
            Some(known) => known,
            None => Attach(self.0).attach(edit.space, object, shift, edit.token)?,
        };
        let kind = self.kind_of(object, copies);
        let attachment = Some(attachment);
        let backing = Backing { shift: copies.unwrap_or(0), attachment, kind };
        let made = self.make_region(attrs, backing, edit.token);
        // The region names it, or nobody does.
        attachment.into_iter().for_each(|name| Attach(self.0).unattach(name, edit.token));
        made
    }

    /// The attachment of a mapping that ends where a range begins, or begins where it ends, if it
    /// shows the object at that shift; named once more.
    fn attachment_beside(
        self,
        space: &SpaceRecord,
        range: VaRange,
        shown: (SlabRef, u64),
    ) -> Option<SlabRef> {
        if !space.maps_objects() {
            return None;
        }
        let before = Va(range.start().0.wrapping_sub(PAGE_SIZE as u64));
        let beside = [before, range.end()].into_iter().filter(|&va| va < self.user_end());
        let known = beside.filter_map(|va| {
            let region = self.region(self.0.descend(space, va).region?);
            region.attachment().filter(|_| region.object_at(Va(0)) == Some(shown))
        });
        known.take(1).inspect(|&known| Attach(self.0).attachment(known).share()).next()
    }

    /// What a write does through a view of an object.
    fn kind_of(self, object: SlabRef, copies: Option<u64>) -> ViewKind {
        match (copies, self.object(object).source()) {
            (Some(_), _) => ViewKind::Private,
            (None, Source::Zeros { logged: false } | Source::Kernel) => ViewKind::Shared,
            (None, Source::Zeros { logged: true } | Source::Pager(_)) => ViewKind::Tracked,
            (None, Source::Device(memory)) => ViewKind::Device { writable: memory.writable },
        }
    }

    /// What start and length of a mapping must be multiples of.
    fn leaf_align(self, leaf: LeafSize) -> Result<u64, SpaceError> {
        match leaf {
            LeafSize::Policy => Ok(Order::BASE.bytes()),
            LeafSize::Exactly(order)
                if [Order::BASE, Order::HUGE, Order::GIANT].contains(&order) =>
            {
                if order <= self.rules.max_leaf {
                    Ok(order.bytes())
                } else {
                    Err(SpaceError::LeafSize)
                }
            }
            LeafSize::Exactly(_) => Err(SpaceError::LeafSize),
        }
    }

    /// The range a placement means. Under the mmap lock.
    pub(super) fn place(
        self,
        space: &SpaceRecord,
        at: Placement,
        bytes: u64,
        align: u64,
    ) -> Result<VaRange, SpaceError> {
        let end = self.user_end();
        let start = match at {
            Placement::At(start) | Placement::Replace(start) => start,
            Placement::Anywhere => {
                // An impossible length is told before a hole for it is looked for.
                VaRange::new(Va(0), bytes, end).map_err(|error| match error {
                    RangeError::OutOfSpace => SpaceError::NoHole,
                    error => SpaceError::Range(error),
                })?;
                let align = if bytes >= Order::HUGE.bytes() {
                    align.max(Order::HUGE.bytes())
                } else {
                    align
                };
                FindHole(self.0).highest(space, bytes, align).ok_or(SpaceError::NoHole)?
            }
        };
        let range = VaRange::new(start, bytes, end)?;
        if start.0 < LOWEST {
            return Err(SpaceError::Range(RangeError::TooLow));
        }
        if !start.is_aligned(align) {
            return Err(SpaceError::LeafSize);
        }
        if matches!(at, Placement::At(_)) && !self.is_hole(space, range) {
            return Err(SpaceError::Occupied);
        }
        Ok(range)
    }

    /// The region for new mappings with those attributes: the one made last, if it is alike, of
    /// which the space keeps a reference and the caller gets none; else a new one, and `true`.
    #[inline]
    fn latest_region(
        self,
        space: &SpaceRecord,
        attrs: Attrs,
        token: &mut Token<MmapLock>,
    ) -> Result<(SlabRef, bool), NoMemory> {
        match SlabRef::from_raw(space.latest.load(Ordering::Relaxed)) {
            Some(latest) if self.region(latest).is_plain(attrs) => Ok((latest, false)),
            _ => self.make_region(attrs, Backing::anonymous(0), token).map(|made| (made, true)),
        }
    }

    /// Gives a range, a hole unless it is to be replaced, to a region the caller keeps a reference
    /// to.
    pub(super) fn map_range(
        self,
        edit: &mut Edit<'_>,
        range: VaRange,
        region: SlabRef,
        at: Placement,
    ) -> Result<(), NoMemory> {
        if self.map_in_table(edit, range, region)? {
            return Ok(());
        }
        self.map_anywhere(edit, range, region, at)
    }

    #[inline(never)]
    fn map_anywhere(
        self,
        edit: &mut Edit<'_>,
        range: VaRange,
        region: SlabRef,
        at: Placement,
    ) -> Result<(), NoMemory> {
        let mut undo = Undo::new();
        let room = self.make_room(edit, range, region, &mut undo);
        let ready = room.and_then(|()| self.make_boundaries(edit.space, range, true));
        self.end_exchanges(undo, ready.is_ok(), edit);
        ready?;
        if matches!(at, Placement::Replace(_)) {
            Unmap(self.0).take_out(edit, range, Leftover::Edges);
        }
        self.assign(edit, range, region);
        self.reserve(self.root(edit.space), range);
        Ok(())
    }

    /// Writes a reserved entry into every slot of an open range, which has nothing.
    fn reserve(self, at: Cursor<'_>, range: VaRange) {
        let m = &self.machine;
        let (node, level) = (at.node, at.level);
        let p = at.part(range);
        if p.whole_first < p.whole_end {
            let mut top = Token::top();
            let _guard = node.lock(m, &mut top);
            for slot in p.whole_first..p.whole_end {
                self.store(node.pfn, slot, level, Entry::Reserved);
            }
            let slots = (p.whole_end - p.whole_first) as u64;
            m.work(Work::Entry, slots);
            node.set_state(node.state().with_count(node.state().count() + slots));
        }
        for slot in p.ends() {
            if !p.covers(slot)
                && level > Level::ONE
                && let Entry::Table(child) = self.load(node.pfn, slot, level)
            {
                self.reserve(at.below(slot, self.node(child)), range);
            }
        }
    }
}
