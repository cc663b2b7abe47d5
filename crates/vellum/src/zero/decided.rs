//! What `zero.huge=auto` decided, kept until somebody asks.
//!
//! A ring of the last [`KEPT`] decisions of all spaces, part of the [`Vm`] and as large as it will ever be: whoever does not ask loses the
//! oldest, and the next one read says how many. One lock guards it, since decisions are rare (a handful in the time a space reads gigabytes)
//! and each is a few words. It outlives the spaces it speaks of, so that a program that has ended can still be explained.
//!
//! Rejected: a ring in what is kept of each space (it goes with the space, and a kernel's log would have to ask every one of them), and
//! text made here (who prints knows the language and the unit of time).

use crate::addr::Va;
use crate::machine::Machine;
use crate::space::Space;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::sync::{Lock, Queue, Token, touch};
use crate::vm::Vm;
use crate::zero::auto::ZeroForm;

/// Decisions kept.
pub const KEPT: usize = 32;
const WORDS: usize = 11;

/// Why reads of untouched memory map another form from here on, with the figures it was decided by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZeroReason {
    /// First faults came in order, and the program ran so long from one to its neighbour: cycles of four such dwells, the page's faster and
    /// the table's slower time, of fewer by the table where it was given up.
    Dwell {
        /// By the page.
        page: u64,
        /// By the table.
        table: u64,
    },
    /// Of eight first faults so few had a neighbour.
    Scattered {
        /// How many.
        near: u64,
    },
    /// So many eights in a row were scattered: from here on a whole GiB is mapped by one table of tables.
    Sure {
        /// How many.
        eights: u64,
    },
    /// Four dwells by the form in force took less than half, or more than twice, of what was compared: another phase, compared anew.
    Phase {
        /// Cycles when it was compared; 0 if first faults were scattered.
        was: u64,
        /// Cycles now.
        is: u64,
    },
    /// First faults were scattered, and accessed bits were compared: so many of the mappings of 2 MiB were visited in the same time.
    Visits {
        /// By the page.
        page: u64,
        /// By the table.
        table: u64,
        /// Of how many.
        of: u64,
    },
    /// What faults and comparing cost was paid for, so first faults are to show anew what the program does.
    Again {
        /// Cycles that it cost.
        cost: u64,
        /// Cycles since that began.
        ran: u64,
    },
}

/// One decision of `zero.huge=auto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZeroDecision {
    /// When: the clock of the CPU that decided, in cycles.
    pub at: u64,
    /// Whose, by [`Space::id`]; a space made later may have the number of one that ended.
    pub space: u64,
    /// The memory whose mappings were exchanged: first address, and one past the last.
    pub region: (Va, Va),
    /// What reads mapped before.
    pub from: ZeroForm,
    /// What they map from here on.
    pub to: ZeroForm,
    /// Why.
    pub why: ZeroReason,
    /// Mappings of 2 MiB that were exchanged.
    pub exchanged: u64,
    /// Decisions before this one that nobody read and that are lost.
    pub lost: u64,
}

impl ZeroReason {
    fn words(self) -> [u64; 4] {
        match self {
            ZeroReason::Dwell { page, table } => [0, page, table, 0],
            ZeroReason::Scattered { near } => [1, near, 0, 0],
            ZeroReason::Sure { eights } => [2, eights, 0, 0],
            ZeroReason::Phase { was, is } => [3, was, is, 0],
            ZeroReason::Again { cost, ran } => [4, cost, ran, 0],
            ZeroReason::Visits { page, table, of } => [5, page, table, of],
        }
    }

    fn of([kind, a, b, c]: [u64; 4]) -> ZeroReason {
        match kind {
            0 => ZeroReason::Dwell { page: a, table: b },
            1 => ZeroReason::Scattered { near: a },
            2 => ZeroReason::Sure { eights: a },
            3 => ZeroReason::Phase { was: a, is: b },
            4 => ZeroReason::Again { cost: a, ran: b },
            _ => ZeroReason::Visits { page: a, table: b, of: c },
        }
    }
}

/// The ring. Everything is written and read under the lock.
pub(crate) struct Decided {
    lock: AtomicU32,
    /// Decisions made, and of those the first that nobody has read and that is still here.
    made: AtomicU64,
    next: AtomicU64,
    lost: AtomicU64,
    words: [[AtomicU64; WORDS]; KEPT],
}

impl Decided {
    pub const fn new() -> Decided {
        Decided {
            lock: AtomicU32::new(0),
            made: AtomicU64::new(0),
            next: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            words: [const { [const { AtomicU64::new(0) }; WORDS] }; KEPT],
        }
    }

