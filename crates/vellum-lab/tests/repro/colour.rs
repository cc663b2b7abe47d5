//! The published figures of colours: a page that fits, its marks and statements, and what must be
//! able to move them.

use std::sync::OnceLock;

use crate::common::{Temporary, vellum};
use crate::experiment::{holds_document, is_readable, pages};
use serde_json::Value;
use vellum_lab::repro::colour;
use vellum_lab::repro::json::document;
use vellum_lab::repro::page::Page;

/// The experiment as it is by default, run once for all tests.
fn whole() -> &'static [Page] {
    static PAGES: OnceLock<Vec<Page>> = OnceLock::new();
    PAGES.get_or_init(|| pages(&colour::EXPERIMENT))
}

/// Its JSON.
fn plain() -> &'static Value {
    static PLAIN: OnceLock<Value> = OnceLock::new();
    PLAIN.get_or_init(|| document("sim", Some(1), whole().iter()))
}

fn json(args: &[&str]) -> Value {
    let said = vellum(&[&["repro", "--json"], args].concat());
    assert_eq!(said.code, Some(0), "{}", said.err);
    serde_json::from_str(&said.out).expect("JSON")
}

/// A row of one experiment, by parts of its table's title and of its name.
fn row<'v>(doc: &'v Value, table: &str, name: &str) -> &'v Value {
    let has = |v: &Value, key: &str, part: &str| v[key].as_str().is_some_and(|s| s.contains(part));
    let tables = doc["experiments"][0]["tables"].as_array().expect("tables");
    let table = tables
        .iter()
        .find(|t| has(t, "title", table))
        .unwrap_or_else(|| panic!("no table {table}"));
    let rows = table["rows"].as_array().expect("rows");
    rows.iter().find(|r| has(r, "name", name)).unwrap_or_else(|| panic!("no row {name}"))
}

fn pair(row: &Value, key: &str) -> [f64; 2] {
    [0, 1].map(|i| row[key][i].as_f64().unwrap_or(f64::NAN))
}

#[test]
fn colour_prints_a_page_that_fits_and_its_statements_hold_as_predicted() {
    let doc = plain();
    let statements = doc["statements"].as_array().expect("statements");
    assert_eq!(
        statements.iter().map(|s| s["id"].as_str()).collect::<Vec<_>>(),
        [Some("B-6"), Some("B-7")]
    );
    for s in statements {
        assert_eq!(
            (s["basis"].as_str(), s["ok"].as_bool()),
            (Some("predicted"), Some(true)),
            "{s}"
        );
        let (value, band) = (s["value"].as_f64().unwrap(), pair(s, "band"));
        assert!(band[0] <= value && value <= band[1] && band[0] < band[1], "{s}");
    }
    let worst = row(doc, "Test 2", "L2 misses a turn, (i), worst");
    assert_eq!(worst["mark"], "p");
    let [before, after] = pair(worst, "ours");
    assert!((before - 9.0).abs() < 0.01 && (after - 1.125).abs() < 0.01);
    let mean = pair(row(doc, "Test 2", "L2 misses a turn, (i), mean"), "ours");
    assert!((mean[0] - mean[1]).abs() < 0.01, "the mean does not change");
    let lost = pair(row(doc, "Test 2", "L2 misses a turn, (ii), mean"), "ours");
    assert!((lost[0] - 1.125).abs() < 0.01 && (lost[1] - 9.0).abs() < 0.01);
    let l1 = row(doc, "Test 2", "L1 misses a turn, (i)");
    let (published, ours) = (pair(l1, "published"), pair(l1, "ours"));
    assert!((published[0] - 4.48).abs() < 0.01 && (published[1] - 5.33).abs() < 0.01);
    assert!(ours.iter().all(|v| (v - 9.0).abs() < 0.01), "plain LRU does not come near");
    // Times rest on guesses, and each guess is shown halved and doubled.
    let time = row(doc, "Test 2", "ns a turn, (i), worst");
    assert_eq!(time["mark"], "g");
    let guesses = time["guesses"].as_array().expect("guesses");
    assert!(
        guesses
            .iter()
            .any(|g| g["constant"] == "llc.latency" && g["ratio_halved"] != g["ratio_doubled"])
    );

    is_readable(&whole()[0]);
    let text = vellum_lab::repro::text::page(&whole()[0]);
    for part in ["plain LRU", "178"] {
        assert!(text.contains(part), "`{part}` in:\n{text}");
    }
}

#[test]
fn the_page_of_colours_says_what_the_command_prints() {
    holds_document(&colour::EXPERIMENT, whole());
}

