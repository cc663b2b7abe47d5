//! Commands that start other programs: which is recorded, and that the others do not notice.
mod common;

use common::{check, compile, compile_with, events, plugin, scratch};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use vellum_trace::TraceReader;
use vellum_trace::event::{Change, Event};
use vellum_trace::record::{Choice, Listener, Options, RecordError, Report, Silent, record};

/// Pages of 4 KiB in a MiB.
const MIB: u64 = 256;

/// A folder with the program `act`, and with it under another name.
fn stage(name: &str) -> (PathBuf, [String; 2]) {
    let dir = scratch(name);
    let act = compile(&dir, "act");
    let other = dir.join("other");
    std::fs::copy(&act, &other).expect("a copy");
    let text = |p: PathBuf| p.to_str().expect("a plain name").to_owned();
    (dir, [text(act), text(other)])
}

fn shell(dir: &Path, script: String) -> Options {
    let words = ["/bin/sh".to_owned(), "-c".to_owned(), script].map(OsString::from);
    Options { plugin: plugin(), ..Options::new(words.to_vec(), dir.join("t.vt")) }
}

fn recorded(o: &Options) -> Report {
    record(o, &Silent).unwrap_or_else(|e| panic!("{e}"))
}

fn command(trace: &Path) -> Vec<String> {
    TraceReader::open(trace).expect("a trace").header().command.clone()
}

/// The files of a folder that are not the trace's own business.
fn left_behind(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).expect("a folder").map(|e| e.expect("an entry").file_name());
    let names = names.map(|n| n.to_string_lossy().into_owned());
    names.filter(|n| n.ends_with(".partial") || n.ends_with(".meta")).collect()
}

