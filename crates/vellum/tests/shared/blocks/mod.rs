//! Blocks of 2 MiB of an object: made by policy, mapped as a whole or by pages, and split where one
//! of their pages is to go.

mod collapse;

use vellum_testkit::prelude::*;

const HUGE: Attrs = Attrs { thp: Some(HugeAdvice::Huge), ..RW };
const FAR: Va = Va(GIB * 9);

fn at(page: u64) -> Va {
    Va(FAR.0 + page * KIB4)
}

fn always() -> Config {
    Config { object_huge: Thp::Always, ..Config::default() }
}

struct Blocks<C: Arch> {
    fx: Fixture<C>,
    object: Object,
    space: Space,
}

impl<C: Arch> Blocks<C> {
    /// An object of so many pages that a space maps at `AT`, advised for blocks.
    fn new(pages: u64) -> Self {
        let fx = fixture_of::<C>(2, 16384, Config::default());
        let object = fx.object(pages * KIB4);
        let space = fx.vm.create().unwrap();
        let blocks = Blocks { fx, object, space };
        blocks.map(&blocks.space, AT, 0, pages, HUGE);
        blocks
    }

    /// The same, and each page has its number.
    fn written(pages: u64) -> Self {
        let blocks = Blocks::new(pages);
        (0..pages).for_each(|n| blocks.fx.poke(&blocks.space, page_at(n), n + 1).unwrap());
        blocks
    }

    fn map(&self, space: &Space, at: Va, first: u64, pages: u64, attrs: Attrs) {
        let part = ObjectPart { object: &self.object, offset: first * KIB4 };
        let mapped = self.fx.vm.map_object(space, Placement::At(at), pages * KIB4, attrs, part);
        assert_eq!(mapped, Ok(at));
    }

    /// A space that maps pages of the object at `FAR`.
    fn other(&self, first: u64, pages: u64, attrs: Attrs) -> Space {
        let space = self.fx.vm.create().unwrap();
        self.map(&space, FAR, first, pages, attrs);
        space
    }

    fn word(&self, page: u64) -> u64 {
        let mut bytes = [0; 8];
        self.fx.vm.objects().read(&self.object, page * KIB4, &mut bytes).1.unwrap();
        u64::from_le_bytes(bytes)
    }

    fn blocks(&self) -> u64 {
        let (usage, fx) = (self.fx.vm.objects().usage(&self.object), &self.fx);
        assert_eq!(fx.count(Counter::ShmemHugePages), usage.huge_pages as i64);
        assert_eq!(fx.count(Counter::ShmemPages), usage.pages as i64);
        usage.huge_pages
    }

    fn is_huge(&self, space: &Space, at: Va) -> bool {
        self.fx.leaf(space, at).level == Level::TWO
    }

    fn ends(self, spaces: impl IntoIterator<Item = Space>) {
        let Blocks { fx, object, space } = self;
        fx.vm.objects().discard(object);
        fx.end(spaces.into_iter().chain([space]));
        let counters = [Counter::ShmemPages, Counter::ShmemHugePages, Counter::Mapped];
        assert_eq!(counters.map(|counter| fx.count(counter)), [0; 3]);
    }
}

#[test]
fn who_gets_a_block_the_switch_and_the_advice_decide() {
    let no_huge = Attrs { thp: Some(HugeAdvice::NoHuge), ..RW };
    let exactly = Attrs { leaf: LeafSize::Exactly(Order::BASE), ..HUGE };
    for (object_huge, attrs, block) in [
        (Thp::Never, HUGE, false),
        (Thp::Advise, RW, false),
        (Thp::Advise, HUGE, true),
        (Thp::Advise, exactly, false),
        (Thp::Always, RW, true),
        (Thp::Always, no_huge, false),
    ] {
        let fx = fixture(4096, Config { object_huge, ..Config::default() });
        let object = fx.object(2 * MIB2);
        let space = fx.vm.create().unwrap();
        let part = ObjectPart { object: &object, offset: 0 };
        fx.vm.map_object(&space, Placement::At(AT), 2 * MIB2, attrs, part).unwrap();
        assert_eq!(fx.vm.fault(&space, page_at(700), Access::Read), Ok(Fault::Object));
        assert_eq!(fx.leaf(&space, page_at(700)).level == Level::TWO, block, "{object_huge:?}");
        let usage = fx.vm.objects().usage(&object);
        assert_eq!((usage.pages, usage.huge_pages), if block { (512, 1) } else { (1, 0) });
        assert_eq!(fx.count(Counter::ThpFileAlloc), i64::from(block));
        assert_eq!(fx.count(Counter::ThpFileMapped), i64::from(block));
        assert_eq!(fx.count(Counter::Mapped), if block { 512 } else { 1 });
        fx.check(&[&space]);
        fx.vm.objects().discard(object);
        fx.end([space]);
    }
}

