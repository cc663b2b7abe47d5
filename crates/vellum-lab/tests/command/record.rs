//! From a program to a table: recorded here and now, replayed on every machine. Needs `cc` and
//! `qemu-x86_64`; `./test` names these tests as skipped where the latter is missing.

use std::path::PathBuf;
use std::process::Command;

use vellum_trace::event::{Change, Event};

use crate::common::{Temporary, count, counters, vellum};

/// The plugin, which cargo built because it is one of our dependencies for tests.
pub(crate) fn plugin() -> PathBuf {
    let exe = std::env::current_exe().expect("a test binary");
    let found = exe
        .ancestors()
        .skip(1)
        .take(2)
        .map(|d| d.join("libvellum_record.so"))
        .find(|p| p.is_file());
    found.expect("the plugin is built with these tests")
}

#[test]
fn recorded_threads_run_on_every_machine_and_take_the_faults_they_take_natively() {
    let program = compiled("team", "every");
    let trace = Temporary::new("team.vt");
    let recorded = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["record", "-o", trace.path(), "--", program.path()])
        .env("VELLUM_RECORDER", plugin())
        .output()
        .expect("the command");
    let said = String::from_utf8_lossy(&recorded.stderr);
    assert!(recorded.status.success(), "{said}");
    // What follows can be pasted.
    let next = format!("next: {} run --trace {} ", env!("CARGO_BIN_EXE_vellum"), trace.path());
    assert!(said.contains(&next), "{said}");
    // Once natively, its output thrown away, and once under the recorder.
    assert_eq!(recorded.stdout, b"done\n", "the program's own output");

    let header = vellum_trace::TraceReader::open(&trace.0).expect("a trace").header().clone();
    // What `run` takes for Linux's choices.
    let host = |name: &str| {
        let path = format!("/sys/kernel/mm/transparent_hugepage/{name}");
        std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    assert_eq!((&header.host_thp, &header.host_thp_defrag), (&host("enabled"), &host("defrag")));
    assert_eq!(header.host_thp_zero_page, host("use_zero_page"));
    assert_eq!(header.host_thp_shmem, host("shmem_enabled"));
    let scans = &header.host_khugepaged;
    assert_eq!(scans.scan_sleep_millisecs, host("khugepaged/scan_sleep_millisecs"));
    assert_eq!(scans.pages_to_scan, host("khugepaged/pages_to_scan"));
    assert_eq!(scans.max_ptes_none, host("khugepaged/max_ptes_none"));
    let ahead = header.host_folio_ahead.strip_suffix('K').map(str::parse::<u32>);
    assert!(header.host_folio_ahead.is_empty() || matches!(ahead, Some(Ok(_))));
    let native = header.native.expect("native figures").minor_faults as i64;
    for machine in vellum_sim::file::presets().into_iter().filter(|m| *m != "tiny") {
        let columns = counters(&trace, &["--machine", machine, "--vs", "thp=always"]);
        for c in &columns {
            assert_eq!(
                [count(c, "accesses_refused"), count(c, "calls_refused"), count(c, "frames_lost")],
                [0; 3],
                "{machine}"
            );
            let kinds = ["program", "stlb", "walk", "fault", "clear", "flush", "calls", "exit"];
            let sum: i64 = kinds.iter().map(|k| count(c, &format!("cycles_{k}"))).sum();
            assert_eq!(sum, count(c, "cycles_total"), "{machine}");
        }
        let [never, always] = &columns[..] else { panic!("two columns") };
        let off = (count(never, "minor_faults") - native).abs();
        assert!(
            off * 20 <= native,
            "{machine}: {} faults simulated, {native} natively",
            count(never, "minor_faults")
        );
        assert!(
            count(always, "tlb_walks") * 4 < count(never, "tlb_walks"),
            "{machine}: walks fall with huge pages"
        );
        assert!(
            count(always, "pgfault") * 4 < count(never, "pgfault"),
            "{machine}: faults fall with huge pages"
        );
    }
}

/// A program of `tests/programs`, compiled for one test.
pub(crate) fn compiled(name: &str, test: &str) -> Temporary {
    let program = Temporary::new(&format!("{name}-{test}"));
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let built = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&program.0)
        .arg(source.with_extension("c"))
        .status()
        .expect("the compiler `cc`");
    assert!(built.success());
    program
}

pub(crate) fn record(args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_vellum"));
    c.arg("record").args(args).env("VELLUM_RECORDER", plugin());
    c
}

