//! Random numbers that are the same everywhere: xorshift64*, seeded through splitmix64 so that
//! neighbouring seeds give unlike sequences.
//!
//! Rejected: a crate. A seed that is printed today has to replay after that crate's next release.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

/// The splitmix64 step: spreads any number over 64 bits.
pub const fn spread(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

impl Rng {
    /// The stream of one seed.
    pub const fn new(seed: u64) -> Rng {
        Rng(spread(seed) | 1)
    }
    /// The next number, 64 bits.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// A number below `n`, which is not 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((self.draw() as u128 * n as u128) >> 64) as u64
    }
    /// Puts items into an order of chance.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        (1..items.len()).rev().for_each(|i| items.swap(i, self.below(i as u64 + 1) as usize));
    }
    /// True once in `n`.
    #[inline]
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_streams_and_neighbours_do_not() {
        let take =
            |s| (0..4).map(|_| 0).scan(Rng::new(s), |r, _| Some(r.draw())).collect::<Vec<_>>();
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
    }

    #[test]
    fn numbers_below_n_reach_every_value_and_no_other() {
        let mut seen = [0; 7];
        let mut rng = Rng::new(1);
        for _ in 0..7000 {
            seen[rng.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| n > 800), "{seen:?}");
    }
}
