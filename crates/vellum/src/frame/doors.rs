//! Packed words and counters, for tests that make them wrong on purpose.

use crate::addr::Order;
use crate::frame::block::lock::{self as block, huge_state};
use crate::frame::frames::Frames;
use crate::frame::node::numa_node::NumaNode;
use crate::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

/// What a node and one CPU's magazine for it keep.
pub(crate) struct Doors<'a> {
    node: &'a NumaNode,
    pub free: &'a AtomicI64,
    pub defer: &'a AtomicU32,
    pub defer_shift: &'a AtomicU32,
    /// Of the magazine.
    pub word: &'a AtomicU64,
    pub delta: &'a AtomicI64,
    pub filled: &'a AtomicU64,
    pub block_freed: &'a AtomicU64,
    pub kept: &'a AtomicU64,
    pub current: &'a AtomicU32,
    pub cursor: &'a AtomicU32,
    pub rows: &'a AtomicU32,
    pub lowest: &'a AtomicU32,
}

impl<'a> Doors<'a> {
    /// In the state of a block that somebody has.
    pub const LOCKED: u32 = block::LOCKED;

    /// The state of a block.
    pub fn state(&self, block: usize) -> &'a AtomicU32 {
        self.node.state(block)
    }

    /// What a CPU may keep uncounted.
    pub fn slack(&self) -> i64 {
        self.node.slack
    }

    /// The state of a large block's first block.
    pub fn huge_state(order: u8) -> u32 {
        Order::new(order).map_or(0, huge_state)
    }
}

impl Frames {
    /// Those of a node and a CPU.
    pub(crate) fn doors(&self, node: usize, cpu: usize) -> Doors<'_> {
        let (magazine, node) = (self.magazine(cpu, node), self.node(node));
        let shared = node.shared();
        Doors {
            node,
            free: &shared.free,
            defer: &shared.defer,
            defer_shift: &shared.defer_shift,
            word: &magazine.word,
            delta: &magazine.delta,
            filled: &magazine.filled,
            block_freed: &magazine.block_freed,
            kept: &magazine.buddy.lens,
            current: &magazine.current,
            cursor: &magazine.huge_cursor,
            rows: &magazine.rows,
            lowest: &magazine.stack[0],
        }
    }
}
