//! The experiment on a simulated machine.

use vellum::addr::Order;
use vellum_sim::file::Machine;

use super::cases::{BEFORE, Case, ICELAKE, MILAN};
use super::drawn;
use super::footprint::Footprint;
use super::touch::{TouchedByte, touch};
use crate::error::LabError;
use crate::repro::basis::{self, Provenance};
use crate::repro::context::Context;
use crate::repro::page::{Page, Row, Statement, Table};
use crate::repro::side;
use crate::repro::summary::Summary;

/// The experiment on a machine. Published figures and statements are those of the two machines of
/// the posting, and stand beside the files that are shipped for them alone.
pub fn run(context: &Context<'_>) -> Result<Page, LabError> {
    let machine = context.machine;
    let theirs = ["milan", "icelake-x"].into_iter().find(|name| machine.is_preset(name));
    let footprint = Footprint::of(machine)?;
    let all = if theirs == Some("icelake-x") { ICELAKE } else { MILAN };
    let cases: Vec<Case> = all.iter().filter(|c| footprint.has(c.leaf)).copied().collect();
    let cases = &cases[..];
    let theirs = theirs.is_some();
    let mut runs = vec![(Order::HUGE, BEFORE)];
    runs.extend(footprint.has(Order::GIANT).then_some((Order::GIANT, BEFORE)));
    let olds = runs.len();
    runs.extend(cases.iter().map(|c| (c.leaf, c.after)));
    let figures = side::by_side(&runs, |&(leaf, switches)| {
        touch(machine, leaf, switches, footprint.bytes, TouchedByte::First)
    })?;
    let old = |leaf| if leaf == Order::HUGE { figures[0] } else { figures[1] };
    let (mut rows, mut misses, mut statements) = (Vec::new(), Vec::new(), Vec::new());
    for (case, after) in cases.iter().zip(&figures[olds..]) {
        let before = old(case.leaf);
        // A sixteenth of the footprint gives the same figure to a thousandth.
        let bytes = footprint.part(16, case.leaf);
        let ratio = |m: &Machine| {
            let run = |switches| touch(m, case.leaf, switches, bytes, TouchedByte::First);
            Ok(run(case.after)?.gib_per_s / run(BEFORE)?.gib_per_s)
        };
        let provenance = basis::measured_provenance(machine, case.rests, &ratio)?;
        // Guesses are varied for throughput, and shown there.
        let still = Provenance { sensitivities: Vec::new(), varied: false, ..provenance.clone() };
        let row = |name: String, published, ours: [f64; 2], provenance: &Provenance| Row {
            name,
            published,
            ours: ours.map(Some),
            spread: None,
            provenance: Some(provenance.clone()),
        };
        let published = if theirs { case.published } else { [None, None] };
        rows.push(row(
            case.name.into(),
            published,
            [before.gib_per_s, after.gib_per_s],
            &provenance,
        ));
        misses.push(row(
            case.name.replace("GiB/s", "L1 misses"),
            [None, None],
            [before.misses_per_line, after.misses_per_line],
            &still,
        ));
        if let Some((id, what, band)) = case.stated.filter(|_| theirs) {
            let value = after.gib_per_s / before.gib_per_s;
            statements.push(Statement {
                id,
                what: format!("throughput, {what}"),
                value,
                band,
                provenance: provenance.clone(),
            });
        }
    }
    let drawn = drawn::table(context, &footprint, cases)?;
    let columns = || ["page by page".to_owned(), "extents".to_owned()];
    let gains =
        |rows: &[Row]| rows.first().and_then(|row| Row::ratio(row.ours)).unwrap_or(f64::NAN);
    let (first, anywhere) = (gains(&rows), gains(&drawn.rows));
    let mut limits = vec![
        "A program that reads the whole page at once finds what bypassed the caches in memory."
            .to_owned(),
        "The model has no start-up cost of string stores apart, and no CPU's clock that falls \
         under load."
            .into(),
    ];
    if anywhere < 0.98 * first {
        limits.push(format!(
            "Touched at its start a page of 2 MiB gains {first:.2} times, at a drawn byte \
             {anywhere:.2}: up to a fault in its second half the old way goes in ascending order, \
             which this machine file has cheaper than any other (the two old rows differ, and by \
             what else than the order nobody published)."
        ));
    }
    // Each statement is that of a case, in their order.
    let judged = cases.iter().filter(|c| c.stated.is_some());
    limits.extend(
        judged
            .zip(&statements)
            .filter(|(c, s)| !s.ok() && !c.missed.is_empty())
            .map(|(c, _)| c.missed.to_owned()),
    );
    let published = rows.iter().any(|row| row.published != [None, None]);
    // Judged by the rows, so that they are not said of a machine on which they are not so.
    let of = |rows: &[Row], name: &str| {
        rows.iter().find(|row| row.name.starts_with(name)).and_then(|row| Row::ratio(row.ours))
    };
    let elides = misses
        .iter()
        .any(|row| row.name.starts_with("1 GiB") && Row::ratio(row.ours).is_some_and(|r| r < 0.5));
    if of(&rows, "1 GiB, asks, 8 MiB").is_some_and(|gain| gain < 1.05) {
        let published = if theirs { ", published or here" } else { "" };
        limits.insert(
            0,
            format!(
                "1 GiB in batches of 8 MiB gains nothing{published}: stores of that length still \
                 read what they overwrite."
            ),
        );
    }
    limits.extend(footprint.scaled());
    let missed = statements.iter().filter(|s| !s.ok()).count();
    Ok(Page {
        name: "clear",
        title: format!("Clearing in extents, at the first touch of {}", footprint.text()),
        on: format!("{}, one CPU, seed {}", machine.name, context.seed),
        asked: vec![
            "What is it worth to clear a large page as a few long runs instead of 4 KiB at a \
             time?"
                .into(),
        ],
        run: vec![
            format!(
                "One byte is read and written in each page of a fresh private mapping of {}, once \
                 (the published runs do it five times: factor 5). The kernel of the posting has \
                 string stores alone, and so do these rows but for those called bypassing; what \
                 is published beside those is from other patches (2021): making a virtual machine \
                 of 2 MiB pages, of 1550 GB on Milan.",
                footprint.text()
            ),
            "Lines cleared are counted and charged, not put through the caches one by one; a test \
             compares the two ways on 128 MiB."
                .into(),
            "The byte is the first of its page, as published: nothing is random then, and another \
             seed gives the same figures. The last table draws it, as the published tool does \
             when it is given a seed. Where frames lie is not drawn: blocks of 2 MiB lie on all \
             sets of a cache alike. Another last level moves the figures of runs that elide, \
             where the machine file lets elision begin at its size; otherwise its size moves \
             nothing."
                .into(),
        ],
        tables: vec![
            Table { title: "Throughput".into(), columns: columns(), rows },
            Table {
                title: "First-level misses of the kernel for each line".into(),
                columns: columns(),
                rows: misses,
            },
            drawn,
        ],
        out: vec![match missed {
            _ if statements.is_empty() => "Nothing was published for this machine, so there is no \
                                           statement to judge."
                .to_owned(),
            0 => "Every statement lies in its band.".to_owned(),
            n => format!(
                "{n} of {} statements did not come out and are shown as they are.",
                statements.len()
            ),
        }],
        statements,
        means: vec![format!(
            "{}At 2 MiB the gain is the order of pages and the work per page; at 1 GiB {}. Stores \
             that bypass the caches need no such length.",
            if published {
                "The old rows are what the machine file was set by, so that they agree with the \
                 published ones is no result; the new rows are. "
            } else {
                ""
            },
            if elides {
                "it is the length of the stores alone, where the core stops reading what it \
                 overwrites"
            } else {
                "it is what a line costs in a run against a line that follows a page: here no \
                 length makes the core stop reading what it overwrites"
            }
        )],
        limits,
        skipped: Vec::new(),
    })
}

/// Lines of the first screen: 2 MiB, 1 GiB where the kernel is preemptible, and 1 GiB in batches,
/// which is where it does not help.
pub fn summary(context: &Context<'_>) -> Result<Summary, LabError> {
    let footprint = Footprint::of(context.machine)?;
    let row = |nth: usize, name: &str| {
        let case = &MILAN[nth];
        let pair = side::by_side(&[BEFORE, case.after], |s| {
            Ok(touch(context.machine, case.leaf, s, footprint.bytes, TouchedByte::First)?.gib_per_s)
        })?;
        Ok::<_, LabError>(Row {
            name: name.to_owned(),
            published: case.published,
            ours: [Some(pair[0]), Some(pair[1])],
            spread: None,
            provenance: Some(basis::provenance(context.machine, case.rests)?),
        })
    };
    Ok(Summary {
        title: "Clearing in extents: first touch of 64 GiB, GiB/s, by page -> in extents".into(),
        gains: vec![row(0, "pages of 2 MiB")?, row(2, "pages of 1 GiB, preemptible kernel")?],
        losses: vec![row(1, "clear: 1 GiB in batches of 8 MiB, GiB/s")?],
    })
}
