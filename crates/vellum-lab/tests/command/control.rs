//! A recording and whoever sits in front of it: progress, Ctrl-C, Ctrl-Z, limits, what is refused.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{Temporary, vellum};
use crate::record::{compiled, nothing_beside, record};

/// The two ends of a terminal.
fn terminal() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let none = std::ptr::null_mut();
    // SAFETY: both results are live; the descriptors are new, so each is owned once.
    unsafe {
        assert_eq!(libc::openpty(&mut ours, &mut theirs, none, none.cast(), none.cast()), 0);
        (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    }
}

/// Runs a recording of a program that says so when it waits, up to there.
fn waiting(command: &mut Command) -> Child {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut recording = command.spawn().expect("runs");
    let mut ready = [0; 1];
    recording.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("a sign");
    recording
}

fn pid(child: &Child) -> i32 {
    i32::try_from(child.id()).expect("a process")
}

fn send(to: i32, signal: i32) {
    // SAFETY: kill has no preconditions; the processes are our children, or their group.
    assert_eq!(unsafe { libc::kill(to, signal) }, 0);
}

/// Ends as it should: the trace is kept up to the end. What was said.
#[track_caller]
fn kept(recording: Child, trace: &Temporary, whole: bool) -> String {
    let said = recording.wait_with_output().expect("ends");
    let err = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success(), "{:?} {err}", said.status);
    let sums = vellum_trace::read_totals(&trace.0).expect("a trace");
    assert!(sums.partial != whole && sums.totals.touched_pages >= 16 * 256, "{sums:?}");
    assert!(nothing_beside(trace));
    err
}

#[test]
fn term_ends_the_recording_and_the_trace_is_kept() {
    let program = compiled("grow", "term");
    let trace = Temporary::new("term.vt");
    let args = ["--no-native", "-o", trace.path(), "--", program.path(), "16", "wait"];
    let recording = waiting(record(&args).stderr(Stdio::piped()));
    send(pid(&recording), libc::SIGTERM);
    let err = kept(recording, &trace, true);
    assert!(err.contains("the program was ended on request; the trace is kept"), "{err}");
}

/// As a replay that Ctrl-C ends.
#[test]
fn a_signal_in_the_native_run_ends_it_with_nothing_written() {
    let program = compiled("grow", "native");
    let trace = Temporary::new("native.vt");
    let args = ["-o", trace.path(), "--", program.path(), "16", "wait"];
    let mut command = record(&args);
    let recording = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("runs");
    let status = format!("/proc/{}/status", recording.id());
    let handles = || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|l| l.strip_prefix("SigCgt:"))?.trim().to_owned();
        Some(u64::from_str_radix(&caught, 16).ok()? & (1 << (libc::SIGTERM - 1)) != 0)
    };
    while handles() != Some(true) {
        std::thread::sleep(Duration::from_millis(10));
    }
    send(pid(&recording), libc::SIGTERM);
    let said = recording.wait_with_output().expect("ends");
    let err = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(130), "{err}");
    assert!(err.contains("note: the recording had not begun, and nothing was written"), "{err}");
    assert!(!trace.0.exists() && nothing_beside(&trace));
}

/// The first signal asks, the second kills, and the trace is kept all the same.
#[test]
fn a_second_signal_ends_what_does_not_end_and_keeps_the_trace() {
    let program = compiled("grow", "stubborn");
    let trace = Temporary::new("stubborn.vt");
    let args = ["--no-native", "-o", trace.path(), "--", program.path(), "16", "stubborn"];
    let recording = waiting(record(&args).stderr(Stdio::piped()));
    send(pid(&recording), libc::SIGTERM);
    std::thread::sleep(Duration::from_millis(300));
    send(pid(&recording), libc::SIGTERM);
    let err = kept(recording, &trace, true);
    assert!(err.contains("note: signal 9 ended the program"), "{err}");
}

