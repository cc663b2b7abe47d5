//! Ranges at the ends of what a number can hold.

use vellum::addr::{Level, Order, Pfn, Va, VaRange};
use vellum::error::RangeError;

const TOP: Va = Va(1 << 47);

#[test]
fn the_last_page_of_the_user_half_is_a_range() {
    let r = VaRange::new(Va(TOP.0 - 4096), 4096, TOP).unwrap();
    assert_eq!((r.end(), r.pages()), (TOP, 1));
    assert!(r.contains(Va(TOP.0 - 1)) && !r.contains(TOP));
    assert_eq!(VaRange::new(Va(TOP.0 - 4096), 8192, TOP), Err(RangeError::OutOfSpace));
    assert_eq!(VaRange::new(TOP, 4096, TOP), Err(RangeError::OutOfSpace));
}

#[test]
fn lengths_that_wrap_are_refused() {
    assert_eq!(VaRange::new(Va(4096), 0u64.wrapping_sub(4096), TOP), Err(RangeError::OutOfSpace));
    assert_eq!(VaRange::new(Va(0u64.wrapping_sub(4096)), 8192, TOP), Err(RangeError::OutOfSpace));
}

#[test]
fn zero_and_odd_lengths_are_refused() {
    assert_eq!(VaRange::new(Va(4096), 0, TOP), Err(RangeError::Empty));
    assert_eq!(VaRange::new(Va(4096), 1, TOP), Err(RangeError::Unaligned));
    assert_eq!(VaRange::new(Va(1), 4096, TOP), Err(RangeError::Unaligned));
}

#[test]
fn ranges_that_only_touch_do_not_intersect() {
    let a = VaRange::new(Va(0x1000), 0x2000, TOP).unwrap();
    let b = VaRange::new(Va(0x3000), 0x1000, TOP).unwrap();
    assert_eq!(a.intersect(b), None);
    let c = VaRange::new(Va(0x2000), 0x9000, TOP).unwrap();
    assert_eq!(a.intersect(c), Some(VaRange::new(Va(0x2000), 0x1000, TOP).unwrap()));
}

#[test]
fn levels_orders_and_slots_agree() {
    for (level, order, bytes) in [(1, 0, 4096u64), (2, 9, 2 << 20), (3, 18, 1 << 30)] {
        let level = Level(level);
        assert_eq!(level.entry_bytes(), bytes);
        assert_eq!(level.leaf_order(), Order::new(order));
        assert_eq!(Order::new(order).unwrap().bytes(), bytes);
    }
    assert_eq!(Level(4).leaf_order(), None);
    assert_eq!(Order::new(19), None);
    let last = Va(TOP.0 - 1);
    assert_eq!((Level(4).slot(last), Level::ONE.slot(last)), (255, 511));
    assert!(Pfn(512).is_aligned(Order::HUGE) && !Pfn(513).is_aligned(Order::HUGE));
    assert_eq!(Pfn(1023).align_down(Order::HUGE), Pfn(512));
}
