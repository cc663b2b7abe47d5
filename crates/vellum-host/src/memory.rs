//! Real memory: one private anonymous mapping, aligned to 2 MiB, on huge pages where the system
//! provides them.
//!
//! Memory costs nothing before it is touched, so a laptop can build a machine of 64 GiB for tests
//! that touch little. Rejected: the global allocator, which gives no control over huge pages; a
//! memfd, since frames need no second mapping.

use std::ffi::c_void;
use std::hint::black_box;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Alignment of every mapping: the host's huge page.
pub const ALIGN: usize = 2 << 20;

/// A zeroed mapping, given back when dropped.
#[derive(Debug)]
pub struct Memory {
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory; its user decides which thread may access which bytes.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// At least `bytes` bytes of zeros at a multiple of [`ALIGN`]; huge pages are asked for if
    /// `huge`.
    pub fn new(bytes: usize, huge: bool) -> io::Result<Memory> {
        let too_much = || io::Error::new(io::ErrorKind::OutOfMemory, "more memory than addresses");
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGN).ok_or_else(too_much)?;
        let mapped_bytes = bytes.checked_add(ALIGN).ok_or_else(too_much)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the system's choice disturbs nothing.
        let at = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                mapped_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )?
        };
        let mapped = NonNull::new(at.cast::<u8>()).ok_or_else(too_much)?;
        let skip = mapped.as_ptr().align_offset(ALIGN);
        // SAFETY: the mapping is ALIGN longer than asked for, and `skip` is less than ALIGN.
        let base = unsafe { mapped.add(skip) };
        let memory = Memory { mapped, mapped_bytes, base, bytes };
        let wish = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: the range is ours. A system without huge pages refuses, and base pages do as
        // well.
        let _ = unsafe { madvise(base.as_ptr().cast::<c_void>(), bytes, wish) };
        // A child of this process has no business here, and forking for a comparison must not pay
        // for our frames. SAFETY: as above; a system that knows no such advice ignores it.
        let _ = unsafe { madvise(base.as_ptr().cast::<c_void>(), bytes, Advice::LinuxDontFork) };
        Ok(memory)
    }
    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
    /// Usable length, a multiple of [`ALIGN`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// Bytes of it that are on huge pages of the host, if the system tells.
    pub fn huge_bytes(&self) -> Option<u64> {
        let from = self.mapped.as_ptr() as u64;
        crate::bench::measure::conditions::huge_bytes(from..from + self.mapped_bytes as u64)
    }
    /// Touches every page, so that no later access pays for the host's fault. What others store
    /// there meanwhile stays.
    pub fn warm(&self) {
        for at in (0..self.bytes).step_by(4096) {
            // SAFETY: inside the mapping, and aligned as the page is.
            let word = unsafe { self.base.add(at).cast::<AtomicU64>().as_ref() };
            // A zero that compilers see they may drop, and the store with it.
            word.fetch_or(black_box(0), Ordering::Relaxed);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and the borrow checker saw the last user go.
        let unmapped = unsafe { munmap(self.mapped.as_ptr().cast::<c_void>(), self.mapped_bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own cannot be refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measure::conditions::host_faults;

    #[test]
    fn memory_is_aligned_zero_and_as_long_as_asked() {
        let m = Memory::new(3 << 20, true).unwrap();
        assert_eq!(m.base().as_ptr() as usize % ALIGN, 0);
        assert_eq!(m.bytes(), 4 << 20);
        m.warm();
        for at in [0, 4096, m.bytes() - 1] {
            // SAFETY: inside the mapping.
            assert_eq!(unsafe { m.base().add(at).read() }, 0);
        }
    }

    #[test]
    fn warm_memory_costs_no_faults_and_keeps_what_is_stored_meanwhile() {
        let m = Memory::new(ALIGN, false).unwrap();
        let (base, over) = (m.base(), AtomicU64::new(0));
        // SAFETY: inside the mapping, and aligned.
        let word = |at: usize| unsafe { base.add(at).cast::<AtomicU64>().as_ref() };
        m.warm();
        let before = host_faults();
        (0..ALIGN).step_by(4096).for_each(|at| word(at).store(1, Ordering::Relaxed));
        let faults = host_faults() - before;
        assert!(faults < 64, "{faults} faults in 512 pages that are warm");
        std::thread::scope(|s| {
            s.spawn(|| {
                while over.load(Ordering::Relaxed) == 0 {
                    m.warm();
                }
            });
            let pages = || (0..ALIGN).step_by(4096);
            let lost = (2..20_000).find(|&n| {
                pages().for_each(|at| word(at).store(n, Ordering::Relaxed));
                !pages().all(|at| word(at).load(Ordering::Relaxed) == n)
            });
            over.store(1, Ordering::Relaxed);
            assert_eq!(lost, None, "a store of that round was lost");
        });
    }

    #[test]
    fn memory_beyond_the_address_space_is_refused_not_wrapped() {
        assert!(Memory::new(usize::MAX, false).is_err());
        assert!(Memory::new(usize::MAX - ALIGN, false).is_err());
    }
}
