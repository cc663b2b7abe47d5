//! `vellum bench fragment`: large pages that are left after a long life.
//!
//! Memory is filled to a share. Then blocks are freed and allocated at random for millions of
//! steps, orders 0 to 9, each half as often as the order below it, so that every order has about as
//! many frames as the next. Then as many 2 MiB blocks are allocated as there are. The result is
//! their share of the free memory in percent; higher is better, unlike in every other table. Seeds
//! differ by more than good allocators do, so the result is the mean over a few seeds, the same for
//! all allocators.

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

fn order(rng: &mut Rng) -> u8 {
    loop {
        let order = rng.draw().trailing_zeros() as u8;
        if order <= 9 {
            return order;
        }
    }
}

/// The share of free frames that come as 2 MiB blocks after churn at `live` percent. Everything is
/// given back in the end.
fn churn<C: Allocator>(on: &C, live: u64, steps: u64, seed: u64) -> f64 {
    let mut rng = Rng::new(seed);
    let wanted = FRAMES * live / 100;
    let (mut held, mut used): (Vec<(u32, u8)>, u64) = (Vec::new(), 0);
    for step in 0.. {
        // Above the mark something goes, below it something comes: the level stays, the places
        // change.
        if used >= wanted && !held.is_empty() {
            let n = rng.below(held.len() as u64) as usize;
            let (first, order) = held.swap_remove(n);
            on.free(0, first, order);
            used -= 1 << order;
            if step >= steps {
                break;
            }
        } else {
            let order = order(&mut rng);
            // What cannot be had as one block is had smaller, as callers do.
            let Some((first, order)) = (0..=order).rev().find_map(|o| Some((on.alloc(0, o)?, o)))
            else {
                break;
            };
            held.push((first, order));
            used += 1 << order;
        }
    }
    let mut huge = Vec::new();
    while let Some(first) = on.alloc(0, 9) {
        huge.push(first);
    }
    let share = (huge.len() as u64 * 512) as f64 / (FRAMES - used) as f64 * 100.0;
    huge.into_iter().for_each(|first| on.free(0, first, 9));
    held.into_iter().for_each(|(first, order)| on.free(0, first, order));
    share
}

/// One life of one allocator. The bitmap searches linearly for larger blocks; a tenth of the steps
/// takes it as long as the others together.
fn life(allocator: usize, live: u64, steps: u64, seed: u64) -> io::Result<f64> {
    Ok(match allocator {
        0 => {
            let ours = Ours::new(1)?;
            ours.on_cpu(0, || churn(&ours, live, steps, seed))
        }
        1 => churn(&Buddy::new(), live, steps, seed),
        _ => churn(&Bitmap::new(), live, steps / 10, seed),
    })
}

/// Both rows, and the metadata of ours in bytes a frame. Nothing is timed here, so lives are lived
/// side by side on all cores.
///
/// # Errors
/// The system has no memory for it.
pub fn run(effort: Effort) -> io::Result<Report> {
    let mut report = Report::default();
    let steps = 10_000_000 / effort.shrink;
    for live in [50, 90] {
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
                found.push((allocator, life(allocator, live, steps, seed)?));
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
            name: format!("frames/2m-left-after-churn-at-{live}"),
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
    use super::*;

    #[test]
    fn shares_are_percentages_and_memory_comes_back_whole() {
        let buddy = Buddy::new();
        let share = churn(&buddy, 50, 50_000, 1);
        assert!(share > 0.0 && share <= 100.0, "{share}");
        assert_eq!(
            churn(&buddy, 0, 0, 1),
            100.0,
            "an idle allocator gives all of its memory in 2 MiB"
        );
    }

    #[test]
    fn orders_halve() {
        let mut rng = Rng::new(5);
        let mut seen = [0u32; 10];
        (0..100_000).for_each(|_| seen[order(&mut rng) as usize] += 1);
        assert!(seen.windows(2).take(6).all(|w| w[0] > w[1] && w[0] < 3 * w[1]), "{seen:?}");
    }
}
