//! Every interleaving of few preemptions that can end differently.
//!
//! As [`explore`](super::explore), but a CPU is preempted only where it is about to access what
//! another CPU is known to access ([`footprint`]), and schedules start on each CPU once. Every run
//! adds to what is known. When all schedules are done, those that were left out too early are run,
//! until nothing is new.
//!
//! A preemption elsewhere could move to the CPU's next conflicting access without changing any
//! value that is read. It makes the times of calls only stricter: a verb then returns earlier or
//! begins later.

use std::collections::HashSet;

use super::footprint::Mixing;
use super::{Explored, Order, Preemption, Script, Trace, World, footprint, run};

/// A schedule: the CPU that starts, and the preemptions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Schedule {
    /// The CPU that starts.
    pub first: usize,
    /// Stops of the run, and the CPUs that go on there.
    pub preemptions: Vec<Preemption>,
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.first)?;
        self.preemptions.iter().try_for_each(|(at, to)| write!(f, ",{at}:{to}"))
    }
}

impl std::str::FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Schedule, String> {
        let bad = || format!("`{text}` is no schedule: `first,stop:cpu,stop:cpu,...` is wanted");
        let mut parts = text.split(',');
        let first = parts.next().and_then(|p| p.trim().parse().ok()).ok_or_else(bad)?;
        let one = |p: &str| {
            let (at, to) = p.split_once(':')?;
            Some((at.trim().parse().ok()?, to.trim().parse().ok()?))
        };
        let preemptions = parts.map(one).collect::<Option<_>>().ok_or_else(bad)?;
        Ok(Schedule { first, preemptions })
    }
}

/// A schedule that fails, and why.
#[derive(Clone, Debug)]
pub struct Found {
    /// The schedule.
    pub schedule: Schedule,
    /// Why it fails.
    pub what: String,
}

/// What is to be run.
pub struct Plan<'p, W> {
    /// Makes the world anew for each schedule.
    pub make: &'p dyn Fn() -> W,
    /// What each CPU does.
    pub scripts: &'p [Script<W>],
    /// Preemptions at most.
    pub most: usize,
    /// Schedules at most, and stops of all of them together.
    pub limit: (u64, u64),
}

/// Runs one schedule.
///
/// # Errors
/// Why a schedule fails.
pub fn replay<W: World>(plan: &Plan<'_, W>, schedule: &Schedule) -> Result<(), String> {
    run(plan.make, plan.scripts, schedule.first, Order::List(&schedule.preemptions)).map(drop)
}

/// Runs the schedules of a plan, those of fewest preemptions first.
///
/// # Errors
/// The first that fails.
pub fn search<W: World>(plan: &Plan<'_, W>) -> Result<Explored, Box<Found>> {
    footprint::collect(true);
    let done = search_all(plan);
    footprint::collect(false);
    done
}

fn search_all<W: World>(plan: &Plan<'_, W>) -> Result<Explored, Box<Found>> {
    let mut sum = Explored::default();
    let starts = (0..plan.scripts.len()).map(|first| Schedule { first, preemptions: Vec::new() });
    let mut todo: Vec<Schedule> = starts.collect();
    let mut listed: HashSet<Schedule, Mixing> = todo.iter().cloned().collect();
    // Runs that a preemption more may be added to.
    let mut ran: Vec<(Schedule, Trace)> = Vec::new();
    loop {
        for schedule in std::mem::take(&mut todo) {
            if sum.schedules >= plan.limit.0 || sum.stops >= plan.limit.1 {
                return Ok(Explored { cut: true, ..sum });
            }
            let order = Order::List(&schedule.preemptions);
            let trace = run(plan.make, plan.scripts, schedule.first, order)
                .map_err(|what| Box::new(Found { schedule: schedule.clone(), what }))?;
            sum.schedules += 1;
            sum.stops += trace.stops.len() as u64;
            sum.waited += trace.waited as u64;
            sum.known += trace.known as u64;
            // What follows on one that ended as another did, follows on that other likewise.
            if schedule.preemptions.len() < plan.most && !trace.known {
                ran.push((schedule, trace));
            }
        }
        // One more than may be run shows that there are more.
        let left = plan.limit.0 - sum.schedules;
        let most = usize::try_from(left).map_or(usize::MAX, |n| n.saturating_add(1));
        // Fewest preemptions first: what fails is then as simple as can be.
        for preemptions in 0..plan.most {
            let shorter = ran.iter().filter(|(s, _)| s.preemptions.len() == preemptions);
            let new = shorter.flat_map(|(schedule, trace)| longer(schedule, trace));
            todo.extend(new.filter(|s| !listed.contains(s)).take(most - todo.len()));
        }
        if todo.is_empty() {
            return Ok(sum);
        }
        listed.extend(todo.iter().cloned());
    }
}

/// The schedules with one preemption more, behind those there are.
fn longer<'t>(schedule: &'t Schedule, trace: &'t Trace) -> impl Iterator<Item = Schedule> + 't {
    let from = schedule.preemptions.last().map_or(0, |&(at, _)| at + 1);
    let stops = trace.stops.iter().enumerate().skip(from);
    let worth =
        stops.filter(|(_, stop)| stop.others != 0 && footprint::conflicts(stop.cpu, stop.touch));
    worth.flat_map(move |(at, stop)| {
        (0..8).filter(|to| stop.others >> to & 1 != 0).map(move |to| {
            let mut longer = schedule.clone();
            longer.preemptions.push((at, to));
            longer
        })
    })
}
