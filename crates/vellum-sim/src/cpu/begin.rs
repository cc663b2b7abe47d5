//! How accesses by a program begin, and how nearly all of them end: in the page and the line of the
//! last access, or in a page that the first level of TLBs gives at once and a line of the first
//! level of caches. A first level of which a machine's file says more (`l1d.refill`,
//! `l1d.way_predictor`) gives only the line at once that was used last of its set.
//!
//! This path is the simulator's speed. It is compiled once for each kind of access, and changes
//! what the long way (`access.rs`) would change.

use super::translate::needs;
use super::{CpuState, Kind};
use crate::cache::Level;
use crate::format::Format;
use crate::machine::SimState;

/// How far an access has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// It is done.
    Done,
    /// It is done, and it is time to look at interrupts and other CPUs.
    Due,
    /// It is translated, to this line.
    Line(u64),
    /// It is counted.
    Counted,
    /// It is in several lines, and has not begun in any.
    Split,
}

const LOAD: u8 = Kind::Load as u8;
const STORE: u8 = Kind::Store as u8;
const FETCH: u8 = Kind::Fetch as u8;

#[inline(always)]
fn kind<const KIND: u8>() -> Kind {
    match KIND {
        LOAD => Kind::Load,
        STORE => Kind::Store,
        _ => Kind::Fetch,
    }
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

    /// An access hits the first levels of both.
    #[inline(always)]
    fn hits(&mut self, kind: Kind, dependent: bool) -> Step {
        self.counts.hits_checked += 1;
        if kind == Kind::Load {
            if dependent {
                self.core.served_by(Level::L1 as u8);
            }
            self.core.hit(dependent);
        }
        if self.core.now() < self.until { Step::Done } else { Step::Due }
    }
}

impl<F: Format> SimState<F> {
    /// A load that lies within one line.
    #[inline(never)]
    pub(super) fn begin_load(&mut self, c: usize, va: u64, dependent: bool) -> Step {
        self.begin_access::<LOAD>(c, va, dependent)
    }

    /// A store that lies within one line.
    #[inline(never)]
    pub(super) fn begin_store(&mut self, c: usize, va: u64) -> Step {
        self.begin_access::<STORE>(c, va, false)
    }

    /// A fetch that lies within one line.
    #[inline(never)]
    pub(super) fn begin_fetch(&mut self, c: usize, va: u64) -> Step {
        self.begin_access::<FETCH>(c, va, false)
    }

    #[inline(always)]
    fn begin_access<const KIND: u8>(&mut self, c: usize, va: u64, dependent: bool) -> Step {
        let kind = kind::<KIND>();
        let cpu = &mut self.cpus[c];
        cpu.count(kind);
        let (fetches, stores) = (kind == Kind::Fetch, kind == Kind::Store);
        let recent = if fetches { &cpu.code } else { &cpu.data };
        let line = (recent.base | va & 4095) >> 6;
        if va >> 12 != recent.page
            || line != recent.line
            || stores && !(recent.writable && recent.dirty)
        {
            return self.begin_anew::<KIND>(c, va, dependent);
        }
        *(if fetches { &mut cpu.counts.quick_fetches } else { &mut cpu.counts.quick_lines }) += 1;
        cpu.hits(kind, dependent)
    }

    /// The same in another line than the last access of its kind.
    #[inline(never)]
    fn begin_anew<const KIND: u8>(&mut self, c: usize, va: u64, dependent: bool) -> Step {
        let kind = kind::<KIND>();
        let cpu = &mut self.cpus[c];
        let (fetches, stores) = (kind == Kind::Fetch, kind == Kind::Store);
        let (recent, tlb) = match kind {
            Kind::Fetch => (&mut cpu.code, &mut cpu.tlb_l1i),
            Kind::Load | Kind::Store => (&mut cpu.data, &mut cpu.tlb_l1d),
        };
        let line = if va >> 12 == recent.page && (!stores || recent.writable) {
            (recent.base | va & 4095) >> 6
        } else {
            let Some(entry) = tlb.lookup_again(cpu.ctx, va) else { return Step::Counted };
            let is_plain = !entry.stale && entry.flags.contains(needs(kind));
            if !is_plain || self.walk_check || cpu.root.is_none() {
                return Step::Counted;
            }
            let address = entry.translate(va);
            if stores {
                self.contents.store(address >> 12);
            }
            (recent.page, recent.base, recent.writable) = (va >> 12, address & !4095, stores);
            address >> 6
        };
        let (first, now) = (cpu.first.as_ref().filter(|_| !fetches), cpu.core.now());
        let is_plain = |set| first.is_none_or(|f| f.is_plain((line, set), va, now));
        if !self.caches.again(c, line, kind.of_cache(), (is_plain, first.is_none())) {
            cpu.counts.hits_checked += 1;
            return Step::Line(line);
        }
        (recent.line, recent.dirty) = (line, stores);
        cpu.hits(kind, dependent)
    }
}
