//! Plays the events of one thread on a simulated CPU.
//!
//! This is the hot loop of the command: an access costs one read of the table of mappings and one
//! call of the machine. Everything else (calls, the kernel's reads and writes, faults) is rare and
//! has functions of its own.

use vellum::addr::Va;
use vellum::error::FaultError;
use vellum::space::{Access, Page};
use vellum_sim::format::Format;
use vellum_sim::{Begun, Cpu, Kind};
use vellum_trace::event::{Change, Event};

use super::calls;
use super::counters::Part;
use super::cpu::SliceEnd;
use super::events::{Run, Wait, is_barrier, takes};
use super::maps::{self, AccessLookup};
use super::session::Session;
use crate::error::LabError;

const PAGE: u64 = 4096;
/// Faults in a row at one address that other CPUs may cause.
const PATIENCE: u32 = 10_000;
/// Between two windows the trace holds first touches only, so that the next thing left out is never
/// further than this; inside a window, nothing is left out for longer.
pub const GAP: usize = 1000;
/// Every so many events others are told how far a thread is, and its time is looked at. Others may
/// wait that much longer than they must.
const TELL: u64 = 32;

/// An access as the trace has it.
#[derive(Clone, Copy)]
struct Here {
    mapping: u32,
    offset: u64,
    number: u64,
    thread: usize,
}

/// Plays events on one CPU.
pub struct Player<'a, 'v, 's, F: Format> {
    session: &'a Session<'v, 's, F>,
    cpu: &'a Cpu<'a, F>,
    /// Instructions announced by the last line fetched and not accounted by its accesses.
    owed: u64,
    /// The last event of the thread that plays was a kernel access: the next one belongs to the
    /// same system call.
    in_kernel: bool,
    threads: Vec<Thread>,
    /// What this CPU had done when it was last booked.
    booked: Part,
}

/// A thread between two of its turns.
#[derive(Clone, Copy)]
struct Thread {
    place: Place,
    in_kernel: bool,
}

/// Where a thread is in the recorder's windows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Between two of them.
    Gap,
    /// In the first part of one, so many accesses before the rest. Caches and TLBs hold what the
    /// window before left there.
    Warming(u64),
    /// In the part that stands for the program.
    Window,
}

/// Where a thread is in its events.
struct Position<'e> {
    thread: usize,
    /// The event's number.
    number: u64,
    /// Those behind it.
    ahead: &'e [Event],
}

/// An access by the program.
#[derive(Clone, Copy)]
struct Request {
    va: u64,
    size: u32,
    kind: Kind,
    dependent: bool,
}

impl<'a, 'v, 's, F: Format> Player<'a, 'v, 's, F> {
    /// A player for the CPU that runs this.
    pub fn new(session: &'a Session<'v, 's, F>, cpu: &'a Cpu<'a, F>) -> Self {
        Player {
            session,
            cpu,
            owed: 0,
            in_kernel: false,
            threads: Vec::new(),
            booked: Part::default(),
        }
    }

