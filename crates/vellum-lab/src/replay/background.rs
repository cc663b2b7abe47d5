//! What goes on beside the program: Linux's collapse of base pages.

use vellum::addr::{Level, Va};
use vellum::error::SpaceError;
use vellum::machine::{Hooks, Verb};
use vellum::space::{Advice, Page};
use vellum_sim::format::Format;

use super::collapse::{BLOCK, BLOCK_PAGES};
use super::session::Session;
use crate::interrupt;

/// `max_ptes_shared`.
const MOST_SHARED: u64 = 256;

/// Scans that are done at one moment, at most: those of a day at Linux's pace. A trace may say that
/// anything was left out.
const MOST_AT_ONCE: u32 = 24 * 3600 / 10;

/// Does the scans that are due when a CPU stands at `now`: more than one after a long time that the
/// recorder left out.
pub fn scan_if_due<F: Format>(s: &Session<'_, '_, F>, now: u64) {
    let now = s.program_time(now);
    for _ in 0..MOST_AT_ONCE {
        if interrupt::requested() || !s.collapse.borrow_mut().begins(now) {
            return;
        }
        scan(s);
    }
    s.collapse.borrow_mut().skips(now);
}

/// One scan, or the rest of one that had to wait for memory.
fn scan<F: Format>(s: &Session<'_, '_, F>) {
    loop {
        let Some(block) = s.collapse.borrow_mut().next_to_scan() else { break };
        if !may_collapse(s, block) {
            continue;
        }
        s.collapse.borrow_mut().leaves();
        let done = s.vm.advise(s.space, Va(block), BLOCK, Advice::Collapse);
        s.look_at_memory();
        if done == Err(SpaceError::NoMemory) {
            return s.collapse.borrow_mut().lacks_memory();
        }
    }
    s.collapse.borrow_mut().ends();
}

/// Whether a block has base pages enough of the program's own: one at least that it may write, and
/// not too many that it shares with a forked child. Pages of zeros are missing. Linux has wanted a
/// page that may be written until 6.16.
fn may_collapse<F: Format>(s: &Session<'_, '_, F>, block: u64) -> bool {
    let rules = s.collapse.borrow().rules;
    let has_children = !s.children.borrow().is_empty();
    let (mut missing, mut shared, mut writable) = (0, 0, 0);
    let machine = s.vm.machine();
    // The time that it takes is the kernel's.
    machine.begin(Verb::Advise);
    for page in 0..BLOCK_PAGES {
        match s.vm.query(s.space, Va(block + page * 4096)) {
            Page::Mapped { level, .. } if level != Level::ONE => {
                missing = BLOCK_PAGES;
                break;
            }
            Page::Mapped { zero: false, flags, rights, .. } => {
                writable += u64::from(flags.write);
                shared += u64::from(has_children && rights.write && !flags.write);
            }
            _ => missing += 1,
        }
    }
    machine.end(Verb::Advise);
    writable > 0 && missing <= u64::from(rules.most_missing) && shared <= MOST_SHARED
}
