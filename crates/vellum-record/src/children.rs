//! Until when does a forked child have the program's memory?
//!
//! Each child has the only write end of a pipe, which `exec` closes and so does its end, however
//! that comes about. The program's read end then says so, also where a child closes all descriptors
//! that it has: it then seems to end at once. Children of the child have the write end
//! too, and the old pages with it. Two threads that fork at the same moment may each hand the
//! other's write end to their own child; the first then seems to live as long as both.
use crate::descriptors;
use libc::{POLLIN, POLLNVAL, c_int, pollfd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The ends of a pipe, on the way through a fork.
#[derive(Clone, Copy)]
pub struct Pipe {
    read: c_int,
    write: c_int,
}

/// Read ends of the children that live.
static CHILDREN: Mutex<Vec<pollfd>> = Mutex::new(Vec::new());
/// How many there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn children() -> MutexGuard<'static, Vec<pollfd>> {
    CHILDREN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A fork begins. `None` where the process may have no descriptors for it.
pub fn before_fork() -> Option<Pipe> {
    let mut ends = [-1; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return None;
    }
    let moved = ends.map(descriptors::out_of_the_way);
    ends.into_iter().for_each(descriptors::close);
    if let [Some(read), Some(write)] = moved {
        return Some(Pipe { read, write });
    }
    moved.into_iter().flatten().for_each(descriptors::close);
    None
}

/// The fork returned in the parent. The answer names the child until its end.
pub fn after_fork(pipe: Pipe) -> c_int {
    descriptors::close(pipe.write);
    pipe.read
}

/// The fork failed.
pub fn no_fork(pipe: Pipe) {
    descriptors::close(pipe.write);
    descriptors::close(pipe.read);
}

/// The child's fork has been told, so that its end may be.
pub fn follow(key: c_int) {
    let mut children = children();
    children.push(pollfd { fd: key, events: POLLIN, revents: 0 });
    COUNT.store(children.len(), Ordering::Relaxed);
}

/// Whether children have the program's memory.
pub fn are_there() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Which children have ended since the last time, by their keys. These may be those of later
/// children as soon as `tell` has returned.
pub fn ended(mut tell: impl FnMut(c_int)) {
    let mut children = children();
    children.retain_mut(|child| {
        // One by one: the kernel looks at no more at once than the program may have open.
        // SAFETY: the structure is valid.
        let ended = unsafe { libc::poll(child, 1, 0) } > 0;
        if ended {
            tell(child.fd);
        }
        // If the program closed it, the number is the program's.
        if ended && child.revents & POLLNVAL == 0 {
            descriptors::close(child.fd);
        }
        !ended
    });
    COUNT.store(children.len(), Ordering::Relaxed);
}
