//! How the host's kernel keeps the pages of files: what a replay has to know of it.
//!
//! A page cache may keep several pages in one piece, a folio. Linux maps the whole folio of a fault
//! from 6.18 on, where the file system has folios of more than a page (ext4 from 6.16, XFS). So
//! the kernel is asked by a file without a name, in the directory in which the program runs: 64 KiB
//! of it are written by one call, mapped and touched by stores.
use super::session::host_text;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr;

/// Bytes that are written by one call.
const PIECE: usize = 64 << 10;
const PAGE: usize = 4096;
/// KiB that are told at least and at most: a page is read in any case, and a replay takes 1 GiB.
const LEAST: u64 = 4;
const MOST: u64 = 1 << 20;

/// How much the kernel reads ahead of the files of that directory, as `8192K`, if its faults map
/// whole folios there; empty if they map pages, or if nothing can be told.
pub fn read_ahead(directory: &Path) -> String {
    if !may_write() {
        return String::new();
    }
    let mut unnamed = OpenOptions::new();
    unnamed.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
    let Ok(file) = unnamed.open(directory) else { return String::new() };
    match (maps_folios(&file), file.metadata()) {
        (Some(true), Ok(about)) => {
            let device = (libc::major(about.dev()), libc::minor(about.dev()));
            let file = format!("/sys/class/bdi/{}:{}/read_ahead_kb", device.0, device.1);
            let kib = host_text(&file).parse::<u64>();
            kib.map_or_else(|_| String::new(), |kib| format!("{}K", kib.clamp(LEAST, MOST)))
        }
        _ => String::new(),
    }
}

/// Whether a file may become so long; a process that is not allowed to is ended by the attempt.
fn may_write() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills in our structure.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0;
    asked && limit.rlim_cur >= PIECE as u64
}

/// Whether stores to the pages of a folio take fewer faults than there are pages. Nothing if the
/// file cannot be written or mapped.
fn maps_folios(mut file: &File) -> Option<bool> {
    file.write_all(&[1; PIECE]).ok()?;
    // SAFETY: a new mapping, that ends below.
    let start = unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(ptr::null_mut(), PIECE, rights, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    let before = faults();
    for page in 0..PIECE / PAGE {
        // SAFETY: inside the mapping, all of which the file has.
        unsafe { start.cast::<u8>().add(page * PAGE).write_volatile(2) };
    }
    let taken = faults() - before;
    // SAFETY: the mapping made above, which nothing points into any more.
    unsafe { libc::munmap(start, PIECE) };
    Some(taken < (PIECE / PAGE) as i64)
}

/// Minor faults of this thread.
fn faults() -> i64 {
    // SAFETY: all zeros is a value of this structure of numbers; the kernel fills it in.
    unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut used);
        used.ru_minflt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file system in memory without huge pages keeps single pages, whatever the kernel.
    #[test]
    fn a_file_in_memory_has_no_folios() {
        let shmem = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
        let options = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
        let is_plain = options
            .lines()
            .any(|line| line.starts_with("tmpfs /dev/shm tmpfs ") && !line.contains("huge="));
        let forced = std::fs::read_to_string(shmem).unwrap_or_default().contains("[force]");
        if is_plain && !forced {
            assert_eq!(read_ahead(Path::new("/dev/shm")), "");
        }
    }

    #[test]
    fn what_is_no_directory_tells_nothing() {
        assert_eq!(read_ahead(Path::new("/proc/self/nothing")), "");
    }

    /// The figure is that of a device, or there is none.
    #[test]
    fn what_is_told_is_a_number() {
        let said = read_ahead(&std::env::temp_dir());
        let kib = said.strip_suffix('K').map(str::parse::<u64>);
        assert!(said.is_empty() || matches!(kib, Some(Ok(_))), "{said}");
    }
}
