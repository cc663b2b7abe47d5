//! Packed fields at their limits, and `validate` on fields that were made wrong: each complaint
//! here is one that no other check would make.

use std::sync::atomic::Ordering::Relaxed;

use crate::addr::{Order, PAGE_SIZE, PFN_END, Pfn, Va};
use crate::config::{Config, Thp, ZeroHuge};
use crate::error::{FaultError, NoMemory};
use crate::frame::{AllocRequest, Frames, SPLIT_SHIFT, SlabRef};
use crate::machine::{MmuRules, Topology, Use};
use crate::pagetable::cursor::Place;
use crate::pagetable::transit::Transit;
use crate::space::{Access, Fault, MAX_SPACES, Space};
use crate::stats::{Counter, Stats};
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::testkit::prelude::{
    Fixture, Flat, FramesExt, FramesFixture, KIB4, MIB2, RW, VmExt, flat, flat_with,
};
use crate::zero::MOST_USES;

const AT: Va = Va(1 << 30);

fn fixture_on(first: u64, frames: u64, config: Config) -> Fixture {
    let topology = Topology::flat(2, Pfn(first), frames);
    Fixture::new(Flat::new(topology, MmuRules::X86_64), config)
}

/// Base pages only, and identifiers for the TLBs.
pub(crate) fn fixture() -> Fixture {
    let rules = MmuRules { asids: 256, ..MmuRules::X86_64 };
    let config = Config { thp: Thp::Never, ..Config::default() };
    Fixture::new(flat_with(2, 4096, rules), config)
}

impl Fixture {
    pub(crate) fn space(&self) -> Space {
        self.mapped(AT, MIB2, RW)
    }
    pub(crate) fn complaint(&self, spaces: &[&Space]) -> &'static str {
        self.vm.audit(spaces).expect_err("it is valid").what
    }
    pub(crate) fn write(&self, space: &Space) -> Pfn {
        self.vm.fault(space, AT, Access::Write).unwrap();
        self.frame(space, AT)
    }
}

/// What `validate` says of frames that `wrong` had in its hands.
fn frames_complain(wrong: impl FnOnce(&Frames, &Flat)) -> &'static str {
    let f = FramesFixture::new(flat(1, 2048));
    f.frames.audit(&f.m).unwrap();
    wrong(&f.frames, &f.m);
    f.frames.audit(&f.m).expect_err("it is valid").what
}

pub(crate) fn take(frames: &Frames, m: &Flat, order: u8) -> Pfn {
    frames.alloc(m, Order::new(order).unwrap(), &AllocRequest::kernel(Use::Table)).unwrap()
}

pub(crate) type RawState<'a> = crate::frame::RawState<'a>;

#[test]
fn a_state_with_bits_that_its_kind_does_not_have_is_found() {
    let state = "a block's state";
    assert_eq!(frames_complain(|f, _| f.raw(0, 0).state(3).store(1 << 8, Relaxed)), state);
    assert_eq!(frames_complain(|f, _| f.raw(0, 0).state(3).store(7, Relaxed)), state);
    for spare in [6, 7, 17] {
        let open = |f: &Frames, m: &Flat| {
            take(f, m, 0);
            f.raw(0, 0).state(1).fetch_or(1 << spare, Relaxed);
        };
        assert_eq!(frames_complain(open), state, "bit {spare}");
    }
    for wrong in [
        RawState::huge_state(0),
        RawState::huge_state(18) + (1 << 8),
        RawState::huge_state(9) | 1 << 5,
    ] {
        let large = |f: &Frames, m: &Flat| {
            take(f, m, 9);
            f.raw(0, 0).state(1).store(wrong, Relaxed);
        };
        assert_eq!(frames_complain(large), state, "{wrong:#x}");
    }
}

#[test]
fn a_large_block_that_is_not_aligned_or_reaches_past_its_node_is_found() {
    // Blocks 1 to 4 are there.
    let at = |first: usize, more: &'static [usize]| {
        frames_complain(move |f, m| {
            (0..4).for_each(|_| _ = take(f, m, 9));
            f.raw(0, 0).state(first).store(RawState::huge_state(10), Relaxed);
            more.iter().for_each(|&block| f.raw(0, 0).state(block).store(3, Relaxed));
        })
    };
    assert_eq!(at(1, &[2]), "the place of a huge block");
    assert_eq!(at(4, &[]), "the place of a huge block");
}

