//! Several threads: what waits for what, on as many CPUs as there are threads, fewer, and one.

use crate::common::{RW, Script, count, counters, vellum};
use vellum_trace::event::{Change, Event, MapKind, Prot};

/// `threads` threads, each with an arena that one thread reserves and another opens and closes, in
/// rounds.
fn crossing(threads: u32, rounds: u64) -> Script {
    let mut s = Script::new();
    let arenas: Vec<u32> = (0..threads).map(|_| s.map(64, MapKind::Anon, Prot::NONE)).collect();
    for t in 1..threads {
        s.push(Event::ThreadStart { thread: t });
    }
    for round in 0..rounds {
        for t in 0..threads {
            // Opened by its neighbour, used by the thread itself, emptied by its other neighbour.
            let arena = arenas[t as usize];
            s.switch((t + 1) % threads);
            s.call(Change::Protect { mapping: arena, offset: 0, len: 64 * 4096, prot: RW });
            s.switch(t).touch(arena, 0..16 + round % 8);
            s.switch((t + threads - 1) % threads);
            s.call(Change::Advise {
                mapping: arena,
                offset: 0,
                len: 64 * 4096,
                advice: vellum_trace::event::Advice::DontNeed,
            });
            s.call(Change::Protect { mapping: arena, offset: 0, len: 64 * 4096, prot: Prot::NONE });
        }
    }
    s
}

#[test]
fn threads_that_open_and_close_each_others_memory_never_meet_it_closed_and_never_stop() {
    for threads in [1, 2, 3, 4] {
        let s = crossing(threads, 12);
        for cpus in ["1", "2", "3", "4"] {
            let file = s.file(&format!("crossing-{threads}-{cpus}.vt"));
            let c = counters(
                &file,
                &["--machine", "tiny", "--set", "thp=never", "--cpus", cpus, "--oracle=walk"],
            );
            assert_eq!(
                [count(&c[0], "accesses_refused"), count(&c[0], "calls_refused")],
                [0, 0],
                "{threads} on {cpus}"
            );
            let touched: i64 = (0..12).map(|r| 16 + r % 8).sum::<i64>() * i64::from(threads);
            assert_eq!(
                count(&c[0], "pgfault"),
                touched,
                "{threads} on {cpus}: each round touches its pages anew"
            );
        }
    }
}

/// What a thread writes is copied while another thread's child has it, not before and not after.
#[test]
fn no_thread_passes_a_fork_or_the_end_of_a_child() {
    let mut s = Script::new();
    let m = s.anon(32);
    s.push(Event::ThreadStart { thread: 1 });
    for child in 0..10 {
        s.switch(1).touch(m, 0..32);
        s.switch(0).call(Change::Fork { child: Some(child) });
        s.switch(1).touch(m, 0..20);
        s.switch(0).call(Change::ChildEnd { child });
    }
    for cpus in ["1", "2"] {
        let file = s.file(&format!("fork-{cpus}.vt"));
        let c =
            counters(&file, &["--machine", "tiny", "--set", "thp=never", "--cpus", cpus]).remove(0);
        let found = ["pgfault", "cow_copy", "cow_reuse"].map(|name| count(&c, name));
        assert_eq!(found, [32 + 10 * 20 + 9 * 12, 10 * 20, 9 * 12], "{cpus} CPUs");
    }
}

#[test]
fn a_thread_may_use_what_another_maps_only_after_it_is_mapped() {
    let mut s = Script::new();
    s.push(Event::ThreadStart { thread: 1 });
    for _ in 0..200 {
        // Thread 1's first use follows thread 0's call at once in the file; on the machine it would
        // be there long before.
        s.switch(0);
        let m = s.anon(4);
        s.switch(1).touch(m, 0..4);
        s.switch(0).call(Change::Unmap { mapping: m, offset: 0, len: 4 * 4096 });
    }
    let c = counters(&s.file("after.vt"), &["--machine", "tiny", "--set", "thp=never"]);
    assert_eq!(
        [count(&c[0], "accesses_refused"), count(&c[0], "pgfault"), count(&c[0], "rss_end_bytes")],
        [0, 800, 0]
    );
}

