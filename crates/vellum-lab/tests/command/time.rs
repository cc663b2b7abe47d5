//! What a replay says of time, and by which constants it was charged.

use crate::common::{RW, Script, Temporary, count, counters, vellum};
use vellum_trace::event::{Change, Event, Flags, MapKind};

/// The first column of a run, as JSON.
fn first(trace: &Temporary, machine: &str, more: &[&str]) -> serde_json::Value {
    let args = ["run", "--trace", trace.path(), "--machine", machine, "--json"];
    let said = vellum(&[&args[..], more].concat());
    assert_eq!(said.code, Some(0), "{}", said.err);
    let doc: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    doc["variants"][0].clone()
}

#[test]
fn the_kinds_of_cycles_add_up_to_the_total() {
    let mut s = Script::new();
    let m = s.anon(300);
    s.touch(m, 0..300)
        .call(Change::Unmap { mapping: m, offset: 0, len: 100 * 4096 })
        .touch(m, 100..300);
    for machine in ["tiny", "milan", "thunderx2"] {
        for c in counters(
            &s.file(&format!("sum-{machine}.vt")),
            &["--machine", machine, "--vs", "thp=always"],
        ) {
            let kinds = ["program", "stlb", "walk", "fault", "clear", "flush", "calls", "exit"];
            let sum: i64 = kinds.iter().map(|k| count(&c, &format!("cycles_{k}"))).sum();
            assert_eq!(sum, count(&c, "cycles_total"), "{machine}");
            assert!(count(&c, "cycles_total") > 0 && count(&c, "cycles_clear") > 0);
        }
    }
}

/// A kernel frees what a program leaves mapped on that program's time, as `munmap` does. Nothing
/// else changes.
#[test]
fn the_end_of_a_program_frees_its_memory_at_its_expense() {
    let run = |name: &str, last: Option<Change>| {
        let mut s = Script::new();
        let m = s.anon(3000);
        s.touch(m, 0..3000);
        last.map(|change| s.call(change));
        first(&s.file(name), "tiny", &["--as", "vellum", "--set", "thp=never"])
    };
    let of = |run: &serde_json::Value, section: &str| {
        let all = run[section].as_object().expect("counters").clone();
        all.into_iter().map(|(k, v)| (k, v.as_i64().expect("a number"))).collect::<Vec<_>>()
    };
    let open = run("no-end.vt", None);
    let ended = run("end.vt", Some(Change::Exit { code: 0 }));
    let other = run("exec.vt", Some(Change::Exec));
    let unmapped = run("munmap.vt", Some(Change::Unmap { mapping: 0, offset: 0, len: 3000 << 12 }));
    let get = |run: &serde_json::Value, name: &str| run["counters"][name].as_i64().expect(name);
    let took = |run| get(run, "cycles_total") - get(&open, "cycles_total");
    let exit = get(&ended, "cycles_exit");
    assert_eq!((get(&open, "cycles_exit"), get(&unmapped, "cycles_exit")), (0, 0));
    // The table goes, too, but no mapping has to be cut.
    let munmap = took(&unmapped);
    assert!(exit > munmap / 2 && exit < munmap * 2, "{exit}, munmap {munmap}");
    assert_eq!((took(&ended), get(&other, "cycles_exit")), (exit, exit));
    for ((name, before), (_, after)) in
        of(&open, "counters").into_iter().zip(of(&ended, "counters"))
    {
        let more = match name.as_str() {
            "cycles_exit" | "cycles_total" | "estimate_total" | "cycles_elapsed" => exit,
            _ => 0,
        };
        assert_eq!(after - before, more, "{name}");
    }
    let charged = |run| of(run, "charges").iter().map(|c| c.1).sum::<i64>();
    let more = charged(&ended) - charged(&open);
    assert!((more - exit).abs() <= 40, "{more} of {exit}, to roundings");
}

/// The total is an estimate of the whole program; beside it stands no figure of a part.
#[test]
fn a_trace_in_windows_says_nothing_of_elapsed_time() {
    let elapsed = |skip: bool| {
        let mut s = Script::new();
        let m = s.anon(64);
        s.touch(m, 0..32);
        if skip {
            s.push(Event::Skip { accesses: 1000, instructions: 5000 });
        }
        s.touch(m, 32..64);
        let c =
            counters(&s.file("windows.vt"), &["--machine", "tiny", "--set", "thp=never"]).remove(0);
        assert_eq!(count(&c, "accesses_skipped"), 1000 * i64::from(skip));
        assert!(count(&c, "estimate_total") > 0);
        ["cycles_elapsed", "cycles_idle", "cycles_io"].map(|name| c.contains_key(name))
    };
    assert_eq!([elapsed(false), elapsed(true)], [[true; 3], [false; 3]]);
}

