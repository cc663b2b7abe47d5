//! Vellum against a naive model.
//!
//! [`command`] draws an operation of the one table (`vellum_host::stress::ops`) with all its
//! arguments from a [`source`]: a seed, or a fuzzer's bytes. [`play`] does it on a [`small`]
//! machine and on the [`model`], and stops at the first difference; [`setting`] says on which of
//! the machines and with which switches; [`replay`] finds the shortest list of commands that still
//! differs. The concurrent stress of `vellum-host` draws from the same table. [`explore`] is about
//! few operations of several CPUs, interleaved in every way.

pub mod command;
pub mod explore;
pub mod matrix;
pub mod model;
pub mod play;
pub mod replay;
pub mod setting;
pub mod small;
pub mod source;
