//! One replay: builds the machine, runs the CPUs, checks everything at the end, and returns the
//! counters.
//!
//! A session belongs to one OS thread. The CPUs of the simulated machine are coroutines of that
//! thread, so their shared state is in plain cells. No cell is borrowed across a machine call:
//! another CPU may run in between.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use vellum::config::Config;
use vellum::space::Space;
use vellum::vm::Vm;
use vellum_sim::file::Codec;
use vellum_sim::format::{Arm, Format, X86};
use vellum_sim::{Check, Mode, SimMachine};
use vellum_trace::event::Map;

use super::collapse::{CollapseScan, Regions, Scanner};
use super::config_check::check_config;
use super::counters::{self, Part, Tally};
use super::cpu;
use super::events::{EventQueue, Source};
use super::files::Files;
use super::maps::{AccessLookup, Maps};
use super::player::Place;
use super::resident::Resident;
use crate::cli::{FileState, Layout, OracleMode};
use crate::error::LabError;
use crate::progress::Progress;
use crate::report::Counters;

/// How to replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// CPUs in use.
    pub cpus: usize,
    /// The machine's seed.
    pub seed: u64,
    /// Where mappings go.
    pub layout: Layout,
    /// Whether files are in memory.
    pub files: FileState,
    /// How hits are checked.
    pub oracle: OracleMode,
    /// The library's switches.
    pub config: Config,
    /// Linux's collapse in the background.
    pub collapse: CollapseScan,
    /// Pages that Linux reads ahead of a file whose folios a fault maps whole; 0: it maps pages.
    pub folio_ahead: u64,
    /// Accesses of a thread at the start of each window that only make caches and TLBs warm.
    pub warm: u64,
}

/// A replay that came to its end, or was stopped by Ctrl-C.
#[derive(Debug)]
pub struct Finished {
    /// What was counted.
    pub counters: Counters,
    /// Cycles by the constant of the machine file that they were charged by.
    pub charges: Counters,
    /// Whether the whole trace was replayed.
    pub complete: bool,
    /// Program and kernel accesses simulated.
    pub accesses: u64,
    /// TLB hits compared with the tables.
    pub checked: u64,
    /// Host CPU time of the replay: building the machine, decoding, simulating, checking.
    pub took: Duration,
}

/// Threads take turns on a CPU after this much virtual time: a scheduler's slice of 1 ms.
const SLICES_PER_SECOND: u64 = 1000;

/// Shared by the CPUs of one replay.
pub struct Session<'v, 's, F: Format> {
    pub(super) vm: &'v Vm<SimMachine<F>>,
    pub(super) space: &'v Space,
    pub(super) queue: RefCell<EventQueue<'s>>,
    pub(super) maps: RefCell<Maps>,
    /// New mappings that a move is about to fill.
    pub(super) moving: RefCell<BTreeMap<u32, Map>>,
    pub(super) cpus: usize,
    /// Forked children that have the program's pages yet, by number.
    pub(super) children: RefCell<BTreeMap<u32, Space>>,
    /// A turn, in cycles.
    pub(super) quantum: u64,
    pub(super) layout: Layout,
    pub(super) file_state: FileState,
    /// As [`Options::folio_ahead`].
    pub(super) folio_ahead: u64,
    /// As [`Options::warm`].
    pub(super) warm: u64,
    pub(super) files: RefCell<Files>,
    pub(super) collapse: RefCell<Scanner>,
    /// All frames of the machine.
    pub(super) frames: u64,
    pub(super) resident: RefCell<Resident>,
    tally: RefCell<Tally>,
    progress: &'s Progress,
    machine: &'s str,
    failure: RefCell<Option<LabError>>,
    stop: Cell<bool>,
    interrupted: Cell<bool>,
}

