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
use crate::machine::{Act, Machine, Work};
use crate::pagetable::PageTables;
use crate::pagetable::cursor::Place;
use crate::pagetable::node::Node;

/// Tables, one below the other.
pub(crate) struct UnlinkedPath<'v> {
    pub first: Node<'v>,
    /// The lowest, and the level of its entries.
    pub last: Node<'v>,
    pub level: Level,
    pub nodes: u64,
}

impl<'v> UnlinkedPath<'v> {
    /// With one more node at its lower end.
    pub(super) fn extended<M: Machine>(
        above: Option<Self>,
        m: &M,
        node: Node<'v>,
        level: Level,
        va: Va,
    ) -> Self {
        match above {
            None => UnlinkedPath { first: node, last: node, level, nodes: 1 },
            Some(above) => {
                above.write_last(m, va, Entry::Table(node.pfn));
                UnlinkedPath { last: node, level, nodes: above.nodes + 1, ..above }
            }
        }
    }

    /// Writes the entry for an address into the lowest node.
    pub fn write_last<M: Machine>(&self, m: &M, va: Va, entry: Entry) {
        let words = m.direct(self.last.pfn).cast::<u64>();
        // SAFETY: the node is linked nowhere yet, so its 512 words are ours alone.
        unsafe { words.add(self.level.slot(va)).write(M::Codec::encode(entry, self.level)) };
    }

    /// Whether it was made for an entry of that node. By its level, too: a table that has gone
    /// since may be one of another level by now.
    pub fn is_below(&self, Place { node, level, slot, .. }: Place<'_>) -> bool {
        self.first.parent() == Some((node.pfn, slot))
            && level > Level::ONE
            && self.first.state().level() == level.child()
    }

    /// Links the uppermost table. Reports the entry that is written here and the one that was
    /// written in each table of the path. Under the lock of the node above.
    #[inline(always)]
    pub fn link<M: Machine>(&self, m: &M, Place { node, level, slot, .. }: Place<'_>) {
        m.set_entry(node.pfn, slot, M::Codec::encode(Entry::Table(self.first.pfn), level));
        m.work(Work::Entry, 1 + self.nodes);
    }

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
    /// Tables of reserved entries from below a slot of `node`, whose entries are of `level`, down
    /// to the one with entries of `leaf`. `None` if the slot is of that level itself.
    pub fn unlinked_path(
        &self,
        at: Place<'_>,
        va: Va,
        leaf: Level,
    ) -> Result<Option<UnlinkedPath<'_>>, NoMemory> {
        path_of(self, (at, va), leaf, Entry::Reserved)
    }

    /// Gives the tables back. They were linked nowhere, and what they map is the caller's.
    pub fn free_path(&self, path: Option<UnlinkedPath<'_>>) {
        let Some(UnlinkedPath { first, last, .. }) = path else { return };
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

/// Tables in which is nothing but the way down to an address.
pub(crate) struct EmptyPath<'v, M: Machine>(pub &'v PageTables<M>);

impl<'v, M: Machine> EmptyPath<'v, M> {
    /// As [`PageTables::unlinked_path`], down to the lowest.
    pub fn make(self, at: Place<'_>, va: Va) -> Result<Option<UnlinkedPath<'v>>, NoMemory> {
        let path = path_of(self.0, (at, va), Level::ONE, Entry::Empty)?;
        let mut above = path.as_ref().and_then(|path| path.last.parent());
        while let Some((table, _)) = above.filter(|&(table, _)| table != at.node.pfn) {
            let node = self.0.node(table);
            node.set_state(node.state().with_count(1));
            above = node.parent();
        }
        Ok(path)
    }
}

fn path_of<'v, M: Machine>(
    tables: &'v PageTables<M>,
    (Place { node, mut level, mut slot, .. }, va): (Place<'_>, Va),
    leaf: Level,
    fill: Entry,
) -> Result<Option<UnlinkedPath<'v>>, NoMemory> {
    let (mut path, mut above) = (None, node.pfn);
    while level > leaf {
        level = level.child();
        match tables.make_node(level, Some((above, slot)), M::Codec::encode(fill, level)) {
            Ok(node) => {
                path = Some(UnlinkedPath::extended(path, &tables.machine, node, level, va));
                (above, slot) = (node.pfn, level.slot(va));
            }
            Err(error) => {
                tables.free_path(path);
                return Err(error);
            }
        }
    }
    Ok(path)
}
