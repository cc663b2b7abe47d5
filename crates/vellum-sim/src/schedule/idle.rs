//! Rounds of CPUs that wait, while nobody else runs.

use crate::cpu::Account;
use crate::format::Format;
use crate::machine::SimState;
use crate::memory::Ticks;
use crate::schedule::turn::HOPELESS;

impl<F: Format> SimState<F> {
    /// The rounds of `quiet` CPUs, of which there is at least one, that come before any other CPU's
    /// turn; each is its clock and its number. They wait for what does not hold and cannot before
    /// another CPU runs, so that only clocks change: as [`SimState::wait_round`] does it, one round
    /// after the other. Says whether there was one.
    pub(super) fn idle_rounds_of(&mut self, quiet: &mut [(u64, usize)]) -> bool {
        for &(_, c) in &*quiet {
            self.clocks.set(c, u64::MAX);
        }
        let others = (self.clocks.least(), self.clocks.first().unwrap_or(usize::MAX));
        let done = self.disk.next_due().map_or(u64::MAX, |t| t.0);
        let pause = self.costs.pause.max(Ticks(1)).0;
        let before = self.idle_rounds;
        quiet.sort_unstable();
        while quiet[0] < others && self.idle_rounds < HOPELESS {
            self.take_turns(quiet, others.0, pause);
            self.idle_rounds += 1;
            let (now, c) = quiet[0];
            let second = quiet.get(1).map_or(others.0, |q| q.0.min(others.0));
            let next = second.saturating_add(1).min(done);
            let to = if next == u64::MAX { now + pause } else { next.max(now + pause) };
            let mut at = 0;
            while let Some(earlier) = quiet.get(at + 1).filter(|q| **q < (to, c)) {
                quiet[at] = *earlier;
                at += 1;
            }
            quiet[at] = (to, c);
        }
        for &(clock, c) in &*quiet {
            let cpu = &mut self.cpus[c];
            let account = cpu.switch(Account::Idle);
            cpu.wait_until(Ticks(clock));
            cpu.switch(account);
            self.clocks.set(c, clock);
        }
        self.idle_rounds > before
    }
    /// CPUs less than a pause apart do their rounds in turn, each of a pause: as many as all can do
    /// before `others`.
    fn take_turns(&mut self, quiet: &mut [(u64, usize)], others: u64, pause: u64) {
        let (first, last) = (quiet[0].0, quiet[quiet.len() - 1].0);
        if quiet.len() == 1 || last - first >= pause || last >= others {
            return;
        }
        let count = quiet.len() as u64;
        let rounds = ((others - 1 - last) / pause).min((HOPELESS - self.idle_rounds - 1) / count);
        quiet.iter_mut().for_each(|cpu| cpu.0 += rounds * pause);
        self.idle_rounds += rounds * count;
    }
}
