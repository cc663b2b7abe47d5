//! Flush requests between CPUs: an interrupt is a flag, polled at every machine call.
//!
//! ```text
//! initiator                        target, running           target, parked
//! entries stored                   ...                       state = parked | missed
//! box[me]: scope, then seq = n     poll: takes the flags
//! flag[me] set                     reads seq, scope; drops
//! waits until acked == n  <------- acked = seq
//! or finds state parked:
//! missed += 1, by an exchange ---------------------------->  waking clears parked, sees that
//!                                                            missed moved, drops everything
//!                                                            before its first access
//! ```
//!
//! A parked CPU translates nothing, so a flush that it will do before its next access is done as
//! far as anyone can tell: it acknowledges by generation. The exchange fails if the target woke
//! meanwhile; then it polls again. A request given up on because its target parked may still be
//! read later, even while the box is being overwritten: the reader may see mixed words and then
//! drops more than it was asked to, but it never acknowledges a sequence number whose words it did
//! not see whole.

use std::sync::atomic::{AtomicU64, Ordering};

use vellum::addr::{Level, Va, VaRange};
use vellum::machine::{Asid, Scope};

/// A box: one initiator's requests to one target.
#[derive(Debug, Default)]
pub struct IpiSlot {
    words: [AtomicU64; 3],
    sequence: AtomicU64,
    acknowledged: AtomicU64,
}

impl IpiSlot {
    /// Puts a request in; returns its number. Only the initiator calls it.
    pub fn post(&self, scope: Scope) -> u64 {
        for (cell, word) in self.words.iter().zip(pack(scope)) {
            cell.store(word, Ordering::Relaxed);
        }
        let n = self.sequence.load(Ordering::Relaxed) + 1;
        self.sequence.store(n, Ordering::Release);
        n
    }
    /// The request in the box and its number. Only the target calls it.
    pub fn take(&self) -> (u64, Scope) {
        let n = self.sequence.load(Ordering::Acquire);
        (n, unpack([0, 1, 2].map(|i| self.words[i].load(Ordering::Relaxed))))
    }
    /// The request of that number was served.
    pub fn acknowledge(&self, n: u64) {
        self.acknowledged.store(n, Ordering::Release);
    }
    /// Whether it was.
    pub fn is_served(&self, n: u64) -> bool {
        self.acknowledged.load(Ordering::Acquire) >= n
    }
}

fn pack(scope: Scope) -> [u64; 3] {
    let head = |kind: u64, c: Asid, level: u8| kind | (c.0 as u64) << 8 | (level as u64) << 32;
    match scope {
        Scope::All => [0, 0, 0],
        Scope::Page(c, va) => [head(1, c, 0), va.0, 0],
        Scope::Range(c, r, level) => [head(2, c, level.0), r.start().0, r.bytes()],
        Scope::Space(c) => [head(3, c, 0), 0, 0],
    }
}

/// Whatever the words are, the result drops at least as much as they ask for.
fn unpack([head, a, b]: [u64; 3]) -> Scope {
    let context = Asid((head >> 8) as u16);
    match head & 0xff {
        1 => Scope::Page(context, Va(a)),
        2 => VaRange::new(Va(a), b, Va(u64::MAX))
            .map_or(Scope::All, |range| Scope::Range(context, range, Level((head >> 32) as u8))),
        3 => Scope::Space(context),
        _ => Scope::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scope_arrives_as_it_was_posted() {
        let range = VaRange::new(Va(4096), 2 << 20, Va(1 << 47)).unwrap();
        let to_the_top = VaRange::new(Va((1 << 56) - 4096), 4096, Va(1 << 56)).unwrap();
        let c = Asid(u16::MAX);
        let scopes = [
            Scope::All,
            Scope::Page(c, Va(0xffff_f123)),
            Scope::Range(c, range, Level::TWO),
            Scope::Range(Asid(0), to_the_top, Level::ONE),
            Scope::Space(c),
        ];
        let slot = IpiSlot::default();
        for (i, scope) in scopes.into_iter().enumerate() {
            let n = slot.post(scope);
            assert_eq!(slot.take(), (i as u64 + 1, scope));
            assert!(!slot.is_served(n));
            slot.acknowledge(n);
            assert!(slot.is_served(n));
        }
    }

    #[test]
    fn words_that_make_no_sense_drop_everything() {
        assert_eq!(unpack([99, 1, 2]), Scope::All);
        assert_eq!(unpack([2, 3, 4096]), Scope::All);
    }
}
