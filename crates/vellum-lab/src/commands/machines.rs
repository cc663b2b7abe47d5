//! `vellum machines`: what can be simulated, and where each constant of one machine comes from.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use vellum_sim::file::{self, ConstantRow, Machine};
use vellum_trace::printable;

use super::output::{note, print, print_json};
use crate::cli::MachinesArgs;
use crate::error::LabError;
use crate::report::number;
use crate::text;

/// Prints the list, or one machine.
pub fn run(args: &MachinesArgs) -> Result<(), LabError> {
    if let Some(name) = &args.machine {
        if args.toml {
            return print(&source(name)?);
        }
        let machine = find(name)?;
        return if args.json { print_json(&one_json(&machine)) } else { print(&one(&machine)) };
    }
    let machines = file::presets().iter().map(|n| find(n)).collect::<Result<Vec<_>, _>>()?;
    if args.json {
        return print_json(&machines.iter().map(summary_json).collect::<Vec<_>>());
    }
    let mut out = String::from(
        "Machines, for --machine; a file of your own works as well (docs/machine-format.md).\n\n",
    );
    for m in &machines {
        let _ = writeln!(out, "  {:<13} {}", m.name, shape(m));
        for line in text::wrapped(&m.description, 82) {
            let _ = writeln!(out, "                {line}");
        }
    }
    out.push_str("\n  host          this computer, as `vellum calibrate` measured it last\n");
    out.push_str("\nvellum machines NAME shows every constant with its basis and source.\n");
    print(&out)
}

/// A machine by name or file, or the line that says what is wrong.
pub fn find(name: &str) -> Result<Machine, LabError> {
    let is_file = name.ends_with(".toml") || name.contains(std::path::MAIN_SEPARATOR);
    if is_file {
        return Machine::load(name.as_ref()).map_err(LabError::usage);
    }
    if name == "host" {
        let host = crate::calibrate::host()?;
        note(format_args!("host: {}; `vellum calibrate` measures again", host.when()));
        return host.machine();
    }
    if !file::presets().contains(&name) {
        let presets = file::presets();
        let known = presets.iter().copied().chain(["host"]);
        return Err(LabError::usage(format_args!(
            "there is no machine `{name}`{}; `vellum machines` lists them, and a machine file \
             ends in .toml",
            text::nearest(name, known)
                .map(|n| format!(" (did you mean `{n}`?)"))
                .unwrap_or_default()
        )));
    }
    file::preset(name).map_err(LabError::failed)
}

/// The text of a machine's file, to keep or to start another from.
fn source(name: &str) -> Result<String, LabError> {
    match (name, file::preset_text(name)) {
        ("host", _) => Ok(crate::calibrate::host()?.text),
        (_, Some(text)) => Ok(text.to_owned()),
        // Not a preset: a file that is read, or the line that says what is wrong.
        _ => {
            find(name)?;
            std::fs::read_to_string(name).map_err(|e| LabError::usage(format_args!("{name}: {e}")))
        }
    }
}

fn shape(m: &Machine) -> String {
    let memory: u64 = m.nodes.iter().map(|n| n.memory.0).sum();
    format!(
        "{} CPUs, {:.2} GHz, {} in {} node{}, {} levels",
        *m.cpus,
        *m.clock_hz as f64 / 1e9,
        number::bytes(memory as i64),
        m.nodes.len(),
        if m.nodes.len() == 1 { "" } else { "s" },
        *m.mmu.levels,
    )
}

fn basis(row: &ConstantRow) -> String {
    format!("{:?}", row.basis).to_lowercase()
}

fn one(m: &Machine) -> String {
    let mut out = format!("{}: {}\n{}\n\n", m.name, shape(m), printable(&m.description));
    let _ = writeln!(out, "{:<34} {:>22}  {:<8} source", "constant", "value", "basis");
    for row in m.constants() {
        let (value, source) = (printable(&row.value), printable(&row.source));
        let _ = writeln!(out, "{:<34} {value:>22}  {:<8} {source}", row.key, basis(&row));
    }
    out.push_str("\nPostings, by author and year: docs/sources.md\n");
    out
}

fn summary_json(m: &Machine) -> Value {
    json!({
        "name": m.name,
        "description": m.description,
        "cpus": *m.cpus,
        "clock_hz": *m.clock_hz,
        "nodes": m.nodes.len(),
    })
}

fn one_json(m: &Machine) -> Map<String, Value> {
    let mut doc = Map::new();
    doc.insert("name".to_owned(), m.name.clone().into());
    doc.insert("description".to_owned(), m.description.clone().into());
    let constants: Vec<Value> = m
        .constants()
        .iter()
        .map(|r| {
            let value = r.value.to_string();
            json!({ "key": r.key, "value": value, "basis": basis(r), "source": r.source })
        })
        .collect();
    doc.insert("constants".to_owned(), constants.into());
    doc
}
