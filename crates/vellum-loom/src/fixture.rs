//! A fixture: what a model builds once, lets two threads race over, and checks afterwards.
//!
//! A fixture has memory of its own, at the same addresses in every execution, since atomics are
//! known by their address. It is built once, outside of loom, on a stack of any size. Each
//! execution starts from a copy of its bytes.

use std::alloc::{Layout, alloc_zeroed};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::atomic::{self, Fenced};
use crate::machine::CpuId;

const MEMORY: usize = 1 << 21;
const PAGE: usize = 4096;

/// Where a fixture lies.
pub struct Memory {
    base: NonNull<u8>,
    used: usize,
}

impl Memory {
    fn new() -> Memory {
        let layout = Layout::from_size_align(MEMORY, PAGE).expect("a layout");
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
        Memory { base, used: 0 }
    }

    /// Zeroed memory, which lasts as long as the process.
    pub fn take(&mut self, layout: Layout) -> NonNull<u8> {
        assert!(layout.align() <= PAGE, "an alignment above a page's");
        let at = self.used.next_multiple_of(layout.align());
        self.used = at + layout.size();
        assert!(self.used <= MEMORY, "a fixture of more than {MEMORY} bytes");
        // SAFETY: inside the memory of `new`.
        unsafe { self.base.add(at) }
    }
}

/// A fixture as it was built.
struct Image<T> {
    base: NonNull<u8>,
    bytes: Box<[u8]>,
    fixture: NonNull<T>,
}

// SAFETY: all threads of a model are one thread of the system.
unsafe impl<T> Send for Image<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Image<T> {}

impl<T> Image<T> {
    fn of(build: impl FnOnce(&mut Memory) -> T) -> Image<T> {
        let mut memory = Memory::new();
        let place = memory.take(Layout::new::<T>()).cast::<T>();
        let built = build(&mut memory);
        // SAFETY: taken for it.
        unsafe { place.write(built) };
        // SAFETY: so much was taken, and all of the memory was zeroed at first.
        let bytes = unsafe { std::slice::from_raw_parts(memory.base.as_ptr(), memory.used) };
        let start = memory.base.addr().get();
        atomic::forget(start..start + memory.used);
        Image { base: memory.base, bytes: bytes.into(), fixture: place }
    }

    /// The fixture as it was built. References of the execution before are gone.
    fn again(&self) -> &'static T {
        // SAFETY: the memory is never freed and at least as long as the copy. A fixture changes
        // nothing that lies outside of its memory, so a copy of its bytes is a valid fixture.
        unsafe {
            let copy = NonNull::from(&*self.bytes).cast();
            self.base.copy_from_nonoverlapping(copy, self.bytes.len());
            self.fixture.as_ref()
        }
    }
}

loom::thread_local! {
    /// The CPU a thread of a race runs on.
    static CPU: Cell<CpuId> = Cell::new(0);
}

thread_local! {
    /// The CPU outside of races.
    static ALONE: Cell<CpuId> = const { Cell::new(0) };
    /// In a rehearsal, whether the second thread runs first.
    static REHEARSAL: Cell<Option<bool>> = const { Cell::new(None) };
}

/// The CPU this code runs on.
pub fn cpu() -> CpuId {
    if atomic::races() { CPU.with(Cell::get) } else { ALONE.get() }
}

/// Runs `body` on a CPU, outside of races.
pub fn on<R>(cpu: CpuId, body: impl FnOnce() -> R) -> R {
    let before = ALONE.replace(cpu);
    let result = body();
    ALONE.set(before);
    result
}

/// The panic of a rehearsal in which one thread waits for the other.
struct Waits;

/// Lets another thread go on.
pub fn relax() {
    if atomic::races() {
        loom::thread::yield_now();
    } else {
        assert!(REHEARSAL.get().is_some(), "a wait that nobody ends");
        resume_unwind(Box::new(Waits));
    }
}

/// Builds a fixture, and runs `body` over it in every execution with at most `preemptions`
/// preemptions.
pub fn model<T: 'static>(
    preemptions: usize,
    build: impl FnOnce(&mut Memory) -> T,
    body: impl Fn(&'static T) + Send + Sync + 'static,
) {
    let image = Image::of(build);
    // The rehearsals, one thread after the other in both orders, touch nearly all that races touch.
    for second_first in [false, true] {
        REHEARSAL.set(Some(second_first));
        let rehearsed = catch_unwind(AssertUnwindSafe(|| body(image.again())));
        REHEARSAL.set(None);
        ALONE.set(0);
        atomic::learn(false);
        if let Err(why) = rehearsed
            && !why.is::<Waits>()
        {
            resume_unwind(why);
        }
    }
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    let run = Arc::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        body(image.again());
    });
    // One preemption touches nearly all of the rest, so the costly runs seldom begin anew.
    atomic::set_fenced(Fenced::Before);
    explore(1, run.clone());
    explore(preemptions, run.clone());
    atomic::set_fenced(Fenced::Behind);
    explore(preemptions, run);
    println!("{} executions", executions.load(Ordering::Relaxed));
    atomic::tell_places();
}

/// Explores all executions, with an object more each time one turned out to be missing.
fn explore(preemptions: usize, run: Arc<impl Fn() + Send + Sync + 'static>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    loop {
        let run = run.clone();
        match catch_unwind(AssertUnwindSafe(|| builder.check(move || run()))) {
            Ok(()) => return,
            Err(why) if why.is::<atomic::Unknown>() => {}
            Err(why) => {
                atomic::end();
                resume_unwind(why);
            }
        }
    }
}

/// Runs `a` on CPU 0 beside `b` on CPU 1, and gives the answers of both.
pub fn race<A, B>(a: impl FnOnce() -> A + 'static, b: impl FnOnce() -> B + 'static) -> (A, B)
where
    A: 'static,
    B: 'static,
{
    if let Some(second_first) = REHEARSAL.get() {
        return rehearse(second_first, a, b);
    }
    atomic::begin();
    let (a, b) = (start(0, a), start(1, b));
    let answers = (answer(a), answer(b));
    atomic::end();
    answers
}

fn rehearse<A, B>(second_first: bool, a: impl FnOnce() -> A, b: impl FnOnce() -> B) -> (A, B) {
    atomic::learn(true);
    let answers = if second_first {
        let b = on(1, b);
        (on(0, a), b)
    } else {
        (on(0, a), on(1, b))
    };
    atomic::learn(false);
    answers
}

/// What one thread of a model hands to another.
struct Sent<T>(T);
// SAFETY: all threads of a model are one thread of the system.
unsafe impl<T> Send for Sent<T> {}

/// A thread, and where it leaves its answer.
type Started<R> = (loom::thread::JoinHandle<()>, Arc<Mutex<Option<Sent<R>>>>);

fn start<R: 'static>(cpu: CpuId, body: impl FnOnce() -> R + 'static) -> Started<R> {
    let (place, body) = (Arc::new(Mutex::new(None)), Sent(body));
    let thread = {
        let place = place.clone();
        let run = move || {
            let body = body;
            CPU.with(|mine| mine.set(cpu));
            let said = (body.0)();
            *place.lock().expect("a place") = Some(Sent(said));
        };
        // In words. The 32 KiB that loom gives by itself are too few for a verb that is not
        // optimised.
        loom::thread::Builder::new().stack_size(1 << 15).spawn(run).expect("a thread")
    };
    (thread, place)
}

fn answer<R>((thread, place): Started<R>) -> R {
    thread.join().expect("a thread of the race");
    let said = place.lock().expect("a place").take();
    said.expect("an answer").0
}
