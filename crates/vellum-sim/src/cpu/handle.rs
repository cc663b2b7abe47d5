//! A CPU as its program uses it.

use vellum::machine::Work;

use super::access::{PageFault, Seen, Trap};
use super::begin::Step;
use super::{Account, Kind, Price};
use crate::format::Format;
use crate::machine::SimMachine;
use crate::oracle::{Rule, Stop};

/// The CPU a closure of [`SimMachine::run`] runs on.
pub struct Cpu<'a, F: Format> {
    sim: &'a SimMachine<F>,
    id: usize,
}

/// How far an access has come that [`Cpu::begin`] began.
#[must_use = "an access that is not done has to be finished"]
#[derive(Debug)]
pub struct Begun(Step);

impl Begun {
    /// Nothing of it is left.
    #[inline(always)]
    pub fn is_done(&self) -> bool {
        self.0 == Step::Done
    }
}

impl<'a, F: Format> Cpu<'a, F> {
    pub(crate) fn new(sim: &'a SimMachine<F>, id: usize) -> Cpu<'a, F> {
        Cpu { sim, id }
    }

    /// The machine.
    pub fn machine(&self) -> &'a SimMachine<F> {
        self.sim
    }

    /// Its number.
    pub fn id(&self) -> usize {
        self.id
    }

    /// Runs `script` as another CPU, on which no program runs: for tests that write down one
    /// interleaving.
    pub fn script<T>(&self, id: usize, script: impl FnOnce(&Cpu<'a, F>) -> T) -> T {
        let before = self.sim.current.replace(id);
        // While it stands aside, the CPU of this program serves flush requests at once, like one on
        // which nothing runs.
        self.sim.state.with(|s| {
            s.cpus[before].aside = before != id;
            // What was asked until now is not asked again.
            if before != id {
                s.serve(before, true);
            }
        });
        let result = script(&Cpu::new(self.sim, id));
        self.sim.state.with(|s| s.cpus[before].aside = false);
        self.sim.current.set(before);
        result
    }

    /// Its clock, in cycles.
    pub fn now(&self) -> u64 {
        self.sim.clock(self.id)
    }

    /// One access by the program, `size` bytes from `va`; split where it crosses lines.
    /// `dependent`: its address is the result of the load before. Retires one instruction for each
    /// line (none for fetches). On a page fault nothing from the faulting line on has happened.
    #[inline(always)]
    pub fn access(
        &self,
        va: u64,
        size: u32,
        kind: Kind,
        dependent: bool,
    ) -> Result<Seen, PageFault> {
        let begun = self.begin(va, size, kind, dependent);
        if begun.is_done() {
            return Ok(Seen(0));
        }
        self.finish(begun, va, size, kind, dependent)
    }

    /// The first part of [`Cpu::access`], which is nearly always all of it. If it is not done,
    /// [`Cpu::finish`] has to be next on this CPU, with the same access.
    #[inline(always)]
    pub fn begin(&self, va: u64, size: u32, kind: Kind, dependent: bool) -> Begun {
        let last = va.wrapping_add(u64::from(size.max(1)) - 1) >> 6;
        if va >> 6 == last { self.begin_line(va, kind, dependent) } else { Begun(Step::Split) }
    }

    #[inline(always)]
    fn begin_line(&self, va: u64, kind: Kind, dependent: bool) -> Begun {
        let id = self.id;
        Begun(self.sim.state.with(|s| match kind {
            Kind::Load => s.begin_load(id, va, dependent),
            Kind::Store => s.begin_store(id, va),
            Kind::Fetch => s.begin_fetch(id, va),
        }))
    }

    /// The second part of the access that was begun.
    #[inline(never)]
    pub fn finish(
        &self,
        begun: Begun,
        va: u64,
        size: u32,
        kind: Kind,
        dependent: bool,
    ) -> Result<Seen, PageFault> {
        let line = match begun.0 {
            Step::Done => return Ok(Seen(0)),
            Step::Line(line) => Some(line),
            Step::Counted => None,
            Step::Due => {
                self.turn(false);
                return Ok(Seen(0));
            }
            Step::Split => return self.lines(va, size, kind, dependent),
        };
        let id = self.id;
        let (result, due) = self.sim.state.with(|s| {
            let r = s.access(id, (va, line), kind, dependent);
            let cpu = &s.cpus[id];
            (r, cpu.core.now() >= cpu.until)
        });
        if due || matches!(result, Err(Trap::Stop)) {
            self.turn(matches!(result, Err(Trap::Stop)));
        }
        match result {
            Ok(seen) => Ok(seen),
            Err(Trap::Fault(fault)) => Err(fault),
            Err(Trap::Stop) => unreachable!("a stopped program is not resumed"),
        }
    }

    /// An access to several lines.
    fn lines(&self, va: u64, size: u32, kind: Kind, dependent: bool) -> Result<Seen, PageFault> {
        let line = |va| self.finish(self.begin_line(va, kind, dependent), va, 1, kind, dependent);
        let last = va.wrapping_add(u64::from(size.max(1)) - 1) >> 6;
        let mut seen = line(va)?;
        for next in (va >> 6) + 1..=last {
            seen = line(next << 6)?;
        }
        Ok(seen)
    }

    #[inline(never)]
    fn turn(&self, stopped: bool) {
        self.sim.state.with(|s| s.idle_rounds = 0);
        if stopped {
            self.sim.halt();
        }
        self.sim.breathe();
    }

    /// The next access lies behind a branch that was predicted wrongly, on what the last load
    /// brings: the time of `core.mispredict` passes, and an access that depends on that load begins
    /// so much after it. Where the machine file has no such time nothing happens.
    #[inline]
    pub fn mispredicted(&self) {
        self.sim.state.with(|s| s.mispredicted(self.id));
    }

    /// Runs `n` instructions that touch no memory.
    #[inline]
    pub fn retire(&self, n: u64) {
        let id = self.id;
        let due = self.sim.state.with(|s| {
            s.cpus[id].core.retire(n);
            s.cpus[id].core.now() >= s.cpus[id].until
        });
        if due {
            self.turn(false);
        }
    }

    /// Runs `n` more loads from the line that was loaded last. They are instructions and go through
    /// the load port; caches and counts of accesses know nothing of them.
    #[inline]
    pub fn reload(&self, n: u64) {
        self.sim.state.with(|s| s.cpus[self.id].core.issue(n));
        self.retire(n);
    }

    /// Charges a system call that moves bytes and is none of the library's verbs.
    pub fn syscall(&self) {
        self.call(true);
    }

    /// Charges the way to another thread and back as a system call.
    pub fn thread_switch(&self) {
        self.call(false);
    }

    fn call(&self, moves: bool) {
        self.sim.act(|s, c| {
            let cost = s.costs.work[Work::Call as usize];
            let moving = s.costs.file_call.filter(|_| moves);
            let cpu = &mut s.cpus[c];
            let before = cpu.switch(Account::Call);
            cpu.core.serialize();
            match moving {
                Some(cost) => cpu.charge(Price::FileCall, cost),
                None => cpu.work(Work::Call, cost),
            }
            cpu.switch(before);
        });
        self.sim.point();
    }

    /// One round of waiting: others run, interrupts are served, time passes on the idle account.
    pub fn relax(&self) {
        self.sim.pause(Account::Idle);
    }

    /// Waits until `condition` holds. It is asked again each time other CPUs have run.
    pub fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        while !condition() {
            self.relax();
        }
    }

