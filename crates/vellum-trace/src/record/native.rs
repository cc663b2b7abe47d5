//! The native run and what it cost.
use super::{RecordError, io_error};
use crate::header::NativeRun;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

fn micros(t: libc::timeval) -> u64 {
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(t.tv_usec).unwrap_or(0)
}

/// Runs the command once, silently, with transparent huge pages off. Returns its figures and exit
/// code.
pub(super) fn run(command: &[OsString], stdin: Stdio) -> Result<(NativeRun, i32), RecordError> {
    let mut c = Command::new(&command[0]);
    c.args(&command[1..]).stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: prctl is async-signal-safe and touches nothing of ours; the flag survives exec.
    unsafe {
        c.pre_exec(|| {
            // A kernel without huge pages refuses; then there is nothing to switch off.
            libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
            Ok(())
        });
    }
    let begin = Instant::now();
    let child = c.spawn().map_err(io_error("starting the program"))?;
    let pid = libc::pid_t::try_from(child.id()).unwrap_or(-1);
    let mut status = 0;
    // SAFETY: rusage is plain data, all zeroes is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: the child is ours and nobody else waits for it; both results are live.
        let r = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
        if r == pid {
            break;
        }
        let e = std::io::Error::last_os_error();
        if e.kind() != std::io::ErrorKind::Interrupted {
            return Err(io_error("waiting for the program")(e));
        }
    }
    let wall = begin.elapsed();
    let count = |v: libc::c_long| u64::try_from(v).unwrap_or(0);
    use std::os::unix::process::ExitStatusExt;
    let code = super::code_of(ExitStatus::from_raw(status));
    let figures = NativeRun {
        minor_faults: count(usage.ru_minflt),
        major_faults: count(usage.ru_majflt),
        // Linux counts in KiB: getrusage(2).
        peak_rss: count(usage.ru_maxrss) * 1024,
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        wall_us: u64::try_from(wall.as_micros()).unwrap_or(u64::MAX),
        thp_off: true,
    };
    Ok((figures, code))
}
