//! Running closures as CPUs.
//!
//! [`SimMachine::run`] starts one coroutine for each closure and lets them take turns until all
//! have returned or the oracle stops the run. A stopped run is neither resumed nor unwound: its
//! coroutines are leaked, with the library's locks held on their stacks, since dropping a half-done
//! protocol would hide what happened.

use core::mem::ManuallyDrop;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};

use crate::cpu::{Account, Cpu};
use crate::format::Format;
use crate::machine::SimMachine;
use crate::oracle::{Rule, Stop};
use crate::schedule::Earliest;
use crate::schedule::idle::Clock;
use crate::schedule::wait::Wait;

/// Bytes of a coroutine's stack.
const STACK: usize = 1 << 20;

/// What a run took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// From the earliest start to the last end, in cycles.
    pub cycles: u64,
}

type Task<'env, F> = Box<dyn FnOnce(&Cpu<'env, F>) + 'env>;

/// The closures of a run being set up.
pub struct Run<'env, F: Format> {
    tasks: Vec<(usize, Task<'env, F>)>,
}

impl<'env, F: Format> Run<'env, F> {
    /// Runs `program` on a CPU. At most one on each.
    pub fn spawn(&mut self, cpu: usize, program: impl FnOnce(&Cpu<'env, F>) + 'env) {
        self.tasks.push((cpu, Box::new(program)));
    }
}

struct Started {
    cpu: usize,
    coroutine: ManuallyDrop<Coroutine<(), (), (), DefaultStack>>,
    done: bool,
    /// What it waits for, if it does.
    wait: Option<Wait>,
    /// How many turns of coroutines there had been when it was last asked, and waited on.
    asked: u64,
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.done {
            // SAFETY: dropped once, here; a coroutine that returned has nothing left to unwind. One
            // that has not is leaked with its stack, so nothing on the stack is ever reused.
            unsafe { ManuallyDrop::drop(&mut self.coroutine) }
        }
    }
}

impl<F: Format> SimMachine<F> {
    /// Runs the closures that `setup` spawns, each on its CPU, until all have returned; or says why
    /// the run was stopped. A panic in a closure goes through to the caller.
    pub fn run<'env>(&'env self, setup: impl FnOnce(&mut Run<'env, F>)) -> Result<Outcome, Stop> {
        assert!(self.yielder.get().is_null(), "run is called from inside a run");
        let mut run = Run { tasks: Vec::new() };
        setup(&mut run);
        let mut all = Vec::new();
        for (cpu, task) in run.tasks {
            assert!(cpu < self.topology.cpus, "CPU {cpu} of {}", self.topology.cpus);
            assert!(!all.iter().any(|s: &Started| s.cpu == cpu), "two programs on CPU {cpu}");
            all.push(self.start(cpu, task));
        }
        let start = all.iter().map(|s| self.clock(s.cpu)).min().unwrap_or(0);
        self.state.with(|st| {
            st.live = all.iter().map(|s| s.cpu).collect();
            st.live.sort_unstable();
            for n in 0..st.live.len() {
                st.cpus[st.live[n]].running = true;
                st.note_clock(st.live[n]);
            }
        });
        {
            let _quiet = Quiet { sim: self, current: self.current.get() };
            self.turns(&mut all)?;
        }
        let end = all.iter().map(|s| self.clock(s.cpu)).max().unwrap_or(start);
        Ok(Outcome { cycles: end - start })
    }

    /// Runs one closure on one CPU and returns what it returns.
    pub fn solo<'env, T: 'env>(
        &'env self,
        cpu: usize,
        program: impl FnOnce(&Cpu<'env, F>) -> T + 'env,
    ) -> Result<T, Stop> {
        let result = std::rc::Rc::new(core::cell::Cell::new(None));
        let slot = result.clone();
        self.run(move |run| run.spawn(cpu, move |c| slot.set(Some(program(c)))))?;
        match result.take() {
            Some(value) => Ok(value),
            None => Err(Stop {
                rule: Rule::Contract,
                cpu,
                va: None,
                pfn: None,
                explanation: "the program ended without a result".into(),
                clock: self.clock(cpu),
                seed: 0,
                events: Vec::new(),
            }),
        }
    }

    fn start<'env>(&'env self, cpu: usize, task: Task<'env, F>) -> Started {
        let body = move |yielder: &corosensei::Yielder<(), ()>, ()| {
            self.yielder.set(yielder);
            self.current.set(cpu);
            task(&Cpu::new(self, cpu));
        };
        let stack = DefaultStack::new(STACK).expect("address space for a coroutine's stack");
        // SAFETY: the closure borrows for 'env, which outlives this call of `run`; a coroutine does
        // not outlive `run` except leaked, and then it is never resumed.
        let coroutine = unsafe { Coroutine::with_stack_unchecked(stack, body) };
        Started { cpu, coroutine: ManuallyDrop::new(coroutine), done: false, wait: None, asked: 0 }
    }

