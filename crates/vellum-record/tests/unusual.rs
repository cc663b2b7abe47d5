//! Programs that do what few do, and what the recorder says of it.
mod common;

use common::{check, compile, run, scratch};
use std::path::Path;
use vellum_trace::event::{Change, Event, Prot};
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

/// The mapping that was made with so many pages and these rights.
fn mapping(events: &[Event], pages: u64, prot: Prot) -> u32 {
    let found = events.iter().find_map(|e| match e {
        Event::Call(c) => match &c.change {
            Change::Map(m) if m.len == pages * 4096 && m.prot == prot => Some(m.mapping),
            _ => None,
        },
        _ => None,
    });
    found.expect("the program's own mapping")
}

#[test]
fn the_kernel_writes_no_more_of_a_message_than_the_buffer_takes() {
    let (_, events) = recorded(&scratch("peek"), &["peek"]);
    let written =
        |e: &&Event| matches!(e, Event::Access { flags, .. } if flags.kernel() && flags.write());
    let lines = events.iter().filter(written).count();
    assert!(lines < 300, "{lines}: a message of 60,000 bytes has 938");
}

/// The beginning of a block is told with its first access, which may come only after a handler.
#[test]
fn an_access_that_succeeds_after_a_handler_is_recorded_once_and_behind_the_handlers_call() {
    let (_, events) = recorded(&scratch("fault"), &["fault"]);
    let closed = mapping(&events, 64, Prot::NONE);
    let (mut open, mut stored) = (Vec::new(), Vec::new());
    for event in &events {
        match event {
            Event::Call(c) => match c.change {
                Change::Protect { mapping, offset, .. } if mapping == closed => open.push(offset),
                _ => {}
            },
            Event::Access { mapping, offset, flags, .. } if *mapping == closed => {
                assert!(flags.write() && open.contains(offset), "{event:?}");
                stored.push(*offset);
            }
            _ => {}
        }
    }
    assert_eq!(stored, (0..64).map(|page| page * 4096).collect::<Vec<_>>());
}

/// As services do when they begin. The recorder's own file is not among them.
#[test]
fn a_program_that_closes_all_descriptors_is_recorded_to_its_end() {
    let (_, events) = recorded(&scratch("closes"), &["close"]);
    let exit = |e: &Event| matches!(e, Event::Call(c) if c.change == Change::Exit { code: 7 });
    assert!(events.iter().any(exit));
}

/// A file that may be executed and is no program.
fn no_program(dir: &Path) -> String {
    let file = dir.join("nothing");
    std::fs::write(&file, [1, 2, 3]).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&file, mode).expect("its own file");
    file.to_str().expect("a plain name").to_owned()
}

#[test]
fn an_exec_that_fails_is_not_in_the_trace() {
    let dir = scratch("in-vain");
    let (report, events) = recorded(&dir, &["exec", &no_program(&dir)]);
    assert_eq!(report.totals.execs, 0);
    assert!(!events.iter().any(|e| matches!(e, Event::Call(c) if c.change == Change::Exec)));
}

/// Words of another thread that come between the two are of a block that began before.
#[test]
fn accesses_beside_an_exec_that_fails_keep_their_kind() {
    let dir = scratch("torn");
    let (report, events) = recorded(&dir, &["torn", &no_program(&dir)]);
    assert_eq!(report.totals.execs, 0);
    let read_only = mapping(&events, 32, Prot::READ);
    let of = |write: bool| {
        let is = |e: &&Event| match e {
            Event::Access { mapping, flags, .. } => *mapping == read_only && flags.write() == write,
            _ => false,
        };
        events.iter().filter(is).count()
    };
    assert!(of(false) > 10_000, "{}", of(false));
    assert_eq!(of(true), 0, "nobody can write there");
}

/// Each end that is taken back is the one that was written last, whosever exec it was.
#[test]
fn two_threads_may_try_an_exec_at_once() {
    let dir = scratch("both");
    let (report, events) = recorded(&dir, &["both", &no_program(&dir)]);
    assert_eq!((report.totals.execs, report.totals.threads), (0, 3));
    assert!(!events.iter().any(|e| matches!(e, Event::Call(c) if c.change == Change::Exec)));
    let ends = events.iter().filter(|e| matches!(e, Event::ThreadEnd { .. })).count();
    assert_eq!(ends, 2, "each begins and ends beside the other's");
    let [one, other] = [5, 6].map(|pages| mapping(&events, pages, Prot::READ));
    assert_ne!(one, other);
}
