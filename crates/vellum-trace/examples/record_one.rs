//! Records a program and says what came out: `record` and `info` without the lab around them.
//!
//! `cargo run --release -p vellum-trace --example record_one FILE [window=SKIP,KEEP[,PERIOD]]
//! [level=N] -- PROGRAM ARGS`
use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use vellum_trace::info::{Geometry, analyse};
use vellum_trace::record::{Options, Silent, record};
use vellum_trace::{LEVEL_SMALL, TraceReader};

fn main() -> Result<(), Box<dyn Error>> {
    let all: Vec<OsString> = std::env::args_os().skip(1).collect();
    let cut = all.iter().position(|a| a == "--").unwrap_or(all.len());
    let (ours, command) = all.split_at(cut);
    let Some((file, settings)) = ours.split_first() else {
        return Err("usage: record_one FILE [window=W] [level=N] -- PROGRAM ARGS".into());
    };
    if !command.is_empty() {
        let mut o = Options::new(command[1..].to_vec(), file);
        o.level = LEVEL_SMALL;
        for s in settings {
            match s.to_string_lossy().split_once('=') {
                Some(("window", w)) => o.window = Some(w.parse()?),
                Some(("level", l)) => o.level = l.parse()?,
                _ => return Err(format!("unknown setting {s:?}").into()),
            }
        }
        let r = record(&o, &Silent)?.traces.remove(0);
        println!(
            "recorded in {:.1} s, {:.1} M accesses/s, {} bytes; exit codes: native {:?}, recorded \
             {}",
            r.elapsed.as_secs_f64(),
            r.totals.recorded_accesses() as f64 / r.elapsed.as_secs_f64() / 1e6,
            r.bytes,
            r.native_code,
            r.exit_code
        );
    }
    let mut reader = TraceReader::open(file)?;
    write!(std::io::stdout().lock(), "{}", analyse(&mut reader, Geometry::default())?)?;
    Ok(())
}
