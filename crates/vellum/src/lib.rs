//! Physical memory and address spaces, to put under a kernel, a unikernel or a hypervisor.
//!
//! You implement one trait, [`Machine`], with an empty `impl Hooks` beside it, hand in memory for
//! the metadata, and call the verbs of `Vm`: map, unmap, protect, remap, advise, fork, fault,
//! query, copy in and out. The library allocates nothing by itself, keeps no globals, and never
//! panics because memory ran out.
//!
//! Start at [`machine`] for what you provide, [`config`] for what can be switched, [`Vm`] for the
//! verbs.
#![cfg_attr(not(test), no_std)]

// What the tests share is written for users of the crate. As a crate it links another copy of this
// one, so unit tests include it as a module.
#[cfg(test)]
extern crate self as vellum;
#[cfg(test)]
#[path = "../../vellum-testkit/src/lib.rs"]
mod testkit;

pub mod addr;
pub mod config;
pub mod entry;
pub mod error;
pub mod machine;
pub mod space;
pub mod stats;
pub mod unstable;
pub mod vm;

mod clear;
mod fault;
mod frame;
mod memory;
mod object;
mod ops;
mod pagetable;
mod platform;
mod rmap;
mod sync;
mod tlb;
mod vma;
mod zero;

#[cfg(test)]
mod hand_tests;
#[cfg(doctest)]
mod misuse;
// Here and not in `frame`, whose files loom compiles without this crate's machine of the tests.
#[cfg(test)]
mod rmap_tests;
#[cfg(test)]
#[path = "frame/slab_tests.rs"]
mod slab_tests;
#[cfg(test)]
mod width_tests;

// What an embedder writes in every file.
pub use addr::{ENTRIES, Level, Order, PAGE_SIZE, Pfn, Va, VaRange};
pub use config::Config;
pub use entry::{Aarch64, CacheMode, Codec, NoZeroTables, X86_64};
pub use error::{FaultError, NoMemory, ObjectError, SpaceError};
pub use machine::{CpuId, CpuMask, Hooks, Machine, MmuRules, Root, Scope, Topology};
pub use machine::{PageAnswer, PageRun};
pub use space::{Access, Advice, Attrs, Fault, Page, Placement, Rights, Space};
pub use stats::Counter;
pub use vm::{DeviceMemory, GrabWait, Grabbed, Object, ObjectPart, ReadPattern, Vm};