/// A program that works on one thousand pages after the other. Each window begins on pages that no
/// TLB holds, which is not how the program met them.
#[test]
fn the_first_half_of_a_window_makes_tlbs_warm_and_stands_for_nothing() {
    const PAGES: u64 = 1000;
    const STRETCH: u64 = 40_000;
    let recorded = |kept: u64, window: &str| {
        let mut s = Script::new();
        let m = s.anon(8 * PAGES);
        for page in 0..8 * PAGES {
            // First touches between windows.
            if kept < STRETCH / 2 {
                s.push(Event::Skip { accesses: 1, instructions: 1 });
            }
            s.touch(m, page..page + 1);
        }
        let (mut draw, mut skipped) = (1u64, 0);
        for n in 0..16 * STRETCH {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if n % (STRETCH / 2) >= kept {
                skipped += 1;
                continue;
            }
            if skipped > 0 {
                s.push(Event::Skip { accesses: skipped, instructions: u64::from(skipped) });
                skipped = 0;
            }
            s.load(m, (n / STRETCH % 8 * PAGES + (draw >> 33) % PAGES) * 4096);
        }
        s.window = window.to_owned();
        let trace = s.file(&format!("warm-{kept}.vt"));
        counters(&trace, &["--machine", "milan", "--set", "thp=never"]).remove(0)
    };
    let walks = |c| count(&c, "estimate_walk") as f64;
    let whole = walks(recorded(STRETCH / 2, ""));
    // A trace that names no window is one of which nobody knows where they begin.
    let [cold, warm] = ["", "8000,2000,20000"].map(|window| walks(recorded(2000, window)));
    let off = |estimate: f64| (estimate / whole - 1.0).abs();
    assert!(off(warm) < 0.7 * off(cold), "{whole}: cold {cold}, warm {warm}");
}

