//! `vellum bench fragment`: large pages that are left after a long life.
//!
//! Memory is filled to a share. Then blocks are freed and allocated at random: which block goes is
//! drawn from all that are held, the order of the next from a mix (`LIVES`). At `MOMENTS`
//! moments, spread evenly over the second half of the steps, as many 2 MiB blocks are allocated as
//! there are, and given back. What they have of the free memory is the share of that moment, in
//! percent; higher is better, unlike in every other table. Frames that the allocator keeps for a
//! CPU count as free.
//!
//! One moment differs from the next by more than good allocators do, and so does one seed: the
//! result is the mean over the moments and over a few seeds, the same for all allocators.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Ours;
use super::peers::{Allocator, Bitmap, Buddy, FRAMES};
use crate::bench::measure::conditions::cores;
use crate::bench::measure::{Effort, Samples, threads};
use crate::bench::{Report, Row};
use crate::rng::Rng;

/// Seeds of the lives lived.
const SEEDS: [u64; 4] = [1, 2, 3, 4];
/// Moments of a life at which 2 MiB blocks are counted. The mean over eight is up to three points
/// from that over all moments of a life, and in every draw to the same side.
const MOMENTS: u64 = 100;

/// How a life is lived.
#[derive(Clone, Copy)]
pub struct Life {
    /// What its row is called.
    pub name: &'static str,
    /// Percent of memory in use.
    pub live: u64,
    /// Frees and allocations, filling included.
    pub steps: u64,
    /// The order of the next block.
    pub order: fn(&mut Rng) -> u8,
}

/// The lives. In each of them all that is held is replaced ten times and more.
pub const LIVES: [Life; 4] = [
    Life {
        name: "frames/2m-left-after-churn-at-50",
        live: 50,
        steps: 8_000_000,
        order: alike_in_frames,
    },
    Life {
        name: "frames/2m-left-after-churn-at-90",
        live: 90,
        steps: 8_000_000,
        order: alike_in_frames,
    },
    Life {
        name: "frames/2m-left-after-churn-at-90/alike",
        live: 90,
        steps: 1_000_000,
        order: alike_often,
    },
    Life {
        name: "frames/2m-left-after-churn-at-90/singles",
        live: 90,
        steps: 4_000_000,
        order: mostly_singles,
    },
];

/// Orders 0 to 9, each half as often as the order below it, so that every order has about as many
/// frames as the next.
fn alike_in_frames(rng: &mut Rng) -> u8 {
    loop {
        let order = rng.draw().trailing_zeros() as u8;
        if order <= 9 {
            return order;
        }
    }
}

/// Orders 0 to 9, each as often as the next.
fn alike_often(rng: &mut Rng) -> u8 {
    rng.below(10) as u8
}

/// Of 100 blocks 90 are single frames, 9 of order 3 and one of order 9.
fn mostly_singles(rng: &mut Rng) -> u8 {
    match rng.below(100) {
        0..90 => 0,
        90..99 => 3,
        _ => 9,
    }
}

/// The share of free frames that come as 2 MiB blocks, in percent, when `used` of all are in use.
fn whole<C: Allocator>(on: &C, used: u64) -> f64 {
    let mut huge = Vec::new();
    while let Some(first) = on.alloc(0, 9) {
        huge.push(first);
    }
    let share = (huge.len() as u64 * 512) as f64 / (FRAMES - used) as f64 * 100.0;
    huge.into_iter().for_each(|first| on.free(0, first, 9));
    share
}

/// The mean of [`whole`] over so many moments of a life that takes `steps` steps. Everything is
/// given back in the end.
fn churn<C: Allocator>(on: &C, life: &Life, (steps, moments): (u64, u64), seed: u64) -> f64 {
    let mut rng = Rng::new(seed);
    let wanted = FRAMES * life.live / 100;
    let (mut held, mut used): (Vec<(u32, u8)>, u64) = (Vec::new(), 0);
    let mut shares = Samples::default();
    for step in 0.. {
        // Above the mark something goes, below it something comes: the level stays, the places
        // change.
        if used >= wanted && !held.is_empty() {
            let n = rng.below(held.len() as u64) as usize;
            let (first, order) = held.swap_remove(n);
            on.free(0, first, order);
            used -= 1 << order;
            // A moment is over when an equal part of the second half of the steps is.
            if step >= steps / 2 + steps / 2 * (shares.len() as u64 + 1) / moments {
                shares.add(whole(on, used));
                if shares.len() as u64 == moments {
                    break;
                }
            }
        } else {
            let order = (life.order)(&mut rng);
            // What cannot be had as one block is had smaller, as callers do.
            let Some((first, order)) = (0..=order).rev().find_map(|o| Some((on.alloc(0, o)?, o)))
            else {
                break;
            };
            held.push((first, order));
            used += 1 << order;
        }
    }
    held.into_iter().for_each(|(first, order)| on.free(0, first, order));
    shares.mean()
}

