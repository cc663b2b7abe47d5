//! A life as units in slots, and how many 2 MiB blocks it keeps in use at least.

use std::ops::Range;

use super::course::Course;
use super::parts::Parts;

/// A life as units in slots. Of a block smaller than a slot only a share counts.
pub struct Model {
    pub parts: Parts,
    /// Slots of a unit by kind, and which price it has.
    pub slots: Vec<f64>,
    pub price: Vec<usize>,
    /// By moment and kind: units, and the chances of [`Course::kept`].
    units: Vec<Vec<f64>>,
    kept: Vec<Vec<Vec<f64>>>,
    /// By kind and by units: the parts that have at least so many of the kind.
    having: Vec<Vec<Vec<u32>>>,
    pub width: usize,
    pub first: usize,
}

impl Model {
    /// Slots have `1 << slot` frames. If `lumped`, all that fits in one slot is of one kind, which
    /// is not quite true and serves to find prices; else each order is a kind.
    pub fn new(course: &Course, slot: usize, lumped: bool) -> Model {
        let orders: Vec<usize> =
            (0..9).filter(|&k| course.held.iter().any(|h| h[k] > 0.0)).collect();
        // Each kind's orders.
        let mut kinds: Vec<Vec<usize>> = vec![];
        for &order in &orders {
            match kinds.last_mut() {
                Some(last) if lumped && order <= slot => last.push(order),
                _ => kinds.push(vec![order]),
            }
        }
        let heights: Vec<usize> = kinds.iter().map(|k| k[0].max(slot) - slot).collect();
        let mut price: Vec<usize> = vec![];
        for n in 0..kinds.len() {
            price.push(price.last().map_or(0, |p| p + (heights[n] != heights[n - 1]) as usize));
        }
        let share = |k: usize| 0.5f64.powi(slot.saturating_sub(k) as i32);
        let units =
            |h: &[f64; 10], kind: &[usize]| kind.iter().map(|&k| share(k) * h[k]).sum::<f64>();
        let mut kept = vec![];
        for moment in 0..course.held.len() {
            let before = &course.held[moment.saturating_sub(1)];
            kept.push(
                kinds
                    .iter()
                    .map(|kind| {
                        let all = units(before, kind);
                        let mut mean = vec![0.0; course.width * course.width];
                        for &k in kind {
                            // Without units nothing is kept, whatever the chances.
                            let part = if all > 0.0 { share(k) * before[k] / all } else { 0.0 };
                            let of = &course.kept[moment][k];
                            mean.iter_mut().zip(of).for_each(|(m, k)| *m += part * k);
                        }
                        if kind.len() == 1 { course.kept[moment][kind[0]].clone() } else { mean }
                    })
                    .collect(),
            );
        }
        let parts = Parts::new(&heights, 9 - slot);
        let having = parts
            .units
            .iter()
            .map(|units| {
                (0..course.width)
                    .map(|n| {
                        (0..units.len() as u32)
                            .filter(|&x| units[x as usize] as usize >= n)
                            .collect()
                    })
                    .collect()
            })
            .collect();
        Model {
            having,
            slots: heights.iter().map(|&h| (1u64 << h) as f64).collect(),
            price,
            units: course
                .held
                .iter()
                .map(|h| kinds.iter().map(|kind| units(h, kind)).collect())
                .collect(),
            kept,
            width: course.width,
            first: course.first,
            parts,
        }
    }

    pub fn kinds(&self) -> Range<usize> {
        0..self.slots.len()
    }

    pub fn last(&self) -> usize {
        self.units.len() - 1
    }

    /// The chance that a unit of the moment before `moment` is still held.
    pub fn stays(&self, moment: usize, kind: usize) -> f64 {
        if moment > self.last() { 0.0 } else { self.kept[moment][kind][self.width + 1] }
    }

    /// Units that came between the last moment and this one, and are held.
    pub fn came(&self, moment: usize, kind: usize) -> f64 {
        let before = if moment == 0 { 0.0 } else { self.units[moment - 1][kind] };
        self.units[moment][kind] - before * self.stays(moment, kind)
    }

