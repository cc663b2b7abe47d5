//! The bits of a 2 MiB block, and finding aligned runs in a word of them.
//!
//! A word holds 64 frames of a block (set: taken) or 64 blocks of a node (set: busy). A few shifts
//! find every aligned run of 2^n clear bits of a word at once.

use crate::sync::atomic::AtomicU64;

/// log2 of the frames in a block.
pub const BLOCK: u32 = 9;
/// Words of 64 frames in a block.
pub const WORDS: usize = 8;
/// Orders of sub-blocks, 0 to 8. The free index has a row for each.
pub const ROWS: usize = BLOCK as usize;

/// The bits of one block: a cache line.
#[repr(C, align(64))]
pub struct Bits(pub [AtomicU64; WORDS]);

/// Bits whose position is a multiple of 2^order.
const ALIGNED: [u64; 7] = [
    !0,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    0x0000_0000_0000_0001,
];

/// The lowest 2^order bits; `order` is at most 6.
#[inline]
pub const fn mask(order: u32) -> u64 {
    if order == 6 { !0 } else { (1 << (1u32 << order)) - 1 }
}

/// Where aligned runs of 2^order set bits start; `order` is at most 6.
#[inline]
pub const fn runs(free: u64, order: u32) -> u64 {
    let mut starts = free;
    let mut step = 0;
    while step < order {
        starts &= starts >> (1u32 << step);
        step += 1;
    }
    starts & ALIGNED[order as usize]
}

/// Where aligned runs of exactly 2^order set bits start, those whose buddy is not all set; `order`
/// is at most 5.
#[inline]
pub const fn exact(free: u64, order: u32) -> u64 {
    let starts = runs(free, order);
    let larger = starts & (starts >> (1u32 << order)) & ALIGNED[order as usize + 1];
    starts & !(larger | larger << (1u32 << order))
}

/// The orders of all exact runs, as bits; `top` and larger ones count as `top`, which is at most 6.
#[inline]
pub const fn exact_orders(free: u64, top: u32) -> u32 {
    let (mut runs, mut orders, mut order) = (free, 0, 0);
    while runs != 0 && order < top {
        let pairs = runs & runs >> (1u32 << order) & ALIGNED[order as usize + 1];
        orders |= ((runs & !(pairs | pairs << (1u32 << order)) != 0) as u32) << order;
        runs = pairs;
        order += 1;
    }
    orders | ((runs != 0) as u32) << order
}

/// The bits of aligned runs of 2^order and more; `order` is at most 5.
#[inline]
pub const fn within(free: u64, order: u32) -> u64 {
    let mut all = runs(free, order);
    let mut step = 0;
    while step < order {
        all |= all << (1u32 << step);
        step += 1;
    }
    all
}

/// The largest aligned run of set bits around one of order `from` that starts at a bit: its order
/// and its bits.
#[inline]
pub const fn grown(free: u64, at: u32, from: u32) -> (u32, u64) {
    let (mut order, mut run) = (from, mask(from) << at);
    while order < 6 {
        let larger = mask(order + 1) << (at & !((2u32 << order) - 1));
        if free & larger != larger {
            break;
        }
        order += 1;
        run = larger;
    }
    (order, run)
}

/// The lowest `n` set bits of `free`, which has at least as many.
#[inline]
pub const fn lowest(free: u64, n: u32) -> u64 {
    let mut rest = free;
    let mut left = n;
    while left > 0 {
        rest &= rest - 1;
        left -= 1;
    }
    free & !rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_agree_with_looking_at_every_place() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..2000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            // Dense words, so that long runs occur.
            let free = if round % 3 == 0 {
                seed
            } else {
                seed | seed.rotate_left(7) | seed.rotate_left(29)
            };
            let free = if round % 5 == 0 { free | 0xffff_ffff } else { free };
            for order in 0..=6 {
                let mut expected = 0u64;
                let n = 1u32 << order;
                for at in (0..64).step_by(n as usize) {
                    if (0..n).all(|i| free >> (at + i) & 1 == 1) {
                        expected |= 1 << at;
                    }
                }
                assert_eq!(runs(free, order), expected, "{free:#x} {order}");
                assert_eq!(mask(order).count_ones(), n);
            }
            let orders = (0..6).filter(|&o| exact(free, o) != 0).fold(0, |all, o| all | 1 << o);
            assert_eq!(exact_orders(free, 6), orders | ((free == !0) as u32) << 6, "{free:#x}");
            let n = free.count_ones() / 2;
            assert_eq!(lowest(free, n).count_ones(), n);
            assert_eq!(lowest(free, n) & !free, 0);
        }
        assert_eq!(runs(!0, 6), 1);
    }
}
