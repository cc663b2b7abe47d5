//! The recorder's own descriptors, in the recorded process.
use libc::c_int;

/// They are from here on: programs choose small ones, and shells name them.
const OWN: c_int = 1000;

/// The same file at a descriptor that no program uses and that `exec` closes, if there may be one.
pub fn out_of_the_way(descriptor: c_int) -> Option<c_int> {
    // SAFETY: plain numbers; a descriptor that is not open is an error.
    let moved = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, OWN) };
    (moved >= 0).then_some(moved)
}

/// Closes a descriptor that is not used again.
pub fn close(descriptor: c_int) {
    // SAFETY: the caller gives it away.
    unsafe { libc::close(descriptor) };
}

/// Gives this thread descriptors of its own, of which it keeps that one and standard error: a
/// program may close all that it has. Where the system cannot do that, nothing has changed.
pub fn apart(keep: c_int) -> bool {
    let close = |first: c_int, last: libc::c_uint, flags: libc::c_uint| {
        // SAFETY: plain numbers; what is closed is this thread's alone from the first call on.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) == 0 }
    };
    let is_apart = close(keep + 1, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE);
    if is_apart {
        // Of a pipe that is held here nobody would see the end. The first range may be empty.
        close(libc::STDERR_FILENO + 1, keep.cast_unsigned() - 1, 0);
        close(0, libc::STDOUT_FILENO.cast_unsigned(), 0);
    }
    is_apart
}
