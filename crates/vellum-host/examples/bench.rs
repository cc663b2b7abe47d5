//! Prints native benchmarks: `cargo run --release -p vellum-host --example bench -- [frames|fault|space|fragment]`.
use vellum_host::bench::{fault, fragment, frames, measure::Effort};

fn main() -> std::io::Result<()> {
    let effort = Effort { repetitions: 7, ..Effort::FULL };
    let what = std::env::args().nth(1).unwrap_or_else(|| "frames".into());
    let report = match what.as_str() {
        "frames" => frames::run(effort, &[1, 2]),
        "fault" => fault::faults(effort),
        "space" => fault::spaces(effort),
        "fragment" => fragment::run(effort),
        other => {
            eprintln!("bench: there is no benchmark {other}; there are frames, fault, space and fragment");
            std::process::exit(2);
        }
    }?;
    print!("{report}");
    Ok(())
}
