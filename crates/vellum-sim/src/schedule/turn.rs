//! The points at which a turn may end.

use crate::cpu::Account;
use crate::format::Format;
use crate::machine::{SimMachine, SimState};
use crate::memory::Ticks;
use crate::oracle::Rule;
use crate::schedule::Wait;

/// Rounds of waiting, over all CPUs, after which nothing can be expected to end it.
pub(super) const HOPELESS: u64 = 4_000_000;

/// A condition on somebody's stack.
type Lent<'a> = *mut (dyn FnMut() -> bool + 'a);

impl<F: Format> SimState<F> {
    /// The clock of the running CPU that is furthest behind, `c` left out.
    fn next_clock(&self, c: usize) -> Option<Ticks> {
        Some(Ticks(self.clocks.least_but(c))).filter(|next| *next != Ticks::MAX)
    }

    /// A CPU's turn is over, or it is about to have its first.
    pub(crate) fn note_clock(&mut self, n: usize) {
        self.clocks.set(n, self.cpus[n].core.now().0);
    }

    /// Works out until when a CPU may run undisturbed.
    pub(crate) fn set_until(&mut self, c: usize) {
        let until = if self.hunting {
            Ticks::ZERO
        } else {
            let next = self.next_clock(c).map_or(Ticks::MAX, |t| t + self.quantum);
            self.cpus[c].requests.iter().map(|r| r.due).min().map_or(next, |due| due.min(next))
        };
        self.cpus[c].until = until;
    }

    /// The CPU to run next, if any is left.
    pub(crate) fn choose(&mut self) -> Option<usize> {
        if self.live.is_empty() {
            return None;
        }
        if self.hunting {
            let n = self.rng.below(self.live.len() as u64);
            return Some(self.live[n as usize]);
        }
        self.clocks.first()
    }

    /// The clock reached `until`: serves what is due and says whether the turn ends.
    #[inline(never)]
    fn breathe(&mut self, c: usize) -> bool {
        self.serve(c, false);
        if self.hunting {
            self.speculate();
            return self.rng.one_in(3);
        }
        self.set_until(c);
        let cpu = &self.cpus[c];
        cpu.core.now() >= cpu.until
    }

    /// One round of a wait loop.
    pub(super) fn wait_round(&mut self, c: usize, account: Account) {
        self.serve(c, true);
        self.idle_rounds += 1;
        if self.idle_rounds > HOPELESS {
            let why =
                format!("CPUs {:?} have waited {HOPELESS} rounds and nothing happened", self.live);
            return self.fail(c, Rule::Livelock, None, None, why);
        }
        let pause = self.costs.pause.max(Ticks(1));
        let next = if self.hunting { None } else { self.next_clock(c) };
        let cpu = &mut self.cpus[c];
        let before = cpu.switch(account);
        let now = cpu.core.now();
        // If all others are ahead, nothing can change before they run, or the disk is done: the
        // clock jumps to theirs.
        let done = if self.hunting { None } else { self.disk.next_due() };
        let next = next.map(|t| t + Ticks(1)).into_iter().chain(done).min();
        let to = next.map_or(now + pause, |t| t.max(now + pause));
        cpu.wait_until(to);
        cpu.switch(before);
        if self.hunting {
            self.speculate();
        }
    }
}

impl<F: Format> SimMachine<F> {
    /// A machine call: requests are served and the turn may end.
    #[inline]
    pub(crate) fn point(&self) {
        let c = self.current.get();
        let due = self.state.with(|s| s.cpus[c].core.now() >= s.cpus[c].until);
        if due {
            self.breathe();
        }
    }

    /// A place that only matters to those who look for races.
    #[inline]
    pub(crate) fn point_if_hunting(&self) {
        if self.state.with(|s| s.hunting) {
            self.point();
        }
    }

    #[inline(never)]
    pub(crate) fn breathe(&self) {
        if self.yielder.get().is_null() {
            return;
        }
        if self.act(|s, c| s.breathe(c)) {
            self.suspend();
        }
    }

    /// One round of a wait loop: serves every request of this CPU, lets time pass, lets others run.
    pub(crate) fn pause(&self, account: Account) {
        self.act(|s, c| s.wait_round(c, account));
        if !self.yielder.get().is_null() {
            self.suspend();
        }
    }

    /// Lets others run until `condition` holds, which calls nothing of the machine. Each round is
    /// one of [`SimMachine::pause`]; whoever chooses the next turn does it, and asks the condition
    /// where somebody has run since it was last asked.
    pub(crate) fn wait_for(&self, condition: &mut dyn FnMut() -> bool) {
        while !condition() {
            self.act(|s, c| s.wait_round(c, Account::Idle));
            if self.yielder.get().is_null() {
                continue;
            }
            // SAFETY: only the lifetime differs. The pointer is used until this coroutine is
            // resumed, and all that time this call's borrow stands.
            let condition = unsafe { core::mem::transmute::<Lent<'_>, Lent<'static>>(condition) };
            self.wait.set(Some(Wait { cpu: self.current.get(), condition }));
            self.suspend();
            return;
        }
    }

    /// Ends this coroutine's turn; comes back when it is chosen again.
    pub(crate) fn suspend(&self) {
        let (yielder, c) = (self.yielder.get(), self.current.get());
        // SAFETY: not null, so set by the coroutine that runs now to its own yielder, which lives
        // as long as the coroutine's stack; suspending from anywhere on that stack is what it is
        // for.
        unsafe { (*yielder).suspend(()) };
        self.yielder.set(yielder);
        self.current.set(c);
    }
}
