//! `vellum bench fault`: faults, and the unmap, fork and exit that go with them.
//!
//! The benchmark calls the library as a trap handler would, so the trap is not in the figures. Each
//! row is measured twice: as it is, and (`/bare`) on a machine that neither clears nor copies,
//! since clearing is most of a fault and not the library's work. The floor of a fault is the
//! clearing or the copy alone: one page at a time for base pages, one call for a huge page. The
//! peer is the kernel under us, see [`linux`].
//!
//! Several threads work in one space (`/one-space`), in ranges that share no table node below the
//! third level, or each in its own space (`/own-spaces`).

use std::io;

use vellum::addr::{Order, Pfn};
use vellum::machine::{Machine, Use};
use vellum::space::{Access, Space};
use vellum::unstable::AllocRequest;
use vellum::vm::Vm;

use super::fixture::{Bare, HUGE, PAGE, Pages, area, boot, fault_all, map, memory_note, unmap};
use super::measure::conditions;
use super::measure::table::Table;
use super::measure::{Effort, Start, Timed, threads, time, timed};
use super::{Report, linux};

/// Which threads work where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sharing {
    Alone,
    OneSpace,
    OwnSpaces,
}

impl Sharing {
    fn of(threads: usize) -> &'static [Sharing] {
        if threads == 1 { &[Sharing::Alone] } else { &[Sharing::OneSpace, Sharing::OwnSpaces] }
    }
    fn suffix(self) -> &'static str {
        match self {
            Sharing::Alone => "",
            Sharing::OneSpace => "/one-space",
            Sharing::OwnSpaces => "/own-spaces",
        }
    }
}

/// Bytes a thread touches with base pages, and with huge ones.
fn sizes(effort: Effort) -> (u64, u64) {
    ((64 << 20) / effort.shrink, (128 << 20) / effort.shrink.min(32))
}

/// What a thread works with.
struct Worker<'a> {
    vm: &'a Vm<Bare>,
    space: &'a Space,
    cpu: usize,
    start: &'a Start,
    effort: Effort,
}

/// One thread's turn: name and cost of each phase.
fn turn(worker: &Worker<'_>, forks: bool) -> Vec<(&'static str, Timed)> {
    let &Worker { vm, space, cpu, start, effort } = worker;
    let at = area(cpu);
    let (small, large) = sizes(effort);
    let (pages, blocks) = (small / PAGE, large / HUGE);
    let fault = |access| fault_all(vm, space, Pages::new(at, small, false), access);
    let mut found = Vec::new();
    let mut phase = |name, n, f: &mut dyn FnMut()| {
        start.meet_with(|| vm.machine().relax());
        let cost = timed(n, f);
        start.meet_with(|| vm.machine().relax());
        found.push((name, cost));
    };
    map(vm, space, at, small, false);
    phase("fault/4k-zero-read", pages, &mut || fault(Access::Read));
    unmap(vm, space, at, small);
    map(vm, space, at, small, false);
    phase("fault/4k-write", pages, &mut || fault(Access::Write));
    phase("unmap/4k-page", pages, &mut || unmap(vm, space, at, small));
    map(vm, space, at, large, true);
    phase("fault/2m-write", blocks, &mut || {
        fault_all(vm, space, Pages::new(at, large, true), Access::Write)
    });
    phase("unmap/2m-page", blocks, &mut || unmap(vm, space, at, large));
    if forks {
        map(vm, space, at, small, false);
        fault(Access::Write);
        let mut child = None;
        phase("fork/4k-page", pages, &mut || child = Some(vm.fork(space).expect("memory enough")));
        phase("fault/4k-copy", pages, &mut || fault(Access::Write));
        phase("exit/4k-page", pages, &mut || child.take().into_iter().for_each(|c| vm.exit(c)));
        unmap(vm, space, at, small);
    }
    found
}

/// The cost of clearing and copying alone, over as many frames as the faults go through, so that
/// they are as cold. Huge pages come first: what was just copied from is in the caches, and
/// clearing past them would have to drive it out.
fn floors(vm: &Vm<Bare>, effort: Effort, table: &mut Table) {
    let (small, large) = sizes(effort);
    let (pages, blocks) = (small / PAGE, large / HUGE);
    let (m, frames) = (vm.machine(), vm.frames());
    let _cpu = m.bind(0);
    let take = |_| {
        frames
            .alloc(m, Order::HUGE, &AllocRequest::kernel(Use::Data))
            .expect("all memory is free between repetitions")
    };
    let all: Vec<Pfn> = (0..blocks.max(2 * pages.div_ceil(512))).map(take).collect();
    let (to, from) = all.split_at(all.len() / 2);
    let page = |list: &[Pfn], i: u64| list[i as usize / 512].add(i % 512);
    // SAFETY: every frame is one of `all`, and those copied to are others than those copied from.
    let clear = |first, frames| unsafe { m.clear(first, frames) };
    // SAFETY: as above.
    let copy = |i| unsafe { m.copy(page(to, i), page(from, i), 1) };
    table.floor(
        "fault/2m-write",
        1,
        time(blocks, || all[..blocks as usize].iter().for_each(|&b| clear(b, 512))),
    );
    table.floor(
        "fault/4k-write",
        1,
        time(pages, || (0..pages).for_each(|i| clear(page(to, i), 1))),
    );
    table.floor("fault/4k-copy", 1, time(pages, || (0..pages).for_each(copy)));
    for block in all {
        // SAFETY: had above, and mapped by nobody.
        unsafe { frames.free(m, block, Order::HUGE) };
    }
}

