//! `vellum record`: once natively, once under the recorder.

mod said;
mod values;

use std::time::Duration;

use vellum_trace::build::{Clock, Window};
use vellum_trace::printable;
use vellum_trace::record::{self, Choice, Ended, Listener, Options, RecordError};

use super::note;
use crate::cli::RecordArgs;
use crate::error::LabError;
use crate::progress::Progress;
use crate::report::number;
pub(crate) use said::other_programs;

/// Records a program.
pub fn run(args: &RecordArgs) -> Result<(), LabError> {
    let options = options(args)?;
    // Ctrl-C reaches the recorded program too and ends it; we live on to say so and to clear up. A
    // second one kills what does not end, a third does not even wait for that.
    let unfinished = options.clone();
    crate::interrupt::end_after(2, move || record::remove_unfinished(&unfinished));
    let screen = Screen(Progress::line());
    let result = record::record(&options, &screen);
    drop(screen);
    let report = result.map_err(|e| match e {
        RecordError::NoCommand
        | RecordError::NoProgram(_)
        | RecordError::NotExecutable(_)
        | RecordError::NoLoader { .. }
        | RecordError::WrongProgram(_)
        | RecordError::NoSuchProcess { .. }
        | RecordError::CannotFollow
        | RecordError::Output { .. }
        | RecordError::Unwritable { .. } => LabError::usage(e),
        RecordError::Interrupted => {
            note(format_args!("note: {e}"));
            LabError::Stopped
        }
        e => LabError::failed(e),
    })?;
    // The recorded program owns standard output; what we have to say goes beside it.
    for line in said::lines(&report, args) {
        note(printable(&line));
    }
    if let Ended::Unwritable(e) = &report.ended {
        return Err(LabError::failed(format_args!(
            "{}: {e}: the program was ended, and the trace is kept up to there",
            args.output.display()
        )));
    }
    let differs = report.traces.iter().find(|t| t.native_code.is_some_and(|c| c != t.exit_code));
    match differs {
        Some(t) if matches!(report.ended, Ended::Itself) => Err(LabError::failed(format_args!(
            "the program ended with code {} natively and with {} under the recorder; the trace is \
             kept, look at it with care",
            t.native_code.unwrap_or(0),
            t.exit_code
        ))),
        _ => Ok(()),
    }
}

fn options(args: &RecordArgs) -> Result<Options, LabError> {
    let window = |text: &str| {
        text.parse::<Window>().map_err(|e| LabError::usage(format_args!("--window {text}: {e}")))
    };
    let time = |switch: &str, text: &Option<String>| {
        text.as_deref().map(|text| values::duration(switch, text)).transpose()
    };
    let stop_after = time("--stop-after", &args.stop_after)?;
    if stop_after.is_some_and(|after| after.is_zero()) {
        return Err(LabError::usage(
            "--stop-after: nothing is recorded in no time; write a longer one, e.g. 30s",
        ));
    }
    let after = time("--after", &args.after)?;
    let keep = time("--for", &args.keep)?;
    let clock = (after.is_some() || keep.is_some())
        .then(|| Clock { after: after.unwrap_or(Duration::ZERO), keep });
    let choice = match &args.process {
        _ if args.follow => Choice::All,
        Some(text) => Choice::parse(text),
        None => Choice::Most,
    };
    Ok(Options {
        choice,
        window: args.window.as_deref().map(window).transpose()?,
        clock,
        stop_after,
        stop_signal: values::signal(&args.stop)?,
        native: !args.no_native,
        names: !args.no_names,
        ..Options::new(args.command.clone(), &args.output)
    })
}

/// Tells whoever waits at a terminal.
struct Screen(Progress);

impl Listener for Screen {
    fn stopped(&self) -> bool {
        crate::interrupt::requested()
    }
    fn hurried(&self) -> bool {
        crate::interrupt::hurried()
    }
    fn say(&self, line: &str) {
        self.0.suspend(|| note(format_args!("note: {}", printable(line))));
    }
    fn progress(&self, p: &record::Progress) {
        let seconds = p.elapsed.as_secs_f64();
        if p.native {
            return self.0.say(&format!("running natively: {seconds:.0} s"));
        }
        let rate = p.accesses as f64 / seconds.max(1e-9);
        self.0.say(&format!(
            "recording: {seconds:.0} s, {} accesses ({}/s), {}",
            number::scaled(p.accesses as i64),
            number::scaled(rate as i64),
            number::bytes(p.written as i64)
        ));
    }
}
