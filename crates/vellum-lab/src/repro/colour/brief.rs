//! The experiment in three lines: the second test under LRU.

use vellum_sim::cache::Policy;

use super::scenes::{Reading, Scene, TURNS, beside_zeros};
use super::shape::Shape;
use super::sim::{Over, SETS};
use super::words;
use crate::error::LabError;
use crate::repro::bench::Counted;
use crate::repro::brief::Brief;
use crate::repro::page::{Pair, Row};
use crate::repro::{Ask, basis, side};

/// Lines of the first screen.
pub fn run(ask: &Ask<'_>) -> Result<Brief, LabError> {
    let shape = Shape::of(ask.machine)?;
    let colours = shape.colours[1];
    let run = |reading| {
        let scenes: Vec<Scene> = [1, colours]
            .into_iter()
            .flat_map(|colours| (0..shape.colours[1]).map(move |align| (colours, align)))
            .map(|(colours, align)| Scene {
                policy: Policy::Lru,
                reading,
                colours,
                align,
                dependent: false,
                turns: TURNS / 4,
                seed: ask.seed,
            })
            .collect();
        side::by_side(&scenes, |scene| beside_zeros(ask.machine, &shape, scene))
    };
    let (one, many) = (run(Reading::Advancing)?, run(Reading::Whole)?);
    let rest = basis::rest(ask.machine, &SETS)?;
    let row = |name: &str,
               published: Pair,
               counted: &[Counted],
               figure: fn(&Counted) -> f64,
               over: Over| Row {
        name: name.to_owned(),
        published,
        ours: [0, 1].map(|i| {
            counted.chunks(colours as usize).nth(i).map(|c| over.of(c.iter().map(figure)))
        }),
        spread: None,
        rest: Some(rest.clone()),
    };
    Ok(Brief {
        title: format!("Coloured zero pages: misses a turn, one page > {colours} colours"),
        gains: vec![
            row(
                "one zero read a turn, L2, worst alignment",
                [None, None],
                &one,
                |c| c.l2,
                Over::Worst,
            ),
            row("the same, L1, mean", words::TEST_TWO_MISSES, &one, |c| c.l1, Over::Mean),
        ],
        losses: vec![row(
            "colour: 8 zero reads a turn, L2 misses",
            [None, None],
            &many,
            |c| c.l2,
            Over::Mean,
        )],
    })
}
