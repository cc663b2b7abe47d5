//! A process that is killed between stores and syncs: no page of the file is older than the last
//! sync that returned.
//!
//! SIGKILL leaves the system's page cache, so this tests in which order pages are marked, written
//! and told as written. It does not test the disk: without `fdatasync` it would pass, too.
//!
//! The child is this program again. One of its threads stores rising versions to every page, the
//! other one syncs meanwhile and says which version was complete before each sync.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use vellum_host::machine::Plan;
use vellum_host::rng::Rng;

use super::common::*;

const PAGES: u64 = 24;
const KILLS: u64 = 200;
/// The file, for the child.
const FILE: &str = "VELLUM_FILES_CRASH";
/// What a line of the child's output begins with.
const TOLD: &str = "synced ";

#[test]
fn no_page_of_a_killed_process_is_older_than_its_last_sync() {
    let seed = std::env::var("VELLUM_STRESS_SEED").ok();
    let seed = seed.map_or(1, |text| text.trim().parse().expect("VELLUM_STRESS_SEED: a number"));
    println!("seed {seed}");
    let (dir, mut rng) = (TempDir::new(), Rng::new(seed));
    let path = dir.path("a");
    std::fs::write(&path, vec![0; (PAGES * PAGE) as usize]).unwrap();
    let (mut floor, mut syncs) = (0, 0);
    for kill in 0..KILLS {
        let told = run_and_kill(&path, &mut rng);
        syncs += told.len();
        floor = told.last().copied().unwrap_or(floor).max(floor);
        let found = words(&path);
        for page in 0..PAGES as usize {
            for word in [page * 512, page * 512 + 511] {
                assert!(
                    found[word] >= floor,
                    "page {page} has version {} after a sync of {floor}; kill {kill}, seed {seed}",
                    found[word]
                );
            }
        }
    }
    assert!(syncs as u64 > KILLS, "few syncs: nothing was tested");
    println!("{syncs} syncs, version {floor}");
}

/// Kills a child some time after a number of syncs; the versions that it told.
fn run_and_kill(path: &Path, rng: &mut Rng) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().expect("a test binary"))
        .args(["--exact", "crash::child_that_is_killed", "--nocapture"])
        .env(FILE, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a child");
    let (wanted, wait) = (rng.below(12), Duration::from_micros(rng.below(2000)));
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut told = Vec::new();
    let version =
        |line: &str| -> Option<u64> { line.strip_prefix(TOLD)?.strip_suffix('.')?.parse().ok() };
    while told.len() < wanted as usize {
        match lines.next() {
            Some(line) => told.extend(version(&line.expect("a line"))),
            None => panic!("the child ended by itself: {:?}", child.wait()),
        }
    }
    std::thread::sleep(wait);
    kill(&mut child);
    told.extend(lines.map_while(Result::ok).filter_map(|line| version(&line)));
    told
}

fn kill(child: &mut Child) {
    child.kill().expect("a child of ours");
    let status = child.wait().expect("a child of ours");
    assert!(!status.success(), "the child ended by itself");
}

/// Not a test by itself: what the test above starts and kills.
#[test]
fn child_that_is_killed() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let first = words(Path::new(&path)).into_iter().max().unwrap_or(0) + 1;
    let host = Host::new(Plan::new(2, 16 << 20), vellum::Config::default(), 2).unwrap();
    let file = {
        let _cpu = host.vm().machine().bind(0);
        open(&host, Path::new(&path))
    };
    let complete = AtomicU64::new(0);
    std::thread::scope(|s| {
        let (host, file, complete) = (&host, &file, &complete);
        s.spawn(move || {
            let cpu = host.vm().machine().bind(1);
            let space = space(host, file.object(), PAGES);
            for version in first.. {
                for page in 0..PAGES {
                    for at in [page * PAGE, page * PAGE + PAGE - 8] {
                        store(host, &cpu, &space, (at, version)).unwrap();
                    }
                }
                complete.store(version, Ordering::Release);
                cpu.yield_core();
            }
        });
        let cpu = host.vm().machine().bind(0);
        loop {
            let version = complete.load(Ordering::Acquire);
            host.sync(file).unwrap();
            if version != 0 {
                cpu.park(|| tell(version));
            }
            if version.is_multiple_of(5) {
                host.vm().objects().evict(file.object(), 0, u64::MAX);
            }
            cpu.yield_core();
        }
    });
}

/// One call of the system, so that a line is whole or not there.
fn tell(version: u64) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{TOLD}{version}.\n").as_bytes()).and_then(|()| out.flush()).unwrap();
}
