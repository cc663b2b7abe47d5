//! Tables of zeros that everybody shares.
//!
//! A *leaf table* is 512 entries that map the base zeros, read-only; a *middle table* is 512
//! entries that name the leaf table. One of each per memory node, made at the first use and never
//! given back: 8 KiB stand for any number of whole GiB that are read and not written. To a page
//! table they are values, like leaves: they are written once, before anyone can see them, are never
//! locked, have no counts, no parent and no region. Hardware must have nothing to write either:
//! accessed bits are set from the start. They give no right but to read, so a region whose pages
//! may be executed takes tables of its own.

use crate::addr::{ENTRIES, Level, Order, Pfn, Va};
use crate::entry::{Codec, Entry, Flags};
use crate::error::{Invalid, NoMemory, ensure};
use crate::frame::AllocRequest;
use crate::machine::{MAX_NODES, Machine, Use};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::zero::Zero;

/// What a base page of shared zeros is mapped with.
const READ: Flags = Flags { write: false, exec: false, accessed: true, dirty: false };

impl<M: Machine> Zero<M> {
    /// The shared table of zeros that an entry of `level` (2 or 3) can name, near this CPU.
    pub fn zero_table(&self, level: Level) -> Result<Pfn, NoMemory> {
        let m = &self.machine;
        let node = m.topology().cpu_node[m.cpu()] as usize % MAX_NODES;
        let cell = &self.zero_tables.0[node][(level.0 as usize - 2) & 1];
        if let Some(pfn) = cell.load(Ordering::Acquire).checked_sub(1) {
            return Ok(Pfn(pfn));
        }
        let below = level.child();
        let zeros = self.zero_block_here();
        let pfn = self.frames.alloc(m, Order::BASE, &AllocRequest::kernel(Use::ZeroTable))?;
        // The lower table last: it is everybody's as soon as it is made.
        let lower = match below {
            Level::ONE => None,
            _ => Some(self.zero_table(below).inspect_err(|_| self.untake(pfn, Order::BASE))?),
        };
        let words = m.direct(pfn).cast::<u64>();
        for slot in 0..ENTRIES {
            let entry = match lower {
                Some(table) => Entry::ZeroTable(table),
                None => Entry::Leaf(zeros.frame(Va((slot as u64) << Level::ONE.shift())), READ),
            };
            // SAFETY: the frame is ours alone until it is published; 512 words are its 4096 bytes.
            unsafe { words.add(slot).write(M::Codec::encode(entry, below)) };
        }
        self.frames.record(pfn).set_head(Use::ZeroTable, Order::BASE);
        match cell.compare_exchange(0, pfn.0 + 1, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(pfn),
            Err(other) => {
                self.untake(pfn, Order::BASE);
                Ok(Pfn(other - 1))
            }
        }
    }

    /// The memory node whose shared table that is, and the table of one that an entry of `level`
    /// can name.
    pub fn zero_table_slot(&self, table: Pfn) -> usize {
        let names = |cell: &AtomicU64| cell.load(Ordering::Acquire) == table.0 + 1;
        self.zero_tables.0.iter().position(|node| node.iter().any(names)).unwrap_or(0)
    }
    pub fn zero_table_in(&self, node: usize, level: Level) -> Option<Pfn> {
        let cell = &self.zero_tables.0[node % MAX_NODES][(level.0 as usize - 2) & 1];
        cell.load(Ordering::Acquire).checked_sub(1).map(Pfn)
    }

    /// Whether any space may map a shared table.
    pub fn has_zero_tables(&self) -> bool {
        self.each_zero_table().next().is_some()
    }

    /// The zeros that a shared table maps at an address; its entries are of `level`.
    pub fn zeros_below(&self, mut table: Pfn, mut level: Level, va: Va) -> Option<Pfn> {
        loop {
            match self.load(table, level.slot(va), level) {
                Entry::ZeroTable(lower) => (table, level) = (lower, level.child()),
                Entry::Leaf(pfn, _) => return Some(pfn),
                _ => return None,
            }
        }
    }

    /// Every shared table with the level of its own entries.
    fn each_zero_table(&self) -> impl Iterator<Item = (Pfn, Level)> + '_ {
        self.zero_tables.0.iter().flat_map(|node| {
            node.iter().enumerate().filter_map(|(i, cell)| {
                let pfn = cell.load(Ordering::Acquire).checked_sub(1)?;
                Some((Pfn(pfn), Level(i as u8 + 1)))
            })
        })
    }

    /// Whether a frame is a shared table whose entries are of `level`.
    pub fn is_zero_table(&self, pfn: Pfn, level: Level) -> bool {
        self.each_zero_table().any(|found| found == (pfn, level))
    }

    /// Looks at every entry of every shared table; says how many there are.
    pub fn check_zero_tables(&self) -> Result<u64, Invalid> {
        let mut tables = 0;
        for (pfn, level) in self.each_zero_table() {
            tables += 1;
            for slot in 0..ENTRIES {
                let sound = match self.load(pfn, slot, level) {
                    Entry::Leaf(frame, flags) => {
                        level == Level::ONE && flags == READ && self.is_base_zero(frame)
                    }
                    Entry::ZeroTable(lower) => {
                        level == Level::TWO && self.is_zero_table(lower, Level::ONE)
                    }
                    _ => false,
                };
                ensure(sound, "zeros in a shared table of zeros", pfn.0, slot as u64, 0)?;
            }
        }
        Ok(tables)
    }
}
