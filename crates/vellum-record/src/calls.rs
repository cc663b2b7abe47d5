//! System calls that shape the address space, from entry to return.
//!
//! Memory calls exclude each other between entry and return. Without that, a range that one thread
//! has just unmapped could be handed to another whose `mmap` is written first. So do calls on
//! files: what the descriptor says at the return must be what this call has made of it.
use crate::children::Pipe;
use crate::exclude::{self, Exclusive};
use crate::order::{self, lock};
use crate::ring::Pending;
use crate::sink::{Message, RawCall};
use crate::{children, files, guest, kernel};
use std::ffi::c_uint;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc;
use vellum_trace::build::MapRequest;
use vellum_trace::{Advice, MapKind, Prot};

const MMAP: i64 = 9;
const MPROTECT: i64 = 10;
const MUNMAP: i64 = 11;
const BRK: i64 = 12;
const MREMAP: i64 = 25;
const MADVISE: i64 = 28;
const SHMAT: i64 = 30;
const SHMDT: i64 = 31;
const DUP2: i64 = 33;
const CLONE: i64 = 56;
const FORK: i64 = 57;
const VFORK: i64 = 58;
const EXECVE: i64 = 59;
const EXIT: i64 = 60;
const EXIT_GROUP: i64 = 231;
const FUTEX: i64 = 202;
const DUP3: i64 = 292;
const EXECVEAT: i64 = 322;

const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;

static CODE: AtomicI32 = AtomicI32::new(0);

/// The code of the last exit call.
pub fn exit_code() -> i32 {
    CODE.load(Ordering::Relaxed)
}

fn is_memory(num: i64) -> bool {
    matches!(num, MMAP | MPROTECT | MUNMAP | BRK | MREMAP | MADVISE | SHMAT | SHMDT)
}

/// What a call must not run beside.
fn excludes(vcpu: u32, p: &Pending) -> Option<&'static Exclusive> {
    if is_memory(p.num) {
        Some(&exclude::MEMORY)
    } else if matches!(p.num, DUP2 | DUP3) {
        Some(&exclude::DESCRIPTORS)
    } else if files::moves(vcpu, p) {
        Some(&exclude::FILES)
    } else {
        None
    }
}

#[allow(clippy::too_many_arguments)]
pub extern "C" fn on_entry(
    _: u64,
    vcpu: c_uint,
    num: i64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
    a6: u64,
    _: u64,
    _: u64,
) {
    if order::detached() {
        return;
    }
    let Some(ring) = order::ring(vcpu) else { return };
    // SAFETY: QEMU runs the callback on the CPU it names.
    let pending = unsafe { ring.pending() };
    *pending = Pending { num, args: [a1, a2, a3, a4, a5, a6], ..Pending::default() };
    pending.holds = excludes(vcpu, pending).filter(|calls| calls.acquire());
    match num {
        // What was done before a wait or a wake is written before what the other side does after
        // it.
        FUTEX => lock().take_all(),
        FORK => pending.pipe = pipe_of_child(),
        CLONE if a1 & CLONE_VM == 0 => pending.pipe = pipe_of_child(),
        // Whoever waits for it gets the low byte.
        EXIT | EXIT_GROUP => CODE.store(i32::from(a1 as u8), Ordering::Relaxed),
        EXECVE if will_exec(a1) => end_here(vcpu),
        EXECVEAT => end_here(vcpu),
        _ => {}
    }
}

/// Shells try one directory after the other; only the attempt that can succeed ends the recording.
fn will_exec(path: u64) -> bool {
    let Some(path) = guest::string(path).and_then(|p| std::ffi::CString::new(p).ok()) else {
        return false;
    };
    // SAFETY: the path is a terminated string.
    unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
}

