//! System calls on files: which part of which file was read, written, synced.
//!
//! The descriptor is asked as the call returns: which file, how long, where it stands. Calls that
//! move it or the file exclude each other, or the answer would hold for another thread's call as
//! well. Not so those that may wait for another thread at their other end (`splice`, or `sendfile`
//! to a socket), nor an open. What other processes write is seen at the program's next call.
pub mod ask;

use crate::guest;
use crate::order::lock;
use crate::ring::Pending;
use crate::sink::{Message, RawCall, Seen};
use vellum_trace::build::{FileCall, FilePart, FileState};

const READ: i64 = 0;
const WRITE: i64 = 1;
const OPEN: i64 = 2;
const PREAD64: i64 = 17;
const PWRITE64: i64 = 18;
const READV: i64 = 19;
const WRITEV: i64 = 20;
const MSYNC: i64 = 26;
const SENDFILE: i64 = 40;
const FSYNC: i64 = 74;
const FDATASYNC: i64 = 75;
const TRUNCATE: i64 = 76;
const FTRUNCATE: i64 = 77;
const CREAT: i64 = 85;
const READAHEAD: i64 = 187;
const FADVISE64: i64 = 221;
const OPENAT: i64 = 257;
const SPLICE: i64 = 275;
const SYNC_FILE_RANGE: i64 = 277;
const FALLOCATE: i64 = 285;
const PREADV: i64 = 295;
const PWRITEV: i64 = 296;
const MEMFD_CREATE: i64 = 319;
const COPY_FILE_RANGE: i64 = 326;
const PREADV2: i64 = 327;
const PWRITEV2: i64 = 328;

const MS_SYNC: u64 = 4;
const RWF_APPEND: u64 = 16;
const WILLNEED: u32 = 3;
const TO_THE_END: u64 = u64::MAX;

/// Tells what is mapped before the first instruction, and the files that are among it.
pub fn images(guest_base: u64) {
    let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut seen = Vec::new();
    let regions = vellum_trace::build::parse_maps(&text, guest_base, |path, inode| {
        let image = ask::image(path, inode)?;
        let file = image.file;
        seen.push(image);
        Some(file)
    });
    lock().message(Message::Regions(regions, seen));
}

/// A call begins: does it move bytes of a regular file, or change its size? Then nothing of the
/// kind may run beside it. The file is looked at now, if it has not been before: the trace tells
/// the size that a file had when it appeared.
pub fn moves(vcpu: u32, p: &Pending) -> bool {
    let regular = |fd| ask::descriptor(vcpu, fd).is_some();
    match p.num {
        READ | READV | PREAD64 | PREADV | PREADV2 => regular(p.args[0]),
        WRITE | WRITEV | PWRITE64 | PWRITEV | PWRITEV2 => regular(p.args[0]),
        FTRUNCATE | FALLOCATE | SENDFILE => regular(p.args[0]),
        COPY_FILE_RANGE => regular(p.args[2]),
        SPLICE => {
            regular(p.args[2]);
            false
        }
        TRUNCATE => ask::path(p.args[0]).is_some(),
        _ => false,
    }
}

