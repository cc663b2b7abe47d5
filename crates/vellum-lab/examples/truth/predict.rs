//! Programs recorded, this computer calibrated, and the recordings replayed on it.

use std::path::Path;

use vellum_lab::cli::{Choices, FileState, Layout, OracleMode};
use vellum_lab::commands::machines;
use vellum_lab::experiment::{Experiment, Replayed, Trace};
use vellum_lab::interrupt;
use vellum_lab::progress::Progress;
use vellum_lab::switches;
use vellum_sim::file::Machine;
use vellum_trace::record::{Ended, Options, record};

use crate::cases::Case;

/// Modelled seconds of one program on one calibration.
#[derive(Clone, Copy, Debug)]
pub struct Modelled {
    /// With 4 KiB pages.
    pub never: f64,
    /// With huge pages.
    pub always: f64,
}

/// Records a program into `trace`.
pub fn recorded(program: &Path, case: &Case, trace: &Path) -> Result<(), String> {
    let mut command = vec![program.as_os_str().to_owned()];
    command.extend(case.args.iter().map(Into::into));
    let options = Options { native: false, ..Options::new(command, trace) };
    let report =
        record(&options, &interrupt::Signals).map_err(|e| format!("{}: {e}", case.name))?;
    let code = report.traces.first().map_or(0, |t| t.exit_code);
    match (code, &report.ended) {
        (0, Ended::Itself) => Ok(()),
        _ => Err(format!("{} ended with code {code} under the recorder", case.name)),
    }
}

/// Measures this computer anew and keeps the machine file in `file`.
pub fn calibrated(file: &Path) -> Result<Machine, String> {
    let found = vellum_lab::calibrate::calibrate().map_err(|e| e.to_string())?;
    std::fs::write(file, found.text).map_err(|e| format!("{}: {e}", file.display()))?;
    Machine::load(file).map_err(|e| e.to_string())
}

/// A machine by its name or file.
pub fn machine(name: &str) -> Result<Machine, String> {
    machines::find(name).map_err(|e| e.to_string())
}

/// Replays a recording as Linux, with huge pages never and always.
pub fn replayed(trace: &Path, machine: &Machine) -> Result<Modelled, String> {
    let text = |e: vellum_lab::error::LabError| e.to_string();
    let trace = Trace::open(trace).map_err(text)?;
    let [never, always] = ["thp=never", "thp=always"].map(str::to_owned);
    let mut columns =
        switches::columns(Choices::Linux, &trace.header, &[never], &[always]).map_err(text)?;
    // The library's own choices come after these two; nobody asks for them here.
    columns.truncate(2);
    let experiment = Experiment {
        trace: &trace,
        machine,
        swept: &[],
        columns: &columns,
        cpus: None,
        seed: 1,
        layout: Layout::default(),
        files: FileState::default(),
        oracle: OracleMode::default(),
    };
    let results = experiment.run(&Progress::hidden()).and_then(Replayed::all).map_err(text)?;
    let seconds = |at: usize| -> Result<f64, String> {
        let finished = results.get(at).map(|c| &c.finished).filter(|f| f.complete);
        let cycles = finished.and_then(|f| f.counters.get("cycles_total"));
        Ok(cycles.ok_or("stopped")? as f64 / *machine.clock_hz as f64)
    };
    Ok(Modelled { never: seconds(0)?, always: seconds(1)? })
}