#[test]
fn there_is_no_block_where_there_is_no_room_for_one() {
    let blocks = Blocks::<X86_64>::new(3 * 512 - 1);
    let fx = &blocks.fx;
    // A page is there, the object ends inside, the region does.
    fx.vm.objects().write(&blocks.object, 5 * KIB4, &[7]).1.unwrap();
    fx.poke(&blocks.space, page_at(1), 1).unwrap();
    fx.poke(&blocks.space, page_at(1030), 1).unwrap();
    let other = blocks.other(512, 511, HUGE);
    fx.poke(&other, at(3), 1).unwrap();
    assert_eq!((blocks.blocks(), fx.count(Counter::ThpFileAlloc)), (0, 0));
    assert_eq!(fx.count(Counter::ThpFileFallback), 0);
    fx.check(&[&blocks.space, &other]);
    blocks.ends([other]);
}

#[test]
fn without_a_free_block_a_page_is_made() {
    let blocks = Blocks::<X86_64>::new(512);
    let fx = &blocks.fx;
    let taken = fx.take_all(Order::HUGE);
    fx.poke(&blocks.space, page_at(9), 3).unwrap();
    assert_eq!((blocks.blocks(), fx.count(Counter::ThpFileFallback)), (0, 1));
    assert_eq!(fx.vm.objects().usage(&blocks.object).pages, 1);
    fx.give_back(taken, Order::HUGE);
    blocks.ends([]);
}

on_both!(both_ways, a_block_is_mapped_as_a_whole_and_by_pages_at_once);

fn both_ways<C: Arch>() {
    let blocks = Blocks::<C>::written(1024);
    let fx = &blocks.fx;
    assert_eq!((blocks.blocks(), fx.count(Counter::Mapped)), (2, 1024));
    assert_eq!(fx.usage(&blocks.space).shared_pages, 1024);
    // At the same distance, at another one, and privately.
    let (same, odd) = (blocks.other(512, 512, RW), blocks.other(3, 900, HUGE));
    let views = fx.vm.create().unwrap();
    fx.map_private(&views, FAR, 1024 * KIB4, &blocks.object);
    for page in [0, 1, 511, 700, 890] {
        assert_eq!(fx.peek(&views, at(page)), Ok(page + 1));
        assert_eq!(fx.peek(&odd, at(page)), Ok(page + 4));
        assert!(!blocks.is_huge(&odd, at(page)) && !blocks.is_huge(&views, at(page)));
    }
    // What is around a page of a block is mapped with it.
    assert!([&odd, &views].iter().all(|space| fx.frame_at(space, at(14)).is_some()));
    assert_eq!(fx.frame_at(&odd, at(16)), None);
    assert_eq!(fx.peek(&same, at(5)), Ok(518));
    assert!(blocks.is_huge(&same, at(5)));
    fx.poke(&odd, at(600), 5).unwrap();
    fx.poke(&same, at(604 - 512), 6).unwrap();
    assert_eq!([603, 604].map(|page| blocks.word(page)), [5, 6]);
    assert_eq!([603, 604].map(|page| fx.peek(&blocks.space, page_at(page))), [Ok(5), Ok(6)]);
    fx.check(&[&blocks.space, &same, &odd, &views]);
    // A copy of one page, which the object's other pages do not notice.
    fx.poke(&views, at(604), 99).unwrap();
    assert_eq!((fx.peek(&views, at(604)), blocks.word(604)), (Ok(99), 6));
    fx.check(&[&blocks.space, &same, &odd, &views]);
    assert_eq!(blocks.blocks(), 2);
    blocks.ends([same, odd, views]);
}

