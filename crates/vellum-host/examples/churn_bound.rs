//! How much of free memory can be 2 MiB blocks after churn, at most, whatever allocates.
//!
//! Prints a bound for each row of `vellum bench fragment` whose name ends with the first argument,
//! for each seed that follows it. `--slot` and `--apart` say how closely a life is followed; finer
//! is nearer to the truth and takes longer. Run it with
//! `cargo run --release -p vellum-host --example churn_bound -- alike 1 2 3 4 --slot 6`.

use std::env;
use std::error::Error;

use vellum_host::bench::frames::bound::{Detail, most, names};

fn main() -> Result<(), Box<dyn Error>> {
    let mut detail = Detail { slot: 7, apart: 0.01, rounds: 2500 };
    let (mut name, mut seeds) = (String::new(), vec![]);
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--slot" => detail.slot = args.next().ok_or("--slot needs a number")?.parse()?,
            "--apart" => detail.apart = args.next().ok_or("--apart needs a number")?.parse()?,
            _ if name.is_empty() => name = arg,
            _ => seeds.push(arg.parse()?),
        }
    }
    for row in names().filter(|row| row.ends_with(&name)) {
        for &seed in &seeds {
            let most = most(row, seed, detail).ok_or("no such row")?;
            println!("{row}, seed {seed}: at most {most:.2} %");
        }
    }
    Ok(())
}
