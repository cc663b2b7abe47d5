//! A branch predictor with history: a tagged one of geometric lengths (TAGE: Seznec and Michaud,
//! Journal of Instruction-Level Parallelism, 2006), as the cores of today have.
//!
//! Two bits for each branch say where it usually goes. Beside them are tables under the branch and
//! the directions of the last branches, each for a longer past. The longest past that has been met
//! before predicts. A prediction that was wrong makes an entry for a longer past than the one that
//! gave it. So what repeats is predicted, be it a loop's end, a sequence of some thousand
//! directions, or a branch that goes as another did; what is chance is not.
//!
//! The lengths are a geometric series, as there, up to the 128 directions that two words hold. How
//! large the tables of a processor are no vendor says: 65,536 entries are a guess, large enough
//! that what goes wrong here is chance.
use std::sync::atomic::{AtomicU8, Ordering};

/// How many directions each table looks at.
const PAST: [u32; 4] = [6, 16, 44, 128];
/// The logarithm of the entries in each.
const BITS: u32 = 14;
/// Odd numbers that spread bits.
const SPREAD: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93];

/// What one past says.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Some bits of the branch and its past; 0 in an entry for nothing.
    tag: u16,
    /// Taken, from 0 on; sure at the ends of -4 ..= 3.
    count: i8,
    /// How often it was right where a shorter past was not, up to 3.
    useful: u8,
}

impl Entry {
    fn says(&self) -> bool {
        self.count >= 0
    }
    /// It is new, or was wrong as often as right.
    fn is_weak(&self) -> bool {
        matches!(self.count, -1 | 0)
    }
    fn learn(&mut self, taken: bool) {
        self.count = if taken { (self.count + 1).min(3) } else { (self.count - 1).max(-4) };
    }
}

/// One core's.
#[derive(Clone, Debug)]
pub struct Predictor {
    tables: Vec<Entry>,
    /// Directions of the last branches, the last one lowest.
    past: u128,
}

impl Default for Predictor {
    fn default() -> Predictor {
        Predictor { tables: vec![Entry::default(); PAST.len() << BITS], past: 0 }
    }
}

impl Predictor {
    /// A branch went that way.
    #[inline(always)]
    pub fn passes(&mut self, taken: bool) {
        self.past = self.past << 1 | u128::from(taken);
    }

    /// Where a branch's entry of a table is, and its tag.
    #[inline(always)]
    fn place(&self, table: usize, branch: u64) -> (usize, u16) {
        let past = self.past << (128 - PAST[table]);
        // Times an odd number the highest bit is the highest bit, which others must not hide.
        let low = past as u64;
        let folded = (low ^ low >> 31).wrapping_mul(SPREAD[1]) ^ (past >> 64) as u64;
        let mixed = (folded ^ branch.rotate_left(17)).wrapping_mul(SPREAD[0]);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(SPREAD[1]);
        (table << BITS | (mixed >> (64 - BITS)) as usize, (mixed >> 20) as u16 | 1)
    }

    /// `branch`, of which `usual` is the two bits, goes that way: whether something else was
    /// predicted. CPUs that run the same code share the two bits, and may lose a step of them.
    pub fn is_wrong(&mut self, branch: u64, usual: &AtomicU8, taken: bool) -> bool {
        let two = usual.load(Ordering::Relaxed);
        let places: [_; PAST.len()] = std::array::from_fn(|table| self.place(table, branch));
        let mut known =
            (0..PAST.len()).rev().filter(|&t| self.tables[places[t].0].tag == places[t].1);
        let (longest, shorter) = (known.next(), known.next());
        let other = shorter.map_or(two >= 2, |t| self.tables[places[t].0].says());
        let mut predicted = other;
        if let Some(table) = longest {
            let entry = &mut self.tables[places[table].0];
            let says = entry.says();
            if !entry.is_weak() {
                predicted = says;
            }
            if says != other {
                let more = if says == taken { entry.useful + 1 } else { entry.useful.max(1) - 1 };
                entry.useful = more.min(3);
            }
            entry.learn(taken);
        } else {
            let now = if taken { (two + 1).min(3) } else { two.saturating_sub(1) };
            if now != two {
                usual.store(now, Ordering::Relaxed);
            }
        }
        if predicted != taken {
            self.remember(&places, longest.map_or(0, |t| t + 1), taken);
        }
        predicted != taken
    }

