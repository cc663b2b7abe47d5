//! What people type first: a shim, a pipe, a compiler, a program that crashes or is killed. Each is
//! recorded by one command and replayed; `docs/recording.md` has the same for real programs on
//! every preset.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use crate::common::Temporary;
use crate::record::{compiled, faults_off, nothing_beside, record};

/// The presets of the small version: one with caches and TLBs of a server, one without.
const MACHINES: [&str; 2] = ["milan", "tiny"];

#[track_caller]
fn recorded(command: &mut Command, trace: &Temporary) -> (Output, String) {
    let said = command.stdin(Stdio::null()).output().expect("runs");
    let err = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success(), "{err}");
    for machine in MACHINES {
        let off = faults_off(trace, machine);
        assert!(off < 5, "{machine}: {off} % off\n{err}");
    }
    assert!(nothing_beside(trace));
    (said, err)
}

#[test]
fn of_a_shell_s_pipe_the_large_program_is_recorded_and_the_others_are_named() {
    let program = compiled("grow", "pipe");
    let trace = Temporary::new("pipe.vt");
    let script = format!("printf 3 | {} 24 | tr 3 5", program.path());
    let args = ["-o", trace.path(), "--", "sh", "-c", &script];
    let (said, err) = recorded(&mut record(&args), &trace);
    assert_eq!(said.stdout, b"5", "{err}");
    let lines: Vec<&str> = err.lines().collect();
    assert!(lines[0].starts_with("note: recording ") && lines[0].contains("grow"), "{err}");
    let others = err.lines().find(|l| l.starts_with("not recorded: ")).expect("the others");
    assert!(others.contains(" tr (") && others.contains("sh ("), "{err}");
    assert!(err.contains(" run --trace ") && err.contains("next: "), "{err}");
    assert!(others.len() <= 100 && err.contains("--process N or NAME records another"), "{err}");
}

/// As a version manager's: a script that looks around and executes another, which executes the
/// program.
#[test]
fn behind_a_shim_the_program_is_recorded_that_it_picks() {
    let program = compiled("grow", "shim");
    let trace = Temporary::new("shim.vt");
    let script = |name: &str, text: &str| {
        let file = Temporary::with(name, format!("#!/bin/sh\n{text}\n").as_bytes());
        std::fs::set_permissions(&file.0, std::fs::Permissions::from_mode(0o755)).expect("mode");
        file
    };
    let second = script("shim-2", &format!("basename $0 >&2; exec {} \"$@\"", program.path()));
    let first = script("shim-1", &format!("cd /; exec env SHIM=1 {} \"$@\"", second.path()));
    let args = ["-o", trace.path(), "--", first.path(), "24"];
    let (_, err) = recorded(&mut record(&args), &trace);
    let header = vellum_trace::TraceReader::open(&trace.0).expect("a trace").header().clone();
    assert_eq!(header.command, [program.path(), "24"]);
    assert!(err.contains("not recorded: ") && err.contains("env ("), "{err}");
}

#[test]
fn of_a_compiler_s_driver_the_compiler_is_recorded() {
    let source = Temporary::with("door.c", b"int f(int x) { return x * 3; }\n");
    let (trace, object) = (Temporary::new("cc.vt"), Temporary::new("door.o"));
    let args = ["-o", trace.path(), "--", "gcc", "-c", source.path(), "-o", object.path()];
    if Command::new("gcc").arg("--version").output().is_err() {
        eprintln!("skipped: there is no gcc");
        return;
    }
    let said = record(&args).stdin(Stdio::null()).output().expect("runs");
    let err = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{err}");
    assert!(err.contains("note: recording cc1, number "), "{err}");
    assert!(object.0.exists() && faults_off(&trace, "milan") < 5, "{err}");
}

#[test]
fn a_program_that_crashes_is_recorded_and_its_faults_are_those_of_the_native_run() {
    let program = compiled("grow", "crash");
    let trace = Temporary::new("crash.vt");
    let args = ["-o", trace.path(), "--", program.path(), "24", "crash"];
    let (_, err) = recorded(&mut record(&args), &trace);
    assert!(err.contains("note: signal 11 ended the program"), "{err}");
}

/// Where cores are wanted: QEMU's is not the program's.
#[test]
fn a_crash_under_the_recorder_leaves_no_core_of_the_recorder() {
    let program = compiled("grow", "core");
    let dir = Temporary::new("core");
    std::fs::create_dir_all(&dir.0).expect("a folder");
    let mut command = record(&["--no-native", "-o", "x.vt", "--", program.path(), "8", "crash"]);
    command.current_dir(&dir.0).stdin(Stdio::null());
    // SAFETY: both calls are async-signal-safe, with live values.
    unsafe {
        command.pre_exec(|| {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::getrlimit(libc::RLIMIT_CORE, &mut limit);
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_CORE, &limit);
            Ok(())
        });
    }
    let said = command.output().expect("runs");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let left = std::fs::read_dir(&dir.0).expect("a folder").map(|e| e.expect("an entry").path());
    assert_eq!(left.collect::<Vec<_>>(), [dir.0.join("x.vt")]);
    std::fs::remove_dir_all(&dir.0).expect("removed");
}

/// Killed from outside, some time after it did something: the recorder has written that.
#[test]
fn a_program_that_is_killed_is_recorded_up_to_there() {
    let program = compiled("grow", "kill");
    let (trace, pid) = (Temporary::new("kill.vt"), Temporary::new("kill.pid"));
    let script = format!(
        "({} 24 wait & echo $! > {pid}; wait) | (head -c 1; sleep 1; kill -9 $(cat {pid}))",
        program.path(),
        pid = pid.path()
    );
    let args = ["-o", trace.path(), "--", "sh", "-c", &script];
    let (_, err) = recorded(&mut record(&args), &trace);
    assert!(err.contains("note: signal 9 ended the program"), "{err}");
    assert!(err.contains("goes to its last whole block"), "{err}");
}
