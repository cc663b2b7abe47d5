//! The command `vellum-proof`: long runs, and the replay of what they find.

use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use vellum_host::rng::Rng;
use vellum_host::stress::variants::{VARIANTS, Variant};
use vellum_host::stress::{objects, shared};
use vellum_proof::explore::search::Schedule;
use vellum_proof::explore::tale;
use vellum_proof::matrix::{self, Care as MatrixCare, Depth, Scenario};
use vellum_proof::play::Outcome;
use vellum_proof::replay::{Care, explain, of_bytes, of_seed, quietly, run};
use vellum_proof::setting::Setting;

/// Vellum against a naive model, at length. Each part stops at the first difference and says how to
/// replay it.
#[derive(Parser)]
#[command(name = "vellum-proof")]
struct Cli {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// Random commands on one thread, a seed and a setting per run.
    Model {
        /// The first seed; runs go on from there.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Commands in all.
        #[arg(long, default_value_t = 10_000_000)]
        operations: u64,
        /// Commands of a run.
        #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
        commands: u64,
    },
    /// Runs out of a fuzzer's bytes: each file is one, or a folder of them.
    Bytes {
        /// Files and folders.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Random bytes, as files for a fuzzer to start from.
    Grow {
        /// The folder.
        folder: PathBuf,
        /// Files.
        #[arg(long, default_value_t = 256)]
        files: u64,
        /// Bytes of each.
        #[arg(long, default_value_t = 2048)]
        bytes: usize,
    },
    /// Every pair of verbs on the same pages, in every interleaving of few preemptions.
    Matrix {
        /// Preemptions at most.
        #[arg(long, default_value_t = 2)]
        most: usize,
        /// Schedules of a scenario at most.
        #[arg(long, default_value_t = 1000)]
        limit: u64,
        /// Stops of all schedules of a scenario at most: 200,000 if it is not said, and 60,000 for
        /// the scenarios that `./test` runs.
        #[arg(long)]
        stops: Option<u64>,
        /// One in so many of all scenarios, spread over everything; 1 for all. Without it, those
        /// that `./test` runs.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        of: Option<u64>,
        /// Which of these parts.
        #[arg(long, default_value_t = 0)]
        part: u64,
        /// Of those the ones whose state has this in its name.
        #[arg(long, conflicts_with = "scenario")]
        state: Option<String>,
        /// This scenario alone, as a failure names it; several, if it is said several times.
        #[arg(long)]
        scenario: Vec<Scenario>,
        /// This schedule of it alone.
        #[arg(long, requires = "scenario")]
        schedule: Option<Schedule>,
        /// Ends when so many scenarios have failed.
        #[arg(long, default_value_t = 1)]
        failures: usize,
        /// Threads; 0 for one each core.
        #[arg(long, default_value_t = 0)]
        threads: usize,
        /// Tells of every scenario.
        #[arg(long)]
        tell: bool,
    },
    /// Several threads at once on the host machine.
    Stress {
        /// The first seed; each round of all variants takes the next.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Operations in all.
        #[arg(long, default_value_t = 5_000_000)]
        operations: u64,
    },
    /// Several threads at once on the host machine, all of them on the same pages of one space.
    StressShared(Runs),
    /// Several threads at once on the host machine, all of them on the same objects.
    StressObjects(Runs),
}

/// Which runs of a stress.
#[derive(clap::Args)]
struct Runs {
    /// The first seed; each round of all settings takes the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Ends after so many seconds; without it, after so many operations.
    #[arg(long)]
    seconds: Option<u64>,
    /// Operations in all.
    #[arg(long, default_value_t = 2_000_000)]
    operations: u64,
    /// Operations of a run.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    each: u64,
    /// Only the settings whose name has this in it; several, if it is said several times.
    #[arg(long)]
    settings: Vec<String>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().part {
        Part::Model { seed, operations, commands } => model(seed, operations, commands),
        Part::Bytes { files } => bytes(&files),
        Part::Grow { folder, files, bytes } => grow(&folder, files, bytes),
        Part::Stress { seed, operations } => stress(seed, operations),
        Part::StressShared(runs) => {
            let mut sum = shared::Outcome::default();
            runs_of("stress-shared", &runs, |variant, seed| {
                sum.add(variant.run_shared(seed, runs.each)?.0);
                Ok((sum.operations, sum.to_string()))
            })
        }
        Part::StressObjects(runs) => {
            let mut sum = objects::Outcome::default();
            runs_of("stress-objects", &runs, |variant, seed| {
                sum.add(variant.run_objects(seed, runs.each)?.0);
                Ok((sum.operations, sum.to_string()))
            })
        }
        Part::Matrix {
            most,
            limit,
            stops,
            of,
            part,
            state,
            scenario,
            schedule,
            failures,
            threads,
            tell,
        } => {
            let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
            let threads = if threads == 0 { cores } else { threads };
            let usual = scenario.is_empty() && of.is_none();
            let stops = stops.unwrap_or(if usual { 60_000 } else { 200_000 });
            let care = MatrixCare {
                depth: Depth { most, limit: (limit, stops) },
                threads,
                failures,
                tell,
            };
            match (&scenario[..], schedule) {
                ([one], Some(schedule)) => one_schedule(one, &schedule),
                (_, Some(_)) => Err("a schedule is one scenario's".to_string()),
                ([], None) => {
                    let mut list = of.map_or_else(matrix::usual, |of| matrix::slice(part, of));
                    list.retain(|one| state.as_ref().is_none_or(|state| one.is_of_state(state)));
                    scenarios(&list, care)
                }
                (some, None) => scenarios(some, care),
            }
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("vellum-proof: {what}");
            ExitCode::FAILURE
        }
    }
}

fn rate(operations: u64, took: Duration) -> String {
    format!(
        "{:.1} s, {:.2} M operations/s",
        took.as_secs_f64(),
        operations as f64 / took.as_secs_f64() / 1e6
    )
}

fn model(first: u64, operations: u64, commands: u64) -> Result<(), String> {
    let (start, mut sum, mut seed) = (Instant::now(), Outcome::default(), first);
    while sum.operations < operations {
        let this = commands.min(operations - sum.operations);
        let setting = Setting::of(seed);
        match quietly(|| run(&setting, of_seed(seed, this as usize), Care::USUAL)) {
            Ok(outcome) => sum.add(outcome),
            Err(failure) => {
                eprintln!(
                    "vellum-proof: seed {seed}: {}; looking for a short list of commands",
                    failure.what
                );
                let list: Vec<_> = of_seed(seed, this as usize).collect();
                return Err(format!(
                    "seed {seed}, {}\nreplay: scripts/soak model --seed {seed} --commands {this} \
                     --operations {this}",
                    explain(&setting, &list, &failure)
                ));
            }
        }
        seed += 1;
    }
    println!(
        "model: seeds {first} to {}: {sum}; {}",
        seed - 1,
        rate(sum.operations, start.elapsed())
    );
    Ok(())
}

fn bytes(paths: &[PathBuf]) -> Result<(), String> {
    let (start, mut sum, mut count) = (Instant::now(), Outcome::default(), 0);
    let told = |path: &PathBuf, e: std::io::Error| format!("{}: {e}", path.display());
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let inside = std::fs::read_dir(path).map_err(|e| told(path, e))?;
            files.extend(inside.filter_map(|entry| entry.ok().map(|entry| entry.path())));
        } else {
            files.push(path.clone());
        }
    }
    files.sort();
    for path in files {
        let bytes = std::fs::read(&path).map_err(|e| told(&path, e))?;
        let (setting, commands) = of_bytes(&bytes);
        let list: Vec<_> = commands.collect();
        match quietly(|| run(&setting, list.iter().copied(), Care::USUAL)) {
            Ok(outcome) => sum.add(outcome),
            Err(failure) => {
                return Err(format!(
                    "{}: {}\nreplay: scripts/soak bytes {0}",
                    path.display(),
                    explain(&setting, &list, &failure)
                ));
            }
        }
        count += 1;
    }
    println!("bytes: {count} files: {sum}; {}", rate(sum.operations, start.elapsed()));
    Ok(())
}

