//! Rounds of CPUs that wait, while nobody else runs.

use crate::cpu::Account;
use crate::format::Format;
use crate::machine::SimState;
use crate::memory::Ticks;
use crate::schedule::turn::HOPELESS;

impl<F: Format> SimState<F> {
    /// The rounds of `quiet` CPUs, by clock and number, that come before any other CPU's turn. Each
    /// waits for what does not hold and cannot before another CPU runs, so that only clocks change:
    /// as [`SimState::wait_round`] does it, one round after the other. Says whether there was one.
    pub(super) fn idle_rounds_of(&mut self, quiet: &mut [(u64, usize)]) -> bool {
        for &(_, c) in &*quiet {
            self.clocks.set(c, u64::MAX);
        }
        let others = (self.clocks.least(), self.clocks.first().unwrap_or(usize::MAX));
        let done = self.disk.next_due().map_or(u64::MAX, |t| t.0);
        let pause = self.costs.pause.max(Ticks(1)).0;
        let before = self.idle_rounds;
        loop {
            let (mut first, mut second) = (0, others.0);
            for (n, cpu) in quiet.iter().enumerate().skip(1) {
                if *cpu < quiet[first] {
                    second = second.min(quiet[first].0);
                    first = n;
                } else {
                    second = second.min(cpu.0);
                }
            }
            if others < quiet[first] || self.idle_rounds == HOPELESS {
                break;
            }
            self.idle_rounds += 1;
            let next = second.saturating_add(1).min(done);
            let least = quiet[first].0 + pause;
            quiet[first].0 = if next == u64::MAX { least } else { next.max(least) };
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
}
