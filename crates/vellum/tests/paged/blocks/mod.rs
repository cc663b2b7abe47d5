//! Blocks of an object with a pager, or with a log: read as a whole, and pages again before the
//! first store.

use std::rc::Rc;

use vellum_testkit::interleave::at_every_step;

use crate::*;

const PAGES: u64 = 1100;

fn file<C: Arch>() -> Paged<C> {
    paged_ahead::<C>(PAGES * KIB4, 32)
}

impl<C: Arch> Paged<C> {
    fn collapse(&self, page: u64) -> Result<bool, ObjectError> {
        self.fx.vm.objects().collapse(&self.object, page * KIB4)
    }

    fn blocks(&self) -> u64 {
        let usage = self.fx.vm.objects().usage(&self.object);
        assert_eq!(self.fx.count(Counter::FileHugePages), usage.huge_pages as i64);
        assert_eq!(self.fx.count(Counter::FilePages), usage.pages as i64);
        usage.huge_pages
    }

    fn maps_a_block(&self, page: u64) -> bool {
        let leaf = self.fx.leaf(&self.space, page_at(page));
        assert!(!(leaf.level == Level::TWO && leaf.flags.write), "a block is not written");
        leaf.level == Level::TWO
    }
}

on_both!(whole, a_file_is_read_into_a_block_and_is_pages_again_when_it_is_written);

