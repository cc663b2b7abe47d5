//! The state word of a 2 MiB block.
//!
//! ```text
//!   Free --open--> Open, locked <---> Open --last frame freed--> Free
//!    |  ^                              ^
//!    v  | free                         |
//!   huge head, huge tail ----split-----+
//! ```
//!
//! A *free* block and the blocks of a *huge* allocation are taken whole: the taker sets the busy
//! bit first (`huge`), then it owns the state. Their frame bits are all clear. An *open* block is
//! split into sub-blocks: its frame bits say which frames are taken, and the holder of the block's
//! lock changes them (`lock`).

use crate::addr::Order;
use crate::frame::block::bits::{BLOCK, ROWS};

/// The bits of a state that say which kind it is.
pub const KIND: u32 = 7;
/// All 512 frames free, bits clear.
pub const FREE: u32 = 0;
/// Split into sub-blocks; the bits say which frames are taken.
pub const OPEN: u32 = 1;
/// First block of an allocation of 2 MiB or more; the state has its order.
pub const HUGE_HEAD: u32 = 2;
/// A further block of one.
pub const HUGE_TAIL: u32 = 3;
/// Reserved before first use.
pub const HOLE: u32 = 4;

/// Of an open block: a CPU takes its small frames here.
pub const CLAIMED: u32 = 1 << 3;
/// Of an open block: somebody changes its bits.
pub const LOCKED: u32 = 1 << 4;
/// Of an open block: frames were freed that neither the free index nor the counts know.
pub const DIRTY: u32 = 1 << 5;
/// The order of a huge block. Of an open one: the rows of the free index in which it may have a
/// run, at least those in which it has one unless it is dirty.
pub const ORDER_SHIFT: u32 = 8;
/// Frames that were freed and are not counted yet, up to the top of the word.
const UNCOUNTED_SHIFT: u32 = 18;
/// One of them.
pub const ONE_UNCOUNTED: u32 = 1 << UNCOUNTED_SHIFT;
/// Their greatest number: every frame of the block, once. Whoever takes frames of a block first
/// counts those that were freed to it (`Locked::count_freed`), so no frame is freed twice between.
pub const MOST_UNCOUNTED: u32 = 1 << BLOCK;
/// All rows of an open block.
pub const ALL_ROWS: u32 = (1 << ROWS) - 1;
/// Bits of an open state without a meaning.
const UNUSED: u32 =
    !(KIND | CLAIMED | LOCKED | DIRTY | ALL_ROWS << ORDER_SHIFT | !0 << UNCOUNTED_SHIFT);

const _: () = assert!(
    ORDER_SHIFT + ROWS as u32 <= UNCOUNTED_SHIFT && MOST_UNCOUNTED <= u32::MAX >> UNCOUNTED_SHIFT
);

/// The state of the first block of an allocation of `order`.
#[inline]
pub const fn huge_state(order: Order) -> u32 {
    HUGE_HEAD | (order.get() as u32) << ORDER_SHIFT
}

/// The order that such a state has.
#[inline]
pub const fn huge_order(state: u32) -> u32 {
    state >> ORDER_SHIFT
}

/// Whether a state has only bits that its kind uses, and an order that a huge block can have.
pub const fn is_in_bounds(state: u32) -> bool {
    match state & KIND {
        OPEN => state & UNUSED == 0,
        HUGE_HEAD => {
            let order = huge_order(state);
            state == HUGE_HEAD | order << ORDER_SHIFT
                && order >= BLOCK
                && order <= Order::GIANT.get() as u32
        }
        kind => state == kind && kind <= HOLE,
    }
}

/// The rows in which an open block may have a run.
#[inline]
pub const fn rows(state: u32) -> u32 {
    state >> ORDER_SHIFT & ALL_ROWS
}

/// Frames of an open block that were freed and are not counted yet.
#[inline]
pub const fn uncounted(state: u32) -> u32 {
    state >> UNCOUNTED_SHIFT
}
