//! What a descriptor says of its file.
//!
//! QEMU's user mode hands the program's descriptors to the kernel as they are, and the plugin lives
//! in the same process, so it can ask about each of them.
use crate::guest;
use crate::order::lock;
use crate::sink::{RawCall, Seen};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use vellum_trace::build::{FileId, FileState};

/// File systems whose regular files are answers of the kernel and not pages of a cache: proc,
/// sysfs, cgroup, cgroup2, debugfs, tracefs, securityfs, configfs, bpf, pstore, efivarfs, selinux
/// and binfmt_misc (`linux/magic.h`).
const NO_FILES: [i64; 13] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x6265_6570,
    0xcafe_4a11,
    0x6165_676c,
    0xde5e_81e4,
    0xf97c_ff8c,
    0x4249_4e4d,
];

/// Files looked at before, and whether they are recorded.
static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
static NAMES: AtomicBool = AtomicBool::new(true);

/// Whether names go into the trace.
pub fn keep_names(keep: bool) {
    NAMES.store(keep, Ordering::Relaxed);
}

type Known = HashMap<FileId, bool>;

/// Does something with the files looked at before. The lock is held meanwhile, so that nobody can
/// use a file before it has been announced.
fn with_known<T>(f: impl FnOnce(&mut Known) -> T) -> T {
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    f(known.get_or_insert_default())
}

/// The regular file behind a path, or behind the descriptor itself if the path is empty.
fn state(fd: i32, path: &CStr) -> Option<FileState> {
    // SAFETY: all zeros is a value of this structure of numbers.
    let mut s: libc::statx = unsafe { std::mem::zeroed() };
    let flags = if path.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    // SAFETY: the path is a terminated string, the structure ours.
    let failed = unsafe { libc::statx(fd, path.as_ptr(), flags, mask, &mut s) } != 0;
    if failed || u32::from(s.stx_mode) & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    let born = if s.stx_mask & libc::STATX_BTIME != 0 {
        let seconds = s.stx_btime.tv_sec as u64;
        seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::from(s.stx_btime.tv_nsec))
    } else {
        0
    };
    let device = u64::from(s.stx_dev_major) << 32 | u64::from(s.stx_dev_minor);
    Some(FileState { id: FileId { device, inode: s.stx_ino, born }, bytes: s.stx_size })
}

fn recorded(fd: i32, path: &str) -> bool {
    // SAFETY: all zeros is a value of this structure of numbers; the kernel fills it in.
    let kind = unsafe {
        let mut s: libc::statfs = std::mem::zeroed();
        if libc::fstatfs(fd, &mut s) == 0 { s.f_type } else { 0 }
    };
    // What QEMU makes up for the program when that opens some files of /proc.
    let made_up = path.rsplit('/').next().is_some_and(|name| name.starts_with("qemu-open."));
    !NO_FILES.contains(&kind) && !made_up
}

/// The regular file or memfd behind a descriptor. One that has not been seen before is announced.
pub fn descriptor(vcpu: u32, fd: u64) -> Option<FileState> {
    let fd = fd as i32;
    if fd < 0 {
        return None;
    }
    let file = state(fd, c"")?;
    with_known(|known| {
        if let Some(recorded) = known.get(&file.id) {
            return recorded.then_some(file);
        }
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
        let path = link.to_string_lossy();
        let recorded = recorded(fd, &path);
        known.insert(file.id, recorded);
        if !recorded {
            return None;
        }
        let seen = Seen { file, name: name(path.trim_end_matches(" (deleted)")) };
        lock().call(vcpu, RawCall::FileSeen(seen));
        Some(file)
    })
}

fn name(path: &str) -> Option<String> {
    let last = path.rsplit('/').next().filter(|_| NAMES.load(Ordering::Relaxed));
    last.map(str::to_owned)
}

/// The file at a path of the program's, if one of its descriptors has led to it before.
pub fn path(addr: u64) -> Option<FileState> {
    let path = CString::new(guest::string(addr)?).ok()?;
    let file = state(libc::AT_FDCWD, &path)?;
    with_known(|known| known.get(&file.id).copied().unwrap_or(false)).then_some(file)
}

/// The file of an image, by path and inode number from the list of mappings. The path may lead to
/// another file meanwhile; then nothing is known.
pub fn image(path: &str, inode: u64) -> Option<Seen> {
    let file = state(libc::AT_FDCWD, &CString::new(path).ok()?)?;
    if path.ends_with(" (deleted)") || file.id.inode != inode {
        return None;
    }
    with_known(|known| known.insert(file.id, true));
    Some(Seen { file, name: name(path) })
}

/// Where a descriptor stands.
pub fn position(fd: u64) -> Option<u64> {
    // SAFETY: asks the kernel only; a descriptor that is none is an error.
    let at = unsafe { libc::lseek(fd as i32, 0, libc::SEEK_CUR) };
    u64::try_from(at).ok()
}

/// Whether a descriptor writes at the end, wherever it is told to.
pub fn appends(fd: u64) -> bool {
    // SAFETY: asks the kernel only; a descriptor that is none is an error.
    let flags = unsafe { libc::fcntl(fd as i32, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_APPEND != 0
}
