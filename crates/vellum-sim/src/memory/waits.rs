//! What a core spent its time waiting for.

use super::pending::Pending;
use super::ticks::Ticks;

/// Waits for which translations are to blame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Translating {
    /// Lookups in the second-level TLB.
    pub second_level: Ticks,
    /// Page walks.
    pub walks: Ticks,
}

impl Translating {
    /// Adds the part of a wait for an access for which its translation is to blame.
    pub(super) fn blame(&mut self, p: &Pending, wait: Ticks) {
        let blamed = if p.walked { &mut self.walks } else { &mut self.second_level };
        *blamed += p.blame(wait);
    }
}

/// Kinds of what serves an access: the levels of a hierarchy.
pub(crate) const SOURCES: usize = 4;

/// What held a core up, all added up. An access that was waited for did so from its beginning:
/// instructions that retired meanwhile would not have made the wait shorter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// Accesses, by what served them.
    pub(crate) sources: [Ticks; SOURCES],
    /// Their translations.
    pub(crate) translating: Translating,
    /// The load port.
    pub(crate) port: Ticks,
    /// The part of these in which instructions retired.
    pub(super) hidden: Ticks,
}

impl Waits {
    /// None yet.
    pub(crate) const NONE: Waits = Waits {
        sources: [Ticks::ZERO; SOURCES],
        translating: Translating { second_level: Ticks::ZERO, walks: Ticks::ZERO },
        port: Ticks::ZERO,
        hidden: Ticks::ZERO,
    };

    /// What came to them since `earlier`.
    pub(crate) fn since(&self, earlier: &Waits) -> Waits {
        let mut d = *self;
        d.sources.iter_mut().zip(earlier.sources).for_each(|(a, b)| *a -= b);
        d.translating.second_level -= earlier.translating.second_level;
        d.translating.walks -= earlier.translating.walks;
        d.port -= earlier.port;
        d.hidden -= earlier.hidden;
        d
    }

    /// Adds others.
    pub(crate) fn add(&mut self, other: &Waits) {
        self.sources.iter_mut().zip(other.sources).for_each(|(a, b)| *a += b);
        self.translating.second_level += other.translating.second_level;
        self.translating.walks += other.translating.walks;
        self.port += other.port;
        self.hidden += other.hidden;
    }

    /// An access has held the core up for all of that time, of which the last part was spent
    /// waiting.
    pub(super) fn access(&mut self, p: &Pending, all: Ticks, wait: Ticks) {
        self.hidden += all - wait;
        self.translating.blame(p, all);
        self.sources[usize::from(p.source)] += all - p.blame(all);
    }
}
