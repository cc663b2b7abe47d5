//! An invented mix, for what a compilation does not show: calls that take many pages, and large
//! objects that are filled in other orders than upwards.
//!
//! From the published figures it has the share of such calls, 0.18 %. The rest is our choice: of
//! every ten objects seven are filled upwards, one downwards, one at a distance of 16 pages, one at
//! random; sizes of 1 to 65,536 pages, each power of two as likely as the next; 16 objects at a
//! time.

use vellum_sim::schedule::Rng;

use super::load::ObjectPage;
use super::shapes::disciplines::{Discipline, Tries};

/// Calls at least.
const CALLS: u64 = 200_000;
/// Objects that are filled at one time.
const BESIDE: usize = 16;
/// Of so many calls one takes many pages: 694,000 + 400 of 382,000,000.
const GRAB: u64 = 550;
/// That many.
const GRABBED: u64 = 16;
/// Sizes are powers of two up to this one.
const LARGEST: u64 = 16;
/// The distance of objects that are filled at one.
const STRIDE: u64 = 16;

/// An object that is being filled.
struct Filling {
    object: usize,
    order: Vec<u64>,
}

impl Filling {
    fn new(object: usize, rng: &mut Rng) -> Filling {
        let high = 1 << rng.below(LARGEST + 1);
        let pages = high / 2 + rng.below(high / 2 + 1);
        let mut order: Vec<u64> = (0..pages.max(1)).collect();
        // The next page is the last of the vector.
        match rng.below(10) {
            0 => {}
            1 => order.sort_by_key(|page| std::cmp::Reverse((page % STRIDE, *page))),
            2 => {
                for last in (1..order.len()).rev() {
                    order.swap(last, rng.below(last as u64 + 1) as usize);
                }
            }
            _ => order.reverse(),
        }
        Filling { object, order }
    }
}

/// Fills objects.
pub fn fill(seed: u64, discipline: Discipline, tries: &mut dyn Tries) {
    let mut rng = Rng::new(seed);
    let mut open: Vec<Filling> = (0..BESIDE).map(|n| Filling::new(n, &mut rng)).collect();
    for _ in 0..CALLS {
        let nth = rng.below(BESIDE as u64) as usize;
        let filling = &mut open[nth];
        let Some(index) = filling.order.pop() else {
            tries.clear(filling.object);
            open[nth] = Filling::new(filling.object + BESIDE, &mut rng);
            continue;
        };
        let page = ObjectPage { object: filling.object, index };
        if rng.one_in(GRAB) {
            tries.grab(page, GRABBED, discipline);
        } else {
            tries.fault(page, discipline);
        }
    }
}
