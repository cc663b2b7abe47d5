//! Circles of imports: files that name each other, directly or through others.

use crate::sources::{Crate, Source};
use crate::{Finding, LIBRARY};
use std::collections::BTreeSet;

/// The most files of the library that may name each other, all in one folder or not.
const LARGEST: usize = 3;

/// The circles of the crate in `src` that are too large: of more than [`LARGEST`] files in the
/// library; across folders in the other crates.
pub fn circles(src: &str, files: &[Source]) -> Vec<Finding> {
    let read = Crate::new(src, files);
    let mentions: usize = read.mentions.iter().map(Vec::len).sum();
    assert!(mentions > 0, "{src}: nothing is named in {} files", files.len());
    let mut arrows: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); files.len()];
    for (file, mentions) in read.mentions.iter().enumerate() {
        for mention in mentions {
            let Some((target, _)) = read.resolve(&mention.module, &mention.path) else { continue };
            // A module's face names its parts; that by itself is no dependence.
            let part = mention.exported && files[target].path.starts_with(files[file].folder());
            if target != file && !part {
                arrows[file].insert(target);
            }
        }
    }
    let reached: Vec<BTreeSet<usize>> = (0..files.len()).map(|from| reach(&arrows, from)).collect();
    let mut found = Vec::new();
    for from in 0..files.len() {
        let circle: Vec<usize> =
            reached[from].iter().copied().filter(|to| reached[*to].contains(&from)).collect();
        if circle.first() != Some(&from) {
            continue;
        }
        let folders: BTreeSet<&str> = circle.iter().map(|f| files[*f].folder()).collect();
        let refused = if src == LIBRARY { circle.len() > LARGEST } else { folders.len() > 1 };
        if refused {
            let mut text = format!("is in a circle of {} files:", circle.len());
            for &file in &circle {
                let to = arrows[file].iter().filter(|to| circle.contains(to));
                let to: Vec<&str> = to.map(|to| short(src, &files[*to])).collect();
                text += &format!("\n    {} -> {}", short(src, &files[file]), to.join(" "));
            }
            found.push(Finding::new("circle", &files[from].path, "", text));
        }
    }
    found
}

fn short<'a>(src: &str, file: &'a Source) -> &'a str {
    file.path.strip_prefix(src).unwrap().trim_start_matches('/')
}

fn reach(arrows: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        open.extend(arrows[at].iter().filter(|to| reached.insert(**to)));
    }
    reached
}

#[test]
fn a_circle_is_found() {
    let told = |src: &str, folder: &str| {
        let ring = |from: &str, to: &str| {
            Source::new(&format!("{src}/{from}.rs"), &format!("use crate::{to}::X; pub struct X;"))
        };
        let last = format!("{folder}d").replace('/', "::");
        let mut files = vec![
            Source::new(&format!("{src}/lib.rs"), "mod a; mod b; mod c; mod d; mod e;"),
            ring("a", "b"),
            ring("b", "c"),
            ring("c", &last),
            ring(&format!("{folder}d"), "a"),
        ];
        files.push(Source::new(&format!("{src}/e/mod.rs"), "pub mod d;"));
        files.retain(|f| folder.is_empty() || !f.path.ends_with("src/d.rs"));
        circles(src, &files).into_iter().map(|f| f.key).collect::<Vec<_>>()
    };
    assert_eq!(told(LIBRARY, ""), ["circle crates/vellum/src/a.rs"]);
    assert_eq!(told("crates/vellum-sim/src", ""), [""; 0]);
    assert_eq!(told("crates/vellum-sim/src", "e/"), ["circle crates/vellum-sim/src/a.rs"]);
}

#[test]
fn re_exports_are_followed_to_the_file_that_defines() {
    let files = [
        Source::new("crates/vellum-sim/src/lib.rs", "mod a; mod b;"),
        Source::new("crates/vellum-sim/src/a/mod.rs", "mod x; pub use x::X; use crate::b::B;"),
        Source::new("crates/vellum-sim/src/a/x.rs", "pub struct X;"),
        Source::new("crates/vellum-sim/src/b.rs", "use crate::a::X; pub struct B;"),
    ];
    assert!(circles("crates/vellum-sim/src", &files).is_empty());
}
