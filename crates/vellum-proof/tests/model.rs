//! Short runs of every setting, as a build machine wants them. `scripts/soak` does the long ones.

use vellum_proof::play::Outcome;
use vellum_proof::replay::{Care, explain, of_bytes, of_seed, run};
use vellum_proof::setting::Setting;

fn play(seeds: std::ops::Range<u64>, commands: usize, care: Care) -> Outcome {
    let mut sum = Outcome::default();
    for seed in seeds {
        let setting = Setting::of(seed);
        match run(&setting, of_seed(seed, commands), care) {
            Ok(outcome) => sum.add(outcome),
            Err(failure) => {
                let list: Vec<_> = of_seed(seed, commands).collect();
                panic!("seed {seed}, {}", explain(&setting, &list, &failure));
            }
        }
    }
    println!("{sum}");
    sum
}

#[test]
fn random_commands_do_what_the_model_says_in_every_setting() {
    let sum = play(0..96, 5000, Care::USUAL);
    assert!(
        sum.compared > 500_000 && sum.faults > 50_000 && sum.refused > 1000 && sum.shared > 5000,
        "too little happened: {sum}"
    );
}

#[test]
fn everything_adds_up_after_every_single_command() {
    play(1000..1032, 150, Care::GREAT);
}

#[test]
fn any_bytes_are_a_run() {
    let mut rng = vellum_host::rng::Rng::new(3);
    for length in [0, 1, 2, 50, 3000, 20_000] {
        let bytes: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
        let (setting, commands) = of_bytes(&bytes);
        run(&setting, commands, Care::USUAL).expect("no difference");
    }
}

#[test]
fn what_the_fuzzer_kept_does_what_the_model_says() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let (mut files, mut sum) = (0, Outcome::default());
    for entry in std::fs::read_dir(folder).expect("the folder of the fuzzer's files") {
        let path = entry.expect("an entry").path();
        let bytes = std::fs::read(&path).expect("a file");
        let (setting, commands) = of_bytes(&bytes);
        match run(&setting, commands, Care::USUAL) {
            Ok(outcome) => sum.add(outcome),
            Err(failure) => {
                let list: Vec<_> = of_bytes(&bytes).1.collect();
                panic!("{}: {}", path.display(), explain(&setting, &list, &failure));
            }
        }
        files += 1;
    }
    assert!(files > 50 && sum.operations > 10_000, "{files} files: {sum}");
}
