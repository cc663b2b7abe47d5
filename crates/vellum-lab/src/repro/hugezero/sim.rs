//! The experiment on a simulated machine.

use vellum_sim::file::Machine;

use super::loops::{Benchmark, Each, LINES, PAGES, Taken, compare, glance};
use super::prose;
use super::rss::{self, ALWAYS, NEVER, RssLoad};
use crate::error::LabError;
use crate::repro::basis::{self, Provenance};
use crate::repro::context::Context;
use crate::repro::page::{Page, Row, Statement, Table};
use crate::repro::side;

/// The forms of huge zeros: the two that were posted, then ours. Each of ours has its row in every
/// table of forms.
pub(super) const FORMS: [&str; 3] = ["page", "table-private", "table"];

/// What walks rest on.
const WALKS: [&str; 3] = ["tlb.l1d.banks", "tlb.l1d.fracture", "tlb.l2.banks"];
/// And misses.
const MISSES: [&str; 4] = ["l1d", "l2", "tlb.l1d", "tlb.l2"];
/// And cycles.
pub(crate) const CYCLES: [&str; 7] = ["core", "l1d", "l2", "llc", "tlb.l1d", "tlb.l2", "tlb.walk"];

/// What is run for resident memory, by its name on the page.
pub(super) const LOADS: [(&str, RssLoad); 4] = [
    ("1/8 of the planes, together", RssLoad::Slab(16)),
    ("1/2 of the planes, together", RssLoad::Slab(64)),
    ("all planes", RssLoad::Slab(128)),
    ("every 8th plane", RssLoad::Every(8)),
];

/// Resident pages: of the demonstration and of each load.
pub(super) struct Resident {
    pub(super) read: Vec<u64>,
    pub(super) loads: Vec<Vec<u64>>,
}

/// The page.
pub fn run(context: &Context<'_>) -> Result<Page, LabError> {
    let (machine, seed) = (context.machine, context.seed);
    let asked: Vec<(&str, Benchmark)> =
        [LINES, PAGES].iter().flat_map(|&b| FORMS.map(|form| (form, b))).collect();
    let taken =
        side::by_side(&asked, |&(form, benchmark)| compare(machine, seed, form, benchmark))?;
    let (lines, pages) = taken.split_at(FORMS.len());
    let resident = resident(machine)?;

    // All ratios of cycles at once, since a machine with another constant is booted for each.
    let ratios = |machine: &Machine| {
        let [page, private, shared] = FORMS.map(|form| glance(machine, seed, form));
        let (page, private, shared) = (page?, private?, shared?);
        Ok([
            private.lines / page.lines,
            shared.lines / page.lines,
            private.pages / page.pages,
            shared.pages / page.pages,
        ])
    };
    let [one, one_shared, two, two_shared] =
        basis::measured_provenances(machine, &CYCLES, &ratios)?;

    let row = |name: &str,
               figure: fn(&Each) -> f64,
               taken: &[Taken],
               after: usize,
               provenance: &Provenance| Row {
        name: name.to_owned(),
        published: [None, None],
        ours: [Some(figure(&taken[0].all)), Some(figure(&taken[after].all))],
        spread: None,
        provenance: Some(provenance.clone()),
    };
    let (walks, misses) =
        (basis::provenance(machine, &WALKS)?, basis::provenance(machine, &MISSES)?);
    let cycles: fn(&Each) -> f64 = |e| e.cycles;
    let mut tables = vec![
        Table {
            title: "Benchmark 2, each page with the one 4 GiB further: a comparison".into(),
            columns: ["page".into(), "tables".into()],
            rows: vec![
                row("cycles", cycles, pages, 1, &two),
                row("loads that walk", |e| e.walks, pages, 1, &walks),
                row("L1 misses, program and walks", |e| e.l1, pages, 1, &misses),
                row("reads of the LLC", |e| e.llc, pages, 1, &misses),
            ],
        },
        Table {
            title: "Benchmark 1, 4 GiB with the next 4 GiB: a pair of lines".into(),
            columns: ["page".into(), "tables".into()],
            rows: vec![row("cycles", cycles, lines, 1, &one)],
        },
        Table {
            title: "One table for all 2 MiB (ours)".into(),
            columns: ["page".into(), "table".into()],
            rows: vec![
                row("benchmark 2, cycles", cycles, pages, 2, &two_shared),
                row("benchmark 2, L1 misses", |e| e.l1, pages, 2, &misses),
                row("benchmark 1, cycles", cycles, lines, 2, &one_shared),
            ],
        },
        memory(machine, &resident)?,
    ];
    for (table, published) in tables.iter_mut().zip(prose::PUBLISHED.iter().copied()) {
        for (row, pair) in table.rows.iter_mut().zip(published) {
            row.published = *pair;
        }
    }

    let transform = &resident.loads[0];
    let most = transform[2..].iter().copied().max().unwrap_or(0);
    let statements = vec![
        Statement {
            id: "D-11",
            what: "cycles of benchmark 2, tables over page".into(),
            value: pages[1].all.cycles / pages[0].all.cycles,
            band: [6.5, 9.0],
            provenance: two,
        },
        Statement {
            id: "D-11-benchmark-1",
            what: "cycles saved by tables, %".into(),
            value: prose::saved(lines, 1),
            band: prose::SAVES,
            provenance: one,
        },
        Statement {
            id: "D-16",
            what: "memory of a transform, zeros over never".into(),
            value: most as f64 / transform[0] as f64,
            band: [0.0, 1.1],
            provenance: basis::provenance(machine, &[])?,
        },
        Statement {
            id: "D-1",
            what: "pages that stay of 200 MiB read".into(),
            value: resident.read[2..].iter().copied().max().unwrap_or(0) as f64,
            band: [0.0, 0.0],
            provenance: basis::provenance(machine, &[])?,
        },
    ];
    let checked = taken.iter().map(|t| t.checked).sum();
    let mut page = prose::page(context, [lines, pages], &resident, checked);
    (page.tables, page.statements) = (tables, statements);
    Ok(page)
}

