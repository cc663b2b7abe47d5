//! Threads that store, write, look, sync and evict beside changes of the size, against a naive
//! model.
//!
//! A thread has a word of its own in every page. Below [`FIRM`] pages the object is never cut while
//! threads run: there a word is what was stored last. Above, it may have become zero since, or the
//! part of it that lies behind an end. At the end of a round the threads meet, the file is synced,
//! and every word of the file is compared. Then the size changes to anything, and what is cut is
//! zero in the model.

use std::fs;
use std::sync::Barrier;

use vellum::{FaultError, ObjectError};
use vellum_host::files::PagedFile;
use vellum_host::machine::Plan;
use vellum_host::rng::Rng;

use super::common::*;

const THREADS: usize = 3;
const MOST: u64 = 96;
const FIRM: u64 = 40;
const ROUNDS: u64 = 6;
const STEPS: u64 = 1500;

/// What a thread has stored, a word for each page.
type Words = Vec<u64>;

/// The byte of a thread's word in a page.
fn word_at(page: u64, me: u64) -> u64 {
    page * PAGE + (me * 97 + 1) * 8
}

struct Worker<'h> {
    host: &'h Host,
    cpu: &'h Cpu<'h>,
    file: &'h PagedFile,
    space: &'h vellum::Space,
    me: u64,
    rng: Rng,
}

impl Worker<'_> {
    fn step(&mut self, words: &mut Words, n: u64) {
        let (page, what) = (self.rng.below(MOST), self.rng.below(100));
        let (at, word) = (word_at(page, self.me), &mut words[page as usize]);
        let objects = self.host.vm().objects();
        match what {
            0..40 => match store(self.host, self.cpu, self.space, (at, n)) {
                Ok(()) => *word = n,
                Err(error) => self.is_beyond(page, error == FaultError::Beyond),
            },
            40..60 => match objects.write(self.file.object(), at, &n.to_ne_bytes()) {
                (8, Ok(())) => *word = n,
                (written, error) => {
                    self.is_beyond(page, error == Err(ObjectError::Beyond));
                    // The bytes before an end inside of the word are written; what lies behind it
                    // stays until the change of the size has cleared it.
                    *word = (n & first_bytes(written)) | (*word & !first_bytes(written));
                }
            },
            60..90 => match load(self.host, self.cpu, self.space, at) {
                Ok(found) => Self::is_one_of(page, found, word),
                Err(error) => self.is_beyond(page, error == FaultError::Beyond),
            },
            90..94 => assert_eq!(self.host.sync(self.file), Ok(())),
            94..97 => drop(objects.evict(self.file.object(), page * PAGE, 16 * PAGE)),
            _ => {
                let page = FIRM + self.rng.below(MOST - FIRM);
                // Half of the ends lie inside of a thread's word.
                let bytes = match self.rng.once_in(2) {
                    true => word_at(page, self.rng.below(THREADS as u64)) + self.rng.below(8),
                    false => page * PAGE + self.rng.below(PAGE),
                };
                assert_eq!(self.host.set_len(self.file, bytes), Ok(()));
            }
        }
        self.cpu.yield_core();
    }

    fn is_one_of(page: u64, found: u64, word: &mut u64) {
        // An end inside of the word leaves the bytes before it.
        let is_cut = page >= FIRM && (0..8).any(|n| found == *word & first_bytes(n));
        assert!(found == *word || is_cut, "page {page}: {found}, and {word} was stored");
        *word = found;
    }

    fn is_beyond(&self, page: u64, says_so: bool) {
        assert!(says_so && page >= FIRM, "page {page}, thread {}: an error", self.me);
    }
}

/// The first `n` bytes of a word, less than all.
fn first_bytes(n: usize) -> u64 {
    (1 << (8 * n)) - 1
}

