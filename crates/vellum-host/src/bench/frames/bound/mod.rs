//! How much of free memory can be 2 MiB blocks after churn, at most, wherever blocks are placed.
//!
//! `docs/rows.md` has the argument. A life is followed from moment to moment. Each block that is
//! placed has a price, by its order and the moment. If no 2 MiB block earns more by what is placed
//! in it than it costs by the moments that it is in use, then all that is paid is at most what all
//! of them cost. Any prices give a bound: those by which a block would gain are lowered until none
//! does. Good ones are found as on a market: up where less is placed than came, else down.

mod course;
mod model;
mod parts;
mod prices;

use super::fragment::{LIVES, Life};
use course::Course;
use model::Model;

/// How closely a life is followed.
#[derive(Clone, Copy, Debug)]
pub struct Detail {
    /// log2 of the frames in a slot: of a smaller block, only one frame in each slot is looked at.
    pub slot: usize,
    /// From one moment to the next, as a share of the time in which all that is held is replaced.
    pub apart: f64,
    /// How many times prices are changed.
    pub rounds: usize,
}

/// The lives that have a bound: the names of their rows.
pub fn names() -> impl Iterator<Item = &'static str> {
    LIVES.iter().map(|life| life.name)
}

/// The most that an allocator can have in the life of the row of that name and that seed, in
/// percent: in the mean over the second half of the life and over which blocks are drawn. The row
/// looks at some of these moments. `None` if there is no such row.
pub fn most(name: &str, seed: u64, detail: Detail) -> Option<f64> {
    let life = LIVES.iter().find(|life| life.name == name)?;
    Some(of(life, life.steps, seed, detail))
}

/// The same of a life that takes `steps` steps.
pub(super) fn of(life: &Life, steps: u64, seed: u64, detail: Detail) -> f64 {
    let course = Course::of(life, steps, seed, detail.apart, 1 << (9 - detail.slot));
    let prices = Model::new(&course, detail.slot, true).prices(detail.rounds);
    course.share(Model::new(&course, detail.slot, false).in_use(&prices))
}

#[cfg(test)]
mod tests {
    use super::parts::Parts;
    use super::*;

    #[test]
    fn parts_are_all_that_four_slots_hold() {
        // A half is empty, has one unit or two, or is one block: pairs of four.
        let parts = Parts::new(&[0, 1], 2);
        assert_eq!(parts.len(), 10);
        let most = parts.units[0].iter().zip(&parts.units[1]).map(|(&a, &b)| a + 2 * b).max();
        assert_eq!(most, Some(4));
        for x in 0..parts.len() {
            for k in 0..2 {
                assert_eq!(parts.less[k].of(x).len(), parts.units[k][x] as usize);
                for &y in parts.more[k].of(x) {
                    assert!(y as usize > x && parts.less[k].of(y as usize).contains(&(x as u32)));
                }
            }
        }
    }

    #[test]
    fn prices_that_are_too_high_are_lowered() {
        let course = Course::of(&LIVES[2], 100_000, 1, 0.05, 2);
        let model = Model::new(&course, 8, false);
        let prices = vec![vec![100.0]; course.held.len()];
        // Each alone in a 2 MiB block.
        let most: f64 = course.held.iter().flat_map(|held| &held[..9]).sum();
        let in_use = model.in_use(&prices) * (course.held.len() - course.first) as f64;
        assert!(in_use > 0.0 && in_use < most, "{in_use} of {most}");
    }
}
