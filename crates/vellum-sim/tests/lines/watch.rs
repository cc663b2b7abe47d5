//! Every store of a piece of code to some memory, none left out.
//!
//! The memory is made read-only; each store to it faults, the handler writes the address down,
//! opens the page, lets the CPU execute that one instruction with its trap flag set, and closes the
//! page again. So plain stores, locked instructions and stores of what was there already are all
//! seen, whoever makes them; nothing has to be announced. Rejected: believing the library's own
//! `Hooks::shared`, which tells of locks and not of counters, and comparing memory before and
//! after, which does not see a lock taken and given back.
//!
//! Linux on x86_64 only. One watch at a time in a process, others wait for it; it is for the thread
//! that sets it up.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const PAGE: usize = 4096;
/// The trap flag of the flags register: a debug trap after the next instruction.
const TRAP: i64 = 1 << 8;

/// What handlers may touch: numbers, all of them written by the watching thread only.
struct Board {
    areas: [[AtomicUsize; 2]; 4],
    /// Pages open for the instruction at hand; it can write two.
    open: [AtomicUsize; 2],
    log: [AtomicUsize; 4096],
    len: AtomicUsize,
}

static BOARD: Board = Board {
    areas: [const { [const { AtomicUsize::new(0) }; 2] }; 4],
    open: [const { AtomicUsize::new(0) }; 2],
    log: [const { AtomicUsize::new(0) }; 4096],
    len: AtomicUsize::new(0),
};
static TAKEN: Mutex<()> = Mutex::new(());

fn set(page: usize, bytes: usize, protection: i32) {
    // SAFETY: only pages of the areas given to `Watch::new` are named, which their owner keeps
    // mapped.
    let done = unsafe { libc::mprotect(page as *mut libc::c_void, bytes, protection) };
    if done != 0 {
        // In a handler there is nobody to tell.
        std::process::abort();
    }
}

extern "C" fn on_store(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system hands a handler with SA_SIGINFO both pointers.
    let (at, context) =
        unsafe { ((*info).si_addr() as usize, &mut *context.cast::<libc::ucontext_t>()) };
    let inside = BOARD
        .areas
        .iter()
        .any(|a| (a[0].load(Ordering::Relaxed)..a[1].load(Ordering::Relaxed)).contains(&at));
    let place = BOARD.open.iter().find(|page| page.load(Ordering::Relaxed) == 0);
    let len = BOARD.len.load(Ordering::Relaxed);
    let (true, Some(place), Some(line)) = (inside, place, BOARD.log.get(len)) else {
        // A fault of another kind: it comes again, with nobody to catch it.
        // SAFETY: the default action is always there.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    };
    line.store(at, Ordering::Relaxed);
    BOARD.len.store(len + 1, Ordering::Relaxed);
    place.store(at & !(PAGE - 1), Ordering::Relaxed);
    set(at & !(PAGE - 1), PAGE, libc::PROT_READ | libc::PROT_WRITE);
    context.uc_mcontext.gregs[libc::REG_EFL as usize] |= TRAP;
}

extern "C" fn on_trap(_signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: as in `on_store`.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    for place in &BOARD.open {
        let page = place.swap(0, Ordering::Relaxed);
        if page != 0 {
            set(page, PAGE, libc::PROT_READ);
        }
    }
    context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP;
}

fn handle(signal: i32, handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void)) {
    // SAFETY: all bits zero is an action without mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handlers touch atomics and make one system call that may be made anywhere.
    assert_eq!(unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) }, 0);
}

/// Memory under watch.
pub struct Watch {
    areas: Vec<Range<usize>>,
    _alone: MutexGuard<'static, ()>,
}

impl Watch {
    /// Watches whole pages; nothing happens before [`stores`](Watch::stores).
    pub fn new(areas: Vec<Range<usize>>) -> Watch {
        let alone = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(areas.len() <= BOARD.areas.len());
        for (area, place) in areas.iter().zip(&BOARD.areas) {
            assert!(area.start % PAGE == 0 && area.end % PAGE == 0, "an area is whole pages");
            place[0].store(area.start, Ordering::Relaxed);
            place[1].store(area.end, Ordering::Relaxed);
        }
        handle(libc::SIGSEGV, on_store);
        handle(libc::SIGTRAP, on_trap);
        Watch { areas, _alone: alone }
    }

    /// Runs `body` and says the address of every store it made to the areas, in order.
    pub fn stores(&self, body: impl FnOnce()) -> Vec<usize> {
        BOARD.len.store(0, Ordering::Relaxed);
        self.areas.iter().for_each(|a| set(a.start, a.len(), libc::PROT_READ));
        body();
        self.areas.iter().for_each(|a| set(a.start, a.len(), libc::PROT_READ | libc::PROT_WRITE));
        let len = BOARD.len.load(Ordering::Relaxed);
        BOARD.log[..len].iter().map(|at| at.load(Ordering::Relaxed)).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for signal in [libc::SIGSEGV, libc::SIGTRAP] {
            // SAFETY: the default action is always there.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}
