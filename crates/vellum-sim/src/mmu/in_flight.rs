//! A speculative walk between two of its steps.

use crate::tlb::{Entry, Flags};

/// A walk under way.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub cpu: usize,
    pub root: u32,
    pub ctx: u16,
    /// First address below what was read so far.
    pub va: u64,
    /// Physical address of the node to be read next, and its level; level 0: a leaf was read and
    /// only the fill is missing.
    pub table: u64,
    pub level: u8,
    pub limits: Flags,
    /// Entries read so far.
    pub sources: [u64; 5],
    pub read: usize,
    /// One of them has changed since.
    pub stale: bool,
    pub leaf: Option<Entry>,
}
