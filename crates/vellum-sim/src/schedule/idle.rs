//! Rounds of CPUs that wait, while nobody else runs.

use crate::cpu::Account;
use crate::format::Format;
use crate::machine::SimState;
use crate::memory::Ticks;
use crate::schedule::turn::HOPELESS;

/// A CPU's clock and its number: whoever has the least of these is next.
pub(super) type Clock = (u64, usize);

/// What rounds of waiting end before, or jump to.
#[derive(Clone, Copy)]
struct Bounds {
    /// The next CPU that does not wait; the greatest possible if there is none.
    others: Clock,
    /// When the disk is done next, or never: `u64::MAX`.
    done: u64,
    /// What a round takes at least.
    pause: u64,
    /// Most rounds.
    rounds: u64,
}

impl<F: Format> SimState<F> {
    /// The rounds of `quiet` CPUs, of which there is at least one, that come before any other CPU's
    /// turn. They wait for what does not hold and cannot before another CPU runs, so that only
    /// clocks change: as [`SimState::wait_round`] does it, one round after the other. Says whether
    /// there was one.
    pub(super) fn idle_rounds_of(&mut self, quiet: &mut [Clock]) -> bool {
        for &(_, c) in &*quiet {
            self.clocks.set(c, u64::MAX);
        }
        let others = (self.clocks.least(), self.clocks.first().unwrap_or(usize::MAX));
        let done = self.disk.next_due().map_or(u64::MAX, |t| t.0);
        let pause = self.costs.pause.max(Ticks(1)).0;
        let rounds =
            wait(quiet, Bounds { others, done, pause, rounds: HOPELESS - self.idle_rounds });
        self.idle_rounds += rounds;
        for &(clock, c) in &*quiet {
            let cpu = &mut self.cpus[c];
            let account = cpu.switch(Account::Idle);
            cpu.wait_until(Ticks(clock));
            cpu.switch(account);
            self.clocks.set(c, clock);
        }
        rounds > 0
    }
}

/// Rounds of waiting of all these CPUs; how many there were.
fn wait(quiet: &mut [Clock], bounds: Bounds) -> u64 {
    quiet.sort_unstable();
    let mut rounds = 0;
    while quiet[0] < bounds.others && rounds < bounds.rounds {
        rounds += take_turns(quiet, Bounds { rounds: bounds.rounds - rounds - 1, ..bounds });
        rounds += 1;
        let (now, c) = quiet[0];
        let second = quiet.get(1).map_or(u64::MAX, |q| q.0).min(bounds.others.0);
        let (next, least) = (second.saturating_add(1).min(bounds.done), now + bounds.pause);
        let to = if next == u64::MAX { least } else { next.max(least) };
        let mut at = 0;
        while let Some(earlier) = quiet.get(at + 1).filter(|q| **q < (to, c)) {
            quiet[at] = *earlier;
            at += 1;
        }
        quiet[at] = (to, c);
    }
    rounds
}

/// CPUs that are less than a pause apart, and not all at one time, do their rounds in turn, each of
/// a pause: as many turns as all can do before the next CPU that does not wait. How many rounds
/// that are. (Of CPUs at one time the last jumps behind the first, which is more than a pause.)
fn take_turns(quiet: &mut [Clock], bounds: Bounds) -> u64 {
    let (first, last) = (quiet[0].0, quiet[quiet.len() - 1].0);
    if first == last || last - first >= bounds.pause || last >= bounds.others.0 {
        return 0;
    }
    let count = quiet.len() as u64;
    let turns = ((bounds.others.0 - 1 - last) / bounds.pause).min(bounds.rounds / count);
    quiet.iter_mut().for_each(|cpu| cpu.0 += turns * bounds.pause);
    turns * count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Rng;

    /// One round after the other, by the words of [`SimState::wait_round`].
    fn one_by_one(quiet: &mut [Clock], bounds: Bounds) -> u64 {
        for round in 0..bounds.rounds {
            let first = (0..quiet.len()).min_by_key(|n| quiet[*n]).expect("one");
            if quiet[first] > bounds.others {
                return round;
            }
            let theirs = (0..quiet.len()).filter(|n| *n != first).map(|n| quiet[n].0);
            let next = theirs.chain([bounds.others.0]).min().filter(|next| *next != u64::MAX);
            let done = Some(bounds.done).filter(|done| *done != u64::MAX);
            let next = next.map(|t| t + 1).into_iter().chain(done).min();
            let pause = quiet[first].0 + bounds.pause;
            quiet[first].0 = next.map_or(pause, |t| t.max(pause));
        }
        bounds.rounds
    }

    #[test]
    fn many_rounds_at_once_are_as_one_after_the_other() {
        let mut rng = Rng::new(1);
        let mut jumps = 0;
        for _ in 0..50_000 {
            let span = [4, 100, 20_000][rng.below(3) as usize];
            let most = [1, 10, 500][rng.below(3) as usize];
            let count = 1 + rng.below(6) as usize;
            let mut quiet: Vec<Clock> = (0..count).map(|c| (rng.below(span), 2 * c + 1)).collect();
            let others = (rng.below(2 * span), 2 * rng.below(count as u64 + 1) as usize);
            let bounds = Bounds {
                others: if rng.one_in(8) { (u64::MAX, usize::MAX) } else { others },
                done: if rng.one_in(2) { u64::MAX } else { rng.below(2 * span) },
                pause: 1 + rng.below(most),
                rounds: [rng.below(5), 10_000][rng.below(2) as usize],
            };
            let mut slow = quiet.clone();
            let rounds = one_by_one(&mut slow, bounds);
            let mut ahead = quiet.clone();
            ahead.sort_unstable();
            jumps += u64::from(bounds.rounds > 0 && take_turns(&mut ahead, bounds) > 0);
            assert_eq!(wait(&mut quiet, bounds), rounds);
            slow.sort_unstable();
            quiet.sort_unstable();
            assert_eq!(quiet, slow);
        }
        assert!(jumps > 1000, "{jumps}");
    }
}
