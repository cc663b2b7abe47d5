//! Bytes to commands, under libFuzzer.
//!
//! `vellum_proof::replay` gives the bytes their meaning; `vellum-proof bytes FILE` replays the same
//! bytes without instrumentation. libFuzzer counts runs, not operations, so they are counted here:
//! with `VELLUM_FUZZ_OPERATIONS=n` the program ends after that many and prints the number on its
//! last line. It ends with `_exit`, since libFuzzer takes any other end for a crash; its corpus is
//! on disk by then.

#![no_main]

use std::cell::RefCell;
use std::time::Instant;

use libfuzzer_sys::{Corpus, fuzz_target};
use vellum_proof::play::Outcome;
use vellum_proof::replay::{Care, explain, of_bytes, quietly, run};

struct Totals {
    start: Instant,
    runs: u64,
    sum: Outcome,
    wanted: u64,
}

thread_local! {
    static TOTALS: RefCell<Totals> = RefCell::new(Totals {
        start: Instant::now(),
        runs: 0,
        sum: Outcome::default(),
        wanted: std::env::var("VELLUM_FUZZ_OPERATIONS")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(u64::MAX),
    });
}

/// A run looks at everything at its end; in between there is no time to.
const CARE: Care = Care { recount: u64::MAX, compare: u64::MAX };

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let (setting, commands) = of_bytes(bytes);
    // libFuzzer's own hook would end the process before the panic is understood.
    match quietly(|| run(&setting, commands, CARE)) {
        Ok(outcome) => TOTALS.with_borrow_mut(|t| {
            t.runs += 1;
            t.sum.add(outcome);
            if t.sum.operations >= t.wanted {
                let took = t.start.elapsed().as_secs_f64();
                eprintln!(
                    "fuzz: {} runs: {}; {took:.1} s, {:.2} M operations/s",
                    t.runs,
                    t.sum,
                    t.sum.operations as f64 / took / 1e6
                );
                // SAFETY: ends the process at once; nothing of it is needed any more.
                unsafe { libc::_exit(0) }
            }
        }),
        Err(failure) => {
            let list: Vec<_> = of_bytes(bytes).1.collect();
            eprintln!("{}", explain(&setting, &list, &failure));
            std::process::abort();
        }
    }
    Corpus::Keep
});
