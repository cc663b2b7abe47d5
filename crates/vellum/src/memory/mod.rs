//! Frames on a machine: taking them, giving them back, and what is done when there are none.

mod pool;
pub(crate) mod retry;

use crate::addr::{Order, Pfn};
use crate::frame::Frames;
use crate::machine::Machine;
use crate::memory::pool::Pools;
use crate::platform::{Platform, above};
use crate::sync::{Epochs, Hands};

/// The layer that has the frames.
pub(crate) struct Memory<M: Machine> {
    platform: Platform<M>,
    pub frames: Frames,
    pub epochs: Epochs,
    /// Who has memory in hand that may come back, but for faults inside an epoch.
    pub hands: Hands,
    /// Large blocks reserved for mappings of one leaf size.
    pools: Pools,
}

above!(Memory, platform: Platform);

impl<M: Machine> Memory<M> {
    pub fn new(platform: Platform<M>, frames: Frames, epochs: Epochs, hands: Hands) -> Memory<M> {
        Memory { platform, frames, epochs, hands, pools: Pools::new() }
    }

    /// Gives back a block that was taken and nobody saw. The caller is in an epoch, or its memory
    /// is in hand.
    #[cold]
    #[inline(never)]
    pub fn untake(&self, pfn: Pfn, order: Order) {
        self.frames.give_back(&self.machine, pfn, order);
        self.hands.untook(&self.machine, order.frames());
    }
}
