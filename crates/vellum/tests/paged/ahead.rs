//! Reading ahead (`file.readahead`).

use std::thread::{scope, yield_now};

use super::*;

/// What the pager was asked for since the last time, in pages: where each run begins, and how long
/// it is.
fn runs<C: Arch>(f: &Paged<C>) -> Vec<(u64, u64)> {
    f.calls(false).into_iter().map(|(page, bytes)| (page, bytes.div_ceil(KIB4))).collect()
}

on_both!(doubles, fetches_double_and_the_first_use_of_one_begins_the_next);

fn doubles<C: Arch>() {
    for (most, wanted) in [
        (1, vec![(0, 1), (1, 1), (2, 1)]),
        (3, vec![(0, 3), (3, 3), (6, 3)]),
        (32, vec![(0, 4), (4, 8), (12, 16), (28, 32), (60, 32)]),
        // Longer ones are several runs.
        (50, vec![(0, 4), (4, 8), (12, 16), (28, 32), (60, 32), (92, 18), (110, 32), (142, 18)]),
    ] {
        let f = paged_ahead::<C>(600 * KIB4, most);
        let mut got = Vec::new();
        let mut next = 0;
        while got.len() < wanted.len() {
            assert_eq!(f.peek(next), Ok(next + 1), "page {next}, at most {most}");
            let runs = runs(&f);
            // The page of a fetch that is used first has the next one begun.
            let of_next = wanted.get(got.len()..got.len() + runs.len());
            assert_eq!(Some(&runs[..]), of_next, "at page {next}, at most {most}");
            got.extend(runs);
            next += 1;
        }
        let pages: u64 = wanted.iter().map(|run| run.1).sum();
        let faults = if most == 1 { 3 } else { 1 };
        assert_eq!(f.fx.count(Counter::ReadaheadPages), pages as i64 - faults, "at most {most}");
        assert_eq!(f.fx.count(Counter::MajorFaults), faults);
        assert_eq!(f.fx.count(Counter::PageIn), 4 * pages as i64);
        f.fx.check(&[&f.space]);
        f.end([]);
    }
}

on_both!(asks_early, the_pager_reads_the_next_pages_while_those_before_are_used);

