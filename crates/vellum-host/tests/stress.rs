//! The concurrent stress under each family of rules, and its sequential sister. Short by default; `VELLUM_STRESS_OPS=5000000` makes each
//! run that long, `VELLUM_STRESS_SEED=n` repeats one.

use vellum::config::{Config, Thp};
use vellum::entry::{Aarch64, Codec, X86_64};
use vellum::stats::Counter;
use vellum_host::machine::{ARM, Plan, X86_PCID};
use vellum_host::mmu::buffer::Shape;
use vellum_host::stress::{Stress, run};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.trim().parse().unwrap_or_else(|_| panic!("{name}={text}: a whole number is wanted")))
}

fn play<C: Codec>(name: &str, change: impl FnOnce(&mut Stress)) {
    let seed = number("VELLUM_STRESS_SEED").unwrap_or(1);
    let mut stress = Stress::short(seed);
    change(&mut stress);
    if let Some(operations) = number("VELLUM_STRESS_OPS") {
        stress.operations = operations;
        stress.rounds = (operations / 50_000).max(stress.rounds);
    }
    println!("{name}: seed {seed}");
    let (outcome, stats) = run::<C>(stress).expect("a machine");
    println!("{name}: {outcome}");
    let counted = Counter::ALL.iter().filter(|&&c| stats.get(c) != 0);
    println!("  {}", counted.map(|&c| format!("{} {}", c.name(), stats.get(c))).collect::<Vec<_>>().join(", "));
    assert!(outcome.compared > outcome.operations / 10, "a run that compares nothing proves nothing: {outcome}");
}

#[test]
fn threads_on_x86_see_only_what_is_theirs_and_no_frame_is_lost() {
    play::<X86_64>("x86", |_| {});
}

#[test]
fn threads_on_x86_with_pcid_see_only_what_is_theirs_and_no_frame_is_lost() {
    play::<X86_64>("x86 with contexts", |s| s.machine.rules = X86_PCID);
}

#[test]
fn threads_on_aarch64_see_only_what_is_theirs_and_no_frame_is_lost() {
    play::<Aarch64>("aarch64", |s| s.machine.rules = ARM);
}

#[test]
fn tiny_tlbs_and_more_cpus_than_cores_change_nothing() {
    play::<X86_64>("8 CPUs, tiny TLBs", |s| {
        s.machine = Plan { cpus: 8, tlb: Shape::TINY, ..s.machine };
    });
}

#[test]
fn memory_that_runs_out_changes_nothing_but_what_is_refused() {
    play::<X86_64>("little memory", |s| {
        s.machine.bytes = 12 << 20;
        s.spaces = 1;
    });
}

#[test]
fn base_pages_without_batching_or_zero_page_change_nothing() {
    play::<X86_64>("thp=never zero.page=off tlb.batch=off", |s| {
        s.config = Config { thp: Thp::Never, zero_page: false, tlb_batch: false, ..Config::default() };
    });
}

#[test]
fn five_levels_and_four_nodes_change_nothing() {
    play::<X86_64>("five levels, four nodes", |s| {
        s.machine.rules.levels = 5;
        s.machine.nodes = 4;
        s.config.numa = vellum::config::NumaPolicy::Interleave;
    });
}

#[test]
fn sequential_scripts_do_what_the_model_says_with_a_recount_after_every_command() {
    // `VELLUM_SCRIPT_SEED=n` repeats one; a failure prints the shortest script that still fails.
    let seeds = number("VELLUM_SCRIPT_SEED").map_or(0..number("VELLUM_SCRIPT_SEEDS").unwrap_or(40), |n| n..n + 1);
    seeds.for_each(|seed| vellum_host::stress::script::check(seed, 300));
}