#[test]
fn every_counter_of_a_magazine_is_held_to_its_bound() {
    let wrong = |wrong: fn(&RawState<'_>)| frames_complain(|f, _| wrong(&f.raw(0, 0)));
    assert_eq!(wrong(|d| d.word.store(1 << 63, Relaxed)), "a magazine is locked at rest");
    assert_eq!(wrong(|d| d.word.store(129, Relaxed)), "frames in a magazine");
    assert_eq!(wrong(|d| d.kept.store(5, Relaxed)), "blocks in a cpu buddy");
    assert_eq!(wrong(|d| d.kept.store(1 << 40, Relaxed)), "blocks in a cpu buddy");
    let uncounted = |d: &RawState<'_>| {
        d.delta.fetch_add(d.slack() + 1, Relaxed);
        d.free.fetch_sub(d.slack() + 1, Relaxed);
    };
    assert_eq!(wrong(uncounted), "uncounted frames of a magazine");
    assert_eq!(wrong(|d| d.current.store(6, Relaxed)), "the block that a magazine claims");
    assert_eq!(wrong(|d| d.cursor.store(2, Relaxed)), "a magazine's search cursor");
    assert_eq!(wrong(|d| d.rows.store(1 << 10, Relaxed)), "rows that a magazine knows");
    let foreign = |d: &RawState<'_>| {
        d.word.store(1, Relaxed);
        d.lowest.store(5, Relaxed);
    };
    assert_eq!(wrong(foreign), "a frame in a magazine is one of its node");
    assert_eq!(wrong(|d| d.defer.store(64, Relaxed)), "huge allocations that fail at once");
    assert_eq!(wrong(|d| d.defer_shift.store(7, Relaxed)), "huge allocations that fail at once");
}

#[test]
fn frames_taken_less_those_that_came_back_are_those_in_use() {
    let what = "frames taken of a node less those freed";
    for wrong in [0, 1] {
        let miscounted = |f: &Frames, m: &Flat| {
            take(f, m, 0);
            let raw = f.raw(0, 0);
            [raw.filled, raw.block_freed][wrong].fetch_add(1, Relaxed);
        };
        assert_eq!(frames_complain(miscounted), what);
    }
}

#[test]
fn the_count_of_frames_given_back_leaves_the_word_before_it_reaches_the_lock() {
    const MOST: u64 = 1 << 54;
    let FramesFixture { frames, m, .. } = &FramesFixture::new(flat(1, 2048));
    let had: Vec<Pfn> = (0..100).map(|_| take(frames, m, 0)).collect();
    // Before the word counts nothing: as if so many had come and gone.
    frames.raw(0, 0).word.fetch_add((MOST - 1) << 8, Relaxed);
    let freed = |frames: &Frames| {
        let mut stats = Stats::sum(&[]);
        frames.stats(&mut stats);
        stats.get(Counter::Free) as u64
    };
    for (i, &pfn) in had.iter().enumerate() {
        frames.put(m, pfn, Order::BASE);
        assert_eq!(freed(frames), MOST + i as u64);
        frames.audit(m).unwrap();
    }
    // Emptied, filled, and in use as before.
    let again: Vec<Pfn> = (0..300).map(|_| take(frames, m, 0)).collect();
    again.iter().for_each(|&pfn| frames.put(m, pfn, Order::BASE));
    assert_eq!(freed(frames), MOST + 399);
    assert_eq!(frames.audit(m).unwrap().used, 0);
    assert!(frames.raw(0, 0).word.load(Relaxed) < MOST, "it counts from the beginning");
}

#[test]
fn readers_three_hundred_deep_are_inside() {
    let r = fixture();
    let (vm, m) = (&r.vm, r.vm.machine());
    let guards: Vec<_> = (0..300).map(|_| vm.layers.epochs.enter(m)).collect();
    assert!(vm.layers.epochs.is_inside(m));
    assert_eq!(vm.layers.epochs.depth(0), 300);
    assert_eq!(r.complaint(&[]), "readers inside an epoch at rest");
    drop(guards);
    assert!(!vm.layers.epochs.is_inside(m));
    r.vm.audit(&[]).unwrap();
}

