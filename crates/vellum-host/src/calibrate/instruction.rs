//! What an instruction takes when nothing misses.
//!
//! That depends on which ones they are: of a loop over an array a core retires five in a cycle, of
//! a chain of arithmetic one. So four loops as compilers write them, on 16 KiB, count alike: words
//! filled, summed, copied, and a random number made in each turn. Their geometric mean is the
//! figure. They are assembly, so that it is known how many instructions they have.

use super::figure::Figure;

/// Words of a loop's array, and rounds through it in a piece.
#[cfg(target_arch = "x86_64")]
const WORDS: usize = 1024;
#[cfg(target_arch = "x86_64")]
const ROUNDS: usize = 1000;

/// A loop: a body over `{from}`, `{to}`, `{i}` and a few registers, and how many instructions a
/// turn has, with the three that count turns.
#[cfg(target_arch = "x86_64")]
macro_rules! turns {
    ($from:ident, $to:ident, $count:literal: $($body:literal),+) => {
        super::figure::fastest(4, ROUNDS * WORDS * $count, || {
            for _ in 0..ROUNDS {
                // SAFETY: the registers point to arrays of `WORDS` words, and `i` stays below that.
                unsafe {
                    core::arch::asm!(
                        "/* {from} {to} {x} {t} */",
                        "2:",
                        $($body,)+
                        "add {i}, 1",
                        "cmp {i}, {n}",
                        "jne 2b",
                        i = inout(reg) 0usize => _,
                        n = in(reg) WORDS,
                        from = in(reg) $from.as_ptr(),
                        to = in(reg) $to.as_mut_ptr(),
                        x = inout(reg) 88_172_645_463_325_252u64 => _,
                        t = out(reg) _,
                        options(nostack)
                    );
                }
            }
        })
    };
}

/// The mean; `None` on an architecture for which there are no loops.
#[cfg(target_arch = "x86_64")]
pub(super) fn mean() -> Option<Figure> {
    let (from, mut to) = ([1u64; WORDS], [0u64; WORDS]);
    Some(Figure::settle(|| {
        let loops = [
            turns!(from, to, 6: "mov {t}, {i}", "xor {t}, {x}", "mov [{to} + {i} * 8], {t}"),
            turns!(from, to, 4: "add {x}, [{from} + {i} * 8]"),
            turns!(from, to, 5: "mov {t}, [{from} + {i} * 8]", "mov [{to} + {i} * 8], {t}"),
            turns!(from, to, 12: "mov {t}, {x}", "shl {t}, 13", "xor {x}, {t}", "mov {t}, {x}",
                "shr {t}, 7", "xor {x}, {t}", "mov {t}, {x}", "shl {t}, 17", "xor {x}, {t}"),
        ];
        std::hint::black_box(&to);
        (loops.iter().map(|ns| ns.ln()).sum::<f64>() / loops.len() as f64).exp()
    }))
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn mean() -> Option<Figure> {
    None
}
