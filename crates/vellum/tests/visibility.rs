//! What is visible in the whole crate is used outside of its folder.
//!
//! The compiler does not say when `pub(super)` or nothing would do in place of `pub(crate)`. This
//! test goes by names: one that is written nowhere outside of the item's folder is visible too
//! widely. A name that two items share escapes it. Types are left out: a folder may use a value
//! whose type it does not name.

use std::collections::HashMap;
use std::path::Path;

use vellum_testkit::prelude::*;

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Where `pub(super)` would reach, or nothing where it reaches the whole crate: a path's beginning.
fn home(path: &str) -> &str {
    let Some((folder, file)) = path.rsplit_once('/') else {
        return path.strip_suffix(".rs").unwrap();
    };
    match folder.rsplit_once('/') {
        Some((above, _)) if file == "mod.rs" => above,
        _ => folder,
    }
}

#[test]
fn what_the_whole_crate_sees_is_used_outside_of_its_folder() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = sources(&root.join("src"));
    let library = all.len();
    // The models see the library as its own folders do.
    all.extend(sources(&root.join("../vellum-loom/src")));
    let mut users: HashMap<&str, Vec<&str>> = HashMap::new();
    for (at, (path, text)) in all.iter().enumerate() {
        let path = if at < library { path } else { "(loom)" };
        for line in code(text) {
            words(line).for_each(|word| users.entry(word).or_default().push(path));
        }
    }
    let mut wide = Vec::new();
    for (path, text) in &all[..library] {
        for line in text.lines() {
            let Some(item) = line.trim_start().strip_prefix("pub(crate) ") else { continue };
            let kinds = ["const", "unsafe", "fn", "static", "mod"];
            let name = words(item).find(|word| !kinds.contains(word)).unwrap_or("");
            let named = ["use", "struct", "enum", "trait", "type"].contains(&name);
            if !named && users[name].iter().all(|user| user.starts_with(home(path))) {
                wide.push(format!("{path}: {name}"));
            }
        }
    }
    assert!(wide.is_empty(), "narrower would do:\n{}", wide.join("\n"));
}
