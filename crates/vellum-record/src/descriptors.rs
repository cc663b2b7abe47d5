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
