//! Where an object has pages, and where it has none.
//!
//! Both searches go with a cursor under the object's guard, so an answer was true at a moment of
//! the call. A gap may lie behind any number of pages: the guard is given back after 512 of them,
//! and the cursor's token goes on from there.

use crate::addr::PAGE_SIZE;
use crate::fault::Faults;
use crate::machine::{Machine, Verb};
use crate::object::{Object, Tries};
use crate::platform::over;
use crate::sync::Token;

const PAGE: u64 = PAGE_SIZE as u64;
/// Indices that are looked at under one guard end with a multiple of this: a full large node ends
/// there, too, and is one look.
const BATCH: u64 = 512;

pub(crate) struct Sparse<'v, M: Machine>(pub &'v Faults<M>);

over!(Sparse, Faults);

impl<M: Machine> Sparse<'_, M> {
    /// `Objects::next_data`.
    pub fn next_data(self, object: &Object, offset: u64) -> Option<u64> {
        self.verb(Verb::Object, || {
            let record = self.record_of_object(object);
            let mut top = Token::top();
            let mut guard = Tries::new(self.0).lock(&record.trie, &mut top);
            if offset >= record.bytes() {
                return None;
            }
            // What is not in memory the pager has, or the device.
            if record.has_all() {
                return Some(offset);
            }
            let mut cursor = guard.cursor();
            // Pages past the end may be on their way out.
            cursor.set_limit(record.pages());
            let (index, _) = cursor.lookup_ge(offset / PAGE)?;
            Some(offset.max(index * PAGE))
        })
    }

    /// `Objects::next_hole`.
    pub fn next_hole(self, object: &Object, offset: u64) -> Option<u64> {
        self.verb(Verb::Object, || {
            let record = self.record_of_object(object);
            let (mut next, mut place) = (offset / PAGE, None);
            loop {
                let mut top = Token::top();
                let mut guard = Tries::new(self.0).lock(&record.trie, &mut top);
                let (bytes, pages) = (record.bytes(), record.pages());
                if offset >= bytes {
                    return None;
                }
                if record.has_all() {
                    return Some(bytes);
                }
                let end = ((next / BATCH + 1) * BATCH).min(pages);
                let mut cursor = match place {
                    Some(token) => guard.resume(token),
                    None => guard.cursor(),
                };
                cursor.set_limit(end);
                if let Some(gap) = cursor.next_gap(next) {
                    return Some(offset.max(gap * PAGE));
                }
                if end == pages {
                    return Some(bytes);
                }
                (next, place) = (end, Some(cursor.into_token()));
            }
        })
    }
}
