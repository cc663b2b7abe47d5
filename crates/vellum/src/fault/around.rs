//! Mapping what an object has around the page of a read fault (`file.around`).
//!
//! Most programs read a file's neighbouring pages next. Those of the aligned block around the fault
//! that are present and wait for nobody are looked up in the same epoch, one after the other in the
//! same node of the trie, and stored under the one lock of the table. Nothing is read from a pager,
//! and no page is made. A page that is mapped so is not marked as accessed where hardware sets the
//! mark itself.

use crate::addr::{Level, Pfn};
use crate::config::MOST_AROUND;
use crate::entry::{Codec, Entry, Flags};
use crate::error::FaultError;
use crate::fault::object::entry_flags;
use crate::fault::{Faults, Seen, Step};
use crate::frame::SlabRef;
use crate::machine::{Act, Machine, Work};
use crate::object::FindPage;
use crate::platform::over;
use crate::rmap::object_page::ObjectFrame;
use crate::space::{Access, Fault};
use crate::stats::Counter;
use crate::sync::{EpochGuard, Token};

/// Pages of a block, at most: one KiB of the stack.
const MOST: usize = 1 << MOST_AROUND.get();

/// What was mapped.
struct Mapped {
    /// Entries, with the fault's.
    entries: u64,
    /// Pages that nobody mapped before, without the fault's.
    pages: i64,
}

pub(crate) struct Around<'v, M: Machine>(pub &'v Faults<M>);

over!(Around, Faults);

impl<M: Machine> Around<'_, M> {
    /// Maps a present page of an object, and those around it. A read of a program, on a base page
    /// that is reserved; the page was found inside this epoch. Without a page: it is mapped
    /// already.
    #[inline(never)]
    pub fn map(
        self,
        seen: &Seen<'_>,
        (object, index): (SlabRef, u64),
        page: Option<(Pfn, Flags)>,
        epoch: &EpochGuard<'_, M>,
    ) -> Result<Step, FaultError> {
        let (spot, record) = (&seen.spot, self.object(object));
        let block = self.config.file_around.min(MOST_AROUND).frames();
        let before = (spot.slot as u64 & (block - 1)).min(index);
        let (first, slot) = (index - before, spot.slot - before as usize);
        // Up to the block's end, and the object's.
        let after = block - (spot.slot as u64 & (block - 1));
        let pages = before + after.min(record.pages().saturating_sub(index)).max(1);
        let mut found = [None; MOST];
        let found = &mut found[..pages as usize];
        FindPage(self.0).find_each(record, first, found, epoch);
        found[before as usize] = None;

        let mut top = Token::top();
        let _guard = spot.node.lock_inside(epoch, &mut top);
        if !self.still(seen) {
            return Ok(Step::Again);
        }
        let mut mapped = Mapped { entries: 0, pages: 0 };
        if let Some((pfn, flags)) = page {
            self.add_shared_mapping(pfn)?;
            self.write_entry(spot.node.pfn, spot.slot, spot.level, Entry::Shared(pfn, flags));
            mapped.entries = 1;
        }
        // What decides about the others was seen before the lock, and may have been edited since.
        if seen.space.is_unedited(seen.edits) {
            let accessed = !self.rules.hardware_ad;
            let flags = |dirty| Flags { accessed, ..entry_flags(seen, Access::Read, dirty) };
            let flags = [flags(false), flags(true)];
            let entries = found.iter().enumerate();
            for (n, entry) in entries.filter_map(|(n, entry)| Some((n, (*entry)?))) {
                if self.may_map(seen, slot + n)
                    && let Some(dirty) =
                        FindPage(self.0).usable(record, (first + n as u64, entry), epoch)
                    && let Ok(is_first) = ObjectFrame(self.0).add_mapping(entry.pfn())
                {
                    let entry = Entry::Shared(entry.pfn(), flags[usize::from(dirty)]);
                    self.write_entry(spot.node.pfn, slot + n, Level::ONE, entry);
                    mapped.entries += 1;
                    mapped.pages += i64::from(is_first);
                }
            }
        }
        spot.node.add_resident(mapped.entries);
        self.count_here(Counter::Mapped, mapped.pages);
        self.machine.work(Work::Scan, pages);
        Ok(Step::Done(Fault::Object))
    }

    /// Whether a slot beside the fault's is reserved, by the same region. Under the node's lock.
    #[inline]
    fn may_map(self, seen: &Seen<'_>, slot: usize) -> bool {
        let (spot, m) = (&seen.spot, &self.machine);
        // A table that lists no regions is of one that an ancestor lists.
        m.entry(spot.node.pfn, slot) == M::Codec::encode(Entry::Reserved, Level::ONE)
            && (spot.node.state().listed() == 0 || self.region_of(spot.node, slot) == spot.region)
    }
}