#[test]
fn the_last_frame_that_fits_can_be_a_root() {
    let config = Config { thp: Thp::Never, ..Config::default() };
    let r = fixture_on(PFN_END - 1024, 1024, config);
    let (vm, first) = (&r.vm, r.space());
    let all = r.take_all(Order::BASE).into_iter();
    let (last, rest): (Vec<Pfn>, Vec<Pfn>) = all.partition(|&pfn| pfn == Pfn(PFN_END - 1));
    r.give_back(last, Order::BASE);
    let second = vm.create().unwrap();
    assert_eq!(vm.layers.record_of(&second).root(), Pfn(PFN_END - 1));
    r.give_back(rest, Order::BASE);
    r.map(&second, AT, MIB2, RW);
    r.write(&second);
    r.end([first, second]);
}

#[test]
fn more_spaces_than_there_may_be_are_refused() {
    let r = fixture();
    let space = r.space();
    r.write(&space);
    let before = r.vm.audit(&[&space]).unwrap();
    let objects = r.vm.layers.spaces.objects_raw();
    objects.store(MAX_SPACES, Relaxed);
    assert_eq!(r.vm.create().err(), Some(NoMemory));
    assert_eq!(r.vm.fork(&space).err(), Some(NoMemory));
    assert_eq!(objects.load(Relaxed), MAX_SPACES);
    objects.store(1, Relaxed);
    assert_eq!(r.vm.audit(&[&space]), Ok(before), "nothing changed");
    objects.store(MAX_SPACES - 1, Relaxed);
    let child = r.vm.fork(&space).expect("there is room for one more");
    assert_eq!(r.vm.create().err(), Some(NoMemory));
    objects.store(MAX_SPACES + 1, Relaxed);
    assert_eq!(r.complaint(&[&space, &child]), "spaces there are");
    objects.store(2, Relaxed);
    r.vm.audit(&[&space, &child]).unwrap();
}

#[test]
fn references_to_the_huge_page_of_zeros_leave_room_for_a_fork_of_every_space() {
    let config = Config { zero_huge: ZeroHuge::Page, ..Config::default() };
    let r = fixture_on(512, 4096, config);
    let vm = &r.vm;
    let [a, b, c] = [(); 3].map(|()| r.space());
    let read = |space: &Space| vm.fault(space, AT, Access::Read).unwrap();
    assert_eq!(read(&a), Fault::ZeroHuge);
    let page = vm.huge_zero();
    let word = vm.layers.huge_zero.door();
    // As if all others but two had used it.
    let others = MOST_USES - 1 - vm.huge_zero_references();
    word.fetch_add(others, Relaxed);
    assert_eq!(read(&b), Fault::ZeroHuge);
    assert_eq!(vm.huge_zero_references(), MOST_USES);
    assert_eq!(read(&c), Fault::Zero, "no more uses");
    // As if every space had forked.
    word.fetch_add(MAX_SPACES - 1, Relaxed);
    let child = vm.fork(&a).unwrap();
    assert_eq!((vm.huge_zero(), vm.huge_zero_references()), (page, MOST_USES + MAX_SPACES));
    assert_eq!(vm.shrinkable_zeros(), 0);
    word.fetch_sub(others + MAX_SPACES - 1, Relaxed);
    vm.audit(&[&a, &b, &c, &child]).unwrap();
    [a, b, c, child].into_iter().for_each(|space| vm.exit(space));
    assert_eq!(vm.huge_zero_references(), 1, "it is not kept");
}

#[test]
fn a_fork_that_never_ends_is_found() {
    let r = fixture();
    let space = r.space();
    r.vm.layers.record_of(&space).stop_faults();
    assert_eq!(r.complaint(&[&space]), "faults are stopped at rest");
    r.vm.layers.record_of(&space).let_faults_go();
    r.vm.audit(&[&space]).unwrap();
}

