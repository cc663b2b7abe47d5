//! Pages of an object that become a block.

use std::rc::Rc;
use std::thread::scope;

use vellum_testkit::interleave::at_every_step;

use super::*;

/// Without advice: pages of 4 KiB.
fn pages<C: Arch>(count: u64) -> Blocks<C> {
    pages_of(count, 16384)
}

/// The same with so many frames.
fn pages_of<C: Arch>(count: u64, frames: u64) -> Blocks<C> {
    let fx = fixture_of::<C>(4, frames, Config::default());
    let object = fx.object(count * KIB4);
    let space = fx.vm.create().unwrap();
    let blocks = Blocks { fx, object, space };
    blocks.map(&blocks.space, AT, 0, count, RW);
    blocks
}

impl<C: Arch> Blocks<C> {
    fn write(&self, page: u64, word: u64) {
        let done = self.fx.vm.objects().write(&self.object, page * KIB4, &word.to_le_bytes());
        assert_eq!(done, (8, Ok(())));
    }

    fn collapse(&self, page: u64) -> Result<bool, ObjectError> {
        self.fx.vm.objects().collapse(&self.object, page * KIB4)
    }

    fn advise(&self, space: &Space, at: Va, bytes: u64) -> Result<(), SpaceError> {
        self.fx.vm.advise(space, at, bytes, Advice::Collapse)
    }
}

on_both!(becomes, pages_become_a_block_for_all_who_map_them);

fn becomes<C: Arch>() {
    let blocks = pages::<C>(1536);
    let fx = &blocks.fx;
    let (odd, same) = (blocks.other(3, 700, RW), blocks.other(0, 1024, RW));
    for page in (0..700).step_by(3) {
        fx.poke(&blocks.space, page_at(page), page + 1).unwrap();
    }
    fx.poke(&odd, at(2), 6).unwrap();
    assert_eq!(fx.peek(&same, at(9)), Ok(10));
    let before = fx.vm.objects().usage(&blocks.object).pages;
    assert_eq!(blocks.collapse(17), Ok(true));
    let after = fx.vm.objects().usage(&blocks.object);
    let there = (0..512).step_by(3).count() as u64 + 1;
    assert_eq!((after.pages, after.huge_pages), (before + 512 - there, 1));
    assert_eq!((blocks.blocks(), fx.count(Counter::ThpCollapse)), (1, 1));
    assert_eq!(fx.count(Counter::ThpFileAlloc), 0, "it was not allocated for a fault");
    for page in 0..700 {
        let word = if page % 3 == 0 { page + 1 } else { 6 * u64::from(page == 5) };
        assert_eq!(blocks.word(page), word, "{page}");
        assert_eq!(fx.peek(&blocks.space, page_at(page)), Ok(word), "{page}");
        if page >= 3 {
            assert_eq!(fx.peek(&odd, at(page - 3)), Ok(word), "{page}");
        }
    }
    // A table is there, and goes with the advice.
    assert!(!blocks.is_huge(&blocks.space, page_at(9)));
    assert_eq!(blocks.advise(&blocks.space, AT, 2 * MIB2), Ok(()));
    assert_eq!((blocks.blocks(), fx.count(Counter::ThpCollapse)), (2, 2));
    fx.poke(&blocks.space, page_at(9), 77).unwrap();
    fx.poke(&blocks.space, page_at(600), 78).unwrap();
    assert!([9, 600].iter().all(|&page| blocks.is_huge(&blocks.space, page_at(page))));
    assert_eq!([fx.peek(&same, at(9)), fx.peek(&odd, at(597))], [Ok(77), Ok(78)]);
    assert!(!blocks.is_huge(&same, at(9)), "a space that was not advised");
    assert_eq!(blocks.advise(&odd, FAR, 512 * KIB4), Ok(()), "it has no room for a leaf");
    assert!(!blocks.is_huge(&odd, at(6)));
    // And pages again.
    assert_eq!(fx.vm.objects().split(&blocks.object, 600 * KIB4), Ok(()));
    assert_eq!((blocks.blocks(), fx.count(Counter::ThpSplitPage)), (1, 1));
    assert_eq!(fx.peek(&blocks.space, page_at(600)), Ok(78));
    fx.check(&[&blocks.space, &odd, &same]);
    blocks.ends([odd, same]);
}

#[test]
fn what_an_object_did_not_have_is_zero_in_its_block() {
    let blocks = pages_of::<X86_64>(512, 2048);
    // All that is free has been written.
    let old = blocks.fx.object(4 * MIB2);
    let mut written = 0;
    while blocks.fx.vm.objects().write(&old, written * KIB4, &[0xff; 4096]).1.is_ok() {
        written += 1;
    }
    assert!(written > 1024, "{written}");
    blocks.fx.vm.objects().discard(old);
    blocks.write(9, 10);
    assert_eq!(blocks.collapse(0), Ok(true));
    assert_eq!((0..512).find(|&page| blocks.word(page) != 10 * u64::from(page == 9)), None);
    blocks.ends([]);
}