#[test]
fn another_seed_moves_random_victims_and_nothing_else() {
    let (one, two) = (plain(), json(&["colour", "--seed", "99"]));
    let both = |table: &str, name: &str| [one, &two].map(|doc| pair(row(doc, table, name), "ours"));
    let [a, b] = both("other replacement", "random: L2, (i), mean");
    assert_ne!(a, b);
    assert!((a[1] / b[1] - 1.0).abs() < 0.1, "{a:?} {b:?}: but not by much");
    let [a, b] = both("other replacement", "tree-PLRU: L2, (i), mean");
    assert_eq!(a, b);
}

/// thunderx2 with some text replaced.
fn changed(name: &str, pairs: &[(&str, &str)]) -> Temporary {
    let mut text = vellum_sim::file::preset_text("thunderx2").expect("a preset").to_owned();
    for (from, to) in pairs {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    Temporary::with(name, text.as_bytes())
}

#[test]
fn another_last_level_moves_what_rests_on_it_and_a_fitted_constant_is_said_to_be_one() {
    let before = "value = \"256 KiB\", basis = \"before\"";
    let changed = changed(
        "changed.toml",
        &[
            ("value = \"32 MiB\"", "value = \"16 MiB\""),
            (before, "value = \"256 KiB\", basis = \"fitted\""),
        ],
    );
    let (plain, changed) = (plain(), json(&["colour", "--machine", changed.path()]));
    let llc = |doc: &Value| pair(row(doc, "price", "LLC misses a pass"), "ours");
    assert!(llc(&changed)[0] > 100.0 * llc(plain)[0], "{:?} {:?}", llc(&changed), llc(plain));
    let statement = |doc: &Value, i: usize| doc["statements"][i].clone();
    assert_eq!(
        statement(&changed, 1)["value"],
        statement(plain, 1)["value"],
        "L2 misses do not move"
    );
    // B-7 rests on the size of L2, B-6 does not.
    assert_eq!(statement(&changed, 1)["basis"], "fitted");
    assert_eq!(
        (statement(&changed, 1)["ok"].as_bool(), statement(&changed, 0)["ok"].as_bool()),
        (Some(false), Some(true))
    );
}

#[test]
fn other_machines_are_run_or_refused_in_one_line() {
    let milan = json(&["colour", "--machine", "milan"]);
    assert_eq!(milan["statements"][1]["ok"], true, "{}", milan["statements"][1]);
    for (args, words) in [
        (
            vec!["repro", "colour", "--machine", "tiny"],
            "the second level of `tiny` has 1 colour and 4 ways",
        ),
        (vec!["repro", "color"], "did you mean `colour`"),
        (
            vec!["repro", "colour", "--on", "host", "--machine", "milan"],
            "leave it out with --on host",
        ),
        (vec!["repro", "colour", "--on", "host", "--seed", "5"], "leave it out with --on host"),
        (
            vec!["repro", "colour", "--markdown", "--machine", "milan"],
            "leave out --machine, --on host and --seed",
        ),
        (vec!["repro", "colour", "--machine", "nowhere"], "there is no machine `nowhere`"),
    ] {
        let said = vellum(&args);
        assert_eq!((said.code, said.err.lines().count()), (Some(2), 1), "{args:?}: {}", said.err);
        assert!(said.err.contains(words), "{}", said.err);
    }
}

#[test]
fn on_this_computer_it_measures_or_says_why_not() {
    let doc = json(&["colour", "--on", "host"]);
    let page = &doc["experiments"][0];
    let skipped = page["skipped"].as_array().expect("a list");
    if skipped.is_empty() {
        let rows = page["tables"][0]["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 13);
        assert!(
            rows.iter().all(|r| pair(r, "ours").iter().all(|&v| v > 0.0) && r["mark"].is_null())
        );
        // Beside it what this computer's model says.
        let twin = page["tables"].as_array().and_then(|tables| tables.last()).expect("tables");
        let title = twin["title"].as_str().expect("a title");
        assert!(title.ends_with("measured, and modelled by --machine host"), "{title}");
        let rows = twin["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 8);
        assert!(rows.iter().all(|r| pair(r, "ours").iter().all(|&v| v > 0.0)), "{rows:?}");
    }
    assert_eq!(
        doc["statements"].as_array().map(Vec::len),
        Some(0),
        "statements are about the model"
    );
    let said = vellum(&["repro", "colour", "--on", "host"]);
    assert!(
        said.code == Some(0) && said.out.lines().all(|l| l.chars().count() <= 100),
        "{}",
        said.out
    );
}
