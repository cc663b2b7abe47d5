//! A read fault maps what the object has around its page (`file.around`).

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::scope;

use vellum_testkit::prelude::*;

const READ: Attrs = Attrs::anonymous(Rights::READ);

fn around<C: Arch>(order: u8) -> Fixture<C> {
    let file_around = Order::new(order).expect("a size");
    fixture_of(1, 4096, Config { file_around, ..Config::default() })
}

/// The mapped ones of the first 128 pages at [`AT`].
fn mapped<C: Arch>(fx: &Fixture<C>, space: &Space) -> Vec<u64> {
    (0..128).filter(|&n| fx.frame_at(space, page_at(n)).is_some()).collect()
}

/// An object of so many pages, which has all of them but those that are named.
fn object_without<C: Arch>(fx: &Fixture<C>, pages: u64, absent: &[u64]) -> Object {
    let object = fx.object(pages * KIB4);
    for n in (0..pages).filter(|n| !absent.contains(n)) {
        assert_eq!(fx.vm.objects().write(&object, n * KIB4, &[n as u8 + 1]).1, Ok(()));
    }
    object
}

fn read<C: Arch>(fx: &Fixture<C>, space: &Space, page: u64) {
    assert_eq!(fx.vm.fault(space, page_at(page), Access::Read), Ok(Fault::Object), "page {page}");
}

on_both!(the_block, the_present_pages_of_the_aligned_block_are_mapped);

fn the_block<C: Arch>() {
    for (order, block) in [(0, 1), (1, 2), (4, 16), (6, 64), (9, 64)] {
        let fx = around::<C>(order);
        let object = object_without(&fx, 100, &[33, 40]);
        let space = fx.with_object(AT, 128 * KIB4, &object);
        read(&fx, &space, 37);
        let first = 37 / block * block;
        let there = (first..first + block).filter(|n| ![33, 40].contains(n) && *n < 100);
        assert_eq!(mapped(&fx, &space), there.collect::<Vec<_>>(), "a block of {block} pages");
        assert_eq!(fx.vm.objects().usage(&object).pages, 98, "no page is made around");
        for n in mapped(&fx, &space) {
            let flags = fx.leaf(&space, page_at(n)).flags;
            assert_eq!((flags.write, flags.dirty), (true, false), "page {n}");
            assert_eq!(flags.accessed, n == 37 || !C::RULES.hardware_ad, "page {n}");
            assert_eq!(fx.peek(&space, page_at(n)), Ok(n + 1));
        }
        fx.check(&[&space]);
        fx.vm.objects().discard(object);
        fx.end([space]);
    }
}

on_both!(bounds, nothing_is_mapped_outside_the_region_or_past_the_end);

