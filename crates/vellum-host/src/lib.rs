//! Threads as CPUs over real memory.
//!
//! [`machine::Host`] implements `vellum::machine::Machine` on the computer it runs on. Frames are
//! bytes of one mapping. A CPU is the thread that holds its [`machine::CpuGuard`]. Time is the
//! time-stamp counter. An interrupt is a flag that its target polls at every machine call. Each CPU
//! has a software TLB and walk cache that invalidate nothing by themselves, so that a flush that
//! the library forgot shows as wrong bytes.
//!
//! The simulator explores schedules one at a time and proves more of each. This machine runs on the
//! memory model of real cores, some million operations a second, and finds other bugs.
//!
//! [`files`] maps real files. [`stress`] is the concurrent test on it, [`bench`](mod@bench) the
//! native benchmarks, [`mod@calibrate`] measures this computer for a machine file.

pub mod bench;
pub mod calibrate;
pub mod files;
pub mod host_vm;
pub mod machine;
pub mod memory;
pub mod mmu;
pub mod rng;
pub mod stores;
pub mod stress;
