//! Where guest memory lies in this process, and reading small things from it.
//!
//! Guest addresses are host addresses minus a base that QEMU chooses at start and tells no one. A
//! translated instruction has both addresses, so the first one gives the base away.
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static BASE: AtomicU64 = AtomicU64::new(0);
static KNOWN: AtomicBool = AtomicBool::new(false);

/// Called for each translated block. Answers the base for the first, before any guest instruction
/// has run.
pub fn learn(guest: u64, host: *mut c_void) -> Option<u64> {
    if KNOWN.load(Ordering::Relaxed) || host.is_null() || KNOWN.swap(true, Ordering::AcqRel) {
        return None;
    }
    let base = (host.addr() as u64).wrapping_sub(guest);
    BASE.store(base, Ordering::Relaxed);
    Some(base)
}

fn host(addr: u64) -> *const u8 {
    let a = addr.wrapping_add(BASE.load(Ordering::Relaxed));
    std::ptr::with_exposed_provenance(a as usize)
}

/// Copies `out.len()` bytes of guest memory. `false` if they are not readable.
pub fn read(addr: u64, out: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let remote = libc::iovec { iov_base: host(addr).cast_mut().cast(), iov_len: out.len() };
    // SAFETY: the kernel checks the remote range; the local one is a live buffer. Reading through
    // the kernel rather than through the pointer turns a bad guest address into an error.
    let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    n == out.len() as isize
}

/// A 64-bit number in guest memory.
pub fn word(addr: u64) -> Option<u64> {
    let mut b = [0; 8];
    read(addr, &mut b).then(|| u64::from_le_bytes(b))
}

/// A terminated string in guest memory, at most 4096 bytes.
pub fn string(addr: u64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut b = [0u8; 1];
    while out.len() < 4096 {
        if !read(addr.wrapping_add(out.len() as u64), &mut b) {
            return None;
        }
        if b[0] == 0 {
            return Some(out);
        }
        out.push(b[0]);
    }
    None
}
