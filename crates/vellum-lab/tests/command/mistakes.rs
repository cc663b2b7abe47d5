//! Whatever is wrong with a request is said in one line, with the way out, and a code that scripts
//! can tell: never a panic.

use std::process::{Command, Stdio};

use crate::common::{R, Script, Temporary, shipped, vellum};
use vellum_trace::event::{Change, MapKind};

#[track_caller]
fn refused(args: &[&str], code: i32, says: &str) {
    let said = vellum(args);
    assert_eq!(said.code, Some(code), "{args:?}: {}", said.err);
    assert_eq!(said.err.trim_end().lines().count(), 1, "{args:?}: {}", said.err);
    assert!(said.err.starts_with("vellum: ") && said.err.contains(says), "{args:?}: {}", said.err);
    assert!(said.out.is_empty(), "{args:?}: {}", said.out);
}

fn small() -> Temporary {
    let mut s = Script::new();
    let m = s.anon(4);
    s.touch(m, 0..4);
    s.file(&format!("small-{:?}.vt", std::thread::current().id()))
}

#[test]
fn a_command_or_option_that_does_not_exist() {
    refused(&["simulate"], 2, "unrecognized subcommand");
    refused(&["run", "--trcae", "x"], 2, "--trace");
    let said = vellum(&["run", "--trace", "x.vt", "--machine", "milan", "--cpu", "1"]).err;
    assert!(said.contains("'--cpus'") && !said.contains("run --trace"), "{said}");
    refused(&["run"], 2, "--machine");
    refused(&["trace"], 2, "subcommand is missing");
    refused(&["record", "-o", "x.vt"], 2, "CMD ARGS");
}

#[test]
fn a_machine_that_does_not_exist() {
    let t = small();
    refused(&["run", "--trace", t.path(), "--machine", "mlian"], 2, "did you mean `milan`");
    refused(&["run", "--trace", t.path(), "--machine", "pdp11"], 2, "`vellum machines` lists them");
    refused(
        &["run", "--trace", t.path(), "--machine", "no-such-file.toml"],
        2,
        "no-such-file.toml",
    );
    refused(&["machines", "mlian"], 2, "did you mean `milan`");
}

#[test]
fn a_machine_file_that_is_broken() {
    let t = small();
    for text in ["", "name = 3", "name = \"x\"\nclock_hz = ", "[[[", "\u{0}\u{1}"] {
        let file = Temporary::with("broken.toml", text.as_bytes());
        refused(&["run", "--trace", t.path(), "--machine", file.path()], 2, "broken.toml");
    }
    let endless = ["run", "--trace", t.path(), "--machine", "/dev/zero"];
    refused(&endless, 2, "no regular file of at most 1 MiB");
}

#[test]
fn a_switch_or_value_that_does_not_exist() {
    let t = small();
    let run = |set: &str, says: &str| {
        refused(&["run", "--trace", t.path(), "--machine", "tiny", "--set", set], 2, says)
    };
    run("tph=never", "did you mean `thp`");
    run("thp=sometimes", "it takes never|advise|always");
    run("thp", "is not SWITCH=VALUE");
    run("=never", "is not SWITCH=VALUE");
    run("numa=bind:9999", "local|interleave");
    for value in ["0", "-1", "4k", "4294967296", "+8"] {
        run(&format!("collapse.scan={value}"), "it takes off|PAGES, from 1 on");
    }
    for value in ["512", "off", "-1"] {
        run(&format!("collapse.none={value}"), "it takes PAGES, 0 to 511");
    }
    for value in ["0", "off", "-1", "10s", "4294967296"] {
        run(&format!("collapse.sleep={value}"), "it takes MILLISECONDS, from 1 on");
    }
    for value in ["0", "6K", "2G", "K", "-4K", "4k", "18446744073709551616K"] {
        run(&format!("file.folios={value}"), "it takes off|SIZE such as 128K, whole pages to 1G");
    }
    run("colapse.scan=off", "did you mean `collapse.scan`");
    refused(&["run", "--trace", t.path(), "--machine", "tiny", "--vs", "thp=alway"], 2, "it takes");
    refused(
        &["run", "--trace", t.path(), "--machine", "tiny", "--vs", "thp=never,thp=always"],
        2,
        "set twice",
    );
    refused(
        &[
            "run",
            "--trace",
            t.path(),
            "--machine",
            "tiny",
            "--set",
            "thp=never",
            "--set",
            "thp=never",
        ],
        2,
        "set twice",
    );
}