/// One life of one allocator. The bitmap searches linearly for larger blocks; a tenth of the steps
/// and moments takes it as long as the others together.
fn lived(allocator: usize, life: &Life, steps: u64, seed: u64) -> io::Result<f64> {
    Ok(match allocator {
        0 => {
            let ours = Ours::new(1)?;
            ours.on_cpu(0, || churn(&ours, life, (steps, MOMENTS), seed))
        }
        1 => churn(&Buddy::new(), life, (steps, MOMENTS), seed),
        _ => churn(&Bitmap::new(), life, (steps / 10, MOMENTS / 10), seed),
    })
}

/// All rows, and the metadata of ours in bytes a frame. Nothing is timed here, so lives are lived
/// side by side on all cores.
///
/// # Errors
/// The system has no memory for it.
pub fn run(effort: Effort) -> io::Result<Report> {
    let mut report = Report::default();
    for life in &LIVES {
        let steps = life.steps / effort.shrink;
        let seeds = &SEEDS[..effort.lives.clamp(1, SEEDS.len())];
        let lives: Vec<(usize, u64)> =
            (0..3).flat_map(|c| seeds.iter().map(move |&seed| (c, seed))).collect();
        let next = AtomicUsize::new(0);
        let lived = threads(cores(), |_| -> io::Result<Vec<(usize, f64)>> {
            let mut found = Vec::new();
            while let Some(&(allocator, seed)) = lives.get(next.fetch_add(1, Ordering::Relaxed)) {
                if (effort.stop)() {
                    break;
                }
                found.push((allocator, lived(allocator, life, steps, seed)?));
            }
            Ok(found)
        });
        let mut samples: [Samples; 3] = Default::default();
        for (allocator, share) in
            lived.into_iter().collect::<io::Result<Vec<_>>>()?.into_iter().flatten()
        {
            samples[allocator].add(share);
        }
        let [own, buddy, bitmap] = samples;
        if (effort.stop)() {
            return Ok(report);
        }
        report.benchmarks.push(Row {
            name: life.name.to_owned(),
            threads: 1,
            unit: "%",
            ours: own.mean(),
            floor: None,
            peers: BTreeMap::from([(Buddy::NAME, buddy.mean()), (Bitmap::NAME, bitmap.mean())]),
            spread: own.spread(),
        });
    }
    let ours = Ours::new(1)?;
    report.benchmarks.push(Row {
        name: "frames/metadata".into(),
        threads: 1,
        unit: "B/frame",
        ours: ours.metadata_bytes() as f64 / FRAMES as f64,
        floor: None,
        peers: BTreeMap::new(),
        spread: 0.0,
    });
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::super::bound;
    use super::*;

    #[test]
    fn shares_are_percentages_and_memory_comes_back_whole() {
        let buddy = Buddy::new();
        let share = churn(&buddy, &LIVES[0], (50_000, 8), 1);
        assert!(share > 0.0 && share <= 100.0, "{share}");
        assert_eq!(whole(&buddy, 0), 100.0, "an idle allocator gives all of its memory in 2 MiB");
    }

    #[test]
    fn the_same_seed_lives_the_same_life() {
        let lived = |seed| {
            let ours = Ours::new(1).expect("memory");
            ours.on_cpu(0, || churn(&ours, &LIVES[2], (30_000, 8), seed))
        };
        assert_eq!(lived(7), lived(7));
        assert_ne!(lived(7), lived(8));
    }

    #[test]
    fn nobody_has_more_than_the_bound() {
        let detail = bound::Detail { slot: 7, apart: 0.05, rounds: 300 };
        for life in &LIVES[2..] {
            let most = bound::of(life, 400_000, 1, detail);
            let buddy = churn(&Buddy::new(), life, (400_000, MOMENTS), 1);
            assert!(buddy < most && most < 100.0, "{}: {buddy} of {most}", life.name);
        }
    }

    #[test]
    fn mixes_are_what_they_are_called() {
        let count = |order: fn(&mut Rng) -> u8| {
            let mut rng = Rng::new(5);
            let mut seen = [0u32; 10];
            (0..100_000).for_each(|_| seen[order(&mut rng) as usize] += 1);
            seen
        };
        let halved = count(alike_in_frames);
        assert!(halved.windows(2).take(6).all(|w| w[0] > w[1] && w[0] < 3 * w[1]), "{halved:?}");
        let alike = count(alike_often);
        assert!(alike.iter().all(|&n| (9_000..11_000).contains(&n)), "{alike:?}");
        let singles = count(mostly_singles);
        assert_eq!(singles.iter().sum::<u32>(), singles[0] + singles[3] + singles[9]);
        assert!(singles[0] > 9 * singles[3] && singles[3] > 7 * singles[9], "{singles:?}");
    }
}
