//! What a core spent its time waiting for.

use super::pending::Pending;
use super::ticks::Ticks;

/// Kinds of what serves an access: the levels of a hierarchy.
pub(crate) const SOURCES: usize = 4;

/// What held a core up, all added up. An access that was waited for did so from its beginning:
/// instructions that retired meanwhile would not have made the wait shorter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    /// Accesses, by what served them.
    pub(crate) sources: [Ticks; SOURCES],
    /// Their translations.
    pub(crate) translation: Ticks,
    /// The load port.
    pub(crate) port: Ticks,
    /// The part of these in which instructions retired.
    pub(super) hidden: Ticks,
}

impl Waits {
    /// An access has held the core up for all of that time, of which the last part was spent
    /// waiting.
    pub(super) fn access(&mut self, p: &Pending, all: Ticks, wait: Ticks) {
        let translation = p.blame(all);
        self.hidden += all - wait;
        self.translation += translation;
        self.sources[usize::from(p.source)] += all - translation;
    }
}