    /// Plays a run of `thread` until it ends, `until` is past, or an event has to wait. Gives the
    /// number of events done.
    pub fn play(
        &mut self,
        thread: usize,
        run: &Run,
        until: u64,
    ) -> Result<(usize, SliceEnd), LabError> {
        let session = self.session;
        if self.threads.len() <= thread {
            let new = Thread { place: Place::Window, in_kernel: false };
            self.threads.resize(thread + 1, new);
        }
        self.in_kernel = self.threads[thread].in_kernel;
        let events: &[Event] = &run.events;
        let (mut accesses, mut warmed) = (0u64, 0u64);
        let mut i = 0;
        let left = loop {
            let Some(event) = events.get(i) else { break SliceEnd::Turn };
            let number = run.first + i as u64;
            if number.is_multiple_of(TELL) {
                session.queue.borrow_mut().at(thread, number);
                self.warm(thread, accesses - warmed);
                warmed = accesses;
                if self.cpu.now() >= until {
                    break SliceEnd::Turn;
                }
            }
            match *event {
                Event::Access { mapping, size, flags, offset } => {
                    let va = match session.maps.borrow().find(
                        mapping,
                        offset,
                        u64::from(size),
                        number,
                    ) {
                        AccessLookup::At(va) => va,
                        AccessLookup::Wait => break SliceEnd::Blocked(Wait::Call(mapping, number)),
                        lost => return Err(session.lost(mapping, offset, lost)),
                    };
                    if flags.kernel() {
                        let here = Here { mapping, offset, number, thread };
                        match self.kernel(here, va, run, i)? {
                            Ok(events) => {
                                accesses += events as u64;
                                i += events;
                            }
                            Err(wait) => break SliceEnd::Blocked(wait),
                        }
                        continue;
                    }
                    self.in_kernel = false;
                    self.owed = self.owed.saturating_sub(1);
                    let kind = if flags.write() { Kind::Store } else { Kind::Load };
                    if flags.mispredicted() {
                        self.cpu.mispredicted();
                    }
                    let request =
                        Request { va, size: u32::from(size), kind, dependent: flags.dependent() };
                    let here = || Here { mapping, offset, number, thread };
                    if let Err(wait) = self.touch(request, here)? {
                        break SliceEnd::Blocked(wait);
                    }
                    accesses += 1;
                }
                Event::Fetch { mapping, insns, offset } => {
                    let va = match session.maps.borrow().find(mapping, offset, 1, number) {
                        AccessLookup::At(va) => va,
                        AccessLookup::Wait => break SliceEnd::Blocked(Wait::Call(mapping, number)),
                        lost => return Err(session.lost(mapping, offset, lost)),
                    };
                    self.cpu.retire(self.owed);
                    self.owed = u64::from(insns);
                    let request = Request { va, size: 1, kind: Kind::Fetch, dependent: false };
                    let here = || Here { mapping, offset, number, thread };
                    if let Err(wait) = self.touch(request, here)? {
                        self.owed = 0;
                        break SliceEnd::Blocked(wait);
                    }
                }
                ref rare => {
                    let at = Position { thread, number, ahead: &events[i + 1..] };
                    if let Some(wait) = self.rare(at, rare, (accesses, &mut warmed))? {
                        break SliceEnd::Blocked(wait);
                    }
                }
            }
            i += 1;
        };
        session.tally(accesses);
        self.warm(thread, accesses - warmed);
        self.enter(thread, self.threads[thread].place);
        self.threads[thread].in_kernel = self.in_kernel;
        Ok((i, left))
    }

    /// Books what this CPU has done since the last booking on where `thread` was, which is at
    /// `next` from here on.
    fn enter(&mut self, thread: usize, next: Place) {
        let now = Part::of(&self.session.vm.machine().counters(self.cpu.id()));
        self.session.book(self.threads[thread].place, now.since(&self.booked));
        self.booked = now;
        self.threads[thread].place = next;
    }

    /// `accesses` more are done: enough of a window to be warm?
    fn warm(&mut self, thread: usize, accesses: u64) {
        if let Place::Warming(left) = self.threads[thread].place {
            if left <= accesses {
                self.enter(thread, Place::Window);
            } else {
                self.threads[thread].place = Place::Warming(left - accesses);
            }
        }
    }

