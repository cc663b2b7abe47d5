//! What is at an index of an object, without its guard.

use crate::addr::Pfn;
use crate::frame::{Data, PageIo, SlabRef};
use crate::machine::{Machine, Work};
use crate::object::record::ObjectRecord;
use crate::object::trie::read::Look;
use crate::object::{ObjectLayer, PageMark, TrieEntry, TriePlace};
use crate::platform::over;
use crate::stats::Counter;
use crate::sync::{EpochGuard, touch};

/// What is at an index of an object, for who looks without its guard.
pub(crate) enum Present<'e> {
    Page {
        pfn: Pfn,
        /// Its pager knows, or will know, that it was written.
        dirty: bool,
    },
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
        self.present_in(self.0.object(object), index, epoch)
    }

    /// The same in line, for faults.
    #[inline(always)]
    pub fn present_in(
        self,
        object: &'e ObjectRecord,
        index: u64,
        epoch: &'e EpochGuard<'_, M>,
    ) -> Present<'e> {
        let (look, mut visits) = (Look::new(&object.trie, self.0, epoch), 0);
        let found = look.find(index, &mut visits);
        self.count_here(Counter::ObjectNodeVisits, visits as i64);
        self.machine.work(Work::Descend, visits);
        let entry = match found {
            Ok(entry) => entry,
            Err(place) => return Present::Absent(place),
        };
        self.state_of(&look, object, (index, entry))
    }

    /// What is at each of the indices from one on, for who asks [`usable`](FindPage::usable)
    /// inside the same epoch.
    pub fn find_each(
        self,
        object: &ObjectRecord,
        first: u64,
        out: &mut [Option<TrieEntry>],
        epoch: &EpochGuard<'_, M>,
    ) {
        let mut visits = 0;
        Look::new(&object.trie, self.0, epoch).find_each(first, out, &mut visits);
        self.count_here(Counter::ObjectNodeVisits, visits as i64);
        self.machine.work(Work::Descend, visits);
    }

    /// Whether the page of an entry that was found inside this epoch may be used at once, since it
    /// is not frozen, lies before the end, and its first use begins no fetch; and whether it is
    /// dirty then.
    #[inline]
    pub fn usable(
        self,
        object: &ObjectRecord,
        (index, entry): (u64, TrieEntry),
        epoch: &EpochGuard<'_, M>,
    ) -> Option<bool> {
        let data = Data::of(self.frames.record(entry.pfn()));
        if data.is_ahead() && object.is_newest(index) {
            return None;
        }
        let look = Look::new(&object.trie, self.0, epoch);
        match self.state_of(&look, object, (index, entry)) {
            Present::Page { dirty, .. } if index < object.pages() => Some(dirty),
            _ => None,
        }
    }

    /// What is at an index where an entry was found, which is looked up again where it says that
    /// the page is dirty.
    #[inline(always)]
    fn state_of(
        self,
        look: &Look<'_, M>,
        object: &ObjectRecord,
        (index, entry): (u64, TrieEntry),
    ) -> Present<'e> {
        let record = self.frames.record(entry.pfn());
        touch(&self.machine, record, false);
        let data = Data::of(record);
        if !data.is_plain()
            && let Some(other) = self.other_than_page(object, (index, entry.pfn()), data)
        {
            return other;
        }
        // The mark is asked again, since it may be of before somebody froze the page and thawed it.
        // From here on who freezes it waits for the caller's epoch.
        let dirty = |entry: TrieEntry| entry.is_marked(PageMark::Dirty);
        let dirty = dirty(entry) && look.find(index, &mut 0).is_ok_and(dirty);
        Present::Page { pfn: entry.pfn(), dirty }
    }

    /// A page is frozen, or was read ahead and is used now.
    #[cold]
    fn other_than_page(
        self,
        object: &ObjectRecord,
        (index, pfn): (u64, Pfn),
        data: Data<'_>,
    ) -> Option<Present<'e>> {
        if data.is_frozen() {
            return Some(match data.io() {
                Some(PageIo::Read) => Present::Reading(pfn),
                _ => Present::Frozen,
            });
        }
        if data.end_ahead() {
            self.count_here(Counter::ReadaheadUnused, -1);
            return object.is_newest(index).then_some(Present::Ahead);
        }
        None
    }
}