fn whole<C: Arch>() {
    let f = file::<C>();
    let objects = f.fx.vm.objects();
    assert_eq!((f.peek(3), f.peek(700)), (Ok(4), Ok(701)));
    assert_eq!(f.collapse(5), Ok(true));
    assert_eq!(f.fx.count(Counter::ReadaheadUnused), 0, "what is in a block was of use");
    assert_eq!((f.blocks(), f.fx.count(Counter::ThpCollapse)), (1, 1));
    let read: Vec<u64> = f.calls(false).iter().map(|call| call.1 / KIB4).collect();
    assert_eq!(read.iter().sum::<u64>(), 513, "each page once");
    assert_eq!((0..512).find(|&n| f.peek(n) != Ok(n + 1)), None);
    assert!(!f.maps_a_block(3), "a table is there");
    assert_eq!(f.fx.vm.advise(&f.space, AT, 2 * MIB2, Advice::Collapse), Ok(()));
    assert_eq!((f.blocks(), f.peek(3), f.peek(700)), (2, Ok(4), Ok(701)));
    assert!(f.maps_a_block(3) && f.maps_a_block(700));
    let read: Vec<u64> = f.calls(false).iter().map(|call| call.1 / KIB4).collect();
    assert_eq!(read.iter().sum::<u64>(), 511, "the rest of the second one");
    assert_eq!((f.dirty(), f.sync(), f.calls(true)), (0, Ok(()), vec![]));
    // A store through a mapping; one page is dirty, and is what is written.
    f.poke(9, 99).unwrap();
    assert_eq!((f.blocks(), f.dirty(), f.fx.count(Counter::ThpSplitPage)), (1, 1, 1));
    assert_eq!((f.peek(9), f.peek(10)), (Ok(99), Ok(11)));
    // Bytes that are written, and a hole.
    assert_eq!(objects.write(&f.object, 600 * KIB4, &[7]), (1, Ok(())));
    assert_eq!((f.blocks(), f.dirty()), (0, 2));
    assert_eq!(f.collapse(600), Ok(false), "a page is dirty");
    assert_eq!(f.sync(), Ok(()));
    assert_eq!(f.calls(true), [(9, KIB4), (600, KIB4)]);
    assert_eq!((f.collapse(600), f.collapse(0)), (Ok(true), Ok(true)));
    assert_eq!(objects.punch(&f.object, 20 * KIB4, KIB4), Ok(()));
    assert_eq!((f.blocks(), f.dirty(), f.peek(20), f.peek(21)), (1, 1, Ok(0), Ok(22)));
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(goes, a_clean_block_is_evicted_as_a_whole_or_in_part);

fn goes<C: Arch>() {
    let f = file::<C>();
    let objects = f.fx.vm.objects();
    assert_eq!((f.collapse(0), f.collapse(512)), (Ok(true), Ok(true)));
    assert_eq!((f.peek(5), f.evict(), f.blocks()), (Ok(6), 1024, 0));
    assert_eq!((f.collapse(0), f.collapse(512)), (Ok(true), Ok(true)));
    assert_eq!(objects.evict(&f.object, 100 * KIB4, 500 * KIB4), 500);
    assert_eq!(f.blocks(), 0);
    assert_eq!((0..1024).find(|&n| f.word(n) != Ok(n + 1)), None);
    // Without memory for a split all of a block goes.
    assert_eq!((f.collapse(0), f.collapse(512)), (Ok(true), Ok(true)));
    let taken = f.fx.take_all(Order::BASE);
    assert_eq!(objects.evict(&f.object, 100 * KIB4, 200 * KIB4), 512);
    assert_eq!((f.blocks(), f.word(600)), (1, Ok(601)));
    f.fx.give_back(taken, Order::BASE);
    assert_eq!((f.word(99), f.word(100), f.collapse(0)), (Ok(100), Ok(101), Ok(true)));
    assert_eq!(objects.resize(&f.object, 300 * KIB4), Ok(()));
    assert_eq!((f.blocks(), f.word(299)), (0, Ok(300)));
    f.fx.check(&[&f.space]);
    f.end([]);
}

#[test]
fn a_store_without_memory_for_the_split_leaves_the_block() {
    let f = file::<X86_64>();
    assert_eq!(f.collapse(0), Ok(true));
    assert_eq!(f.fx.vm.advise(&f.space, AT, MIB2, Advice::Collapse), Ok(()));
    assert_eq!(f.peek(3), Ok(4));
    let taken = f.fx.take_all(Order::BASE);
    assert_eq!(f.poke(3, 1), Err(FaultError::NoMemory));
    let written = f.fx.vm.objects().write(&f.object, 3 * KIB4, &[1]);
    assert_eq!(written, (0, Err(ObjectError::NoMemory)));
    assert_eq!(f.fx.vm.objects().punch(&f.object, 3 * KIB4, 8), Err(ObjectError::NoMemory));
    assert_eq!((f.peek(3), f.blocks(), f.dirty()), (Ok(4), 1, 0));
    assert!(f.maps_a_block(3));
    f.fx.give_back(taken, Order::BASE);
    assert_eq!((f.poke(3, 1), f.dirty()), (Ok(()), 1));
    f.end([]);
}

#[test]
fn a_pager_that_cannot_read_a_page_is_told_of_and_nothing_is_collapsed() {
    let f = file::<X86_64>();
    assert_eq!(f.peek(299), Ok(300));
    f.disk().set(Habits { fails_reads: true, ..Habits::default() });
    assert_eq!(f.collapse(0), Err(ObjectError::Io));
    let advised = f.fx.vm.advise(&f.space, AT, MIB2, Advice::Collapse);
    assert_eq!((advised, f.blocks()), (Err(SpaceError::Io), 0));
    assert_eq!(f.peek(299), Ok(300));
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(logged, guest_memory_with_a_log_is_mapped_by_blocks_until_it_is_written);

fn logged<C: Arch>() {
    let fx = fixture_of::<C>(4, 4096, Config::default());
    let object = fx.vm.objects().create_logged(2 * MIB2).unwrap();
    let space = fx.with_object(AT, 2 * MIB2, &object);
    let f = Paged { fx, object, space };
    let objects = f.fx.vm.objects();
    (0..1024).for_each(|n| f.poke(n, n + 1).unwrap());
    assert_eq!(f.collapse(0), Ok(false), "not harvested yet");
    let mut pages = [0; 1024];
    assert_eq!(objects.harvest(&f.object, 0, &mut pages), Ok(1024));
    assert_eq!(f.fx.vm.advise(&f.space, AT, 2 * MIB2, Advice::Collapse), Ok(()));
    assert_eq!((f.peek(3), f.peek(900)), (Ok(4), Ok(901)));
    assert!(f.maps_a_block(3) && f.maps_a_block(900));
    assert_eq!(objects.harvest(&f.object, 0, &mut pages), Ok(0));
    f.poke(3, 99).unwrap();
    assert_eq!(f.fx.vm.copy_in(&f.space, page_at(7), &[1]), Ok(()));
    assert_eq!(objects.harvest(&f.object, 0, &mut pages), Ok(2));
    assert_eq!(pages[..2], [3 * KIB4, 7 * KIB4]);
    assert_eq!(f.fx.vm.write_forced(&f.space, page_at(800), &[1]), Ok(()));
    assert_eq!(objects.harvest(&f.object, 0, &mut pages), Ok(1));
    assert_eq!((pages[0], objects.usage(&f.object).huge_pages), (800 * KIB4, 0));
    assert_eq!((f.peek(3), f.peek(4), f.peek(801)), (Ok(99), Ok(5), Ok(802)));
    // A store where nothing of a block is mapped gets the right to write by one fault.
    assert_eq!(f.fx.vm.advise(&f.space, AT, 2 * MIB2, Advice::Collapse), Ok(()));
    assert_eq!(f.fx.vm.fault(&f.space, page_at(3), Access::Write), Ok(Fault::Object));
    let leaf = f.fx.leaf(&f.space, page_at(3));
    assert_eq!((leaf.level, leaf.flags.write), (Level::ONE, true));
    f.fx.check(&[&f.space]);
    f.end([]);
}

/// A way to write to a page.
type Writer = (&'static str, fn(&Paged));

/// Each way to write to a page, with a collapse between any two of its steps: the page is known as
/// written after it, and no block is.
#[test]
fn beside_a_collapse_what_is_written_is_known_as_written() {
    const WRITERS: [Writer; 4] = [
        ("a store", |f| f.poke(5, 99).unwrap()),
        ("bytes", |f| {
            let done = f.fx.vm.objects().write(&f.object, 5 * KIB4, &99_u64.to_le_bytes());
            assert_eq!(done, (8, Ok(())));
        }),
        ("by force", |f| {
            f.fx.vm.write_forced(&f.space, page_at(5), &99_u64.to_le_bytes()).unwrap();
        }),
        ("a hole", |f| f.fx.vm.objects().punch(&f.object, 5 * KIB4, KIB4).unwrap()),
    ];
    let make = |maps: bool| {
        move || {
            let fx = fixture_of::<X86_64>(4, 2048, Config::default());
            let object = fx.vm.objects().create_logged(MIB2).unwrap();
            let space = fx.with_object(AT, MIB2, &object);
            let f = Paged { fx, object, space };
            (0..512).step_by(50).chain([5]).for_each(|n| f.poke(n, n + 1).unwrap());
            assert_eq!(f.fx.vm.objects().harvest(&f.object, 0, &mut [0; 512]), Ok(12));
            if !maps {
                f.fx.vm.advise(&f.space, AT, MIB2, Advice::DontNeed).unwrap();
            }
            Rc::new(f)
        }
    };
    let collapse = |f: &Paged| assert!(f.collapse(0).is_ok());
    for (what, write) in WRITERS {
        let check = |f: Paged| {
            let word = if what == "a hole" { 0 } else { 99 };
            assert_eq!((f.word(5), f.peek(5)), (Ok(word), Ok(word)), "{what}");
            assert_eq!((f.word(50), f.word(51)), (Ok(51), Ok(0)), "{what}");
            let mut told = [0; 512];
            let count = f.fx.vm.objects().harvest(&f.object, 0, &mut told).unwrap();
            assert_eq!(told[..count], [5 * KIB4], "{what}");
            f.fx.check(&[&f.space]);
        };
        for maps in [true, false] {
            let places = at_every_step(make(maps), write, collapse, check);
            println!("{what}: {places} places");
            assert!(places > 2, "{what} met a collapse at {places} places");
        }
        // The other way round: what is written while a collapse is under way.
        let places = at_every_step(make(true), collapse, write, check);
        println!("{what} beside a collapse: {places} places");
        assert!(places > 2, "a collapse met {what} at {places} places");
    }
}
