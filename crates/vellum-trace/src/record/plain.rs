//! Both runs where ptrace is refused: the command's first program alone.
use super::native;
use super::process::Live;
use super::program::Program;
use super::recording::{Run, Tools};
use super::watch::{Ended, Watch};
use crate::header::NativeRun;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

fn micros(t: libc::timeval) -> u64 {
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(t.tv_usec).unwrap_or(0)
}

/// Waits for a child; its status, and what it and the children that it waited for used.
fn wait(pid: i32) -> io::Result<(i32, libc::rusage)> {
    let mut status = 0;
    // SAFETY: rusage is plain data, all zeroes is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: the child is ours and nobody else waits for it; both results are live.
        let r = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
        if r == pid {
            return Ok((status, usage));
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// Runs a command to its end: exit code and figures.
fn run(mut command: Command, watch: &Watch<'_>) -> io::Result<((i32, NativeRun), Ended)> {
    let begin = Instant::now();
    let pid = i32::try_from(command.spawn()?.id()).unwrap_or(-1);
    let live = Live::of(pid);
    let (waited, ended) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(pid));
        let ended = watch.until(|| waiting.is_finished(), &live);
        (waiting.join(), ended)
    });
    let (status, usage) = waited.map_err(|_| io::Error::other("waiting for the program"))??;
    let count = |v: libc::c_long| u64::try_from(v).unwrap_or(0);
    let figures = NativeRun {
        minor_faults: count(usage.ru_minflt),
        major_faults: count(usage.ru_majflt),
        // Linux counts in KiB: getrusage(2).
        peak_rss: count(usage.ru_maxrss) * 1024,
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        wall_us: u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX),
        thp_off: watch.native,
    };
    Ok(((code_of(ExitStatus::from_raw(status)), figures), ended))
}

/// The native run of an executable with its arguments.
pub(super) fn native(
    command: &[OsString],
    stdin: Stdio,
    watch: &Watch<'_>,
) -> io::Result<(Program, Ended)> {
    let mut c = Command::new(&command[0]);
    c.args(&command[1..]).stdin(stdin);
    let ((code, native), ended) = run(native::silent(c), watch)?;
    Ok((Program { native, code: Some(code), ..program(command) }, ended))
}

/// The same under the recorder.
pub(super) fn record(
    tools: &Tools<'_>,
    before: Option<&Program>,
    command: &[OsString],
    (stdin, watch): (Stdio, &Watch<'_>),
) -> io::Result<Run> {
    let program = program(command);
    let (trace, words) = tools.begin(0, &program, before.map(|p| (0, p)))?;
    let mut c = Command::new(&words[0]);
    c.args(&words[1..]).args(command).stdin(stdin);
    let ((code, _), ended) = run(c, watch)?;
    let program = Program { code: Some(code), ..program };
    Ok(Run { programs: vec![program], traces: vec![trace], ended })
}

fn program(command: &[OsString]) -> Program {
    let path = command.first().map(Into::into).unwrap_or_default();
    Program { path, args: command.to_vec(), ..Program::default() }
}

/// Exit code, or 128 and the signal.
fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