#[test]
fn a_run_repeated_gives_the_same_bytes_alone_and_beside_others() {
    let s = crossing(4, 8);
    let file = s.file("same.vt");
    let run = |more: &[&str]| {
        let args: Vec<&str> = ["run", "--trace", file.path(), "--machine", "tiny", "--json"]
            .iter()
            .chain(more)
            .copied()
            .collect();
        let said = vellum(&args);
        assert_eq!(said.code, Some(0), "{}", said.err);
        said.out
    };
    let both = run(&["--set", "thp=never", "--vs", "tlb.batch=off", "--vs", "zero.page=off"]);
    assert_eq!(
        both,
        run(&["--set", "thp=never", "--vs", "tlb.batch=off", "--vs", "zero.page=off"])
    );
    let variants = |text: &str| {
        serde_json::from_str::<serde_json::Value>(text).expect("JSON")["variants"].clone()
    };
    let alone = run(&["--set", "thp=never", "--set", "tlb.batch=off"]);
    assert_eq!(variants(&both)[1]["counters"], variants(&alone)[0]["counters"]);
}

#[test]
fn more_cpus_take_less_time_for_independent_threads() {
    let mut s = Script::new();
    let areas: Vec<u32> = (0..4).map(|_| s.anon(256)).collect();
    for t in 1..4 {
        s.push(Event::ThreadStart { thread: t });
    }
    for _ in 0..4 {
        for t in 0..4u32 {
            s.switch(t).touch(areas[t as usize], 0..256);
        }
    }
    let elapsed = |cpus: &str| {
        let file = s.file(&format!("parallel-{cpus}.vt"));
        count(&counters(&file, &["--machine", "milan", "--cpus", cpus])[0], "cycles_elapsed")
    };
    let (one, four) = (elapsed("1"), elapsed("4"));
    assert!(four * 2 < one, "4 CPUs: {four} cycles, 1 CPU: {one}");
}

#[test]
fn the_order_of_switches_does_not_matter_to_threads_that_share_nothing() {
    let faults = |chunk: u64| {
        let mut s = Script::new();
        let (a, b) = (s.anon(128), s.anon(128));
        s.push(Event::ThreadStart { thread: 1 });
        for from in (0..128).step_by(chunk as usize) {
            s.switch(0).touch(a, from..(from + chunk).min(128));
            s.switch(1).touch(b, from..(from + chunk).min(128));
        }
        let c = counters(
            &s.file(&format!("chunk-{chunk}.vt")),
            &["--machine", "tiny", "--set", "thp=never"],
        );
        [count(&c[0], "pgfault"), count(&c[0], "accesses"), count(&c[0], "rss_end_bytes")]
    };
    assert_eq!(faults(1), [256, 256, 256 * 4096]);
    assert_eq!(faults(128), [256, 256, 256 * 4096]);
}

#[test]
fn a_thread_with_millions_of_events_in_front_of_anothers_few_stops_nobody() {
    // More than the reader keeps: thread 1 has to be replayed before thread 0's next event can even
    // be read.
    let mut s = Script::new();
    let (shared, own) = (s.anon(16), s.anon(16));
    s.push(Event::ThreadStart { thread: 1 });
    s.switch(1);
    for i in 0..2_200_000u64 {
        s.load(own, i * 64 % (16 * 4096));
    }
    s.switch(0).touch(shared, 0..16).call(Change::Unmap {
        mapping: own,
        offset: 0,
        len: 16 * 4096,
    });
    s.switch(1).touch(shared, 0..16);
    let file = s.file("ahead.vt");
    for cpus in ["1", "2"] {
        let c = counters(&file, &["--machine", "tiny", "--set", "thp=never", "--cpus", cpus]);
        assert_eq!(
            [count(&c[0], "accesses"), count(&c[0], "accesses_refused")],
            [2_200_032, 0],
            "{cpus} CPUs"
        );
        assert_eq!(
            count(&c[0], "pgfault"),
            32,
            "each page once: 16 read, 16 written by thread 0 first"
        );
    }
}

#[test]
fn a_page_is_faulted_by_the_thread_that_touches_it_first_in_the_recording() {
    let mut s = Script::new();
    let m = s.anon(400);
    s.push(Event::ThreadStart { thread: 1 });
    // Thread 0 has work of its own to do before it fills the pages; thread 1 would be there long
    // before.
    let own = s.anon(64);
    for _ in 0..20 {
        s.touch(own, 0..64);
    }
    s.touch(m, 0..400).switch(1);
    for p in 0..400 {
        s.load(m, p * 4096);
    }
    let c =
        counters(&s.file("first.vt"), &["--machine", "tiny", "--set", "thp=never", "--cpus", "2"]);
    assert_eq!(
        [count(&c[0], "pgfault"), count(&c[0], "zero_page_fault"), count(&c[0], "cow_copy")],
        [464, 0, 0]
    );
}
