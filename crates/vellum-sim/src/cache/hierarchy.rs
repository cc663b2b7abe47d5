//! The caches of a whole machine: private L1I, L1D and L2 for each CPU, one last level for each
//! group of CPUs.
//!
//! An L1 hit is one search and one addition; everything else is outlined. The caller needs only the
//! level that served an access, and looks its latency up ([`Hierarchy::latency`]).
//!
//! Machines differ in how the last level relates to the private ones ([`Inclusion`]). Dirty lines
//! that leave the last level are reported ([`Hierarchy::write_backs`]), because they take memory
//! bandwidth.
//!
//! Rejected: coherence between private caches. A line may be in two CPUs' caches at once, and a
//! write does not invalidate the other copy, so the counters lack the simulated program's sharing
//! misses. A directory would cost as much as the last level itself on every store, and what is
//! compared here (page sizes, flushes, clearing) does not change which CPUs share lines.

use super::geometry::{Geometry, GeometryError};
use super::last::LastLevel;
use super::single::{Cache, Lookup, Victim};
use crate::memory::Ticks;

/// On whose behalf an access is made; cache counters are kept apart for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Agent {
    /// The simulated program.
    Demand,
    /// The page-table walker.
    Walk,
    /// The kernel: clearing, copying, its own tables.
    Kernel,
}

impl Agent {
    /// All agents, in order of their number.
    pub const ALL: [Agent; 3] = [Agent::Demand, Agent::Walk, Agent::Kernel];
}

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A data read.
    Load,
    /// A data write.
    Store,
    /// An instruction fetch: goes to the L1I.
    Fetch,
}

/// What served an access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Level {
    /// The first level (L1D, or L1I for fetches).
    L1,
    /// The CPU's second level.
    L2,
    /// The last level of the CPU's group.
    Llc,
    /// No cache had it.
    Memory,
}

/// A cache of the hierarchy, for counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Structure {
    /// First level, instructions.
    L1i,
    /// First level, data.
    L1d,
    /// Second level.
    L2,
    /// Last level.
    Llc,
}

/// How the last level relates to the private levels above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Inclusion {
    /// Holds every line the private levels of its group hold; what leaves it leaves them too.
    Inclusive,
    /// Holds what left an L2; a hit moves the line up and out.
    Victim,
    /// Is filled on a miss like the others, and may lose a line that an L2 still holds.
    Independent,
}

/// What a [`Hierarchy`] is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// CPUs.
    pub cpus: usize,
    /// CPUs that share one last-level cache; the last group may be smaller.
    pub cpus_per_llc: usize,
    /// First level, instructions, per CPU.
    pub l1i: Geometry,
    /// First level, data, per CPU.
    pub l1d: Geometry,
    /// Second level, per CPU.
    pub l2: Geometry,
    /// Last level, per group.
    pub llc: Geometry,
    /// What the last level holds.
    pub inclusion: Inclusion,
    /// Load-to-use time of a hit in L1D, L2 and last level, and what a miss in the last level adds
    /// to memory's own latency.
    pub latency: [Ticks; 4],
    /// Lines of physical memory, from line address 0.
    pub lines: u64,
}

/// The level that served an access, and how many dirty lines it pushed out to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// Where the line was.
    pub level: Level,
    /// Dirty lines that went to memory; which ones, [`Hierarchy::write_backs`] says until the next
    /// access.
    pub write_backs: u8,
    /// A dirty line left the first level.
    pub pushed: bool,
}

const KINDS: usize = 3;
const LEVELS: usize = 4;

/// Accesses of one CPU by agent, kind and level that served them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuCounters {
    served: [[[u64; LEVELS]; KINDS]; 3],
}

impl CpuCounters {
    /// Accesses of one agent and kind that one level served.
    pub fn served(&self, agent: Agent, kind: Kind, level: Level) -> u64 {
        self.served[agent as usize][kind as usize][level as usize]
    }

    /// Lookups in a cache.
    pub fn accesses(&self, agent: Agent, structure: Structure) -> u64 {
        self.from(agent, structure, 0)
    }

    /// Lookups in a cache that did not find the line.
    pub fn misses(&self, agent: Agent, structure: Structure) -> u64 {
        self.from(agent, structure, 1)
    }

