//! What the tests of the `vellum` crates share.
//!
//! [`flat`] is a machine without TLBs that runs on real threads, and says what a thread does
//! between two steps of an operation; [`probe`] is a machine over it that records what it is asked
//! to do. [`fixture`] has a `Vm`, or the frame allocator alone, over such a machine, and [`state`]
//! everything there is to see of it. [`interleave`] puts an act of another CPU between any two
//! steps of an operation. [`sources`] are for tests that hold the sources to a rule. [`ext`] calls
//! the library's unsafe functions by safe names, since a test holds what it names.
//!
//! The unit tests of `vellum` are linked with another copy of the library than this crate is, so
//! they include these sources by path: modules here name each other by `super`.
#![allow(missing_docs, dead_code, unused_imports)]

pub mod ext;
pub mod fixture;
pub mod flat;
pub mod index;
pub mod interleave;
pub mod prelude;
pub mod probe;
pub mod random;
pub mod sources;
pub mod state;
