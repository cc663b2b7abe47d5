//! The kernel under us as a peer: the same operations by `mmap`, first touches, `mprotect`,
//! `mremap`, `munmap` and `fork`.
//!
//! The two do not do the same work. A figure of Linux contains the trap or system call, real page
//! tables and a real TLB; Linux also charges memory to control groups, ages pages and keeps
//! statistics. Ours is the call of the library alone. The comparison shows how much of a fault on
//! this machine a memory subsystem could save, and that the order of magnitude is right.
//!
//! `fork` is called from a process with threads, so the child only touches memory that it was given
//! and leaves with `_exit`.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::FromRawFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous,
    mprotect, mremap_fixed, munmap,
};

use super::fixture::{HUGE, PAGE};
use super::measure::{Start, conditions};

/// Its name in reports.
pub const NAME: &str = "linux";

/// Memory that can be mapped several times.
///
/// # Errors
/// The system refuses.
pub fn shared_memory(bytes: u64) -> io::Result<File> {
    // SAFETY: the name ends with a zero.
    let fd = unsafe { libc::memfd_create(c"vellum-bench".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and nobody else's.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(bytes)?;
    Ok(file)
}

/// A private anonymous mapping of this process, or what was put in its place, given back when
/// dropped.
pub struct Area {
    mapped: *mut c_void,
    mapped_bytes: usize,
    at: *mut u8,
    bytes: usize,
}

impl Area {
    /// Maps `bytes`, at a multiple of 2 MiB if `huge`.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new(bytes: u64, huge: bool) -> io::Result<Area> {
        let bytes = bytes as usize;
        let mapped_bytes = if huge { bytes + HUGE as usize } else { bytes };
        let (rights, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a fresh mapping at an address of the system's choice disturbs nothing.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), mapped_bytes, rights, flags)? };
        let skip = if huge { mapped.cast::<u8>().align_offset(HUGE as usize) } else { 0 };
        // SAFETY: less than 2 MiB further, and 2 MiB more were mapped.
        let at = unsafe { mapped.cast::<u8>().add(skip) };
        Ok(Area { mapped, mapped_bytes, at, bytes })
    }
    /// Puts the beginning of a file in its place, shared with all who map it.
    ///
    /// # Errors
    /// The system refuses.
    pub fn show(self, file: &File) -> io::Result<Area> {
        let (rights, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: what is replaced is ours, and nobody touches it meanwhile.
        unsafe { mmap(self.at.cast(), self.bytes, rights, flags, file, 0)? };
        Ok(self)
    }
    /// Has the system make huge pages of what is there, at once.
    ///
    /// # Errors
    /// The system refuses, or does not know how.
    pub fn collapse(&self) -> io::Result<()> {
        // SAFETY: the range is ours, and its bytes stay as they are.
        match unsafe { libc::madvise(self.at.cast(), self.bytes, libc::MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
    /// Whether huge pages of shared memory, or of a file, map all of it.
    pub fn is_shared_huge(&self) -> bool {
        conditions::shared_huge_bytes(self.range()) == Some(self.bytes as u64)
    }
    fn range(&self) -> Range<u64> {
        self.at as u64..self.at as u64 + self.bytes as u64
    }
    /// Asks for huge pages or for none, whatever the system's default is.
    pub fn advise(&self, huge: bool) {
        let wish = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: the range is ours; a system without huge pages refuses, and has none.
        let _ = unsafe { madvise(self.at.cast(), self.bytes, wish) };
    }
    /// Reads or writes one byte every `step` bytes.
    pub fn touch(&self, step: u64, write: bool) {
        self.touch_part(0..self.bytes as u64, step, write);
    }
    /// The same in a part of it.
    pub fn touch_part(&self, bytes: Range<u64>, step: u64, write: bool) {
        assert!(bytes.end as usize <= self.bytes);
        let length = (bytes.end - bytes.start) as usize;
        // SAFETY: inside the mapping, which nobody else knows.
        unsafe { touch(self.at(bytes.start as usize), length, step as usize, write) }
    }
    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// The address of a byte.
    pub fn at(&self, byte: usize) -> *mut u8 {
        assert!(byte < self.bytes);
        // SAFETY: inside the mapping.
        unsafe { self.at.add(byte) }
    }
    /// Whether huge pages map all of it.
    pub fn is_huge(&self) -> bool {
        conditions::huge_bytes(self.range()).is_some_and(|b| b >= self.bytes as u64)
    }
    /// Takes the right to write, or gives it back.
    ///
    /// # Errors
    /// The system refuses.
    pub fn protect(&self, write: bool) -> io::Result<()> {
        let rights =
            if write { MprotectFlags::READ | MprotectFlags::WRITE } else { MprotectFlags::READ };
        // SAFETY: the range is ours, and nobody touches it meanwhile.
        unsafe { mprotect(self.at.cast(), self.bytes, rights)? };
        Ok(())
    }
    /// Moves the whole mapping to where `to` is, which is replaced.
    ///
    /// # Errors
    /// The system refuses.
    pub fn move_to(mut self, to: Area) -> io::Result<Area> {
        assert_eq!(self.bytes, to.bytes);
        // SAFETY: both ranges are ours, do not overlap, and nobody touches either meanwhile.
        unsafe {
            mremap_fixed(
                self.at.cast(),
                self.bytes,
                self.bytes,
                MremapFlags::MAYMOVE,
                to.at.cast(),
            )?
        };
        // Where it was, another thread may have a mapping by now: ours is only what lies around.
        let before = self.at as usize - self.mapped as usize;
        let behind = self.mapped_bytes - before - self.bytes;
        if behind > 0 {
            // SAFETY: mapped in `new`, behind what moved, and nobody uses it.
            let _ = unsafe { munmap(self.at.add(self.bytes).cast(), behind) };
        }
        self.mapped_bytes = before;
        Ok(to)
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if self.mapped_bytes > 0 {
            // SAFETY: mapped in `new`, and nobody uses it any more.
            let _ = unsafe { munmap(self.mapped, self.mapped_bytes) };
        }
    }
}

/// What a fork took, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Forked {
    /// Until the parent went on.
    pub fork: f64,
    /// What the child's writes to one byte every page of the area took in all.
    pub copies: f64,
}

/// Forks this process; the child writes to every page of `area`, if there is one, and leaves.
///
/// # Errors
/// The system refuses.
pub fn fork(area: Option<&Area>) -> io::Result<Forked> {
    let (fork, copies) = in_child(|| {
        let Some(area) = area else { return 0.0 };
        let start = Instant::now();
        area.touch(PAGE, true);
        start.elapsed().as_nanos() as f64
    })?;
    Ok(Forked { fork, copies })
}

/// Has a child do something and give a figure; nanoseconds until this process went on, and the
/// figure. The child must call nothing but the clock, take no lock and allocate nothing: other
/// threads of this process do not exist in it.
///
/// # Errors
/// The system refuses.
pub fn in_child(act: impl FnOnce() -> f64) -> io::Result<(f64, f64)> {
    // SAFETY: a fresh page, shared with the child, for its figure.
    let page = unsafe {
        mmap_anonymous(
            ptr::null_mut(),
            PAGE as usize,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
        )?
    };
    // SAFETY: the page is zero, aligned, and lives until the end of this function.
    let figure = unsafe { &*page.cast::<AtomicU64>() };
    let start = Instant::now();
    // SAFETY: the child does what the caller promises, and calls `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        figure.store(act().to_bits(), Ordering::Release);
        // SAFETY: leaves at once, without running what the parent would run at its end.
        unsafe { libc::_exit(0) }
    }
    let fork = start.elapsed().as_nanos() as f64;
    let result = if child < 0 {
        Err(io::Error::last_os_error())
    } else {
        let mut status = 0;
        // SAFETY: our child, waited for once; interrupted waits are repeated.
        while unsafe { libc::waitpid(child, &mut status, 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
        match libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
            true => Ok((fork, f64::from_bits(figure.load(Ordering::Acquire)))),
            false => Err(io::Error::other("a child was killed")),
        }
    };
    // SAFETY: mapped above; the child is gone.
    let _ = unsafe { munmap(page, PAGE as usize) };
    result
}

/// One thread's turn through the acts of [`super::fault`], in their order: name and nanoseconds per
/// page. Acts that this system does not do the same way (no huge pages to be had) are left out.
///
/// # Errors
/// The system refuses memory.
pub fn turn(
    small: u64,
    large: u64,
    start: &Start,
    forks: bool,
) -> io::Result<Vec<(&'static str, f64)>> {
    let mut found = Vec::new();
    let mut phase = |name, n: u64, f: &mut dyn FnMut()| {
        start.meet();
        found.push((name, super::measure::time(n, f)));
        start.meet();
    };
    let area = |huge| {
        let area = Area::new(if huge { large } else { small }, huge);
        area.iter().for_each(|a| a.advise(huge));
        area
    };
    let pages = small / PAGE;
    let mut a = Some(area(false)?);
    phase("fault/4k-zero-read", pages, &mut || a.iter().for_each(|a| a.touch(PAGE, false)));
    drop(a.replace(area(false)?));
    phase("fault/4k-write", pages, &mut || a.iter().for_each(|a| a.touch(PAGE, true)));
    phase("unmap/4k-page", pages, &mut || drop(a.take()));
    let mut a = Some(area(true)?);
    let before = conditions::host_faults();
    phase("fault/2m-write", large / HUGE, &mut || a.iter().for_each(|a| a.touch(HUGE, true)));
    let huge = a.as_ref().is_some_and(Area::is_huge)
        && conditions::host_faults() - before <= large / HUGE + 16;
    phase("unmap/2m-page", large / HUGE, &mut || drop(a.take()));
    if !huge {
        found.retain(|(name, _)| !name.contains("2m"));
    }
    if forks {
        let empty = fork(None)?;
        let a = area(false)?;
        a.touch(PAGE, true);
        let full = fork(Some(&a))?;
        // A fork that was disturbed while there was nothing to copy says nothing.
        if full.fork > empty.fork {
            found.push(("fork/4k-page", (full.fork - empty.fork) / pages as f64));
        }
        found.push(("fault/4k-copy", full.copies / pages as f64));
    }
    Ok(found)
}

/// Reads or writes one byte every `step` bytes.
///
/// # Safety
/// The bytes are mapped, and nobody else touches them.
pub(super) unsafe fn touch(at: *mut u8, bytes: usize, step: usize, write: bool) {
    for offset in (0..bytes).step_by(step) {
        // SAFETY: the caller promises it.
        unsafe {
            let byte = at.add(offset);
            if write {
                byte.write_volatile(1);
            } else {
                std::hint::black_box(byte.read_volatile());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_copies_and_leaves_the_parents_bytes_alone() {
        let a = Area::new(64 * PAGE, false).unwrap();
        a.touch(PAGE, true);
        // SAFETY: inside the mapping.
        unsafe { a.at.write_volatile(7) };
        let forked = fork(Some(&a)).unwrap();
        assert!(forked.fork > 0.0 && forked.copies > 0.0, "{forked:?}");
        // SAFETY: as above.
        assert_eq!(unsafe { a.at.read_volatile() }, 7);
    }

    #[test]
    fn what_is_mapped_where_an_area_was_moved_from_stays() {
        const BYTES: u64 = 64 << 10;
        let end = std::sync::atomic::AtomicBool::new(false);
        let ordering = std::sync::atomic::Ordering::Relaxed;
        std::thread::scope(|s| {
            s.spawn(|| {
                while !end.load(ordering) {
                    let other = Area::new(BYTES, false).expect("memory");
                    other.touch(PAGE, true);
                }
            });
            for _ in 0..20_000 {
                let [from, to] = [0; 2].map(|_| Area::new(BYTES, false).expect("memory"));
                drop(from.move_to(to).expect("moved"));
            }
            end.store(true, ordering);
        });
    }

    #[test]
    fn bytes_move_with_their_mapping_and_rights_come_back() {
        let (a, b) = (Area::new(8 * PAGE, true).unwrap(), Area::new(8 * PAGE, true).unwrap());
        // SAFETY: inside the mapping.
        unsafe { a.at.write_volatile(9) };
        let moved = a.move_to(b).unwrap();
        moved.protect(false).unwrap();
        moved.protect(true).unwrap();
        moved.touch(PAGE, false);
        // SAFETY: inside the mapping that took the bytes over.
        assert_eq!(unsafe { moved.at.read_volatile() }, 9);
    }

    #[test]
    fn every_act_that_ends_has_a_figure() {
        let found = turn(64 * PAGE, HUGE, &Start::new(1), true).unwrap();
        // Huge pages may not be had, and a fork that was disturbed is left out: whoever runs beside
        // this test decides about those.
        for name in ["fault/4k-zero-read", "fault/4k-write", "unmap/4k-page", "fault/4k-copy"] {
            assert!(found.iter().any(|&(n, _)| n == name), "{name}: {found:?}");
        }
        assert!(found.iter().all(|&(_, each)| each > 0.0), "{found:?}");
    }
}
