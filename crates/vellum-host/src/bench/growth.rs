//! `vellum bench growth`: the same operations with ten and a hundred times as much of everything.
//!
//! Three things grow: the mapped memory, whose costs per page should stay; the number of mappings
//! in a space, whose costs per operation on one of them should stay; and the memory of the machine,
//! with 10 MiB of faults on each. A cost that grows is a design that does not scale, except for
//! caches: a record is a cache line, and 100 MiB of 4 KiB pages have 1.6 MiB of them. The machine
//! neither clears nor copies.
//!
//! Rows are named `growth/OPERATION/AXIS-SIZE`, the smallest size first. Each size is measured
//! right after a turn that does not count, so that the caches hold its own memory as far as it
//! fits.

use std::io;

use vellum::addr::Va;
use vellum::space::{Access, Placement, Rights, Space};
use vellum::vm::Vm;

use super::fixture::{
    Bare, BareVm, PAGE, Pages, area, attrs, boot, boot_large, fault_all, map, memory_note, unmap,
};
use super::measure::table::Table;
use super::measure::{Effort, alone, timed};
use super::{Report, measure};

/// What is measured goes through here: act, operations, and the acts themselves.
type Phase<'a> = dyn FnMut(&str, u64, &mut dyn FnMut()) + 'a;

/// Maps, touches, protects, forks and unmaps `bytes`.
fn memory(vm: &Vm<Bare>, bytes: u64, phase: &mut Phase<'_>) -> io::Result<()> {
    let space = vm.create().map_err(io::Error::other)?;
    vm.activate(&space);
    let (at, pages) = (area(0), bytes / PAGE);
    // A single call is measured warm, or the size before would be in it by what it drove out of the
    // caches.
    map(vm, &space, at, bytes, false);
    unmap(vm, &space, at, bytes);
    phase("map, a call", 1, &mut || map(vm, &space, at, bytes, false));
    phase("fault, a page", pages, &mut || {
        fault_all(vm, &space, Pages::new(at, bytes, false), Access::Write)
    });
    phase("protect, a page", pages, &mut || {
        vm.protect(&space, at, bytes, Rights::READ).expect("a whole mapping")
    });
    let mut child = None;
    phase("fork, a page", pages, &mut || child = vm.fork(&space).ok());
    phase("exit, a page", pages, &mut || child.take().into_iter().for_each(|c| vm.exit(c)));
    phase("unmap, a page", pages, &mut || unmap(vm, &space, at, bytes));
    vm.deactivate();
    vm.exit(space);
    Ok(())
}

/// Bytes of each of many mappings, and from one to the next: they touch nobody, so no two become
/// one.
const EACH: u64 = 4 * PAGE;
const APART: u64 = 2 * EACH;
/// Mappings that are acted upon, spread evenly over all.
const SAMPLE: u64 = 100;

/// Acts on a sample of `count` mappings.
fn mappings(vm: &Vm<Bare>, space: &Space, count: u64, phase: &mut Phase<'_>) {
    let place = |i: u64| Va(area(0).0 + i * (count / SAMPLE) * APART);
    phase("fault", SAMPLE, &mut || {
        for i in 0..SAMPLE {
            vm.fault(space, place(i), Access::Write).expect("a mapped page and memory enough");
        }
    });
    phase("protect a page", SAMPLE, &mut || {
        for i in 0..SAMPLE {
            vm.protect(space, place(i), PAGE, Rights::READ).expect("memory enough");
        }
    });
    phase("unmap", SAMPLE, &mut || (0..SAMPLE).for_each(|i| unmap(vm, space, place(i), EACH)));
    phase("map at a place", SAMPLE, &mut || {
        (0..SAMPLE).for_each(|i| map(vm, space, place(i), EACH, false))
    });
    let mut placed = Vec::with_capacity(SAMPLE as usize);
    phase("map anywhere", SAMPLE, &mut || {
        for _ in 0..SAMPLE {
            placed.push(vm.map(space, Placement::Anywhere, EACH, attrs(false)).expect("room"));
        }
    });
    placed.into_iter().for_each(|at| unmap(vm, space, at, EACH));
}