#[test]
fn where_nothing_can_be_collapsed_nothing_changes() {
    let blocks = pages::<X86_64>(1023);
    let (fx, objects) = (&blocks.fx, blocks.fx.vm.objects());
    assert_eq!(blocks.collapse(0), Ok(false), "no page");
    (0..1023).for_each(|page| blocks.write(page, page));
    assert_eq!(blocks.collapse(600), Ok(false), "the object ends there");
    assert_eq!(objects.collapse(&blocks.object, u64::MAX), Ok(false));
    let grabbed = objects.grab(&blocks.object, 300 * KIB4, 2, GrabWait::Never).unwrap();
    assert_eq!(blocks.collapse(0), Ok(false), "a page is in somebody's hand");
    assert_eq!((0..300).find(|&page| blocks.word(page) != page), None);
    objects.release(grabbed, false);
    let taken = fx.take_all(Order::HUGE);
    assert_eq!(blocks.collapse(0), Err(ObjectError::NoMemory));
    assert_eq!(blocks.advise(&blocks.space, AT, MIB2), Err(SpaceError::NoMemory));
    fx.give_back(taken, Order::HUGE);
    assert_eq!(fx.count(Counter::ThpCollapse), 0);
    assert_eq!(blocks.collapse(0), Ok(true));
    assert_eq!(blocks.collapse(5), Ok(true), "it is there");
    assert_eq!(fx.count(Counter::ThpCollapse), 1);
    assert_eq!((0..1023).find(|&page| blocks.word(page) != page), None);
    fx.check(&[&blocks.space]);
    blocks.ends([]);
}

#[test]
fn whom_the_advice_gives_a_leaf_the_region_decides() {
    let no_huge = Attrs { thp: Some(HugeAdvice::NoHuge), ..RW };
    let exactly = Attrs { leaf: LeafSize::Exactly(Order::BASE), ..RW };
    let none = Attrs { rights: Rights::NONE, ..RW };
    let read = Attrs { rights: Rights::READ, ..RW };
    for (attrs, collapses) in
        [(RW, true), (read, true), (no_huge, false), (exactly, false), (none, false)]
    {
        let blocks = pages::<X86_64>(512);
        (0..512).for_each(|page| blocks.write(page, page));
        let other = blocks.other(0, 512, attrs);
        assert_eq!(blocks.advise(&other, FAR, MIB2), Ok(()));
        assert_eq!(blocks.blocks(), u64::from(collapses), "{attrs:?}");
        if !attrs.rights.is_none() {
            assert_eq!(blocks.fx.peek(&other, at(7)), Ok(7));
            assert_eq!(blocks.is_huge(&other, at(7)), collapses, "{attrs:?}");
        }
        blocks.fx.check(&[&blocks.space, &other]);
        blocks.ends([other]);
    }
    // A private view and its copies stay what they are.
    let blocks = pages::<X86_64>(512);
    (0..512).for_each(|page| blocks.write(page, page));
    let view = blocks.fx.vm.create().unwrap();
    blocks.fx.map_private(&view, FAR, MIB2, &blocks.object);
    blocks.fx.poke(&view, at(9), 99).unwrap();
    assert_eq!(blocks.advise(&view, FAR, MIB2), Ok(()));
    assert_eq!(blocks.blocks(), 0);
    assert_eq!(blocks.collapse(0), Ok(true));
    assert_eq!([8, 9].map(|page| blocks.fx.peek(&view, at(page))), [Ok(8), Ok(99)]);
    blocks.fx.check(&[&blocks.space, &view]);
    blocks.ends([view]);
}

