//! Verbs on real threads: the host's memory model against the library's protocols.
//!
//! The flat machine has no TLB, so this says nothing about flushes; it does say whether pages are
//! lost, shared by mistake, or seen with foreign contents, and whether anything hangs.

mod faults;
mod huge_zero;
mod spaces;
mod tries;
