//! One CPU's TLB: direct-mapped, one array for each leaf size.
//!
//! In a direct-mapped TLB, a lookup is one comparison for each size, and replacement needs no
//! state. Which translation is evicted does not matter here; what matters is that translations
//! stay. Tests set the lengths to two entries to cause evictions.

use vellum::addr::{Level, Va};
use vellum::machine::{Asid, Scope};

use super::{Translation, drops_leaf};

/// How many translations a TLB holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Of 4 KiB pages. A power of two.
    pub base: usize,
    /// Of 2 MiB pages. A power of two.
    pub huge: usize,
    /// Of 1 GiB pages. A power of two.
    pub giant: usize,
    /// Table nodes remembered for each level. A power of two.
    pub nodes: usize,
}

impl Shape {
    /// A small real TLB.
    pub const USUAL: Shape = Shape { base: 256, huge: 32, giant: 4, nodes: 16 };
    /// So small that nearly everything is evicted.
    pub const TINY: Shape = Shape { base: 2, huge: 2, giant: 1, nodes: 1 };
}

/// The TLB.
#[derive(Debug)]
pub struct Buffer {
    arrays: [Box<[Option<Translation>]>; 3],
    contexts: bool,
}

impl Buffer {
    /// An empty one. `contexts`: it keeps spaces apart by their identifier.
    pub fn new(shape: Shape, contexts: bool) -> Buffer {
        let array = |n: usize| vec![None; n.next_power_of_two()].into_boxed_slice();
        Buffer { arrays: [array(shape.base), array(shape.huge), array(shape.giant)], contexts }
    }

    #[inline]
    fn place(&mut self, level: Level, va: Va) -> &mut Option<Translation> {
        let array = &mut self.arrays[level.0 as usize - 1];
        let index = (va.0 >> level.shift()) as usize & (array.len() - 1);
        &mut array[index]
    }

    /// The translation of an address, if one is held.
    #[inline]
    pub fn find(&mut self, context: Asid, va: Va) -> Option<Translation> {
        [Level::ONE, Level::TWO, Level::THREE]
            .into_iter()
            .find_map(|level| (*self.place(level, va)).filter(|t| t.covers(context, va)))
    }

    /// Takes a translation in. What lay in its place goes; so does one of the same size for the
    /// same address.
    pub fn fill(&mut self, t: Translation) {
        *self.place(t.level, t.start) = Some(t);
    }

    /// A held translation of another size that overlaps `t` in the same space. On aarch64 two such
    /// at once are an error.
    pub fn conflict(&self, t: &Translation) -> Option<Translation> {
        let (start, end) = (t.start.0, t.start.0 + t.level.entry_bytes());
        self.held().find(|o| {
            o.context == t.context
                && o.level != t.level
                && o.start.0 < end
                && start < o.start.0 + o.level.entry_bytes()
        })
    }

    /// Drops what an invalidation names.
    pub fn drop_scope(&mut self, scope: Scope) {
        let contexts = self.contexts;
        if let Scope::Page(_, va) = scope {
            // The usual case: one place in each array.
            for level in [Level::ONE, Level::TWO, Level::THREE] {
                let place = self.place(level, va);
                if place.is_some_and(|t| drops_leaf(scope, &t, contexts)) {
                    *place = None;
                }
            }
            return;
        }
        for place in self.arrays.iter_mut().flat_map(|a| a.iter_mut()) {
            if place.is_some_and(|t| drops_leaf(scope, &t, contexts)) {
                *place = None;
            }
        }
    }

