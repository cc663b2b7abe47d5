//! `vellum record`: once natively, once under the recorder.

use std::fmt::Write as _;

use vellum_trace::build::Window;
use vellum_trace::record::{self, Options, RecordError};

use crate::cli::RecordArgs;
use crate::error::LabError;
use crate::pasted;
use crate::report::number;

/// Records a program.
pub fn run(args: &RecordArgs) -> Result<(), LabError> {
    let window =
        args.window.as_deref().map(str::parse::<Window>).transpose().map_err(LabError::usage)?;
    let stopped = crate::interrupt::requested;
    let options = Options {
        window,
        native: !args.no_native,
        names: !args.no_names,
        stopped,
        ..Options::new(args.command.clone(), &args.output)
    };
    // Ctrl-C reaches the recorded program too and ends it; we live on to say so and to clear up.
    crate::interrupt::install();
    let report = record::record(&options).map_err(|e| match e {
        RecordError::NoCommand
        | RecordError::NoProgram(_)
        | RecordError::NotExecutable(_)
        | RecordError::WrongProgram(_)
        | RecordError::Output { .. } => LabError::usage(e),
        e => LabError::failed(e),
    })?;
    let t = &report.totals;
    let accesses = t.recorded_accesses();
    let rate = accesses as f64 / report.elapsed.as_secs_f64().max(1e-9);
    let mut text = format!(
        "{}: {} accesses ({}/s), {} touched, {} thread{}, {} calls; {}",
        args.output.display(),
        number::scaled(accesses as i64),
        number::scaled(rate as i64),
        number::bytes(t.touched_pages as i64 * 4096),
        t.threads.max(1),
        if t.threads > 1 { "s" } else { "" },
        number::grouped(t.calls as i64),
        number::bytes(report.bytes as i64),
    );
    if let Some(n) = report.native {
        let _ = write!(
            text,
            "\nnatively: {} minor faults, {} major, peak RSS {}, {:.2} s user, {:.2} s system",
            number::grouped(n.minor_faults as i64),
            number::grouped(n.major_faults as i64),
            number::bytes(n.peak_rss as i64),
            n.user_us as f64 / 1e6,
            n.system_us as f64 / 1e6,
        );
    }
    let _ = write!(
        text,
        "\nnext: {} run --trace {} --machine milan --vs thp=always",
        pasted::command(),
        pasted::path(&args.output)
    );
    // The recorded program owns standard output; what we have to say goes beside it.
    eprintln!("{text}");
    for line in other_programs(t) {
        eprintln!("{line}");
    }
    if report.exit_code != 0 {
        eprintln!("note: the recorded program exited with code {}", report.exit_code);
    }
    if let Some(code) = report.native_code.filter(|c| *c != report.exit_code) {
        return Err(LabError::failed(format_args!(
            "the program ended with code {code} natively and with {} under the recorder; the \
             trace is kept, look at it with care",
            report.exit_code
        )));
    }
    Ok(())
}

/// What ran besides the program that was recorded, and is therefore missing. The native figures
/// contain it.
pub(crate) fn other_programs(t: &vellum_trace::Totals) -> Vec<String> {
    let mut lines = Vec::new();
    if t.forks > 0 {
        lines.push(format!(
            "note: the program made {} child process{}; only the program itself is recorded, the \
             native figures count both",
            t.forks,
            if t.forks > 1 { "es" } else { "" }
        ));
    }
    if t.execs > 0 {
        lines.push(
            "note: the program replaced itself by another (exec); the recording ends there: \
             record that program itself"
                .to_owned(),
        );
    }
    lines
}
