//! What a test has a thread do between two steps of the library: as another CPU, or as another task
//! of the same one.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};

use vellum::machine::{CpuId, Scope};

thread_local! {
    pub(super) static CPU: Cell<CpuId> = const { Cell::new(0) };
    pub(super) static PREEMPT_OFF: Cell<u32> = const { Cell::new(0) };
    static INTERLEAVED: RefCell<VecDeque<DueAct>> = const { RefCell::new(VecDeque::new()) };
    /// In an act of another CPU: how many shared words it may touch yet.
    static WORDS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    static CUT_OFF: Cell<bool> = const { Cell::new(false) };
    static SWITCHES: Cell<u64> = const { Cell::new(0) };
    static JITTER: Cell<u64> = const { Cell::new(0) };
    static DURING: RefCell<Option<During>> = const { RefCell::new(None) };
    static EACH: RefCell<Option<Each>> = const { RefCell::new(None) };
    static POINT: RefCell<Option<DueAct>> = const { RefCell::new(None) };
}

/// From here this thread is CPU `cpu`.
pub fn set_cpu(cpu: CpuId) {
    CPU.set(cpu);
}

/// Another task runs on this CPU from here.
pub fn switch_tasks() {
    SWITCHES.set(SWITCHES.get() + 1);
}

pub(super) fn task_switches() -> u64 {
    SWITCHES.get()
}

/// Shared words that an act of another CPU touches at most; what ends touches some thousands.
const MOST_WORDS: u32 = 10_000_000;

/// Runs `body`; the scheduling point after `points` others runs `act` as if this CPU, or another,
/// ran another task there to its end. Says whether there was such a point.
pub fn rescheduled(points: u64, act: Box<dyn FnOnce()>, body: impl FnOnce()) -> bool {
    POINT.set(Some((points, act)));
    body();
    POINT.take().is_none()
}

/// For machines that have scheduling points.
pub fn at_point() {
    match POINT.take() {
        Some((0, act)) => as_another(act),
        Some((points, act)) => POINT.set(Some((points - 1, act))),
        None => {}
    }
}

/// An act of another CPU while a flush is under way.
type During = Box<dyn FnMut(Scope)>;

/// Runs `body`; each flush on its way runs `act` as if another CPU did it after the flush was asked
/// for and before it is over.
pub fn during_flushes<R>(act: impl FnMut(Scope) + 'static, body: impl FnOnce() -> R) -> R {
    DURING.set(Some(Box::new(act)));
    let result = body();
    DURING.set(None);
    result
}

pub(super) fn flush_under_way(scope: Scope) {
    if let Some(mut act) = DURING.take() {
        as_another(|| act(scope));
        DURING.set(Some(act));
    }
}

/// What another CPU does while this one stands still. It must not wait, and has an end.
fn as_another(act: impl FnOnce()) {
    let (cpu, preempt) = (CPU.get(), PREEMPT_OFF.replace(0));
    WORDS_LEFT.set(Some(MOST_WORDS));
    act();
    WORDS_LEFT.set(None);
    CPU.set(cpu);
    PREEMPT_OFF.set(preempt);
}

/// From here this thread lets others run now and then before it touches a shared word, as `seed`
/// has it: on few processors threads would else meet at the ends of their time slices only. 0 ends
/// it.
pub fn jitter(seed: u64) {
    JITTER.set(seed);
}

pub(super) fn jittered() {
    let mut seed = JITTER.get();
    if seed != 0 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        JITTER.set(seed);
        if seed >> 32 & 15 == 0 {
            std::thread::yield_now();
        }
    }
}

/// An act of another CPU, and how many shared words this thread touches before it.
pub type DueAct = (u64, Box<dyn FnOnce()>);

/// What an act of another CPU panics with when it waits: the CPU it would wait for is this thread,
/// and stands still.
pub struct Waits;

/// From here whoever waits in this thread ends, or does not: it would wait for an act that was cut
/// off.
pub fn end_who_waits(ends: bool) {
    CUT_OFF.set(ends);
}

/// Whoever waits in an act of another CPU, or for one that was cut off, ends it.
pub(super) fn assert_need_not_wait() {
    if WORDS_LEFT.get().is_some() || CUT_OFF.get() && !std::thread::panicking() {
        std::panic::panic_any(Waits);
    }
}

/// What an act comes to, or nothing if it waits.
pub fn unless_it_waits<R>(act: impl FnOnce() -> R) -> Option<R> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)) {
        Ok(done) => Some(done),
        Err(why) if why.is::<Waits>() => None,
        Err(why) => std::panic::resume_unwind(why),
    }
}

/// Runs `body`. When it has touched as many shared words as the first act says, and is about to
/// touch another, the act runs to its end, as if another CPU did it all in that moment; then the
/// count for the next act starts. Says how many acts ran.
pub fn interleave(acts: Vec<DueAct>, body: impl FnOnce()) -> usize {
    let all = acts.len();
    INTERLEAVED.set(acts.into());
    body();
    all - INTERLEAVED.take().len()
}

thread_local! {
    /// Lines of 64 bytes that this thread has written, while that is recorded.
    static WRITTEN: RefCell<Option<BTreeSet<usize>>> = const { RefCell::new(None) };
}

/// The lines of 64 bytes, of those that several CPUs may write, to which `body` writes.
pub fn lines_written(body: impl FnOnce()) -> BTreeSet<usize> {
    WRITTEN.set(Some(BTreeSet::new()));
    body();
    WRITTEN.take().unwrap_or_default()
}

pub(super) fn note_written(address: usize) {
    WRITTEN.with_borrow_mut(|lines| lines.iter_mut().for_each(|l| _ = l.insert(address / 64)));
}

pub(super) fn shared_word_touched() {
    if let Some(left) = WORDS_LEFT.get() {
        assert!(left > 0, "the act of another CPU has no end");
        WORDS_LEFT.set(Some(left - 1));
        return;
    }
    let due = INTERLEAVED.with_borrow_mut(|acts| {
        let (left, _) = acts.front_mut()?;
        match left.checked_sub(1) {
            Some(fewer) => {
                *left = fewer;
                None
            }
            None => acts.pop_front(),
        }
    });
    if let Some((_, act)) = due {
        as_another(act);
    }
}

/// Whether this thread holds no lock of the library: another CPU may run to its end.
pub fn holds_no_lock() -> bool {
    PREEMPT_OFF.get() == 0
}

/// What to do at each step of a thread; told whether the thread waits.
type Each = Box<dyn FnMut(bool)>;

/// From here `act` runs whenever this thread is about to touch a shared word or to fill a portion
/// of a block, or waits for another CPU. It may wait for other threads.
pub fn at_each_step(act: impl FnMut(bool) + 'static) {
    EACH.set(Some(Box::new(act)));
}

pub(super) fn step(waits: bool) {
    if let Some(mut act) = EACH.take() {
        act(waits);
        EACH.set(Some(act));
    }
}

thread_local! {
    static ASKED: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// From here a pager of this thread does `act` before it reads.
pub fn before_each_read(act: impl FnMut() + 'static) {
    ASKED.set(Some(Box::new(act)));
}

pub(super) fn asked_to_read() {
    if let Some(mut act) = ASKED.take() {
        act();
        ASKED.set(Some(act));
    }
}