/// A call returned: what did it do to files?
pub fn returned(vcpu: u32, p: &Pending, ret: i64) {
    let Ok(n) = u64::try_from(ret) else { return };
    let a = p.args;
    let at = |fd: u64| ask::position(fd)?.checked_sub(n);
    match p.num {
        OPEN | OPENAT | CREAT | MEMFD_CREATE => seen(vcpu, ask::descriptor(vcpu, n)),
        TRUNCATE => seen(vcpu, ask::path(a[0])),
        _ if n == 0 && moves_bytes(p.num) => {}
        READ | READV => read(vcpu, a[0], at(a[0]), n),
        PREADV2 if a[3] == u64::MAX => read(vcpu, a[0], at(a[0]), n),
        PREAD64 | PREADV | PREADV2 => read(vcpu, a[0], Some(a[3]), n),
        WRITE | WRITEV => write(vcpu, a[0], at(a[0]), n),
        PWRITEV2 if a[3] == u64::MAX => write(vcpu, a[0], at(a[0]), n),
        PWRITE64 | PWRITEV | PWRITEV2 => {
            let append = p.num == PWRITEV2 && a[5] & RWF_APPEND != 0 || ask::appends(a[0]);
            let end = || ask::descriptor(vcpu, a[0])?.bytes.checked_sub(n);
            write(vcpu, a[0], if append { end() } else { Some(a[3]) }, n);
        }
        SENDFILE => {
            read(vcpu, a[1], told(a[1], a[2], n), n);
            write(vcpu, a[0], at(a[0]), n);
        }
        SPLICE | COPY_FILE_RANGE => {
            read(vcpu, a[0], told(a[0], a[1], n), n);
            write(vcpu, a[2], told(a[2], a[3], n), n);
        }
        FTRUNCATE | FALLOCATE => {
            if let Some(file) = ask::descriptor(vcpu, a[0]) {
                lock().call(vcpu, RawCall::File(FileCall::Resize(file)));
            }
        }
        FSYNC | FDATASYNC => tell(vcpu, part(vcpu, a[0], 0, TO_THE_END), FileCall::Sync),
        SYNC_FILE_RANGE => tell(vcpu, part(vcpu, a[0], a[1], a[2]), FileCall::Sync),
        MSYNC if a[2] & MS_SYNC != 0 => lock().call(vcpu, RawCall::Msync(a[0], a[1])),
        FADVISE64 => {
            let advise = |p| FileCall::Advise(p, a[3] as u32);
            tell(vcpu, part(vcpu, a[0], a[1], a[2]), advise);
        }
        READAHEAD if a[2] > 0 => {
            let advise = |p| FileCall::Advise(p, WILLNEED);
            tell(vcpu, part(vcpu, a[0], a[1], a[2]), advise);
        }
        _ => {}
    }
}

/// Calls whose result is how many bytes they moved.
fn moves_bytes(num: i64) -> bool {
    matches!(
        num,
        READ | READV
            | PREAD64
            | PREADV
            | PREADV2
            | WRITE
            | WRITEV
            | PWRITE64
            | PWRITEV
            | PWRITEV2
            | SENDFILE
            | SPLICE
            | COPY_FILE_RANGE
    )
}

/// Where a transfer of `n` bytes began that was told its offset by a pointer, which now points
/// behind it; without pointer the descriptor knows.
fn told(fd: u64, pointer: u64, n: u64) -> Option<u64> {
    let end = if pointer == 0 { ask::position(fd) } else { guest::word(pointer) };
    end?.checked_sub(n)
}

/// A part of a descriptor's file, where a length of 0 means "to the end".
fn part(vcpu: u32, fd: u64, offset: u64, len: u64) -> Option<FilePart> {
    let file = ask::descriptor(vcpu, fd)?;
    Some(FilePart { file, offset, bytes: if len == 0 { TO_THE_END } else { len } })
}

fn read(vcpu: u32, fd: u64, offset: Option<u64>, n: u64) {
    tell(vcpu, offset.and_then(|at| part(vcpu, fd, at, n)), FileCall::Read);
}

fn write(vcpu: u32, fd: u64, offset: Option<u64>, n: u64) {
    tell(vcpu, offset.and_then(|at| part(vcpu, fd, at, n)), FileCall::Write);
}

fn tell(vcpu: u32, part: Option<FilePart>, call: impl FnOnce(FilePart) -> FileCall) {
    if let Some(part) = part {
        lock().call(vcpu, RawCall::File(call(part)));
    }
}

fn seen(vcpu: u32, file: Option<FileState>) {
    if let Some(file) = file {
        lock().call(vcpu, RawCall::FileSeen(Seen { file, name: None }));
    }
}
