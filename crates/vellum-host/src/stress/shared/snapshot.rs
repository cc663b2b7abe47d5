//! A forked space, and what its memory must be: its parent's memory at one instant of the fork.
//!
//! What ended before the fork began is in it. What began after the fork ended is not. In between:
//! if a store is in it, everything that ended before that store began is in it, too, whichever
//! thread did it.

use vellum::space::Space;

use super::arena::Arena;
use super::expected::ExpectedState;

/// What was done when a fork began.
#[derive(Debug)]
pub struct Begun {
    /// The last store of each thread.
    last: Vec<u64>,
    /// The last to each word.
    words: Vec<u64>,
}

/// What had begun when it ended.
#[derive(Debug)]
pub struct Ended {
    words: Vec<u64>,
}

/// A forked space. Who holds it is the only one that works in it.
#[derive(Debug)]
pub struct Child {
    /// The space.
    pub space: Space,
    /// Every thread's word of each slot, as first seen; `None` where nothing is mapped.
    pub picture: Vec<Option<Vec<u64>>>,
    /// Which ranges were at their other place.
    pub away: Vec<bool>,
    /// Stores made in it.
    pub stores: u64,
}

impl Begun {
    /// Now.
    pub fn now(expected: &ExpectedState, arena: &Arena) -> Begun {
        let last = (0..expected.writers()).map(|w| expected.history.last(w)).collect();
        let words =
            each(expected, arena).map(|(slot, writer)| expected.published(slot, writer)).collect();
        Begun { last, words }
    }
}

impl Ended {
    /// Now.
    pub fn now(expected: &ExpectedState, arena: &Arena) -> Ended {
        Ended {
            words: each(expected, arena)
                .map(|(slot, writer)| expected.started(slot, writer))
                .collect(),
        }
    }
}

fn each(expected: &ExpectedState, arena: &Arena) -> impl Iterator<Item = (usize, usize)> {
    let writers = expected.writers();
    (0..arena.slots()).flat_map(move |slot| (0..writers).map(move |writer| (slot, writer)))
}

/// Whether the words of a child, as numbers of stores, are its parent's at one instant. Says how
/// many stores that ran beside the fork were looked for.
///
/// # Errors
/// What is wrong.
pub fn check(
    expected: &ExpectedState,
    arena: &Arena,
    (begun, ended): (&Begun, &Ended),
    found: &[Option<Vec<u64>>],
) -> Result<u64, String> {
    let writers = expected.writers();
    let at = |slot: usize, writer: usize| found[slot].as_ref().map_or(0, |words| words[writer]);
    // The last store of each thread that the instant comes after.
    let mut have = begun.last.clone();
    for (slot, writer) in each(expected, arena) {
        let (count, index) = (at(slot, writer), slot * writers + writer);
        let keeps = arena.extent(slot).keeps();
        if keeps && found[slot].is_none() {
            return Err(format!("slot {slot} is not mapped in the child"));
        }
        if count > ended.words[index] {
            return Err(format!(
                "slot {slot}, thread {writer}: the child has store {count}, which had not begun \
                 when the fork ended"
            ));
        }
        if keeps
            && (count < begun.words[index] || count != 0 && count <= expected.floor(slot, writer))
        {
            return Err(format!(
                "slot {slot}, thread {writer}: the child has store {count}, but {} was done \
                 before the fork",
                begun.words[index]
            ));
        }
        have[writer] = have[writer].max(count);
    }
    let mut beside = 0;
    for writer in 0..writers {
        let known = (0..writers).map(|by| (expected.history.before(by, have[by], writer), by));
        let (need, by) = known
            .max()
            .filter(|&(count, _)| count > have[writer])
            .unwrap_or((have[writer], writer));
        for (count, slot) in expected.history.between(writer, begun.last[writer], need) {
            beside += 1;
            if arena.extent(slot).keeps() && at(slot, writer) < count {
                return Err(format!(
                    "no instant: the child has store {} of thread {by}, which began after thread \
                     {writer} had made store {count} to slot {slot}, but in that slot it has \
                     store {}",
                    have[by],
                    at(slot, writer)
                ));
            }
        }
    }
    Ok(beside)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thread 0 stores to slots 0 and 1, thread 1 sees that and stores to slot 2; all beside a
    /// fork.
    #[test]
    fn a_child_has_causes_with_their_effects() {
        let arena = Arena::new();
        let expected = ExpectedState::new(&arena, 2);
        let begun = Begun::now(&expected, &arena);
        for (slot, writer, count) in [(0, 0, 1), (1, 0, 2), (2, 1, 1)] {
            let token = expected.store(slot, writer, count);
            expected.stored(slot, writer, count, token, true);
        }
        let ended = Ended::now(&expected, &arena);
        let child = |words: [u64; 3]| {
            let mut found = vec![Some(vec![0, 0]); arena.slots()];
            (0..3).for_each(|slot| {
                found[slot] = Some(if slot == 2 { vec![0, words[2]] } else { vec![words[slot], 0] })
            });
            check(&expected, &arena, (&begun, &ended), &found)
        };
        for fits in [[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 2, 1]] {
            assert_eq!(child(fits).err(), None, "{fits:?}");
        }
        for wrong in [[0, 2, 0], [0, 0, 1], [1, 0, 1], [0, 2, 1], [3, 0, 0]] {
            assert!(child(wrong).is_err(), "{wrong:?}");
        }
        let late = Begun::now(&expected, &arena);
        let found = vec![Some(vec![0, 0]); arena.slots()];
        assert!(check(&expected, &arena, (&late, &ended), &found).is_err());
    }
}
