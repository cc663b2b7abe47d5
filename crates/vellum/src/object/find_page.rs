//! What is at an index of an object, without its guard.

use crate::addr::Pfn;
use crate::frame::{Data, PageIo, Record, SlabRef};
use crate::machine::{Machine, Work};
use crate::object::record::ObjectRecord;
use crate::object::trie::read::Look;
use crate::object::{ObjectLayer, PageMark, Run, TrieEntry, TriePlace};
use crate::platform::over;
use crate::stats::{Counter, CpuCounters};
use crate::sync::{EpochGuard, touch};

/// What is at an index of an object, for who looks without its guard.
pub(crate) enum Present<'e> {
    Page {
        pfn: Pfn,
        frame: &'e Record,
        /// Its pager knows, or will know, that it was written.
        dirty: bool,
        /// Where it was found.
        place: TriePlace<'e>,
    },
    /// A page of a block, which may be mapped as a whole, and is to be cut before an entry of 4 KiB
    /// maps the page.
    Block(Pfn),
    /// A page that nobody may map or touch until it is thawed.
    Frozen,
    /// The same; a pager fills it.
    Reading(Pfn),
    /// A page of the last fetch, of which nobody has used another yet: the caller begins the next
    /// one ([`ObjectIo::fetch_next`](crate::object::ObjectIo::fetch_next)), with nothing held, and
    /// looks anew.
    Ahead,
    /// Nothing, and where the lookup ended.
    Absent(TriePlace<'e>),
}

pub(crate) struct FindPage<'e, M: Machine>(pub &'e ObjectLayer<M>);

over!(FindPage, ObjectLayer);

impl<'e, M: Machine> FindPage<'e, M> {
    /// What is at an index. It stays as it is found until the caller leaves the epoch that it is
    /// in: who freezes a page waits for that, and again before a page that was taken out is freed,
    /// so that a frozen page's record says so as long as somebody may find it.
    #[inline(never)]
    pub fn present(self, object: SlabRef, index: u64, epoch: &'e EpochGuard<'_, M>) -> Present<'e> {
        self.present_in(self.0.object(object), index, epoch, self.counters_here())
    }

    /// The same in line, for faults. `counters` are this CPU's.
    #[inline(always)]
    pub fn present_in(
        self,
        object: &'e ObjectRecord,
        index: u64,
        epoch: &'e EpochGuard<'_, M>,
        counters: &CpuCounters,
    ) -> Present<'e> {
        let (look, mut visits) = (Look::new(&object.trie, self.0, epoch), 0);
        let found = look.find_place(index, &mut visits);
        counters.add(Counter::ObjectNodeVisits, visits as i64);
        self.machine.work(Work::Descend, visits);
        let (Some(entry), place) = found else { return Present::Absent(found.1) };
        let (pfn, frame) = (entry.pfn(), self.0.frames.record(entry.pfn()));
        if !self.is_usable(frame)
            && let Some(other) = self.other_than_page(object, (index, entry), Data::of(frame))
        {
            return other;
        }
        let dirty = entry.is_marked(PageMark::Dirty) && self.is_dirty(object, index, epoch);
        Present::Page { pfn, frame, dirty, place }
    }

    /// A page is frozen, or of a block, or was read ahead and is used now.
    #[cold]
    #[inline(never)]
    fn other_than_page(
        self,
        object: &ObjectRecord,
        (index, entry): (u64, TrieEntry),
        data: Data<'_>,
    ) -> Option<Present<'e>> {
        if data.is_frozen() {
            return Some(match data.io() {
                Some(PageIo::Read) => Present::Reading(entry.pfn()),
                _ => Present::Frozen,
            });
        }
        if data.is_block() {
            let page = index & (entry.order().frames() - 1);
            return Some(Present::Block(entry.pfn().add(page)));
        }
        if data.end_ahead() {
            self.count_here(Counter::ReadaheadUnused, -1);
            return object.is_newest(index).then_some(Present::Ahead);
        }
        None
    }

    /// Whether a page that is not usable at once was read ahead, and its first use begins no fetch:
    /// it is used from here on.
    #[cold]
    #[inline(never)]
    pub fn is_first_used(self, object: &ObjectRecord, index: u64, entry: TrieEntry) -> bool {
        let data = Data::of(self.frames.record(entry.pfn()));
        !data.is_frozen()
            && !object.is_newest(index)
            && self.other_than_page(object, (index, entry), data).is_none()
    }

    /// What is at indices that follow each other, from one on: as many as lie in the same node of
    /// the trie, at least one.
    #[inline]
    pub fn run_at(
        self,
        object: &'e ObjectRecord,
        index: u64,
        epoch: &'e EpochGuard<'_, M>,
    ) -> Run<'e> {
        let mut visits = 0;
        let look = Look::new(&object.trie, self.0, epoch);
        let run = look.run_at(index, &mut visits);
        self.count_here(Counter::ObjectNodeVisits, visits as i64);
        self.machine.work(Work::Descend, visits);
        run
    }

    /// Whether the page of an entry that was found inside this epoch may be used at once, since it
    /// is not frozen, and was used before if it was read ahead. `frame` is its record.
    #[inline(always)]
    pub fn is_usable(self, frame: &Record) -> bool {
        touch(&self.machine, frame, false);
        Data::of(frame).is_plain()
    }

    /// Whether such a page is dirty, of which an entry was found that says so: that may be of
    /// before somebody froze the page and thawed it. From here on who freezes it waits for the
    /// caller's epoch.
    #[inline(never)]
    pub fn is_dirty(self, object: &ObjectRecord, index: u64, epoch: &EpochGuard<'_, M>) -> bool {
        let found = Look::new(&object.trie, self.0, epoch).find(index, &mut 0);
        found.is_ok_and(|entry| entry.is_marked(PageMark::Dirty))
    }
}