#[test]
fn identifiers_in_the_tlbs_are_recounted() {
    let r = fixture();
    let (a, b) = (r.space(), r.space());
    let (word, spaces) = (&r.vm.layers.context_words()[0], [&a, &b]);
    let (of_a, of_b) = (&r.vm.layers.record_of(&a).asid, &r.vm.layers.record_of(&b).asid);
    let is = of_b.load(Relaxed);
    assert!(is != 0 && of_a.load(Relaxed) != is);
    let taken = "identifiers in the TLBs that are taken";
    word.fetch_or(1 << 9, Relaxed);
    assert_eq!(r.complaint(&spaces), taken, "one that is nobody's");
    word.fetch_and(!(1 << 9 | 1 << is), Relaxed);
    assert_eq!(r.complaint(&spaces), taken, "one that is free");
    assert_eq!(r.complaint(&[&b]), taken, "also if there are others");
    word.fetch_or(1 << is, Relaxed);
    r.vm.audit(&[&a]).expect("b may have the other");
    let one = "a space's identifier in the TLBs";
    of_b.store(of_a.load(Relaxed), Relaxed);
    assert_eq!(r.complaint(&spaces), one, "one for two");
    of_b.store(256, Relaxed);
    r.vm.layers.context_words()[4].fetch_or(1, Relaxed);
    assert_eq!(r.complaint(&[&b]), one, "one that the machine has not");
}

#[test]
fn sets_of_cpus_are_recounted() {
    let r = fixture();
    let (space, m) = (r.space(), r.vm.machine());
    let record = r.vm.layers.record_of(&space);
    r.vm.activate(&space);
    r.vm.audit(&[&space]).unwrap();
    record.active.insert(1);
    assert_eq!(r.complaint(&[&space]), "CPUs that run a space");
    record.active.remove(1);
    record.active.remove(0);
    assert_eq!(r.complaint(&[&space]), "CPUs that run a space");
    record.active.insert(0);
    let cached = "CPUs that may hold translations of a space";
    record.cached.remove(0);
    assert_eq!(r.complaint(&[&space]), cached);
    record.cached.insert(0);
    record.stale.insert_word(0, 2);
    assert_eq!(r.complaint(&[&space]), cached);
    record.stale.remove(1);
    record.cached.insert(2);
    assert_eq!(r.complaint(&[&space]), cached, "there are two CPUs");
    record.cached.remove(2);
    r.vm.audit(&[&space]).unwrap();
    m.run_on(0);
    r.vm.exit(space);
}

#[test]
fn members_of_families_are_recounted() {
    let r = fixture();
    let parent = r.space();
    let child = r.vm.fork(&parent).unwrap();
    let spaces = [&parent, &child];
    let (old, new) = (r.vm.layers.record_of(&parent), r.vm.layers.record_of(&child));
    let handle = SlabRef::from_raw(old.family.load(Relaxed)).unwrap();
    // SAFETY: a family begins with its lock and its count of members, and lives while the spaces
    // do.
    let members = unsafe { handle.ptr(r.vm.machine()).cast::<AtomicU32>().add(1).as_ref() };
    assert_eq!(members.load(Relaxed), 2);
    r.vm.audit(&spaces).unwrap();
    for wrong in [1, 3] {
        members.store(wrong, Relaxed);
        assert_eq!(r.complaint(&spaces), "members of a fork family");
    }
    members.store(2, Relaxed);
    // The child came last and stands first.
    old.sibling.store(child.id(), Relaxed);
    assert_eq!(r.complaint(&spaces), "a neighbour in a fork family", "a ring");
    old.sibling.store(0, Relaxed);
    old.before.store(0, Relaxed);
    assert_eq!(r.complaint(&spaces), "a neighbour in a fork family");
    old.before.store(child.id(), Relaxed);
    old.family.store(0, Relaxed);
    assert_eq!(r.complaint(&spaces), "a member of a fork family");
    old.family.store(handle.raw(), Relaxed);
    let next = new.sibling.swap(0, Relaxed);
    members.store(1, Relaxed);
    assert_eq!(r.complaint(&spaces), "spaces of fork families", "one that is on no list");
    new.sibling.store(next, Relaxed);
    members.store(2, Relaxed);
    r.vm.audit(&spaces).unwrap();
}