    fn put(&self, d: &ZeroDecision) {
        let made = self.made.load(Relaxed);
        let [kind, a, b, c] = d.why.words();
        let form = |form: ZeroForm| form as u64;
        let words = [d.at, d.space, d.region.0.0, d.region.1.0, form(d.from), form(d.to), kind, a, b, c, d.exchanged];
        for (to, word) in self.words[made as usize % KEPT].iter().zip(words) {
            to.store(word, Relaxed);
        }
        self.made.store(made + 1, Relaxed);
        let next = self.next.load(Relaxed);
        if made + 1 - next > KEPT as u64 {
            self.next.store(next + 1, Relaxed);
            self.lost.store(self.lost.load(Relaxed) + 1, Relaxed);
        }
    }

    fn take(&self) -> Option<ZeroDecision> {
        let next = self.next.load(Relaxed);
        if next == self.made.load(Relaxed) {
            return None;
        }
        let w: [u64; WORDS] = core::array::from_fn(|i| self.words[next as usize % KEPT][i].load(Relaxed));
        self.next.store(next + 1, Relaxed);
        let form = |word| if word == ZeroForm::Page as u64 { ZeroForm::Page } else { ZeroForm::Table };
        Some(ZeroDecision {
            at: w[0],
            space: w[1],
            region: (Va(w[2]), Va(w[3])),
            from: form(w[4]),
            to: form(w[5]),
            why: ZeroReason::of([w[6], w[7], w[8], w[9]]),
            exchanged: w[10],
            lost: self.lost.swap(0, Relaxed),
        })
    }
}

impl<M: Machine> Vm<M> {
    /// The oldest decision of `zero.huge=auto` that is kept and was not read yet, of any space; `None` if there is none. The last 32 are
    /// kept; [`ZeroDecision::lost`] counts those that were not read in time. For a log, or for whoever asks why a space reads as it
    /// does; [`Vm::zero_choice`] says how one reads now. Takes a lock of the lowest levels for a few words; any CPU, no such lock held.
    pub fn take_zero_decision(&self) -> Option<ZeroDecision> {
        // Who holds locks of spaces may ask: this one lies below them all.
        let mut top = Token::top();
        let _guard = Lock::<Queue>::from_word(&self.decided.lock).lock(&self.machine, &mut top, 0);
        touch(&self.machine, &self.decided.made, true);
        self.decided.take()
    }

    /// Keeps a decision. No lock of this level is held.
    pub(crate) fn keep_zero_decision(&self, decision: &ZeroDecision) {
        let mut top = Token::top();
        let _guard = Lock::<Queue>::from_word(&self.decided.lock).lock(&self.machine, &mut top, 0);
        touch(&self.machine, &self.decided.made, true);
        self.decided.put(decision);
    }
}

impl ZeroDecision {
    /// Whether it is about a space.
    pub fn is_of(&self, space: &Space) -> bool {
        self.space == space.id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(at: u64) -> ZeroDecision {
        ZeroDecision {
            at,
            space: at + 1,
            region: (Va(at << 21), Va((at + 2) << 21)),
            from: ZeroForm::Page,
            to: ZeroForm::Table,
            why: ZeroReason::Dwell { page: at * 3, table: at * 2 },
            exchanged: at + 4,
            lost: 0,
        }
    }

    #[test]
    fn decisions_come_out_once_in_the_order_they_were_made() {
        let ring = Decided::new();
        assert_eq!(ring.take(), None);
        for round in 0..5 {
            let made: [ZeroDecision; 20] = core::array::from_fn(|i| one(round * 100 + i as u64));
            made.iter().for_each(|d| ring.put(d));
            made.iter().for_each(|&d| assert_eq!(ring.take(), Some(d)));
            assert_eq!(ring.take(), None);
        }
    }

    #[test]
    fn what_nobody_reads_loses_the_oldest_and_the_next_read_says_how_many() {
        let ring = Decided::new();
        (0..KEPT as u64 + 7).for_each(|at| ring.put(&one(at)));
        assert_eq!(ring.take(), Some(ZeroDecision { lost: 7, ..one(7) }));
        ring.put(&one(900));
        ring.put(&one(901));
        assert_eq!(ring.take(), Some(ZeroDecision { lost: 1, ..one(9) }), "the 8th gave way to the last");
        for at in 10..KEPT as u64 + 7 {
            assert_eq!(ring.take(), Some(one(at)));
        }
        assert_eq!([ring.take(), ring.take(), ring.take()], [Some(one(900)), Some(one(901)), None]);
    }

    #[test]
    fn every_reason_keeps_its_figures() {
        let all = [
            ZeroReason::Dwell { page: 1, table: u64::MAX },
            ZeroReason::Scattered { near: 2 },
            ZeroReason::Sure { eights: 3 },
            ZeroReason::Phase { was: 4, is: 5 },
            ZeroReason::Again { cost: 6, ran: 7 },
            ZeroReason::Visits { page: 8, table: 9, of: 10 },
        ];
        all.iter().for_each(|&why| assert_eq!(ZeroReason::of(why.words()), why));
    }
}
