//! Sequential scripts: drawn from a seed, run on a fresh machine with a recount after every command, and shrunk when they fail.
//!
//! The concurrent stress finds more, but what it finds is hard to read. Most of it can be found again by one CPU working on one space, and
//! then the shortest list of commands that still fails says nearly everything.

use std::panic::{AssertUnwindSafe, catch_unwind};

use vellum::addr::Va;
use vellum::config::Config;
use vellum::entry::X86_64;
use vellum::error::{FaultError, SpaceError};
use vellum::space::{Access, Advice, Attrs, HugeAdvice, Placement, Rights, Space};
use vellum::vm::Vm;

use super::HostVm;
use super::lane::{Cover, Lane, Run, Window, part_of};
use crate::machine::{Host, Plan, Seat};
use crate::rng::Rng;

/// A command with its arguments; pages are page numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// `Vm::map` at a place.
    Map(Run, Rights, Option<HugeAdvice>, bool),
    /// `Vm::unmap`.
    Unmap(Run),
    /// `Vm::protect`.
    Protect(Run, Rights),
    /// `Vm::remap` to a place; `true` replaces what is there.
    Move(Run, Run, bool),
    /// `Vm::remap` in place to that many pages.
    Resize(Run, u64),
    /// `Vm::advise`.
    Advise(Run, Advice),
    /// A load, from the page's first word.
    Load(u64),
    /// A store of the number of the command, to the page's first word.
    Store(u64),
    /// `Vm::fork`; the child takes over when `true`, and the other of the two ends.
    Fork(bool),
}

/// Draws a script.
pub fn draw(seed: u64, commands: usize) -> Vec<Command> {
    let mut rng = Rng::new(seed);
    let lane = Lane::new(Window { lanes: 1 }, 0, 0);
    (0..commands).map(|_| command(&mut rng, &lane)).collect()
}

fn command(rng: &mut Rng, lane: &Lane) -> Command {
    // Parts of few pages near each other meet more often.
    let any = |rng: &mut Rng| {
        let run = lane.part(rng);
        if rng.once_in(2) {
            Run { first: run.first & !63, pages: run.pages.next_multiple_of(64).min(512) }
        } else {
            run
        }
    };
    let inside = |run: Run| {
        let whole = lane.runs.iter().find(|r| r.has(run.first)).copied().unwrap_or(run);
        Run { pages: run.pages.min(whole.first + whole.pages - run.first), ..run }
    };
    let run = inside(any(rng));
    let rights = [Rights::READ_WRITE, Rights::READ, Rights::NONE, Rights::ALL][rng.below(4) as usize];
    let page = part_of(run, rng).first;
    match rng.below(24) {
        0..5 => {
            let thp = [None, Some(HugeAdvice::Huge), Some(HugeAdvice::NoHuge)][rng.below(3) as usize];
            Command::Map(run, rights, thp, rng.once_in(2))
        }
        5..8 => Command::Unmap(run),
        8..11 => Command::Protect(run, rights),
        11..13 => {
            let to = inside(Run { first: any(rng).first, pages: run.pages });
            Command::Move(Run { pages: to.pages, ..run }, to, rng.once_in(2))
        }
        13 => Command::Resize(run, inside(Run { first: run.first, pages: 1 + rng.below(2 * run.pages) }).pages),
        14..17 => {
            let advice =
                [Advice::DontNeed, Advice::Huge, Advice::NoHuge, Advice::Collapse, Advice::Populate { write: true }];
            Command::Advise(run, advice[rng.below(5) as usize])
        }
        17 => Command::Fork(rng.once_in(2)),
        18..20 => Command::Load(page),
        _ => Command::Store(page),
    }
}

/// The machine, the space, and what should be in it.
struct Play<'a> {
    vm: &'a Vm<Host<X86_64, true>>,
    seat: &'a Seat<'a, X86_64, true>,
    space: Space,
    lane: Lane,
}