on_both!(verbs_of_a_space, the_verbs_of_a_space_leave_the_block_in_the_object);

fn verbs_of_a_space<C: Arch>() {
    let blocks = Blocks::<C>::written(1536);
    let (fx, space) = (&blocks.fx, &blocks.space);
    let child = fx.vm.fork(space).unwrap();
    assert!(blocks.is_huge(&child, page_at(3)) && fx.leaf(&child, page_at(3)).flags.write);
    fx.poke(&child, page_at(3), 33).unwrap();
    assert_eq!(fx.peek(space, page_at(3)), Ok(33));
    fx.check(&[space, &child]);
    // Rights of a part, and of a whole leaf.
    assert_eq!(fx.vm.protect(space, page_at(10), KIB4, Rights::READ), Ok(()));
    assert_eq!(fx.peek(space, page_at(10)), Ok(11));
    assert_eq!(fx.poke(space, page_at(10), 0), Err(FaultError::Rights));
    fx.poke(space, page_at(11), 12).unwrap();
    assert_eq!(fx.vm.protect(space, page_at(512), MIB2, Rights::READ), Ok(()));
    assert!(blocks.is_huge(space, page_at(512)) && !fx.leaf(space, page_at(512)).flags.write);
    assert_eq!(fx.vm.protect(space, page_at(512), MIB2, Rights::NONE), Ok(()));
    assert_eq!(fx.frame_at(space, page_at(512)), None);
    assert_eq!(fx.vm.protect(space, page_at(512), MIB2, Rights::READ_WRITE), Ok(()));
    fx.check(&[space, &child]);
    fx.poke(space, page_at(515), 516).unwrap();
    assert!(blocks.is_huge(space, page_at(515)));
    // Bytes that the kernel touches.
    fx.vm.copy_in(space, Va(page_at(600).0 - 4), &[1; 8]).unwrap();
    fx.vm.write_forced(space, Va(page_at(700).0 - 4), &[2; 8]).unwrap();
    assert_eq!([600, 700].map(|page| blocks.word(page) as u32), [0x101_0101, 0x202_0202]);
    assert_eq!(fx.vm.advise(space, page_at(512), MIB2, Advice::DontNeed), Ok(()));
    assert_eq!(fx.peek(space, page_at(515)), Ok(516));
    assert_eq!(fx.vm.unmap(space, page_at(1024), 100 * KIB4), Ok(()));
    assert_eq!(fx.peek(space, page_at(1024)), Err(FaultError::Unmapped));
    assert_eq!(fx.peek(space, page_at(1124)), Ok(1125));
    fx.check(&[space, &child]);
    assert_eq!((blocks.blocks(), blocks.word(1024)), (3, 1025));
    assert_eq!(fx.count(Counter::ThpSplitPage), 0);
    blocks.ends([child]);
}

on_both!(moves, a_remap_moves_the_leaf_where_it_fits);

fn moves<C: Arch>() {
    for (from, pages, to) in [
        (0, 1024, FAR),
        (0, 1024, at(1)),
        (100, 800, at(100)),
        (100, 800, at(7)),
        (512, 1024, FAR),
        (256, 1024, Va(FAR.0 + MIB2)),
    ] {
        let blocks = Blocks::<C>::written(1536);
        let (fx, space) = (&blocks.fx, &blocks.space);
        let bytes = pages * KIB4;
        let moved = fx.vm.remap(space, page_at(from), bytes, bytes, Placement::At(to));
        assert_eq!(moved, Ok(to), "{from} {pages}");
        fx.check(&[space]);
        for page in (0..pages).step_by(3).chain([pages - 1]) {
            let here = Va(to.0 + page * KIB4);
            assert_eq!(fx.peek(space, here), Ok(from + page + 1), "{from} {pages} {to:?}");
            assert_eq!(fx.peek(space, page_at(from + page)), Err(FaultError::Unmapped));
        }
        assert_eq!(blocks.is_huge(space, to), from % 512 == 0 && to == FAR);
        assert_eq!((blocks.blocks(), fx.count(Counter::ThpSplitPage)), (3, 0));
        fx.check(&[space]);
        blocks.ends([]);
    }
}

on_both!(goes, holes_and_ends_split_a_block_or_free_it);

