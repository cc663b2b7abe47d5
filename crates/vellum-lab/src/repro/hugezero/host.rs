//! The experiment on this computer: Linux's own zeros, by one huge page or by small ones.

use vellum_host::bench::zeros::{self, Figure, Zeros};

use super::loops::{PAGES, compare, glance};
use crate::error::LabError;
use crate::repro::context::Context;
use crate::repro::page::{Page, Row, Table};

/// The page; what the host cannot show is named with the reason.
pub fn run() -> Result<Page, LabError> {
    let mut page = Page {
        name: "hugezero",
        title: "Huge pages of zeros".into(),
        on: "this computer, real time".into(),
        asked: vec![
            "What does this computer's own kernel make of reads of untouched memory, in 4 KiB \
             pages and in huge ones?"
                .into(),
        ],
        run: vec![
            "8 GiB of untouched memory, advised to have no huge pages, then to have them. Each 4 \
             KiB is read once, which is when zeros are mapped; then the two published benchmarks, \
             one loop over 256 MiB and 4 GiB of each half. Medians and quartiles of five \
             repetitions on one core."
                .into(),
        ],
        ..Page::default()
    };
    match zeros::run(8 << 30, 5) {
        Ok(found) => fill(&mut page, &found),
        Err(why) => page.skipped.push(format!("all of it: {why}.")),
    }
    Ok(page)
}

/// Lines of the first screen, in about a second.
pub fn here() -> Result<Vec<Row>, String> {
    let found = zeros::run(1 << 30, 3)?;
    let huge = found.huge?;
    let both =
        |figure: fn(&zeros::Reads) -> Figure| [Some(figure(&found.small)), Some(figure(&huge))];
    Ok(vec![
        row("zeros, first read of each 4 KiB, ns: 4 KiB -> 2 MiB pages", both(|r| r.first)),
        row("zeros, reads page by page, ns: 4 KiB -> 2 MiB pages", both(|r| r.pages)),
    ])
}

/// What the benchmarks take by small pages, over what they take by the huge one.
pub fn twin(context: &Context<'_>, measured: &Page) -> Result<Result<Table, String>, LabError> {
    let ratio = |name: &str| {
        measured.ours(name).and_then(Row::ratio).map(|huge_over_small| 1.0 / huge_over_small)
    };
    let (Some(pages), Some(lines)) = (ratio(BENCHMARK_2), ratio(BENCHMARK_1)) else {
        return Ok(Err("this computer has no huge page of zeros".to_owned()));
    };
    let (machine, seed) = (context.machine, context.seed);
    // Page by page all of the memory: whether its tables stay in a cache decides.
    let all = |form| Ok::<f64, LabError>(compare(machine, seed, form, PAGES)?.all.cycles);
    let by_pages = all("table-private")? / all("page")?;
    let line = |form| Ok::<f64, LabError>(glance(machine, seed, form)?.lines);
    let by_lines = line("table-private")? / line("page")?;
    Ok(Ok(Table::beside_model(
        "Time by 4 KiB pages over time by 2 MiB",
        vec![
            ("benchmark 2".to_owned(), [pages, by_pages]),
            ("benchmark 1".to_owned(), [lines, by_lines]),
        ],
    )))
}

/// Names of the benchmarks' rows.
const BENCHMARK_2: &str = "benchmark 2, ns a comparison";
const BENCHMARK_1: &str = "benchmark 1, ns a pair of lines";

/// A figure by small pages and by huge ones.
fn row(name: &str, [small, huge]: [Option<Figure>; 2]) -> Row {
    Row {
        name: name.to_owned(),
        published: [None, None],
        ours: [small, huge].map(|f| f.map(|f| f.median)),
        spread: [small, huge].iter().flatten().map(|f| f.spread).reduce(f64::max),
        provenance: None,
    }
}

fn fill(page: &mut Page, found: &Zeros) {
    let huge = found.huge.as_ref().ok();
    let both = |figure: fn(&zeros::Reads) -> Figure| [Some(figure(&found.small)), huge.map(figure)];
    let count = |n: f64| Figure { median: n, spread: 0.0 };
    page.tables.push(Table {
        title: "Reads of 8 GiB that nobody wrote".into(),
        columns: ["4 KiB".into(), "2 MiB".into()],
        rows: vec![
            row("first read of each 4 KiB, ns", both(|r| r.first)),
            row(BENCHMARK_2, both(|r| r.pages)),
            row(BENCHMARK_1, both(|r| r.lines)),
            row(
                "faults",
                [Some(count(found.small.faults as f64)), huge.map(|r| count(r.faults as f64))],
            ),
            row(
                "resident afterwards, KiB",
                [found.small.kib, huge.and_then(|r| r.kib)]
                    .map(|kib| kib.map(|kib| count(kib as f64))),
            ),
        ],
    });
    match &found.huge {
        Err(why) => page.skipped.push(format!("huge zeros: {why}.")),
        Ok(huge) => {
            let times = found.small.pages.median / huge.pages.median;
            page.out.push(format!(
                "Benchmark 2 takes {times:.2} times as long by 4 KiB pages; {} faults became {}.",
                found.small.faults, huge.faults
            ));
            page.means.push(if times > 1.1 {
                "A page of the TLB that covers 2 MiB is worth more here than zeros that stay in \
                 the first-level cache."
                    .into()
            } else {
                "Zeros that stay in the first-level cache make up for the walks here.".into()
            });
        }
    }
    page.limits.push(
        "Linux has no table of zeros; its 4 KiB form is the table-private of the other page, \
         filled by one fault for each 4 KiB. In a guest every walk is two walks, and the frame \
         behind a huge page may lie in pieces."
            .into(),
    );
}
