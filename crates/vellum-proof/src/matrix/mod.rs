//! The matrix of pairs: every verb against every verb and every kind of access, in every state of
//! the pages, in every interleaving of few preemptions.
//!
//! A scenario is a state, an MMU, who runs the space, and what each CPU does ([`scenario`]). Its
//! schedules are those of [`search`]; after each of them what all CPUs saw must be explained by the
//! [`spec`], everything the library keeps is recounted, and no frame may remain. A scenario that
//! fails is made shorter and shown as a time line ([`fail`]).

pub mod acts;
pub mod fail;
pub mod failure;
pub mod model;
pub mod object;
pub mod scenario;
pub mod spec;
pub mod stage;
pub mod states;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::explore::search::{Found, Plan, Schedule};
use crate::explore::{Explored, Script, search};

pub use fail::explain;
pub use scenario::{Scenario, all, slice, usual};
use stage::{Setting, Stage};
use states::Mmu;
use vellum::entry::{Aarch64, Codec, X86_64};

/// What was run.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    /// Scenarios.
    pub scenarios: u64,
    /// Schedules of all of them.
    pub schedules: u64,
    /// Stops of all schedules.
    pub stops: u64,
    /// Schedules that ended as another of the scenario did.
    pub known: u64,
    /// Scenarios whose schedules were cut off at the limit.
    pub cut: u64,
    /// Those that failed, with what was found first.
    pub failed: Vec<(Scenario, Found)>,
}

/// How much of a scenario is run.
#[derive(Clone, Copy, Debug)]
pub struct Depth {
    /// Preemptions at most.
    pub most: usize,
    /// Schedules at most, and stops of all of them together.
    pub limit: (u64, u64),
}

fn on<C: Codec, R>(
    setting: &Setting,
    depth: Depth,
    run: impl FnOnce(&Plan<'_, Stage<C>>) -> R,
) -> R {
    let make = || Stage::<C>::new(setting);
    let mut scripts: Vec<Script<Stage<C>>> = setting
        .lines
        .iter()
        .cloned()
        .enumerate()
        .map(|(cpu, line)| -> Script<Stage<C>> {
            std::rc::Rc::new(move |stage| stage.play(cpu, &line))
        })
        .collect();
    if setting.state.late.is_some() {
        scripts.push(std::rc::Rc::new(Stage::answer_late));
    }
    stage::forget_histories();
    run(&Plan { make: &make, scripts: &scripts, most: depth.most, limit: depth.limit })
}

/// Runs a setting's schedules.
///
/// # Errors
/// The first that does not hold.
pub fn run(setting: &Setting, depth: Depth) -> Result<Explored, Box<Found>> {
    match setting.mmu {
        Mmu::Arm => on::<Aarch64, _>(setting, depth, search::search),
        _ => on::<X86_64, _>(setting, depth, search::search),
    }
}

/// Runs one schedule of a setting.
///
/// # Errors
/// What does not hold.
pub fn replay(setting: &Setting, schedule: &Schedule) -> Result<(), String> {
    let depth = Depth { most: 0, limit: (1, u64::MAX) };
    match setting.mmu {
        Mmu::Arm => on::<Aarch64, _>(setting, depth, |plan| search::replay(plan, schedule)),
        _ => on::<X86_64, _>(setting, depth, |plan| search::replay(plan, schedule)),
    }
}

/// How scenarios are run.
#[derive(Clone, Copy, Debug)]
pub struct Care {
    /// How much of each.
    pub depth: Depth,
    /// Threads.
    pub threads: usize,
    /// No new ones are taken once so many have failed.
    pub failures: usize,
    /// Each is told of.
    pub tell: bool,
}

/// Runs scenarios.
///
/// # Panics
/// If a thread does.
pub fn run_all(scenarios: &[Scenario], care: Care) -> Sum {
    let Care { depth, threads, failures, tell } = care;
    let (next, sum) = (AtomicUsize::new(0), Mutex::new(Sum::default()));
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let done = run(&scenario.setting(), depth);
                    let mut sum = sum.lock().expect("no thread panics with it");
                    sum.scenarios += 1;
                    match done {
                        Ok(done) => {
                            if tell {
                                println!(
                                    "{scenario}: {} schedules, {} alike, {} stops",
                                    done.schedules, done.known, done.stops
                                );
                            }
                            sum.schedules += done.schedules;
                            sum.stops += done.stops;
                            sum.known += done.known;
                            sum.cut += u64::from(done.cut);
                        }
                        Err(found) => {
                            eprintln!("failed: {scenario} --schedule {}", found.schedule);
                            sum.failed.push((scenario.clone(), *found));
                            if sum.failed.len() >= failures {
                                next.store(scenarios.len(), Ordering::Relaxed);
                            }
                        }
                    }
                }
            });
        }
    });
    std::panic::set_hook(hook);
    sum.into_inner().expect("no thread panics with it")
}
