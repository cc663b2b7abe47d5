//! Processor instructions that Rust has no function for. Each is safe to call in this kernel except
//! where it says otherwise.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _mm_sfence, _rdtsc};

use vellum::machine::{Caches, cpuid};

pub fn outb(port: u16, value: u8) {
    // SAFETY: the ports written here (serial, debug exit) touch no memory.
    unsafe {
        asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags))
    }
}

pub fn inb(port: u16) -> u8 {
    let value;
    // SAFETY: as in `outb`.
    unsafe {
        asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags))
    }
    value
}

/// Ends the virtual machine; its exit status is `value * 2 + 1`.
pub fn exit(value: u8) -> ! {
    outb(0xf4, value);
    loop {
        // SAFETY: halting with interrupts off stops the CPU, which is what is left without the exit
        // device.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) }
    }
}

pub fn cycles() -> u64 {
    // SAFETY: reads a counter; every 64-bit processor has it.
    unsafe { _rdtsc() }
}

/// Whether leaves of 1 GiB exist (CPUID 8000_0001, EDX bit 26).
pub fn has_giant_pages() -> bool {
    __cpuid(0x8000_0000).eax >= 0x8000_0001 && __cpuid(0x8000_0001).edx & 1 << 26 != 0
}

/// The data caches, as the processor describes them.
pub fn caches() -> Caches {
    cpuid::caches(|leaf, subleaf| {
        let r = __cpuid_count(leaf, subleaf);
        [r.eax, r.ebx, r.ecx, r.edx]
    })
}

/// The address whose access faulted last.
pub fn fault_address() -> u64 {
    let value;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) value, options(nomem, nostack, preserves_flags)) }
    value
}

/// The physical address of the root node in force.
pub fn root() -> u64 {
    let value: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nomem, nostack, preserves_flags)) }
    value & !0xfff
}

/// Runs on another root; drops every translation.
///
/// # Safety
/// The root's upper half maps the kernel as the present one does.
pub unsafe fn set_root(physical: u64) {
    // SAFETY: the caller's promise: code, stack and data stay where they are.
    unsafe { asm!("mov cr3, {}", in(reg) physical, options(nostack, preserves_flags)) }
}

/// Drops the translation of one address, and every cached step of walks.
pub fn invlpg(address: u64) {
    // SAFETY: forgetting a translation is always allowed. Not `nomem`: stores before it must not
    // move behind it.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) }
}

/// Zeroes `words` words of 8 bytes with non-temporal stores; [`fence`] orders them. By stores of
/// general registers: those of vectors are the program's here, and write-combining makes lines of
/// either.
///
/// # Safety
/// As [`zero`]; `words` is a multiple of 8.
pub unsafe fn zero_non_temporal(start: *mut u64, words: usize) {
    debug_assert!(words.is_multiple_of(8));
    for line in (0..words).step_by(8) {
        // SAFETY: the caller's promise; eight words from a multiple of eight are inside.
        unsafe {
            asm!(
                "movnti [{at}], {zero}", "movnti [{at} + 8], {zero}",
                "movnti [{at} + 16], {zero}", "movnti [{at} + 24], {zero}",
                "movnti [{at} + 32], {zero}", "movnti [{at} + 40], {zero}",
                "movnti [{at} + 48], {zero}", "movnti [{at} + 56], {zero}",
                at = in(reg) start.add(line),
                zero = in(reg) 0u64,
                options(nostack, preserves_flags)
            )
        }
    }
}

/// Orders non-temporal stores before later stores.
pub fn fence() {
    // SAFETY: every 64-bit processor has it, and a fence touches nothing.
    unsafe { _mm_sfence() }
}

/// Zeroes `words` words of 8 bytes.
///
/// # Safety
/// They are the caller's to write, and nothing refers to what was in them.
pub unsafe fn zero(start: *mut u64, words: usize) {
    // SAFETY: the caller's promise; the direction flag is clear by convention.
    unsafe {
        asm!(
            "rep stosq",
            inout("rcx") words => _,
            inout("rdi") start => _,
            in("rax") 0u64,
            options(nostack, preserves_flags)
        )
    }
}