/// All words of a file and an object against what the threads have stored.
fn compare(host: &Host, file: &PagedFile, path: &std::path::Path, all: &mut [Words]) {
    assert_eq!(host.sync(file), Ok(()));
    let bytes = fs::read(path).unwrap();
    let size = host.vm().objects().usage(file.object()).bytes;
    assert_eq!(bytes.len() as u64, size, "the file's length");
    let mut object = vec![0; bytes.len()];
    assert_eq!(host.vm().objects().read(file.object(), 0, &mut object), (object.len(), Ok(())));
    assert!(object == bytes, "the object and the file differ");
    for (me, words) in all.iter_mut().enumerate() {
        for (page, word) in (0..).zip(words.iter_mut()) {
            let at = word_at(page, me as u64) as usize;
            // The file may end inside of the word.
            let mut found = [0; 8];
            let there = &bytes[at.min(bytes.len())..bytes.len().min(at + 8)];
            found[..there.len()].copy_from_slice(there);
            let found = u64::from_ne_bytes(found);
            Worker::is_one_of(page, found, word);
        }
    }
}

fn run(plan: Plan, seed: u64) {
    let (dir, path) = (TempDir::new(), "a");
    fs::write(dir.path(path), vec![0; (FIRM * PAGE) as usize]).unwrap();
    let path = dir.path(path);
    let host = Host::new(plan, vellum::Config::default(), 2).expect("a machine");
    let file = {
        let _cpu = host.vm().machine().bind(0);
        open(&host, &path)
    };
    let mut all = vec![vec![0; MOST as usize]; THREADS];
    for round in 0..ROUNDS {
        let start = Barrier::new(THREADS);
        std::thread::scope(|s| {
            for (me, words) in all.iter_mut().enumerate() {
                let (host, file, start) = (&host, &file, &start);
                s.spawn(move || {
                    let cpu = host.vm().machine().bind(me);
                    let space = space(host, file.object(), MOST);
                    cpu.park(|| start.wait());
                    let rng = Rng::new(seed ^ (me as u64 + 1) << 40 ^ round << 20);
                    let (me, cpu) = (me as u64, &cpu);
                    let mut worker = Worker { host, cpu, file, space: &space, me, rng };
                    for n in 1..=STEPS {
                        worker.step(words, (round + 1) << 32 | n);
                    }
                    host.vm().deactivate();
                    host.vm().exit(space);
                });
            }
        });
        let _cpu = host.vm().machine().bind(0);
        compare(&host, &file, &path, &mut all);
        // To any size, and back to where all threads may store below `FIRM`.
        let mut rng = Rng::new(seed ^ round);
        let bytes = rng.below(MOST * PAGE);
        assert_eq!(host.set_len(&file, bytes), Ok(()));
        for (me, words) in all.iter_mut().enumerate() {
            for (page, word) in (0..).zip(words.iter_mut()) {
                let at = word_at(page, me as u64);
                // A word is cut where its first byte that is not zero may lie: anywhere in it.
                let left = bytes.saturating_sub(at).min(8) as usize;
                let mut kept = [0; 8];
                kept[..left].copy_from_slice(&word.to_ne_bytes()[..left]);
                *word = u64::from_ne_bytes(kept);
            }
        }
        compare(&host, &file, &path, &mut all);
        assert_eq!(host.set_len(&file, bytes.max(FIRM * PAGE)), Ok(()));
        // SAFETY: no thread is a CPU but this one.
        unsafe { host.vm().validate(&[]) }.expect("a library that counts right");
    }
    let _cpu = host.vm().machine().bind(0);
    host.close(file);
}

fn seed() -> u64 {
    let seed = std::env::var("VELLUM_STRESS_SEED").ok();
    let seed = seed.map_or(1, |text| text.trim().parse().expect("VELLUM_STRESS_SEED: a number"));
    println!("seed {seed}");
    seed
}

#[test]
fn a_file_under_threads_has_what_the_model_has() {
    let seed = seed();
    let plan = Plan::new(THREADS, 64 << 20);
    run(Plan { jitter: 500, scribble: true, seed, ..plan }, seed);
}

#[test]
fn the_same_with_one_core() {
    let seed = seed();
    run(Plan { running: Some(1), ..Plan::new(THREADS, 64 << 20) }, seed);
}
