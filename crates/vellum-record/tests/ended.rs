//! Programs and recordings that do not come to their end, and windows by the clock.
mod common;

use common::{check, compile, events, plugin, scratch};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vellum_trace::build::Clock;
use vellum_trace::event::{Change, Event};
use vellum_trace::read_totals;
use vellum_trace::record::{Ended, Listener, Options, Progress, Report, Silent, record};

const MIB: u64 = 256;

fn options(dir: &Path, what: &str) -> Options {
    let act = compile(dir, "act");
    let words = vec![act.into(), "16".into(), what.into()];
    Options { plugin: plugin(), ..Options::new(words, dir.join("t.vt")) }
}

fn last_call(events: &[Event]) -> Option<&Change> {
    events.iter().rev().find_map(|e| match e {
        Event::Call(c) => Some(&c.change),
        _ => None,
    })
}

fn only_the_trace(dir: &Path) -> bool {
    let names = std::fs::read_dir(dir).expect("a folder").map(|e| e.expect("an entry").file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names == ["act", "t.vt"]
}

#[test]
fn a_program_that_crashes_leaves_a_trace_of_all_that_it_did() {
    let dir = scratch("crash");
    let o = options(&dir, "crash");
    let report = record(&o, &Silent).unwrap_or_else(|e| panic!("{e}"));
    let t = &report.traces[0];
    assert_eq!((t.exit_code, t.native_code, t.partial), (139, Some(139), false));
    assert!(t.totals.touched_pages >= 16 * MIB);
    let all = events(&o.out);
    check(&all);
    assert_eq!(last_call(&all), Some(&Change::Exit { code: 139 }));
    assert!(only_the_trace(&dir));
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn a_program_that_is_killed_leaves_a_trace_up_to_its_last_whole_block() {
    let dir = scratch("kill");
    let o = options(&dir, "kill");
    let report = record(&o, &Silent).unwrap_or_else(|e| panic!("{e}"));
    let t = &report.traces[0];
    assert_eq!((t.exit_code, t.native_code, t.partial), (137, Some(137), true));
    // Eight million stores, of which the recorder's queue holds two.
    assert!(t.totals.stores > 4 << 20 && t.totals.touched_pages >= 16 * MIB, "{:?}", t.totals);
    check(&events(&o.out));
    assert!(read_totals(&o.out).is_ok_and(|s| s.partial && s.totals == t.totals));
    assert!(only_the_trace(&dir));
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn a_service_is_stopped_after_its_time_and_its_trace_is_whole() {
    for (what, code) in [("wait", 5), ("sleep", 128 + 15)] {
        let dir = scratch(what);
        let mut o = options(&dir, what);
        o.stop_after = Some(Duration::from_secs(4));
        let report = record(&o, &Silent).unwrap_or_else(|e| panic!("{e}"));
        let t = &report.traces[0];
        assert!(matches!(report.ended, Ended::Clock));
        assert_eq!((t.exit_code, t.native_code, t.partial), (code, Some(code), false));
        assert_eq!(last_call(&events(&o.out)), Some(&Change::Exit { code }));
        assert!(only_the_trace(&dir));
        std::fs::remove_dir_all(dir).expect("removed");
    }
}

/// Asks to stop when something has been recorded.
#[derive(Default)]
struct Impatient(AtomicBool);

impl Listener for Impatient {
    fn stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
    fn progress(&self, p: &Progress) {
        self.0.fetch_or(p.accesses > 0 && p.written > 0, Ordering::Relaxed);
    }
}

#[test]
fn a_recording_that_is_asked_to_stop_keeps_its_trace() {
    let dir = scratch("asked");
    let mut o = options(&dir, "sleep");
    // Not INT, which a shell has the programs ignore that it starts in the background.
    (o.native, o.stop_signal) = (false, libc::SIGUSR1);
    let report: Report = record(&o, &Impatient::default()).unwrap_or_else(|e| panic!("{e}"));
    let t = &report.traces[0];
    assert!(matches!(report.ended, Ended::Asked));
    assert_eq!((t.exit_code, t.partial), (128 + libc::SIGUSR1, false));
    assert!(t.totals.touched_pages > 0 && only_the_trace(&dir));
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn outside_a_window_by_the_clock_first_touches_alone_are_kept() {
    let dir = scratch("clock");
    let mut o = options(&dir, "");
    o.native = false;
    let whole = record(&o, &Silent).unwrap_or_else(|e| panic!("{e}")).traces.remove(0).totals;
    o.clock = Some(Clock { after: Duration::from_secs(3600), keep: None });
    let part = record(&o, &Silent).unwrap_or_else(|e| panic!("{e}")).traces.remove(0).totals;
    assert_eq!(whole.skipped_accesses, 0);
    assert!(part.accesses() * 2 < whole.accesses() && part.skipped_accesses > 0, "{part:?}");
    assert!(part.touched_pages.abs_diff(whole.touched_pages) < 20, "{part:?} {whole:?}");
    o.clock = Some(Clock { after: Duration::ZERO, keep: None });
    let open = record(&o, &Silent).unwrap_or_else(|e| panic!("{e}")).traces.remove(0).totals;
    assert_eq!(open.skipped_accesses, 0);
    std::fs::remove_dir_all(dir).expect("removed");
}
