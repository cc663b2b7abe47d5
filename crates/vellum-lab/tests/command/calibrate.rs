//! `vellum calibrate`, and the machine `host` that it leaves.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use vellum_trace::NativeRun;
use vellum_trace::event::Event;

use crate::common::{Script, Temporary, vellum, with_cache};

#[test]
fn this_computer_is_measured_kept_and_run_or_it_is_said_why_not() {
    let folder = std::env::temp_dir().join(format!("vellum-cache-{}", std::process::id()));
    let file = Temporary::new("calibrated.toml");
    let said = with_cache(&folder, &["calibrate", "-o", file.path()]);
    if said.code == Some(1) {
        // A computer that does not describe itself, or has no memory free, is told so.
        let why = said.err.lines().last().unwrap_or_default();
        assert!(why.contains("this computer cannot be measured: "), "{}", said.err);
        return;
    }
    assert_eq!(said.code, Some(0), "{}", said.err);
    for row in ["load, memory", "first store to 4 KiB", "two runs differ by", "a fault: entry"] {
        assert!(said.out.contains(row), "{row} in {}", said.out);
    }
    let text = std::fs::read_to_string(&file.0).expect("written");
    assert!(text.contains("basis = \"before\""));

    // What was measured once is what `host` is from then on.
    let kept = with_cache(&folder, &["machines", "host", "--toml"]);
    assert_eq!((kept.code, kept.out == text), (Some(0), true), "{}", kept.err);
    let mut s = Script::new();
    let m = s.anon(600);
    s.touch(m, 0..600);
    let trace = s.file("host.vt");
    let run = |machine| {
        with_cache(&folder, &["run", "--trace", trace.path(), "--machine", machine, "--json"])
    };
    let (run, again) = (run("host"), run(file.path()));
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.err.contains("host: measured"), "{}", run.err);
    assert_eq!(run.out, again.out, "the file is the machine");

    // A native run of this kernel is set beside the time that is modelled.
    let native = |seconds: u64, skipped: u64| {
        let mut s = Script::new();
        let m = s.anon(600);
        s.touch(m, 0..600);
        s.push(Event::Skip { accesses: 1, instructions: skipped }).touch(m, 0..600);
        let user_us = seconds * 1_000_000;
        s.native = Some(NativeRun { user_us, thp_off: true, ..NativeRun::default() });
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
        kernel.trim().clone_into(&mut s.kernel);
        let trace = s.file("native.vt");
        let args = ["run", "--trace", trace.path(), "--machine", "host", "--set", "thp=never"];
        with_cache(&folder, &args).out
    };
    let said = native(100, 1);
    assert!(said.contains("time:  natively 100.000 s of CPU"), "{said}");
    assert!(said.contains("-100 %") && said.contains("more than 25 % off"), "{said}");

    // Of a trace in windows it is the time of the whole program: 3e11 instructions take long.
    let said = native(100, 300_000_000_000);
    let modelled = said.split("; modelled ").nth(1).and_then(|text| text.split(' ').next());
    assert!(modelled.and_then(|s| s.parse::<f64>().ok()) > Some(10.0), "{said}");

    // A kept file that is no machine any more is put aside, not overwritten.
    let kept = || {
        let files = std::fs::read_dir(folder.join("vellum")).expect("a folder");
        files.map(|f| f.expect("a file").path()).collect::<Vec<_>>()
    };
    let file = kept().pop().expect("the calibration");
    assert!(first_lines(&folder).contains("host: calibrated; scripts/truth"));
    let truth = file.with_extension("truth");
    std::fs::write(&truth, "3 programs, all right\n").expect("written");
    assert!(first_lines(&folder).contains("--machine host: 3 programs, all right\n"));
    std::fs::remove_file(&truth).expect("written above");
    std::fs::write(&file, "cpus = 3 # mine").expect("written");
    let again = with_cache(&folder, &["machines", "host", "--toml"]);
    assert_eq!(again.code, Some(0), "{}", again.err);
    assert!(again.err.contains("the file is") && again.out.contains("clock_hz"), "{}", again.err);
    let aside = std::fs::read_to_string(file.with_extension("bad")).expect("put aside");
    assert_eq!((aside.as_str(), kept().len()), ("cpus = 3 # mine", 2));
    std::fs::remove_dir_all(&folder).expect("its own folder");
}

/// The head of the first screen, whose rest would take a minute.
fn first_lines(cache: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    let command = command.env("XDG_CACHE_HOME", cache).stdout(Stdio::piped());
    let mut screen = command.stderr(Stdio::null()).spawn().expect("built beside its tests");
    let mut lines = String::new();
    let mut out = BufReader::new(screen.stdout.take().expect("piped"));
    while !lines.ends_with("\n\n") && out.read_line(&mut lines).expect("text") > 0 {}
    screen.kill().and_then(|()| screen.wait()).expect("our child");
    lines
}

#[test]
fn a_file_that_cannot_be_written_is_said_before_anything_is_measured() {
    let folder = std::env::temp_dir();
    for (path, why) in [
        (folder.to_str().expect("a name"), "is a folder"),
        ("no/such/folder/x.toml", "no/such/folder does not exist"),
        ("x.txt", "a name that ends in .toml"),
    ] {
        let said = vellum(&["calibrate", "-o", path]);
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert!(said.err.contains(why) && said.err.lines().count() == 1, "{}", said.err);
    }
}

#[test]
fn a_machines_file_is_printed_as_it_is() {
    let said = vellum(&["machines", "milan", "--toml"]);
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(0), vellum_sim::file::preset_text("milan").unwrap())
    );
    let said = vellum(&["machines", "mlian", "--toml"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("did you mean `milan`"), "{}", said.err);
    let said = vellum(&["machines", "--toml"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
}