fn goes<C: Arch>() {
    let blocks = Blocks::<C>::written(2048);
    let (fx, space) = (&blocks.fx, &blocks.space);
    let odd = blocks.other(1, 2000, RW);
    (0..2000).step_by(5).for_each(|page| assert_eq!(fx.peek(&odd, at(page)), Ok(page + 2)));
    let objects = fx.vm.objects();
    // Inside a page: the block stays one.
    objects.punch(&blocks.object, 20 * KIB4 + 8, 100).unwrap();
    assert_eq!((blocks.blocks(), fx.peek(space, page_at(20))), (4, Ok(21)));
    // From the middle of one over a whole one.
    objects.punch(&blocks.object, 300 * KIB4 + 8, 800 * KIB4).unwrap();
    assert_eq!((blocks.blocks(), fx.count(Counter::ThpSplitPage)), (1, 2));
    assert_eq!(objects.usage(&blocks.object).pages, 2048 - 799);
    fx.check(&[space, &odd]);
    for page in 0..2048 {
        let word = if (301..=1100).contains(&page) { 0 } else { page + 1 };
        assert_eq!(blocks.word(page), word, "{page}");
        if page % 7 == 0 {
            assert_eq!(fx.peek(space, page_at(page)), Ok(word), "{page}");
        }
    }
    objects.resize(&blocks.object, 1600 * KIB4 + 8).unwrap();
    // What was read of the hole is a block again.
    assert_eq!((blocks.blocks(), fx.count(Counter::ThpSplitPage)), (1, 3));
    assert_eq!(fx.peek(space, page_at(1600)), Ok(1601));
    assert_eq!(fx.peek(space, page_at(1601)), Err(FaultError::Beyond));
    fx.check(&[space, &odd]);
    objects.resize(&blocks.object, 2048 * KIB4).unwrap();
    assert_eq!([1600, 1601, 2047].map(|page| blocks.word(page)), [1601, 0, 0]);
    blocks.ends([odd]);
}

#[test]
fn without_memory_for_a_split_the_bytes_go_and_the_block_stays() {
    for resizes in [false, true] {
        let blocks = Blocks::<X86_64>::written(1024);
        let (fx, objects) = (&blocks.fx, blocks.fx.vm.objects());
        let taken = fx.take_all(Order::BASE);
        if resizes {
            objects.resize(&blocks.object, 300 * KIB4 + 4).unwrap();
        } else {
            objects.punch(&blocks.object, 300 * KIB4 + 4, 500 * KIB4).unwrap();
        }
        assert_eq!(blocks.blocks(), if resizes { 1 } else { 2 });
        fx.give_back(taken, Order::BASE);
        if resizes {
            assert_eq!(fx.peek(&blocks.space, page_at(301)), Err(FaultError::Beyond));
            assert_eq!(fx.peek(&blocks.space, page_at(300)), Ok(301));
            assert!(!blocks.is_huge(&blocks.space, page_at(300)), "it crosses the end");
            fx.poke(&blocks.space, Va(page_at(300).0 + 8), 5).unwrap();
            fx.check(&[&blocks.space]);
            objects.resize(&blocks.object, 1024 * KIB4).unwrap();
        }
        let gone = if resizes { 301..1024 } else { 301..801 };
        for page in 0..1024 {
            let word = if gone.contains(&page) { 0 } else { page + 1 };
            assert_eq!(blocks.word(page), word, "{page}");
            assert_eq!(fx.peek(&blocks.space, page_at(page)), Ok(word), "{page}");
        }
        assert_eq!(fx.peek(&blocks.space, Va(page_at(300).0 + 8)), Ok(0));
        fx.check(&[&blocks.space]);
        blocks.ends([]);
    }
}

on_both!(held, a_page_of_a_block_is_grabbed_or_poisoned_alone);

