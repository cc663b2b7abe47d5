//! The stress of objects under each family of rules, short. `VELLUM_STRESS_OPS=1000000` makes each
//! run that long, `VELLUM_STRESS_SEED=n` gives another seed, `VELLUM_STRESS_SETTINGS=name` takes
//! those settings alone.

use vellum_host::stress::variants::VARIANTS;

fn number(name: &str, otherwise: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return otherwise };
    text.trim().parse().unwrap_or_else(|_| panic!("{name}={text}: a whole number is wanted"))
}

#[test]
fn threads_that_share_objects_see_what_all_of_them_stored() {
    let seed = number("VELLUM_STRESS_SEED", 1);
    let only = std::env::var("VELLUM_STRESS_SETTINGS").unwrap_or_default();
    for variant in VARIANTS.iter().filter(|variant| variant.name.contains(&only)) {
        let (outcome, _) =
            variant.run_objects(seed, number("VELLUM_STRESS_OPS", 10_000)).expect("a machine");
        println!("{}: seed {seed}: {outcome}", variant.name);
        let each = [
            outcome.stores,
            outcome.kept,
            outcome.zeros,
            outcome.beyond,
            outcome.denied,
            outcome.resizes,
            outcome.holes,
            outcome.own,
            outcome.forks,
        ];
        assert!(each.iter().all(|&n| n > 0), "a run without some of it proves nothing: {outcome}");
    }
}