impl Play<'_> {
    fn access(&self, va: Va, access: Access, value: u64) -> Result<u64, FaultError> {
        for _ in 0..64 {
            let tried = match access {
                Access::Write => self.seat.store(va, value).map(|()| value),
                _ => self.seat.load(va),
            };
            match tried {
                Ok(word) => return Ok(word),
                Err(_) => self.vm.fault(&self.space, va, access).map(|_| ())?,
            }
        }
        panic!("{access:?} at {va:?} faults for ever");
    }

    /// Memory is plenty here, so a verb must say exactly what the model says.
    fn run(&mut self, number: u64, command: Command) {
        let (vm, space, lane) = (self.vm, &self.space, &mut self.lane);
        let mapped = |lane: &Lane, run| match lane.cover(run) {
            Cover::All => Ok(()),
            _ => Err(SpaceError::Unmapped),
        };
        match command {
            Command::Map(run, rights, thp, replace) => {
                let at = if replace { Placement::Replace(run.start()) } else { Placement::At(run.start()) };
                let free = replace || lane.cover(run) == Cover::None;
                let wanted = if free { Ok(run.start()) } else { Err(SpaceError::Occupied) };
                let got = vm.map(space, at, run.bytes(), Attrs { thp, ..Attrs::anonymous(rights) });
                assert_eq!(got, wanted);
                if free {
                    lane.map(run, rights);
                }
            }
            Command::Unmap(run) => {
                assert_eq!(vm.unmap(space, run.start(), run.bytes()), Ok(()));
                lane.unmap(run);
            }
            Command::Protect(run, rights) => {
                let wanted = mapped(lane, run);
                assert_eq!(vm.protect(space, run.start(), run.bytes(), rights), wanted);
                if wanted.is_ok() {
                    lane.each(run, |p| p.rights = rights);
                }
            }
            Command::Move(old, new, replace) => {
                let apart = new.first + new.pages <= old.first || old.first + old.pages <= new.first;
                let free = replace || lane.cover(new) == Cover::None;
                if !apart || mapped(lane, old).is_err() {
                    return;
                }
                let to = if replace { Placement::Replace(new.start()) } else { Placement::At(new.start()) };
                let wanted = if free { Ok(new.start()) } else { Err(SpaceError::Occupied) };
                assert_eq!(vm.remap(space, old.start(), old.bytes(), new.bytes(), to), wanted);
                if free {
                    lane.unmap(new);
                    for n in 0..old.pages {
                        if let Some(page) = lane.pages.remove(&(old.first + n)) {
                            lane.pages.insert(new.first + n, page);
                        }
                    }
                }
            }
            Command::Resize(old, pages) => {
                if mapped(lane, old).is_err() {
                    return;
                }
                let tail = Run { first: old.first + old.pages.min(pages), pages: pages.abs_diff(old.pages) };
                let free = pages <= old.pages || lane.cover(tail) == Cover::None;
                let wanted = if free { Ok(old.start()) } else { Err(SpaceError::Occupied) };
                let at = Placement::At(old.start());
                assert_eq!(vm.remap(space, old.start(), old.bytes(), pages << 12, at), wanted);
                let last = lane.pages.get(&(old.first + old.pages - 1)).map_or(Rights::NONE, |p| p.rights);
                match (free, pages > old.pages) {
                    (false, _) => {}
                    (true, true) => lane.map(tail, last),
                    (true, false) => lane.unmap(tail),
                }
            }
            Command::Advise(run, advice) => {
                let got = vm.advise(space, run.start(), run.bytes(), advice);
                if got == Err(SpaceError::Unmapped) {
                    assert_eq!(mapped(lane, run), Err(SpaceError::Unmapped));
                }
                if advice == Advice::DontNeed && got.is_ok() {
                    lane.each(run, |p| p.words = [0; 3]);
                }
            }
            Command::Load(page) | Command::Store(page) => {
                let store = matches!(command, Command::Store(_));
                let access = if store { Access::Write } else { Access::Read };
                let known = lane.pages.get(&page).copied();
                let wanted = match known {
                    None => Err(FaultError::Unmapped),
                    Some(p) if !p.rights.allows(access) => Err(FaultError::Rights),
                    Some(p) => Ok(if store { number } else { p.words[0] }),
                };
                let got = self.access(Va(page << 12), access, number);
                assert_eq!(got, wanted, "page {page:#x} {known:?}");
                if store && got.is_ok() {
                    self.lane.each(Run { first: page, pages: 1 }, |p| p.words[0] = number);
                }
            }
            Command::Fork(takes_over) => {
                let child = vm.fork(space).expect("memory is plenty");
                let gone = if takes_over { std::mem::replace(&mut self.space, child) } else { child };
                vm.activate(&self.space);
                vm.exit(gone);
            }
        }
    }
}

/// Runs a script; what was wrong, and at which command.
///
/// # Errors
/// The number of the command after which something was wrong, and what.
pub fn run(script: &[Command]) -> Result<(), (usize, String)> {
    let plan = Plan { huge: false, scribble: true, ..Plan::new(1, 96 << 20) };
    let host = HostVm::<X86_64, true>::new(plan, Config::default()).map_err(|e| (0, e.to_string()))?;
    let vm = &host.vm;
    let mut at = 0;
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let seat = vm.machine().sit(0);
        let space = vm.create().expect("memory is plenty");
        vm.activate(&space);
        let mut play = Play { vm, seat: &seat, space, lane: Lane::new(Window { lanes: 1 }, 0, 0) };
        for (n, &command) in script.iter().enumerate() {
            at = n;
            play.run(n as u64 + 1, command);
            vm.validate(&[&play.space]).unwrap_or_else(|e| panic!("validate: {e}"));
        }
        at = script.len();
        for page in play.lane.pages.keys().copied().collect::<Vec<_>>() {
            play.run(0, Command::Load(page));
        }
        vm.idle();
        vm.exit(play.space);
        let audit = vm.validate(&[]).unwrap_or_else(|e| panic!("validate at the end: {e}"));
        assert_eq!((audit.data_frames, audit.table_frames), (0, 0), "frames remain when the space is gone");
    }));
    tried.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        (at, text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default())
    })
}

/// The shortest script found that still fails: halves, quarters, ... single commands are left out as long as that fails too.
pub fn shrink(script: &[Command]) -> Vec<Command> {
    let Err((at, _)) = run(script) else { return script.to_vec() };
    let mut best = script[..script.len().min(at + 1)].to_vec();
    if run(&best).is_ok() {
        best = script.to_vec();
    }
    let mut piece = best.len() / 2;
    while piece > 0 {
        let mut from = 0;
        while from < best.len() {
            let shorter: Vec<Command> =
                best.iter().enumerate().filter(|(i, _)| !(from..from + piece).contains(i)).map(|(_, c)| *c).collect();
            match run(&shorter) {
                Err((at, _)) => best = shorter[..shorter.len().min(at + 1)].to_vec(),
                Ok(()) => from += piece,
            }
        }
        piece /= 2;
    }
    best
}

/// Runs the script of a seed and panics with the shrunk one if it fails.
///
/// # Panics
/// If the script fails.
pub fn check(seed: u64, commands: usize) {
    let script = draw(seed, commands);
    if let Err((at, what)) = run(&script) {
        let short = shrink(&script);
        let again = run(&short).err();
        panic!("seed {seed}, command {at}: {what}\nshortest script: {short:#x?}\nwhich says {again:?}");
    }
}
