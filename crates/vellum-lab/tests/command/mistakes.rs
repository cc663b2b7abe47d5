//! Whatever is wrong with a request is said in one line, with the way out, and a code that scripts
//! can tell: never a panic.

use crate::common::{R, Script, Temporary, vellum};
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
    refused(&["run"], 2, "--machine");
    refused(&["trace"], 2, "subcommand is missing");
    refused(&["record", "-o", "x.vt"], 2, "CMD");
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

#[test]
fn numbers_that_make_no_sense() {
    let t = small();
    refused(&["run", "--trace", t.path(), "--machine", "tiny", "--cpus", "0"], 2, "from 1 on");
    refused(&["run", "--trace", t.path(), "--machine", "tiny", "--cpus", "99"], 2, "take fewer");
    refused(&["run", "--trace", t.path(), "--machine", "tiny", "--seed", "many"], 2, "--seed");
}

#[test]
fn a_trace_that_is_missing_or_none() {
    refused(&["run", "--trace", "no-such.vt", "--machine", "tiny"], 1, "no-such.vt");
    let text =
        Temporary::with("text.vt", b"hello, this is not a trace at all, but a line of text\n");
    refused(&["run", "--trace", text.path(), "--machine", "tiny"], 1, "not a vellum trace");
    refused(&["trace", "info", text.path()], 1, "not a vellum trace");
    let empty = Temporary::with("empty.vt", b"");
    refused(&["run", "--trace", empty.path(), "--machine", "tiny"], 1, "empty.vt");
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
        refused(&["run", "--trace", cut.path(), "--machine", "tiny"], 1, "cut.vt");
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
        refused(&["run", "--trace", file.path(), "--machine", "tiny"], 1, "changed.vt");
    }
}

#[test]
fn a_trace_that_touches_what_it_never_mapped() {
    let mut s = Script::new();
    let m = s.anon(4);
    s.call(Change::Unmap { mapping: m, offset: 0, len: 4 * 4096 });
    s.load(m, 0);
    refused(&["run", "--trace", s.file("gone.vt").path(), "--machine", "tiny"], 1, "not mapped");

    let mut s = Script::new();
    let m = s.map(4, MapKind::Anon, R);
    s.store(m, 0);
    refused(
        &["run", "--trace", s.file("rights.vt").path(), "--machine", "tiny"],
        1,
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
        1,
        "take a larger one",
    );
}

#[test]
fn lackey_text_that_is_none() {
    let text = Temporary::with("not-lackey", b" L zzz,4\n");
    let out = Temporary::new("not-lackey.vt");
    refused(&["trace", "import-lackey", text.path(), "-o", out.path()], 1, "line 1");
    assert!(!out.0.exists(), "a failed import leaves no file");
    refused(&["trace", "import-lackey", "no-such-text", "-o", out.path()], 1, "no-such-text");
}

#[test]
fn a_trace_that_is_no_regular_file() {
    refused(&["run", "--trace", "/dev/zero", "--machine", "tiny"], 1, "not a regular file");
    refused(&["trace", "info", "/tmp"], 1, "not a regular file");
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
    refused(&["record", "-o", out.path(), "--window", "all", "--", "true"], 2, "a window is");
    assert!(!out.0.exists());
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
    for name in ["clear", "colour", "hugezero", "cursor"] {
        assert!(repro.lines().any(|l| l.trim_start().starts_with(name)), "{name}: {repro}");
    }
}
