//! Everything recounted.
//!
//! What is kept (counts, bounds, parents, intervals, names, map counts, owners) is compared with
//! what a walk of every table finds. Counting needs a place per frame and per region; it uses words
//! that mean nothing while the system is at rest.

use crate::addr::{ENTRIES, Level, Order, PAGE_SHIFT, Pfn};
use crate::entry::Entry;
use crate::error::Invalid;
use crate::fault::Faults;
use crate::frame::{Data, Owner, SlabRef};
use crate::machine::{Machine, Use};
use crate::ops::inspect::usage::CountUsage;
use crate::ops::spaces::fork::Fork;
use crate::pagetable::node::{Node, full_run};
use crate::platform::over;
use crate::space::{Audit, MAX_SPACES, Space, SpaceRecord};
use crate::stats::Counter;
use crate::sync::atomic::Ordering;
use crate::vma::find_hole::FindHole;
use crate::vma::region::COUNTING;

/// The free pages of a node's span: at its low end, at its high end, and the longest run.
struct Holes {
    low: u64,
    high: u64,
    longest: u64,
}

/// Which of the passes over the tables this is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Structure is checked, names and mappings are counted.
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
        if self.spaces.objects() > MAX_SPACES {
            return Err(Invalid::new("spaces there are", 0, MAX_SPACES, self.spaces.objects()));
        }
        for pass in [Pass::Count, Pass::Compare] {
            for space in spaces {
                let record = self.record_of(space);
                if pass == Pass::Count {
                    if !FindHole(self.0).cache_is_right(record) {
                        return Err(Invalid::new(
                            "no hole above the end of the search cache",
                            space.id(),
                            1,
                            0,
                        ));
                    }
                    if record.faults_stopped() {
                        return Err(Invalid::new("faults are stopped at rest", space.id(), 0, 1));
                    }
                    self.check_active(space)?;
                    CountUsage(self.0).usage_of(record.root(), self.top(), &mut audit.usage);
                }
                for kept in [&record.latest, &record.changed] {
                    self.name(SlabRef::from_raw(kept.load(Ordering::Relaxed)), pass, all)?;
                }
                let mut walk = Walk { record, pass, all, audit: &mut audit };
                self.check_node(&mut walk, self.node(record.root()), self.top(), None, 0)?;
            }
        }
        audit.table_frames = audit.usage.table_nodes;
        for slab in self.slabs() {
            audit.slab_frames += slab.validate(&self.frames)?.pages;
        }
        audit.slab_frames += self.large_nodes();
        audit.zero_frames = self.check_zeros()?;
        audit.zero_frames +=
            self.huge_zero().map_or(0, |_| Order::HUGE.frames()) + self.check_zero_tables()?;
        self.check_huge_zero(spaces, all)?;
        self.check_asids(spaces, all)?;
        Fork(self.0).check_families(spaces, all)?;
        if let Some(cpu) = (0..self.cpus).find(|&cpu| self.epochs.depth(cpu) != 0) {
            return Err(Invalid::new(
                "readers inside an epoch at rest",
                cpu as u64,
                0,
                self.epochs.depth(cpu),
            ));
        }
        if self.hands.at_work() != 0 {
            return Err(Invalid::new("memory in hand at rest", 0, 0, self.hands.at_work()));
        }
        // SAFETY: no other call on this `Vm` runs, by the caller's promise.
        let frames = unsafe { self.frames.validate(m)? };
        audit.free_frames = frames.free + frames.cached;
        audit.pool_frames = self.pooled_frames().ok_or(Invalid::new(
            "a pool's chain and its count differ",
            0,
            0,
            0,
        ))?;
        audit.poisoned_frames = self.stats().get(Counter::FramesPoisoned) as u64;
        let kernels =
            audit.table_frames + audit.slab_frames + audit.zero_frames + audit.pool_frames;
        let known = audit.data_frames + kernels + audit.poisoned_frames;
        if frames.used < known {
            return Err(Invalid::new("frames in use and not allocated", 0, known, frames.used));
        }
        audit.other_frames = frames.used - known;
        Ok(audit)
    }

    /// The references to the huge page of zeros are the shrinker's and one of each space that used
    /// it.
    fn check_huge_zero(self, spaces: &[&Space], all: bool) -> Result<(), Invalid> {
        let Some(page) = self.huge_zero() else { return Ok(()) };
        let found =
            1 + spaces.iter().filter(|space| self.holds_huge_zero(self.record_of(space))).count()
                as u64;
        let kept = self.huge_zero_references();
        if found > kept || all && found != kept {
            return Err(Invalid::new("references to the huge page of zeros", page.0, kept, found));
        }
        let record = self.frames.record(page);
        if (record.use_(), record.order()) != (Use::Zero, Order::HUGE) {
            return Err(Invalid::new(
                "the huge page of zeros' use",
                page.0,
                Use::Zero as u64,
                record.use_() as u64,
            ));
        }
        Ok(())
    }

    /// Counts one name of a region, or compares.
    fn name(self, name: Option<SlabRef>, pass: Pass, all: bool) -> Result<(), Invalid> {
        let Some(name) = name else { return Ok(()) };
        let region = self.region(name);
        if pass == Pass::Count {
            let (kept, packed) = (region.packed().0, region.attrs().pack().0);
            if kept != packed {
                return Err(Invalid::new("attributes of a region", name.raw(), kept, packed));
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
            if found > kept || all && found != kept {
                return Err(Invalid::new("names of a region", name.raw(), kept, found));
            }
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
        let ordered = self.intervals(node).check(|name| {
            if named.is_ok() {
                named = self.name(Some(name), walk.pass, walk.all);
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
                    if child.state().count() == 0 {
                        return Err(Invalid::new(
                            "entries of a table that is kept",
                            child.pfn.0,
                            1,
                            0,
                        ));
                    }
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
        if state.run() < holes.longest.min(full_run(level)) {
            return Err(Invalid::new("a table's bound on holes", at, state.run(), holes.longest));
        }
        Ok(holes)
    }

    fn check_entry(
        self,
        walk: &mut Walk<'_>,
        entry: Entry,
        level: Level,
        va: u64,
    ) -> Result<(), Invalid> {
        let region = self.descend(walk.record, crate::addr::Va(va)).region;
        let Some(region) = region else {
            return Err(Invalid::new("a region for what is mapped", va, 1, 0));
        };
        let region = self.region(region);
        let rights = region.attrs().rights;
        match entry {
            Entry::Reserved => Ok(()),
            Entry::ZeroTable(table) => {
                let fits = level > Level::ONE && self.is_zero_table(table, level.child());
                if rights.is_none() || rights.exec || !fits || !walk.record.takes_zeros() {
                    return Err(Invalid::new("a shared table of zeros where it may be", va, 1, 0));
                }
                Ok(())
            }
            Entry::Leaf(pfn, flags) if self.is_zero(pfn) => {
                let fits = self.is_zero_leaf(pfn, level)
                    && (level == Level::ONE || self.huge_zero() == Some(pfn));
                if level == Level::TWO && !self.uses_huge_zero(walk.record) {
                    return Err(Invalid::new(
                        "a space that maps the huge page of zeros holds it",
                        va,
                        1,
                        0,
                    ));
                }
                if flags.write || flags.dirty || !fits || rights.is_none() {
                    return Err(Invalid::new("zeros nobody can write", va, 0, 1));
                }
                if !walk.record.takes_zeros() {
                    return Err(Invalid::new("zeros where they are forbidden", va, 0, 1));
                }
                if level == Level::ONE && !self.is_coloured(pfn, crate::addr::Va(va)) {
                    return Err(Invalid::new(
                        "zeros of the address's colour",
                        va,
                        va >> PAGE_SHIFT,
                        pfn.0,
                    ));
                }
                Ok(())
            }
            Entry::Leaf(pfn, flags) => {
                if rights.is_none() || flags.write && !rights.write || flags.exec != rights.exec {
                    return Err(Invalid::new(
                        "rights of a leaf",
                        va,
                        rights.write as u64,
                        flags.write as u64,
                    ));
                }
                if let Some(order) = level.leaf_order() {
                    self.check_block(
                        walk,
                        pfn,
                        order,
                        (va >> PAGE_SHIFT).wrapping_add(region.shift()),
                    )?;
                    if flags.write && walk.pass == Pass::Count && !self.is_exclusive(pfn, order) {
                        return Err(Invalid::new("mappings of a writable page", va, 1, 2));
                    }
                }
                Ok(())
            }
            Entry::Inaccessible(pfn) => {
                if !rights.is_none() {
                    return Err(Invalid::new(
                        "inaccessible pages where there are rights",
                        va,
                        0,
                        1,
                    ));
                }
                let Some(order) = level.leaf_order() else { return Ok(()) };
                self.check_block(walk, pfn, order, (va >> PAGE_SHIFT).wrapping_add(region.shift()))
            }
            _ => Err(Invalid::new("entries in transit at rest", va, 0, 1)),
        }
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
            let record = self.frames.record(at);
            if record.use_() != Use::Data {
                return Err(Invalid::new(
                    "a mapped frame's use",
                    at.0,
                    Use::Data as u64,
                    record.use_() as u64,
                ));
            }
            let data = Data::of(record);
            if !data.is_in_bounds() {
                return Err(Invalid::new(
                    "a frame's map count, and what it was cut into",
                    at.0,
                    0,
                    record.words()[0],
                ));
            }
            let unit = self.unit_of(at);
            if unit > order {
                return Err(Invalid::new(
                    "a block mapped in pieces is cut",
                    at.0,
                    order.get() as u64,
                    unit.get() as u64,
                ));
            }
            if walk.pass == Pass::Count {
                data.set_generation(data.generation() + 1);
                if data.index() != index.wrapping_add(first) {
                    return Err(Invalid::new(
                        "a frame's index",
                        at.0,
                        data.index(),
                        index.wrapping_add(first),
                    ));
                }
                let known = match data.owner() {
                    Owner::Space(space) => space == walk.record.id(),
                    Owner::Family(family) => family == walk.record.family.load(Ordering::Relaxed),
                    _ => false,
                };
                if !known {
                    return Err(Invalid::new("a frame's owner maps it", at.0, 1, 0));
                }
            } else if data.generation() != 0 {
                let (kept, found) = (data.map_count() as u64, data.generation());
                data.set_generation(0);
                walk.audit.data_frames += unit.frames();
                if found > kept || walk.all && found != kept {
                    return Err(Invalid::new("mappings of a frame", at.0, kept, found));
                }
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
