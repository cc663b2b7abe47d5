//! The example of two CPUs, for ten seconds.

#[allow(dead_code, reason = "an example has a main")]
#[path = "../examples/two_cpus.rs"]
mod two_cpus;

#[test]
fn two_cpus_that_run_at_once_never_use_a_stale_translation() {
    assert!(two_cpus::run(std::time::Duration::from_secs(10)) > 0);
    let lines = include_str!("../examples/two_cpus.rs").lines().count();
    assert!(lines <= 200, "an example of {lines} lines");
}