fn held<C: Arch>() {
    let blocks = Blocks::<C>::written(1024);
    let (fx, objects) = (&blocks.fx, blocks.fx.vm.objects());
    let grabbed = objects.grab(&blocks.object, 100 * KIB4, 8, GrabWait::Never).unwrap();
    assert_eq!((grabbed.frames().len(), blocks.blocks()), (8, 1));
    assert_eq!(fx.peek(&blocks.space, page_at(108)), Ok(109));
    assert_eq!(fx.frame_at(&blocks.space, page_at(107)), None);
    objects.release(grabbed, true);
    let frame = fx.frame(&blocks.space, page_at(700));
    assert_eq!(fx.vm.poison(&blocks.space, page_at(700)), Ok(()));
    assert_eq!((fx.peek(&blocks.space, page_at(700)), blocks.blocks()), (Ok(701), 0));
    assert_ne!(fx.frame(&blocks.space, page_at(700)), frame);
    assert_eq!((512..1024).find(|&page| blocks.word(page) != page + 1), None);
    fx.check(&[&blocks.space]);
    fx.vm.objects().discard(blocks.object);
    fx.vm.exit(blocks.space);
    assert_eq!(fx.count(Counter::FramesPoisoned), 1);
}

#[test]
fn poison_and_grab_without_memory_leave_the_block_as_it_is() {
    let blocks = Blocks::<X86_64>::written(512);
    let (fx, objects) = (&blocks.fx, blocks.fx.vm.objects());
    for left in 0..2 {
        let taken = fx.take_all_but(left, Order::BASE);
        let poisoned = fx.vm.poison(&blocks.space, page_at(3));
        assert_eq!(poisoned, Err(PoisonError::NoMemory), "{left} frames left");
        if left == 0 {
            let grabbed = objects.grab(&blocks.object, 0, 4, GrabWait::Never);
            assert_eq!(grabbed.err(), Some(ObjectError::NoMemory));
        }
        fx.give_back(taken, Order::BASE);
        assert_eq!((blocks.blocks(), fx.count(Counter::ThpSplitPage)), (1, 0));
        assert_eq!(fx.peek(&blocks.space, page_at(3)), Ok(4));
        assert!(blocks.is_huge(&blocks.space, page_at(3)));
        fx.check(&[&blocks.space]);
    }
    blocks.ends([]);
}

#[test]
fn bytes_are_written_to_blocks_without_a_mapping() {
    let fx = fixture(4096, always());
    let (objects, object) = (fx.vm.objects(), fx.object(3 * MIB2 + 5));
    objects.write(&object, MIB2 - 4, &[1, 2, 3, 4, 5, 6, 7, 8]).1.unwrap();
    objects.write(&object, 3 * MIB2, &[9; 5]).1.unwrap();
    let usage = objects.usage(&object);
    assert_eq!((usage.pages, usage.huge_pages), (1025, 2), "the last page has no block around it");
    assert_eq!(objects.next_hole(&object, 5), Some(2 * MIB2));
    assert_eq!(objects.next_data(&object, 2 * MIB2 + 5), Some(3 * MIB2));
    let mut bytes = [0; 10];
    objects.read(&object, MIB2 - 5, &mut bytes).1.unwrap();
    assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
    let last = u64::MAX << 12;
    objects.resize(&object, last).unwrap();
    objects.write(&object, last - 5, &[4; 5]).1.unwrap();
    assert_eq!(objects.usage(&object).pages, 1026, "the last block there is ends past the end");
    let logged = objects.create_logged(MIB2).unwrap();
    objects.write(&logged, 0, &[1]).1.unwrap();
    assert_eq!(objects.usage(&logged).huge_pages, 0, "its writes are noted by pages");
    objects.discard(logged);
    objects.discard(object);
    fx.end([]);
}

#[test]
fn what_lies_past_the_end_goes_when_a_block_is_split_later() {
    for grabs in [false, true] {
        let blocks = Blocks::<X86_64>::written(512);
        let (fx, objects) = (&blocks.fx, blocks.fx.vm.objects());
        let taken = fx.take_all(Order::BASE);
        objects.resize(&blocks.object, 300 * KIB4 + 4).unwrap();
        fx.give_back(taken, Order::BASE);
        assert_eq!((blocks.blocks(), objects.usage(&blocks.object).pages), (1, 512));
        if grabs {
            let pages = objects.grab(&blocks.object, 0, 1, GrabWait::Never).unwrap();
            objects.release(pages, false);
        } else {
            objects.punch(&blocks.object, 7 * KIB4, KIB4).unwrap();
        }
        assert_eq!(blocks.blocks(), 0);
        assert_eq!(objects.usage(&blocks.object).pages, 301 - u64::from(!grabs));
        fx.check(&[&blocks.space]);
        blocks.ends([]);
    }
}

