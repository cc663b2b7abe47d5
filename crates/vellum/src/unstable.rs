//! The parts below the verbs that tests, benches and tools of this project use directly.
//!
//! Nothing here is covered by the version of the crate: any release may change it or take it away.
//! An embedder needs it in two cases only: to take frames for itself ([`Frames`], by
//! [`Vm::frames`](crate::Vm::frames)), and to clear or copy them ([`Extent`], for
//! [`Vm::clear_extent`](crate::Vm::clear_extent)).
//!
//! Who uses what:
//! - frames, to take and to count them: the tests, `vellum-host`, `vellum-sim`, `vellum-proof`
//! - locks, lock order, sequence counts and epochs: the tests and the compile-fail examples
//! - runs to be cleared: the tests and the benches of `vellum-host`
//! - tries and cursors: the tests and the bench of `vellum-host`
//! - colours: the tests and `vellum-lab`
//!
//! `vellum-loom` compiles the library's sources into itself and uses nothing of this module.

pub use crate::clear::Extent;
pub use crate::config::MAX_COLOURS;
pub use crate::frame::{AllocRequest, FrameCounts, Frames, Mark, Record, Watermarks};
pub use crate::object::{
    INDEX_END, InsertError, NodeReserve, PageMark, Shape, Trie, TrieCursor, TrieEntry, TrieGuard,
    TriePlace, TrieReader, TrieToken, Tries,
};
pub use crate::sync::{
    Above, Busy, EpochGuard, Epochs, Guard, Lock, LockLevel, Object, Queue, SeqCount, SeqWrite,
    TableLock, Token, Top,
};
pub use crate::zero::page::colours_of;
