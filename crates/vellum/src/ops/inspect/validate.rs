//! Everything recounted.
//!
//! What is kept (counts, bounds, parents, intervals, references, map counts, owners) is compared
//! with what a walk of every table finds. Counting needs a place per frame and per region; it uses
//! words that mean nothing while the system is at rest.

use crate::addr::{ENTRIES, Level, Order, PAGE_SHIFT, Pfn, Va};
use crate::entry::{Entry, Flags};
use crate::error::{Invalid, ensure};
use crate::fault::Faults;
use crate::frame::{Data, Owner, SlabRef};
use crate::machine::{Machine, Use};
use crate::object::{BLOCK_PAGES, FindPage, PageMark, Present, Tries};
use crate::ops::inspect::usage::CountUsage;
use crate::ops::spaces::fork::Fork;
use crate::pagetable::node::{Node, full_run};
use crate::platform::over;
use crate::rmap::attachment::Attach;
use crate::space::attrs::Packed;
use crate::space::{Access, Audit, MAX_SPACES, Space, SpaceRecord, Usage};
use crate::stats::Counter;
use crate::sync::Token;
use crate::sync::atomic::Ordering;
use crate::vma::find_hole::FindHole;
use crate::vma::region::{COUNTING, Region};

/// What a leaf of 2 MiB adds to what is counted of a block of an object, of which entries of 4 KiB
/// map the first page, too.
const LEAF: u64 = 1 << 32;

/// The free pages of a node's span: at its low end, at its high end, and the longest run.
struct Holes {
    low: u64,
    high: u64,
    longest: u64,
}

/// Which of the passes over the tables this is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Structure is checked, references and mappings are counted.
    Count,
    /// Counts are compared, and the places counted in cleared.
    Compare,
}

pub(crate) struct Validate<'v, M: Machine>(pub &'v Faults<M>);

over!(Validate, Faults);