    /// From what `value` parts have at a moment, what those of the last moment are worth.
    pub fn back(&self, moment: usize, value: &mut [f64]) {
        for k in self.kinds() {
            let (kept, units) = (&self.kept[moment][k], &self.parts.units[k]);
            // The mean over all ways to lose one unit, then over those to lose two, and so on.
            let mut lost = value.to_vec();
            for n in 0..self.width {
                // In falling order: less has lower numbers.
                for x in self.having[k][n.max(1)].iter().rev().map(|&x| x as usize) {
                    let held = units[x] as usize;
                    let chance = kept[held * self.width + held - n];
                    if n == 0 {
                        value[x] *= chance;
                        continue;
                    }
                    let left = self.parts.less[k].of(x).iter();
                    lost[x] = left.map(|&y| lost[y as usize]).sum::<f64>() / held as f64;
                    value[x] += chance * lost[x];
                }
            }
        }
    }

    /// From how many 2 MiB blocks have which parts at the last moment, how many have at this one.
    pub fn forth(&self, moment: usize, blocks: &mut [f64]) {
        for k in self.kinds() {
            let (kept, units) = (&self.kept[moment][k], &self.parts.units[k]);
            let mut gone = vec![0.0; blocks.len()];
            for n in (0..self.width).rev() {
                // Once more one unit goes, then those join that have lost all that they lose.
                if n + 1 < self.width {
                    for x in self.having[k][n + 1].iter().map(|&x| x as usize) {
                        let each = std::mem::take(&mut gone[x]) / units[x] as f64;
                        for &y in self.parts.less[k].of(x) {
                            gone[y as usize] += each;
                        }
                    }
                }
                for x in self.having[k][n].iter().map(|&x| x as usize) {
                    let held = units[x] as usize;
                    gone[x] += kept[held * self.width + held - n] * blocks[x];
                }
            }
            blocks.copy_from_slice(&gone);
        }
    }

    /// What units of parts `x` earn.
    fn earned(&self, x: usize, prices: &[f64]) -> f64 {
        self.kinds().map(|k| self.parts.units[k][x] as f64 * prices[k]).sum()
    }

    /// At least so many 2 MiB blocks are in use, in the mean over the moments that cost. `prices`
    /// are paid for a unit at each moment that it is held, by moment and price.
    pub fn in_use(&self, prices: &[Vec<f64>]) -> f64 {
        let parts = self.parts.len();
        let (mut value, mut best) = (vec![0.0; parts], vec![0.0; parts]);
        // What a unit placed at this moment earns in all its life.
        let mut paid = vec![0.0; self.slots.len()];
        let mut sum = 0.0;
        for moment in (0..=self.last()).rev() {
            if moment < self.last() {
                self.back(moment + 1, &mut value);
            }
            if moment >= self.first {
                value[1..].iter_mut().for_each(|v| *v += 1.0);
            }
            for k in self.kinds() {
                paid[k] = self.stays(moment + 1, k) * paid[k] + prices[moment][self.price[k]];
            }
            loop {
                for x in (0..parts).rev() {
                    best[x] = value[x];
                    for k in self.kinds() {
                        for &y in self.parts.more[k].of(x) {
                            best[x] = best[x].min(best[y as usize] - paid[k]);
                        }
                    }
                }
                if best[0] >= 0.0 {
                    break;
                }
                // An empty block would gain: down with all prices, by the slot.
                let gain = (1..parts).map(|x| {
                    let slots: f64 =
                        self.kinds().map(|k| self.parts.units[k][x] as f64 * self.slots[k]).sum();
                    (self.earned(x, &paid) - value[x]) / slots
                });
                let too_much = gain.fold(0.0, f64::max) + 1e-12;
                self.kinds().for_each(|k| paid[k] -= too_much * self.slots[k]);
            }
            sum += self.kinds().map(|k| paid[k] * self.came(moment, k)).sum::<f64>();
            std::mem::swap(&mut value, &mut best);
        }
        sum / (self.last() + 1 - self.first) as f64
    }
}