    fn turns(&self, all: &mut [Started]) -> Result<(), Stop> {
        // Turns of coroutines so far.
        let (mut resumed, mut quiet) = (1, Vec::new());
        loop {
            let (chosen, stop) = self.state.with(|s| {
                if let Some(stop) = s.stop.take() {
                    s.dead = true;
                    return (None, Some(stop));
                }
                (s.choose(), None)
            });
            if let Some(stop) = stop {
                return Err(*stop);
            }
            let Some(cpu) = chosen else { return Ok(()) };
            let Some(n) = all.iter().position(|s| s.cpu == cpu) else { return Ok(()) };
            let started = &all[n];
            if let Some(wait) = started.wait {
                if started.asked == resumed && self.idle_together(all, resumed, &mut quiet) {
                    continue;
                }
                if self.waits_on(cpu, wait) {
                    all[n].asked = resumed;
                    continue;
                }
            }
            resumed += 1;
            let started = &mut all[n];
            self.state.with(|s| {
                if s.last_cpu != cpu {
                    s.cpus[cpu].forget_lines();
                    s.last_cpu = cpu;
                }
                s.set_until(cpu);
            });
            self.current.set(cpu);
            let result = {
                let _outside = Outside(self);
                started.coroutine.resume(())
            };
            started.wait = self.wait.take();
            self.state.with(|s| s.note_clock(cpu));
            if let CoroutineResult::Return(()) = result {
                started.done = true;
                self.state.with(|s| {
                    s.cpus[cpu].running = false;
                    s.live.retain(|&c| c != cpu);
                    s.clocks.set(cpu, u64::MAX);
                    s.serve(cpu, true);
                    s.cpus[cpu].until = crate::memory::Ticks::MAX;
                });
            }
        }
    }
}

impl<F: Format> SimMachine<F> {
    /// The turn of a coroutine that waits, without a switch to it: whether it waits on, for which
    /// one more round of waiting is done.
    fn waits_on(&self, cpu: usize, wait: Wait) -> bool {
        // A condition that calls the machine finds no CPU to do it on.
        self.current.set(usize::MAX);
        // SAFETY: it lies on the stack of a coroutine that is suspended inside `wait_for`, which
        // lent it until it is resumed; that is not before `started.wait` is set anew.
        if unsafe { (*wait.condition)() } {
            return false;
        }
        self.state.with(|s| {
            s.wait_round(wait.cpu, Account::Idle);
            s.note_clock(cpu);
        });
        true
    }

    /// The rounds of all who were asked since a coroutine last ran, up to the turn of somebody
    /// else. Says whether there was one.
    fn idle_together(&self, all: &[Started], resumed: u64, quiet: &mut Vec<Clock>) -> bool {
        self.state.with(|s| {
            if s.hunting {
                return false;
            }
            quiet.clear();
            quiet.extend(
                all.iter()
                    .filter(|w| w.asked == resumed && w.wait.is_some_and(|wait| wait.cpu == w.cpu))
                    .filter(|w| s.cpus[w.cpu].requests.is_empty())
                    .map(|w| (s.clocks.get(w.cpu), w.cpu)),
            );
            !quiet.is_empty() && s.idle_rounds_of(quiet)
        })
    }
}

/// Back outside of coroutines, by whatever way.
struct Outside<'a, F: Format>(&'a SimMachine<F>);

impl<F: Format> Drop for Outside<'_, F> {
    fn drop(&mut self) {
        self.0.yielder.set(core::ptr::null());
    }
}

/// Nothing runs any more, however the run ended.
struct Quiet<'a, F: Format> {
    sim: &'a SimMachine<F>,
    current: usize,
}

impl<F: Format> Drop for Quiet<'_, F> {
    fn drop(&mut self) {
        self.sim.current.set(self.current);
        self.sim.state.with(|s| {
            s.live.clear();
            s.clocks = Earliest::default();
            s.cpus.iter_mut().for_each(|cpu| (cpu.running, cpu.aside) = (false, false));
        });
    }
}
