//! Packed words and counters, for tests that make them wrong on purpose.

use crate::addr::Order;
use crate::frame::block::state::{self, huge_state};
use crate::frame::frames::Frames;
use crate::frame::node::numa_node::NumaNode;
use crate::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

/// Those of a node and of one CPU's magazine for it.
pub(crate) struct RawState<'a> {
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

impl<'a> RawState<'a> {
    /// In the state of a block that somebody has locked.
    pub const LOCKED: u32 = state::LOCKED;

    /// The state of a block.
    pub fn state(&self, block: usize) -> &'a AtomicU32 {
        self.node.blocks.state(block)
    }

    /// The most that a magazine's count may be off.
    pub fn slack(&self) -> i64 {
        self.node.slack
    }

    /// The state of a huge block's first block.
    pub fn huge_state(order: u8) -> u32 {
        Order::new(order).map_or(0, huge_state)
    }
}

impl Frames {
    /// Those of a node and a CPU.
    pub(crate) fn raw(&self, node: usize, cpu: usize) -> RawState<'_> {
        let (magazine, node) = (self.magazine(cpu, node), self.node(node));
        let counters = node.counters();
        RawState {
            node,
            free: &counters.free,
            defer: &counters.defer,
            defer_shift: &counters.defer_shift,
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