/// What happens beside a collapse, and the words that some pages may have after it.
type Beside = (&'static str, fn(&Blocks<X86_64>), &'static [(u64, &'static [u64])]);

/// As memory that a program gets in parts and shares. What the table said of it by itself holds for
/// the leaf, and for what is mapped there later.
#[test]
fn what_a_mapping_grew_by_becomes_a_block_under_one_leaf() {
    for (first, neighbour) in [(1, false), (300, true)] {
        let blocks = pages_of::<X86_64>(1024, 4096);
        let (fx, space) = (&blocks.fx, blocks.fx.vm.create().unwrap());
        if neighbour {
            fx.map(&space, Va(AT.0 - MIB2), 3 * MIB2, RW);
            fx.vm.unmap(&space, AT, MIB2).unwrap();
        }
        blocks.map(&space, AT, 0, first, RW);
        let mut end = first;
        while end < 512 {
            let grown = (end + 100).min(512);
            let to = Placement::At(AT);
            assert_eq!(fx.vm.remap(&space, AT, end * KIB4, grown * KIB4, to), Ok(AT));
            end = grown;
        }
        (0..512).for_each(|page| fx.poke(&space, page_at(page), page).unwrap());
        assert_eq!(blocks.advise(&space, AT, MIB2), Ok(()));
        assert_eq!(blocks.blocks(), 1);
        (0..512).for_each(|page| assert_eq!(fx.peek(&space, page_at(page)), Ok(page)));
        assert!(blocks.is_huge(&space, AT));
        fx.check(&[&space, &blocks.space]);
        fx.vm.protect(&space, page_at(7), KIB4, Rights::READ).unwrap();
        fx.vm.unmap(&space, page_at(8), KIB4).unwrap();
        assert_eq!(fx.poke(&space, page_at(7), 1), Err(FaultError::Rights));
        assert_eq!(fx.peek(&space, page_at(8)), Err(FaultError::Unmapped));
        fx.poke(&space, page_at(9), 1).unwrap();
        fx.vm.unmap(&space, AT, MIB2).unwrap();
        blocks.ends([space]);
    }
}

/// With each act between any two of its steps, and after it.
#[test]
fn acts_beside_a_collapse_lose_nothing() {
    let acts: [Beside; 8] = [
        ("a store", |b| b.fx.poke(&b.space, page_at(25), 99).unwrap(), &[(25, &[99])]),
        ("a page more", |b| b.fx.poke(&b.space, page_at(6), 98).unwrap(), &[(6, &[98])]),
        ("a write", |b| b.write(50, 97), &[(50, &[97])]),
        ("bytes that are read", |b| assert!([51].contains(&b.word(50))), &[]),
        ("a hole", |b| b.fx.vm.objects().punch(&b.object, 25 * KIB4, KIB4).unwrap(), &[(25, &[0])]),
        ("a new end", |b| b.fx.vm.objects().resize(&b.object, 300 * KIB4).unwrap(), &[(450, &[0])]),
        ("an unmap", |b| b.fx.vm.unmap(&b.space, AT, MIB2).unwrap(), &[]),
        (
            "another",
            |b| assert!(matches!(b.collapse(0), Ok(true) | Err(ObjectError::NoMemory))),
            &[],
        ),
    ];
    let make = || {
        let blocks = pages_of::<X86_64>(512, 2048);
        (0..512).step_by(25).for_each(|page| blocks.write(page, page + 1));
        blocks.fx.poke(&blocks.space, page_at(25), 26).unwrap();
        Rc::new(blocks)
    };
    for (what, act, others) in acts {
        let collapsed = std::cell::Cell::new(0);
        let places = at_every_step(
            make,
            |b| assert!(b.collapse(0).is_ok()),
            act,
            |b| {
                collapsed.set(collapsed.get() + b.blocks());
                let bytes = b.fx.vm.objects().usage(&b.object).bytes;
                for page in 0..bytes / KIB4 {
                    let own = [if page % 25 == 0 { page + 1 } else { 0 }];
                    let other = others.iter().find(|other| other.0 == page);
                    let may_be = other.map_or(&own[..], |other| other.1);
                    assert!(may_be.contains(&b.word(page)), "{what}: {} at {page}", b.word(page));
                }
                b.fx.check(&[&b.space]);
            },
        );
        println!("{what}: {places} places, {} blocks", collapsed.get());
        assert!(places > 2, "{what} ran at {places} places");
    }
}

on_both!(beside, threads_use_pages_while_they_are_collapsed_and_split);

/// Two threads store to words of their own and read them back by another way; a third collapses,
/// splits, and has a space's table go.
fn beside<C: Arch>() {
    let mut blocks_made = 0;
    for round in 0..20 {
        let blocks = pages::<C>(1024);
        let odd = blocks.other(1, 700, RW);
        let fx = &blocks.fx;
        let over = std::sync::atomic::AtomicBool::new(false);
        scope(|s| {
            let mut workers = Vec::new();
            for cpu in 0..2 {
                let (blocks, odd) = (&blocks, &odd);
                workers.push(s.spawn(move || {
                    blocks.fx.run_on(cpu);
                    let mut random = Random::new(2 * round + cpu as u64);
                    for n in 1..=2000_u64 {
                        let page = 1 + random.below(700);
                        let own = 8 * cpu as u64;
                        let (space, other) =
                            if cpu == 0 { (odd, &blocks.space) } else { (&blocks.space, odd) };
                        let va = |space: &Space| {
                            let is_odd = std::ptr::eq(space, odd);
                            Va(if is_odd { at(page - 1).0 } else { page_at(page).0 } + own)
                        };
                        blocks.fx.vm.copy_in(space, va(space), &n.to_le_bytes()).unwrap();
                        let mut bytes = [0; 8];
                        blocks.fx.vm.copy_out(other, va(other), &mut bytes).unwrap();
                        assert_eq!(u64::from_le_bytes(bytes), n, "page {page}, round {round}");
                    }
                }));
            }
            let (blocks, over) = (&blocks, &over);
            s.spawn(move || {
                blocks.fx.run_on(2);
                let mut made = 0;
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    made += u64::from(blocks.collapse(made * 512 % 1024).unwrap());
                    blocks.advise(&blocks.space, AT, 2 * MIB2).unwrap();
                    blocks.fx.vm.objects().split(&blocks.object, made * KIB4 % MIB2).unwrap();
                }
            });
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        blocks_made += fx.count(Counter::ThpCollapse);
        fx.check(&[&blocks.space, &odd]);
        blocks.ends([odd]);
    }
    assert_ne!(blocks_made, 0);
    println!("{blocks_made} blocks were made");
}
