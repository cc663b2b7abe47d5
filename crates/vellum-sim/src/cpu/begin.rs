//! How accesses by a program begin, and how nearly all of them end: in the page and the line of the
//! last access, or in a page that the first level of TLBs gives at once, and in the line that was
//! used last of its set of the first level of caches.
//!
//! This path is the simulator's speed. It is compiled once for each kind of access, reaches each
//! structure once, and changes what the long way (`access.rs`) would change.

use super::translate::needs;
use super::{CpuState, Kind};
use crate::cache::Level;
use crate::format::Format;
use crate::machine::SimState;

/// How far an access has come.
#[derive(Clone, Copy)]
pub(super) enum Begun {
    /// It is done.
    Done,
    /// It is done, and it is time to look at interrupts and other CPUs.
    Due,
    /// It is translated, to this line.
    Line(u64),
    /// It is counted.
    Counted,
}

impl CpuState {
    /// An access takes its place in the program.
    #[inline(always)]
    fn count(&mut self, kind: Kind) {
        match kind {
            Kind::Fetch => self.counts.fetches += 1,
            Kind::Store => {
                self.core.retire(1);
                self.core.issue_store();
                self.counts.stores += 1;
            }
            Kind::Load => {
                self.core.retire(1);
                self.core.issue(1);
                self.counts.loads += 1;
            }
        }
    }
}

impl<F: Format> SimState<F> {
    /// A load that lies within one line.
    #[inline(never)]
    pub(super) fn begin_load(&mut self, c: usize, va: u64, dependent: bool) -> Begun {
        self.begin_access(c, va, Kind::Load, dependent)
    }

    /// A store that lies within one line.
    #[inline(never)]
    pub(super) fn begin_store(&mut self, c: usize, va: u64) -> Begun {
        self.begin_access(c, va, Kind::Store, false)
    }

    /// A fetch that lies within one line.
    #[inline(never)]
    pub(super) fn begin_fetch(&mut self, c: usize, va: u64) -> Begun {
        self.begin_access(c, va, Kind::Fetch, false)
    }

    #[inline(always)]
    fn begin_access(&mut self, c: usize, va: u64, kind: Kind, dependent: bool) -> Begun {
        let cpu = &mut self.cpus[c];
        cpu.count(kind);
        let (fetches, stores) = (kind == Kind::Fetch, kind == Kind::Store);
        let (recent, tlb) = match kind {
            Kind::Fetch => (&mut cpu.code, &mut cpu.tlb_l1i),
            Kind::Load | Kind::Store => (&mut cpu.data, &mut cpu.tlb_l1d),
        };
        let mut is_again = false;
        let line = if va >> 12 == recent.page && (!stores || recent.writable) {
            let line = (recent.base | va & 4095) >> 6;
            is_again = line == recent.line && (!stores || recent.dirty);
            line
        } else {
            let Some(entry) = tlb.lookup_again(cpu.ctx, va) else { return Begun::Counted };
            let is_plain = !entry.stale && entry.flags.contains(needs(kind));
            if !is_plain || self.walk_check || cpu.root.is_none() {
                return Begun::Counted;
            }
            let address = entry.translate(va);
            if stores {
                self.contents.store(address >> 12);
            }
            (recent.page, recent.base, recent.writable) = (va >> 12, address & !4095, stores);
            address >> 6
        };
        cpu.counts.hits_checked += 1;
        if is_again {
            *(if fetches { &mut cpu.counts.quick_fetches } else { &mut cpu.counts.quick_lines }) +=
                1;
        } else {
            let (first, now) = (cpu.first.as_ref().filter(|_| !fetches), cpu.core.now());
            let is_plain = |set| first.is_none_or(|f| f.is_plain((line, set), va, now));
            if !self.caches.again(c, line, kind.of_cache(), is_plain) {
                return Begun::Line(line);
            }
            (recent.line, recent.dirty) = (line, stores);
        }
        if kind == Kind::Load {
            if dependent {
                cpu.core.served_by(Level::L1 as u8);
            }
            cpu.core.hit(dependent);
        }
        if cpu.core.now() < cpu.until { Begun::Done } else { Begun::Due }
    }
}