#[test]
fn tables_are_taken_before_a_block_is_made() {
    let fx = fixture(8192, Config::default());
    let object = fx.object(GIB);
    let space = fx.vm.create().unwrap();
    let part = ObjectPart { object: &object, offset: 0 };
    fx.vm.map_object(&space, Placement::At(Va(GIB * 300)), GIB, HUGE, part).unwrap();
    let mut blocks = fx.take_all(Order::HUGE);
    let rest = fx.take_all(Order::BASE);
    // One block is left, which the tables are taken from.
    fx.give_back(blocks.pop(), Order::HUGE);
    fx.poke(&space, Va(GIB * 300), 5).unwrap();
    let usage = fx.vm.objects().usage(&object);
    assert_eq!((usage.pages, usage.huge_pages), (1, 0));
    fx.give_back(rest, Order::BASE);
    fx.give_back(blocks, Order::HUGE);
    fx.check(&[&space]);
    fx.vm.objects().discard(object);
    fx.end([space]);
}

on_both!(threads, threads_write_to_pages_of_blocks_that_are_made_split_and_freed);

/// Two threads store to words of their own, each through a mapping of its own, and read them back
/// by another way, while two others have the blocks mapped, split, cut off and freed.
fn threads<C: Arch>() {
    const WRITTEN: u64 = 500;
    for round in 0..40 {
        let fx = fixture_of::<C>(4, 8192, always());
        let (objects, object) = (fx.vm.objects(), fx.object(2 * MIB2));
        let whole = fx.with_object(AT, 2 * MIB2, &object);
        let part = ObjectPart { object: &object, offset: KIB4 };
        let odd = fx.vm.create().unwrap();
        fx.vm.map_object(&odd, Placement::At(FAR), 600 * KIB4, RW, part).unwrap();
        let read_back = |cpu: usize, page: u64, n: u64| {
            let mut bytes = [0; 8];
            let (offset, space) = (page * KIB4 + 8 * cpu as u64, [&odd, &whole][cpu]);
            let at = [FAR.0.wrapping_sub(KIB4), AT.0][cpu];
            objects.read(&object, offset, &mut bytes).1.unwrap();
            assert_eq!(u64::from_ne_bytes(bytes), n, "page {page}, round {round}");
            fx.vm.copy_out(space, Va(at + offset), &mut bytes).unwrap();
            assert_eq!(u64::from_ne_bytes(bytes), n, "page {page}, mapped, round {round}");
        };
        on_cpus(0..4, |cpu| {
            let mut random = Random::new(round * 4 + cpu as u64);
            for n in 1..=150_u64 {
                let page = 1 + random.below(WRITTEN);
                match cpu {
                    0 | 1 => {
                        let at = [AT.0, FAR.0.wrapping_sub(KIB4)][cpu] + page * KIB4;
                        let space = [&whole, &odd][cpu];
                        let at = Va(at + 8 * cpu as u64);
                        fx.vm.copy_in(space, at, &n.to_ne_bytes()).unwrap();
                        read_back(cpu, page, n);
                    }
                    2 if n % 3 == 0 => {
                        let pages = objects.grab(&object, page * KIB4, 2, GrabWait::Always);
                        objects.release(pages.unwrap(), true);
                    }
                    2 => {
                        let child = fx.vm.fork(&whole).unwrap();
                        fx.vm.exit(child);
                        let from = page_at(512 + random.below(500));
                        let advice = [Advice::DontNeed, Advice::Populate { write: false }];
                        // The end may lie before it.
                        let _ = fx.vm.advise(&whole, from, KIB4, advice[(n % 2) as usize]);
                    }
                    _ => {
                        let pages = [1024, 1024, 700, 512][random.below(4) as usize];
                        objects.resize(&object, pages * KIB4).unwrap();
                        objects.punch(&object, (512 + page) * KIB4, 30 * KIB4).unwrap();
                        let _ = fx.vm.copy_in(&whole, page_at(512 + page), &[1]);
                    }
                }
            }
        });
        fx.check(&[&whole, &odd]);
        objects.discard(object);
        fx.end([whole, odd]);
        assert_eq!(fx.count(Counter::ShmemHugePages), 0);
    }
}