/// Kernel work is in a trace as a whole, and the program's is scaled up: so are their charges.
#[test]
fn charges_add_up_to_the_time_also_where_windows_left_something_out() {
    let mut s = Script::new();
    let m = s.anon(4000);
    for round in 0..4 {
        s.push(Event::Skip { accesses: 30_000, instructions: 60_000 });
        for n in 0..2000 {
            let offset = (n * 37 % 1000 + round * 1000) * 4096 + n % 64 * 64;
            s.load(m, offset);
            let flags = Flags::WRITE.with(Flags::KERNEL);
            s.push(Event::Access { mapping: m, size: 64, flags, offset });
        }
    }
    s.window = "30000,2000,32000".to_owned();
    let trace = s.file("sum.vt");
    let said = vellum(&["run", "--trace", trace.path(), "--machine", "milan", "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let doc: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    for column in doc["variants"].as_array().expect("columns") {
        let charges = column["charges"].as_object().expect("charges");
        let sum: f64 = charges.values().filter_map(serde_json::Value::as_f64).sum();
        let whole = column["counters"]["estimate_total"].as_f64().expect("a time");
        let waiting = column["counters"]["cycles_idle"].as_f64().unwrap_or(0.0);
        assert!((sum / (whole + waiting) - 1.0).abs() < 0.01, "{sum} of {whole}: {column}");
    }
    // A warm file is read before the run, and nobody is charged for that.
    let mut warm = Script::new();
    let file = warm.map(256, MapKind::FilePrivate, RW);
    warm.read(file, 0..256);
    let trace = warm.file("warm.vt");
    let said = vellum(&["run", "--trace", trace.path(), "--machine", "milan", "--json"]);
    let doc: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    let column = &doc["variants"][0];
    let charges = column["charges"].as_object().expect("charges");
    let sum: i64 = charges.values().filter_map(serde_json::Value::as_i64).sum();
    let spent =
        ["cycles_total", "cycles_idle", "cycles_io"].map(|n| column["counters"][n].as_i64());
    let spent: i64 = spent.into_iter().flatten().sum();
    assert!((sum - spent).abs() <= 2 * charges.len() as i64, "{sum} of {spent}, to roundings");
    // Windows that a replay cannot see are said to be such.
    s.window = "30000,900,32000".to_owned();
    let trace = s.file("short.vt");
    let said = vellum(&["run", "--trace", trace.path(), "--machine", "milan"]);
    assert!(said.out.contains("windows of fewer than 1,000 accesses a thread"), "{}", said.out);
}

/// What a replay says of a constant is what another replay with another constant finds.
#[test]
fn charges_tell_what_a_run_on_a_machine_of_other_constants_takes() {
    let mut s = Script::new();
    let m = s.anon(20_000);
    s.touch(m, 0..20_000);
    let mut draw = 1u64;
    for n in 0..60_000 {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let offset = (draw >> 33) % 20_000 * 4096 + (draw >> 20) % 64 * 64;
        let flags = if n % 2 == 0 { Flags::READ } else { Flags::READ.with(Flags::DEPENDENT) };
        s.push(Event::Access { mapping: m, size: 8, flags, offset });
    }
    let trace = s.file("charges.vt");
    // Eight loads, each of the address that the last one had, in each of the lines of 256 KiB.
    let mut s = Script::new();
    let m = s.anon(64);
    s.touch(m, 0..64);
    for n in 0..80_000 {
        let flags = Flags::READ.with(Flags::DEPENDENT);
        s.push(Event::Access { mapping: m, size: 8, flags, offset: n / 8 % 4096 * 64 + n % 8 * 8 });
    }
    let chain = s.file("chain.vt");
    let milan = vellum_sim::file::preset_text("milan").expect("a preset");
    let run = |trace: &Temporary, text: &str| {
        let file = Temporary::with("charges.toml", text.as_bytes());
        first(trace, file.path(), &["--as", "vellum", "--set", "thp=never"])
    };
    let time = |run: &serde_json::Value| run["counters"]["estimate_total"].as_f64().unwrap();
    for (trace, key, from, to) in [
        (&trace, "memory.latency", "\"120 ns\"", "\"144 ns\""),
        (&trace, "costs.work.fault", "value = 1050", "value = 1260"),
        (&trace, "costs.clear_page_line", "value = 10.64", "value = 12.768"),
        (&chain, "l1d.latency", "latency = { value = 4,", "latency = { value = 4.8,"),
    ] {
        let base = run(trace, milan);
        assert!(milan.contains(from), "{key}");
        let charged = base["charges"][key].as_f64().unwrap_or_else(|| panic!("{key} in {base}"));
        let more = time(&run(trace, &milan.replace(from, to))) - time(&base);
        assert!(more > 0.002 * time(&base), "{key} matters");
        let off = (0.2 * charged / more - 1.0).abs();
        // Where all line-fill buffers are in use, a wait is charged to the access that ends first.
        assert!(off < 0.3, "{key}: {charged} charged, {more} for a fifth more");
    }
}

/// Each takes the time of the machine file, on a machine that has one and on no other.
#[test]
fn branches_predicted_wrongly_take_their_time() {
    let mut s = Script::new();
    let m = s.anon(1);
    s.touch(m, 0..1);
    for n in 0..10_000u32 {
        let flags = if n % 10 == 0 { Flags::READ.with(Flags::MISPREDICTED) } else { Flags::READ };
        s.push(Event::Access { mapping: m, size: 8, flags, offset: 0 });
    }
    let trace = s.file("branches.vt");
    let milan = vellum_sim::file::preset_text("milan").expect("a preset");
    let core = "[core]\nmispredict = { value = 16, basis = \"guess\", source = \"this test\" }";
    let with = Temporary::with("branches.toml", milan.replace("[core]", core).as_bytes());
    let charges = |machine: &str| {
        let run = first(&trace, machine, &["--cpus", "1"]);
        let of = |what: &str, key: &str| run[what][key].as_u64().unwrap_or(0);
        [of("charges", "core.mispredict"), of("counters", "estimate_total")]
    };
    let ([none, without], [some, with]) = (charges("milan"), charges(with.path()));
    assert_eq!([none, some], [0, 16 * 1000]);
    assert_eq!(with - without, 16 * 1000);
}

/// The same bytes are copied, by 2 MiB or by 4 KiB: a long copy is no slower than its parts.
#[test]
fn a_huge_page_copied_as_a_whole_takes_what_its_pages_take() {
    let mut s = Script::new();
    let m = s.anon(4 * 512);
    s.touch(m, 0..4 * 512).call(Change::Fork { child: Some(0) }).touch(m, 0..4 * 512);
    let huge = ["--machine", "milan", "--cpus", "1", "--set", "thp=always"];
    let by = |how: &str| {
        let c = counters(&s.file(&format!("{how}.vt")), &[&huge[..], &["--set", how]].concat());
        let copied = ["lines_copied", "cycles_clear"].map(|name| count(&c[0], name));
        (copied[0], copied[1])
    };
    let (whole, parts) = (by("cow.huge=copy"), by("cow.huge=split"));
    assert_eq!([whole.0, parts.0], [4 * 512 * 64; 2]);
    assert!(whole.1 * 10 <= parts.1 * 11, "{whole:?} {parts:?}");
}
