//! A trie beside a sorted map that does the same.

use std::collections::BTreeMap;

use super::fixture::FixtureOn;
use super::random::Random;
use vellum::addr::{Order, Pfn};
use vellum::machine::Machine;
use vellum::unstable::{InsertError, PageMark, Token, Trie, TrieCursor, TrieEntry};

/// What a trie should hold, by first index.
pub type Model = BTreeMap<u64, TrieEntry>;

/// A base page's entry.
pub fn page(frame: u64) -> TrieEntry {
    TrieEntry::new(Pfn(frame), Order::BASE).expect("a frame")
}

/// A block's entry.
pub fn block(frame: u64, order: Order) -> TrieEntry {
    TrieEntry::new(Pfn(frame), order).expect("an aligned frame")
}

/// Which indices a run uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keys {
    /// All of the first few thousand.
    Dense,
    /// Multiples, at several distances.
    Strided,
    /// Anything below 2^40.
    Sparse,
}

impl Keys {
    pub fn one(self, random: &mut Random) -> u64 {
        match self {
            Keys::Dense => random.below(5000),
            Keys::Strided => {
                let stride = [3, 8, 64, 512, 513, 1 << 18][random.below(6) as usize];
                stride * random.below(300)
            }
            // A few thousand of them, so that lookups find some.
            Keys::Sparse => {
                let n = random.below(4000);
                n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24
            }
        }
    }
}

/// The entry of a model that covers an index.
pub fn covering(model: &Model, index: u64) -> Option<(u64, TrieEntry)> {
    let (&first, &entry) = model.range(..=index).next_back()?;
    (index < first + entry.order().frames()).then_some((first, entry))
}

pub fn first_from(model: &Model, index: u64) -> Option<(u64, TrieEntry)> {
    let next = || model.range(index..).next().map(|(&first, &entry)| (first, entry));
    covering(model, index).or_else(next)
}

pub fn last_up_to(model: &Model, index: u64) -> Option<(u64, TrieEntry)> {
    model.range(..=index).next_back().map(|(&first, &entry)| (first, entry))
}

/// Whether an entry may come at an index.
pub fn has_room(model: &Model, index: u64, entry: TrieEntry) -> bool {
    let size = entry.order().frames();
    first_from(model, index).is_none_or(|(first, _)| first >= index + size)
}

/// Does one operation, chosen by chance, to both; their answers are the same.
pub fn step<M: Machine>(
    cursor: &mut TrieCursor<'_, '_, M>,
    model: &mut Model,
    keys: Keys,
    random: &mut Random,
) {
    let index = keys.one(random);
    match random.below(16) {
        0 => assert_eq!(cursor.lookup_ge(index), first_from(model, index)),
        1 => assert_eq!(cursor.lookup_le(index), last_up_to(model, index)),
        2 => {
            let past = covering(model, index)
                .map_or(index, |(first, entry)| first + entry.order().frames() - 1);
            assert_eq!(cursor.lookup_gt(index), first_from(model, past + 1));
        }
        3 => {
            let first = covering(model, index).map_or(index, |(first, _)| first);
            let below = first.checked_sub(1).and_then(|last| last_up_to(model, last));
            assert_eq!(cursor.lookup_lt(index), below);
        }
        4 => {
            cursor.lookup(index);
            for _ in 0..3 {
                let at = cursor.index();
                let past = covering(model, at).map_or(at, |(f, e)| f + e.order().frames() - 1);
                assert_eq!(cursor.next_entry(), first_from(model, past + 1), "next of {at}");
            }
        }
        5 => {
            cursor.lookup(index);
            for _ in 0..3 {
                let at = cursor.index();
                let first = covering(model, at).map_or(at, |(first, _)| first);
                let before = first.checked_sub(1).and_then(|last| last_up_to(model, last));
                assert_eq!(cursor.prev_entry(), before, "prev of {at}");
            }
        }
        6..=9 => insert(cursor, model, index, random),
        10..=12 => {
            let found = cursor.lookup(index);
            assert_eq!(found, covering(model, index).map(|(_, entry)| entry));
            assert_eq!(cursor.remove(), found);
            if found.is_some() {
                let (first, _) = covering(model, index).expect("found");
                model.remove(&first);
            }
        }
        13 => {
            let mut out = [page(0); 20];
            let count = cursor.lookup_run(index, &mut out);
            let (mut next, mut same) = (index, 0);
            while let Some((first, entry)) = covering(model, next).filter(|_| same < out.len()) {
                assert_eq!(out[same], entry, "{next}");
                (next, same) = (first + entry.order().frames(), same + 1);
            }
            assert_eq!(count, same);
        }
        14 => {
            let mark = PageMark::ALL[random.below(3) as usize];
            if cursor.lookup(index).is_some() {
                let (first, entry) = covering(model, index).expect("found");
                if entry.is_marked(mark) {
                    assert!(!cursor.set_mark(mark) && cursor.clear_mark(mark));
                    let clear = TrieEntry::new(entry.pfn(), entry.order()).expect("an entry");
                    let others = PageMark::ALL.into_iter().filter(|m| *m != mark);
                    let kept =
                        others.filter(|m| entry.is_marked(*m)).fold(clear, TrieEntry::with_mark);
                    model.insert(first, kept);
                } else {
                    assert!(!cursor.clear_mark(mark) && cursor.set_mark(mark));
                    model.insert(first, entry.with_mark(mark));
                }
            }
            let marked =
                covering(model, index).filter(|(_, entry)| entry.is_marked(mark)).or_else(|| {
                    let mut rest = model.range(index..).filter(|(_, entry)| entry.is_marked(mark));
                    rest.next().map(|(&first, &entry)| (first, entry))
                });
            assert_eq!(cursor.next_marked(index, mark), marked);
        }
        _ => {
            let mut gap = index;
            while let Some((first, entry)) = covering(model, gap) {
                gap = first + entry.order().frames();
            }
            assert_eq!(cursor.next_gap(index), Some(gap));
            if cursor.lookup(index).is_some() {
                let (first, old) = covering(model, index).expect("found");
                let frame = random.below(1 << 16) << old.order().get();
                let new = block(frame, old.order());
                assert_eq!(cursor.replace(new), Some(old));
                model.insert(first, new);
            }
        }
    }
}

