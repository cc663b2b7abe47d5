//! `vellum bench space`: whole verbs on mappings of several sizes, every page touched: map,
//! protect, remap, fork, exit, unmap.
//!
//! The machine neither clears nor copies, so each row is the library's own work. The kernel under
//! us does the same beside (see [`linux`]), where it can be measured apart: its first touches clear
//! and are in `fault`, and its exits do much else.

use std::io;

use vellum::space::{Access, Placement, Rights};
use vellum::vm::Vm;

use super::fixture::{
    Bare, BareVm, HUGE, PAGE, Pages, area, boot, boot_large, fault_all, map, memory_note, unmap,
};
use super::measure::conditions;
use super::measure::table::Table;
use super::measure::{Effort, Timed, alone, time, timed};
use super::{Report, linux};

/// How much is mapped, and with which pages.
#[derive(Clone, Copy)]
struct Size {
    name: &'static str,
    bytes: u64,
    huge: bool,
}

impl Size {
    const fn new(name: &'static str, bytes: u64, huge: bool) -> Size {
        Size { name, bytes, huge }
    }
}

const SIZES: [Size; 3] = [
    Size::new("1M", 1 << 20, false),
    Size::new("100M", 100 << 20, false),
    Size::new("100M-huge", 100 << 20, true),
];

/// Runs every verb once on ours; names and costs go to `row`.
fn ours(vm: &Vm<Bare>, size: Size, mut row: impl FnMut(String, Timed)) -> io::Result<()> {
    let Size { name, bytes, huge } = size;
    let space = vm.create().map_err(io::Error::other)?;
    vm.activate(&space);
    let (at, elsewhere) = (area(0), area(2));
    let mut row = |verb: &str, f: &mut dyn FnMut()| row(format!("{verb}/{name}"), timed(1, f));
    row("map", &mut || map(vm, &space, at, bytes, huge));
    row("touch", &mut || fault_all(vm, &space, Pages::new(at, bytes, huge), Access::Write));
    row("protect", &mut || vm.protect(&space, at, bytes, Rights::READ).expect("a whole mapping"));
    row("protect-back", &mut || {
        vm.protect(&space, at, bytes, Rights::READ_WRITE).expect("a whole mapping")
    });
    row("remap", &mut || {
        vm.remap(&space, at, bytes, bytes, Placement::At(elsewhere)).expect("room");
    });
    let mut child = None;
    row("fork", &mut || child = Some(vm.fork(&space).expect("memory enough")));
    row("exit", &mut || child.take().into_iter().for_each(|c| vm.exit(c)));
    row("unmap", &mut || unmap(vm, &space, elsewhere, bytes));
    vm.deactivate();
    vm.exit(space);
    Ok(())
}

/// The same by the kernel under us.
fn theirs(size: Size, mut row: impl FnMut(String, f64)) -> io::Result<()> {
    let Size { name, bytes, huge } = size;
    let empty = linux::fork(None)?.fork;
    let mut made = None;
    let took = time(1, || made = Some(linux::Area::new(bytes, huge)));
    let Some(area) = made.transpose()? else { return Ok(()) };
    area.advise(huge);
    let before = conditions::host_faults();
    area.touch(PAGE, true);
    if huge && conditions::host_faults() - before > bytes / HUGE + 16 {
        // No huge pages to be had: it would be another measurement under the same name.
        return Ok(());
    }
    let mut row = |verb: &str, each: f64| row(format!("{verb}/{name}"), each);
    row("map", took);
    let mut done = [Ok(()), Ok(())];
    row("protect", time(1, || done[0] = area.protect(false)));
    row("protect-back", time(1, || done[1] = area.protect(true)));
    done.into_iter().collect::<io::Result<()>>()?;
    let to = linux::Area::new(bytes, huge)?;
    let mut moved = None;
    row("remap", time(1, || moved = Some(area.move_to(to))));
    let area = moved.transpose()?;
    let full = linux::fork(None)?.fork;
    if full > empty {
        row("fork", full - empty);
    }
    row("unmap", time(1, || drop(area)));
    Ok(())
}

/// One size: all repetitions.
fn play(table: &mut Table, effort: Effort, host: &BareVm, size: Size) -> io::Result<()> {
    let vm = &host.vm;
    let _cpu = vm.machine().bind(0);
    // The peer's 10 GiB would be 10 GiB of memory, cleared.
    let beside = size.bytes < 1 << 30;
    for repetition in 0..=effort.repetitions {
        if repetition > 1 && (effort.stop)() {
            break;
        }
        let counts = repetition > 0;
        // Each directly after a turn of its own that does not count, so that neither finds the
        // caches as the other left them.
        ours(vm, size, |_, _| ())?;
        ours(vm, size, |name, t| {
            if counts {
                table.add_timed(&name, 1, "us", t);
            }
        })?;
        if beside {
            theirs(size, |_, _| ())?;
            theirs(size, |name, each| {
                if counts {
                    table.peer(&name, 1, linux::NAME, each / 1000.0);
                }
            })?;
        }
    }
    Ok(())
}

/// Every verb at every size.
///
/// # Errors
/// The machine could not be built.
pub fn run(effort: Effort) -> io::Result<Report> {
    let mut table = Table::default();
    let mut notes = Vec::new();
    {
        let host = boot(1, 512 << 20, false)?;
        notes.push(memory_note(&host));
        for &size in SIZES.iter().take(if effort.shrink > 1 { 1 } else { SIZES.len() }) {
            alone(|| play(&mut table, effort, &host, size))?;
        }
        notes.push(format!(
            "{} first touches of the host inside what was measured",
            table.host_faults()
        ));
    }
    if effort.shrink == 1 {
        match boot_large()? {
            Some(host) => {
                alone(|| play(&mut table, effort, &host, Size::new("10G-huge", 10 << 30, true)))?
            }
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
    fn every_verb_has_a_row_and_its_peer_where_there_is_one() {
        let report = run(Effort::QUICK).unwrap();
        let names: Vec<&str> = report.benchmarks.iter().map(|r| r.name.as_str()).collect();
        let verbs = ["map", "touch", "protect", "protect-back", "remap", "fork", "exit", "unmap"];
        assert_eq!(names, verbs.map(|v| format!("{v}/1M")));
        for row in &report.benchmarks {
            let alone = ["touch", "exit"].iter().any(|v| row.name.starts_with(v));
            // Of a fork of 1 MiB noise may leave nothing.
            assert!(
                row.peers.contains_key("linux") != alone || row.name.starts_with("fork"),
                "{row:?}"
            );
        }
    }
}
