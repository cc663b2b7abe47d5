//! What the kernel reads and writes in the program's memory, by system call.
//!
//! The list holds the calls that move data, and the small fixed structures that programs ask for
//! often. The rest touches a few bytes that the program itself touches just before or after.
use crate::ring::Pending;
use crate::ring::word;
use crate::{guest, order};

/// Most vectors followed in one call (Linux takes no more: `UIO_MAXIOV`).
const MAX_VECTORS: u64 = 1024;

fn range(vcpu: u32, addr: u64, len: u64, write: bool) {
    let (mut at, mut left) = (addr, len);
    while left > 0 {
        let n = left.min(word::KERNEL_MAX);
        // SAFETY: called from this CPU's system call callbacks only.
        unsafe { order::push(vcpu, [word::kernel(at, n, write)]) };
        at = at.wrapping_add(n);
        left -= n;
    }
}

fn vectors(vcpu: u32, at: u64, count: u64, mut left: u64, write: bool) {
    let count = count.min(MAX_VECTORS);
    if count == 0 {
        return;
    }
    range(vcpu, at, count * 16, false);
    for i in 0..count {
        let (Some(base), Some(len)) = (guest::word(at + i * 16), guest::word(at + i * 16 + 8))
        else {
            return;
        };
        let n = len.min(left);
        range(vcpu, base, n, write);
        left -= n;
    }
}

/// A call returned: what did the kernel touch?
pub fn touched(vcpu: u32, p: &Pending, ret: i64) {
    let a = p.args;
    let some = |addr: u64, len: u64, write: bool| {
        if addr != 0 {
            range(vcpu, addr, len, write);
        }
    };
    if ret < 0 {
        return;
    }
    let n = ret as u64;
    match p.num {
        // read, pread64, readlink, getdents64, readlinkat
        0 | 17 | 89 | 217 => some(a[1], n, true),
        267 => some(a[2], n, true),
        // recvfrom: with MSG_TRUNC it tells the length of what did not fit, too
        45 => some(a[1], n.min(a[2]), true),
        // write, pwrite64, sendto
        1 | 18 | 44 => some(a[1], n, false),
        // readv, preadv, preadv2
        19 | 295 | 327 => vectors(vcpu, a[1], a[2], n, true),
        // writev, pwritev, pwritev2
        20 | 296 | 328 => vectors(vcpu, a[1], a[2], n, false),
        // sendmsg, recvmsg
        46 | 47 => {
            some(a[1], 56, false);
            if let (Some(iov), Some(count)) = (guest::word(a[1] + 16), guest::word(a[1] + 24)) {
                vectors(vcpu, iov, count, n, p.num == 47);
            }
        }
        // stat, fstat, lstat; newfstatat; statx
        4..=6 => some(a[1], 144, true),
        262 => some(a[2], 144, true),
        332 => some(a[4], 256, true),
        // getrandom, getcwd
        318 | 79 => some(a[0], n, true),
        // poll, ppoll; epoll_wait, epoll_pwait
        7 | 271 => some(a[0], a[1].min(MAX_VECTORS) * 8, true),
        232 | 281 => some(a[1], n.min(MAX_VECTORS) * 12, true),
        // uname, getrusage, sysinfo, pipe, pipe2, clock_gettime, futex
        63 => some(a[0], 390, true),
        98 => some(a[1], 144, true),
        99 => some(a[0], 112, true),
        22 | 293 => some(a[0], 8, true),
        228 => some(a[1], 16, true),
        202 => some(a[0], 4, false),
        // prlimit64
        302 => some(a[3], 16, true),
        _ => {}
    }
}
