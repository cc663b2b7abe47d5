//! Every interleaving of a few CPUs with a bounded number of preemptions.
//!
//! Each CPU is a coroutine. It stops before every access to a shared word, an entry, or memory
//! through its TLB; the library reports each to its machine. A schedule lists the stops at which
//! another CPU goes on. Elsewhere the same CPU goes on, and a CPU that waits or has finished yields
//! by itself. All schedules with no, one, two, ... preemptions run from the start, so the list
//! alone names and replays a schedule. Most races need one or two preemptions; two CPUs with sixty
//! stops each have seven thousand schedules of two.
//!
//! The library's real code is explored, one access at a time. Reordering by the memory model is
//! not: the loom tests and the stress on real cores are for that. Rejected: threads that hand over
//! a baton, ten times slower; random schedules, which the simulator draws.

pub mod footprint;
pub mod search;
pub mod tale;
pub mod worlds;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

pub use footprint::Touch;

/// A run under way.
struct Run {
    stops: Vec<Stopped>,
    /// The number of the stop at which another CPU goes on, 0 for none.
    due: usize,
    /// The CPU that runs, and those that could.
    cpu: u8,
    others: u8,
}

/// Why a CPU stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It is about to make an access, and the schedule preempts it here.
    Point,
    /// It waits for another.
    Wait,
    /// Its script lets the others go on.
    Yield,
}

type Pause = Yielder<(), Stop>;

thread_local! {
    /// Of the coroutine that runs.
    static RUNNING: Cell<*const Pause> = const { Cell::new(std::ptr::null()) };
    /// The run so far.
    static RUN: RefCell<Run> =
        const { RefCell::new(Run { stops: Vec::new(), due: 0, cpu: 0, others: 0 }) };
    /// Spare stacks.
    static STACKS: Cell<Vec<DefaultStack>> = const { Cell::new(Vec::new()) };
}

/// The CPU that runs is about to make an access: it stops if the schedule preempts it here.
///
/// # Panics
/// If the run does not end.
#[inline]
pub fn touch(touch: Touch) {
    if !is_explored() {
        return;
    }
    footprint::note(touch);
    let due = RUN.with_borrow_mut(|run| {
        run.stops.push(Stopped { cpu: run.cpu, others: run.others, touch });
        // A CPU that unwinds already goes on to its end.
        let ends = run.stops.len() < ENDLESS || std::thread::panicking();
        assert!(ends, "no end after {ENDLESS} stops");
        run.stops.len() == run.due
    });
    if due {
        pause(Stop::Point);
    }
}

/// Where the machine calls: the CPU that runs stops here, if it is explored at all.
pub fn pause(stop: Stop) {
    let me = RUNNING.get();
    if !me.is_null() {
        // SAFETY: set by the coroutine that runs, to its own yielder, which lives as long as its
        // body; other coroutines set theirs.
        unsafe { (*me).suspend(stop) };
        RUNNING.set(me);
    }
}

/// Whether the CPU that runs is explored.
#[inline]
pub fn is_explored() -> bool {
    !RUNNING.get().is_null()
}

/// The world that CPUs work on, built anew for each schedule.
pub trait World: 'static {
    /// From here `cpu` runs, with that many `preempt_off`; says what the one before had.
    fn run_on(&self, cpu: usize, preempt_off: u32) -> u32;
    /// Everything that must hold when all CPUs are done. Consumes it: frames are counted at the
    /// end.
    fn check(self);
}

/// What one CPU does.
pub type Script<W> = Rc<dyn Fn(&W)>;

/// A preemption: at that stop of the whole run, that CPU goes on.
pub type Preemption = (usize, usize);

/// Which CPU goes on where none waits.
#[derive(Clone, Copy)]
enum Order<'s> {
    /// The same CPU but for these preemptions.
    List(&'s [Preemption]),
    /// Each CPU for so many stops, then the next one round the circle.
    Turns(&'s [usize]),
}

/// What was explored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explored {
    /// Schedules run.
    pub schedules: u64,
    /// Stops in all of them.
    pub stops: u64,
    /// Schedules in which a CPU waited.
    pub waited: u64,
    /// Schedules that ended as another did.
    pub known: u64,
    /// Whether the limit on schedules ended it.
    pub cut: bool,
}

/// Stops of a run before it is taken for endless.
const ENDLESS: usize = 200_000;
/// Waits in a row without any other stop between before that is a deadlock.
const DEADLOCK: usize = 200;

