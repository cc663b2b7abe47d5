//! Programs that do what few do, and what the recorder says of it.
mod common;

use common::{check, compile, run, scratch};
use std::path::Path;
use vellum_trace::event::{Change, Event};
use vellum_trace::record::{Options, RecordReport};

/// Records the program's way to do it, with more arguments.
fn recorded(dir: &Path, words: &[&str]) -> (RecordReport, Vec<Event>) {
    let program = compile(dir, "unusual");
    let words = [program.into()].into_iter().chain(words.iter().map(Into::into)).collect();
    let (report, events) = run(Options::new(words, dir.join("t.vt")));
    check(&events);
    assert_eq!((report.native_code, report.exit_code, report.partial), (Some(7), 7, false));
    assert!(report.totals.touched_pages >= 1024, "{:?}", report.totals);
    std::fs::remove_dir_all(dir).expect("removed");
    (report, events)
}

#[test]
fn the_kernel_writes_no_more_of_a_message_than_the_buffer_takes() {
    let (_, events) = recorded(&scratch("peek"), &["peek"]);
    let written =
        |e: &&Event| matches!(e, Event::Access { flags, .. } if flags.kernel() && flags.write());
    let lines = events.iter().filter(written).count();
    assert!(lines < 300, "{lines}: a message of 60,000 bytes has 938");
}

/// As services do when they begin. The recorder's own file is not among them.
#[test]
fn a_program_that_closes_all_descriptors_is_recorded_to_its_end() {
    let (_, events) = recorded(&scratch("closes"), &["close"]);
    let exit = |e: &Event| matches!(e, Event::Call(c) if c.change == Change::Exit { code: 7 });
    assert!(events.iter().any(exit));
}

#[test]
fn an_exec_that_fails_is_not_in_the_trace() {
    let dir = scratch("in-vain");
    let file = dir.join("nothing");
    std::fs::write(&file, [1, 2, 3]).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&file, mode).expect("its own file");
    let name = file.to_str().expect("a plain name").to_owned();
    let (report, events) = recorded(&dir, &["exec", &name]);
    assert_eq!(report.totals.execs, 0);
    assert!(!events.iter().any(|e| matches!(e, Event::Call(c) if c.change == Change::Exec)));
}
