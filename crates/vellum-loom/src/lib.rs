//! The library's own sources under loom, which tries every execution that the C11 memory model
//! allows.
//!
//! The files of `vellum` are compiled here a second time, over atomics that are loom's in a race
//! (`atomic`). The library takes its atomics from `sync::atomic` only, and only that module differs
//! here. A model is a fixture, two threads that race over it, and a check (`fixture`). Models stay
//! small, since the number of executions grows fast.
//!
//! Not covered: a load that returns a store that is later in its own thread's order (load
//! buffering). loom bounds preemptions, and its sequentially consistent fences order more than the
//! memory model says. `vellum-proof` explores larger scripts, sequentially consistent.

#![cfg(test)]

mod atomic;
mod epochs;
mod fixture;
mod flushes;
mod frames;
mod hands;
mod locks;
mod machines;
mod objects;
mod tries;
mod verbs;
mod zeros;

/// The library's modules, but for its atomics.
#[allow(dead_code, unused_imports, missing_docs)]
#[path = "../../vellum/src"]
mod library {
    pub mod addr;
    pub mod clear;
    pub mod config;
    pub mod entry;
    pub mod error;
    pub mod fault;
    pub mod frame;
    pub mod machine;
    pub mod memory;
    pub mod object;
    pub mod ops;
    pub mod pagetable;
    pub mod platform;
    pub mod rmap;
    pub mod space;
    pub mod stats;
    pub mod tlb;
    pub mod vm;
    pub mod vma;
    pub mod zero;

    /// Stands for `sync/mod.rs`.
    pub mod sync {
        mod epoch;
        mod hands;
        mod level;
        mod lines;
        mod lock;
        mod seq;

        pub(crate) use crate::atomic;
        pub use epoch::{EpochGuard, Epochs};
        pub(crate) use hands::{Hands, Stay, Turn};
        pub use level::{
            Above, Attachments, Busy, Family, Inner, LockLevel, MmapLock, Object, Queue, TableLock,
            Token, Top,
        };
        pub use lock::{Guard, Lock};
        pub use seq::{SeqCount, SeqWrite};

        /// loom schedules at every atomic by itself.
        pub(crate) fn touch<M, T>(_: &M, _: &T, _: bool) {}
        pub(crate) fn prefetch<T>(_: &T) {}
    }
}

// The library's files name each other from the crate's root.
#[allow(unused_imports)]
use library::{
    addr, clear, config, entry, error, fault, frame, machine, memory, object, ops, pagetable,
    platform, rmap, space, stats, sync, tlb, vm, vma, zero,
};
