//! Source files, for tests that hold them to a rule.

use std::fs;
use std::path::Path;

/// Every Rust source below a folder: its path from there, and its text.
pub fn sources(root: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    below(root, "", &mut all);
    all
}

fn below(root: &Path, folder: &str, all: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(root.join(folder)).expect("a folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        let path = format!("{folder}{name}");
        if root.join(&path).is_dir() {
            below(root, &format!("{path}/"), all);
        } else if name.ends_with(".rs") {
            all.push((path.clone(), fs::read_to_string(root.join(path)).expect("a source")));
        }
    }
}

/// A source without the lines that are comments.
pub fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with("//"))
}
