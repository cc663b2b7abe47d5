//! `vellum bench fault` and `vellum bench space`: what the verbs cost.
//!
//! Faults are handed to the library as a trap handler would, so the trap itself is not in the numbers. Each row is measured twice,
//! as it is and (`/bare`) on a machine that neither clears nor copies, since clearing is most of a fault and none of our doing. The floor
//! of a fault is the clearing (or the copy) alone. There is no peer in the registry; the figures of other kernels are in the docs.

use std::collections::BTreeMap;
use std::io;

use vellum::addr::{Order, PAGE_SIZE, Pfn, Va};
use vellum::config::Config;
use vellum::entry::X86_64;
use vellum::frame::Want;
use vellum::machine::{Machine, Use};
use vellum::space::{Access, Attrs, HugeAdvice, Placement, Rights, Space};
use vellum::vm::Vm;

use super::measure::{Effort, Samples, Start, threads, time};
use super::{Report, Row};
use crate::machine::{Host, Plan};
use crate::stress::HostVm;

type Machine_ = Host<X86_64, false>;

/// Which threads work where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Crowd {
    Alone,
    OneSpace,
    OwnSpaces,
}

impl Crowd {
    fn threads(self) -> usize {
        if self == Crowd::Alone { 1 } else { 2 }
    }
    fn suffix(self) -> &'static str {
        match self {
            Crowd::Alone => "",
            Crowd::OneSpace => "/one-space",
            Crowd::OwnSpaces => "/own-spaces",
        }
    }
}

/// Where a thread works: a GiB apart, so that no table node below the third level is shared.
fn area(cpu: usize) -> Va {
    Va((64 + 4 * cpu as u64) << 30)
}

const HUGE: u64 = 2 << 20;

fn attrs(huge: bool) -> Attrs {
    let thp = Some(if huge { HugeAdvice::Huge } else { HugeAdvice::NoHuge });
    Attrs { thp, ..Attrs::anonymous(Rights::READ_WRITE) }
}

/// Calls `fault` for every page of `step` bytes in the range.
fn fault_all(vm: &Vm<Machine_>, space: &Space, at: Va, bytes: u64, step: u64, access: Access) {
    let mut va = at.0;
    while va < at.0 + bytes {
        vm.fault(space, Va(va), access).expect("a mapped page and memory enough");
        va += step;
    }
}

fn map(vm: &Vm<Machine_>, space: &Space, at: Va, bytes: u64, huge: bool) {
    vm.map(space, Placement::At(at), bytes, attrs(huge)).expect("an empty range");
}

fn unmap(vm: &Vm<Machine_>, space: &Space, at: Va, bytes: u64) {
    vm.unmap(space, at, bytes).expect("a whole mapping");
}

/// Rows by name, each with its samples, in the order of their first appearance.
#[derive(Default)]
struct Table {
    order: Vec<(String, usize)>,
    samples: BTreeMap<String, Samples>,
    floors: BTreeMap<String, Samples>,
}

impl Table {
    fn add(&mut self, name: String, threads: usize, value: f64) {
        if !self.samples.contains_key(&name) {
            self.order.push((name.clone(), threads));
        }
        self.samples.entry(name).or_default().add(value);
    }
    fn floor(&mut self, name: &str, value: f64) {
        self.floors.entry(name.to_string()).or_default().add(value);
    }
    fn report(self, unit: &'static str) -> Report {
        let rows = self.order.iter().map(|(name, threads)| {
            let own = &self.samples[name];
            Row {
                name: name.clone(),
                threads: *threads,
                unit,
                ours: own.median(),
                floor: self.floors.get(name).map(Samples::median),
                peers: BTreeMap::new(),
                spread: own.spread(),
            }
        });
        Report { benchmarks: rows.collect() }
    }
}