#[test]
fn a_switch_that_asks_for_what_the_machine_has_not() {
    let t = small();
    let run = |set: &str, says: &str| {
        refused(&["run", "--trace", t.path(), "--machine", "milan", "--set", set], 2, says)
    };
    run("levels=5", "walks 4 levels");
    run("numa=bind:1", "nodes 0 to 0");
}

/// A column that cannot run is found before another one has run for nothing.
#[test]
fn every_column_is_checked_before_any_runs() {
    let large = shipped("sort.vt");
    let trace = large.to_str().expect("a name of ours");
    let began = std::time::Instant::now();
    let run = |machine: &str, vs: &str, says: &str| {
        let args = ["--machine", machine, "--vs", "thp=never", "--vs", vs];
        refused(&[&["run", "--trace", trace], &args[..]].concat(), 2, says)
    };
    run("milan", "levels=5", "walks 4 levels");
    run("tiered", "numa=bind:7", "nodes 0 to 1");
    run("thunderx2", "zero.huge=table", "zero.huge");
    assert!(began.elapsed().as_secs() < 10, "a replay of this trace takes longer");
}

/// A node of 32 MiB does not hold the program, the machine does.
#[test]
fn a_column_that_fails_leaves_the_others() {
    let mut s = Script::new();
    let m = s.anon(10_000);
    s.touch(m, 0..10_000);
    let file = s.file("bound.vt");
    let run = |base: &str, vs: &str, more: &[&str]| {
        let args = ["run", "--trace", file.path(), "--machine", "tiny", "--as", "vellum"];
        let said = vellum(&[&args[..], &["--set", base, "--vs", vs], more].concat());
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert!(said.err.contains("take a larger one"), "{}", said.err);
        said.out
    };
    let out = run("numa=local", "numa=bind:0", &[]);
    assert!(out.contains("numa=local") && out.contains("10,000"), "{out}");
    let out = run("numa=local", "numa=bind:0", &["--json"]);
    assert!(out.contains("\"complete\": false") && out.contains("\"pgfault\""), "{out}");
    let out = run("numa=bind:0", "numa=local", &[]);
    assert!(!out.contains("numa=local: ") && !out.contains(" 1.00"), "{out}");
}