fn grow(folder: &Path, files: u64, bytes: usize) -> Result<(), String> {
    let told = |e: std::io::Error| format!("{}: {e}", folder.display());
    std::fs::create_dir_all(folder).map_err(told)?;
    for seed in 0..files {
        let mut rng = Rng::new(seed);
        let text: Vec<u8> = (0..bytes).map(|_| rng.below(256) as u8).collect();
        std::fs::write(folder.join(format!("seed-{seed}")), text).map_err(told)?;
    }
    Ok(())
}

/// Failures that are made short and shown as a time line.
const EXPLAINED: usize = 3;

fn scenarios(list: &[Scenario], care: MatrixCare) -> Result<(), String> {
    let (start, depth) = (Instant::now(), care.depth);
    let sum = matrix::run_all(list, care);
    for (scenario, found) in sum.failed.iter().take(EXPLAINED) {
        eprintln!("{}", matrix::explain(scenario, found, depth));
    }
    println!(
        "matrix: {} scenarios, {} schedules of at most {} preemptions, {} of them alike, {} \
         stops, {} scenarios cut off at {} schedules or {} stops; {:.1} s",
        sum.scenarios,
        sum.schedules,
        depth.most,
        sum.known,
        sum.stops,
        sum.cut,
        depth.limit.0,
        depth.limit.1,
        start.elapsed().as_secs_f64()
    );
    let names: Vec<String> = sum.failed.iter().map(|(scenario, _)| scenario.to_string()).collect();
    if names.is_empty() {
        Ok(())
    } else {
        Err(format!("{} scenarios failed: {}", names.len(), names.join(" ")))
    }
}

