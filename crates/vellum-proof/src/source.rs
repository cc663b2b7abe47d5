//! A source of choices: a seed, or given bytes.
//!
//! The caller asks for a number below a bound and does not know the source. A fuzzer's bytes are
//! taken one at a time, two for bounds above 256. So one changed byte changes one choice, and later
//! choices stay.

use vellum_host::rng::Rng;
use vellum_host::stress::ops::Op;

/// A stream of choices.
pub trait Source {
    /// A number below `n`, which is not 0.
    fn below(&mut self, n: u64) -> u64;
    /// An operation: by weight from a seed, all alike often from bytes.
    fn op(&mut self) -> Op;
    /// True once in `n`.
    fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == n - 1
    }
    /// One of some things.
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

impl Source for Rng {
    fn below(&mut self, n: u64) -> u64 {
        Rng::below(self, n)
    }
    fn op(&mut self) -> Op {
        Op::draw(self)
    }
}

/// Choices out of bytes; when they are used up, zeros.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'b>(pub &'b [u8]);

impl Bytes<'_> {
    /// Whether the bytes are used up.
    pub fn is_dry(&self) -> bool {
        self.0.is_empty()
    }
    fn byte(&mut self) -> u64 {
        self.0.split_off_first().copied().unwrap_or(0) as u64
    }
}

impl Source for Bytes<'_> {
    fn below(&mut self, n: u64) -> u64 {
        let number = if n > 256 { self.byte() | self.byte() << 8 } else { self.byte() };
        number % n
    }
    fn op(&mut self) -> Op {
        Op::from_byte(self.byte() as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_choices_and_end_in_zeros() {
        let mut bytes = Bytes(&[7, 1, 2, 255]);
        assert_eq!((bytes.below(4), bytes.below(1000)), (3, 513));
        assert!(bytes.once_in(256) && bytes.is_dry());
        assert_eq!((bytes.below(10), bytes.below(5000)), (0, 0));
    }
}
