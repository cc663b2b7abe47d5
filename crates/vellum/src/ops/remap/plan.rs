//! What a remap is to do.

use crate::addr::{Level, Va, VaRange};
use crate::pagetable::boundary::MissingTables;

/// From where to where.
#[derive(Clone, Copy)]
pub(crate) struct RemapPlan {
    /// Everything that leaves the old place: what moves and, behind it, a tail that goes.
    pub all: VaRange,
    /// What moves.
    pub moved: VaRange,
    /// Where it goes, and what comes behind it. Wider where a table moves that maps nothing more.
    pub new: VaRange,
    /// Whether something may be in the new place.
    pub replace: bool,
    /// From old addresses to new ones (wrapping).
    pub delta: u64,
    /// How long the new mapping is.
    pub bytes: u64,
}

impl RemapPlan {
    /// Whether there is more at the new place than what moves.
    pub fn grows(&self) -> bool {
        self.bytes > self.moved.bytes()
    }

    /// Whether all of an entry moves, to where an entry of that level may stand.
    pub fn moves_whole(&self, va: Va, level: Level) -> bool {
        let (bytes, to) = (level.entry_bytes(), Va(va.0.wrapping_add(self.delta)));
        va >= self.moved.start() && va.0 + bytes <= self.moved.end().0 && to.is_aligned(bytes)
    }
}

/// Where the old range will have been split before the new place is laid out.
pub(super) struct Cuts(pub [(Va, Option<MissingTables>); 3]);

impl Cuts {
    /// Whether they make the table with entries of `level` that covers the address.
    pub fn make(&self, va: Va, level: Level) -> bool {
        self.0.iter().any(|cut| makes(cut, va, level))
    }

    /// How many tables they make.
    pub fn tables(&self) -> usize {
        let mut tables = 0;
        for (i, &(va, lack)) in self.0.iter().enumerate() {
            let levels = lack.map(|lack| lack.last.0..=lack.below.0);
            let before = |level| self.0[..i].iter().any(|cut| makes(cut, va, Level(level)));
            tables += levels.into_iter().flatten().filter(|&level| !before(level)).count();
        }
        tables
    }
}

fn makes(&(at, lack): &(Va, Option<MissingTables>), va: Va, level: Level) -> bool {
    let base = |va: Va| va.align_down(level.entry_bytes() << 9);
    lack.is_some_and(|lack| lack.last <= level && level <= lack.below) && base(at) == base(va)
}
