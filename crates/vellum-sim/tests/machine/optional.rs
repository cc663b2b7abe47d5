//! Hardware that a machine file may name or leave out: left out, the machine is without it.

use vellum_sim::cache::{Index, Policy, PrefetchShape};
use vellum_sim::file::{self, Machine, MachineError};

/// `tiny` with lines put in before a heading.
fn tiny_with(before: &str, lines: &str) -> Result<Machine, MachineError> {
    let text = file::preset_text("tiny").expect("a preset");
    assert!(text.contains(before), "the preset no longer has {before}");
    Machine::parse("my.toml", &text.replacen(before, &format!("{lines}\n{before}"), 1))
}

/// A constant as a line of a file.
fn line(key: &str, value: &str) -> String {
    format!("{key} = {{ value = {value}, basis = \"guess\", source = \"a choice\" }}\n")
}

#[test]
fn a_file_may_say_how_the_last_level_chooses_its_sets() {
    let with = |value| tiny_with("[tlb.l1i]", &line("index", value));
    let index = |machine: &Machine| machine.hierarchy(1).llc.index;
    assert_eq!(index(&file::preset("tiny").expect("valid")), Index::Modulo);
    assert_eq!(index(&with("\"modulo\"").expect("valid")), Index::Modulo);
    let hashed = with("\"hash\"").expect("valid");
    assert_eq!(index(&hashed), Index::Hash);
    assert_eq!(hashed.hierarchy(1).l2.index, Index::Modulo, "the last level alone");
    let rows = hashed.constants();
    assert!(rows.iter().any(|row| row.key == "llc.index" && row.value == "hash"));
    let message = with("\"xor\"").expect_err("refused").to_string();
    assert!(message.contains("unknown variant `xor`, expected `modulo` or `hash`"), "{message}");
    let message = tiny_with("[llc]", &line("index", "\"hash\"")).expect_err("refused").to_string();
    assert!(message.contains("unknown field `index`"), "no other level has it: {message}");
}

#[test]
fn a_cache_may_replace_by_not_recently_used_bits() {
    let tiny = file::preset("tiny").expect("valid");
    for level in ["l1i", "l1d", "l2", "llc"] {
        for (name, policy) in [("nru", Policy::Nru), ("nru-rotating", Policy::NruRotating)] {
            let machine = tiny.with(&format!("{level}.policy"), &format!("\"{name}\""));
            let shape = machine.expect("valid").hierarchy(1);
            let caches = [shape.l1i, shape.l1d, shape.l2, shape.llc];
            assert_eq!(caches.iter().filter(|cache| cache.policy == policy).count(), 1, "{level}");
        }
    }
}

#[test]
fn a_file_may_have_a_prefetcher_whose_three_constants_all_must_be_possible() {
    assert_eq!(file::preset("tiny").expect("valid").prefetcher(), None);
    let section = |keys: [(&str, &str); 3]| {
        let lines: String = keys.iter().map(|(key, value)| line(key, value)).collect();
        tiny_with("[tlb.l1i]", &format!("[prefetch]\n{lines}"))
    };
    let machine = section([("streams", "32"), ("train", "3"), ("depth", "20")]).expect("valid");
    let shape = PrefetchShape { streams: 32, train: 3, depth: 20 };
    assert_eq!(machine.prefetcher(), Some(shape));
    for key in ["prefetch.streams", "prefetch.train", "prefetch.depth"] {
        assert!(machine.constants().iter().any(|row| row.key == key), "{key}");
    }
    let half = machine.scaled("prefetch.depth", 1, 2).expect("valid");
    assert_eq!(half.prefetcher(), Some(PrefetchShape { depth: 10, ..shape }));
    for (key, value, say) in [
        ("streams", "0", "0 streams; use 1 to 256"),
        ("streams", "257", "257 streams; use 1 to 256"),
        ("train", "1", "1 misses; use 2 (which tell a direction) to 63"),
        ("train", "64", "64 misses; use 2"),
        ("depth", "0", "0 lines ahead; use 1 to 63"),
        ("depth", "64", "64 lines ahead; use 1 to 63"),
    ] {
        let message = machine.with(&format!("prefetch.{key}"), value).expect_err("refused");
        let message = message.to_string();
        assert!(message.contains(say) && message.contains(key), "'{message}' lacks '{say}'");
    }
    let message =
        section([("streams", "32"), ("train", "3"), ("ahead", "20")]).expect_err("no key");
    assert!(message.to_string().contains("unknown field `ahead`"), "{message}");
}
