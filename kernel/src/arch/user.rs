//! Access to user memory from the kernel: each access names where to go on if its fault is refused.
//!
//! The instruction and its fixup are listed in section `.fixup`; the trap handler looks the
//! faulting instruction up there. Rejected: checking the page table first. Another CPU can change
//! it before the access.

use core::arch::asm;

/// The instruction that may fault, and where it continues if it does, with the reason in `rax`.
#[repr(C)]
struct Entry {
    at: u64,
    fixup: u64,
}

/// Where to go on after the instruction at `rip` faulted in vain.
pub fn fixup(rip: u64) -> Option<u64> {
    unsafe extern "C" {
        static fixup_start: Entry;
        static fixup_end: Entry;
    }
    let (start, end) = (&raw const fixup_start, &raw const fixup_end);
    // SAFETY: the linker script puts both around the array of entries.
    let entries = unsafe { core::slice::from_raw_parts(start, end.offset_from_unsigned(start)) };
    entries.iter().find(|e| e.at == rip).map(|e| e.fixup)
}

fn result<T>(value: T, why: u64) -> Result<T, u64> {
    if why == 0 { Ok(value) } else { Err(why) }
}

/// Loads 8 bytes; the error is what [`crate::fault`] gave as reason.
pub fn load(address: u64) -> Result<u64, u64> {
    let (value, why): (u64, u64);
    // SAFETY: a fault either makes the page present or resumes at the fixup; Rust knows of no
    // object in the user half.
    unsafe {
        asm!(
            "2: mov {value}, [{address}]",
            "3:",
            ".pushsection .fixup, \"a\"",
            ".quad 2b, 3b",
            ".popsection",
            value = inout(reg) 0u64 => value,
            address = in(reg) address,
            inout("rax") 0u64 => why,
            options(nostack, preserves_flags)
        )
    }
    result(value, why)
}

/// Stores 8 bytes.
pub fn store(address: u64, value: u64) -> Result<(), u64> {
    let why: u64;
    // SAFETY: as in `load`.
    unsafe {
        asm!(
            "2: mov [{address}], {value}",
            "3:",
            ".pushsection .fixup, \"a\"",
            ".quad 2b, 3b",
            ".popsection",
            value = in(reg) value,
            address = in(reg) address,
            inout("rax") 0u64 => why,
            options(nostack, preserves_flags)
        )
    }
    result((), why)
}

/// Calls code there.
///
/// # Safety
/// If a page can be fetched from, it holds a function that keeps the C convention and leaves 0 in
/// `rax`.
pub unsafe fn call(address: u64) -> Result<(), u64> {
    let why: u64;
    // SAFETY: the caller's promise; a refused fetch returns to the fixup with the stack as it was.
    unsafe {
        asm!(
            "call {address}",
            "2:",
            ".pushsection .fixup, \"a\"",
            ".quad 2b, 2b",
            ".popsection",
            address = in(reg) address,
            inout("rax") 0u64 => why,
            clobber_abi("C")
        )
    }
    result((), why)
}