    /// The same for a condition on what programs share and nobody else changes, which calls
    /// nothing of the machine: it saves two switches of stacks a round, and is asked again only
    /// when another program has run. It is asked on another stack than this one's, so a panic in
    /// it is not caught here but ends the run.
    pub fn wait_for(&self, mut condition: impl FnMut() -> bool) {
        self.sim.wait_for(&mut condition);
    }

    /// Stops the run if `fault` came back though nothing changed (oracle 1): for programs that call
    /// handlers themselves.
    pub fn no_progress(&self, fault: &PageFault, times: u32) {
        self.sim.act(|s, c| {
            let why = format!(
                "{:?} at {:#x} faulted {times} times; the handler returned each time and the \
                 entry was not written in between",
                fault.kind, fault.va
            );
            s.fail(c, Rule::NoProgress, Some(fault.va), None, why);
        });
    }

    /// Stops the run with a stop found elsewhere, by an audit for instance.
    pub fn stop_with(&self, stop: Stop) {
        self.sim.state.with(|s| {
            s.dead = true;
            s.stop = Some(Box::new(stop));
        });
        self.sim.halt();
    }

    /// Stops the run for a reason of the caller's: a test's own model disagrees.
    pub fn stop(&self, explanation: String) {
        self.sim.act(|s, c| s.fail(c, Rule::Contract, None, None, explanation));
    }
}