fn bounds<C: Arch>() {
    let fx = around::<C>(4);
    let object = object_without(&fx, 13, &[]);
    let space = fx.vm.create().expect("memory");
    // Pages 2 to 5 of the address space show 0 to 3 of the object; 6 to 9 show 8 to 11 read-only;
    // 10 to 20 show 10 and on, of which 13 is past the end.
    let parts = [(2, 4, 0, RW), (6, 4, 8, READ), (10, 10, 10, RW)];
    for (at, pages, first, attrs) in parts {
        let part = ObjectPart { object: &object, offset: first * KIB4 };
        let at = page_at(at);
        assert_eq!(fx.vm.map_object(&space, Placement::At(at), pages * KIB4, attrs, part), Ok(at));
    }
    read(&fx, &space, 8);
    assert_eq!(mapped(&fx, &space), [6, 7, 8, 9]);
    assert!(!fx.leaf(&space, page_at(7)).flags.write);
    read(&fx, &space, 3);
    assert_eq!(mapped(&fx, &space), [2, 3, 4, 5, 6, 7, 8, 9]);
    read(&fx, &space, 10);
    assert_eq!(mapped(&fx, &space), [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(
        (0..3).map(|n| fx.peek(&space, page_at(10 + n))).collect::<Vec<_>>(),
        [Ok(11), Ok(12), Ok(13)]
    );
    fx.check(&[&space]);
    fx.vm.objects().discard(object);
    fx.end([space]);
}

on_both!(views, a_private_view_shows_the_pages_around_and_copies_each_when_written);

fn views<C: Arch>() {
    let fx = around::<C>(4);
    let object = object_without(&fx, 16, &[]);
    let space = fx.vm.create().expect("memory");
    fx.map_private(&space, AT, 16 * KIB4, &object);
    read(&fx, &space, 0);
    assert_eq!(mapped(&fx, &space).len(), 16);
    assert_eq!(fx.poke(&space, page_at(5), 500), Ok(()));
    assert_eq!((fx.peek(&space, page_at(5)), fx.peek(&space, page_at(6))), (Ok(500), Ok(7)));
    assert_eq!(fx.usage(&space).shared_pages, 15);
    let mut byte = [0];
    assert_eq!(fx.vm.objects().read(&object, 5 * KIB4, &mut byte).1, Ok(()));
    assert_eq!(byte, [6], "the object's own page stays");
    fx.check(&[&space]);
    fx.vm.objects().discard(object);
    fx.end([space]);
}

on_both!(kinds, writes_verbs_and_missing_pages_map_nothing_around);

fn kinds<C: Arch>() {
    let fx = around::<C>(4);
    let object = object_without(&fx, 32, &[20]);
    let space = fx.with_object(AT, 32 * KIB4, &object);
    assert_eq!(fx.vm.fault(&space, page_at(3), Access::Write), Ok(Fault::Object));
    assert_eq!(mapped(&fx, &space), [3]);
    assert_eq!(fx.kernel_peek(&space, page_at(5)), Ok(6));
    assert_eq!(mapped(&fx, &space), [3, 5]);
    read(&fx, &space, 20);
    assert_eq!(mapped(&fx, &space), [3, 5, 20]);
    fx.vm.objects().discard(object);
    fx.end([space]);
}

on_both!(new_table, the_first_fault_of_a_table_maps_the_pages_around_too);

fn new_table<C: Arch>() {
    let fx = around::<C>(4);
    let object = object_without(&fx, 64, &[]);
    // Nothing else lies in the GiB: two tables are missing.
    let space = fx.with_object(AT, GIB, &object);
    read(&fx, &space, 20);
    assert_eq!(mapped(&fx, &space), (16..32).collect::<Vec<_>>());
    assert_eq!(fx.count(Counter::Mapped), 16);
    fx.check(&[&space]);
    fx.vm.objects().discard(object);
    fx.end([space]);
}

#[test]
fn a_page_around_is_that_of_its_own_index_in_large_objects_too() {
    let fx = around::<X86_64>(4);
    // A leaf says the low 21 bits of its index.
    let high = 1u64 << 21;
    let object = fx.object((high + 64) * KIB4);
    assert_eq!(fx.vm.objects().write(&object, 0, &[0x11; 8]).1, Ok(()));
    assert_eq!(fx.vm.objects().write(&object, (high - 2) * KIB4, &[0x22; 8]).1, Ok(()));
    let space = fx.vm.create().expect("memory");
    let part = ObjectPart { object: &object, offset: (high - 4) * KIB4 };
    let at = page_at(0);
    let placed = fx.vm.map_object(&space, Placement::At(at), 16 * KIB4, RW, part);
    assert_eq!(placed, Ok(at));
    read(&fx, &space, 2);
    assert_eq!(mapped(&fx, &space), [2]);
    assert_eq!(fx.peek(&space, page_at(4)), Ok(0), "page 2^21 is not page 0");
    fx.check(&[&space]);
    fx.vm.objects().discard(object);
    fx.end([space]);
}

on_both!(wherever, each_page_around_is_its_own_wherever_its_frame_lies);

/// Pages whose frames follow each other, go down, are far apart, are missing, were mapped before,
/// or by another space: around each fault all that are there are mapped, each with its own bytes.
fn wherever<C: Arch>() {
    const PAGES: u64 = 512;
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let fx = around::<C>([2, 3, 4, 6][seed as usize % 4]);
        let block = 1 << [2, 3, 4, 6][seed as usize % 4];
        let object = fx.object(PAGES * KIB4);
        // In order, but for pieces that are made earlier or later, in one direction or the other.
        let mut order: Vec<u64> = (0..PAGES).collect();
        for _ in 0..random.below(40) {
            let (at, to) = (random.below(PAGES) as usize, random.below(PAGES) as usize);
            let len = random.below(9).min(PAGES - at.max(to) as u64) as usize;
            let piece: Vec<u64> = order.drain(at..at + len).collect();
            let to = to.min(order.len());
            let is_back = random.below(2) == 0;
            let piece: Vec<u64> = if is_back { piece.into_iter().rev().collect() } else { piece };
            order.splice(to..to, piece);
        }
        let absent: Vec<u64> = (0..PAGES).filter(|_| random.below(24) == 0).collect();
        for &n in order.iter().filter(|n| !absent.contains(n)) {
            let word = (n + 1).to_le_bytes();
            assert_eq!(fx.vm.objects().write(&object, n * KIB4, &word).1, Ok(()));
        }
        let space = fx.with_object(AT, PAGES * KIB4, &object);
        let other = fx.with_object(AT, PAGES * KIB4, &object);
        let mut there = vec![false; PAGES as usize];
        let is_mapped = |n: u64| fx.frame_at(&space, page_at(n)).is_some();
        for step in 0..200 {
            let n = random.below(PAGES);
            if absent.contains(&n) {
                continue;
            }
            let fault = |space, access| match fx.vm.fault(space, page_at(n), access) {
                Ok(Fault::Object | Fault::Spurious) => {}
                other => panic!("seed {seed}, step {step}, page {n}: {other:?}"),
            };
            match random.below(4) {
                0 => fault(&space, Access::Write),
                1 => fault(&other, Access::Read),
                _ => {
                    let was_there = there[n as usize];
                    fault(&space, Access::Read);
                    let around = n / block * block..(n / block + 1) * block;
                    for page in around.filter(|page| !was_there && !absent.contains(page)) {
                        there[page as usize] = true;
                    }
                }
            }
            there[n as usize] |= is_mapped(n);
            let expected: Vec<u64> = (0..PAGES).filter(|n| there[*n as usize]).collect();
            let found: Vec<u64> = (0..PAGES).filter(|n| is_mapped(*n)).collect();
            assert_eq!(found, expected, "seed {seed}, step {step}, after page {n}");
        }
        for n in (0..PAGES).filter(|n| there[*n as usize]) {
            assert_eq!(fx.peek(&space, page_at(n)), Ok(n + 1), "seed {seed}");
        }
        fx.check(&[&space, &other]);
        fx.vm.objects().discard(object);
        fx.end([space, other]);
    }
}

/// While a thread has a page and those around it mapped, again and again, another cuts the object
/// before that page and makes it longer. One size decides about all that a fault maps, so no entry
/// is counted that is not there, and none is missing.
fn beside_a_resize(page: u64, end: u64) {
    const ROUNDS: u64 = 50_000;
    let fx = fixture_of::<X86_64>(
        2,
        4096,
        Config { file_around: Order::new(4).unwrap(), ..Config::default() },
    );
    let object = object_without(&fx, 100, &[]);
    let space = fx.with_object(AT, 512 * KIB4, &object);
    // It makes the table.
    read(&fx, &space, 64);
    let (is_over, mut random) = (AtomicBool::new(false), Random::new(1));
    scope(|threads| {
        let faults = threads.spawn(|| {
            fx.run_on(0);
            while !is_over.load(SeqCst) {
                match fx.vm.fault(&space, page_at(page), Access::Read) {
                    Ok(Fault::Object | Fault::Spurious) | Err(FaultError::Beyond) => {}
                    other => panic!("{other:?}"),
                }
                fx.vm.advise(&space, page_at(page), KIB4, Advice::DontNeed).unwrap();
            }
        });
        fx.run_on(1);
        for _ in 0..ROUNDS {
            if faults.is_finished() {
                break;
            }
            (0..random.below(500)).for_each(|_| std::hint::spin_loop());
            fx.vm.objects().resize(&object, end * KIB4).unwrap();
            fx.vm.objects().resize(&object, 100 * KIB4).unwrap();
            for n in [page + 1, page] {
                assert_eq!(fx.vm.objects().write(&object, n * KIB4, &[1]).1, Ok(()));
            }
        }
        is_over.store(true, SeqCst);
    });
    fx.run_on(0);
    fx.check(&[&space]);
    fx.vm.objects().discard(object);
    fx.end([space]);
}

#[test]
fn a_cut_at_the_first_page_of_a_block_is_counted() {
    beside_a_resize(16, 16);
}

#[test]
fn a_cut_amid_a_block_is_counted() {
    beside_a_resize(20, 18);
}
