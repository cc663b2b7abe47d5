//! `vellum repro`: published experiments, run again.

use super::machines;
use super::output::{print, print_json};
use crate::cli::{ReproArgs, RunOn};
use crate::error::LabError;
use crate::repro::page::Page;
use crate::repro::{Context, EXPERIMENTS, PublishedExperiment, json, side, text};
use crate::{interrupt, text as words};

/// Runs the experiments asked for and prints their pages.
pub fn run(args: &ReproArgs) -> Result<(), LabError> {
    let chosen = chosen(&args.experiments)?;
    agree(args)?;
    interrupt::install();
    let pages: Vec<(&PublishedExperiment, Page)> = match args.on {
        RunOn::Sim => simulated(&chosen, args)?,
        // One after the other: they measure time.
        RunOn::Host => chosen
            .iter()
            .map(|&experiment| Ok((experiment, measured(experiment)?)))
            .collect::<Result<Vec<_>, LabError>>()?,
    };
    let of = |experiment: &PublishedExperiment| {
        pages
            .iter()
            .filter(|(e, _)| e.name == experiment.name)
            .map(|(_, page)| page)
            .collect::<Vec<_>>()
    };
    if args.json {
        let (on, seed) =
            if args.on == RunOn::Sim { ("sim", Some(seed(args))) } else { ("host", None) };
        return print_json(&json::document(on, seed, pages.iter().map(|(_, page)| page)));
    }
    if args.markdown {
        return print(
            &chosen
                .iter()
                .map(|&experiment| text::markdown(experiment, &of(experiment)))
                .collect::<String>(),
        );
    }
    print(&pages.iter().map(|(_, page)| text::page(page)).collect::<Vec<_>>().join("\n"))
}

/// Options that say nothing together are refused, so that none is ignored.
fn agree(args: &ReproArgs) -> Result<(), LabError> {
    let host = args.on == RunOn::Host;
    if host && args.machine.is_some() {
        return Err(LabError::usage(
            "--machine names a simulated machine; leave it out with --on host",
        ));
    }
    if host && args.seed.is_some() {
        return Err(LabError::usage(
            "--seed is of a simulated machine; leave it out with --on host",
        ));
    }
    if args.markdown && (host || args.machine.is_some() || args.seed.is_some()) {
        return Err(LabError::usage(
            "--markdown prints the page in docs/; leave out --machine, --on host and --seed",
        ));
    }
    Ok(())
}

fn seed(args: &ReproArgs) -> u64 {
    args.seed.unwrap_or(1)
}

/// On this computer, and beside it what the model of this computer says.
fn measured(experiment: &PublishedExperiment) -> Result<Page, LabError> {
    let mut page = (experiment.host)()?;
    if !page.tables.is_empty() {
        let machine = machines::find("host")?;
        match (experiment.twin)(&Context { machine: &machine, seed: 1 }, &page)? {
            Ok(table) => page.tables.push(table),
            Err(why) => page.skipped.push(format!("what the model makes of the same: {why}.")),
        }
    }
    Ok(page)
}

fn simulated(
    chosen: &[&'static PublishedExperiment],
    args: &ReproArgs,
) -> Result<Vec<(&'static PublishedExperiment, Page)>, LabError> {
    let mut asked = Vec::new();
    for &experiment in chosen {
        match &args.machine {
            Some(name) => asked.push((experiment, machines::find(name)?)),
            None => {
                for name in experiment.machines {
                    asked.push((experiment, machines::find(name)?));
                }
            }
        }
    }
    side::by_side(&asked, |(experiment, machine)| {
        Ok((*experiment, (experiment.sim)(&Context { machine, seed: seed(args) })?))
    })
}

fn chosen(names: &[String]) -> Result<Vec<&'static PublishedExperiment>, LabError> {
    if names.is_empty() {
        return Ok(EXPERIMENTS.iter().collect());
    }
    let twice = |i: usize| names[..i].contains(&names[i]);
    if let Some(i) = (0..names.len()).find(|&i| twice(i)) {
        return Err(LabError::usage(format_args!("`{}` is named twice; name it once", names[i])));
    }
    let find = |name: &String| {
        let known = || EXPERIMENTS.iter().map(|e| e.name);
        EXPERIMENTS.iter().find(|e| e.name == name).ok_or_else(|| {
            let near = words::nearest(name, known())
                .map(|n| format!(" (did you mean `{n}`?)"))
                .unwrap_or_default();
            let all = known().collect::<Vec<_>>().join(", ");
            LabError::usage(format_args!("there is no experiment `{name}`{near}; there are: {all}"))
        })
    };
    names.iter().map(find).collect()
}