impl<F: Format> Session<'_, '_, F> {
    /// Whether everybody is to stop.
    pub(super) fn stopped(&self) -> bool {
        self.stop.get()
    }
    /// The replay cannot go on; the first reason is kept.
    pub(super) fn fail(&self, e: LabError) {
        self.failure.borrow_mut().get_or_insert(e);
        self.stop.set(true);
    }
    /// Someone pressed Ctrl-C.
    pub(super) fn interrupt(&self) {
        self.interrupted.set(true);
        self.stop.set(true);
    }
    /// Whether nothing is left, or ever will be, for the threads of `cpu`.
    pub(super) fn over(&self, cpu: usize) -> bool {
        let queue = self.queue.borrow();
        queue.is_read() && (cpu..queue.threads()).step_by(self.cpus).all(|t| queue.is_over(t))
    }
    /// Grows with everything that a waiting CPU may wait for.
    pub(super) fn changes(&self) -> u64 {
        let stopped = u64::from(self.stopped());
        self.queue.borrow().changes() + self.maps.borrow().calls_done() + stopped
    }
    /// `n` more accesses are done.
    pub(super) fn tally(&self, n: u64) {
        self.tally.borrow_mut().accesses += n;
        self.progress.add(n);
    }
    /// The trace left these out.
    pub(super) fn skipped(&self, accesses: u64, instructions: u64) {
        let mut t = self.tally.borrow_mut();
        t.skipped_accesses += accesses;
        t.skipped_instructions += instructions;
    }
    /// The time of a CPU at `now`, had nothing been left out: the CPUs share what was.
    pub(super) fn program_time(&self, now: u64) -> u64 {
        now.saturating_add(self.tally.borrow().left_out() / self.cpus as u64)
    }
    /// What is mapped at `va` has changed.
    pub(super) fn remapped(&self, va: u64, change: impl FnOnce(&mut Regions)) {
        self.collapse.borrow_mut().change(va, change);
    }
    /// What a CPU did there for the program.
    pub(super) fn book(&self, place: Place, part: Part) {
        let mut tally = self.tally.borrow_mut();
        match place {
            Place::Gap => {}
            Place::Warming(_) => tally.warming.add(&part),
            Place::Window => tally.windows.add(&part),
        }
    }
    /// Notes how much memory the program has: before what takes some away, and at the end.
    pub(super) fn look_at_memory(&self) {
        self.resident.borrow_mut().note(self.vm);
    }
    /// Pages that a child has, at no cost to the program.
    pub(super) fn pages_of(&self, child: &Space) -> u64 {
        self.vm.machine().beforehand(|| self.vm.usage(child).rss_pages)
    }
    /// A file has lost pages, which children may have mapped, too.
    pub(super) fn recount_children(&self) {
        for (child, space) in self.children.borrow().iter() {
            let pages = self.pages_of(space);
            self.resident.borrow_mut().child_has(*child, pages);
        }
    }
    /// Faults that Linux takes where a mapping wants its pages present at once.
    pub(super) fn populated(&self, faults: u64) {
        self.tally.borrow_mut().populated += faults;
    }
    /// The program has come to its end.
    pub(super) fn ended(&self) {
        self.tally.borrow_mut().ended = true;
    }
    /// An access that the library did not allow.
    pub(super) fn refused(&self) {
        self.tally.borrow_mut().refused += 1;
    }
    /// A call that the library did not allow.
    pub(super) fn call_refused(&self) {
        self.tally.borrow_mut().calls_refused += 1;
    }
    /// The error of a trace that contradicts itself.
    pub(super) fn bad_trace(&self, what: impl fmt::Display) -> LabError {
        LabError::trace(what)
    }
    /// The error of an access to a mapping that is not there.
    pub(super) fn lost(&self, mapping: u32, offset: u64, found: AccessLookup) -> LabError {
        match found {
            AccessLookup::Beyond(len) => self.bad_trace(format_args!(
                "the trace touches byte {offset} of mapping {mapping}, which has {len} bytes; \
                 record it again"
            )),
            _ => self.bad_trace(format_args!(
                "the trace touches mapping {mapping}, which it never made; record it again"
            )),
        }
    }
    /// The error of a machine that is too small.
    pub(super) fn out_of_memory(&self) -> LabError {
        LabError::usage(format_args!(
            "the trace needs more memory than the machine `{}` has; take a larger one (`vellum \
             machines`)",
            self.machine
        ))
    }
}

/// Replays `source` on `machine`.
///
/// Left out: the order that futexes impose between threads, time asleep, the program's own
/// computation but for instruction counts, advice on files but "don't need", and every process but
/// the first. A fork is replayed as the parent sees it: its private pages become copy-on-write, and
/// the child has the old ones until the trace says that it ended.
///
/// A file is an object with a pager, see `files.rs`.
pub fn replay(
    source: &mut dyn Source,
    machine: &vellum_sim::file::Machine,
    options: &Options,
    progress: &Progress,
) -> Result<Finished, LabError> {
    let machine = check_config(machine, &options.config, options.files)?;
    match *machine.mmu.codec {
        Codec::X86_64 => on::<X86>(source, &machine, options, progress),
        Codec::Aarch64 => on::<Arm>(source, &machine, options, progress),
    }
}

