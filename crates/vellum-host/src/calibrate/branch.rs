//! What a branch takes that was predicted wrongly.
//!
//! A loop asks a bit of each byte of an array in turn. Of random bytes no core can predict it, and
//! the branch goes the other way than predicted half of the time. The same loop over the same bytes
//! that asks for a bit which none has is always predicted. What lies between the two is the time
//! of half a misprediction for each byte, from the byte's arrival on: the core finds out, gives up
//! what it has begun and begins anew.

use super::figure::Figure;

/// Bytes of the array: more than any core remembers branches of.
#[cfg(target_arch = "x86_64")]
const BYTES: usize = 256 << 10;

/// A turn for each byte, with a branch on the bits of `mask`. Returns how many have some.
#[cfg(target_arch = "x86_64")]
fn turns(bytes: &[u8], mask: u8) -> u64 {
    let mut with = 0u64;
    // SAFETY: `i` stays below the slice's length, and only registers are written.
    unsafe {
        core::arch::asm!(
            "2:",
            "test byte ptr [{bytes} + {i}], {mask}",
            "jz 3f",
            "add {with}, 1",
            "3:",
            "add {i}, 1",
            "cmp {i}, {n}",
            "jne 2b",
            i = inout(reg) 0usize => _,
            n = in(reg) bytes.len(),
            bytes = in(reg) bytes.as_ptr(),
            mask = in(reg_byte) mask,
            with = inout(reg) with,
            options(nostack, readonly)
        );
    }
    with
}

/// The time of one, beside a branch that was predicted.
#[cfg(target_arch = "x86_64")]
pub(super) fn mispredicted() -> Option<Figure> {
    let mut x = 88_172_645_463_325_252u64;
    let mut random = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8 & 1
    };
    let bytes: Vec<u8> = (0..BYTES).map(|_| random()).collect();
    let time = |mask| {
        Figure::settle(|| {
            super::figure::fastest(16, BYTES, || {
                std::hint::black_box(turns(&bytes, mask));
            })
        })
    };
    let Figure { ns, spread } = time(1).beyond(time(2));
    Some(Figure { ns: 2.0 * ns, spread })
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn mispredicted() -> Option<Figure> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_loop_asks_each_byte_once() {
        assert_eq!(turns(&[1, 0, 1, 1, 0], 1), 3);
        assert_eq!(turns(&[1, 0, 1, 1, 0], 2), 0);
    }
}