    fn from(&self, agent: Agent, structure: Structure, beyond: usize) -> u64 {
        let (kinds, first) = match structure {
            Structure::L1i => (2..3, 0),
            Structure::L1d => (0..2, 0),
            Structure::L2 => (0..3, 1),
            Structure::Llc => (0..3, 2),
        };
        kinds
            .map(|kind| self.served[agent as usize][kind][first + beyond..].iter().sum::<u64>())
            .sum()
    }

    /// Adds another CPU's counts.
    pub fn add(&mut self, other: &CpuCounters) {
        let theirs = other.served.iter().flatten().flatten();
        for (mine, their) in self.served.iter_mut().flatten().flatten().zip(theirs) {
            *mine += their;
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Private {
    pub(super) l1d: Cache,
    pub(super) l1i: Cache,
    pub(super) l2: Cache,
    pub(super) group: usize,
    pub(super) counters: CpuCounters,
}

/// All caches of a machine.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    pub(super) cpus: Vec<Private>,
    pub(super) llcs: Vec<LastLevel>,
    pub(super) cpus_per_llc: usize,
    pub(super) inclusion: Inclusion,
    latency: [Ticks; 4],
    pub(super) out: WriteBacks,
    /// One past the highest CPU that ever made an access: caches beyond are empty.
    pub(super) used: usize,
    pub(super) recalled: bool,
}

/// Dirty lines the last access pushed out. An access moves at most one line out of each of four
/// places.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriteBacks {
    lines: [u64; 6],
    count: u8,
}

impl WriteBacks {
    #[inline]
    pub(super) fn push(&mut self, victim: Option<Victim>) {
        if let Some(Victim { line, dirty: true, .. }) = victim {
            self.lines[usize::from(self.count)] = line;
            self.count += 1;
        }
    }
    #[inline]
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }
    #[inline]
    pub(super) fn count(&self) -> u8 {
        self.count
    }
}

impl Hierarchy {
    /// Empty caches of the given shape.
    pub fn new(shape: &Shape) -> Result<Hierarchy, GeometryError> {
        for geometry in [&shape.l1i, &shape.l1d, &shape.l2, &shape.llc] {
            geometry.check()?;
            if shape.lines > geometry.reach() {
                return Err(GeometryError::Reach {
                    sets: geometry.sets,
                    reach: geometry.reach(),
                    lines: shape.lines,
                });
            }
        }
        let group = shape.cpus_per_llc.max(1);
        // Caches of different CPUs draw different random victims.
        let seeded = |g: &Geometry, n: usize| Geometry { seed: g.seed ^ (n as u64) << 32, ..*g };
        let private = |cpu: usize| {
            Ok(Private {
                l1d: Cache::new(seeded(&shape.l1d, cpu))?,
                l1i: Cache::new(seeded(&shape.l1i, cpu))?,
                l2: Cache::new(seeded(&shape.l2, cpu))?,
                group: cpu / group,
                counters: CpuCounters::default(),
            })
        };
        let victim = shape.inclusion == Inclusion::Victim;
        let llc = |n: usize| LastLevel::new(seeded(&shape.llc, n), shape.lines, victim);
        Ok(Hierarchy {
            cpus: (0..shape.cpus).map(private).collect::<Result<_, GeometryError>>()?,
            llcs: (0..shape.cpus.div_ceil(group)).map(llc).collect::<Result<_, GeometryError>>()?,
            cpus_per_llc: group,
            inclusion: shape.inclusion,
            recalled: false,
            latency: shape.latency,
            out: WriteBacks::default(),
            used: 0,
        })
    }

    /// Shapes of L1D, L2 and last level.
    pub fn geometry(&self) -> [&Geometry; 3] {
        [self.cpus[0].l1d.geometry(), self.cpus[0].l2.geometry(), self.llcs[0].cache().geometry()]
    }

    /// Load-to-use time of a hit in a level; for [`Level::Memory`], what the lookups before it
    /// cost.
    #[inline]
    pub fn latency(&self, level: Level) -> Ticks {
        self.latency[level as usize]
    }

    /// One access of a CPU to a line; the line ends up in its L1 and L2.
    #[inline(always)]
    pub fn access(&mut self, cpu: usize, agent: Agent, line: u64, kind: Kind) -> Served {
        let private = &mut self.cpus[cpu];
        let first = if kind == Kind::Fetch { &mut private.l1i } else { &mut private.l1d };
        match first.access(line, kind == Kind::Store) {
            Lookup::Hit => {
                private.counters.served[agent as usize][kind as usize][0] += 1;
                Served { level: Level::L1, write_backs: 0, pushed: false }
            }
            Lookup::Miss(victim) => self.beyond_l1(cpu, agent, line, kind, victim),
        }
    }

