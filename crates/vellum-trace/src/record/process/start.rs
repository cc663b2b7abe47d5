//! Starting a command under ptrace.
use super::ptrace;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A pipe that no program inherits: its reading and its writing end.
fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: the result is live; the two descriptors are new, so each is owned once.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])))
    }
}

/// Starts the command, traced by this thread from before its first exec on. Returns the process.
///
/// The child says who it is and waits; this thread seizes it and lets it go. It is another thread
/// that starts it, because that one waits for its exec.
///
/// # Errors
/// `Unsupported` where ptrace is refused; nothing runs then.
pub(crate) fn start(mut command: Command) -> io::Result<i32> {
    let (mut told, tell) = pipe()?;
    let (gone, mut go) = pipe()?;
    let (tell_fd, gone_fd) = (tell.as_raw_fd(), gone.as_raw_fd());
    // SAFETY: between fork and exec only getpid, write and read are called, which are
    // async-signal-safe, on descriptors that are open then.
    unsafe {
        command.pre_exec(move || {
            let pid = libc::getpid().to_ne_bytes();
            let mut answer = 0u8;
            if libc::write(tell_fd, pid.as_ptr().cast(), 4) != 4
                || libc::read(gone_fd, (&raw mut answer).cast(), 1) != 1
                || answer == 0
            {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            Ok(())
        });
    }
    std::thread::scope(|scope| {
        let spawned = scope.spawn(move || {
            let spawned = command.spawn();
            // Where there was no child, nobody else closes this end.
            drop(tell);
            spawned
        });
        let mut pid = [0; 4];
        let pid = told.read_exact(&mut pid).map(|()| i32::from_ne_bytes(pid));
        let seized = match &pid {
            Ok(pid) => ptrace::seize(*pid),
            Err(_) => Ok(()),
        };
        if pid.is_ok() {
            go.write_all(&[u8::from(seized.is_ok())])?;
        }
        match spawned.join() {
            _ if seized.is_err() => Err(io::ErrorKind::Unsupported.into()),
            Ok(Ok(child)) => i32::try_from(child.id()).map_err(|_| io::ErrorKind::Other.into()),
            Ok(Err(e)) => Err(e),
            Err(_) => Err(io::ErrorKind::Other.into()),
        }
    })
}
