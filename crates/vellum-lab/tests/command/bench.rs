//! `vellum bench`: its JSON, its tables, what it refuses, and that it stops when told to.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::common::vellum;
use serde_json::Value;

fn rows(args: &[&str]) -> Vec<Value> {
    let said = vellum(args);
    assert_eq!(said.code, Some(0), "{args:?}: {}", said.err);
    let doc: Value = serde_json::from_str(&said.out).expect("JSON");
    let keys: Vec<&String> = doc.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["benchmarks", "behind"]);
    let rows = doc["benchmarks"].as_array().expect("a list").clone();
    let behind = doc["behind"].as_array().expect("a list");
    assert_eq!(behind.iter().map(at).collect::<Vec<_>>(), who_is_behind(&rows));
    for row in behind {
        let keys: Vec<&String> = row.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["name", "threads", "peer", "ratio", "spread", "within_spread"]);
    }
    rows
}

/// A row's name and threads.
fn at(row: &Value) -> (&str, u64) {
    (row["name"].as_str().expect("a name"), row["threads"].as_u64().expect("threads"))
}

/// The rows with a peer that has less, or more where more is better.
fn who_is_behind(rows: &[Value]) -> Vec<(&str, u64)> {
    let is_behind = |row: &&Value| {
        let more = matches!(row["unit"].as_str(), Some("%" | "x"));
        let ours = row["ours"].as_f64().expect("a number");
        let peers = row["peers"].as_object().expect("an object").values();
        peers.filter_map(Value::as_f64).any(|p| if more { p > ours } else { p < ours })
    };
    rows.iter().filter(is_behind).map(at).collect()
}

#[test]
fn json_has_exactly_the_promised_keys_and_numbers_behind_them() {
    let rows = rows(&["bench", "frames", "fault", "--quick", "--threads", "1", "--json"]);
    for row in &rows {
        let keys: Vec<&String> = row.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["name", "threads", "unit", "ours", "floor", "peers", "spread"]);
        assert!(
            row["name"].as_str().is_some_and(|n| n.contains('/')) && row["unit"].is_string(),
            "{row}"
        );
        assert!(row["ours"].as_f64().is_some_and(|v| v > 0.0), "{row}");
        assert!(row["floor"].is_null() || row["floor"].as_f64().is_some_and(|v| v > 0.0), "{row}");
        assert!(
            row["peers"].as_object().is_some_and(|p| p.values().all(Value::is_number)),
            "{row}"
        );
        assert_eq!(row["threads"], 1);
    }
    let find = |name: &str| {
        rows.iter().find(|r| r["name"] == name).unwrap_or_else(|| panic!("no row {name}"))
    };
    let pair = find("frames/hot-pair");
    assert!(
        pair["floor"].is_number()
            && pair["peers"]["buddy"].is_number()
            && pair["peers"]["bitmap"].is_number()
    );
    assert!(
        find("frames/two-swaps-two-stores")["peers"]
            .as_object()
            .is_some_and(serde_json::Map::is_empty)
    );
    assert!(find("fault/4k-write")["peers"]["linux"].is_number());
    assert!(find("fault/4k-write/bare")["floor"].is_null());
}

#[test]
fn blocks_of_objects_are_in_microseconds_beside_huge_pages_of_linux() {
    let rows = rows(&["bench", "objects", "--quick", "--json"]);
    let of_blocks: Vec<&Value> = rows.iter().filter(|r| r["unit"] == "us").collect();
    let names: Vec<&str> = of_blocks.iter().filter_map(|r| r["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "objects/block-write-fault, made",
            "objects/block-write-fault, there",
            "objects/truncate-block",
            "objects/collapse-512-pages",
        ]
    );
    for row in of_blocks {
        assert!(row["ours"].as_f64().is_some_and(|v| v > 0.0), "{row}");
        // A kernel without huge pages of shared memory has no figures, and none of other pages.
        let linux = &row["peers"]["linux"];
        assert!(linux.is_null() || linux.as_f64().is_some_and(|v| v > 0.0), "{row}");
    }
}

#[test]
fn every_section_opens_with_what_it_compares_and_fits_the_page() {
    let said = vellum(&[
        "bench",
        "space",
        "fragment",
        "growth",
        "threads",
        "objects",
        "trie",
        "instructions",
        "--quick",
    ]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.lines().all(|l| l.chars().count() <= 100), "{}", said.out);
    for words in [
        "load average",
        "huge pages of the host",
        "Microseconds per call",
        "targets met by all their rows",
        "took",
    ] {
        assert!(said.out.contains(words), "`{words}` in:\n{}", said.out);
    }
    let counted = said.out.contains("counted by") || said.out.contains("skipped: no valgrind");
    assert!(counted, "instructions are counted, or it is said why not:\n{}", said.out);
}

#[test]
fn a_benchmark_that_does_not_exist_or_threads_that_make_no_sense() {
    for (args, says) in [
        (&["bench", "frame"][..], "did you mean `frames`"),
        (
            &["bench", "disks"],
            "there are frames, fault, clear, space, fragment, growth, threads, objects, trie, \
             instructions, all",
        ),
        (&["bench", "--threads", "0"], "numbers from 1 on"),
        (&["bench", "--threads", "two"], "`two` is none"),
        (&["bench", "--threads", "100000"], "more threads would measure its scheduler"),
        (&["bench", "--trheads", "1"], "--threads"),
        (&["count-row", "99"], "rows are 0 to"),
    ] {
        let said = vellum(args);
        assert_eq!(said.code, Some(2), "{args:?}: {}", said.err);
        assert_eq!(said.err.trim_end().lines().count(), 1, "{args:?}: {}", said.err);
        assert!(
            said.err.starts_with("vellum: ") && said.err.contains(says),
            "{args:?}: {}",
            said.err
        );
        assert!(said.out.is_empty(), "{args:?}: {}", said.out);
    }
}

#[test]
fn a_closed_pipe_ends_it_without_a_word() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_vellum"));
    let mut bench = bench
        .args(["bench", "space", "--quick"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(bench.stdout.take());
    let mut err = String::new();
    bench.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((bench.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}

#[test]
fn one_signal_ends_it_with_what_was_measured() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_vellum"));
    let bench = bench.args(["bench", "fragment"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut bench = bench.spawn().unwrap();
    let mut out = BufReader::new(bench.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("vellum bench"), "{line}");
    let killed = Command::new("kill").args(["-INT", &bench.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let (mut rest, mut err) = (String::new(), String::new());
    out.read_to_string(&mut rest).unwrap();
    bench.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(bench.wait().unwrap().code(), Some(130), "{err}");
    assert!(err.contains("stopped by Ctrl-C") && rest.contains("took"), "{err}\n{rest}");
    assert!(!rest.contains("churn-at-90"), "a full run takes many seconds: {rest}");
}
