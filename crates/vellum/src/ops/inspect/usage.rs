//! What a space takes.

use crate::addr::{Level, Pfn};
use crate::entry::Entry;
use crate::fault::Faults;
use crate::machine::Machine;
use crate::platform::over;
use crate::space::{Space, Usage};
use crate::sync::Token;

pub(crate) struct CountUsage<'v, M: Machine>(pub &'v Faults<M>);

over!(CountUsage, Faults);

impl<M: Machine> CountUsage<'_, M> {
    /// `Vm::usage`.
    pub fn usage(self, space: &Space) -> Usage {
        let record = self.record_of(space);
        let mut top = Token::top();
        let _layout = record.mmap_lock().lock(&self.machine, &mut top, space.id());
        let mut usage = Usage::default();
        self.usage_of(record.root(), self.top(), &mut usage);
        usage
    }

    pub(super) fn usage_of(self, table: Pfn, level: Level, usage: &mut Usage) {
        usage.table_nodes += 1;
        let pages = level.entry_bytes() >> crate::addr::PAGE_SHIFT;
        for slot in 0..self.slots(level) {
            let entry = self.load(table, slot, level);
            match entry {
                Entry::Empty | Entry::Detached(_) => continue,
                Entry::Table(child) => {
                    self.usage_of(child, level.child(), usage);
                    continue;
                }
                Entry::Leaf(pfn, _) if self.is_zero(pfn) && level == Level::ONE => {
                    usage.zero_leaves += 1
                }
                Entry::Leaf(pfn, _) if self.is_zero(pfn) => usage.zero_huge_leaves += 1,
                Entry::Leaf(..) | Entry::Shared(..) | Entry::Inaccessible(_) => {
                    let shared = matches!(entry, Entry::Shared(..));
                    usage.shared_pages += if shared { pages } else { 0 };
                    usage.rss_pages += pages;
                    usage.huge_leaves += u64::from(level == Level::TWO);
                    usage.giant_leaves += u64::from(level == Level::THREE);
                    usage.inaccessible_pages +=
                        if matches!(entry, Entry::Inaccessible(_)) { pages } else { 0 };
                }
                Entry::Device(..) => usage.device_pages += pages,
                Entry::ZeroTable(_) => usage.zero_tables += 1,
                Entry::Reserved | Entry::Busy(_) => {}
            }
            usage.mapped_pages += pages;
        }
    }
}
