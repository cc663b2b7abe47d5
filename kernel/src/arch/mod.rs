//! The processor: registers, ports, traps, and access to user memory. Nothing here uses the
//! library.

pub mod cpu;
pub mod serial;
pub mod traps;
pub mod user;

/// Where all physical memory is seen.
pub const PHYSMAP: u64 = 0xffff_8000_0000_0000;
/// First address past the user half.
pub const USER_END: u64 = 0x8000_0000_0000;