/// One thread's turn in a fault repetition: name and nanoseconds per page.
fn turn(
    vm: &Vm<Machine_>,
    space: &Space,
    cpu: usize,
    start: &Start,
    effort: Effort,
    forks: bool,
) -> Vec<(&'static str, f64)> {
    let at = area(cpu);
    let small = (64 << 20) / effort.shrink;
    let large = (128 << 20) / effort.shrink.min(32);
    let pages = small / PAGE_SIZE as u64;
    let mut found = Vec::new();
    let mut phase = |name, n, f: &mut dyn FnMut()| {
        start.meet_with(|| vm.machine().relax());
        let each = time(n, f);
        start.meet_with(|| vm.machine().relax());
        found.push((name, each));
    };
    map(vm, space, at, small, false);
    phase("fault/4k-zero-read", pages, &mut || fault_all(vm, space, at, small, PAGE_SIZE as u64, Access::Read));
    unmap(vm, space, at, small);
    map(vm, space, at, small, false);
    phase("fault/4k-write", pages, &mut || fault_all(vm, space, at, small, PAGE_SIZE as u64, Access::Write));
    phase("unmap/4k-page", pages, &mut || unmap(vm, space, at, small));
    map(vm, space, at, large, true);
    phase("fault/2m-write", large / HUGE, &mut || fault_all(vm, space, at, large, HUGE, Access::Write));
    phase("unmap/2m-page", large / HUGE, &mut || unmap(vm, space, at, large));
    if forks {
        map(vm, space, at, small, false);
        fault_all(vm, space, at, small, PAGE_SIZE as u64, Access::Write);
        let mut child = None;
        phase("fork/4k-page", pages, &mut || child = Some(vm.fork(space).expect("memory enough")));
        phase("fault/4k-copy", pages, &mut || {
            fault_all(vm, space, at, small, PAGE_SIZE as u64, Access::Write);
        });
        if let Some(child) = child {
            let mut child = Some(child);
            phase("exit/4k-page", pages, &mut || child.take().into_iter().for_each(|c| vm.exit(c)));
        }
        unmap(vm, space, at, small);
    }
    found
}

/// The cost of clearing and copying alone, over as many frames as the faults go through, so that they are as cold.
fn floors(vm: &Vm<Machine_>, table: &mut Table) {
    const BLOCKS: usize = 32;
    let (m, frames) = (vm.machine(), vm.frames());
    let _cpu = m.sit(0);
    let take =
        |_| frames.alloc(m, Order::HUGE, &Want::kernel(Use::Data)).expect("all memory is free between repetitions");
    let blocks: Vec<Pfn> = (0..2 * BLOCKS).map(take).collect();
    let (to, from) = blocks.split_at(BLOCKS);
    let n = 512 * BLOCKS as u64;
    let pages = |list: &[Pfn], i: u64| list[i as usize / 512].add(i % 512);
    table.floor("fault/4k-write", time(n, || (0..n).for_each(|i| m.clear(pages(to, i), 1))));
    table.floor("fault/4k-copy", time(n, || (0..n).for_each(|i| m.copy(pages(to, i), pages(from, i), 1))));
    table.floor("fault/2m-write", time(BLOCKS as u64, || to.iter().for_each(|&block| m.clear(block, 512))));
    blocks.into_iter().for_each(|block| frames.free(m, block, Order::HUGE));
}