/// On a terminal: a line with rate and size, until Ctrl-C is typed.
#[test]
fn a_terminal_shows_how_a_recording_goes_and_its_ctrl_c_ends_it() {
    let program = compiled("grow", "terminal");
    let trace = Temporary::new("terminal.vt");
    let (mut ours, theirs) = terminal();
    // It ends by itself if nothing is shown.
    let begin = ["--no-native", "--stop-after", "60s", "-o", trace.path()];
    let mut command = record(&[&begin[..], &["--", program.path(), "16", "wait"]].concat());
    let end = || Stdio::from(theirs.try_clone().expect("a descriptor"));
    command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
    // SAFETY: both calls are async-signal-safe; descriptor 0 is the terminal by then.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            libc::ioctl(0, libc::TIOCSCTTY, 0);
            Ok(())
        });
    }
    let mut recording = command.spawn().expect("runs");
    // The other end is theirs alone, so that reading ends with them.
    drop((command, theirs));
    let (mut shown, mut some, mut typed) = (String::new(), [0; 4096], false);
    while let Ok(n @ 1..) = ours.read(&mut some) {
        shown += &String::from_utf8_lossy(&some[..n]);
        let progress = shown.split(['\r', '\n']).any(|line| {
            let rest = line.split_once("recording: ").map_or("", |(_, rest)| rest);
            rest.contains(" s, ") && rest.contains(" accesses (") && rest.contains("/s), ")
        });
        // It waits for its input: an end of file, then for signals.
        if progress && !typed {
            typed = true;
            std::io::Write::write_all(&mut ours, b"\x03").expect("a terminal");
        }
    }
    assert!(recording.wait().expect("ends").success(), "{shown}");
    assert!(typed && shown.contains("ended on request; the trace is kept"), "{shown}");
    assert!(vellum_trace::read_totals(&trace.0).is_ok() && nothing_beside(&trace));
}

/// Ctrl-Z and `fg`, as a shell does them: signals to the whole group. The program alone can be
/// stopped, too.
#[test]
fn a_recording_that_is_stopped_goes_on_when_it_is_continued() {
    let program = compiled("grow", "stop");
    let trace = Temporary::new("stop.vt");
    let args = ["--no-native", "-o", trace.path(), "--", program.path(), "16", "wait"];
    let recording = waiting(record(&args).stderr(Stdio::piped()).process_group(0));
    let group = -pid(&recording);
    send(group, libc::SIGTSTP);
    let mut status = 0;
    // SAFETY: the result is live, and nobody else waits for our child.
    let stopped = unsafe { libc::waitpid(-group, &mut status, libc::WUNTRACED) };
    assert!(stopped == -group && libc::WIFSTOPPED(status), "{status:#x}");
    std::thread::sleep(Duration::from_millis(300));
    send(group, libc::SIGCONT);
    std::thread::sleep(Duration::from_millis(300));
    // A thread of ours has started it, and follows it.
    let threads = std::fs::read_dir(format!("/proc/{}/task", -group)).expect("its threads");
    let children = threads.map(|thread| thread.expect("an entry").path().join("children"));
    let children: String = children.filter_map(|path| std::fs::read_to_string(path).ok()).collect();
    let alone = children.trim().parse().expect("one child");
    for signal in [libc::SIGSTOP, libc::SIGCONT] {
        send(alone, signal);
        std::thread::sleep(Duration::from_millis(300));
    }
    // A program that still stood would not hear of this, and be killed later.
    send(-group, libc::SIGTERM);
    let err = kept(recording, &trace, true);
    assert!(err.contains("note: signal 15 ended the program"), "{err}");
    assert!(err.contains("ended on request; the trace is kept"), "{err}");
}

/// A limit on the size of files stands for a full disk.
#[test]
fn where_a_trace_cannot_be_written_the_program_is_ended_and_the_reason_said() {
    let program = compiled("grow", "full");
    let trace = Temporary::new("full.vt");
    let begin = ["--no-native", "--stop-after", "60s", "-o", trace.path()];
    let mut command = record(&[&begin[..], &["--", program.path(), "16", "scatter"]].concat());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let limit = libc::rlimit { rlim_cur: 500_000, rlim_max: 500_000 };
    // SAFETY: setrlimit is async-signal-safe and reads a live value.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_FSIZE, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let said = command.output().expect("runs");
    let err = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(1), "{err}");
    let last = err.lines().last().expect("a line");
    assert!(last.contains("full.vt: File too large"), "{err}");
    assert!(last.ends_with("the program was ended, and the trace is kept up to there"), "{err}");
    let run = vellum(&["run", "--trace", trace.path(), "--machine", "tiny"]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.out.contains("the recording ended before the program"), "{}", run.out);
    assert!(nothing_beside(&trace));
}

