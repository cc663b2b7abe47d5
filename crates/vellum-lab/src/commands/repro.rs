//! `vellum repro`: published experiments, run again.

use super::{machines, print, print_json};
use crate::cli::{On, ReproArgs};
use crate::error::LabError;
use crate::repro::page::Page;
use crate::repro::{Ask, EXPERIMENTS, Entry, json, side, text};
use crate::{interrupt, text as words};

/// Runs the experiments asked for and prints their pages.
pub fn run(args: &ReproArgs) -> Result<(), LabError> {
    let chosen = chosen(&args.experiments)?;
    interrupt::install();
    let pages = match args.on {
        On::Sim => simulated(&chosen, args)?,
        On::Host if args.machine.is_some() => {
            return Err(LabError::usage("--machine names a simulated machine; leave it out with --on host"));
        }
        // One after the other: they measure time.
        On::Host => chosen.iter().map(|entry| (entry.host)()).collect::<Result<Vec<_>, _>>()?,
    };
    if args.json {
        let (on, seed) = if args.on == On::Sim { ("sim", Some(args.seed)) } else { ("host", None) };
        return print_json(&json::document(on, seed, &pages));
    }
    if args.markdown {
        return print(&markdown(&chosen, &pages));
    }
    print(&pages.iter().map(text::page).collect::<Vec<_>>().join("\n"))
}

fn simulated(chosen: &[&Entry], args: &ReproArgs) -> Result<Vec<Page>, LabError> {
    let machines = chosen
        .iter()
        .map(|entry| machines::find(args.machine.as_deref().unwrap_or(entry.machine)))
        .collect::<Result<Vec<_>, _>>()?;
    let asked: Vec<_> = chosen.iter().zip(&machines).collect();
    side::by_side(&asked, |(entry, machine)| (entry.sim)(&Ask { machine, seed: args.seed }))
}

fn chosen(names: &[String]) -> Result<Vec<&'static Entry>, LabError> {
    if names.is_empty() {
        return Ok(EXPERIMENTS.iter().collect());
    }
    let find = |name: &String| {
        let known = || EXPERIMENTS.iter().map(|e| e.name);
        EXPERIMENTS.iter().find(|e| e.name == name).ok_or_else(|| {
            let near = words::nearest(name, known()).map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default();
            let all = known().collect::<Vec<_>>().join(", ");
            LabError::usage(format_args!("there is no experiment `{name}`{near}; there are: {all}"))
        })
    };
    names.iter().map(find).collect()
}

/// A page of `docs/`: the terminal's, with the command that made it.
fn markdown(chosen: &[&Entry], pages: &[Page]) -> String {
    let mut out = String::new();
    for (entry, page) in chosen.iter().zip(pages) {
        out += &format!(
            "# {}\n\nThis page is what `vellum repro {} --markdown > docs/{}.md` prints; a test holds its figures to a tenth. The mechanism: {}.\n\n\
             ```text\n{}```\n",
            page.title,
            entry.name,
            entry.name,
            entry.about,
            text::page(page)
        );
    }
    out
}
