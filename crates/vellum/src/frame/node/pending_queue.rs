//! A memory node's queue of frames that wait for a flush.

use crate::sync::atomic::AtomicU64;
use crate::sync::{Lock, Queue};

/// The queue. Its blocks are linked through their records.
#[repr(C, align(64))]
pub struct PendingQueue {
    pub lock: Lock<Queue>,
    /// First and last block: frame numbers + 1, 0 for none. Guarded by `lock`.
    pub head: AtomicU64,
    pub tail: AtomicU64,
    /// Base frames in the queue. Written under `lock`, read by anyone.
    pub frames: AtomicU64,
}