    /// Every translation held.
    pub fn held(&self) -> impl Iterator<Item = Translation> + '_ {
        self.arrays.iter().flat_map(|a| a.iter().flatten().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum::addr::{Pfn, VaRange};

    const TOP: Va = Va(1 << 47);

    fn leaf(context: u16, start: u64, level: Level) -> Translation {
        Translation {
            context: Asid(context),
            start: Va(start),
            level,
            first: Pfn(start >> 12 << 1),
            write: true,
            exec: false,
            dirty: false,
        }
    }

    fn holding(list: &[Translation]) -> Buffer {
        let mut b = Buffer::new(Shape::USUAL, true);
        list.iter().for_each(|&t| b.fill(t));
        b
    }

    #[test]
    fn a_translation_is_found_at_every_address_of_its_block_and_nowhere_else() {
        for level in [Level::ONE, Level::TWO, Level::THREE] {
            let start = 5 * level.entry_bytes();
            let t = leaf(1, start, level);
            let mut b = holding(&[t]);
            assert_eq!(b.find(Asid(1), Va(start)), Some(t));
            assert_eq!(b.find(Asid(1), Va(start + level.entry_bytes() - 1)), Some(t));
            assert_eq!(b.find(Asid(1), Va(start - 1)), None);
            assert_eq!(b.find(Asid(1), Va(start + level.entry_bytes())), None);
            assert_eq!(b.find(Asid(2), Va(start)), None);
            assert_eq!(
                t.frame(Va(start + level.entry_bytes() - 1)),
                t.first.add(level.entry_bytes() / 4096 - 1)
            );
        }
    }

    #[test]
    fn a_page_flush_drops_every_size_at_its_address_and_nothing_beside() {
        let gib = Level::THREE.entry_bytes();
        let all = [leaf(1, gib, Level::ONE), leaf(1, gib, Level::TWO), leaf(1, gib, Level::THREE)];
        let other = [leaf(1, gib + 4096, Level::ONE), leaf(2, gib, Level::ONE)];
        let mut b = Buffer::new(Shape::USUAL, true);
        all.iter().chain(&other[..1]).for_each(|&t| b.fill(t));
        b.drop_scope(Scope::Page(Asid(1), Va(gib + 5)));
        assert_eq!(b.held().collect::<Vec<_>>(), &other[..1]);
        b.fill(other[1]);
        b.drop_scope(Scope::Page(Asid(1), Va(gib)));
        assert_eq!(b.find(Asid(2), Va(gib)), Some(other[1]));
    }

    #[test]
    fn a_range_flush_takes_its_smallest_leaf_at_its_word() {
        let small = leaf(1, 4 << 20, Level::ONE);
        let huge = leaf(1, 6 << 20, Level::TWO);
        let range = VaRange::new(Va(4 << 20), 4 << 20, TOP).unwrap();
        let mut b = holding(&[small, huge]);
        b.drop_scope(Scope::Range(Asid(1), range, Level::TWO));
        assert_eq!(b.held().collect::<Vec<_>>(), [small]);
        let mut b = holding(&[small, huge, leaf(1, 8 << 20, Level::ONE)]);
        b.drop_scope(Scope::Range(Asid(1), range, Level::ONE));
        assert_eq!(b.held().collect::<Vec<_>>(), [leaf(1, 8 << 20, Level::ONE)]);
    }

    #[test]
    fn a_space_flush_drops_one_context_and_all_drops_every_one() {
        let (a, c) = (leaf(1, 4096, Level::ONE), leaf(2, 8192, Level::ONE));
        let mut b = holding(&[a, c]);
        b.drop_scope(Scope::Space(Asid(1)));
        assert_eq!(b.held().collect::<Vec<_>>(), [c]);
        b.drop_scope(Scope::All);
        assert_eq!(b.held().count(), 0);
    }

    #[test]
    fn overlapping_sizes_are_seen_as_a_conflict_but_not_across_contexts() {
        let small = leaf(1, (2 << 20) + 4096, Level::ONE);
        let b = holding(&[small]);
        assert_eq!(b.conflict(&leaf(1, 2 << 20, Level::TWO)), Some(small));
        assert_eq!(b.conflict(&leaf(2, 2 << 20, Level::TWO)), None);
        assert_eq!(b.conflict(&leaf(1, 4 << 20, Level::TWO)), None);
        assert_eq!(b.conflict(&leaf(1, (2 << 20) + 8192, Level::ONE)), None);
    }

    #[test]
    fn two_entries_evict_each_other_and_nothing_is_translated_wrongly() {
        let mut b = Buffer::new(Shape::TINY, true);
        for page in 1..100u64 {
            b.fill(leaf(1, page << 12, Level::ONE));
            assert_eq!(b.find(Asid(1), Va(page << 12)).map(|t| t.first), Some(Pfn(page << 1)));
        }
        assert_eq!(b.held().count(), 2);
    }
}
