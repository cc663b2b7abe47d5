//! Making the shared zeros, with the first space.
//!
//! Each node with CPUs gets a block of one frame per colour; where that is one frame everywhere,
//! one frame serves the whole machine. A block is halved until memory has a run that long.

use crate::addr::{Order, Pfn};
use crate::config::NumaPolicy;
use crate::error::NoMemory;
use crate::frame::AllocRequest;
use crate::machine::{Act, MAX_NODES, Machine, Use};
use crate::platform::over;
use crate::sync;
use crate::sync::atomic::Ordering;
use crate::zero::Zero;
use crate::zero::page::{Block, MAKING, OWN, SHARED, UNMADE, wanted};

pub(crate) struct MakeZeros<'v, M: Machine>(pub &'v Zero<M>);

over!(MakeZeros, Zero);

impl<M: Machine> MakeZeros<'_, M> {
    /// Makes the zeros if they are wanted and there are none.
    #[inline]
    pub fn make_zeros(self) -> Result<(), NoMemory> {
        if !self.config.zero_page || self.zeros.state.load(Ordering::Acquire) > MAKING {
            return Ok(());
        }
        self.make_first_zeros()
    }

    #[cold]
    fn make_first_zeros(self) -> Result<(), NoMemory> {
        let state = &self.zeros.state;
        loop {
            sync::touch(&self.machine, state, true);
            match state.compare_exchange(UNMADE, MAKING, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    let made = self.make_blocks();
                    state.store(made.unwrap_or(UNMADE), Ordering::Release);
                    return made.map(|_| ());
                }
                Err(MAKING) => self.machine.relax(),
                Err(_) => return Ok(()),
            }
        }
    }

    /// Makes the blocks that are missing, and says what they are: [`SHARED`] or [`OWN`].
    fn make_blocks(self) -> Result<u64, NoMemory> {
        let topology = self.machine.topology();
        let mut cpus = [false; MAX_NODES];
        topology.cpu_node[..topology.cpus].iter().for_each(|&node| cpus[node as usize] = true);
        let nodes = || (0..topology.nodes).filter(|&node| cpus[node]);
        let order = |node: usize| self.colour_order(topology.node[node].frames);
        if nodes().count() > 1 && nodes().any(|node| order(node) != Order::BASE) {
            // All of them, or none.
            let mut taken = [None; MAX_NODES];
            for node in nodes() {
                taken[node] = match self.take_zeros(node, order(node)) {
                    Ok(block) => Some(block),
                    Err(error) => {
                        taken.into_iter().flatten().for_each(|(first, order)| {
                            self.frames.give_back(&self.machine, first, order)
                        });
                        return Err(error);
                    }
                };
            }
            taken
                .into_iter()
                .enumerate()
                .filter_map(|(node, block)| Some((node, block?)))
                .for_each(|(node, block)| self.show_zeros(node, block));
            return Ok(OWN);
        }
        let here = self.frames.home(self.machine.cpu());
        self.show_zeros(0, self.take_zeros(here, order(here))?);
        if let (first, 1) = self.zeros.block(0).range() {
            self.zeros.only.store(first.0 + 1, Ordering::Relaxed);
        }
        Ok(SHARED)
    }

    /// A block for zeros from memory of `node`: as long as `order` says if there is a run that
    /// long, else half as long, down to one frame, which may come from any node.
    fn take_zeros(self, node: usize, order: Order) -> Result<(Pfn, Order), NoMemory> {
        let mut order = order;
        loop {
            let near = node as u8;
            let policy = if order == Order::BASE {
                NumaPolicy::Prefer(near)
            } else {
                NumaPolicy::Bind(near)
            };
            match self.frames.alloc(
                &self.machine,
                order,
                &AllocRequest { policy, ..AllocRequest::kernel(Use::Zero) },
            ) {
                Ok(first) => return Ok((first, order)),
                Err(error) => {
                    order = order.get().checked_sub(1).and_then(Order::new).ok_or(error)?
                }
            }
        }
    }

    /// Makes zeros of a block and puts it in `slot`.
    fn show_zeros(self, slot: usize, (first, order): (Pfn, Order)) {
        let m = &self.machine;
        // Half a megabyte at most, once, before there is anyone to wait: no portions, no scheduling
        // points.
        m.clear_frames(first, order.frames());
        for i in 0..order.frames() {
            self.frames.record(first.add(i)).init(Use::Zero, Order::BASE);
        }
        self.zeros.set(slot, Block { first, mask: order.frames() - 1 });
    }

    fn colour_order(self, frames: u64) -> Order {
        wanted(self.config.zero_colours, &self.machine.caches(), frames)
    }
}
