//! The page-table walker: reads table nodes in place, sets accessed and dirty bits with
//! compare-and-exchange, and keeps nodes in a walk cache.
//!
//! The walk cache maps (context, address prefix) to a node, for every level below the root, and is
//! tried before the root. If the library frees a table node without invalidating it, the walker
//! goes on to use the frame in its next role: the bug that this cache makes visible.

use vellum::addr::{Level, Pfn, Va};
use vellum::entry::{Codec, Entry, Flags};
use vellum::machine::{Asid, MmuRules, Root, Scope};

use super::{Access, PageFault, Translation, reaches};

/// The table memory a walker reads.
pub trait Tables {
    /// An entry, with acquire order.
    fn load(&self, table: Pfn, slot: usize) -> u64;
    /// Exchanges an entry if it still is `old`.
    fn exchange(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64>;
}

#[derive(Clone, Copy, Debug)]
struct Remembered {
    context: Asid,
    level: Level,
    start: Va,
    node: Pfn,
}

/// Nodes one CPU's walker remembers.
#[derive(Debug)]
pub struct WalkCache {
    /// For node levels 1, 2, ... below the root.
    levels: Vec<Box<[Option<Remembered>]>>,
    contexts: bool,
}

/// Bytes a node of this level covers.
const fn span(level: Level) -> u64 {
    level.entry_bytes() << 9
}

impl WalkCache {
    /// An empty one with `nodes` places for each level below a root of level `root`.
    pub fn new(nodes: usize, root: u8, contexts: bool) -> WalkCache {
        let level = || vec![None; nodes.next_power_of_two()].into_boxed_slice();
        WalkCache { levels: (1..root).map(|_| level()).collect(), contexts }
    }
    fn place(&mut self, level: Level, va: Va) -> &mut Option<Remembered> {
        let array = &mut self.levels[level.0 as usize - 1];
        let index = (va.0 / span(level)) as usize & (array.len() - 1);
        &mut array[index]
    }
    /// The lowest node remembered on the way to an address.
    fn lowest(&mut self, context: Asid, va: Va) -> Option<(Level, Pfn)> {
        (1..=self.levels.len() as u8).map(Level).find_map(|level| {
            (*self.place(level, va))
                .filter(|r| r.context == context && r.start == va.align_down(span(level)))
                .map(|r| (level, r.node))
        })
    }
    fn remember(&mut self, context: Asid, level: Level, va: Va, node: Pfn) {
        *self.place(level, va) =
            Some(Remembered { context, level, start: va.align_down(span(level)), node });
    }
    /// Drops what an invalidation names.
    pub fn drop_scope(&mut self, scope: Scope) {
        let contexts = self.contexts;
        for place in self.levels.iter_mut().flat_map(|l| l.iter_mut()) {
            if place.is_some_and(|r| reaches(scope, r.context, r.start, span(r.level), contexts)) {
                *place = None;
            }
        }
    }
    /// Every node remembered.
    pub fn nodes(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.levels.iter().flat_map(|l| l.iter().flatten().map(|r| r.node))
    }
}

impl WalkCache {
    /// Translates `va` for `access` by the tables, sets the bits hardware sets, and
    /// remembers nodes.
    pub fn walk<C: Codec>(
        &mut self,
        tables: &impl Tables,
        rules: &MmuRules,
        root: Root,
        va: Va,
        access: Access,
    ) -> Result<Translation, PageFault> {
        let fault = |present| PageFault { va, access, present };
        if va >= C::user_end(rules.levels) {
            return Err(fault(false));
        }
        let (mut level, mut node) =
            self.lowest(root.asid, va).unwrap_or((Level(rules.levels), root.table));
        loop {
            let slot = level.slot(va);
            let raw = tables.load(node, slot);
            match C::decode(raw, level) {
                Entry::Table(child) | Entry::ZeroTable(child) if level > Level::ONE => {
                    level = level.child();
                    node = child;
                    self.remember(root.asid, level, va, node);
                }
                entry @ (Entry::Leaf(first, flags)
                | Entry::Shared(first, flags)
                | Entry::Device(first, flags, _)) => {
                    let allowed = match access {
                        Access::Read => true,
                        Access::Write => flags.write,
                        Access::Exec => flags.exec,
                    };
                    let dirty = access == Access::Write || flags.dirty;
                    if !allowed {
                        return Err(fault(true));
                    }
                    let wanted = Flags { accessed: true, dirty, ..flags };
                    if wanted != flags {
                        if !rules.hardware_ad {
                            return Err(fault(true));
                        }
                        // The update re-checks the entry by itself: if anything changed since it
                        // was read, read it again.
                        let marked = C::encode(entry.with_flags(wanted), level);
                        if tables.exchange(node, slot, raw, marked).is_err() {
                            continue;
                        }
                    }
                    let start = va.align_down(level.entry_bytes());
                    let (write, exec) = (flags.write, flags.exec);
                    return Ok(Translation {
                        context: root.asid,
                        start,
                        level,
                        first,
                        write,
                        exec,
                        dirty,
                    });
                }
                _ => return Err(fault(false)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use vellum::entry::{Aarch64, X86_64};

    /// Tables as a map, so that a test writes only the entries it means.
    #[derive(Default)]
    struct Map(RefCell<BTreeMap<(u64, usize), u64>>);

    impl Map {
        fn put<C: Codec>(&self, table: u64, level: u8, va: Va, entry: Entry) {
            let level = Level(level);
            self.0.borrow_mut().insert((table, level.slot(va)), C::encode(entry, level));
        }
        fn get<C: Codec>(&self, table: u64, level: u8, va: Va) -> Entry {
            C::decode(self.load(Pfn(table), Level(level).slot(va)), Level(level))
        }
    }
    impl Tables for Map {
        fn load(&self, table: Pfn, slot: usize) -> u64 {
            *self.0.borrow().get(&(table.0, slot)).unwrap_or(&0)
        }
        fn exchange(&self, table: Pfn, slot: usize, old: u64, new: u64) -> Result<(), u64> {
            assert_eq!(self.load(table, slot), old);
            self.0.borrow_mut().insert((table.0, slot), new);
            Ok(())
        }
    }

    const RULES: MmuRules = MmuRules { asids: 8, ..MmuRules::X86_64 };
    const ROOT: Root = Root { table: Pfn(1), asid: Asid(3), flush: false };
    const VA: Va = Va(0x1234_5678_9000);
    const PLAIN: Flags = Flags { write: true, exec: false, accessed: false, dirty: false };

    fn small<C: Codec>(flags: Flags) -> Map {
        let m = Map::default();
        m.put::<C>(1, 4, VA, Entry::Table(Pfn(2)));
        m.put::<C>(2, 3, VA, Entry::Table(Pfn(3)));
        m.put::<C>(3, 2, VA, Entry::Table(Pfn(4)));
        m.put::<C>(4, 1, VA, Entry::Leaf(Pfn(77), flags));
        m
    }

    fn bits_follow_accesses<C: Codec>() {
        let m = small::<C>(PLAIN);
        let mut cache = WalkCache::new(2, 4, true);
        let t = cache.walk::<C>(&m, &RULES, ROOT, VA, Access::Read).unwrap();
        assert_eq!((t.first, t.level, t.write, t.dirty), (Pfn(77), Level::ONE, true, false));
        assert_eq!(m.get::<C>(4, 1, VA), Entry::Leaf(Pfn(77), Flags { accessed: true, ..PLAIN }));
        let t = cache.walk::<C>(&m, &RULES, ROOT, VA, Access::Write).unwrap();
        assert!(t.dirty);
        assert_eq!(
            m.get::<C>(4, 1, VA),
            Entry::Leaf(Pfn(77), Flags { accessed: true, dirty: true, ..PLAIN })
        );
    }

    #[test]
    fn a_read_sets_accessed_and_a_write_sets_dirty_in_both_formats() {
        bits_follow_accesses::<X86_64>();
        bits_follow_accesses::<Aarch64>();
    }

    #[test]
    fn without_hardware_bits_an_unset_bit_is_a_fault_of_a_present_page() {
        let m = small::<X86_64>(PLAIN);
        let rules = MmuRules { hardware_ad: false, ..RULES };
        let mut cache = WalkCache::new(2, 4, true);
        let e = cache.walk::<X86_64>(&m, &rules, ROOT, VA, Access::Read).unwrap_err();
        assert!(e.present);
        let m = small::<X86_64>(Flags { accessed: true, ..PLAIN });
        assert!(cache.walk::<X86_64>(&m, &rules, ROOT, VA, Access::Read).is_ok());
        assert!(cache.walk::<X86_64>(&m, &rules, ROOT, VA, Access::Write).is_err());
    }

    #[test]
    fn rights_are_checked_and_a_refused_access_sets_no_bit() {
        let flags = Flags { write: false, ..PLAIN };
        let m = small::<X86_64>(flags);
        let mut cache = WalkCache::new(2, 4, true);
        for access in [Access::Write, Access::Exec] {
            let e = cache.walk::<X86_64>(&m, &RULES, ROOT, VA, access).unwrap_err();
            assert_eq!(e, PageFault { va: VA, access, present: true });
        }
        assert_eq!(m.get::<X86_64>(4, 1, VA), Entry::Leaf(Pfn(77), flags));
    }

    #[test]
    fn large_leaves_translate_at_their_own_level() {
        let m = Map::default();
        m.put::<X86_64>(1, 4, VA, Entry::Table(Pfn(2)));
        m.put::<X86_64>(2, 3, VA, Entry::Table(Pfn(3)));
        m.put::<X86_64>(3, 2, VA, Entry::Leaf(Pfn(512), PLAIN));
        let mut cache = WalkCache::new(2, 4, true);
        let t = cache.walk::<X86_64>(&m, &RULES, ROOT, VA, Access::Read).unwrap();
        assert_eq!(
            (t.level, t.start, t.frame(VA)),
            (Level::TWO, VA.align_down(2 << 20), Pfn(512 + (VA.page() & 511)))
        );
    }

    #[test]
    fn a_remembered_node_is_walked_until_it_is_flushed() {
        let m = small::<X86_64>(PLAIN);
        let mut cache = WalkCache::new(2, 4, true);
        cache.walk::<X86_64>(&m, &RULES, ROOT, VA, Access::Read).unwrap();
        // The level-1 node is replaced by another; nobody told this CPU.
        m.put::<X86_64>(3, 2, VA, Entry::Table(Pfn(9)));
        m.put::<X86_64>(9, 1, VA, Entry::Leaf(Pfn(88), PLAIN));
        let first = |cache: &mut WalkCache| {
            cache.walk::<X86_64>(&m, &RULES, ROOT, VA, Access::Read).unwrap().first
        };
        assert_eq!(first(&mut cache), Pfn(77));
        cache.drop_scope(Scope::Page(Asid(4), VA));
        assert_eq!(first(&mut cache), Pfn(77), "another context's flush");
        cache.drop_scope(Scope::Page(Asid(3), VA));
        assert_eq!(first(&mut cache), Pfn(88));
    }

    #[test]
    fn addresses_past_the_user_half_and_absent_entries_fault() {
        let m = small::<X86_64>(PLAIN);
        let mut cache = WalkCache::new(2, 4, true);
        for va in [Va(1 << 47), Va(u64::MAX), Va(VA.0 + 4096), Va(0)] {
            let e = cache.walk::<X86_64>(&m, &RULES, ROOT, va, Access::Read).unwrap_err();
            assert!(!e.present);
        }
    }
}
