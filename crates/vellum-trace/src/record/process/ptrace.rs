//! The requests of ptrace(2) that we use.
use std::io;

/// A stop that is no signal's: a new process's first, or one that job control made.
pub(super) const EVENT_STOP: i32 = 128;

/// New processes and threads are traced too, and all of them stop at exec and exit. They end with
/// us: nobody else knows how to go on.
const OPTIONS: i32 = libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_EXITKILL;

fn request(number: libc::c_uint, pid: i32, data: usize) -> io::Result<()> {
    // SAFETY: the requests of this file take no address, and data as a number or a live value.
    let r = unsafe { libc::ptrace(number, pid, 0usize, data) };
    if r == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Traces a running process from here on.
pub(super) fn seize(pid: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, pid, OPTIONS.unsigned_abs() as usize)
}

/// Lets it go on, with a signal or 0. It may be gone: then there is nothing to do.
pub(super) fn go_on(pid: i32, signal: i32) {
    let _ = request(libc::PTRACE_CONT, pid, signal.unsigned_abs() as usize);
}

/// Leaves it stopped, as job control wants it, but hears when it goes on.
pub(super) fn listen(pid: i32) {
    let _ = request(libc::PTRACE_LISTEN, pid, 0);
}

/// The registers of a stopped thread.
pub(super) fn registers(pid: i32) -> io::Result<libc::user_regs_struct> {
    // SAFETY: registers are numbers, all zeroes are values of them.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETREGS, pid, (&raw mut registers).expose_provenance())?;
    Ok(registers)
}

/// Sets them.
pub(super) fn set_registers(pid: i32, registers: &libc::user_regs_struct) -> io::Result<()> {
    request(libc::PTRACE_SETREGS, pid, (&raw const *registers).expose_provenance())
}

/// What happened to a process of this thread's.
pub(super) enum Wait {
    /// It ended: exit code, or 128 and the signal.
    Ended(i32),
    /// It stopped for an event (0: for a signal) and a signal.
    Stopped { event: i32, signal: i32 },
}

/// Waits for any traced process of this thread's; `None` if there is none left.
pub(super) fn wait() -> io::Result<Option<(i32, Wait)>> {
    loop {
        let mut status = 0;
        // Other threads of this process may have children of their own.
        let which = libc::__WALL | libc::__WNOTHREAD;
        // SAFETY: the result is live.
        let pid = unsafe { libc::waitpid(-1, &mut status, which) };
        if pid == -1 {
            let e = io::Error::last_os_error();
            match e.raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::ECHILD) => return Ok(None),
                _ => return Err(e),
            }
        }
        let what = if libc::WIFEXITED(status) {
            Wait::Ended(libc::WEXITSTATUS(status))
        } else if libc::WIFSIGNALED(status) {
            Wait::Ended(128 + libc::WTERMSIG(status))
        } else {
            Wait::Stopped { event: status >> 16, signal: libc::WSTOPSIG(status) }
        };
        return Ok(Some((pid, what)));
    }
}
