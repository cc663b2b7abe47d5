//! A deterministic machine for vellum: CPUs, TLBs, walk caches, caches, NUMA memory, interrupts, a
//! clock, and an oracle that stops the run at the first violation.
//!
//! [`SimMachine`] implements the library's [`Machine`](vellum::machine::Machine). It is built from
//! a machine file ([`mod@file`]), runs closures as CPUs ([`SimMachine::run`]) and gives counters
//! ([`Counters`]). Same seed, same bytes out.
//!
//! Rooms: [`cpu`] accesses and accounts; [`mmu`] entry formats, walks, speculation; [`tlb`],
//! [`cache`], [`memory`] the hardware models; [`machine`] the value and its `impl Machine`;
//! [`schedule`] who runs next; [`oracle`] the rules; `contents` what is in frames; [`disk`] what is
//! in files; [`mod@file`] machine files and presets.
#![deny(missing_docs)]

pub mod cache;
mod contents;
pub mod cpu;
pub mod disk;
pub mod file;
pub mod machine;
pub mod memory;
pub mod mmu;
pub mod oracle;
pub mod schedule;
pub mod tlb;

pub use cpu::{Account, Begun, Counters, Cpu, Kind, PageFault, Program, Seen};
pub use machine::fills::FillNote;
pub use machine::parts::{Costs, Mmu, Parts};
pub use machine::{BuildError, Check, Meta, Mode, Options, SimMachine};
pub use mmu::format;
pub use oracle::{Bug, Rule, Stop};
pub use schedule::{Outcome, Run};