/// A stop of a run.
#[derive(Clone, Copy, Debug)]
struct Stopped {
    /// The CPU that ran.
    cpu: u8,
    /// The CPUs that could have run, a bit each.
    others: u8,
    /// The access that was about to be made.
    touch: Touch,
}

/// A schedule's run, or what does not hold.
type Ran = Result<Trace, String>;

/// One schedule's run: every stop where a CPU touched something.
struct Trace {
    stops: Vec<Stopped>,
    waited: bool,
    /// It ended as an earlier run did, and was not checked.
    known: bool,
}

fn body<W: World>(world: Rc<W>, script: Script<W>) -> Coroutine<(), Stop, ()> {
    let mut stacks = STACKS.take();
    let mine =
        stacks.pop().unwrap_or_else(|| DefaultStack::new(256 << 10).expect("memory for a stack"));
    STACKS.set(stacks);
    Coroutine::with_stack(mine, move |pause: &Pause, ()| {
        RUNNING.set(pause);
        script(&world);
    })
}

/// Runs one schedule to its end, `first` being the CPU that starts.
fn run<W>(make: &dyn Fn() -> W, scripts: &[Script<W>], first: usize, order: Order<'_>) -> Ran
where
    W: World,
{
    let world = Rc::new(make());
    footprint::begin(Rc::as_ptr(&world) as usize, size_of::<W>());
    let mut cpus: Vec<_> =
        scripts.iter().map(|script| Some(body(world.clone(), script.clone()))).collect();
    let (mut depth, mut is_done) = (vec![0; cpus.len()], vec![false; cpus.len()]);
    let mut trace = Trace { stops: Vec::new(), waited: false, known: false };
    RUN.with_borrow_mut(|run| run.stops.clear());
    let mut next = match order {
        Order::List(schedule) => schedule.iter(),
        Order::Turns(_) => [].iter(),
    }
    .peekable();
    let (mut now, mut waits, mut came) = (first, 0, 0);
    let tried = catch_unwind(AssertUnwindSafe(|| {
        while let Some(cpu) = cpus[now].as_mut() {
            world.run_on(now, depth[now]);
            footprint::runs(now);
            let others = (0..scripts.len()).filter(|&n| n != now && !is_done[n]);
            let mask = others.clone().fold(0, |mask, n| mask | 1 << n);
            // The next one round the circle.
            let other = others.clone().find(|&n| n > now).or(others.clone().next());
            RUN.with_borrow_mut(|run| {
                (run.cpu, run.others) = (now as u8, mask);
                run.due = match order {
                    Order::List(_) => next.peek().map_or(0, |&&(at, _)| at + 1),
                    Order::Turns(stops) => run.stops.len() + stops[now],
                };
            });
            let stopped = cpu.resume(());
            RUNNING.set(std::ptr::null());
            depth[now] = world.run_on(now, 0);
            match stopped {
                CoroutineResult::Yield(Stop::Point) => {
                    now = match order {
                        Order::List(_) => {
                            let to = next.next().map_or(now, |&(_, to)| to);
                            assert!(mask >> to & 1 != 0, "a CPU is to go on that is done");
                            to
                        }
                        Order::Turns(_) => other.unwrap_or(now),
                    };
                }
                CoroutineResult::Yield(Stop::Wait) => {
                    trace.waited = true;
                    let stops = RUN.with_borrow(|run| run.stops.len());
                    waits = if stops == came { waits + 1 } else { 0 };
                    came = stops;
                    assert!(waits < DEADLOCK, "every CPU waits for another");
                    now = other.unwrap_or(now);
                }
                CoroutineResult::Yield(Stop::Yield) => now = other.unwrap_or(now),
                CoroutineResult::Return(()) => {
                    assert!(depth[now] == 0, "CPU {now} ends with preemption off");
                    let done = cpus[now].take().map(Coroutine::into_stack);
                    is_done[now] = true;
                    let mut stacks = STACKS.take();
                    stacks.extend(done);
                    STACKS.set(stacks);
                    now = other.unwrap_or(now);
                }
            }
        }
        world.run_on(0, 0);
    }));
    trace.stops = RUN.with_borrow_mut(|run| run.stops.clone());
    RUNNING.set(std::ptr::null());
    // A CPU that stands in the middle of a verb cannot be unwound: it holds locks. It is left where
    // it is.
    cpus.into_iter().flatten().for_each(std::mem::forget);
    tried
        .and_then(|()| {
            catch_unwind(AssertUnwindSafe(|| {
                let world = Rc::into_inner(world).expect("all CPUs are done");
                if footprint::is_known() {
                    trace.known = true;
                } else {
                    world.check();
                }
            }))
        })
        .map(|()| trace)
        .map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default()
        })
}

