//! Rule F-7 in the sources: code that takes a leaf apart asks whether it is zeros.

use std::path::Path;

use vellum_testkit::prelude::*;

/// Sources that read leaves without asking whether they are zeros, and why.
const NEED_NOT_ASK: [(&str, &str); 3] = [
    ("fault/serve.rs", "hands every leaf that lacks the right to `Unshare`, which asks"),
    ("ops/copy.rs", "reads any leaf, and writes where the leaf gives writes, which zeros never do"),
    (
        "pagetable/transit.rs",
        "says which frame an entry names, whatever it is; who calls it has asked",
    ),
];

#[test]
fn f_07_every_source_that_takes_leaves_apart_asks_the_one_predicate() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let asks = "is_zero is_base_zero is_huge_zero zero_span is_page( page_of( takes_zeros";
    let mut readers = Vec::new();
    for (name, text) in sources(root) {
        let code = code(&text).collect::<Vec<_>>().join("\n");
        // A pattern that names a leaf's frame, perhaps the first line of one. The formats of
        // entries know no zeros.
        let reads =
            ["pfn", "from", "first", "old", "page"].map(|name| format!("Entry::Leaf({name}"));
        let patterns = |l: &str| {
            reads.iter().any(|r| l.contains(r))
                && (l.contains("=>") || l.contains("let ") || l.contains("if ") || l.contains("_)"))
        };
        if !name.starts_with("entry/") && code.lines().any(patterns) {
            let excused = NEED_NOT_ASK.iter().any(|(file, _)| *file == name);
            let asked = excused || asks.split(' ').any(|ask| code.contains(ask));
            assert!(asked, "{name} reads leaves and does not ask for zeros");
            readers.push(name);
        }
    }
    assert!(readers.len() > 10, "{readers:?}");
    for (file, _) in NEED_NOT_ASK {
        assert!(readers.iter().any(|r| r == file), "{file} reads no leaf");
    }
}
