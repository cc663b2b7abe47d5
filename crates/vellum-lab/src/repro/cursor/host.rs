//! The experiment on this computer: objects filled by the library's faults, with and without the
//! cursor, in pairs.
//!
//! Both libraries live side by side on machines of threads, and which one goes first changes from
//! fill to fill. What is said of a row is the median of the pairs' differences and an interval
//! around it that rests on nothing but their order: of 21 differences the 6th and the 16th, between
//! which the true median lies with 97 % (a sign test). An interval around zero is no difference.

use std::io;

use vellum::addr::Va;
use vellum::config::{Config, Thp};
use vellum::entry::X86_64;
use vellum::space::{Access, Attrs, Placement, Rights};
use vellum::{ObjectPart, Space};
use vellum_host::bench::measure::{alone, time};
use vellum_host::host_vm::HostVm;
use vellum_host::machine::Plan;
use vellum_sim::schedule::Rng;

use super::faults::SWITCH;
use crate::error::LabError;
use crate::interrupt;
use crate::repro::page::{Page, Row, Table};

/// Pairs, and which of the sorted differences bound the interval, counted from 0.
const PAIRS: usize = 21;
const BOUNDS: [usize; 2] = [5, 15];
/// Times an object is filled on each side of a pair; their median counts.
const FILLS: usize = 5;
/// Pages of the object, and pairs, for the first screen.
pub(super) const PAGES: u64 = 16 << 10;
const GLANCE: u64 = 4 << 10;

type Library = HostVm<X86_64, false>;

/// How an object is filled.
pub(super) struct Case {
    pub name: &'static str,
    /// Its pages, in the order in which they are touched.
    pub order: Vec<u64>,
    /// The machine moves bytes.
    pub clears: bool,
}

pub(super) fn cases(pages: u64) -> Vec<Case> {
    let upwards = || (0..pages).collect::<Vec<_>>();
    let mut random = upwards();
    let mut rng = Rng::new(1);
    for last in (1..random.len()).rev() {
        random.swap(last, rng.below(last as u64 + 1) as usize);
    }
    vec![
        Case { name: "filled upwards, clearing apart", order: upwards(), clears: false },
        Case { name: "filled at random, clearing apart", order: random, clears: false },
        Case { name: "filled upwards, with clearing", order: upwards(), clears: true },
    ]
}

/// Nanoseconds a fault of each pair: with the switch off, and on.
type Times = Vec<[f64; 2]>;

/// The page.
pub fn run() -> Result<Page, LabError> {
    let mut page = Page {
        name: "cursor",
        title: "Cursors through page allocation".into(),
        on: "this computer, real time".into(),
        asked: vec![
            "What is a cursor from the failed lookup to the insertion worth in the library's own \
             page fault?"
                .into(),
        ],
        run: vec![format!(
            "An object of {PAGES} pages, mapped once and filled by faults with {SWITCH}=off \
             and on in turn, on one core: {PAIRS} pairs, each of two medians of {FILLS} fills. \
             Clearing apart: the machine moves no bytes. The interval of the median difference \
             is that of the sign test: of the sorted differences the 6th and the 16th, 97 %.",
        )],
        ..Page::default()
    };
    let mut rows = Vec::new();
    for case in cases(PAGES) {
        let times = measure(&case, PAIRS).map_err(LabError::failed)?;
        let [low, middle, high] = interval(&times);
        let verdict = match (low <= 0.0, high >= 0.0) {
            (true, true) => "no difference",
            (true, false) => "less with the cursor",
            _ => "more with the cursor",
        };
        page.out.push(format!(
            "{}: {middle:+.1} ns a fault, between {low:+.1} and {high:+.1}: {verdict}.",
            case.name
        ));
        rows.push(row(case.name, &times));
    }
    page.tables.push(Table {
        title: "Nanoseconds a fault that allocates a page of an object".into(),
        columns: ["off".into(), "on".into()],
        rows,
    });
    page.means.push(
        "Both columns contain the whole fault: tables, frames, records, locks. The cursor's part \
         is the difference of pairs, not that of the medians."
            .into(),
    );
    page.limits.push(
        "One CPU, one object, caches of this computer, perhaps shared with others. Where the trie \
         is in the first level, a search from the root is a few nanoseconds."
            .into(),
    );
    Ok(page)
}