fn on<F: Format>(
    source: &mut dyn Source,
    machine: &vellum_sim::file::Machine,
    options: &Options,
    progress: &Progress,
) -> Result<Finished, LabError> {
    let began = cpu_time();
    let check = match options.oracle {
        OracleMode::Incremental => Check::Incremental,
        OracleMode::Walk => Check::Walk,
    };
    let sim_options = vellum_sim::Options {
        seed: options.seed,
        mode: Mode::Timing,
        check,
        ..vellum_sim::Options::default()
    };
    let sim = SimMachine::<F>::new(machine, sim_options)
        .map_err(|e| LabError::usage(format_args!("the machine `{}`: {e}", machine.name)))?;
    let meta =
        vellum_sim::Meta::new(Vm::<SimMachine<F>>::layout(sim.topology())).ok_or_else(|| {
            LabError::failed("the host has no address space for the metadata of that machine")
        })?;
    // SAFETY: the memory is zero, of the layout asked for, and `meta` is dropped after `vm`, being
    // declared before it.
    let vm = unsafe { Vm::new(sim, options.config, meta.start()) }.map_err(LabError::usage)?;
    let space = vm
        .create()
        .map_err(|_| LabError::failed("the machine has no memory for an address space"))?;

    let session = Session {
        vm: &vm,
        space: &space,
        queue: RefCell::new(EventQueue::new(source)),
        maps: RefCell::new(Maps::new()),
        moving: RefCell::new(BTreeMap::new()),
        children: RefCell::new(BTreeMap::new()),
        cpus: options.cpus,
        quantum: *machine.clock_hz / SLICES_PER_SECOND,
        layout: options.layout,
        file_state: options.files,
        folio_ahead: options.folio_ahead,
        warm: options.warm,
        files: RefCell::new(Files::default()),
        collapse: RefCell::new(Scanner::new(
            options.collapse,
            options.config.thp,
            *machine.clock_hz,
        )),
        frames: machine.frames(),
        resident: RefCell::new(Resident::default()),
        tally: RefCell::new(Tally::default()),
        progress,
        machine: &machine.name,
        failure: RefCell::new(None),
        stop: Cell::new(false),
        interrupted: Cell::new(false),
    };
    let outcome = vm.machine().run(|run| {
        for cpu in 0..options.cpus {
            let session = &session;
            run.spawn(cpu, move |cpu| cpu::body(session, cpu));
        }
    });
    if let Some(e) = session.failure.borrow_mut().take() {
        return Err(e);
    }
    let outcome = outcome.map_err(oracle_stop)?;
    session.look_at_memory();
    let mut tally = session.tally.borrow().clone();
    tally.resident_peak = session.resident.borrow().peak();
    let complete = !session.interrupted.get();
    let (files, children) = (session.files.take(), session.children.take());
    drop(session);

    // Nobody waits for what was read ahead last.
    let finish = || Session::finish_files(&vm);
    vm.machine().solo(0, |_| finish()).map_err(oracle_stop)?;
    let counters = counters::collect(&vm, &space, (&tally, &files.before), outcome.cycles);
    let checked = vm.machine().checked();
    let spaces: Vec<&Space> = std::iter::once(&space).chain(children.values()).collect();
    vm.machine()
        // SAFETY: the replay is over, no CPU's program runs.
        .solo(0, |_| vm.machine().beforehand(|| unsafe { vm.validate(&spaces) }))
        .map_err(oracle_stop)?
        .map_err(|e| {
            LabError::failed(format_args!("the library's own check failed after the replay: {e}"))
        })?;
    // A kernel takes a program's memory apart at the program's expense.
    let mut charges = counters::charges(&vm, &counters);
    let (before, mut exit) = (counters::spent(&vm), 0);
    vm.machine().solo(0, |_| vm.exit(space)).map_err(oracle_stop)?;
    if tally.ended {
        exit = counters::spent(&vm) - before;
        charges = counters::charges(&vm, &counters);
    }
    let over = || {
        children.into_values().for_each(|child| vm.exit(child));
        Session::close_files(files, &vm);
    };
    vm.machine().solo(0, |_| over()).map_err(oracle_stop)?;
    vm.machine().audit(Some(0)).map_err(oracle_stop)?;
    let counters = counters::with_end(counters, &vm, exit);
    consistent(&tally)?;
    Ok(Finished {
        counters,
        charges,
        complete,
        accesses: tally.accesses,
        checked,
        took: cpu_time().saturating_sub(began),
    })
}

/// CPU time of this OS thread: what a replay costs does not depend on who else keeps the host busy.
fn cpu_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}

fn oracle_stop(stop: vellum_sim::Stop) -> LabError {
    LabError::failed(format_args!("the oracle stopped the machine: {stop}"))
}

/// A few accesses that the library refused are a recorder's blind spot (memory mapped behind its
/// back); many are a broken trace.
fn consistent(tally: &Tally) -> Result<(), LabError> {
    if tally.refused * 1000 > tally.accesses {
        return Err(LabError::trace(format_args!(
            "{} of {} accesses touch memory that is not mapped for them; the trace contradicts \
             itself: record it again",
            tally.refused, tally.accesses
        )));
    }
    Ok(())
}
