//! Both tests on this computer, beside what its model makes of them: in its own caches, with the
//! replacement that it is taken to have.
//!
//! The modelled loops are those that were measured, not the published ones. The address of each
//! read comes from a list, which is a load more. Frames of a huge page stand for zero pages, and
//! each is read at one address. A zero page that is mapped in many places is another matter on a
//! computer that predicts ways by linear addresses.

use super::host::{OVER, frames, reads, shuffled};
use super::shape::Shape;
use super::sim::Aggregate;
use super::workloads::{Reading, TURNS, beside_listed, in_listed_row};
use crate::error::LabError;
use crate::repro::context::Context;
use crate::repro::page::{Page, Row, Table};
use crate::repro::side;

/// Ratios of times: a frame more than the first level has ways, and colours over one page.
pub fn run(context: &Context<'_>, measured: &Page) -> Result<Result<Table, String>, LabError> {
    let shape = match Shape::of(context.machine) {
        Ok(shape) => shape,
        Err(why) => return Ok(Err(why.to_string())),
    };
    let mut rows = Vec::new();
    for (column, reads) in ["apart", "chained"].into_iter().enumerate() {
        let [few, many] = [shape.l1_ways, shape.l1_ways + 1];
        let modelled = |n: u64| {
            let turns = (TURNS, context.seed);
            let counted = in_listed_row(context.machine, n, column == 1, turns)?;
            Ok::<f64, LabError>(counted.cycles / n as f64)
        };
        let modelled = modelled(many)? / modelled(few)?;
        for (order, name) in [("in a row", frames as fn(u64) -> String), ("shuffled", shuffled)] {
            let time = |n: u64| measured.ours(&name(n)).and_then(|pair| pair[column]);
            match Row::ratio([time(few), time(many)]) {
                Some(ratio) => {
                    let name = format!("{reads} reads, {order}, {many} frames over {few}");
                    rows.push((name, [ratio, modelled]));
                }
                None => return Ok(Err(format!("{} were not measured", name(many)))),
            }
        }
    }
    for (reading, zeros) in [(Reading::Advancing, 1), (Reading::Whole, shape.l2_ways)] {
        let of = |colours| cycles(context, &shape, reading, colours);
        let modelled = [of(1)?, of(shape.colours[1])?];
        for (over, aggregate) in OVER.into_iter().zip([Aggregate::Mean, Aggregate::Worst]) {
            let name = format!("{}, {over}", reads(shape.l2_ways, zeros));
            let Some(ratio) = measured.ours(&name).and_then(Row::ratio) else {
                return Ok(Err(format!("{name} was not measured")));
            };
            let [one, coloured] =
                [0, 1].map(|colours| aggregate.of(modelled[colours].iter().copied()));
            rows.push((name, [ratio, coloured / one]));
        }
    }
    let title = "Ratios of times, test 1 and then coloured over one page";
    Ok(Ok(Table::beside_model(title, rows)))
}

/// Cycles of a turn of test 2, by alignment.
fn cycles(
    context: &Context<'_>,
    shape: &Shape,
    reading: Reading,
    colours: u64,
) -> Result<Vec<f64>, LabError> {
    let aligns: Vec<u64> = (0..shape.colours[1]).collect();
    side::by_side(&aligns, |&align| {
        let counted =
            beside_listed(context.machine, shape, reading, [colours, align], context.seed);
        Ok(counted?.cycles)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(ways: u64, names: &[String]) -> Page {
        let row = |name: &String, ours: [f64; 2]| Row {
            name: name.clone(),
            published: [None, None],
            ours: ours.map(Some),
            spread: None,
            provenance: None,
        };
        let fits = |n: u64| if n > ways { [4.0, 9.0] } else { [2.0, 3.0] };
        let both = |n: u64| [row(&frames(n), fits(n)), row(&shuffled(n), fits(n))];
        let rows = [ways, ways + 1].map(both).into_iter().flatten();
        let rows = rows.chain(names.iter().map(|name| row(name, [10.0, 8.0]))).collect();
        let table = Table { title: String::new(), columns: Default::default(), rows };
        Page { tables: vec![table], ..Page::default() }
    }

    #[test]
    fn each_measured_ratio_stands_beside_that_of_the_model() {
        let machine = vellum_sim::file::preset("thunderx2").expect("a preset");
        let context = Context { machine: &machine, seed: 1 };
        let Shape { l1_ways, l2_ways, .. } = Shape::of(&machine).expect("it has colours");
        let names: Vec<String> = [1, l2_ways]
            .into_iter()
            .flat_map(|zeros| OVER.map(|over| format!("{}, {over}", reads(l2_ways, zeros))))
            .collect();
        let table = run(&context, &measured(l1_ways, &names)).expect("it runs").expect("a table");
        let ratios = |column: usize| {
            table.rows.iter().map(|row| row.ours[column].expect("a figure")).collect::<Vec<_>>()
        };
        assert_eq!(ratios(0), [2.0, 2.0, 3.0, 3.0, 0.8, 0.8, 0.8, 0.8]);
        let modelled = ratios(1);
        assert!(modelled[2] > 1.5, "a frame more than ways: {modelled:?}");
        assert!(modelled.iter().all(|ratio| (0.1..10.0).contains(ratio)), "{modelled:?}");

        // The computer has other ways than the machine is said to have.
        let why = run(&context, &measured(l1_ways, &[])).expect("it runs").expect_err("no table");
        assert!(why.contains("was not measured"), "{why}");
        let tiny = vellum_sim::file::preset("tiny").expect("a preset");
        let context = Context { machine: &tiny, seed: 1 };
        let why =
            run(&context, &measured(l1_ways, &names)).expect("it runs").expect_err("no table");
        assert!(why.contains("1 colour"), "{why}");
    }
}
