//! The interrupt descriptor table and the one Rust function that handles all exceptions.
//!
//! The entry code is our own, because the compiler's interrupt calling convention is not stable.
//! Page faults on user addresses go to [`crate::fault`]. Any other exception is a bug of ours: it
//! is printed, and the machine ends with a status of its own.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

use super::{USER_END, cpu, user};
use crate::println;

global_asm!(include_str!("traps.s"), options(att_syntax));

/// Exit value of a trap nobody wanted (status 37).
const EXIT_TRAP: u8 = 0x12;
const PAGE_FAULT: u64 = 14;
const FETCH: u64 = 1 << 4;

/// The registers at the trap, as `traps.s` and the processor pushed them.
#[repr(C)]
#[derive(Debug)]
pub struct Frame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rax: u64,
    pub vector: u64,
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub flags: u64,
    pub rsp: u64,
    pub ss: u64,
}

#[repr(C, align(16))]
struct Table(UnsafeCell<[[u64; 2]; 32]>);
// SAFETY: written once, by the only CPU, before it is loaded.
unsafe impl Sync for Table {}
static TABLE: Table = Table(UnsafeCell::new([[0; 2]; 32]));

/// Fills the table and loads it.
pub fn init() {
    unsafe extern "C" {
        fn trap_entries();
    }
    let gate =
        |at: u64| [at & 0xffff | 8 << 16 | 0x8e00 << 32 | (at >> 16 & 0xffff) << 48, at >> 32];
    let gates =
        core::array::from_fn(|vector| gate(trap_entries as *const () as u64 + 16 * vector as u64));
    // SAFETY: nothing else refers to the table yet.
    unsafe { *TABLE.0.get() = gates };
    #[repr(C, packed(2))]
    struct Pointer {
        limit: u16,
        base: u64,
    }
    let pointer = Pointer { limit: size_of::<Table>() as u16 - 1, base: TABLE.0.get() as u64 };
    // SAFETY: the table is complete and lives for ever; the processor copies the pointer.
    unsafe { asm!("lidt [{}]", in(reg) &pointer, options(nostack, preserves_flags)) }
}

#[unsafe(no_mangle)]
extern "C" fn trap(frame: &mut Frame) {
    let address = cpu::fault_address();
    if frame.vector == PAGE_FAULT && address < USER_END {
        let Err(why) = crate::fault::user_fault(address, frame.error) else { return };
        // A refused access of ours resumes at its fixup with the reason in rax. A refused fetch was
        // a call: the place that called is on the stack.
        if let Some(fixup) = user::fixup(frame.rip) {
            (frame.rip, frame.rax) = (fixup, why);
            return;
        }
        if frame.error & FETCH != 0 {
            // SAFETY: the kernel jumps into user memory only by a call, so its stack top is the
            // return address.
            let back = unsafe { *(frame.rsp as *const u64) };
            if let Some(fixup) = user::fixup(back) {
                (frame.rip, frame.rax, frame.rsp) = (fixup, why, frame.rsp + 8);
                return;
            }
        }
    }
    println!(
        "not ok - trap {} at {:#x}, error {:#x}, address {address:#x}",
        frame.vector, frame.rip, frame.error
    );
    println!("# {frame:x?}");
    cpu::exit(EXIT_TRAP)
}
