//! Prices for a bound.

use super::super::peers::FRAMES;
use super::model::Model;

impl Model {
    /// By moment and price, for lumped kinds: how many units are placed less than came, if each
    /// 2 MiB block takes what pays, and all but the best of what it can take with a chance that
    /// falls off over `blur`.
    fn wanting(&self, paid: &[Vec<f64>], blur: f64, chances: &mut [Vec<f64>]) -> Vec<Vec<f64>> {
        let parts = self.parts.len();
        let (mut value, mut best) = (vec![0.0; parts], vec![0.0; parts]);
        for moment in (0..=self.last()).rev() {
            if moment < self.last() {
                self.back(moment + 1, &mut value);
            }
            if moment >= self.first {
                value[1..].iter_mut().for_each(|v| *v += 1.0);
            }
            let chances = &mut chances[moment];
            chances.clear();
            // Parts from the highest number down; of each, to stay as it is, then to have more.
            for x in (0..parts).rev() {
                let start = chances.len();
                chances.push(value[x]);
                for k in self.kinds() {
                    chances.extend(
                        self.parts.more[k]
                            .of(x)
                            .iter()
                            .map(|&y| best[y as usize] - paid[moment][k]),
                    );
                }
                let least = chances[start..].iter().copied().fold(f64::MAX, f64::min);
                let mut all = 0.0;
                for c in &mut chances[start..] {
                    *c = (-(*c - least) / blur).exp();
                    all += *c;
                }
                chances[start..].iter_mut().for_each(|c| *c /= all);
                best[x] = least - blur * all.ln();
            }
            std::mem::swap(&mut value, &mut best);
        }
        let mut blocks = vec![0.0; parts];
        blocks[0] = (FRAMES / 512) as f64;
        let mut wanting = vec![];
        for (moment, chances) in chances.iter().enumerate() {
            if moment > 0 {
                self.forth(moment, &mut blocks);
            }
            let mut left: Vec<f64> = self.kinds().map(|k| self.came(moment, k)).collect();
            let mut end = chances.len();
            for x in 0..parts {
                let ways: usize = self.kinds().map(|k| self.parts.more[k].of(x).len()).sum();
                let mut way = end - ways;
                end = way - 1;
                let here = blocks[x];
                blocks[x] *= chances[end];
                for k in self.kinds() {
                    for &y in self.parts.more[k].of(x) {
                        blocks[y as usize] += here * chances[way];
                        left[k] -= here * chances[way];
                        way += 1;
                    }
                }
            }
            wanting.push(left);
        }
        wanting
    }

    /// Prices for [`in_use`](Model::in_use), found in `rounds` rounds. Kinds are lumped.
    pub fn prices(&self, rounds: usize) -> Vec<Vec<f64>> {
        let slots = (self.width - 1) as f64;
        // In the beginning a slot costs its share of the block at each moment.
        let mut paid: Vec<Vec<f64>> = vec![vec![0.0; self.slots.len()]; self.last() + 1];
        for moment in (0..=self.last()).rev() {
            for k in self.kinds() {
                let now = if moment < self.first { 0.0 } else { self.slots[k] / slots };
                let then = paid.get(moment + 1).map_or(0.0, |p| p[k]);
                paid[moment][k] = now + self.stays(moment + 1, k) * then;
            }
        }
        // Steps by the mean of what was wanting, over its spread (Adam).
        let (slow, slower): (f64, f64) = (0.95, 0.999);
        let mut means = vec![vec![(0.0, 0.0); self.slots.len()]; self.last() + 1];
        let mut chances = vec![vec![]; self.last() + 1];
        for round in 0..rounds {
            let fall = |from: f64, to: f64| from * (to / from).powf(round as f64 / rounds as f64);
            let wanting = self.wanting(&paid, fall(0.5, 0.01), &mut chances);
            let step = fall(0.3, 0.003);
            let grown = |by: f64| 1.0 - by.powi(round as i32 + 1);
            for (moment, wanting) in wanting.iter().enumerate() {
                for k in self.kinds() {
                    let (mean, square) = &mut means[moment][k];
                    *mean = slow * *mean + (1.0 - slow) * wanting[k];
                    *square = slower * *square + (1.0 - slower) * wanting[k] * wanting[k];
                    let spread = (*square / grown(slower)).sqrt();
                    paid[moment][k] += step * *mean / grown(slow) / (spread + 0.3);
                }
            }
        }
        (0..=self.last())
            .map(|moment| {
                let then = |k: usize| paid.get(moment + 1).map_or(0.0, |p| p[k]);
                self.kinds()
                    .map(|k| paid[moment][k] - self.stays(moment + 1, k) * then(k))
                    .collect()
            })
            .collect()
    }
}
