//! One access by a program: translation, cache line, time, contents. Nearly all end where they
//! begin (`begin.rs`), and never come here.

use crate::cache::{Agent, Level};
use crate::cpu::prefetch::Miss;
use crate::cpu::{CpuState, Kind, NONE, Price};
use crate::format::Format;
use crate::machine::SimState;
use crate::memory::{Ready, Ticks};

/// A page fault, for the kernel to serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageFault {
    /// The address.
    pub va: u64,
    /// What the program wanted to do there.
    pub kind: Kind,
    /// The table where the walk ended and its count of stores: together they say whether anything
    /// changed since.
    pub(crate) table: u64,
    pub(crate) stores: u32,
}

/// The version of a line's contents as an access saw it: 1 for zeros, a number of its own for each
/// store. 0 outside walk checking, which does not keep versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen(pub u64);

/// The data side of an access.
pub(super) struct Touch {
    pub va: u64,
    pub line: u64,
    pub kind: Kind,
    /// Its address is the result of the load before.
    pub dependent: bool,
    /// When its translation is there, if the first level of TLBs missed.
    pub late: Option<Ready>,
}

impl Touch {
    /// It is a load that waits for the one before.
    pub(super) fn is_dependent(&self) -> bool {
        self.dependent && self.kind == Kind::Load
    }

    /// It may begin later than an access that depends on nothing.
    fn begins_later(&self) -> bool {
        self.is_dependent() || self.late.is_some()
    }
}

impl CpuState {
    /// A line is not there yet.
    #[inline(never)]
    fn is_coming(&self, touch: &Touch) -> bool {
        let now = self.core.now();
        self.first.as_ref().is_some_and(|f| f.on_its_way(touch.line, touch.va, now).is_some())
    }
}

/// Why an access did not happen.
pub(crate) enum Trap {
    Fault(PageFault),
    Stop,
}

impl<F: Format> SimState<F> {
    /// The rest of an access that is counted; `line`: and translated.
    pub(super) fn access(
        &mut self,
        c: usize,
        (va, line): (u64, Option<u64>),
        kind: Kind,
        dependent: bool,
    ) -> Result<Seen, Trap> {
        let (line, late) = match line {
            Some(line) => (line, None),
            None => {
                let t = self.translate(c, va, kind, dependent)?;
                (t.address >> 6, t.late)
            }
        };
        self.touch(c, &Touch { va, line, kind, dependent, late });
        if !self.walk_check {
            return Ok(Seen(0));
        }
        Ok(Seen(if kind == Kind::Store {
            self.contents.store_line(line)
        } else {
            self.contents.line(line)
        }))
    }

    /// The next access lies behind a branch that was predicted wrongly.
    pub(crate) fn mispredicted(&mut self, c: usize) {
        let cpu = &mut self.cpus[c];
        let anew = cpu.core.mispredicted();
        if anew > Ticks::ZERO {
            cpu.charge(Price::Mispredict, anew);
        }
    }

    /// The data side of an access: caches and time.
    #[inline(always)]
    fn touch(&mut self, c: usize, touch: &Touch) {
        let &Touch { line, kind, dependent, late, .. } = touch;
        let is_first = self.cpus[c].first.is_some() && kind != Kind::Fetch;
        if is_first && self.joins(c, touch) {
            return;
        }
        let mut served = self.caches.access(c, Agent::Demand, line, kind.of_cache());
        if is_first {
            served.level = self.in_predicted_way(c, touch, served.level);
        }
        let mut latency = self.caches.latency(served.level);
        if served.level == Level::Memory {
            let cpu = &self.cpus[c];
            latency += self.memory.read(cpu.core.now(), cpu.node, line);
            self.forget_recalled();
        }
        if served.write_backs > 0 {
            self.write_back(c);
        }
        let cpu = &mut self.cpus[c];
        if served.level == Level::Llc {
            let ready = late.unwrap_or_default().at;
            let start = cpu.core.starts(ready, touch.is_dependent());
            latency += cpu.core.from_last_level(start);
        }
        let first = served.level == Level::L1;
        // A line on its way is looked for again: whoever finds it waits for it, if not this access,
        // which may begin when the line is there.
        let coming = is_first && (!first || touch.begins_later() && cpu.is_coming(touch));
        let recent = if kind == Kind::Fetch { &mut cpu.code } else { &mut cpu.data };
        recent.line = if coming { NONE } else { line };
        recent.dirty = kind == Kind::Store;
        cpu.core.served_by(served.level as u8);
        if !first && (is_first || cpu.prefetcher.is_some()) {
            return self.miss_trains(
                c,
                touch,
                &Miss { level: served.level, latency, pushed: served.pushed },
            );
        }
        let Some(ready) = late else {
            match kind {
                Kind::Load if first => cpu.core.hit(dependent),
                Kind::Load => cpu.core.load(latency, dependent),
                Kind::Store if first => Ticks::ZERO,
                Kind::Store => cpu.core.store(latency),
                Kind::Fetch if first => Ticks::ZERO,
                Kind::Fetch => cpu.core.load(latency, false),
            };
            return;
        };
        match kind {
            Kind::Store => cpu.core.store_after(ready, latency, !first),
            Kind::Load => cpu.core.load_after(ready, latency, dependent, !first),
            Kind::Fetch => cpu.core.load_after(ready, latency, false, !first),
        };
    }

    /// An access to a line that is on its way waits for it. Says whether it is one.
    #[inline(never)]
    fn joins(&mut self, c: usize, touch: &Touch) -> bool {
        let cpu = &mut self.cpus[c];
        let (ready, dependent) = (touch.late.unwrap_or_default(), touch.is_dependent());
        let start = cpu.core.starts(ready.at, dependent);
        let found = cpu.first.as_ref().and_then(|f| f.on_its_way(touch.line, touch.va, start));
        let Some((at, source)) = found else { return false };
        self.caches.joins(c, touch.kind.of_cache());
        // The caches may have lost it again: the next access looks.
        cpu.data.line = NONE;
        cpu.core.served_by(source);
        match touch.kind {
            Kind::Store => cpu.core.store_joining(ready, at),
            _ => cpu.core.load_joining(ready, at, dependent),
        };
        true
    }

    /// The level that serves an access, after the way was predicted.
    #[inline(never)]
    fn in_predicted_way(&mut self, c: usize, touch: &Touch, level: Level) -> Level {
        let set = self.caches.first_set(c, touch.line);
        let Some(first) = &mut self.cpus[c].first else { return level };
        if first.predicts((touch.line, set), touch.va) || level != Level::L1 {
            return level;
        }
        self.caches.misses_way(c, touch.line, touch.kind.of_cache())
    }

    /// Lines that the last cache access pushed out go to memory.
    #[inline(never)]
    pub(crate) fn write_back(&mut self, c: usize) {
        let now = self.cpus[c].core.now();
        for &line in self.caches.write_backs() {
            self.memory.write_back(now, line);
        }
    }
}