/// Exchanges what there is of 512 pages for a block, if it may be.
pub fn join<M: Machine>(
    cursor: &mut TrieCursor<'_, '_, M>,
    model: &mut Model,
    index: u64,
    random: &mut Random,
) {
    let pages = Order::HUGE.frames();
    let (first, mut told) = (index & !(pages - 1), Vec::new());
    let new = block(random.below(1 << 17) << Order::HUGE.get(), Order::HUGE);
    let done = cursor.join(first, new, |index, entry| told.push((index, entry)));
    if covering(model, first).is_some_and(|(_, entry)| entry.order() != Order::BASE) {
        assert_eq!((done, told.len()), (Err(InsertError::Occupied), 0), "at {index}");
    } else {
        assert_eq!(done, Ok(()), "at {index}");
        let there = model.range(first..first + pages).map(|(&index, &entry)| (index, entry));
        assert!(there.eq(told.iter().copied()), "at {index}");
        told.iter().for_each(|(index, _)| assert!(model.remove(index).is_some()));
        model.insert(first, new);
    }
    assert_eq!(cursor.lookup(index), covering(model, index).map(|(_, entry)| entry));
}

fn insert<M: Machine>(
    cursor: &mut TrieCursor<'_, '_, M>,
    model: &mut Model,
    mut index: u64,
    random: &mut Random,
) {
    let mut entry = page(random.below(1 << 36));
    if random.one_in(12) {
        let order = if random.one_in(6) { Order::GIANT } else { Order::HUGE };
        index &= !(order.frames() - 1);
        entry = block(random.below(1 << 17) << order.get(), order);
    }
    if random.one_in(2) {
        cursor.lookup(index);
    }
    for step in 0..1 + random.below(2) * random.below(100) {
        let index = index + step * entry.order().frames();
        let room = has_room(model, index, entry);
        let done = cursor.insert(index, entry);
        assert_eq!(done, if room { Ok(()) } else { Err(InsertError::Occupied) }, "at {index}");
        if room {
            model.insert(index, entry);
        }
        assert_eq!(cursor.lookup(index), covering(model, index).map(|(_, entry)| entry));
    }
}

impl<M: Machine> FixtureOn<M> {
    /// A trie ends with what the model says, and no node of it is left.
    pub fn end_trie(&self, trie: Trie, model: &Model) {
        let mut left = Vec::new();
        self.vm.tries().destroy(trie, |index, entry| left.push((index, entry)));
        assert!(left.into_iter().eq(model.iter().map(|(&index, &entry)| (index, entry))));
        assert_eq!(self.count(vellum::stats::Counter::ObjectNodes), 0);
    }

    /// Does something with a cursor at the root.
    pub fn with_cursor<R>(&self, trie: &Trie, act: impl FnOnce(TrieCursor<'_, '_, M>) -> R) -> R {
        let mut top = Token::top();
        let mut guard = self.vm.tries().lock(trie, &mut top);
        act(guard.cursor())
    }
}