#[test]
fn of_a_pipe_the_largest_program_is_recorded_and_the_pipe_is_as_it_was() {
    let (dir, [act, _]) = stage("pipe");
    let out = dir.join("out");
    let o = shell(
        &dir,
        format!(
            "cd {}; WITH=this; export WITH; printf 'a\\nb\\n' | {act} 64 cat | tr a-z A-Z > out",
            dir.display()
        ),
    );
    let report = recorded(&o);
    assert_eq!(
        std::fs::read_to_string(out).expect("the last program's"),
        "THIS AND A\nTHIS AND B\n"
    );
    let t = &report.traces[0];
    assert_eq!(command(&o.out), [act.as_str(), "64", "cat"]);
    assert_eq!((t.exit_code, t.native_code, t.partial), (0, Some(0), false));
    assert_eq!((t.totals.forks, t.totals.execs), (0, 0));
    let all = events(&o.out);
    check(&all);
    let stores = 64 * MIB;
    assert!(t.totals.touched_pages >= stores, "{}", t.totals.touched_pages);
    // The pages that it touched, those of its files and little else: no shell, no `tr`.
    let native = t.native.expect("a native run").minor_faults;
    assert!((stores..stores + 400).contains(&native), "{native}");
    let names: Vec<String> = report.programs.iter().map(|p| p.name()).collect();
    assert!(names.contains(&"tr".to_owned()) && t.program == names.iter().position(|n| n == "act"));
    assert!(left_behind(&dir).is_empty());
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn a_script_that_executes_the_real_program_is_not_what_is_recorded() {
    let (dir, [act, _]) = stage("shim");
    let shim = dir.join("shim");
    let script = format!("#!/bin/sh\nls / > /dev/null\nexec {act} \"$@\"\n");
    std::fs::write(&shim, script).expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&shim, mode).expect("a mode");
    for native in [true, false] {
        let words = vec![shim.clone().into(), "16".into()];
        let mut o = Options::new(words, dir.join("t.vt"));
        (o.plugin, o.native) = (plugin(), native);
        let report = recorded(&o);
        assert_eq!(command(&o.out), [act.as_str(), "16"], "natively first: {native}");
        let t = &report.traces[0].totals;
        assert!(t.execs == 0 && t.touched_pages >= 16 * MIB, "{t:?}");
        check(&events(&o.out));
    }
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn a_static_program_that_is_executed_without_the_library_is_followed() {
    let dir = scratch("static");
    let act = compile_with(&dir, "act", &["-static"]);
    let other = dir.join("other");
    std::fs::copy(&act, &other).expect("a copy");
    let words = vec![act.into(), "1".into(), "exec".into(), other.clone().into(), "16".into()];
    let mut o = Options::new(words, dir.join("t.vt"));
    o.plugin = plugin();
    let t = &recorded(&o).traces[0];
    assert_eq!(command(&o.out), [other.to_str().expect("a plain name"), "16"]);
    assert!(t.totals.touched_pages >= 16 * MIB && t.exit_code == 0);
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn another_program_is_recorded_by_its_name_or_number() {
    let (dir, [act, other]) = stage("choice");
    let mut o = shell(&dir, format!("{act} 16; {other} 2; {other} 4; true"));
    let mut of = |choice: &str, native: bool| {
        (o.choice, o.native) = (Choice::parse(choice.as_ref()), native);
        record(&o, &Silent).map(|_| command(&o.out))
    };
    // Of two with that name the one with more faults; without a native run the first.
    assert_eq!(of("other", true).expect("recorded"), [other.as_str(), "4"]);
    assert_eq!(of("other", false).expect("recorded"), [other.as_str(), "2"]);
    assert_eq!(of("3", true).expect("recorded"), [other.as_str(), "2"]);
    assert_eq!(of("1", true).expect("recorded")[0], "/bin/sh");
    for native in [true, false] {
        let e = of("neither", native).expect_err("no such program");
        assert!(matches!(&e, RecordError::NoSuchProcess { ran, .. } if ran.len() == 4), "{e}");
    }
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn all_programs_get_a_trace_each() {
    let (dir, [act, other]) = stage("all");
    let mut o = shell(&dir, format!("{act} 16; {other} 2; true"));
    o.choice = Choice::All;
    let report = recorded(&o);
    let names: Vec<_> = report.traces.iter().map(|t| t.out.file_name().expect("a name")).collect();
    assert_eq!(names, ["t-1.vt", "t-2.vt", "t-3.vt"]);
    for (t, (name, pages)) in
        report.traces.iter().zip([("/bin/sh", 1), (&act, 16 * MIB), (&other, 2 * MIB)])
    {
        assert_eq!(command(&t.out)[0], name);
        assert!(t.totals.touched_pages >= pages && !t.partial && t.native.is_some());
    }
    assert!(left_behind(&dir).is_empty() && !o.out.exists());
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn a_program_that_the_second_run_does_not_start_is_recorded_by_itself() {
    let (dir, [act, _]) = stage("alone");
    let d = dir.display();
    let o = shell(&dir, format!("cd {d}; test -e done || {act} 16; : > done"));
    let report = recorded(&o);
    assert_eq!(command(&o.out), [act.as_str(), "16"]);
    let t = &report.traces[0];
    assert!(t.native.is_some_and(|n| n.minor_faults >= 16 * MIB) && t.program == Some(1));
    // A pipe that nobody writes to is no such program.
    let o = shell(&dir, format!("cd {d}; test -e more || : | (sleep 1; {act} 16); : > more"));
    assert_eq!(recorded(&o).traces[0].program, Some(2), "after sleep");
    // It has the file that was its standard input, from where it began: "c" and a line's end.
    std::fs::write(dir.join("in"), "a\nb\nc\n").expect("a file");
    let read = format!("(read a; read b; exec {act} 16 read) < in");
    let o = shell(&dir, format!("cd {d}; test -e read || {read}; : > read"));
    let t = &recorded(&o).traces[0];
    assert_eq!((t.native_code, t.exit_code), (Some(2), 2));
    // What reads from another program cannot run by itself.
    let o = shell(&dir, format!("cd {d}; test -e too || echo | {act} 16 cat; : > too"));
    let e = record(&o, &Silent).expect_err("nothing to read");
    assert!(matches!(&e, RecordError::NotAgain(name) if name == "act"), "{e}");
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn sixteen_thousand_arguments_stay_where_they_are() {
    let (dir, [act, _]) = stage("many");
    let words = [act, "4".to_owned(), "count".to_owned()];
    let words = words.into_iter().chain((0..16_000).map(|n| n.to_string()));
    let mut o = Options::new(words.map(OsString::from).collect(), dir.join("t.vt"));
    o.plugin = plugin();
    let report = recorded(&o);
    let code = 16_003 % 251;
    assert_eq!((report.traces[0].native_code, report.traces[0].exit_code), (Some(code), code));
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn a_program_whose_first_thread_ends_has_the_memory_of_the_others() {
    let (dir, [act, _]) = stage("worker");
    let words = vec![act.into(), "1".into(), "worker".into()];
    let mut o = Options::new(words, dir.join("t.vt"));
    o.plugin = plugin();
    let native = recorded(&o).traces[0].native.expect("a native run");
    assert!(native.minor_faults >= 25 * MIB && native.peak_rss >= 24 << 20, "{native:?}");
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn children_that_run_no_other_program_are_counted_apart() {
    let (dir, [act, _]) = stage("fork");
    let words = vec![act.into(), "4".into(), "fork".into()];
    let mut o = Options::new(words, dir.join("t.vt"));
    o.plugin = plugin();
    let report = recorded(&o);
    let (t, p) = (&report.traces[0], &report.programs[0]);
    assert_eq!((report.programs.len(), p.children, t.totals.forks), (1, 1, 1));
    assert!(p.child_faults >= 16 * MIB, "{}", p.child_faults);
    let native = t.native.expect("a native run").minor_faults;
    assert!((4 * MIB..8 * MIB).contains(&native), "{native}");
    std::fs::remove_dir_all(dir).expect("removed");
}

/// Keeps what is said.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Listener for Lines {
    fn say(&self, line: &str) {
        self.0.lock().expect("nobody panics").push(line.to_owned());
    }
}

#[test]
fn where_programs_cannot_be_followed_it_is_said_before_and_the_first_is_recorded() {
    let (dir, [act, _]) = stage("plain");
    let words = vec![act.clone().into(), "16".into()];
    let mut o = Options::new(words, dir.join("t.vt"));
    (o.plugin, o.follow) = (plugin(), false);
    let lines = Lines::default();
    let report = record(&o, &lines).unwrap_or_else(|e| panic!("{e}"));
    let t = &report.traces[0];
    assert!(!report.followed && t.totals.touched_pages >= 16 * MIB && t.native_code == Some(0));
    assert!(t.native.is_some_and(|n| n.minor_faults >= 16 * MIB));
    let ended = events(&o.out).into_iter().rev().find_map(|e| match e {
        Event::Call(c) => Some(c.change),
        _ => None,
    });
    assert_eq!(ended, Some(Change::Exit { code: 0 }));
    o.choice = Choice::All;
    assert!(matches!(record(&o, &lines), Err(RecordError::CannotFollow)));
    assert!(left_behind(&dir).is_empty());
    std::fs::remove_dir_all(dir).expect("removed");
}