/// Resident pages: never, always, then each form.
fn resident(machine: &Machine) -> Result<Resident, LabError> {
    let switches: Vec<_> = [NEVER, ALWAYS].into_iter().chain(FORMS.map(rss::zeros)).collect();
    let loads = || std::iter::once(RssLoad::Read).chain(LOADS.map(|(_, load)| load));
    let asked: Vec<_> = loads().flat_map(|load| switches.iter().map(move |s| (load, s))).collect();
    let pages = side::by_side(&asked, |&(load, switches)| rss::pages(machine, switches, load))?;
    let mut loads = pages.chunks(switches.len()).map(<[u64]>::to_vec);
    Ok(Resident { read: loads.next().unwrap_or_default(), loads: loads.collect() })
}

fn memory(machine: &Machine, resident: &Resident) -> Result<Table, LabError> {
    let row = |name: String, ours: [f64; 2]| {
        let provenance = Some(basis::provenance(machine, &[])?);
        Ok(Row { name, published: [None, None], ours: ours.map(Some), spread: None, provenance })
    };
    let mib = |pages: u64| pages as f64 / 256.0;
    let mut rows =
        vec![row("200 MiB read, MiB".into(), [mib(resident.read[1]), mib(resident.read[2])])?];
    for ((name, _), pages) in LOADS.iter().zip(&resident.loads) {
        let over = |nth: usize| pages[nth] as f64 / pages[0] as f64;
        rows.push(row((*name).to_owned(), [over(1), over(2)])?);
    }
    Ok(Table {
        title: "Memory that stays; of a transform, over that of thp=never, by what was initialised"
            .into(),
        columns: ["always".into(), "zeros".into()],
        rows,
    })
}

/// How far the ratio of two forms' cycles moves when twice as many loops are counted, as a share.
pub(super) fn moved(page: &Taken, other: &Taken) -> f64 {
    let [half, all] = [other.half.cycles / page.half.cycles, other.all.cycles / page.all.cycles];
    (all / half - 1.0).abs()
}