    /// An event that is neither an access nor a fetch. Gives what it has to wait for. `accesses`
    /// are done in this run; the first `warmed` of them are booked.
    #[inline(never)]
    fn rare(
        &mut self,
        at: Position<'_>,
        event: &Event,
        (accesses, warmed): (u64, &mut u64),
    ) -> Result<Option<Wait>, LabError> {
        let session = self.session;
        let Position { thread, number, ahead } = at;
        match *event {
            Event::Call(ref call) => {
                let change = &call.change;
                session.queue.borrow_mut().at(thread, number);
                if let Some(wait) = maps::closed(change, number, &session.maps.borrow()) {
                    return Ok(Some(wait));
                }
                if takes(change, &session.maps.borrow())
                    && !session.queue.borrow().all_before(number, thread)
                {
                    return Ok(Some(Wait::All(number)));
                }
                self.in_kernel = false;
                if matches!(change, Change::FileRead { .. } | Change::FileWrite { .. })
                    && session.vm.machine().prices_file_calls()
                {
                    // What it moves in the program's memory is told next.
                    self.in_kernel = true;
                    self.cpu.syscall();
                }
                calls::call(session, change)?;
                session.maps.borrow_mut().done(change, number);
                if is_barrier(change) {
                    session.queue.borrow_mut().pass(number);
                }
            }
            Event::ThreadStart { thread: new } => {
                session.queue.borrow_mut().at(thread, number);
                if new as usize == thread && !session.queue.borrow().all_before(number, thread) {
                    return Ok(Some(Wait::All(number)));
                }
                session.queue.borrow_mut().start(new);
            }
            Event::ThreadEnd { thread: gone } => session.queue.borrow_mut().end(gone),
            Event::Skip { accesses: left_out, instructions } => {
                session.skipped(u64::from(left_out), instructions);
                let ahead = &ahead[..ahead.len().min(GAP)];
                let gap = ahead.iter().any(|e| matches!(e, Event::Skip { .. }));
                let next = if gap { Place::Gap } else { Place::Warming(session.warm) };
                if next != self.threads[thread].place {
                    self.enter(thread, next);
                    *warmed = accesses;
                }
            }
            Event::Switch { .. } | Event::Access { .. } | Event::Fetch { .. } => {}
        }
        Ok(None)
    }

    /// An access by the program. Nearly all are done where they begin, and `here` is not asked.
    #[inline(always)]
    fn touch(
        &self,
        request: Request,
        here: impl FnOnce() -> Here,
    ) -> Result<Result<(), Wait>, LabError> {
        let Request { va, size, kind, dependent } = request;
        let begun = self.cpu.begin(va, size, kind, dependent);
        if begun.is_done() { Ok(Ok(())) } else { self.finish(here(), begun, request) }
    }

    /// The rest of it: until it succeeds, with a fault in between if it needs one.
    #[inline(never)]
    fn finish(
        &self,
        here: Here,
        begun: Begun,
        request: Request,
    ) -> Result<Result<(), Wait>, LabError> {
        let Request { va, size, kind, dependent } = request;
        match self.cpu.finish(begun, va, size, kind, dependent) {
            Ok(_) => Ok(Ok(())),
            Err(fault) => self.faulting(here, request, fault),
        }
    }

    /// What a fault at `va` has to wait for: another thread that touches the page first.
    fn first_toucher(&self, here: Here, offset: u64) -> Option<Wait> {
        let queue = self.session.queue.borrow();
        queue
            .touched_by(here.mapping, offset, here.number, here.thread)
            .map(|(thread, number)| Wait::Event(thread, number))
    }

    #[cold]
    fn faulting(
        &self,
        here: Here,
        request: Request,
        first: vellum_sim::PageFault,
    ) -> Result<Result<(), Wait>, LabError> {
        let Request { va, size, kind, dependent } = request;
        let (mut fault, mut equal) = (first, 1);
        loop {
            if let Some(wait) = self.first_toucher(here, here.offset + fault.va.saturating_sub(va))
            {
                return Ok(Err(wait));
            }
            let offset = here.offset + fault.va.saturating_sub(va);
            match self.serve((here.mapping, offset), Va(fault.va), access(fault.kind)) {
                Ok(()) => {}
                Err(e) => return self.refuse(here, e),
            }
            match self.cpu.access(va, size, kind, dependent) {
                Ok(_) => return Ok(Ok(())),
                // The next page of the same access.
                Err(next) if next.va != fault.va => (fault, equal) = (next, 1),
                Err(next) => {
                    equal += 1;
                    if next == fault || equal > PATIENCE {
                        self.cpu.no_progress(&next, equal);
                    }
                    fault = next;
                }
            }
        }
    }