fn one_schedule(scenario: &Scenario, schedule: &Schedule) -> Result<(), String> {
    let setting = scenario.setting();
    tale::begin();
    let done = quietly(|| matrix::replay(&setting, schedule));
    println!("{}", tale::end(setting.cpus()));
    done
}

fn stress(first: u64, operations: u64) -> Result<(), String> {
    let (start, mut done, mut seed) = (Instant::now(), 0, first);
    let mut sum = vellum_host::stress::Outcome::default();
    while done < operations {
        for variant in VARIANTS {
            // The threads of a run say themselves what was wrong, with the seed.
            let (outcome, _) =
                variant.run(seed, None).map_err(|e| format!("{}: {e}", variant.name))?;
            done += outcome.operations;
            sum.add(outcome);
        }
        seed += 1;
    }
    println!(
        "stress: seeds {first} to {}, {} machines: {sum}; {}",
        seed - 1,
        VARIANTS.len(),
        rate(done, start.elapsed())
    );
    Ok(())
}

/// Runs a stress under each of the settings, again and again. `run` says how many operations were
/// done in all, and what came of them.
fn runs_of(
    part: &str,
    runs: &Runs,
    mut run: impl FnMut(&Variant, u64) -> io::Result<(u64, String)>,
) -> Result<(), String> {
    let (first, each, settings) = (runs.seed, runs.each, &runs.settings);
    let wanted = |name: &str| {
        settings.is_empty() || settings.iter().any(|part| name.contains(part.as_str()))
    };
    let variants: Vec<_> = VARIANTS.iter().filter(|variant| wanted(variant.name)).collect();
    if variants.is_empty() {
        let names: Vec<_> = VARIANTS.iter().map(|variant| variant.name).collect();
        return Err(format!("no such settings; there are: {}", names.join("; ")));
    }
    let (start, mut seed, mut count) = (Instant::now(), first, 0);
    let (mut operations, mut sum) = (0, String::new());
    'enough: loop {
        for variant in &variants {
            let over = match runs.seconds {
                Some(seconds) => start.elapsed() >= Duration::from_secs(seconds),
                None => operations >= runs.operations,
            };
            if over {
                break 'enough;
            }
            // The threads of a run say themselves what was wrong.
            let done = std::panic::catch_unwind(AssertUnwindSafe(|| run(variant, seed)));
            let done = done.map_err(|_| {
                format!(
                    "{}, after {:.1} s\nreplay: vellum-proof {part} --settings '{0}' --seed {seed} \
                     --each {each}",
                    variant.name,
                    start.elapsed().as_secs_f64()
                )
            })?;
            (operations, sum) = done.map_err(|e| format!("{}: {e}", variant.name))?;
            count += 1;
        }
        seed += 1;
    }
    println!(
        "{part}: seeds {first} to {seed}, {} settings, {count} runs: {sum}; {}",
        variants.len(),
        rate(operations, start.elapsed())
    );
    Ok(())
}