#[test]
fn ctrl_c_prints_what_there_is() {
    for (more, says) in [(&["--json"][..], "\"complete\": false"), (&[], "stopped by Ctrl-C")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        command.args(["run", "--machine", "milan", "--vs", "thp=always", "--trace"]);
        command.arg(shipped("sort.vt")).args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the command");
        let status = format!("/proc/{}/status", child.id());
        let handles = || {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let caught = text.lines().find_map(|l| l.strip_prefix("SigCgt:"))?.trim().to_owned();
            // Of its bits, counted from 1, SIGINT is the second.
            Some(u64::from_str_radix(&caught, 16).ok()? & 2 != 0)
        };
        while handles() != Some(true) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        std::thread::sleep(std::time::Duration::from_millis(500));
        let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(sent.expect("kill").success());
        let said = child.wait_with_output().expect("its output");
        let (out, err) =
            (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        assert_eq!(said.status.code(), Some(130), "{err}");
        assert!(out.contains(says) && err.contains("vellum: stopped by Ctrl-C"), "{out}\n{err}");
    }
}

#[test]
fn a_sweep_over_what_the_machine_has_not() {
    let t = small();
    let run = |more: &[&str], says: &str| {
        refused(&[&["run", "--trace", t.path(), "--machine", "tiny"], more].concat(), 2, says)
    };
    run(&["--sweep", "llc.siez=16M"], "--sweep llc.siez: the machine `tiny` has no such constant");
    run(&["--sweep", "llc.size=many"], "--sweep llc.size=many: ");
    run(&["--sweep", "core.walkers=1,2", "--cpus", "9"], "take fewer");
    run(&["--sweep", "llc.size=16M", "--vs", "thp=never"], "--vs");
    run(&["--sweep", "llc.size=24K,48K,24K"], "24K is in the list twice");
    run(&["--timing"], "--json");
    refused(&["repro", "colour", "clear", "colour"], 2, "`colour` is named twice");
}

#[test]
fn numbers_that_make_no_sense() {
    let t = small();
    refused(
        &["run", "--trace", t.path(), "--machine", "tiny", "--cpus", "0"],
        2,
        "--cpus 0: take a number from 1 on",
    );
    refused(&["run", "--trace", t.path(), "--machine", "tiny", "--cpus", "99"], 2, "take fewer");
    refused(&["run", "--trace", t.path(), "--machine", "tiny", "--seed", "many"], 2, "--seed");
}

#[test]
fn a_trace_that_is_missing_or_none() {
    refused(&["run", "--trace", "no-such.vt", "--machine", "tiny"], 2, "no-such.vt");
    let text =
        Temporary::with("text.vt", b"hello, this is not a trace at all, but a line of text\n");
    refused(&["run", "--trace", text.path(), "--machine", "tiny"], 2, "not a vellum trace");
    refused(&["trace", "info", text.path()], 2, "not a vellum trace");
    let empty = Temporary::with("empty.vt", b"");
    refused(&["run", "--trace", empty.path(), "--machine", "tiny"], 2, "empty.vt");
}

#[test]
fn a_trace_that_is_cut_anywhere_or_has_a_byte_changed() {
    let mut s = Script::new();
    let m = s.anon(64);
    s.touch(m, 0..64);
    let bytes = s.bytes();
    // The footer says where the trailer begins, which is where the only block ends.
    let foot = bytes[bytes.len() - 16..][..8].try_into().expect("eight bytes");
    let block = usize::try_from(u64::from_le_bytes(foot)).expect("a position in the file");
    for length in (0..block).step_by(7) {
        let cut = Temporary::with("cut.vt", &bytes[..length]);
        refused(&["run", "--trace", cut.path(), "--machine", "tiny"], 2, "cut.vt");
    }
    for length in block..bytes.len() {
        let cut = Temporary::with("cut.vt", &bytes[..length]);
        let said = vellum(&["run", "--trace", cut.path(), "--machine", "tiny"]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(said.out.contains("the recording ended before the program"), "{}", said.out);
    }
    let whole = Temporary::with("whole.vt", &bytes);
    let said = vellum(&["run", "--trace", whole.path(), "--machine", "tiny"]);
    assert!(!said.out.contains("the recording ended before the program"), "{}", said.out);
    for at in (0..bytes.len()).step_by(11) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        let file = Temporary::with("changed.vt", &changed);
        refused(&["run", "--trace", file.path(), "--machine", "tiny"], 2, "changed.vt");
    }
}

#[test]
fn a_trace_that_touches_what_it_never_mapped() {
    let mut s = Script::new();
    let m = s.anon(4);
    s.call(Change::Unmap { mapping: m, offset: 0, len: 4 * 4096 });
    s.load(m, 0);
    refused(&["run", "--trace", s.file("gone.vt").path(), "--machine", "tiny"], 2, "not mapped");

    let mut s = Script::new();
    let m = s.map(4, MapKind::Anon, R);
    s.store(m, 0);
    refused(
        &["run", "--trace", s.file("rights.vt").path(), "--machine", "tiny"],
        2,
        "contradicts itself",
    );
}

#[test]
fn a_trace_larger_than_the_machine() {
    let mut s = Script::new();
    let m = s.anon(1 << 16);
    s.touch(m, 0..1 << 16);
    refused(
        &["run", "--trace", s.file("large.vt").path(), "--machine", "tiny"],
        2,
        "take a larger one",
    );
}

#[test]
fn lackey_text_that_is_none() {
    let text = Temporary::with("not-lackey", b" L zzz,4\n");
    let out = Temporary::new("not-lackey.vt");
    refused(&["trace", "import-lackey", text.path(), "-o", out.path()], 2, "line 1");
    assert!(!out.0.exists(), "a failed import leaves no file");
    refused(&["trace", "import-lackey", "no-such-text", "-o", out.path()], 2, "no-such-text");
}

#[test]
fn a_trace_that_is_no_regular_file() {
    refused(&["run", "--trace", "/dev/zero", "--machine", "tiny"], 2, "not a regular file");
    refused(&["trace", "info", "/tmp"], 2, "not a regular file");
}

#[test]
fn a_place_where_a_trace_must_not_be_written() {
    for out in ["/dev/null", "/tmp", "/no/such/directory/x.vt"] {
        refused(&["record", "-o", out, "--", "/bin/true"], 2, out);
    }
}

#[test]
fn a_program_that_cannot_be_recorded() {
    let out = Temporary::new("nothing.vt");
    refused(&["record", "-o", out.path(), "--", "no-such-program-anywhere"], 2, "no such program");
    refused(&["record", "-o", out.path(), "--window", "all", "--", "true"], 2, "--window all: ");
    assert!(!out.0.exists());
}

#[test]
fn a_program_without_two_dashes_before_it() {
    let program = env!("CARGO_BIN_EXE_vellum");
    let put = &format!("put -- before the program: {program} record -o FILE -- PROGRAM ARGS");
    for args in [&["record", "-o", "x.vt", "ls"][..], &["record", "-o", "x.vt", "ls", "-l"]] {
        refused(args, 2, put);
    }
    refused(&["record", "ls"], 2, put);
    refused(&["record", "-o", "x.vt"], 2, put);
}

/// What people type who have not read the help: the line that they mean is said.
#[test]
fn what_is_left_out_at_the_first_try() {
    let run = |file: &str| format!("vellum run --trace {file} --machine milan");
    refused(&["run", "my.vt"], 2, &run("my.vt"));
    refused(&["run", "--machine", "milan", "other.vt"], 2, &run("other.vt"));
    refused(&["my.vt"], 2, &run("my.vt"));
    refused(&["run", "--trace", "my.vt"], 2, "--machine milan; `");
    refused(&["info", "my.vt"], 2, "vellum trace info my.vt");
    refused(&["trace", "my.vt"], 2, "vellum trace info my.vt");
    refused(&["record", "--", "ls"], 2, "say where the trace goes: ");
    for line in ["ls -l", "cd", "ls / | wc"] {
        let says = format!("`{line}`: no such program on the search path; ");
        refused(&["record", "-o", "x.vt", "--", line], 2, &says);
        refused(&["record", "-o", "x.vt", "--", line], 2, "-- sh -c 'LINE'");
    }
    refused(&["record", "-o", "x.vt", "--", "./no/such"], 2, "./no/such: there is no such file");
}

/// A name may hold sequences that a terminal obeys.
#[test]
fn names_are_printed_without_their_control_characters() {
    let mut s = Script::new();
    let m = s.anon(4);
    s.touch(m, 0..4);
    s.command = "/bin/\u{1b}[31mred\r".to_owned();
    let file = s.file("red.vt");
    for args in
        [&["run", "--machine", "tiny", "--trace", file.path()][..], &["trace", "info", file.path()]]
    {
        let said = vellum(args);
        assert!(said.out.contains("\\u{1b}[31mred\\r"), "{}", said.out);
        assert!(!said.out.contains(['\u{1b}', '\r']), "{args:?}");
    }
    let tiny = vellum_sim::file::preset_text("tiny").expect("a preset");
    let words = tiny.replacen("4 CPUs on", "\\u001b[31m", 1);
    let text = words.replacen("a choice,", "\\u001b[31m", 1);
    let machine = Temporary::with("red.toml", text.as_bytes());
    let said = vellum(&["machines", machine.path()]);
    assert!(said.out.contains("\\u{1b}[31m") && !said.out.contains('\u{1b}'), "{}", said.out);
    refused(&["run", "--trace", "\u{1b}[31m.vt", "--machine", "tiny"], 2, "\\u{1b}[31m.vt");
    assert!(!vellum(&["\u{1b}[31m"]).err.contains('\u{1b}'));
}

#[test]
fn help_is_help_and_not_an_error() {
    let about: [&[&str]; 7] = [
        &["--help"],
        &["run", "--help"],
        &["record", "--help"],
        &["trace", "--help"],
        &["bench", "--help"],
        &["repro", "--help"],
        &["--version"],
    ];
    for args in about {
        let said = vellum(args);
        assert_eq!(said.code, Some(0), "{args:?}");
        assert!(
            said.err.is_empty() && said.out.lines().all(|l| l.chars().count() <= 100),
            "{args:?}: {}",
            said.out
        );
    }
    let repro = vellum(&["repro", "--help"]).out;
    for name in ["clear", "colour", "hugezero", "cursor", "heldout"] {
        assert!(repro.lines().any(|l| l.trim_start().starts_with(name)), "{name}: {repro}");
    }
}

/// Answers, help and version alike; a reader that went away is no mistake.
#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_a_full_disk_loses_is_an_error_with_its_name() {
    use std::process::{Command, Stdio};
    let t = small();
    for args in [
        &["--help"][..],
        &["--version"],
        &["record", "--help"],
        &["machines"],
        &["switches", "--json"],
        &["trace", "info", t.path()],
        &["run", "--trace", t.path(), "--machine", "tiny"],
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        let said = command.args(args).stdout(full).output().expect("it runs");
        let err = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(1), "{args:?}: {err}");
        let named = err.lines().filter(|line| line.starts_with("vellum: writing the output: "));
        assert_eq!(named.count(), 1, "{args:?}: {err}");

        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut gone = command.spawn().expect("it runs");
        drop(gone.stdout.take());
        let said = gone.wait_with_output().expect("it ends");
        assert_eq!(said.status.code(), Some(0), "{args:?}");
        assert!(!String::from_utf8_lossy(&said.stderr).contains("writing"), "{args:?}");
    }
}