    fn serve(
        &self,
        (mapping, offset): (u32, u64),
        va: Va,
        access: Access,
    ) -> Result<(), FaultError> {
        let s = self.session;
        s.warm_around(mapping, offset);
        if let Some(folio) = s.folio((mapping, offset), va, access) {
            let fault = || self.fault(va, access).inspect(|()| s.map_folio(folio));
            return s.vm.machine().in_folios(folio.pages(), fault);
        }
        self.fault(va, access)
    }

    fn fault(&self, va: Va, access: Access) -> Result<(), FaultError> {
        let s = self.session;
        let served = s.with_room(|| s.vm.fault(s.space, va, access));
        s.remapped(va.0, |regions| regions.touch(va.0));
        served.map(drop)
    }

    /// What becomes of an access that the library refuses: it waits for a call that makes its file
    /// longer, or it is left out.
    #[cold]
    fn refuse(&self, here: Here, error: FaultError) -> Result<Result<(), Wait>, LabError> {
        let s = self.session;
        if error == FaultError::NoMemory {
            return Err(s.out_of_memory());
        }
        let maps = s.maps.borrow();
        let file = maps.get(here.mapping).and_then(|p| p.file);
        if error == FaultError::Beyond
            && let Some(file) = file.filter(|&file| !maps.is_file_open(file, here.number))
        {
            return Ok(Err(Wait::File(file, here.number)));
        }
        s.refused();
        Ok(Ok(()))
    }

    /// What the kernel reads or writes for the program from event `i` on: neighbouring lines in one
    /// go. Gives the number of events.
    #[cold]
    fn kernel(
        &mut self,
        here: Here,
        va: u64,
        run: &Run,
        i: usize,
    ) -> Result<Result<usize, Wait>, LabError> {
        let mapping = here.mapping;
        let (mut length, mut events) = (0u64, 0usize);
        let mut write = false;
        for (k, e) in run.events[i..].iter().enumerate() {
            let Event::Access { mapping: m, size, flags, offset } = *e else { break };
            let at = if k == 0 {
                AccessLookup::At(va)
            } else {
                self.session.maps.borrow().find(
                    m,
                    offset,
                    u64::from(size),
                    run.first + (i + k) as u64,
                )
            };
            let joins = flags.kernel()
                && m == mapping
                && (k == 0 || flags.write() == write)
                && at == AccessLookup::At(va + length)
                && (va & (PAGE - 1)) + length + u64::from(size) <= PAGE;
            if !joins && k > 0 {
                break;
            }
            write = flags.write();
            length += u64::from(size);
            events += 1;
        }
        if !self.in_kernel {
            self.in_kernel = true;
            self.cpu.syscall();
        }
        Ok(self.copy(here, va, length, write)?.map(|()| events))
    }

    /// Bytes of one page. The fault, if it takes one, is served here as the program's would be, so
    /// that it is counted as one.
    fn copy(
        &self,
        here: Here,
        va: u64,
        length: u64,
        write: bool,
    ) -> Result<Result<(), Wait>, LabError> {
        let s = self.session;
        let mut buffer = [0u8; PAGE as usize];
        let bytes = &mut buffer[..length as usize];
        let there = match s.vm.query(s.space, Va(va)) {
            Page::Mapped { flags, .. } => !write || flags.write,
            _ => false,
        };
        if !there && let Some(wait) = self.first_toucher(here, here.offset) {
            return Ok(Err(wait));
        }
        let result = (|| {
            if !there {
                let place = (here.mapping, here.offset);
                self.serve(place, Va(va), if write { Access::Write } else { Access::Read })?;
            }
            s.vm.machine().in_file_call(|| match write {
                true => s.vm.copy_in(s.space, Va(va), bytes),
                false => s.vm.copy_out(s.space, Va(va), bytes),
            })
        })();
        match result {
            Ok(()) => Ok(Ok(())),
            Err(e) => self.refuse(here, e),
        }
    }
}

/// The right that an access needs.
fn access(kind: Kind) -> Access {
    match kind {
        Kind::Load => Access::Read,
        Kind::Store => Access::Write,
        Kind::Fetch => Access::Exec,
    }
}
