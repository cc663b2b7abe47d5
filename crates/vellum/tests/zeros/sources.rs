//! Rule F-7 in the sources: code that takes a leaf apart asks whether it is zeros.

use std::path::Path;

/// Sources that read leaves without asking whether they are zeros, and why.
const NEED_NOT_ASK: [(&str, &str); 3] = [
    ("fault/serve.rs", "hands every leaf that lacks the right to `Unshare`, which asks"),
    ("ops/copy.rs", "reads any leaf, and writes where the leaf gives writes, which zeros never do"),
    (
        "pagetable/transit.rs",
        "says which frame an entry names, whatever it is; who calls it has asked",
    ),
];

/// Every source below `dir`, by its path from `root`.
fn sources(root: &Path, dir: &Path, take: &mut dyn FnMut(&str, &str)) {
    for entry in std::fs::read_dir(dir).expect("the sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(root, &path, take);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().expect("a name");
            take(name, &std::fs::read_to_string(&path).expect("a source"));
        }
    }
}

#[test]
fn f_07_every_source_that_takes_leaves_apart_asks_the_one_predicate() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let asks = [
        "is_zero",
        "is_base_zero",
        "is_huge_zero",
        "zero_span",
        "is_page(",
        "page_of(",
        "takes_zeros",
    ];
    let mut readers = Vec::new();
    sources(root, root, &mut |name, text| {
        let code: String = text
            .lines()
            .filter(|l| !l.trim_start().starts_with("//"))
            .collect::<Vec<_>>()
            .join("\n");
        // A pattern that names a leaf's frame. The formats of entries know no zeros.
        let reads = [
            "Entry::Leaf(pfn",
            "Entry::Leaf(from",
            "Entry::Leaf(first",
            "Entry::Leaf(old",
            "Entry::Leaf(page",
        ];
        let patterns = |l: &str| {
            reads.iter().any(|r| l.contains(r))
                && (l.contains("=>") || l.contains("let ") || l.contains("if "))
        };
        if !name.starts_with("entry/") && code.lines().any(patterns) {
            readers.push(name.to_string());
            let excused = NEED_NOT_ASK.iter().any(|(file, _)| *file == name);
            assert!(
                excused || asks.iter().any(|ask| code.contains(ask)),
                "{name} reads leaves and does not ask for zeros"
            );
        }
    });
    assert!(readers.len() > 10, "{readers:?}");
    for (file, _) in NEED_NOT_ASK {
        assert!(readers.iter().any(|r| r == file), "{file} reads no leaf");
    }
}
