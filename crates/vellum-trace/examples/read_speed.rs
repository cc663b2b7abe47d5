//! How fast does a trace decode, and how many bytes does an access cost?
//!
//! `cargo run --release -p vellum-trace --example read_speed FILE...`
use std::error::Error;
use std::io::Write;
use std::time::Instant;
use vellum_trace::TraceReader;

fn main() -> Result<(), Box<dyn Error>> {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::metadata(&path)?.len();
        let begin = Instant::now();
        let mut reader = TraceReader::open(&path)?;
        let mut block = Vec::new();
        let mut events = 0u64;
        while reader.next_block(&mut block)? {
            events += block.len() as u64;
        }
        let t = begin.elapsed().as_secs_f64();
        let totals = reader.totals();
        let mut out = std::io::stdout().lock();
        writeln!(out, "{path}: {totals:?}")?;
        writeln!(
            out,
            "{bytes} bytes, {:.3} bytes an access, {:.1} M events/s, {:.1} M accesses/s",
            bytes as f64 / totals.accesses().max(1) as f64,
            events as f64 / t / 1e6,
            totals.accesses() as f64 / t / 1e6,
        )?;
    }
    Ok(())
}