fn asks_early<C: Arch>() {
    let f = paged_ahead::<C>(600 * KIB4, 32);
    assert_eq!(f.peek(0), Ok(1));
    // From here on the disk does not answer.
    f.disk().set(LATE);
    assert_eq!([1, 2, 3].map(|n| f.peek(n)), [Ok(2), Ok(3), Ok(4)]);
    assert_eq!(runs(&f), [(0, 4), (4, 8)]);
    f.disk().waiting(f.fx.m()).into_iter().for_each(|done| f.fx.vm.objects().answer(done));
    assert_eq!(f.word(4), Ok(5));
    assert_eq!(runs(&f), [(12, 16)]);
    assert_eq!(f.fx.count(Counter::MajorFaults), 1);
    f.disk().waiting(f.fx.m()).into_iter().for_each(|done| f.fx.vm.objects().answer(done));
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(unused, what_is_read_ahead_counts_as_unused_until_somebody_uses_it);

fn unused<C: Arch>() {
    // Each page by itself, without what is mapped around it.
    let config = Config { file_readahead: 4, file_around: Order::BASE, ..Config::default() };
    for (n, by_mapping) in [(7, true), (7, false), (40, true)] {
        let f = paged_with::<C>(40 * KIB4, config);
        let use_page = |n| match by_mapping {
            true => assert_eq!(f.peek(n), Ok(n + 1)),
            false => assert_eq!(f.word(n), Ok(n + 1)),
        };
        (0..n).chain(0..n).for_each(use_page);
        let count = |c| f.fx.count(c);
        let used = count(Counter::ReadaheadPages) - count(Counter::ReadaheadUnused);
        assert_eq!(used, n as i64 - 1, "all but the first, which somebody waited for");
        assert_eq!(count(Counter::PageIn) / 4, count(Counter::ReadaheadPages) + 1);
        // Those that go without having been used stay counted.
        let unused = count(Counter::ReadaheadUnused);
        assert_eq!(unused, if n == 40 { 0 } else { 5 });
        f.evict();
        assert_eq!(count(Counter::ReadaheadUnused), unused);
        f.end([]);
    }
}

on_both!(patterns, advice_says_what_is_read_ahead);

fn patterns<C: Arch>() {
    let f = paged_ahead::<C>(600 * KIB4, 16);
    let objects = f.fx.vm.objects();
    objects.advise(&f.object, ReadPattern::Random);
    (0..6).for_each(|n| assert_eq!(f.word(n), Ok(n + 1)));
    assert_eq!(runs(&f), [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]);
    objects.advise(&f.object, ReadPattern::Sequential);
    assert_eq!([100, 101].map(|n| f.word(n)), [Ok(101), Ok(102)]);
    assert_eq!(runs(&f), [(100, 16), (116, 16)]);
    objects.advise(&f.object, ReadPattern::Normal);
    assert_eq!(f.word(200), Ok(201));
    assert_eq!(runs(&f), [(200, 1)]);
    f.end([]);
}

on_both!(needed, what_will_be_needed_is_asked_for_where_it_is_absent);

fn needed<C: Arch>() {
    let f = paged_ahead::<C>(100 * KIB4 + 5, 1);
    assert_eq!(f.poke(10, 7), Ok(()));
    runs(&f);
    // Nobody waits for it.
    f.disk().set(LATE);
    f.fx.vm.objects().will_need(&f.object, 5 * KIB4 + 1, 40 * KIB4);
    assert_eq!(runs(&f), [(5, 5), (11, 32), (43, 3)]);
    f.fx.vm.objects().will_need(&f.object, 0, 0);
    f.fx.vm.objects().will_need(&f.object, 99 * KIB4, u64::MAX);
    f.fx.vm.objects().will_need(&f.object, u64::MAX, u64::MAX);
    assert_eq!(runs(&f), [(99, 2)]);
    f.disk().waiting(f.fx.m()).into_iter().for_each(|done| f.fx.vm.objects().answer(done));
    assert_eq!((f.word(5), f.word(10), f.word(45)), (Ok(6), Ok(7), Ok(46)));
    assert_eq!(runs(&f), []);
    assert_eq!(f.fx.count(Counter::ReadaheadPages), 42);
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(needs_memory, what_will_be_needed_is_as_much_as_there_is_memory_for);

fn needs_memory<C: Arch>() {
    let f = paged_ahead::<C>(600 * KIB4, 1);
    for left in 0_u64..80 {
        let taken = f.fx.take_all_but(left as usize, Order::BASE);
        f.fx.vm.objects().will_need(&f.object, 0, u64::MAX);
        f.fx.give_back(taken, Order::BASE);
        let pages = f.fx.vm.objects().usage(&f.object).pages;
        assert!(pages <= left && pages + 5 > left, "{pages} of {left}");
        f.evict();
        f.fx.check(&[&f.space]);
    }
    f.end([]);
}

on_both!(jumps, after_a_jump_one_page_is_read_and_then_more_again);

fn jumps<C: Arch>() {
    let f = paged_ahead::<C>(600 * KIB4, 32);
    for n in [0, 100, 101, 102, 103, 104, 105, 300, 50, 51] {
        assert_eq!(f.word(n), Ok(n + 1));
    }
    // 101 is the page after the last fetch: four, with 102 eight more, and with 105 sixteen.
    let around_101 = [(100, 1), (101, 4), (105, 8), (113, 16)];
    assert_eq!(runs(&f), [&[(0, 4)], &around_101[..], &[(300, 1), (50, 1), (51, 4)]].concat());
    f.end([]);
}

on_both!(bounds, a_run_ends_at_a_page_that_is_there_and_at_the_end);

fn bounds<C: Arch>() {
    let f = paged_ahead::<C>(6 * KIB4 + 100, 32);
    assert_eq!(f.word(2), Ok(3));
    assert_eq!(f.poke(2, 30), Ok(()));
    assert_eq!((f.word(0), f.word(3)), (Ok(1), Ok(4)));
    assert_eq!(f.word(4), Ok(5));
    assert_eq!(runs(&f), [(2, 1), (0, 2), (3, 1), (4, 3)]);
    assert_eq!((f.word(2), f.fx.vm.objects().usage(&f.object).pages), (Ok(30), 7));
    assert_eq!(f.peek(6), Ok(7), "the last page has 100 bytes");
    assert_eq!(f.peek(7), Err(FaultError::Beyond));
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(fails, what_cannot_be_read_ahead_is_absent_and_asked_for_again);

fn fails<C: Arch>() {
    let f = paged_ahead::<C>(100 * KIB4, 32);
    f.disk().set(Habits { fails_reads: true, ..Habits::default() });
    assert_eq!(f.peek(0), Err(FaultError::Io));
    assert_eq!(f.fx.vm.objects().usage(&f.object).pages, 0);
    f.fx.check(&[&f.space]);
    f.disk().set(Habits { most: Some(2 * KIB4 + 8), ..Habits::default() });
    // A short answer: what the pager does not have reads as zeros.
    assert_eq!((f.peek(0), f.peek(1), f.peek(2), f.peek(3)), (Ok(1), Ok(2), Ok(3), Ok(0)));
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(scarce, pages_ahead_are_as_many_as_there_is_memory_for);

fn scarce<C: Arch>() {
    let f = paged_ahead::<C>(100 * KIB4, 32);
    // Tables and nodes are there.
    (0..20).for_each(|n| assert_eq!(f.peek(n), Ok(n + 1)));
    assert_eq!(f.evict(), f.fx.count(Counter::PageIn) as u64 / 4);
    assert_eq!((f.peek(50), f.peek(70)), (Ok(51), Ok(71)));
    runs(&f);
    let taken = f.fx.take_all_but(3, Order::BASE);
    assert_eq!(f.peek(0), Ok(1));
    let got = runs(&f);
    assert!(matches!(got[..], [(0, 1..=3)]), "{got:?} with three frames");
    f.fx.give_back(taken, Order::BASE);
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(node_starved, pages_ahead_do_not_take_the_memory_of_the_node);

fn node_starved<C: Arch>() {
    for most in [1, 32] {
        for left in 2..=8 {
            let f = paged_ahead::<C>(600 * KIB4, most);
            // One page is there, so tables are; the trie has a single leaf and no node.
            assert_eq!(f.peek(50), Ok(51));
            let taken = f.fx.take_all_but(left, Order::BASE);
            let got = f.peek(0);
            f.fx.give_back(taken, Order::BASE);
            f.fx.check(&[&f.space]);
            f.end([]);
            assert_eq!(got, Ok(1), "most {most}, left {left}");
        }
    }
}

on_both!(bad_neighbour, a_page_that_can_be_read_is_read_whatever_its_neighbour);

fn bad_neighbour<C: Arch>() {
    for most in [1, 32] {
        let f = paged_ahead::<C>(100 * KIB4, most);
        // The disk cannot read page 2: a run with it fails, any other is answered.
        let bad = |page: u64, pages: u64| (page..page + pages).contains(&2);
        let mut got = Vec::new();
        for _ in 0..5 {
            // It answers later, so that the answer is by the run.
            f.disk().set(Habits { late: true, ..Habits::default() });
            let one = scope(|threads| {
                let f = &f;
                let reader = threads.spawn(move || {
                    f.fx.run_on(1);
                    f.peek(0)
                });
                while !reader.is_finished() {
                    if let Some(&(page, bytes)) = f.calls(false).first() {
                        let fails_reads = bad(page, bytes.div_ceil(KIB4));
                        f.disk().set(Habits { late: true, fails_reads, ..Habits::default() });
                        let mut waiting = Vec::new();
                        while waiting.is_empty() {
                            waiting = f.disk().waiting(f.fx.m());
                        }
                        waiting.into_iter().for_each(|answer| f.fx.vm.objects().answer(answer));
                    }
                    yield_now();
                }
                reader.join().unwrap()
            });
            got.push(one);
        }
        f.fx.check(&[&f.space]);
        f.end([]);
        assert_eq!(got, [Ok(1); 5], "at most {most}");
    }
}

const LATE: Habits = Habits { late: true, fails_reads: false, fails_writes: false, most: None };

/// Answers the runs that wait: `first` of them as failed, and all that follow until `is_over`.
fn answer_until<C: Arch>(f: &Paged<C>, first: usize, is_over: impl Fn() -> bool) {
    f.disk().set(Habits { fails_reads: true, ..LATE });
    let mut failed = 0;
    while !is_over() {
        for answer in f.disk().waiting(f.fx.m()) {
            f.fx.vm.objects().answer(answer);
            failed += 1;
        }
        if failed >= first {
            f.disk().set(LATE);
        }
        yield_now();
    }
}

on_both!(second_waiter, who_waits_for_a_page_of_a_run_that_failed_looks_anew);

fn second_waiter<C: Arch>() {
    let f = paged_ahead::<C>(100 * KIB4, 32);
    f.disk().set(LATE);
    let read = |cpu, page| {
        f.fx.run_on(cpu);
        f.word(page)
    };
    scope(|threads| {
        let first = threads.spawn(|| read(1, 0));
        while f.fx.vm.objects().usage(&f.object).pages != 4 {
            yield_now();
        }
        let second = threads.spawn(|| read(2, 1));
        // Mostly it waits by now.
        (0..2000).for_each(|_| yield_now());
        answer_until(&f, 1, || first.is_finished() && second.is_finished());
        assert_eq!((first.join().unwrap(), second.join().unwrap()), (Ok(1), Ok(2)));
    });
    assert_eq!(runs(&f), [(0, 4), (0, 1), (1, 1)]);
    f.fx.check(&[&f.space]);
    f.end([]);
}

on_both!(cut_off, a_pager_is_not_asked_again_for_what_was_cut_off);

fn cut_off<C: Arch>() {
    let f = paged_ahead::<C>(100 * KIB4, 32);
    f.disk().set(LATE);
    scope(|threads| {
        let reader = threads.spawn(|| {
            f.fx.run_on(1);
            f.peek(0)
        });
        while f.fx.vm.objects().usage(&f.object).pages != 4 {
            yield_now();
        }
        let cut = threads.spawn(|| {
            f.fx.run_on(2);
            f.fx.vm.objects().resize(&f.object, 0)
        });
        while f.fx.vm.objects().usage(&f.object).bytes != 0 {
            yield_now();
        }
        answer_until(&f, 1, || reader.is_finished() && cut.is_finished());
        assert_eq!(reader.join().unwrap(), Err(FaultError::Beyond));
        assert_eq!(cut.join().unwrap(), Ok(()));
    });
    assert_eq!(runs(&f), [(0, 4)]);
    assert_eq!(f.fx.vm.objects().usage(&f.object).pages, 0);
    f.fx.check(&[&f.space]);
    f.end([]);
}
