//! What `scripts/truth` is made of: its statistics, its page, and that its programs run. How fast
//! they are is judged by nobody here.
#![allow(dead_code, reason = "the parts that measure are used by the example alone")]

#[path = "../../examples/truth/cases.rs"]
mod cases;
#[path = "../../examples/truth/native.rs"]
mod native;
#[path = "../../examples/truth/predict.rs"]
mod predict;
#[path = "../../examples/truth/report.rs"]
mod report;
#[path = "../../examples/truth/statistics.rs"]
mod statistics;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use cases::{CASES, FOLDER};
use native::{PAGES, SMALL, Times};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_program_has_a_row_and_every_row_a_program() {
    let files: BTreeSet<String> = std::fs::read_dir(root().join(FOLDER))
        .expect("the folder of the programs")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    let used: BTreeSet<String> = CASES.iter().map(|c| c.program.to_owned()).collect();
    assert_eq!(files, used);
    assert!(files.len() >= 12);
    let names: BTreeSet<&str> = CASES.iter().map(|c| c.name).collect();
    assert_eq!(names.len(), CASES.len(), "no name twice");
}

#[test]
fn every_program_compiles_without_a_warning_and_runs_small_in_all_pages() {
    let folder = std::env::temp_dir().join(format!("vellum-truth-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for programs");
    // Without huge pages in the kernel there is nothing to ask for.
    let pages: &[Option<&str>] = if Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        &[None, Some("never"), Some("always")]
    } else {
        &[None]
    };
    for case in CASES {
        let program =
            cases::compile(&root(), case.program, &folder).unwrap_or_else(|e| panic!("{e}"));
        for pages in pages {
            let mut command = Command::new(&program);
            command.args(case.args).env(SMALL, "1").env_remove(PAGES);
            if let Some(pages) = pages {
                command.env(PAGES, pages);
            }
            let said = command.output().expect("a program that was just compiled");
            let text = String::from_utf8_lossy(&said.stderr);
            assert!(said.status.success(), "{} in {pages:?}: {text}", case.name);
        }
    }
    std::fs::remove_dir_all(&folder).expect("our own folder");
}

#[test]
fn a_program_that_does_not_compile_is_told_with_what_the_compiler_says() {
    let said = cases::compile(&root(), "there-is-none", &std::env::temp_dir());
    let text = said.expect_err("there is no such program");
    assert!(text.contains("does not compile"), "{text}");
}

#[test]
fn kept_times_are_read_as_they_were_written() {
    let times = Times { never: vec![2.0; 7], always: vec![1.0; 7] };
    let again = Times::from_json(&times.to_json()).expect("our own JSON");
    assert_eq!((again.never.len(), again.ratio()), (7, times.ratio()));
    assert_eq!(again.ratio().value, 0.5);
}