    /// An access of a program to a line of the first level, if it is seen at once: the one that was
    /// used last in its set, which `is_plain`, told the set, may refuse, or with `any` another.
    /// `false` says nothing, and changes nothing.
    #[inline(always)]
    pub fn again(
        &mut self,
        cpu: usize,
        line: u64,
        kind: Kind,
        (is_plain, any): (impl FnOnce(usize) -> bool, bool),
    ) -> bool {
        let private = &mut self.cpus[cpu];
        let first = if kind == Kind::Fetch { &mut private.l1i } else { &mut private.l1d };
        let write = kind == Kind::Store;
        let hits =
            first.access_again(line, write, is_plain) || any && first.access_there(line, write);
        private.counters.served[Agent::Demand as usize][kind as usize][0] += u64::from(hits);
        hits
    }

    /// The set of the first level of data that a line belongs into.
    #[inline]
    pub fn first_set(&self, cpu: usize, line: u64) -> usize {
        self.cpus[cpu].l1d.set_of(line)
    }

    /// A CPU's program finds a line on its way into its first level.
    pub fn joins(&mut self, cpu: usize, kind: Kind) {
        self.count(cpu, Agent::Demand, kind, Level::L1, 1);
    }

    /// What was found in the first level was looked for in the wrong way: the second level serves
    /// the access. It is a use of the line there, too.
    pub fn misses_way(&mut self, cpu: usize, line: u64, kind: Kind) -> Level {
        let private = &mut self.cpus[cpu];
        if private.l2.probe(line) {
            private.l2.access(line, false);
        }
        let served = &mut private.counters.served[Agent::Demand as usize][kind as usize];
        served[Level::L1 as usize] -= 1;
        served[Level::L2 as usize] += 1;
        Level::L2
    }

    /// A CPU looks beyond its first level.
    #[inline]
    pub(super) fn uses(&mut self, cpu: usize) {
        if cpu >= self.used {
            self.uses_first(cpu);
        }
    }

    #[cold]
    fn uses_first(&mut self, cpu: usize) {
        let awake = self.used.div_ceil(self.cpus_per_llc);
        self.llcs[awake..=cpu / self.cpus_per_llc].iter_mut().for_each(LastLevel::wake);
        self.used = cpu + 1;
    }

    #[inline(never)]
    fn beyond_l1(
        &mut self,
        cpu: usize,
        agent: Agent,
        line: u64,
        kind: Kind,
        victim: Option<Victim>,
    ) -> Served {
        self.out.clear();
        self.uses(cpu);
        let level = self.serve(cpu, line, victim);
        self.cpus[cpu].counters.served[agent as usize][kind as usize][level as usize] += 1;
        let pushed = victim.is_some_and(|left| left.dirty);
        Served { level, write_backs: self.out.count(), pushed }
    }

    /// Brings a line that missed in an L1 into the L2, and puts away what leaves.
    #[inline]
    pub(super) fn serve(&mut self, cpu: usize, line: u64, l1_victim: Option<Victim>) -> Level {
        let private = &mut self.cpus[cpu];
        if let Some(old @ Victim { dirty: true, .. }) = l1_victim {
            let group = private.group;
            if let Lookup::Miss(Some(pushed)) = private.l2.fill(old) {
                self.leave_l2(group, pushed);
            }
        }
        self.fill_l2(cpu, line)
    }

    /// Brings a line into the L2 of a CPU, from where it is.
    #[inline]
    fn fill_l2(&mut self, cpu: usize, line: u64) -> Level {
        let private = &mut self.cpus[cpu];
        let group = private.group;
        let l2_victim = match private.l2.access(line, false) {
            Lookup::Hit => return Level::L2,
            Lookup::Miss(victim) => victim,
        };
        let level = if self.inclusion == Inclusion::Victim {
            match self.llcs[group].take(line) {
                Some(dirty) => {
                    self.cpus[cpu].l2.mark_reused(dirty);
                    Level::Llc
                }
                None => Level::Memory,
            }
        } else {
            match self.llcs[group].access(line) {
                Lookup::Hit => Level::Llc,
                Lookup::Miss(victim) => {
                    self.leave_llc(group, victim);
                    Level::Memory
                }
            }
        };
        if let Some(victim) = l2_victim {
            self.leave_l2(group, victim);
        }
        level
    }