/// A container may forbid ptrace; here a filter of our own does.
#[test]
fn where_ptrace_is_refused_the_command_s_own_program_is_recorded_and_that_is_said_before() {
    let program = compiled("grow", "refused");
    let trace = Temporary::new("refused-ptrace.vt");
    let args = ["-o", trace.path(), "--", program.path(), "16"];
    let mut command = record(&args);
    command.stdin(Stdio::null());
    // Load the call's number; is it ptrace? Then refuse it, else allow it: seccomp(2).
    let ptrace = libc::SYS_ptrace as u32;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0, 0),
        step((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, 0, 1, ptrace),
        step(libc::BPF_RET as u16, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(libc::BPF_RET as u16, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    // SAFETY: prctl is async-signal-safe; the filter lives until the call is over.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
            let set = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0;
            if set { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
    let said = match command.output() {
        Ok(said) => said,
        Err(e) => return eprintln!("skipped: no filter can be set here: {e}"),
    };
    let err = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{err}");
    let first = err.lines().next().expect("a line");
    assert!(first.starts_with("note: the system refuses ptrace: "), "{err}");
    assert!(first.contains(&format!("record -o {} -- PROGRAM ARGS", trace.path())), "{err}");
    let sums = vellum_trace::read_totals(&trace.0).expect("a trace");
    assert!(sums.totals.touched_pages >= 16 * 256, "{err}");
}

#[test]
fn what_a_command_leaves_in_the_background_is_waited_for_and_that_is_said() {
    let trace = Temporary::new("left.vt");
    let args = ["--no-native", "-o", trace.path(), "--", "sh", "-c", "sleep 60 & exit 0"];
    let mut command = record(&args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut recording = command.spawn().expect("runs");
    let mut err = String::new();
    let mut stream = recording.stderr.take().expect("a pipe");
    let mut byte = [0; 1];
    while !err.contains('\n') && stream.read(&mut byte).expect("a pipe") == 1 {
        err.push(char::from(byte[0]));
    }
    assert!(err.contains("the command is over, but it left sleep running"), "{err}");
    // What it says to do ends it.
    let kill = err.split('`').nth(1).expect("a command");
    assert!(Command::new("sh").args(["-c", kill]).status().expect("a shell").success());
    assert!(recording.wait().expect("ends").success());
    assert!(trace.0.exists() && nothing_beside(&trace));
}

/// Lines that are to be pasted begin with how `./run` was called. The compiler is a script here,
/// and so is what it would have built.
#[test]
fn the_script_that_builds_the_command_tells_it_how_it_was_called() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("here");
    let dir = Temporary::new("stub");
    let _ = std::fs::remove_dir_all(&dir.0);
    std::fs::create_dir_all(dir.0.join("release")).expect("a folder");
    let stub = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt;
        let path = dir.0.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("mode");
    };
    stub("cargo", "exit 0");
    stub("rustc", "echo rustc 9.0.0");
    stub("release/vellum", "echo \"$VELLUM_COMMAND $VELLUM_HOME $PWD $*\"");
    let path = std::env::var("PATH").expect("a path");
    let said = |from: &Path, called: &str| {
        let mut command = Command::new(called);
        command.current_dir(from).args(["run", "a b"]).env("CARGO_TARGET_DIR", &dir.0);
        command.env("PATH", format!("{}:{path}", dir.path()));
        let said = command.output().expect("the script");
        String::from_utf8_lossy(&said.stdout).trim_end().to_owned()
    };
    let home = root.display();
    assert_eq!(said(&root, "./run"), format!("./run {home} {home} run a b"));
    let full = format!("{home}/run");
    assert_eq!(said(Path::new("/"), &full), format!("{full} {home} / run a b"));
    std::fs::remove_dir_all(&dir.0).expect("removed");
}