/// Writes the trace to its end and waits until that is done, because a moment later this process is
/// another.
fn end_here(vcpu: u32) {
    let (done, wait) = mpsc::channel();
    {
        let mut o = lock();
        o.call(vcpu, RawCall::Exec);
        // Nothing of other CPUs between the two: an exec that fails is taken back.
        o.send(Message::Checkpoint(done));
    }
    let _ = wait.recv();
}

pub extern "C" fn on_return(_: u64, vcpu: c_uint, num: i64, ret: i64) {
    if order::detached() {
        return;
    }
    let Some(ring) = order::ring(vcpu) else { return };
    // SAFETY: QEMU runs the callback on the CPU it names.
    let pending = unsafe { ring.pending() };
    let p = std::mem::take(pending);
    if p.num == num {
        match raw_call(vcpu, &p, ret) {
            Some(RawCall::Fork(_)) => forked(vcpu, p.pipe),
            Some(call) => lock().call(vcpu, call),
            None if matches!(num, EXECVE | EXECVEAT) => lock().message(Message::Resume),
            None => {
                p.pipe.into_iter().for_each(children::no_fork);
                files::returned(vcpu, &p, ret);
                kernel::touched(vcpu, &p, ret);
            }
        }
    }
    if let Some(calls) = p.holds {
        calls.release();
    }
    if children::are_there() {
        lock().ended_children();
    }
}

/// A new pipe has the lowest free numbers for a moment. A program's `dup2` to one of them would
/// take it from us, and we would close the program's.
fn pipe_of_child() -> Option<Pipe> {
    let calls = &exclude::DESCRIPTORS;
    if !calls.acquire() {
        return None;
    }
    let pipe = children::before_fork();
    calls.release();
    pipe
}

/// A fork is told before the child is followed, and so before its end.
fn forked(vcpu: u32, pipe: Option<Pipe>) {
    let child = pipe.map(children::after_fork);
    let mut order = lock();
    order.call(vcpu, RawCall::Fork(child));
    child.into_iter().for_each(children::follow);
}

/// What a call did, if it succeeded and shapes the address space.
fn raw_call(vcpu: u32, p: &Pending, ret: i64) -> Option<RawCall> {
    let a = p.args;
    // Errors are the last 4095 values.
    if (-4095..0).contains(&ret) {
        return None;
    }
    let prot = |bits: u64| Prot(bits as u8 & 7);
    Some(match p.num {
        MMAP => {
            let anon = a[3] & 0x20 != 0;
            // MAP_SHARED is 1, MAP_SHARED_VALIDATE 3, MAP_PRIVATE 2.
            let shared = a[3] & 1 != 0;
            RawCall::Map(MapRequest {
                addr: ret as u64,
                len: a[1],
                prot: prot(a[2]),
                kind: match (anon, shared) {
                    (true, false) => MapKind::Anon,
                    (true, true) => MapKind::AnonShared,
                    (false, false) => MapKind::FilePrivate,
                    (false, true) => MapKind::FileShared,
                },
                file_offset: if anon { 0 } else { a[5] },
                file: if anon { None } else { files::ask::descriptor(vcpu, a[4]) },
                // MAP_LOCKED, MAP_POPULATE
                populate: a[3] & (0x2000 | 0x8000) != 0,
            })
        }
        MUNMAP => RawCall::Unmap(a[0], a[1]),
        MPROTECT => RawCall::Protect(a[0], a[1], prot(a[2])),
        MREMAP => RawCall::Remap {
            from: a[0],
            old_len: a[1],
            to: ret as u64,
            new_len: a[2],
            keep: a[3] & 4 != 0,
        },
        MADVISE => RawCall::Advise(a[0], a[1], Advice::from_raw(a[2] as u32)),
        BRK => RawCall::Brk(ret as u64),
        FORK => RawCall::Fork(None),
        CLONE if a[0] & CLONE_VM == 0 => RawCall::Fork(None),
        VFORK => RawCall::Vfork,
        CLONE if a[0] & CLONE_VFORK != 0 => RawCall::Vfork,
        _ => return None,
    })
}
