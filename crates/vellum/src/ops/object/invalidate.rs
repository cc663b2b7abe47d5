//! Freeing what the pager has, and saying what stays.

use crate::addr::PAGE_SIZE;
use crate::fault::Faults;
use crate::frame::Data;
use crate::machine::{Machine, Verb};
use crate::object::{MOST_SEEN, Object, PageMark, Tries};
use crate::ops::object::resize::Resize;
use crate::platform::over;
use crate::space::KeptPage;
use crate::sync::Token;

const PAGE: u64 = PAGE_SIZE as u64;

pub(crate) struct Invalidate<'v, M: Machine>(pub &'v Faults<M>);

over!(Invalidate, Faults);

impl<M: Machine> Invalidate<'_, M> {
    /// `Objects::invalidate`.
    pub fn invalidate(
        self,
        object: &Object,
        (offset, bytes): (u64, u64),
        kept: &mut [KeptPage],
    ) -> (u64, usize) {
        let freed = Resize(self.0).evict(object, offset, bytes);
        let first = offset / PAGE;
        let end = if bytes == 0 { first } else { offset.saturating_add(bytes).div_ceil(PAGE) };
        (freed, self.verb(Verb::Object, || self.kept_pages(object, (first, end), kept)))
    }

    /// The pages of `[first, end)`, as many as `kept` has room for; says how many.
    fn kept_pages(self, object: &Object, (first, end): (u64, u64), kept: &mut [KeptPage]) -> usize {
        let record = self.record_of_object(object);
        let (mut next, mut count) = (Some(first), 0);
        while let Some(first) = next {
            let mut top = Token::top();
            let mut guard = Tries::new(self.0).lock(&record.trie, &mut top);
            let mut cursor = guard.cursor();
            cursor.set_limit(end);
            let mut seen = 0;
            let mut found = cursor.lookup_ge(first);
            next = loop {
                let Some((index, entry)) = found else { break None };
                if seen >= MOST_SEEN || count == kept.len() {
                    break Some(index).filter(|_| count < kept.len());
                }
                let busy = Data::of(self.frames.record(entry.pfn())).is_taken();
                let dirty = entry.is_marked(PageMark::Dirty);
                let after = index + entry.order().frames();
                for page in (index.max(first)..after.min(end)).take(kept.len() - count) {
                    kept[count] = KeptPage { offset: page * PAGE, dirty, busy };
                    (seen, count) = (seen + 1, count + 1);
                }
                found = cursor.next_entry();
            };
        }
        count
    }
}