    /// Makes an entry in the first table from `first` on that has room for it; where none has, each
    /// comes nearer to it.
    fn remember(&mut self, places: &[(usize, u16); PAST.len()], first: usize, taken: bool) {
        for &(at, tag) in &places[first..] {
            let entry = &mut self.tables[at];
            if entry.useful == 0 {
                *entry = Entry { tag, count: if taken { 0 } else { -1 }, useful: 0 };
                return;
            }
        }
        places[first..].iter().for_each(|&(at, _)| self.tables[at].useful -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Chance(u64);
    impl Chance {
        fn one_in(&mut self, n: u64) -> bool {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33).is_multiple_of(n)
        }
    }

    /// How many of the last `count` of all these directions of one branch were predicted wrongly,
    /// in a thousand.
    fn wrong(directions: impl Iterator<Item = bool>, count: usize) -> usize {
        let (mut p, usual) = (Predictor::default(), AtomicU8::new(1));
        let each = directions.map(|taken| {
            let wrong = p.is_wrong(0x1234, &usual, taken);
            p.passes(taken);
            wrong
        });
        let all: Vec<bool> = each.collect();
        all[all.len() - count..].iter().filter(|w| **w).count() * 1000 / count
    }

    #[test]
    fn what_always_or_regularly_happens_is_learned() {
        assert_eq!(wrong((0..2000).map(|_| true), 1900), 0);
        // Every period that the longest past covers.
        for period in 2..=128 {
            let (mut p, usual, mut wrong) = (Predictor::default(), AtomicU8::new(1), 0);
            for n in 0..600 * period {
                let is_wrong = p.is_wrong(0x1234, &usual, n % period == 0);
                p.passes(n % period == 0);
                wrong += u64::from(is_wrong && n >= 500 * period);
            }
            assert_eq!(wrong, 0, "every {period}th");
        }
    }

    fn sequence(chance: &mut Chance, length: usize) -> Vec<bool> {
        (0..length).map(|_| chance.one_in(2)).collect()
    }

    #[test]
    fn a_long_sequence_is_learned_when_it_comes_again() {
        let sequence = sequence(&mut Chance(1), 20_000);
        let times = |n: usize| sequence.iter().copied().cycle().take(n * sequence.len());
        assert!(wrong(times(1), 10_000) > 400);
        let learned = wrong(times(20), 40_000);
        assert!(learned < 80, "{learned} of 1000");
    }

    /// More than there is room for: what is old gives way.
    #[test]
    fn a_new_sequence_is_learned_after_many_others() {
        let mut chance = Chance(7);
        let all = (0..150).flat_map(|_| sequence(&mut chance, 1000).repeat(20));
        let learned = wrong(all, 2000);
        assert!(learned < 50, "{learned} of 1000");
    }

    #[test]
    fn chance_is_predicted_as_well_as_its_odds_and_no_better() {
        for (n, odds) in [(2, 500), (4, 250), (10, 100)] {
            let mut chance = Chance(n);
            let wrong = wrong((0..200_000).map(|_| chance.one_in(n)), 100_000);
            assert!((odds - 10..odds + 20).contains(&wrong), "1 in {n}: {wrong} of 1000");
        }
    }

    #[test]
    fn a_branch_that_goes_as_another_did_is_learned() {
        let (mut p, mut chance) = (Predictor::default(), Chance(3));
        let usual = [AtomicU8::new(1), AtomicU8::new(1)];
        let mut wrong = [0; 2];
        for round in 0..20_000 {
            let taken = chance.one_in(2);
            for (n, usual) in usual.iter().enumerate() {
                let is_wrong = p.is_wrong(0x1000 + n as u64 * 64, usual, taken);
                wrong[n] += usize::from(is_wrong && round >= 10_000);
                p.passes(taken);
            }
        }
        assert!(wrong[0] > 4000 && wrong[1] < 300, "{wrong:?}");
    }
}