/// What is measured at once.
#[derive(Clone, Copy)]
struct Setting {
    threads: usize,
    sharing: Sharing,
    moves_bytes: bool,
}

/// All repetitions of one setting, on a machine of its own.
fn measure(
    table: &mut Table,
    notes: &mut Vec<String>,
    effort: Effort,
    setting: Setting,
) -> io::Result<()> {
    let Setting { threads: n, sharing, moves_bytes } = setting;
    let (small, large) = sizes(effort);
    let bytes = n as u64 * (2 * large + 2 * small).max(128 << 20);
    if conditions::available().is_some_and(|free| free < bytes / 2 * 3) {
        return Err(io::Error::other(format!(
            "{n} threads take {} MiB of free memory; take fewer",
            (bytes / 2 * 3) >> 20
        )));
    }
    let host = boot(n, bytes, moves_bytes)?;
    let vm = &host.vm;
    if moves_bytes && notes.is_empty() {
        notes.push(memory_note(&host));
    }
    let spaces: Vec<Space> = {
        let _cpu = vm.machine().bind(0);
        let count = if sharing == Sharing::OwnSpaces { n } else { 1 };
        (0..count).map(|_| vm.create()).collect::<Result<_, _>>().map_err(io::Error::other)?
    };
    let bare = if moves_bytes { "" } else { "/bare" };
    for repetition in 0..=effort.repetitions {
        if repetition > 1 && (effort.stop)() {
            break;
        }
        let start = Start::new(n);
        let ours = threads(n, |cpu| {
            let _cpu = vm.machine().bind(cpu);
            let space = &spaces[cpu % spaces.len()];
            vm.activate(space);
            let worker = Worker { vm, space, cpu, start: &start, effort };
            let found = turn(&worker, sharing != Sharing::OneSpace);
            vm.deactivate();
            found
        });
        // Processes of one address space each, beside each other, are no threads of this one.
        let linux = if moves_bytes && sharing != Sharing::OwnSpaces {
            let start = Start::new(n);
            let all = threads(n, |_| linux::turn(small, large, &start, sharing == Sharing::Alone));
            all.into_iter().collect::<io::Result<Vec<_>>>()?
        } else {
            Vec::new()
        };
        if repetition == 0 {
            continue;
        }
        for (i, &(name, _)) in ours[0].iter().enumerate() {
            let each = ours.iter().map(|f| f[i].1.each).sum::<f64>() / n as f64;
            let host_faults = ours.iter().map(|f| f[i].1.host_faults).sum();
            table.add_timed(
                &format!("{name}{}{bare}", sharing.suffix()),
                n,
                "ns",
                Timed { each, host_faults },
            );
        }
        for (i, &(name, _)) in linux.first().into_iter().flatten().enumerate() {
            let found: Vec<f64> = linux
                .iter()
                .filter_map(|f| f.get(i))
                .filter(|f| f.0 == name)
                .map(|f| f.1)
                .collect();
            let each = found.iter().sum::<f64>() / found.len() as f64;
            table.peer(&format!("{name}{}", sharing.suffix()), n, linux::NAME, each);
        }
        if moves_bytes && sharing == Sharing::Alone {
            floors(vm, effort, table);
        }
    }
    let _cpu = vm.machine().bind(0);
    spaces.into_iter().for_each(|s| vm.exit(s));
    Ok(())
}

/// Faults of 4 KiB and 2 MiB, zero-page reads, copy-on-write, and the unmap, fork and exit that go
/// with them, for each number of threads.
///
/// # Errors
/// The machine could not be built.
pub fn run(effort: Effort, counts: &[usize]) -> io::Result<Report> {
    let (mut table, mut notes) = (Table::default(), Vec::new());
    for &n in counts {
        for &sharing in Sharing::of(n) {
            for moves_bytes in [true, false] {
                if !(effort.stop)() {
                    let setting = Setting { threads: n, sharing, moves_bytes };
                    measure(&mut table, &mut notes, effort, setting)?;
                }
            }
        }
    }
    notes.push(format!(
        "{} first touches of the host inside what was measured",
        table.host_faults()
    ));
    Ok(Report { notes, ..table.report() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_row_has_a_number_in_every_crowd() {
        let report = run(Effort::QUICK, &[1, 2]).unwrap();
        let names: Vec<&str> = report.benchmarks.iter().map(|r| r.name.as_str()).collect();
        for wanted in [
            "fault/4k-write",
            "fault/2m-write/bare",
            "fault/4k-copy/own-spaces",
            "unmap/4k-page/one-space",
        ] {
            assert!(names.contains(&wanted), "{wanted} is not among {names:?}");
        }
        assert!(report.benchmarks.iter().all(|r| r.ours > 0.0));
        let first = &report.benchmarks[1];
        assert_eq!(first.name, "fault/4k-write");
        assert!(first.floor.is_some() && first.peers.contains_key("linux"), "{first:?}");
    }

    #[test]
    fn no_first_touch_of_the_host_is_measured() {
        let effort = Effort { repetitions: 2, shrink: 4, ..Effort::QUICK };
        let (mut table, mut notes) = (Table::default(), Vec::new());
        let setting = Setting { threads: 1, sharing: Sharing::Alone, moves_bytes: false };
        measure(&mut table, &mut notes, effort, setting).unwrap();
        // Some 40 thousand acts; a touch here and there may be the thread's own stack.
        assert!(table.host_faults() < 20, "{}", table.host_faults());
    }
}