#[test]
fn bits_beside_a_map_count_are_found() {
    let r = fixture();
    let space = r.space();
    let record = r.vm.frames().record(r.write(&space));
    let count = record.word(1);
    let what = "a frame's map count, and what it was cut into";
    for wrong in [1 << 32, 1 << 55, 1 << 61, 1 << SPLIT_SHIFT, 3 << SPLIT_SHIFT] {
        count.fetch_or(wrong, Relaxed);
        assert_eq!(r.complaint(&[&space]), what, "{wrong:#x}");
        count.fetch_and(!wrong, Relaxed);
        // What stopped in the middle left its own counts behind.
        record.word(4).store(0, Relaxed);
        clear_counts(&r, &space);
    }
    record.set_head(Use::Data, Order::HUGE);
    assert_eq!(r.complaint(&[&space]), "a block mapped in sub-blocks is split");
}

#[test]
fn a_page_of_an_object_is_mapped_only_so_often() {
    let r = fixture();
    let object = r.object(2 * KIB4);
    let space = r.with_object(AT, 2 * KIB4, &object);
    let other = r.with_object(AT, 2 * KIB4, &object);
    assert_eq!(r.poke(&space, AT, 1), Ok(()));
    let count = r.vm.frames().record(r.frame(&space, AT)).word(1);
    let kept = count.load(Relaxed);
    // As if as many others had it.
    count.store(1 << 31, Relaxed);
    assert_eq!(r.vm.fault(&other, AT, Access::Read), Err(FaultError::NoMemory));
    let child = r.vm.fork(&space).unwrap();
    assert_eq!(count.load(Relaxed), 1 << 31);
    assert_eq!(r.frame_at(&child, AT), None, "the child asks for it when it needs it");
    count.store(kept, Relaxed);
    assert_eq!(r.peek(&child, AT), Ok(1));
    r.vm.objects().discard(object);
    r.end([space, other, child]);
}

/// Clears what a `validate` that stopped early counted in the region of [`AT`].
fn clear_counts(r: &Fixture, space: &Space) {
    let region = r.vm.layers.descend(r.vm.layers.record_of(space), AT).region.unwrap();
    r.vm.layers.region(region).set_replaces(0);
}

#[test]
fn bits_of_tables_and_regions_that_mean_nothing_are_found() {
    let r = fixture();
    let space = r.space();
    let root = r.vm.frames().record(r.vm.layers.record_of(&space).root());
    for bit in [46, 47] {
        root.word(2).fetch_xor(1 << bit, Relaxed);
        assert_eq!(r.complaint(&[&space]), "spare bits of a table's record");
        root.word(2).fetch_xor(1 << bit, Relaxed);
    }
    let (state, about) = (root.word(1), root.word(5));
    let (was, was_about) = (state.load(Relaxed), about.load(Relaxed));
    for (listed, list) in
        [(5, 0), (7, 0), (4, 3 << 16), (4, 17), (4, 129 | 1 << 16), (4, 513 | 2 << 16)]
    {
        state.store(was & !(7 << 4) | listed << 4, Relaxed);
        about.store(list, Relaxed);
        let what = "intervals in order, and no more than fit";
        assert_eq!(r.complaint(&[&space]), what, "{listed} {list:#x}");
    }
    state.store(was, Relaxed);
    about.store(was_about, Relaxed);
    clear_counts(&r, &space);
    r.vm.audit(&[&space]).unwrap();
    let region = r.vm.layers.descend(r.vm.layers.record_of(&space), AT).region.unwrap();
    // SAFETY: a region's second word is its attributes, and the space names it.
    let attrs = unsafe { region.ptr(r.vm.machine()).cast::<AtomicU64>().add(1).as_ref() };
    attrs.fetch_or(1 << 40, Relaxed);
    assert_eq!(r.complaint(&[&space]), "attributes of a region");
    assert_eq!(PAGE_SIZE as u64 * PFN_END, 1 << 48);
}

#[test]
fn a_table_that_somebody_has_yet_to_come_back_to_is_found() {
    let complaint = |wrong: fn(Place<'_>)| {
        let r = fixture();
        let space = r.space();
        r.write(&space);
        wrong(r.vm.layers.descend_part(r.vm.layers.record_of(&space), AT));
        r.complaint(&[&space])
    };
    assert_eq!(complaint(|at| Transit::begin(at).leave()), "entries in transit at rest");
    let dead = |at: Place<'_>| at.node.set_state(at.node.state().with_dead());
    assert_eq!(complaint(dead), "dead tables in a tree");
}