/// Runs every schedule with at most `most` preemptions, but no more than `limit` of them.
/// `VELLUM_SCHEDULE` (as a failure prints it) runs that one alone.
///
/// # Panics
/// If a schedule ends in a panic, a deadlock, or a world that does not hold; the message has the
/// schedule.
pub fn explore<W: World>(
    make: &dyn Fn() -> W,
    scripts: &[Script<W>],
    most: usize,
    limit: u64,
) -> Explored {
    let mut sum = Explored::default();
    // Fewest preemptions first: what fails is then as simple as can be.
    let mut level = vec![given().unwrap_or_default()];
    let alone = !level[0].is_empty();
    for preemptions in 0..=most {
        let mut deeper = Vec::new();
        for schedule in &level {
            if sum.schedules == limit {
                return Explored { cut: true, ..sum };
            }
            let hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(|_| ()));
            let ran = run(make, scripts, 0, Order::List(schedule));
            std::panic::set_hook(hook);
            let trace = ran.unwrap_or_else(|what| {
                let text: Vec<String> =
                    schedule.iter().map(|(at, to)| format!("{at}:{to}")).collect();
                panic!(
                    "{what}\nschedule {}; replay: VELLUM_SCHEDULE={} and the test's name",
                    text.join(","),
                    text.join(",")
                )
            });
            sum.schedules += 1;
            sum.stops += trace.stops.len() as u64;
            sum.waited += trace.waited as u64;
            if alone || preemptions == most {
                continue;
            }
            let first = schedule.last().map_or(0, |&(at, _)| at + 1);
            for (at, stop) in trace.stops.iter().enumerate().skip(first) {
                deeper.extend((0..scripts.len()).filter(|to| stop.others >> to & 1 != 0).map(
                    |to| {
                        let mut longer = schedule.clone();
                        longer.push((at, to));
                        longer
                    },
                ));
            }
        }
        level = deeper;
    }
    sum
}

/// Runs every schedule in which the CPUs go on by turns, each for a number of stops of its own, 1
/// to `most`. So an act is run beside a loop whose turns keep in step with it, which takes more
/// preemptions than [`explore`] can add. `VELLUM_TURNS` (as a failure prints it) runs that one
/// alone.
///
/// # Panics
/// As [`explore`].
pub fn by_turns<W: World>(make: &dyn Fn() -> W, scripts: &[Script<W>], most: usize) -> Explored {
    let given = std::env::var("VELLUM_TURNS").ok().map(|text| {
        let turns: Option<Vec<usize>> = text.split(',').map(|n| n.trim().parse().ok()).collect();
        turns.unwrap_or_else(|| panic!("VELLUM_TURNS={text}: a number for each CPU is wanted"))
    });
    let all = (0..most.pow(scripts.len() as u32)).map(|n| {
        let digit = |cpu| n / most.pow(cpu as u32) % most + 1;
        (0..scripts.len()).map(digit).collect::<Vec<usize>>()
    });
    let mut sum = Explored::default();
    for turns in all.filter(|turns| given.as_ref().is_none_or(|given| given == turns)) {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        let ran = run(make, scripts, 0, Order::Turns(&turns));
        std::panic::set_hook(hook);
        let trace = ran.unwrap_or_else(|what| {
            let text: Vec<String> = turns.iter().map(usize::to_string).collect();
            panic!("{what}\nreplay: VELLUM_TURNS={} and the test's name", text.join(","))
        });
        sum.schedules += 1;
        sum.stops += trace.stops.len() as u64;
        sum.waited += trace.waited as u64;
    }
    sum
}

fn given() -> Option<Vec<Preemption>> {
    let text = std::env::var("VELLUM_SCHEDULE").ok()?;
    let one = |s: &str| {
        let (at, to) = s.split_once(':')?;
        Some((at.trim().parse().ok()?, to.trim().parse().ok()?))
    };
    let list: Option<Vec<Preemption>> = text.split(',').map(one).collect();
    Some(list.unwrap_or_else(|| panic!("VELLUM_SCHEDULE={text}: stop:cpu,stop:cpu,... is wanted")))
}
