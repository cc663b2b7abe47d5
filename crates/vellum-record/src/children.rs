//! Until when does a forked child have the program's memory?
//!
//! Each child has the only write end of a pipe, which `exec` closes and so does its end, however
//! that comes about. The program's read end then says so. Children of the child have the write end
//! too, and the old pages with it. Two threads that fork at the same moment may each hand the
//! other's write end to their own child; the first then seems to live as long as both.
use crate::descriptors;
use libc::{POLLIN, c_int, pollfd};
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
    // SAFETY: the slice is valid for its length.
    let ended = unsafe { libc::poll(children.as_mut_ptr(), children.len() as _, 0) };
    if ended <= 0 {
        return;
    }
    children.retain(|child| {
        let is_there = child.revents == 0;
        if !is_there {
            tell(child.fd);
            descriptors::close(child.fd);
        }
        is_there
    });
    COUNT.store(children.len(), Ordering::Relaxed);
}
