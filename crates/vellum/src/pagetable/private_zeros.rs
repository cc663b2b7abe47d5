//! Private tables of zeros: copies of the shared ones, and tables that map zeros address by
//! address.

use crate::addr::{ENTRIES, Level, PAGE_SIZE, Pfn, Va};
use crate::entry::{Busy, Codec, Entry, Flags};
use crate::error::NoMemory;
use crate::machine::{Act, Machine, Work};
use crate::pagetable::PageTables;
use crate::pagetable::cursor::Place;
use crate::pagetable::node::Node;
use crate::pagetable::transit::{Settled, Transit};
use crate::pagetable::unlinked::UnlinkedPath;
use crate::space::SpaceRecord;
use crate::stats::Counter;
use crate::sync::Token;
use crate::tlb::Receipt;

impl<M: Machine> PageTables<M> {
    /// Private copies of the tables of zeros from below the entry that was seen down to the node
    /// with entries of `leaf`. `None` if the entry itself is of that level.
    pub fn private_zeros(
        &self,
        Place { node, mut level, slot, mut raw }: Place<'_>,
        va: Va,
        leaf: Level,
    ) -> Result<Option<UnlinkedPath<'_>>, NoMemory> {
        let mut path: Option<UnlinkedPath<'_>> = None;
        let mut parent = (node.pfn, slot);
        while level > leaf {
            let Entry::ZeroTable(shared) = M::Codec::decode(raw, level) else { break };
            level = level.child();
            let frame = match self.table_frame() {
                Ok(frame) => frame,
                Err(error) => {
                    self.free_path(path);
                    return Err(error);
                }
            };
            let copy = self.copy_zero_table(shared, level, parent, frame);
            let slot = level.slot(va);
            raw = self.machine.entry(shared, slot);
            path = Some(UnlinkedPath::extended(path, &self.machine, copy, level, va));
            parent = (copy.pfn, slot);
        }
        Ok(path)
    }

    /// A private node that says what a shared table of zeros with entries of `level` says.
    fn copy_zero_table(
        &self,
        shared: Pfn,
        level: Level,
        parent: (Pfn, usize),
        frame: Pfn,
    ) -> Node<'_> {
        let m = &self.machine;
        let copy =
            self.init_node(frame, level, Some(parent), M::Codec::encode(Entry::Reserved, level));
        // SAFETY: shared tables of zeros never change, the node is linked nowhere yet, and they are
        // two frames.
        unsafe { m.direct(copy.pfn).copy_from_nonoverlapping(m.direct(shared), PAGE_SIZE) };
        m.work(Work::Entry, ENTRIES as u64);
        copy
    }

    /// Puts a private table in `frame` where a shared one of zeros was seen, so that a range can
    /// end inside. If the entry is another by now nothing happens, the frame is still the caller's,
    /// and it looks again.
    pub(super) fn open_zeros(
        &self,
        space: &SpaceRecord,
        at: Place<'_>,
        va: Va,
        frame: Pfn,
    ) -> bool {
        let m = &self.machine;
        let Place { node, level, slot, raw } = at;
        let Entry::ZeroTable(shared) = M::Codec::decode(raw, level) else { return false };
        let child = self.copy_zero_table(shared, level.child(), (node.pfn, slot), frame);
        let live = !self.rules.break_before_make;
        let table = Entry::Table(child.pfn);
        let transit = {
            let mut top = Token::top();
            let _guard = node.lock(m, &mut top);
            if node.state().dead() || m.entry(node.pfn, slot) != raw {
                drop(_guard);
                self.count(Counter::TablePages, -1);
                return false;
            }
            let now = if live { table } else { Entry::Busy(Busy::ExchangeNothing) };
            self.write_entry(node.pfn, slot, level, now);
            (!live).then(|| Transit::begin(at))
        };
        let mut receipt = Receipt::new();
        match transit {
            None => {
                // Both tables say the same; what must go are walk caches that lead to the shared
                // one.
                receipt.leaf(va, Level::ONE);
                let _flushed = self.flush(space, receipt);
            }
            Some(transit) => self.settle(transit, || {
                receipt.span(va.align_down(level.entry_bytes()), level.entry_bytes());
                let _flushed = self.flush(space, receipt);
                (Settled::new(table, 0), ())
            }),
        }
        self.count(Counter::ZeroTableUnshare, 1);
        true
    }

    /// Writes the zeros of each address into every entry of a lowest node that is linked nowhere
    /// yet. `va` is the node's first address.
    pub fn fill_zeros(&self, node: Node<'_>, va: Va, flags: Flags) {
        let m = &self.machine;
        let flags = Flags { write: false, accessed: true, dirty: false, ..flags };
        let words = m.direct(node.pfn).cast::<u64>();
        let block = self.zero_block_here();
        for i in 0..ENTRIES {
            let zeros = block.frame(Va(va.0 + i as u64 * Level::ONE.entry_bytes()));
            // SAFETY: the node is linked nowhere yet, so its 512 words are ours alone.
            unsafe { words.add(i).write(M::Codec::encode(Entry::Leaf(zeros, flags), Level::ONE)) };
        }
        m.work(Work::Entry, ENTRIES as u64);
    }
}
