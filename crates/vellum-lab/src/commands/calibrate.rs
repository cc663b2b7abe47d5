//! `vellum calibrate`: measures this computer and says what was found, and how sure it is.

use std::fmt::Write as _;
use std::path::Path;

use vellum_host::calibrate::{Computer, Figure};

use super::output::print;
use crate::calibrate::{Calibration, CallPrices, Values, calibrate, keep, write_whole};
use crate::cli::CalibrateArgs;
use crate::error::LabError;

/// Measures, keeps, prints.
pub fn run(args: &CalibrateArgs) -> Result<(), LabError> {
    if let Some(path) = &args.output {
        writable(path)?;
    }
    let found = calibrate()?;
    let mut out = report(&found);
    match keep(&found.text) {
        Some(path) => _ = writeln!(out, "\n--machine host is this from now on: {}", path.display()),
        None => out.push_str("\nNo cache folder can be written: --machine host measures again.\n"),
    }
    // What was found is said before anything can fail.
    print(&out)?;
    let Some(path) = &args.output else { return Ok(()) };
    write_whole(path, &found.text)
        .map_err(|e| LabError::failed(format_args!("{}: {e}", path.display())))?;
    print(&format!("written: {}\n", path.display()))
}

/// Refuses a place for the file before anything is measured.
fn writable(path: &Path) -> Result<(), LabError> {
    if path.is_dir() {
        return Err(LabError::usage(format_args!(
            "{}: is a folder; name a file that ends in .toml",
            path.display()
        )));
    }
    if path.extension().is_none_or(|e| e != "toml") {
        return Err(LabError::usage(format_args!(
            "{}: give it a name that ends in .toml; --machine knows files by that",
            path.display()
        )));
    }
    match path.parent().filter(|p| !p.as_os_str().is_empty() && !p.is_dir()) {
        Some(folder) => Err(LabError::usage(format_args!(
            "{}: the folder {} does not exist; make it first",
            path.display(),
            folder.display()
        ))),
        None => Ok(()),
    }
}

fn report(found: &Calibration) -> String {
    let Calibration { computer, values, .. } = found;
    let mut out = format!(
        "{}, {} CPUs, {:.2} GHz, measured in {:.1} s\n",
        computer.topology.model,
        computer.topology.cpus,
        computer.clock_hz as f64 / 1e9,
        computer.took.as_secs_f64()
    );
    conditions(&mut out, computer, values);
    let rows = figures(computer);
    let _ = writeln!(out, "\n{:<52}{:>12}{:>18}", "measured", "", "two runs differ by");
    for (name, figure) in &rows {
        let (value, spread) = (figure.ns, figure.spread * 100.0);
        let _ = writeln!(out, "{name:<52}{value:>9.1} ns{spread:>16.1} %");
    }
    let _ =
        writeln!(out, "\n{:<52}{:>12}", "what follows, by simulated runs of the same loops", "");
    for (name, ns) in derived(values).into_iter().filter(|(_, ns)| !ns.is_nan()) {
        let _ = writeln!(out, "{name:<52}{ns:>9.1} ns");
    }
    let _ = writeln!(
        out,
        "\nChases through page tables are explained to within {:.0} %.",
        values.walks_off * 100.0
    );
    if let Some((name, figure)) = rows.iter().max_by(|a, b| a.1.spread.total_cmp(&b.1.spread))
        && figure.spread > 0.05
    {
        let _ = writeln!(
            out,
            "Two runs differ by more than 5 % in some rows, most in \"{name}\": calibrate again \
             when the computer is quiet."
        );
    }
    out
}

fn conditions(out: &mut String, computer: &Computer, values: &Values) {
    if let Some([load, _]) = computer.load {
        let busy = if load > 0.5 { ", so others use it, too" } else { "" };
        let _ = writeln!(out, "load when it began: {load:.2}{busy}");
    }
    match (computer.is_guest, values.nested) {
        (Some(false), _) => out.push_str("not a guest of a hypervisor, as far as it says\n"),
        (None, _) => out.push_str("whether it is a guest of a hypervisor is not known\n"),
        (Some(true), None) => {
            out.push_str("a guest of a hypervisor; walks look like those of one table\n");
        }
        (Some(true), Some(page)) => {
            let _ = writeln!(out, "a guest of a hypervisor that backs it by pages of {page}");
        }
    }
    match computer.kernel.huge {
        None => out.push_str("the kernel gave no huge pages: their prices are not measured\n"),
        Some(huge) => {
            if let Some(ns) = huge.cold.filter(|_| computer.is_guest != Some(false)) {
                let _ = writeln!(
                    out,
                    "memory that the hypervisor has taken back: a first store to 2 MiB took up to \
                     {:.1} ms; programs that touch such memory are slower than any figure here",
                    ns / 1e6
                );
            }
        }
    }
}

