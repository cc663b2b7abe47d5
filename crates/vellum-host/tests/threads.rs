//! Two threads that fault in one space do not stand in each other's way.
//!
//! A file of its own, so that no other test runs beside it. Where the computer is too busy to tell, the test says so past what the harness catches
//! of a test's output, and `./test` counts it among what was skipped.

use std::io::Write;

use vellum_host::bench::conditions;
use vellum_host::bench::worth::{Verdict, measure};

fn skip(why: &str) {
    let _ = writeln!(
        std::io::stderr(),
        "skipped: whether a second thread faulting in the same space is worth something: {why}"
    );
}

#[test]
fn a_second_thread_faulting_in_the_same_space_is_worth_something() {
    if conditions::cores() < 2 {
        return skip("it takes two cores");
    }
    let found = measure().unwrap();
    let said = format!("{found}; load {:?}", conditions::load());
    eprintln!("{said}");
    match found.verdict() {
        Verdict::Scales => {}
        Verdict::Serialises => panic!("{said}"),
        Verdict::CannotTell => skip(&said),
    }
}
