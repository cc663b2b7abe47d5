//! Threads as CPUs over real memory.
//!
//! [`machine::Host`] implements `vellum::machine::Machine` on the computer it runs on: frames are
//! bytes of one mapping, a CPU is the thread that holds its [`machine::CpuGuard`], time is the
//! time-stamp counter, and an interrupt is a flag which its target polls at every machine call.
//! Each CPU has a software TLB and walk cache that are as lazy as real ones, so that a flush
//! forgotten by the library shows here as wrong bytes. The simulator explores schedules one at a
//! time and proves more of each; this machine runs the real memory model of real cores, some
//! million operations a second, and that finds other bugs.
//!
//! [`stress`] is the concurrent test on it, [`bench`](mod@bench) the native benchmarks.

pub mod bench;
pub mod host_vm;
pub mod machine;
pub mod memory;
pub mod mmu;
pub mod rng;
pub mod stores;
pub mod stress;