/// How far a replay with 4 KiB pages is from the native faults, in percent.
pub(crate) fn faults_off(trace: &Temporary, machine: &str) -> i64 {
    let header = vellum_trace::TraceReader::open(&trace.0).expect("a trace").header().clone();
    let native = header.native.expect("native figures").minor_faults as i64;
    let columns = counters(trace, &["--machine", machine, "--set", "thp=never"]);
    (count(&columns[0], "minor_faults") - native).abs() * 100 / native
}

/// Is nothing left beside a trace?
pub(crate) fn nothing_beside(trace: &Temporary) -> bool {
    ["partial", "meta"]
        .iter()
        .all(|ending| !PathBuf::from(format!("{}.{ending}", trace.path())).exists())
}

#[test]
fn a_shell_that_only_starts_others_is_not_offered_as_a_trace_to_run() {
    let trace = Temporary::new("shell.vt");
    let args = ["--no-native", "-o", trace.path(), "--", "sh", "-c", "ls / | cat; true"];
    let said = record(&args).output().expect("runs");
    let err = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && !err.contains("next:"), "{err}");
    // Numbered as they started.
    assert!(err.contains("not recorded: 2 ") && err.contains("--process"), "{err}");
    assert!(err.contains("too small to say anything about page sizes"), "{err}");
}

#[test]
fn wrong_durations_signals_and_processes_are_refused_with_what_is_right() {
    let trace = Temporary::new("refused.vt");
    for (more, says) in [
        (&["--after", "soon"][..], "--after soon: not a duration"),
        (&["--stop-after", "1d"], "--stop-after 1d: not a duration"),
        (&["--stop-after", "0s"], "--stop-after: nothing is recorded in no time"),
        (&["--stop", "TREM"], "--stop TREM: no such signal"),
        (&["--process", "cat"], "--process cat: no such program ran; these did: 1 true"),
        (&["--process", "1", "--follow"], "cannot be used with"),
        (&["--for", "1s", "--window", "1,1"], "cannot be used with"),
    ] {
        let args = [&["-o", trace.path()][..], more, &["--", "true"]].concat();
        let said = record(&args).output().expect("runs");
        let err = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(2), "{more:?}: {err}");
        assert!(err.contains(says) && err.lines().count() == 1, "{more:?}: {err}");
        assert!(!trace.0.exists());
    }
}

#[test]
fn a_directory_that_takes_no_files_is_told_by_the_name_of_the_trace() {
    let said = record(&["-o", "/proc/x.vt", "--", "true"]).output().expect("runs");
    let err = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(2), "{err}");
    assert!(err.starts_with("vellum: /proc/x.vt: ") && err.lines().count() == 1, "{err}");
}

#[test]
fn recorded_files_have_names_unless_they_are_not_wanted() {
    for (extra, wanted) in [(&[][..], true), (&["--no-names"], false)] {
        let trace = Temporary::new(if wanted { "names.vt" } else { "no-names.vt" });
        let recorded = Command::new(env!("CARGO_BIN_EXE_vellum"))
            .args(["record", "--no-native", "-o", trace.path()])
            .args(extra)
            .args(["--", "cat", "/etc/passwd"])
            .env("VELLUM_RECORDER", plugin())
            .output()
            .expect("the command");
        assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
        let mut reader = vellum_trace::TraceReader::open(&trace.0).expect("a trace");
        let (mut names, mut block) = (Vec::new(), Vec::new());
        while reader.next_block(&mut block).expect("readable") {
            names.extend(block.iter().filter_map(|e| match e {
                Event::Call(c) => match &c.change {
                    Change::File { name, .. } => Some(name.clone()),
                    _ => None,
                },
                _ => None,
            }));
        }
        assert!(!names.is_empty());
        assert_eq!(names.contains(&Some("passwd".into())), wanted, "{names:?}");
        assert!(wanted || names.iter().all(Option::is_none), "{names:?}");
        let info = Command::new(env!("CARGO_BIN_EXE_vellum"))
            .args(["trace", "info", trace.path()])
            .output()
            .expect("the command");
        let text = String::from_utf8_lossy(&info.stdout);
        let line = format!("files:        {}; ", names.len());
        assert!(text.contains(&line), "{text}");
    }
}

/// The unit of a number alone; what it is read as, a test beside the parser says.
#[test]
fn the_help_and_the_page_say_that_a_duration_without_a_unit_is_in_seconds() {
    assert!(vellum(&["record", "--help"]).out.contains("(5 and 5s are five seconds)"));
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recording.md");
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("`--stop-after 5` means five seconds"));
}
