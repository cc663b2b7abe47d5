//! The order of the library's layers.

use crate::sources::{Crate, Source};
use crate::{Finding, LIBRARY};

/// The layers of `vellum`, top to bottom. A layer may name those below it and none above.
const LAYERS: [&str; 13] = [
    "vm",
    "ops",
    "fault",
    "object",
    "vma",
    "pagetable",
    "rmap",
    "zero",
    "clear",
    "tlb",
    "memory",
    "frame",
    "platform",
];

/// What all layers stand on. These may name each other.
const BOTTOM: [&str; 8] = ["space", "sync", "entry", "machine", "config", "stats", "addr", "error"];

/// The rank of a file; a smaller one is higher. The crate's root stands above all.
fn rank(path: &str) -> Option<usize> {
    let inside = path.strip_prefix(LIBRARY)?.trim_start_matches('/');
    let layer = inside.split(['/', '.']).next()?;
    let place = || LAYERS.iter().position(|l| *l == layer);
    match layer {
        "lib" | "unstable" => Some(0),
        _ if BOTTOM.contains(&layer) => Some(LAYERS.len() + 1),
        _ => place().map(|at| at + 1),
    }
}

/// The arrows that run up: what a file names of a layer above its own.
pub fn upward(files: &[Source]) -> Vec<Finding> {
    let library = Crate::new(LIBRARY, files);
    let mut found = Vec::new();
    for (file, mentions) in files.iter().zip(&library.mentions) {
        if mentions.is_empty() {
            continue;
        }
        let Some(own) = rank(&file.path) else {
            found.push(Finding::new("layer", &file.path, "", "is in no layer".into()));
            continue;
        };
        for mention in mentions {
            // The layer that the path names, and the one where the item is defined.
            let resolved = |len: usize| library.resolve(&mention.module, &mention.path[..len]);
            let targets = (1..=mention.path.len()).filter_map(resolved);
            let paths = targets.map(|(target, _)| files[target].path.as_str());
            let above = |path: &&str| !path.ends_with("/lib.rs") && rank(path) < Some(own);
            let Some(above) = paths.into_iter().find(above) else { continue };
            let written = mention.path.join("::");
            let text = format!("line {}: `{written}` leads up to {above}", mention.line);
            found.push(Finding::new("arrow", &file.path, &written, text));
        }
    }
    found
}

#[test]
fn an_arrow_that_runs_up_is_found() {
    let lib = Source::new("crates/vellum/src/lib.rs", "mod frame; mod vm; pub use vm::Vm;");
    let vm = Source::new("crates/vellum/src/vm/mod.rs", "use crate::frame::Frames; pub struct Vm;");
    let told = |frame: &str| {
        let frame = Source::new("crates/vellum/src/frame.rs", frame);
        let files = [Source::new(&lib.path, &lib.text), Source::new(&vm.path, &vm.text), frame];
        upward(&files).into_iter().map(|f| f.key).collect::<Vec<_>>()
    };
    let key = |path| vec![format!("arrow crates/vellum/src/frame.rs {path}")];
    assert_eq!(told("pub struct Frames;"), [""; 0]);
    assert_eq!(told("use crate::vm::Vm;"), key("crate::vm::Vm"));
    assert_eq!(told("use crate::Vm;"), key("crate::Vm"));
    assert_eq!(told("use crate::{vm as top};"), key("crate::vm"));
    assert_eq!(told("fn f() { super::vm::g(); }"), key("super::vm::g"));
    assert_eq!(told("fn f() { assert!(crate::vm::ON); }"), key("crate::vm::ON"));
    assert_eq!(told("macro_rules! m { () => { $crate::vm::ON } }"), key("crate::vm::ON"));
    assert_eq!(told("#[cfg(test)] mod tests { use crate::vm::Vm; }"), [""; 0]);
}

#[test]
fn a_file_without_a_layer_is_found() {
    let lib = Source::new("crates/vellum/src/lib.rs", "mod attic;");
    let attic = Source::new("crates/vellum/src/attic.rs", "use core::fmt;");
    assert_eq!(upward(&[lib, attic])[0].key, "layer crates/vellum/src/attic.rs");
}
