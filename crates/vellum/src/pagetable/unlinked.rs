//! Tables for one address, linked nowhere yet.
//!
//! A fault whose page lies more than one level below the entry it found makes every table on the
//! way, puts the page into the lowest and links the uppermost, with one store. So it takes all it
//! needs before anyone can see any of it: one that runs out of memory gives frames back that were
//! never part of the tree, and there is nothing to undo. Rejected: linking each table as it is made
//! and coming by again (a failure leaves tables behind that nobody asked for), and taking them out
//! afterwards (which waits for other CPUs, and others may have begun to use them).

use crate::addr::{Level, Order, Va};
use crate::entry::{Codec, Entry};
use crate::error::NoMemory;
use crate::machine::Machine;
use crate::pagetable::PageTables;
use crate::pagetable::cursor::Place;
use crate::pagetable::node::Node;

/// Tables, one below the other.
pub(crate) struct Chain<'v> {
    pub first: Node<'v>,
    /// The lowest, and the level of its entries.
    pub last: Node<'v>,
    pub level: Level,
    pub nodes: u64,
}

impl<'v> Chain<'v> {
    /// The entry for an address in the lowest node.
    pub fn last_place(&self, va: Va) -> Place<'v> {
        Place { node: self.last, level: self.level, slot: self.level.slot(va), raw: 0 }
    }
}

/// The level of leaves of that size.
pub(crate) fn leaf_level(order: Order) -> Level {
    match order {
        Order::BASE => Level::ONE,
        Order::HUGE => Level::TWO,
        _ => Level::THREE,
    }
}

impl<M: Machine> PageTables<M> {
    /// Tables of promises from below a slot of `node`, whose entries are of `level`, down to the
    /// one with entries of `leaf`. `None` if the slot is of that level itself.
    pub(crate) fn chain(
        &self,
        Place { node, mut level, mut slot, .. }: Place<'_>,
        va: Va,
        leaf: Level,
    ) -> Result<Option<Chain<'_>>, NoMemory> {
        let (mut chain, mut above) = (None, node.pfn);
        while level > leaf {
            level = level.child();
            let promise = M::Codec::encode(Entry::Reserved, level);
            match self.make_node(level, Some((above, slot)), promise) {
                Ok(node) => {
                    chain = Some(self.lengthen(chain, node, level, va));
                    (above, slot) = (node.pfn, level.slot(va));
                }
                Err(error) => {
                    self.free_chain(chain);
                    return Err(error);
                }
            }
        }
        Ok(chain)
    }

    /// A chain with one more node at its lower end.
    pub(crate) fn lengthen<'v>(
        &self,
        chain: Option<Chain<'v>>,
        node: Node<'v>,
        level: Level,
        va: Va,
    ) -> Chain<'v> {
        match chain {
            None => Chain { first: node, last: node, level, nodes: 1 },
            Some(above) => {
                self.write_last(&above, va, Entry::Table(node.pfn));
                Chain { last: node, level, nodes: above.nodes + 1, ..above }
            }
        }
    }

    /// Writes the entry for an address into the lowest node.
    pub(crate) fn write_last(&self, chain: &Chain<'_>, va: Va, entry: Entry) {
        let words = self.machine.direct(chain.last.pfn).cast::<u64>();
        // SAFETY: the node is linked nowhere yet, so its 512 words are ours alone.
        unsafe { words.add(chain.level.slot(va)).write(M::Codec::encode(entry, chain.level)) };
    }

    /// Gives the tables back. They were linked nowhere, and what they map is the caller's.
    pub(crate) fn free_chain(&self, chain: Option<Chain<'_>>) {
        let Some(Chain { first, last, .. }) = chain else { return };
        // From the lower end, which knows what is above it.
        let mut node = last;
        while node.pfn != first.pfn
            && let Some((above, _)) = node.parent()
        {
            self.untake_node(node.pfn);
            node = self.node(above);
        }
        self.untake_node(node.pfn);
    }
}
