//! Whether threads that fault in one space stand in each other's way: a verdict, for a test.
//!
//! A busy computer looks like a lock, and so do two cores that are halves of one. So a round is five runs within a few milliseconds: one thread; two in
//! one space; two that do the very same, each on a machine of its own; one and two that only compute. A round in which any thread lost its core,
//! or waited for one while the other ran, does not count, and what is judged is two threads in one space over two on machines of their own:
//! whatever the computer does to both cancels. A lock around what is shared makes that a half or less. What else runs can make rounds few or their ratios differ, and then there is no
//! verdict, by name. Those that compute tell a lock that even machines of their own would share from cores that are none.
//!
//! Rejected: the best run of two threads over the best of one, beside another best for what is possible. They come from different seconds, and where
//! every run was disturbed the best is one that was. And what computes as the only measure of what is possible: on two halves of one core it loses
//! a tenth where faults lose a quarter.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use super::crowd::{Run, nothing_shared, warm};
use super::ratio::{Ratios, Side};
use super::work::{Ground, built};

/// Of what two threads on machines of their own do, what two in one space must do. A lock leaves a half or less.
pub const BAR: f64 = 0.65;
/// What a second thread on a machine of its own must be worth for anything to be said of sharing.
pub const POSSIBLE: f64 = 1.3;
/// What a second thread on a machine of its own is worth at least even on half a core, where one that only computes is worth [`COMPUTES`].
pub const HALF: f64 = 1.1;
/// See [`HALF`].
pub const COMPUTES: f64 = 1.5;
/// Rounds in which nothing came between, at least; more if these decide nothing.
pub const ROUNDS: usize = 20;
/// How long it may take: under load most rounds are disturbed, and each takes longer.
pub const LONGEST: Duration = Duration::from_secs(12);

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Worth {
    /// Rounds tried; those that counted are as many as there are ratios.
    pub tried: usize,
    /// What two threads in one space do in the time of one.
    pub worth: Ratios,
    /// The same for two threads on machines of their own.
    pub possible: Ratios,
    /// The same for threads that only compute.
    pub computing: Ratios,
    /// What two threads in one space do, over what two on machines of their own do.
    pub share: Ratios,
}

/// The verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// A second thread is worth what it can be.
    Scales,
    /// It is not, and it could have been.
    Serialises,
    /// This computer does not tell at the moment.
    CannotTell,
}

impl Worth {
    fn add(&mut self, [one, two, own, computing, both]: [Run; 5]) {
        self.tried += 1;
        if [&one, &two, &own, &computing, &both].into_iter().any(|run| run.interrupted) {
            return;
        }
        self.worth.add(two.rate() / one.rate());
        self.possible.add(own.rate() / one.rate());
        self.computing.add(both.rate() / computing.rate());
        self.share.add(two.rate() / own.rate());
    }

    /// What follows.
    pub fn verdict(&self) -> Verdict {
        if self.possible.side(HALF) == Side::Below && self.computing.side(COMPUTES) == Side::Above {
            return Verdict::Serialises;
        }
        match (self.share.side(BAR), self.possible.side(POSSIBLE)) {
            (Side::Above, Side::Above) => Verdict::Scales,
            (Side::Below, Side::Above) => Verdict::Serialises,
            _ => Verdict::CannotTell,
        }
    }
}

impl fmt::Display for Worth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.share.interval();
        if low.is_infinite() {
            return write!(f, "only {} of {} rounds undisturbed", self.share.len(), self.tried);
        }
        write!(
            f,
            "two threads did {:.2} times the work of one, {:.2} on machines of their own, {:.2} computing; {:.2} of what is \
             possible, between {low:.2} and {high:.2}; {} of {} rounds undisturbed",
            self.worth.median(),
            self.possible.median(),
            self.computing.median(),
            self.share.median(),
            self.share.len(),
            self.tried
        )
    }
}

/// Measures, without clearing, until enough rounds were undisturbed and decide, or it took too [long](LONGEST). Half a second on a quiet computer.
///
/// # Errors
/// The machine could not be built.
pub fn measure() -> io::Result<Worth> {
    let hosts = [built(2, 256 << 20, false)?, built(2, 256 << 20, false)?];
    let space = |host: &Ground| {
        let _cpu = host.vm.machine().sit(0);
        host.vm.create().map_err(io::Error::other)
    };
    let spaces = [space(&hosts[0])?, space(&hosts[1])?];
    let on = [(&hosts[0], &spaces[0]), (&hosts[1], &spaces[1])];
    let mut found = Worth::default();
    let began = Instant::now();
    let is_open = |found: &Worth| found.share.len() < ROUNDS || found.verdict() == Verdict::CannotTell;
    while is_open(&found) && began.elapsed() < LONGEST {
        let faults = |on, n| warm(on, n, 64 << 20, false);
        let computes = |n| nothing_shared(n, 16 << 10);
        found.add([faults(&on[..1], 1), faults(&on[..1], 2), faults(&on, 2), computes(1), computes(2)]);
    }
    for (host, space) in hosts.iter().zip(spaces) {
        let _cpu = host.vm.machine().sit(0);
        host.vm.exit(space);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of that worth, that possible and that much computing.
    fn rounds(rounds: usize, worth: f64, possible: f64, computing: f64) -> Worth {
        let mut found = Worth::default();
        (0..rounds).for_each(|_| found.add(round([worth, possible, computing], false)));
        found
    }

    fn round([worth, possible, computing]: [f64; 3], interrupted: bool) -> [Run; 5] {
        let run = |n: usize, ns: f64| Run { each: vec![ns; n], interrupted };
        let two = |times: f64| run(2, 20.0 / times);
        [run(1, 10.0), two(worth), two(possible), run(1, 10.0), two(computing)]
    }

    #[test]
    fn a_lock_is_told_from_a_computer_whose_cores_are_no_two_cores() {
        assert_eq!(rounds(20, 1.9, 2.0, 2.0).verdict(), Verdict::Scales);
        assert_eq!(rounds(20, 1.4, 1.45, 1.9).verdict(), Verdict::Scales, "two halves of a core, and nothing lost");
        assert_eq!(rounds(20, 0.9, 1.9, 2.0).verdict(), Verdict::Serialises);
        assert_eq!(rounds(20, 0.8, 1.45, 1.9).verdict(), Verdict::Serialises);
        assert_eq!(rounds(20, 0.9, 0.9, 1.9).verdict(), Verdict::Serialises, "a lock of all machines");
        assert_eq!(rounds(20, 0.9, 1.0, 1.0).verdict(), Verdict::CannotTell, "one core");
        assert_eq!(rounds(20, 1.2, 1.2, 1.9).verdict(), Verdict::CannotTell, "nor said to scale where nothing does");
    }

    #[test]
    fn rounds_in_which_a_thread_lost_its_core_never_decide() {
        let mut found = rounds(5, 1.9, 2.0, 2.0);
        (0..100).for_each(|_| found.add(round([0.5, 2.0, 2.0], true)));
        assert_eq!((found.share.len(), found.tried), (5, 105));
        assert_eq!(found.verdict(), Verdict::CannotTell, "five rounds say nothing");
        assert_eq!(found.to_string(), "only 5 of 105 rounds undisturbed");
    }

    #[test]
    fn rounds_that_contradict_each_other_decide_nothing() {
        let mut found = rounds(10, 1.9, 2.0, 2.0);
        (0..10).for_each(|_| found.add(round([0.9, 2.0, 2.0], false)));
        assert_eq!(found.verdict(), Verdict::CannotTell);
        assert!(found.to_string().contains("20 of 20 rounds"));
    }
}