impl<M: Machine> Validate<'_, M> {
    /// `Vm::validate`.
    ///
    /// # Safety
    /// As for `Vm::validate`.
    pub unsafe fn validate(self, spaces: &[&Space]) -> Result<Audit, Invalid> {
        let m = &self.machine;
        let all = self.spaces.objects() == spaces.len() as u64;
        let mut audit = Audit::default();
        let there = self.spaces.objects();
        ensure(there <= MAX_SPACES, "spaces there are", 0, MAX_SPACES, there)?;
        for pass in [Pass::Count, Pass::Compare] {
            for space in spaces {
                let record = self.record_of(space);
                if pass == Pass::Count {
                    let is_so = |sentence, what| ensure(sentence, what, space.id(), 1, 0);
                    let right = FindHole(self.0).cache_is_right(record);
                    is_so(right, "no hole above the end of the search cache")?;
                    is_so(!record.faults_stopped(), "faults are stopped at rest")?;
                    self.check_active(space)?;
                    CountUsage(self.0).usage_of(record.root(), self.top(), &mut audit.usage);
                }
                for kept in [&record.latest, &record.changed] {
                    self.count_handle(SlabRef::from_raw(kept.load(Ordering::Relaxed)), pass, all)?;
                }
                let mut walk = Walk { record, pass, all, audit: &mut audit };
                self.check_node(&mut walk, self.node(record.root()), self.top(), None, 0)?;
            }
        }
        self.check_objects(all, &mut audit)?;
        audit.table_frames = audit.usage.table_nodes;
        for slab in self.slabs() {
            audit.slab_frames += slab.validate(&self.frames)?.pages;
        }
        audit.slab_frames += self.large_nodes();
        audit.zero_frames = self.check_zeros()?;
        audit.zero_frames +=
            self.huge_zero().map_or(0, |_| Order::HUGE.frames()) + self.check_zero_tables()?;
        self.check_huge_zero(spaces, all)?;
        self.check_resident(&audit.usage, all)?;
        self.check_asids(spaces, all)?;
        Fork(self.0).check_families(spaces, all)?;
        for cpu in 0..self.cpus {
            let depth = self.epochs.depth(cpu);
            ensure(depth == 0, "readers inside an epoch at rest", cpu as u64, 0, depth)?;
        }
        ensure(self.hands.at_work() == 0, "memory in hand at rest", 0, 0, self.hands.at_work())?;
        // SAFETY: no other call on this `Vm` runs, by the caller's promise.
        let frames = unsafe { self.frames.validate(m)? };
        audit.free_frames = frames.free + frames.cached;
        let broken = Invalid::new("a pool's chain and its count differ", 0, 0, 0);
        audit.pool_frames = self.pooled_frames().ok_or(broken)?;
        audit.poisoned_frames = self.stats().get(Counter::FramesPoisoned) as u64;
        let kernels =
            audit.table_frames + audit.slab_frames + audit.zero_frames + audit.pool_frames;
        let known = audit.data_frames + kernels + audit.poisoned_frames;
        ensure(frames.used >= known, "frames in use and not allocated", 0, known, frames.used)?;
        audit.other_frames = frames.used - known;
        Ok(audit)
    }

    /// The gauges of what spaces map, against what the walk has found.
    fn check_resident(self, found: &Usage, all: bool) -> Result<(), Invalid> {
        if !all {
            return Ok(());
        }
        let (stats, huge) = (self.stats(), Order::HUGE.frames() as i64);
        let anonymous = stats.get(Counter::AnonPages) + stats.get(Counter::AnonHuge) * huge;
        let found_anonymous = found.rss_pages - found.shared_pages;
        let sentence = "anonymous pages mapped";
        ensure(
            anonymous as u64 == found_anonymous,
            sentence,
            0,
            anonymous as u64,
            found_anonymous,
        )?;
        let kept = stats.get(Counter::ObjectRss) as u64;
        ensure(kept == found.shared_pages, "pages of objects mapped", 0, kept, found.shared_pages)
    }

    /// The references to the huge page of zeros are the shrinker's and one of each space that used
    /// it.
    fn check_huge_zero(self, spaces: &[&Space], all: bool) -> Result<(), Invalid> {
        let Some(page) = self.huge_zero() else { return Ok(()) };
        let found =
            1 + spaces.iter().filter(|space| self.holds_huge_zero(self.record_of(space))).count()
                as u64;
        let kept = self.huge_zero_references();
        let right = found == kept || !all && found < kept;
        ensure(right, "references to the huge page of zeros", page.0, kept, found)?;
        let (use_, order) = (self.frames.record(page).use_(), self.frames.record(page).order());
        let right = (use_, order) == (Use::Zero, Order::HUGE);
        ensure(right, "the huge page of zeros' use", page.0, Use::Zero as u64, use_ as u64)
    }

    /// Counts one reference to a region, or compares.
    fn count_handle(self, handle: Option<SlabRef>, pass: Pass, all: bool) -> Result<(), Invalid> {
        let Some(handle) = handle else { return Ok(()) };
        let region = self.region(handle);
        if pass == Pass::Count {
            let attrs = region.attrs().pack();
            let Packed(kept) = region.packed();
            let kind = region.packed().view_kind();
            let has_object = region.attachment().is_some();
            let packed = if has_object { attrs.with_object(kind).0 } else { attrs.0 };
            ensure(kept == packed, "attributes of a region", handle.raw(), kept, packed)?;
            if !region.counting() && region.packed().writes_object() {
                region.attachment().inspect(|&at| Attach(self.0).users_of(at).note_writer());
            }
            region.set_replaces(if region.counting() {
                region.replaces() + 1
            } else {
                COUNTING + 1
            });
            return Ok(());
        }
        if region.counting() {
            let found = region.replaces() - COUNTING;
            region.set_replaces(0);
            let kept = region.refs.load(Ordering::Relaxed);
            let right = found == kept || !all && found < kept;
            ensure(right, "references to a region", handle.raw(), kept, found)?;
        }
        Ok(())
    }

    fn check_node(
        self,
        walk: &mut Walk<'_>,
        node: Node<'_>,
        level: Level,
        parent: Option<(Pfn, usize)>,
        base: u64,
    ) -> Result<Holes, Invalid> {
        let at = node.pfn.0;
        let state = node.state();
        let check = |what, kept: u64, found: u64| {
            if kept == found { Ok(()) } else { Err(Invalid::new(what, at, kept, found)) }
        };
        check("a table's use", Use::Table as u64, self.frames.record(node.pfn).use_() as u64)?;
        check("a table's level", state.level().0 as u64, level.0 as u64)?;
        check("dead tables in a tree", 0, state.dead() as u64)?;
        check("entries in transit at rest", 0, node.transit())?;
        let number =
            |p: Option<(Pfn, usize)>| p.map_or(u64::MAX, |(pfn, slot)| pfn.0 << 9 | slot as u64);
        check("spare bits of a table's record", 0, node.spare())?;
        check("a table's parent", number(node.parent()), number(parent))?;
        let mut named = Ok(());
        let ordered = self.intervals(node).check(|handle| {
            if named.is_ok() {
                named = self.count_handle(Some(handle), walk.pass, walk.all);
            }
        });
        named?;
        check("intervals in order, and no more than fit", 1, ordered as u64)?;
        let (mut count, mut resident) = (0, 0);
        let mut holes = Holes { low: 0, high: 0, longest: 0 };
        // Pages seen so far are all free.
        let mut untouched = true;
        for slot in 0..ENTRIES {
            let va = base + ((slot as u64) << level.shift());
            if va >= self.user_end().0 {
                // The kernel's half, or what stays empty before it.
                break;
            }
            let entry = self.load(node.pfn, slot, level);
            let pages = (self.user_end().0 - va).min(level.entry_bytes()) >> PAGE_SHIFT;
            count += u64::from(entry != Entry::Empty);
            resident += u64::from(Fork(self.0).is_page(entry));
            let inner = match entry {
                Entry::Empty => Holes { low: pages, high: pages, longest: pages },
                Entry::Table(child) => {
                    let child = self.node(child);
                    let inner =
                        self.check_node(walk, child, level.child(), Some((node.pfn, slot)), va)?;
                    ensure(
                        child.state().count() != 0,
                        "entries of a table that is kept",
                        child.pfn.0,
                        1,
                        0,
                    )?;
                    inner
                }
                entry => {
                    self.check_entry(walk, entry, level, va)?;
                    Holes { low: 0, high: 0, longest: 0 }
                }
            };
            holes.longest = holes.longest.max(holes.high + inner.low).max(inner.longest);
            if untouched {
                holes.low += inner.low;
            }
            untouched &= inner.low == pages;
            holes.high = if inner.high == pages { holes.high + pages } else { inner.high };
        }
        check("a table's entries", state.count(), count)?;
        check("a table's resident pages", state.resident(), resident)?;
        let bounds = state.run() >= holes.longest.min(full_run(level));
        ensure(bounds, "a table's bound on holes", at, state.run(), holes.longest)?;
        Ok(holes)
    }

    fn check_entry(
        self,
        walk: &mut Walk<'_>,
        entry: Entry,
        level: Level,
        va: u64,
    ) -> Result<(), Invalid> {
        let is_so = |sentence, what| ensure(sentence, what, va, 1, 0);
        let region = self.descend(walk.record, Va(va)).region;
        let region = region.ok_or(Invalid::new("a region for what is mapped", va, 1, 0))?;
        let region = self.region(region);
        let (rights, takes_zeros) = (region.attrs().rights, walk.record.takes_zeros());
        let index = (va >> PAGE_SHIFT).wrapping_add(region.shift());
        match entry {
            Entry::Reserved => Ok(()),
            Entry::ZeroTable(table) => {
                let fits = level > Level::ONE && self.is_zero_table(table, level.child());
                let may_be = fits && !rights.is_none() && !rights.exec && takes_zeros;
                is_so(may_be, "a shared table of zeros where it may be")
            }
            Entry::Shared(pfn, flags) => self.check_shared(walk, (pfn, flags), region, (va, level)),
            Entry::Device(_, flags, _) => {
                let is_devices = Some(entry) == self.device_leaf(region, Va(va), level, flags);
                is_so(is_devices, "the device's memory, in its cache mode, where it is mapped")?;
                let right = !rights.is_none() && flags.write == rights.write && !flags.exec;
                is_so(right, "rights of a device's leaf")
            }
            // Only pages of the object, and none where nobody may access them.
            Entry::Leaf(..) | Entry::Inaccessible(_) if region.packed().is_shared_view() => {
                is_so(false, "a page of the object where one is mapped")
            }
            Entry::Leaf(pfn, _) if self.is_zero(pfn) && region.packed().has_object() => {
                is_so(false, "zeros where an object is mapped")
            }
            Entry::Leaf(pfn, flags) if self.is_zero(pfn) => {
                let fits = self.is_zero_leaf(pfn, level)
                    && (level == Level::ONE || self.huge_zero() == Some(pfn));
                let holds = level != Level::TWO || self.uses_huge_zero(walk.record);
                is_so(holds, "a space that maps the huge page of zeros holds it")?;
                let plain = fits && !flags.write && !flags.dirty && !rights.is_none();
                is_so(plain, "zeros nobody can write")?;
                is_so(takes_zeros, "zeros where they are forbidden")?;
                let right = level != Level::ONE || self.is_coloured(pfn, Va(va));
                ensure(right, "zeros of the address's colour", va, va >> PAGE_SHIFT, pfn.0)
            }
            Entry::Leaf(pfn, flags) => {
                let right = !rights.is_none() && (!flags.write || rights.write);
                let (given, has) = (rights.write as u64, flags.write as u64);
                let right = right && flags.exec == rights.exec;
                ensure(right, "rights of a leaf", va, given, has)?;
                let Some(order) = level.leaf_order() else { return Ok(()) };
                self.check_block(walk, pfn, order, index)?;
                self.check_shift(walk, region, va)?;
                let looked = flags.write && walk.pass == Pass::Count;
                let right = !looked || self.is_exclusive(pfn, order);
                ensure(right, "mappings of a writable page", va, 1, 2)
            }
            Entry::Inaccessible(pfn) => {
                is_so(rights.is_none(), "inaccessible pages where there are rights")?;
                self.check_shift(walk, region, va)?;
                let Some(order) = level.leaf_order() else { return Ok(()) };
                self.check_block(walk, pfn, order, index)
            }
            _ => Err(Invalid::new("entries in transit at rest", va, 0, 1)),
        }
    }

    /// Whoever goes from a page to its mappings tries the shift of the region that it is in.
    fn check_shift(self, walk: &Walk<'_>, region: &Region, va: u64) -> Result<(), Invalid> {
        let mut known = region.shift() == 0;
        self.shifts(walk.record, |shift| {
            known |= shift == region.shift();
            !known
        });
        ensure(known, "an index shift that the space knows", va, region.shift(), 0)
    }

    /// One mapping of a page of an object.
    fn check_shared(
        self,
        walk: &mut Walk<'_>,
        (pfn, flags): (Pfn, Flags),
        region: &Region,
        (va, level): (u64, Level),
    ) -> Result<(), Invalid> {
        let is_so = |sentence, what| ensure(sentence, what, va, 1, 0);
        let object = region.object_at(Va(va));
        let (object, index) =
            object.ok_or(Invalid::new("an object for a page of one", va, 1, 0))?;
        let rights = region.packed().object_rights();
        is_so(level <= Level::TWO, "the size of an object's page")?;
        is_so(!rights.is_none() && flags.exec == rights.exec, "rights of an object's page")?;
        if level == Level::TWO {
            is_so(flags.write == rights.write, "rights to write a block")?;
            return self.check_leaf_of_block(walk, (object, index), pfn, va);
        }
        self.check_object_page(object, index, pfn)?;
        let is_used = !Data::of(self.frames.record(pfn)).is_ahead();
        is_so(is_used, "a page that is mapped was used")?;
        let epoch = self.epochs.enter(&self.machine);
        let (there, dirty) = match FindPage(self.0).present(object, index, &epoch) {
            Present::Page { pfn, dirty, .. } => (pfn, dirty),
            Present::Block(pfn) => (pfn, false),
            _ => return Err(Invalid::new("an object has the page that is mapped", va, pfn.0, 0)),
        };
        ensure(there == pfn, "an object has the page that is mapped", va, pfn.0, there.0)?;
        let packed = region.packed();
        let noted = dirty && packed.is_tracked_view() && packed.allows(Access::Write);
        let right = flags.write == rights.write || flags.write && noted;
        is_so(right, "rights to write an object's page")?;
        if walk.pass == Pass::Count {
            let data = Data::of(self.frames.record(pfn));
            data.set_generation(data.generation() + 1);
        }
        Ok(())
    }

    /// One mapping of a block of an object as a whole.
    fn check_leaf_of_block(
        self,
        walk: &mut Walk<'_>,
        (object, index): (SlabRef, u64),
        first: Pfn,
        va: u64,
    ) -> Result<(), Invalid> {
        let is_so = |sentence, what| ensure(sentence, what, va, 1, 0);
        is_so(self.object(object).has_block(index), "a block that is mapped lies before the end")?;
        let data = Data::of(self.frames.record(first));
        is_so(data.is_block(), "a block where one is mapped")?;
        let epoch = self.epochs.enter(&self.machine);
        let found = FindPage(self.0).present(object, index, &epoch);
        is_so(matches!(found, Present::Block(pfn) if pfn == first), "an object has the block")?;
        if walk.pass == Pass::Count {
            data.set_generation(data.generation() + LEAF);
        }
        Ok(())
    }

    /// Every object's pages, mapped or not, and how often they were found mapped.
    fn check_objects(self, all: bool, audit: &mut Audit) -> Result<(), Invalid> {
        // Without a pager, with one, dirty; blocks without a pager, with one; the kernel's pages.
        let mut found = [0; 6];
        self.for_each_object(|handle, record| {
            let mut top = Token::top();
            let mut guard = Tries::new(self.0).lock(&record.trie, &mut top);
            guard.validate()?;
            let pages = guard.entries() + record.blocks() * (BLOCK_PAGES - 1);
            let mut cursor = guard.cursor();
            let mut next = cursor.lookup_ge(0);
            let (mut mapped, mut dirty, mut blocks) = (0, 0, 0);
            while let Some((index, entry)) = next {
                let pfn = entry.pfn();
                dirty += u64::from(entry.is_marked(PageMark::Dirty));
                let check = |right, what, kept, found| ensure(right, what, pfn.0, kept, found);
                check(index < record.pages(), "pages past an object's end", record.pages(), index)?;
                let data = Data::of(self.frames.record(pfn));
                let is_block = entry.order() != Order::BASE;
                check(data.is_block() == is_block, "a block of an object", 0, 1)?;
                let is_clean = !is_block || !entry.is_marked(PageMark::Dirty);
                check(is_clean, "a block is not dirty", 0, 1)?;
                let leaves =
                    if is_block { data.leaves().load(Ordering::Relaxed) * LEAF } else { 0 };
                blocks += u64::from(is_block);
                let records = if is_block && data.is_cut() { BLOCK_PAGES } else { 1 };
                for page in 0..records {
                    let kept = self.check_object_page(handle, index + page, pfn.add(page))?;
                    let kept = kept + if page == 0 { leaves } else { 0 };
                    let data = Data::of(self.frames.record(pfn.add(page)));
                    let seen = data.generation();
                    data.set_generation(0);
                    let fewer = seen % LEAF <= kept % LEAF && seen / LEAF <= kept / LEAF;
                    let right = seen == kept || !all && fewer;
                    check(right, "mappings of an object's page", kept, seen)?;
                    mapped += kept;
                }
                audit.object_frames += entry.order().frames();
                next = cursor.next_entry();
            }
            let (handle_of, kept) = (handle.raw(), record.blocks());
            ensure(kept == blocks, "blocks of an object", handle_of, kept, blocks)?;
            found[3 + record.pager().is_some() as usize] += blocks;
            let kind = if record.is_kernels() { 5 } else { record.pager().is_some() as usize };
            found[kind] += pages;
            found[2] += dirty;
            let kept = record.dirty();
            ensure(kept == dirty, "dirty pages of an object", handle.raw(), kept, dirty)?;
            let is_so = record.device().is_none() || pages == 0;
            ensure(is_so, "pages of a device", handle.raw(), 0, pages)?;
            let (kept, seen) = record.attachments.take_writers();
            let right = kept == seen || !all && seen < kept;
            ensure(right, "regions that give writes to an object", handle_of, kept, seen)?;
            let right = !record.seals().write || kept == 0 && record.attachments.is_sealed();
            ensure(right, "no region gives writes to what is sealed", handle_of, 0, kept)?;
            let attached = Attach(self.0).check_attachments(handle)?;
            ensure(
                mapped == 0 || attached != 0,
                "attachments of an object",
                handle.raw(),
                0,
                mapped,
            )
        })?;
        audit.data_frames += audit.object_frames;
        let stats = self.stats();
        let count = |counter| stats.get(counter) as u64;
        let [pages, file] = [Counter::ShmemPages, Counter::FilePages];
        let blocks = [Counter::ShmemHugePages, Counter::FileHugePages];
        let kernels = Counter::KernelPages;
        let kept = [pages, file, Counter::DirtyPages, blocks[0], blocks[1], kernels].map(count);
        let what = ["pages of objects without a pager", "pages of objects with one", "dirty pages"];
        let blocks = ["blocks of objects without a pager", "blocks of objects with one"];
        let kernels = "pages of objects of the kernel";
        let what = [what[0], what[1], what[2], blocks[0], blocks[1], kernels];
        for ((kept, found), what) in kept.into_iter().zip(found).zip(what) {
            ensure(kept == found, what, 0, kept, found)?;
        }
        Ok(())
    }

    /// One mapping of a block by a leaf of `order`, unit by unit.
    fn check_block(
        self,
        walk: &mut Walk<'_>,
        pfn: Pfn,
        order: Order,
        index: u64,
    ) -> Result<(), Invalid> {
        let mut first = 0;
        while first < order.frames() {
            let at = pfn.add(first);
            let check = |right, what, kept, found| ensure(right, what, at.0, kept, found);
            let record = self.frames.record(at);
            let use_ = record.use_();
            check(use_ == Use::Data, "a mapped frame's use", Use::Data as u64, use_ as u64)?;
            let (data, word) = (Data::of(record), record.words()[0]);
            check(data.is_in_bounds(), "a frame's map count, and what it was cut into", 0, word)?;
            let unit = self.unit_of(at);
            let (whole, cut) = (order.get() as u64, unit.get() as u64);
            check(unit <= order, "a block mapped in sub-blocks is split", whole, cut)?;
            if walk.pass == Pass::Count {
                data.set_generation(data.generation() + 1);
                let (kept, found) = (data.index(), index.wrapping_add(first));
                check(kept == found, "a frame's index", kept, found)?;
                let known = match data.owner() {
                    Owner::Space(space) => space == walk.record.id(),
                    Owner::Family(family) => family == walk.record.family.load(Ordering::Relaxed),
                    _ => false,
                };
                check(known, "a frame's owner maps it", 1, 0)?;
            } else if data.generation() != 0 {
                let (kept, found) = (data.map_count() as u64, data.generation());
                data.set_generation(0);
                walk.audit.data_frames += unit.frames();
                let right = found == kept || !walk.all && found < kept;
                check(right, "mappings of a frame", kept, found)?;
            }
            first += unit.frames();
        }
        Ok(())
    }
}

struct Walk<'w> {
    record: &'w SpaceRecord,
    pass: Pass,
    all: bool,
    audit: &'w mut Audit,
}
