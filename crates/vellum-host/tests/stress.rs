//! The concurrent stress under each family of rules. Short by default; `VELLUM_STRESS_OPS=5000000`
//! makes each run that long, `VELLUM_STRESS_SEED=n` repeats one.

use vellum::stats::Counter;
use vellum_host::stress::variants::VARIANTS;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.trim().parse().unwrap_or_else(|_| panic!("{name}={text}: a whole number is wanted")))
}

fn play(name: &str) {
    let seed = number("VELLUM_STRESS_SEED").unwrap_or(1);
    let variant = VARIANTS.iter().find(|v| v.name == name).expect("a variant of that name");
    println!("{name}: seed {seed}");
    let (outcome, stats) = variant.run(seed, number("VELLUM_STRESS_OPS")).expect("a machine");
    println!("{name}: {outcome}");
    let counted = Counter::ALL.iter().filter(|&&c| stats.get(c) != 0);
    println!(
        "  {}",
        counted.map(|&c| format!("{} {}", c.name(), stats.get(c))).collect::<Vec<_>>().join(", ")
    );
    assert!(
        outcome.compared > outcome.operations / 10,
        "a run that compares nothing proves nothing: {outcome}"
    );
}

#[test]
fn threads_on_x86_see_only_what_is_theirs_and_no_frame_is_lost() {
    play("x86");
}

#[test]
fn threads_on_x86_with_pcid_see_only_what_is_theirs_and_no_frame_is_lost() {
    play("x86 with contexts");
}

#[test]
fn threads_on_aarch64_see_only_what_is_theirs_and_no_frame_is_lost() {
    play("aarch64");
}

#[test]
fn tiny_tlbs_and_more_cpus_than_cores_change_nothing() {
    play("8 CPUs, tiny TLBs");
}

#[test]
fn memory_that_runs_out_changes_nothing_but_what_is_refused() {
    play("little memory");
}

#[test]
fn base_pages_without_batching_or_zero_page_change_nothing() {
    play("thp=never zero.page=off tlb.batch=off");
}

#[test]
fn each_form_of_huge_zeros_changes_nothing() {
    for form in ["off", "table", "table-private"] {
        play(&format!("zero.huge={form}"));
    }
}

#[test]
fn five_levels_and_four_nodes_change_nothing() {
    play("five levels, four nodes");
}
