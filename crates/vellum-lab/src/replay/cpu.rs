//! One CPU's part of a replay: its threads in turn, event by event.
//!
//! A thread runs until its quantum of virtual time is over, its events are used up, or its next
//! event has to wait. Then the CPU runs its next thread that can run, or idles until one can. What
//! a thread waits for is a condition on shared state ([`Wait`]), so the machine can evaluate it at
//! any later time.

use vellum_sim::Cpu;
use vellum_sim::format::Format;

use super::background::scan_if_due;
use super::events::{TakenEvents, Wait};
use super::player::Player;
use super::session::Session;
use crate::error::LabError;
use crate::interrupt;

/// Why a thread left the CPU.
pub(super) enum SliceEnd {
    /// Its events are used up, or its time.
    Turn,
    /// It waits.
    Blocked(Wait),
    /// The replay is over for everybody.
    Stop,
}

/// The body of CPU `cpu`.
pub fn body<F: Format>(session: &Session<'_, '_, F>, cpu: &Cpu<'_, F>) {
    session.vm.activate(session.space);
    if let Err(e) = threads(session, cpu) {
        session.fail(e);
    }
    session.vm.deactivate();
}

fn threads<F: Format>(session: &Session<'_, '_, F>, cpu: &Cpu<'_, F>) -> Result<(), LabError> {
    let step = session.cpus;
    let mut waits: Vec<Wait> = Vec::new();
    let mut last = None;
    let mut player = Player::new(session, cpu);
    let mut turn = cpu.id();
    loop {
        let count = session.queue.borrow().threads();
        let slots = count.saturating_sub(cpu.id()).div_ceil(step);
        waits.resize(slots.max(waits.len()), Wait::No);
        // The next thread in turn that can run.
        let chosen = (0..slots)
            .map(|i| (turn + i * step - cpu.id()) % (slots * step) + cpu.id())
            .find(|&t| able(session, t, waits[(t - cpu.id()) / step]));
        let Some(thread) = chosen else {
            if session.stopped() || session.over(cpu.id()) {
                return Ok(());
            }
            if session
                .queue
                .borrow_mut()
                .read_on(&mut session.maps.borrow_mut())
                .map_err(|e| session.bad_trace(e))?
            {
                continue;
            }
            let known = waits.clone();
            // Most looks find that nothing has happened since the last.
            let mut seen = None;
            cpu.wait_for(|| {
                if seen.replace(session.changes()) == Some(session.changes()) {
                    return false;
                }
                session.stopped()
                    || session.over(cpu.id())
                    || (cpu.id()..session.queue.borrow().threads()).step_by(step).any(|t| {
                        able(
                            session,
                            t,
                            known.get((t - cpu.id()) / step).copied().unwrap_or(Wait::No),
                        )
                    })
            });
            continue;
        };
        if last.replace(thread).is_some_and(|before| before != thread) {
            cpu.thread_switch();
        }
        waits[(thread - cpu.id()) / step] = Wait::No;
        match turn_of(session, cpu, &mut player, thread)? {
            SliceEnd::Turn => {}
            SliceEnd::Blocked(wait) => waits[(thread - cpu.id()) / step] = wait,
            SliceEnd::Stop => return Ok(()),
        }
        turn = thread + step;
    }
}

/// Whether a thread can run.
fn able<F: Format>(session: &Session<'_, '_, F>, thread: usize, wait: Wait) -> bool {
    let queue = session.queue.borrow();
    queue.has_work(thread)
        && match wait {
            Wait::No => true,
            Wait::Call(mapping, number) => session.maps.borrow().is_open(mapping, number),
            Wait::File(file, number) => session.maps.borrow().is_file_open(file, number),
            Wait::All(number) => queue.all_before(number, thread),
            Wait::Event(other, number) => queue.is_done(other, number),
        }
}

/// One turn of a thread.
fn turn_of<F: Format>(
    session: &Session<'_, '_, F>,
    cpu: &Cpu<'_, F>,
    player: &mut Player<'_, '_, '_, F>,
    thread: usize,
) -> Result<SliceEnd, LabError> {
    let until = cpu.now() + session.quantum;
    loop {
        let taken = session.queue.borrow_mut().take(thread, &mut session.maps.borrow_mut());
        let TakenEvents::Run(run) = taken.map_err(|e| session.bad_trace(e))? else {
            return Ok(SliceEnd::Turn);
        };
        let (done, left) = player.play(thread, &run, until)?;
        let rest = run.events.len() - done;
        session.queue.borrow_mut().finish(thread, run, rest);
        scan_if_due(session, cpu.now());
        if interrupt::requested() {
            session.interrupt();
        }
        if session.stopped() {
            return Ok(SliceEnd::Stop);
        }
        if rest > 0 {
            return Ok(left);
        }
    }
}