/// Plays one size: a turn that does not count, then the repetitions.
fn size(
    effort: Effort,
    table: &mut Table,
    label: &str,
    mut turn: impl FnMut(&mut Phase<'_>) -> io::Result<()>,
) -> io::Result<()> {
    for repetition in 0..=effort.repetitions {
        if repetition > 1 && (effort.stop)() {
            break;
        }
        turn(&mut |act, n, f| {
            let cost: measure::Timed = timed(n, f);
            if repetition > 0 {
                table.add_timed(&format!("growth/{act}/{label}"), 1, "ns", cost);
            }
        })?;
    }
    Ok(())
}

/// Sizes of mappings up to what the machine takes.
fn sizes(
    effort: Effort,
    table: &mut Table,
    host: &BareVm,
    shown: &[(&str, u64)],
) -> io::Result<()> {
    let _cpu = host.vm.machine().bind(0);
    for (name, bytes) in shown {
        size(effort, table, &format!("memory-{name}"), |phase| memory(&host.vm, *bytes, phase))?;
    }
    Ok(())
}

/// Numbers of mappings.
fn counts(effort: Effort, table: &mut Table, host: &BareVm, shown: &[u64]) -> io::Result<()> {
    let vm = &host.vm;
    let _cpu = vm.machine().bind(0);
    for &count in shown {
        let space = vm.create().map_err(io::Error::other)?;
        vm.activate(&space);
        (0..count).for_each(|i| map(vm, &space, Va(area(0).0 + i * APART), EACH, false));
        size(effort, table, &format!("mappings-{count}"), |phase| {
            mappings(vm, &space, count, phase);
            Ok(())
        })?;
        vm.deactivate();
        vm.exit(space);
    }
    Ok(())
}

/// 10 MiB of pages on a machine.
fn machine(effort: Effort, table: &mut Table, host: &BareVm, name: &str) -> io::Result<()> {
    let _cpu = host.vm.machine().bind(0);
    size(effort, table, &format!("machine-{name}"), |phase| {
        // Without fork and exit: a child's tables are first touches of the host on a machine whose
        // memory is not warm.
        let shown = ["fault, a page", "protect, a page", "unmap, a page"];
        memory(&host.vm, 10 << 20, &mut |act, n, f| {
            if shown.contains(&act) { phase(act, n, f) } else { f() }
        })
    })
}

/// Every act at every size that fits.
///
/// # Errors
/// The machine could not be built.
pub fn run(effort: Effort) -> io::Result<Report> {
    let (mut table, mut notes) = (Table::default(), Vec::new());
    let all = effort.shrink == 1;
    let small = boot(1, 128 << 20, false)?;
    alone(|| machine(effort, &mut table, &small, "128M"))?;
    let host = if all { boot(1, 1280 << 20, false)? } else { small };
    notes.push(memory_note(&host));
    alone(|| {
        if all {
            machine(effort, &mut table, &host, "1280M")?;
        }
        let shown = [("1M", 1 << 20), ("10M", 10 << 20), ("100M", 100 << 20), ("1G", 1 << 30)];
        sizes(effort, &mut table, &host, &shown[..if all { 4 } else { 2 }])?;
        counts(effort, &mut table, &host, &[100, 1_000, 10_000][..if all { 3 } else { 2 }])
    })?;
    drop(host);
    notes.push(format!(
        "{} first touches of the host inside what was measured",
        table.host_faults()
    ));
    if all {
        match boot_large()? {
            Some(host) => alone(|| {
                machine(effort, &mut table, &host, "12G")?;
                sizes(effort, &mut table, &host, &[("10G", 10 << 30)])
            })?,
            None => notes
                .push("10 GiB left out: that takes 2 GiB of free memory, for records".to_owned()),
        }
    }
    Ok(Report { notes, ..table.report() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_act_has_a_row_at_every_size_of_its_axis() {
        let report = run(Effort::QUICK).unwrap();
        let rows = |axis: &str| report.benchmarks.iter().filter(|r| r.name.contains(axis)).count();
        assert_eq!((rows("/memory-"), rows("/mappings-"), rows("/machine-")), (12, 10, 3));
        assert!(report.benchmarks.iter().all(|r| r.ours > 0.0));
    }
}
