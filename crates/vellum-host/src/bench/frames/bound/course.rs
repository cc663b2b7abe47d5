//! A life of churn, as far as no placement changes it.

use super::super::fragment::Life;
use super::super::peers::FRAMES;
use crate::rng::Rng;

/// One life, as far as no placement changes it, from moment to moment.
pub struct Course {
    /// By moment: how many blocks of orders 0 to 9 are held.
    pub held: Vec<[f64; 10]>,
    /// By moment and order, for blocks of less than 2 MiB: of `c` blocks that were held at the last
    /// moment, the chance that `j` still are, at `c * width + j`.
    pub kept: Vec<Vec<Vec<f64>>>,
    pub width: usize,
    /// Moments before this one cost nothing.
    pub first: usize,
    /// Free frames, the most at any moment that costs.
    free: u64,
}

impl Course {
    /// The life that a row of `life` has with that seed. Moments are `apart` times as many steps
    /// from each other as replace all that is held. Those in the second half of the life cost; the
    /// first is early enough for three times all that is held to be replaced before them.
    pub fn of(life: &Life, steps: u64, seed: u64, apart: f64, slots: usize) -> Course {
        let width = slots + 1;
        let all_stay: Vec<f64> =
            (0..width * width).map(|n| (n / width == n % width) as u8 as f64).collect();
        let mut course = Course { held: vec![], kept: vec![], width, first: 0, free: 0 };
        let mut rng = Rng::new(seed);
        let wanted = FRAMES * life.live / 100;
        let (mut held, mut used): (Vec<u8>, u64) = (Vec::new(), 0);
        let mut number = [0.0; 10];
        let mut kept = vec![all_stay.clone(); 9];
        // The first moment is set when memory is full.
        let mut next = None;
        for step in 0..steps {
            if used < wanted {
                let order = (life.order)(&mut rng);
                held.push(order);
                number[order as usize] += 1.0;
                used += 1 << order;
                continue;
            }
            let replaced = 2 * held.len() as u64;
            let order = held.swap_remove(rng.below(held.len() as u64) as usize) as usize;
            if let Some(kept) = kept.get_mut(order).filter(|_| !course.held.is_empty()) {
                one_goes(kept, width, number[order]);
            }
            number[order] -= 1.0;
            used -= 1 << order;
            if step >= *next.get_or_insert((steps / 2).saturating_sub(3 * replaced)) {
                if step < steps / 2 {
                    course.first = course.held.len() + 1;
                } else {
                    course.free = course.free.max(FRAMES - used);
                }
                course.held.push(number);
                course.kept.push(std::mem::replace(&mut kept, vec![all_stay.clone(); 9]));
                next = Some(step + ((replaced as f64 * apart) as u64).max(1));
            }
        }
        course
    }

    /// The most that can be had as 2 MiB, in percent of what is free, if blocks of less than 2 MiB
    /// are in at least `in_use` 2 MiB blocks in the mean over the moments that cost.
    pub fn share(&self, in_use: f64) -> f64 {
        let small = |held: &[f64; 10]| (0..9).map(|k| held[k] * (1u64 << k) as f64).sum::<f64>();
        let cost = &self.held[self.first..];
        let wasted = 512.0 * in_use - cost.iter().map(small).sum::<f64>() / cost.len() as f64;
        100.0 - 100.0 * wasted / self.free as f64
    }
}

/// One of `number` blocks goes, whichever: what that does to each chance in `kept`.
fn one_goes(kept: &mut [f64], width: usize, number: f64) {
    for (c, kept) in kept.chunks_mut(width).enumerate() {
        for j in 0..=c {
            kept[j] *= 1.0 - (j as f64 / number).min(1.0);
            if j < c {
                kept[j] += kept[j + 1] * ((j + 1) as f64 / number).min(1.0);
            }
        }
    }
}
