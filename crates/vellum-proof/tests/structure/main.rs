//! The structure of the project, read from its sources: which layer may name which, circles of
//! imports, and limits on what one thing may hold. Each check is given planted violations, too.

mod circles;
mod exempt;
mod layers;
mod limits;
mod sources;

use exempt::EXEMPT;
use sources::Source;

/// The library's sources.
const LIBRARY: &str = "crates/vellum/src";

/// Something that a check refuses.
pub struct Finding {
    /// What kind, which file and which item: stays while lines move.
    pub key: String,
    /// What is wrong.
    pub text: String,
}

impl Finding {
    fn new(kind: &str, path: &str, item: &str, text: String) -> Finding {
        Finding { key: format!("{kind} {path} {item}").trim_end().into(), text }
    }
}

/// Fails with what of `found` is not exempt, and with what is exempt for nothing. `kinds` are those
/// that the check reports.
fn judge(kinds: &[&str], found: Vec<Finding>) {
    let of_kind = |key: &str| kinds.contains(&key.split(' ').next().unwrap());
    let mut wrong: Vec<String> = found
        .iter()
        .filter(|f| !exempt().any(|key| f.key == key))
        .map(|f| format!("{}: {}", f.key, f.text))
        .collect();
    for key in exempt().filter(|key| of_kind(key)) {
        if found.iter().all(|f| f.key != key) {
            wrong.push(format!("{key}: exempt, but not found: take it out of EXEMPT"));
        }
    }
    assert!(found.iter().all(|f| of_kind(&f.key)), "a check reports a kind that is not its own");
    assert!(wrong.is_empty(), "{} refused:\n{}", wrong.len(), wrong.join("\n"));
}

fn exempt() -> impl Iterator<Item = &'static str> {
    EXEMPT.iter().flat_map(|(_, keys)| keys.iter().copied())
}

/// Every source of the project.
fn everything() -> Vec<Source> {
    let files: Vec<Source> =
        ["crates", "kernel", "fuzz"].into_iter().flat_map(sources::read).collect();
    assert!(files.len() > 400, "only {} files", files.len());
    files
}

/// The folders that hold the sources of a crate.
fn crates() -> Vec<String> {
    let folders = std::fs::read_dir(sources::root().join("crates")).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut found: Vec<String> = folders
        .map(|entry| format!("crates/{}/src", name(entry).to_str().unwrap()))
        .chain(["kernel/src".into(), "fuzz/src".into()])
        .collect();
    found.sort();
    assert!(found.len() >= 8, "{found:?}");
    found
}

#[test]
fn no_layer_names_one_above_it() {
    let files = sources::read(LIBRARY);
    assert!(files.len() > 50, "only {} files", files.len());
    judge(&["arrow", "layer"], layers::upward(&files));
}

#[test]
fn circles_of_imports_are_small() {
    let mut found = Vec::new();
    for src in crates() {
        found.extend(circles::circles(&src, &sources::read(&src)));
    }
    judge(&["circle"], found);
}

#[test]
fn types_of_the_library_have_few_methods() {
    judge(&["methods"], limits::methods(LIBRARY, &sources::read(LIBRARY)));
}

#[test]
fn signatures_are_short() {
    let found = everything().iter().flat_map(limits::signatures).collect();
    judge(&["parameters", "tuple"], found);
}

#[test]
fn folders_hold_few_files() {
    judge(&["folder"], limits::folders(&everything()));
}

#[test]
fn lines_fit() {
    judge(&["columns"], everything().iter().flat_map(limits::columns).collect());
}

#[test]
fn heads_are_short() {
    let files = everything();
    let sources = files.iter().filter(|f| f.path.contains("/src/"));
    judge(&["head"], sources.flat_map(limits::head).collect());
}
