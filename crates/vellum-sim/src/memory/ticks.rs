//! Time: 1/256 of a cycle, as a type.
//!
//! Costs of a line or an instruction are fractions of a cycle (8.29, 0.25), and the state of a run
//! must not hold floats: their sums depend on order. 64 bits of 1/256 cycles last 300 days of
//! simulated time at 2.8 GHz.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Mul, Sub, SubAssign};

/// A point in time or a duration, in 1/256 cycle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticks(pub u64);

impl Ticks {
    /// No time, or the start of the run.
    pub const ZERO: Ticks = Ticks(0);
    /// The end of time.
    pub const MAX: Ticks = Ticks(u64::MAX);
    /// Ticks in a cycle.
    pub const PER_CYCLE: u64 = 256;

    /// Whole cycles.
    #[inline]
    pub const fn from_cycles(cycles: u64) -> Ticks {
        Ticks(cycles * Self::PER_CYCLE)
    }
    /// Cycles, rounded down.
    #[inline]
    pub const fn cycles(self) -> u64 {
        self.0 / Self::PER_CYCLE
    }
    /// The difference, or zero if `other` is later.
    #[inline]
    pub const fn saturating_sub(self, other: Ticks) -> Ticks {
        Ticks(self.0.saturating_sub(other.0))
    }
    /// Picoseconds at a clock rate, rounded to the nearest tick; [`Ticks::MAX`] where that is too
    /// long to count.
    pub const fn from_picoseconds(ps: u64, clock_hz: u64) -> Ticks {
        let scaled = (ps as u128 * clock_hz as u128).saturating_mul(Self::PER_CYCLE as u128);
        let ticks = (scaled + 500_000_000_000) / 1_000_000_000_000;
        if ticks > u64::MAX as u128 { Ticks::MAX } else { Ticks(ticks as u64) }
    }
}

impl Add for Ticks {
    type Output = Ticks;
    #[inline]
    fn add(self, other: Ticks) -> Ticks {
        Ticks(self.0 + other.0)
    }
}

impl AddAssign for Ticks {
    #[inline]
    fn add_assign(&mut self, other: Ticks) {
        self.0 += other.0;
    }
}

impl Sub for Ticks {
    type Output = Ticks;
    #[inline]
    fn sub(self, other: Ticks) -> Ticks {
        Ticks(self.0 - other.0)
    }
}

impl SubAssign for Ticks {
    #[inline]
    fn sub_assign(&mut self, other: Ticks) {
        self.0 -= other.0;
    }
}

impl Mul<u64> for Ticks {
    type Output = Ticks;
    #[inline]
    fn mul(self, times: u64) -> Ticks {
        Ticks(self.0 * times)
    }
}

impl Sum for Ticks {
    fn sum<I: Iterator<Item = Ticks>>(iter: I) -> Ticks {
        iter.fold(Ticks::ZERO, Add::add)
    }
}

impl fmt::Display for Ticks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = (u128::from(self.0) * 100 + 128) / 256;
        write!(f, "{}.{:02}", hundredths / 100, hundredths % 100)
    }
}

impl fmt::Debug for Ticks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} cycles")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picoseconds_become_ticks_at_the_clock_rate() {
        assert_eq!(Ticks::from_picoseconds(135_000, 2_000_000_000), Ticks::from_cycles(270));
        assert_eq!(
            Ticks::from_picoseconds(1_000_000_000_000, 3_500_000_000),
            Ticks::from_cycles(3_500_000_000)
        );
    }

    #[test]
    fn ticks_print_as_cycles_with_two_digits() {
        assert_eq!(Ticks(2122).to_string(), "8.29");
        assert_eq!(Ticks::from_cycles(63).to_string(), "63.00");
        assert_eq!(Ticks(255).to_string(), "1.00");
    }
}