/// A line of the first screen.
pub fn here() -> Result<Vec<Row>, String> {
    let case = cases(GLANCE).swap_remove(1);
    let times = measure(&case, PAIRS).map_err(|e| e.to_string())?;
    Ok(vec![row("a page of an object, random, ns: root -> cursor", &times)])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The lower bound, the median and the upper bound of the differences.
fn interval(times: &Times) -> [f64; 3] {
    let mut differences: Vec<f64> = times.iter().map(|[off, on]| on - off).collect();
    differences.sort_by(f64::total_cmp);
    let at = |nth: usize| differences.get(nth).copied().unwrap_or(f64::NAN);
    [at(BOUNDS[0]), at(differences.len() / 2), at(BOUNDS[1])]
}

fn row(name: &str, times: &Times) -> Row {
    let column = |nth: usize| -> Vec<f64> { times.iter().map(|pair| pair[nth]).collect() };
    let [low, _, high] = interval(times);
    let off = median(column(0));
    Row {
        name: name.to_owned(),
        published: [None, None],
        ours: [Some(off), Some(median(column(1)))],
        spread: Some((high - low) / off),
        provenance: None,
    }
}

fn measure(case: &Case, pairs: usize) -> io::Result<Times> {
    let bytes = (case.order.len() as u64) << 12;
    let boot = |alloc_cursor| {
        let config = Config { thp: Thp::Never, alloc_cursor, ..Config::default() };
        let plan = Plan { moves_bytes: case.clears, ..Plan::new(1, 2 * bytes + (64 << 20)) };
        let library = Library::new(plan, config)?;
        library.warm();
        Ok::<_, io::Error>(library)
    };
    let libraries = [boot(false)?, boot(true)?];
    alone(|| {
        // The first pair warms both, and is dropped.
        let one = |nth: usize| {
            let mut pair = [Vec::new(), Vec::new()];
            for fills in 0..FILLS {
                for side in [(nth + fills) % 2, 1 - (nth + fills) % 2] {
                    if interrupt::requested() {
                        return Err(io::Error::other("stopped by Ctrl-C"));
                    }
                    pair[side].push(fill(&libraries[side], &case.order)?);
                }
            }
            Ok(pair.map(median))
        };
        one(0)?;
        (0..pairs).map(one).collect()
    })
}

/// Nanoseconds a fault.
fn fill(library: &Library, order: &[u64]) -> io::Result<f64> {
    let vm = library.vm();
    let _cpu = vm.machine().bind(0);
    let failed = |e: &dyn std::fmt::Display| io::Error::other(e.to_string());
    let space: Space = vm.create().map_err(|e| failed(&e))?;
    let bytes = (order.len() as u64) << 12;
    let object = vm.objects().create(bytes).map_err(|e| failed(&e))?;
    let part = ObjectPart { object: &object, offset: 0 };
    let attrs = Attrs::anonymous(Rights::READ_WRITE);
    let base =
        vm.map_object(&space, Placement::Anywhere, bytes, attrs, part).map_err(|e| failed(&e))?;
    let mut refused = None;
    let each = time(order.len() as u64, || {
        for page in order {
            if let Err(e) = vm.fault(&space, Va(base.0 + (page << 12)), Access::Write) {
                refused.get_or_insert(e);
            }
        }
    });
    vm.exit(space);
    vm.objects().discard(object);
    refused.map_or(Ok(each), |e| Err(failed(&e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chance that the median of 21 differences lies outside of the bounds: that five or fewer
    /// of 21 fair coins fall on one side, twice.
    #[test]
    fn the_interval_of_the_median_has_97_percent() {
        let mut choose = 1.0;
        let mut tail = 0.0;
        for k in 0..=BOUNDS[0] {
            tail += choose;
            choose *= (PAIRS - k) as f64 / (k + 1) as f64;
        }
        let outside = 2.0 * tail / 2f64.powi(PAIRS as i32);
        assert!((0.025..0.03).contains(&outside), "{outside}");
        assert_eq!(BOUNDS[0] + BOUNDS[1], PAIRS - 1);
    }
}
