//! What a second thread is worth on pages of one object: each thread in a space of its own, and in
//! a half of the object of its own.
//!
//! Write faults, so that each maps one page, here and in Linux. Linux's threads share one address
//! space.

use std::io;

use vellum::machine::Machine;
use vellum::space::{Access, Placement, Space};
use vellum::vm::{Object, ObjectPart};

use super::linux::Mapping;
use super::{BareVm, PAGE, Pages, area, attrs, boot, fault_all, unmap};
use crate::bench::linux::NAME;
use crate::bench::linux::shared_memory;
use crate::bench::measure::conditions::cores;
use crate::bench::measure::{Effort, Start, threads};
use crate::bench::scaling::{PAIRS, Pairs, Part, Run, clocked};
use crate::bench::{Report, Row};

/// Pairs tried where too many are interrupted.
const MOST: usize = 2 * PAIRS;

/// Where the threads fault.
struct Place<'a> {
    host: &'a BareVm,
    spaces: &'a [Space],
    object: &'a Object,
    /// Of each thread.
    bytes: u64,
}

impl Place<'_> {
    /// No page is there any more.
    fn clear(&self) {
        let _cpu = self.host.vm.machine().bind(0);
        let objects = self.host.vm.objects();
        for bytes in [0, 2 * self.bytes] {
            objects.resize(self.object, bytes).expect("no seal");
        }
    }

    /// A write fault on each page, by `n` threads.
    fn fault(&self, n: usize) -> Run {
        let start = Start::new(n);
        Run::of(threads(n, |cpu| {
            let (vm, space, at) = (&self.host.vm, &self.spaces[cpu], area(cpu));
            let _cpu = vm.machine().bind(cpu);
            vm.activate(space);
            let part = ObjectPart { object: self.object, offset: cpu as u64 * self.bytes };
            let mapped = vm.map_object(space, Placement::At(at), self.bytes, attrs(false), part);
            mapped.expect("an empty range");
            start.meet_with(|| vm.machine().relax());
            let took = clocked(self.bytes / PAGE, || {
                fault_all(vm, space, Pages::new(at, self.bytes, false), Access::Write)
            });
            start.meet_with(|| vm.machine().relax());
            unmap(vm, space, at, self.bytes);
            vm.deactivate();
            took
        }))
    }
}

fn theirs(n: usize, bytes: u64, present: bool) -> io::Result<Run> {
    let (file, start) = (shared_memory(2 * bytes)?, Start::new(n));
    if present {
        Mapping::new(&file, 0, 2 * bytes)?.touch(true);
    }
    let each = threads(n, |cpu| -> io::Result<Part> {
        let mapping = Mapping::new(&file, cpu as u64 * bytes, bytes);
        start.meet();
        let took = clocked(bytes / PAGE, || mapping.iter().for_each(|m| m.touch(true)));
        start.meet();
        mapping.map(|_| took)
    });
    Ok(Run::of(each.into_iter().collect::<io::Result<_>>()?))
}

/// Pairs of one thread and two, on pages that are there and on pages that are made. No rows on a
/// computer of one core.
pub(super) fn run(effort: Effort) -> io::Result<Report> {
    if cores() < 2 {
        let notes = vec!["two threads skipped: it takes two cores".to_owned()];
        return Ok(Report { notes, ..Report::default() });
    }
    let host = boot(2, false)?;
    let (spaces, object, bytes) = {
        let _cpu = host.vm.machine().bind(0);
        let spaces = [host.vm.create(), host.vm.create()];
        let spaces: Result<Vec<_>, _> = spaces.into_iter().collect();
        let bytes = (32 << 20) / effort.shrink;
        let object = host.vm.objects().create(2 * bytes).map_err(io::Error::other)?;
        (spaces.map_err(io::Error::other)?, object, bytes)
    };
    let place = Place { host: &host, spaces: &spaces, object: &object, bytes };
    let mut found: [(Pairs, Pairs); 2] = Default::default();
    for pair in 0..if effort.shrink > 1 { PAIRS } else { MOST } {
        if pair > 1 && (effort.stop)() {
            break;
        }
        for (present, (own, linux)) in [true, false].into_iter().zip(&mut found) {
            if !own.is_enough() {
                // A run that does not count goes first: two cores have twice the cache of one.
                own.add([1, 2].map(|n| {
                    place.clear();
                    place.fault(2);
                    if !present {
                        place.clear();
                    }
                    place.fault(n)
                }));
            }
            if !linux.is_enough() {
                linux.add([theirs(1, bytes, present)?, theirs(2, bytes, present)?]);
            }
        }
    }
    let names = ["objects/two threads, pages there", "objects/two threads, pages made"];
    let mut report = Report::default();
    for (name, (own, linux)) in names.into_iter().zip(&found) {
        for (suffix, of) in [("", Pairs::best as fn(&Pairs) -> f64), ("/median", Pairs::median)] {
            report.benchmarks.push(Row {
                name: format!("{name}{suffix}"),
                threads: 2,
                unit: "x",
                ours: of(own),
                floor: None,
                peers: [(NAME, of(linux))].into_iter().collect(),
                spread: own.spread(),
            });
        }
    }
    let quiet: Vec<String> = found.iter().map(|(own, _)| own.counts()).collect();
    report.notes.push(format!(
        "pairs in which no thread lost its core, of all tried: {}",
        quiet.join(", ")
    ));
    let _cpu = host.vm.machine().bind(0);
    spaces.into_iter().for_each(|space| host.vm.exit(space));
    host.vm.objects().discard(object);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_have_a_ratio_on_pages_there_and_made() {
        let report = run(Effort::QUICK).unwrap();
        let rows = report.benchmarks.len();
        assert!(rows == 4 || cores() < 2, "{rows} rows");
        assert!(report.benchmarks.iter().all(|row| row.ours > 0.0 && row.peers[NAME] > 0.0));
    }
}