fn figures(computer: &Computer) -> Vec<(&'static str, Figure)> {
    let (places, lines, kernel) = (&computer.places, &computer.lines, &computer.kernel);
    let mut rows = vec![
        ("load, first-level cache", places.l1),
        ("load, second-level cache", places.l2),
        ("load, last-level cache", places.llc),
        ("load, second level, 32 at once in one set, each", places.first.one_set),
        ("load, second level, 32 at once in many, each", places.first.many_sets),
        ("store, lines of one set in turn", places.first.one_set_stores),
        ("load, memory", places.memory),
        ("load, memory, many at once, each", places.memory_of_many),
        ("walk, lines of tables in a row", computer.tables.in_a_row),
        ("walk, lines of tables in random order", computer.tables.shuffled),
        ("line read in a row", lines.read),
        ("line read in a row, last level has it", lines.read_cached),
        ("line read in a row, with a little other work", lines.brisk.cold),
        ("that work", lines.brisk.hot),
        ("line read in a row, with more other work", lines.slow.cold),
        ("that work", lines.slow.hot),
        ("line cleared, last level has it", lines.cached),
        ("line cleared, 2 MiB page by page, upwards", lines.upwards),
        ("line cleared, 2 MiB page by page, downwards", lines.downwards),
        ("line cleared, 2 MiB in one run", lines.run),
        ("line cleared around the caches", lines.around),
        ("line copied", lines.copied),
        ("mapping made and unmade", kernel.map),
        ("first store to 4 KiB", kernel.touch),
        ("first load of 4 KiB", kernel.zero_read),
        ("store to 4 KiB shared since a fork", kernel.copy),
        ("4 KiB unmapped with its neighbours", kernel.unmap),
    ];
    if let Some(step) = places.first.aliases {
        rows.insert(1, ("load, one line by eight addresses", step));
    }
    if let Some(branch) = computer.mispredict {
        rows.insert(0, ("branch predicted wrongly", branch));
    }
    if let Some(file) = &kernel.file {
        rows.extend([
            ("4 KiB of a file, mapped by the load of one of 16", file.touch),
            ("4 KiB of a file unmapped with its neighbours", file.unmap),
        ]);
    }
    if let Some(calls) = &kernel.calls {
        rows.extend([
            ("16 bytes read from a file", calls.few),
            ("line of a file, one of 1,024 read at once", calls.line),
            ("4 KiB written at the end of a file", calls.grow),
            ("4 KiB more written there", calls.add),
            ("4 KiB cut from a file with its neighbours", calls.drop),
        ]);
    }
    if let Some(huge) = &kernel.huge {
        rows.extend([
            ("first store to 2 MiB", huge.touch),
            ("2 MiB unmapped with its neighbours", huge.unmap),
        ]);
    }
    rows
}

fn derived(values: &Values) -> [(&'static str, f64); 15] {
    let calls = values.calls.as_ref();
    let of = |price: fn(&CallPrices) -> f64| calls.map_or(f64::NAN, price);
    [
        ("a page walk beside its reads", values.walk_start),
        ("a call that makes or unmakes a mapping", values.call),
        ("a fault: entry and return", values.fault),
        ("a page that becomes a program's", values.charge_page),
        ("a page that is given back", values.uncharge_page),
        ("2 MiB that are given back", values.uncharge_large.unwrap_or(f64::NAN)),
        ("a page of a file that comes to be mapped", values.map_file.unwrap_or(f64::NAN)),
        ("a page of a file that is mapped no longer", values.unmap_file.unwrap_or(f64::NAN)),
        ("a call that moves bytes", of(|calls| calls.call)),
        ("a line that it moves", of(|calls| calls.line)),
        ("a write that makes a file longer", of(|calls| calls.grow)),
        ("a page of a file that comes into memory", of(|calls| calls.add)),
        ("a page of a file that leaves memory", of(|calls| calls.drop)),
        ("a line copied at copy-on-write", values.copy_line),
        ("a fault served by 2 MiB, beside the fault", values.large.unwrap_or(f64::NAN)),
    ]
}
