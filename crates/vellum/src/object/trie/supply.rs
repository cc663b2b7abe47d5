//! Memory for nodes: taken while the guard is held, or before.
//!
//! The allocator waits for nobody that could wait for a guard, so an insertion may take its node
//! under the guard. Who wants to allocate before fills a [`NodeReserve`].

use super::node::Node;
use super::word::Word;
use crate::addr::{Order, PAGE_SIZE, Pfn};
use crate::error::NoMemory;
use crate::frame::{AllocRequest, SlabRef};
use crate::machine::{Machine, Use};
use crate::object::layer::ObjectLayer;
use crate::sync::atomic::Ordering;
use crate::sync::{Above, Queue, Token};

/// Small nodes that one insertion needs at most: where two indices part, and one for each of them
/// whose leaf has no room for the bits below.
const MOST_SMALL: usize = 3;

/// Memory for the nodes of one insertion, taken while no guard is held.
pub struct NodeReserve<'v, M: Machine> {
    objects: &'v ObjectLayer<M>,
    pub(in super::super) stock: Stock,
}

/// Addresses of zeroed memory.
#[derive(Default)]
pub(in super::super) struct Stock {
    small: [Option<u64>; MOST_SMALL],
    large: Option<u64>,
}

impl<'v, M: Machine> NodeReserve<'v, M> {
    pub(in super::super) fn new(objects: &'v ObjectLayer<M>) -> Self {
        NodeReserve { objects, stock: Stock::default() }
    }

    /// Takes what is missing.
    ///
    /// # Errors
    /// There is not memory enough for the small nodes of any insertion. What was taken is kept. A
    /// large node that cannot be had is no error: small ones do.
    pub fn fill<H: Above<Queue>>(&mut self, token: &mut Token<H>) -> Result<(), NoMemory> {
        for place in self.stock.small.iter_mut().filter(|place| place.is_none()) {
            *place = Some(self.objects.take_small(token)?);
        }
        self.stock.large = self.stock.large.or_else(|| self.objects.take_large().ok());
        Ok(())
    }

    /// Takes the node with which a block is split, if it is missing.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn fill_to_split(&mut self) -> Result<(), NoMemory> {
        if self.stock.large.is_none() {
            self.stock.large = Some(self.objects.take_large()?);
        }
        Ok(())
    }
}

impl<M: Machine> Drop for NodeReserve<'_, M> {
    fn drop(&mut self) {
        let mut token = Token::top();
        for address in self.stock.small.iter().flatten() {
            self.objects.put_small(*address, &mut token);
        }
        if let Some(address) = self.stock.large {
            self.objects.put_large(address);
        }
    }
}

/// Where a change of a trie takes the memory for its nodes.
pub(in super::super) enum Supply<'s, 'v, M: Machine, H> {
    Now(&'v ObjectLayer<M>, &'s mut Token<H>),
    Before(&'s mut Stock),
}

impl<M: Machine, H: Above<Queue>> Supply<'_, '_, M, H> {
    /// Zeroed memory for a small node: its address.
    pub fn small(&mut self) -> Result<u64, NoMemory> {
        match self {
            Supply::Now(objects, token) => objects.take_small(token),
            Supply::Before(stock) => stock.small.iter_mut().find_map(Option::take).ok_or(NoMemory),
        }
    }

    /// The same for a large node.
    pub fn large(&mut self) -> Result<u64, NoMemory> {
        match self {
            Supply::Now(objects, _) => objects.take_large(),
            Supply::Before(stock) => stock.large.take().ok_or(NoMemory),
        }
    }

    /// Gives back what was not used.
    pub fn put_back(&mut self, address: u64) {
        match self {
            Supply::Now(objects, token) => objects.put_small(address, token),
            Supply::Before(stock) => {
                let place = stock.small.iter_mut().find(|place| place.is_none());
                debug_assert!(place.is_some(), "more came back than the reserve had");
                if let Some(place) = place {
                    *place = Some(address);
                }
            }
        }
    }

    /// As `put_back`, of a large node.
    pub fn put_back_large(&mut self, address: u64) {
        match self {
            Supply::Now(objects, _) => objects.put_large(address),
            Supply::Before(stock) => stock.large = Some(address),
        }
    }
}

impl<M: Machine> ObjectLayer<M> {
    fn take_small<H: Above<Queue>>(&self, token: &mut Token<H>) -> Result<u64, NoMemory> {
        let object = self.small.alloc(&self.machine, &self.frames, token)?;
        Ok(object.pfn().addr() + object.offset() as u64)
    }

    fn put_small<H: Above<Queue>>(&self, address: u64, token: &mut Token<H>) {
        let (page, offset) = (address / PAGE_SIZE as u64, address as usize % PAGE_SIZE);
        let object = SlabRef::new(Pfn(page), offset);
        self.small.free(&self.machine, &self.frames, token, object);
    }

    fn take_large(&self) -> Result<u64, NoMemory> {
        let request = AllocRequest::kernel(Use::Slab);
        let pfn = self.frames.alloc(&self.machine, Order::BASE, &request)?;
        self.frames.record(pfn).init(Use::Slab, Order::BASE);
        self.large.fetch_add(1, Ordering::Relaxed);
        let node = self.node(Word::node(pfn.addr(), true, 0, 0));
        node.slots_from(0).iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
        Ok(pfn.addr())
    }

    fn put_large(&self, address: u64) {
        self.large.fetch_sub(1, Ordering::Relaxed);
        self.frames.give_back(&self.machine, Pfn(address / PAGE_SIZE as u64), Order::BASE);
    }

    /// Frees a node that nobody can find and no reader is in.
    pub(in super::super) fn free_node<H: Above<Queue>>(
        &self,
        node: Node<'_>,
        token: &mut Token<H>,
    ) {
        if node.word.is_large() {
            self.put_large(node.word.address());
        } else {
            self.put_small(node.word.address(), token);
        }
    }
}