/// Faults of 4 KiB and 2 MiB, zero-page reads, copy-on-write, and the unmap, fork and exit that go with them, alone and by two
/// threads in one space and in two.
///
/// # Errors
/// The machine could not be built.
pub fn faults(effort: Effort) -> io::Result<Report> {
    let mut table = Table::default();
    for moves_bytes in [true, false] {
        for crowd in [Crowd::Alone, Crowd::OneSpace, Crowd::OwnSpaces] {
            let n = crowd.threads();
            let plan = Plan { moves_bytes, ..Plan::new(n, 1 << 30) };
            let host = HostVm::<X86_64, false>::new(plan, Config::default())?;
            let vm = &host.vm;
            if moves_bytes {
                // Or the host's own faults would be most of ours.
                vm.machine().memory().warm();
            }
            let spaces: Vec<Space> = {
                let _cpu = vm.machine().sit(0);
                let count = if crowd == Crowd::OwnSpaces { n } else { 1 };
                (0..count).map(|_| vm.create()).collect::<Result<_, _>>().map_err(io::Error::other)?
            };
            for repetition in 0..=effort.repetitions {
                let start = Start::new(n);
                let found = threads(n, |cpu| {
                    let _seat = vm.machine().sit(cpu);
                    let space = &spaces[cpu % spaces.len()];
                    vm.activate(space);
                    let found = turn(vm, space, cpu, &start, effort, crowd != Crowd::OneSpace);
                    vm.idle();
                    found
                });
                if repetition == 0 {
                    continue;
                }
                for (i, &(name, _)) in found[0].iter().enumerate() {
                    let mean = found.iter().map(|f| f[i].1).sum::<f64>() / n as f64;
                    let bare = if moves_bytes { "" } else { "/bare" };
                    table.add(format!("{name}{bare}{}", crowd.suffix()), n, mean);
                }
                if moves_bytes && crowd == Crowd::Alone {
                    floors(vm, &mut table);
                }
            }
            let _cpu = vm.machine().sit(0);
            spaces.into_iter().for_each(|s| vm.exit(s));
        }
    }
    Ok(table.report("ns"))
}

/// Whole verbs on mappings of several sizes, every page touched: map, protect, remap, fork, exit, unmap.
///
/// # Errors
/// The machine could not be built.
pub fn spaces(effort: Effort) -> io::Result<Report> {
    let mut table = Table::default();
    let sizes: [(&str, u64, bool); 4] = [
        ("1M", 1 << 20, false),
        ("100M", 100 << 20, false),
        ("100M-huge", 100 << 20, true),
        ("10G-huge", 10 << 30, true),
    ];
    let plan = Plan { moves_bytes: false, ..Plan::new(1, 12 << 30) };
    let host = HostVm::<X86_64, false>::new(plan, Config::default())?;
    let vm = &host.vm;
    let _cpu = vm.machine().sit(0);
    for repetition in 0..=effort.repetitions {
        for &(size, bytes, huge) in sizes.iter().take(if effort.shrink > 1 { 1 } else { 4 }) {
            let space = vm.create().map_err(io::Error::other)?;
            vm.activate(&space);
            let (at, elsewhere) = (area(0), area(8));
            let step = if huge { HUGE } else { PAGE_SIZE as u64 };
            let mut row = |verb: &str, f: &mut dyn FnMut()| {
                let each = time(1, f) / 1000.0;
                if repetition > 0 {
                    table.add(format!("{verb}/{size}"), 1, each);
                }
            };
            row("map", &mut || map(vm, &space, at, bytes, huge));
            row("touch", &mut || fault_all(vm, &space, at, bytes, step, Access::Write));
            row("protect", &mut || {
                vm.protect(&space, at, bytes, Rights::READ).expect("a whole mapping");
            });
            row("protect-back", &mut || {
                vm.protect(&space, at, bytes, Rights::READ_WRITE).expect("a whole mapping");
            });
            row("remap", &mut || {
                vm.remap(&space, at, bytes, bytes, Placement::At(elsewhere)).expect("room");
            });
            let mut child = None;
            row("fork", &mut || child = Some(vm.fork(&space).expect("memory enough")));
            row("exit", &mut || child.take().into_iter().for_each(|c| vm.exit(c)));
            row("unmap", &mut || unmap(vm, &space, elsewhere, bytes));
            vm.idle();
            vm.exit(space);
        }
    }
    Ok(table.report("us"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_row_has_a_number_in_every_crowd() {
        let report = faults(Effort::QUICK).unwrap();
        let names: Vec<&str> = report.benchmarks.iter().map(|r| r.name.as_str()).collect();
        for wanted in ["fault/4k-write", "fault/2m-write/bare", "fault/4k-copy/own-spaces", "unmap/4k-page/one-space"] {
            assert!(names.contains(&wanted), "{wanted} is not among {names:?}");
        }
        assert!(report.benchmarks.iter().all(|r| r.ours > 0.0));
    }

    #[test]
    fn every_verb_has_a_row() {
        let report = spaces(Effort::QUICK).unwrap();
        assert_eq!(report.benchmarks.len(), 8);
    }
}