    /// Brings a line into the L2 of a CPU ahead of its use, and into the last level as a miss does;
    /// `None` if the L2 has it. Counts as no access.
    pub fn prefetch(&mut self, cpu: usize, line: u64) -> Option<Served> {
        if self.cpus[cpu].l2.probe(line) {
            return None;
        }
        self.out.clear();
        self.uses(cpu);
        let level = self.fill_l2(cpu, line);
        Some(Served { level, write_backs: self.out.count(), pushed: false })
    }

    /// A line left an L2 of this group.
    #[inline]
    fn leave_l2(&mut self, group: usize, victim: Victim) {
        let llc = &mut self.llcs[group];
        if self.inclusion == Inclusion::Victim || victim.dirty && !llc.mark_dirty(victim.line) {
            let pushed = llc.fill(victim);
            self.leave_llc(group, pushed);
        }
    }

    /// A line left the last level of this group; an inclusive one takes it from the levels above.
    #[inline]
    fn leave_llc(&mut self, group: usize, victim: Option<Victim>) {
        let Some(mut victim) = victim else { return };
        if self.inclusion == Inclusion::Inclusive {
            let first = group * self.cpus_per_llc;
            let last = (first + self.cpus_per_llc).min(self.used);
            for private in self.cpus.get_mut(first..last).unwrap_or_default() {
                for cache in [&mut private.l1d, &mut private.l1i, &mut private.l2] {
                    let taken = cache.take(victim.line);
                    victim.dirty |= taken == Some(true);
                    self.recalled |= taken.is_some();
                }
            }
        }
        self.out.push(Some(victim));
    }

    /// Whether, since this was last asked, an inclusive last level took a line from a private
    /// cache: whoever remembers that a line is in one must forget it.
    #[inline]
    pub fn take_recalled(&mut self) -> bool {
        std::mem::take(&mut self.recalled)
    }

    /// Dirty lines that the last access pushed out to memory.
    pub fn write_backs(&self) -> &[u64] {
        &self.out.lines[..usize::from(self.out.count)]
    }

    /// Drops lines from every cache without writing them back (their contents are void: a freed or
    /// discarded run of frames).
    pub fn discard(&mut self, first_line: u64, count: u64) {
        for line in first_line..first_line + count {
            for private in &mut self.cpus {
                for cache in [&mut private.l1d, &mut private.l1i, &mut private.l2] {
                    cache.take(line);
                }
            }
            for llc in &mut self.llcs {
                llc.take(line);
            }
        }
    }

    /// A CPU's counters.
    pub fn counters(&self, cpu: usize) -> &CpuCounters {
        &self.cpus[cpu].counters
    }

    /// All CPUs' counters added up.
    pub fn totals(&self) -> CpuCounters {
        let mut sum = CpuCounters::default();
        self.cpus.iter().for_each(|p| sum.add(&p.counters));
        sum
    }

    pub(super) fn count(&mut self, cpu: usize, agent: Agent, kind: Kind, level: Level, lines: u64) {
        self.cpus[cpu].counters.served[agent as usize][kind as usize][level as usize] += lines;
    }

    /// Checks each cache of a CPU that made an access, or one before it, and that an inclusive last
    /// level holds what its group holds.
    pub fn validate(&self) -> Result<(), String> {
        for (n, llc) in self.llcs[..self.used.div_ceil(self.cpus_per_llc)].iter().enumerate() {
            llc.validate().map_err(|e| format!("LLC {n}: {e}"))?;
        }
        for (cpu, private) in self.cpus[..self.used].iter().enumerate() {
            for (name, cache) in [("L1D", &private.l1d), ("L1I", &private.l1i), ("L2", &private.l2)]
            {
                cache.validate().map_err(|e| format!("CPU {cpu} {name}: {e}"))?;
                let llc = self.llcs[private.group].cache();
                if self.inclusion == Inclusion::Inclusive
                    && let Some(lost) = cache.lines().find(|l| !llc.probe(l.line))
                {
                    return Err(format!(
                        "CPU {cpu} {name}: line {} is not in the inclusive last level",
                        lost.line
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "hierarchy_tests.rs"]
mod tests;
