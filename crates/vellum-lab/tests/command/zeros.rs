//! What `vellum run` says of the zeros that `zero.huge=auto` chose.

use crate::common::{Script, Temporary, vellum};
use serde_json::Value;

/// 64 MiB, a byte of each 4 KiB read in order, twice.
fn reads(name: &str) -> Temporary {
    let mut s = Script::new();
    let pages = 32 * 512;
    let m = s.anon(pages);
    for page in (0..pages).chain(0..pages) {
        s.load(m, page * 4096);
    }
    s.file(name)
}

#[test]
fn run_prints_what_auto_decided_in_plain_words() {
    let trace = reads("zeros-words.vt");
    let args = ["run", "--trace", trace.path(), "--machine", "westmere-ex"];
    let out = vellum(&[&args[..], &["--set", "zero.huge=auto", "--vs", "zero.huge=page"]].concat()).out;
    let lines: Vec<&str> =
        out.lines().skip_while(|l| !l.ends_with("zero.huge=auto: for zeros it decided this")).take(2).collect();
    let [_, decision] = lines[..] else { panic!("{out}") };
    assert!(decision.contains(" ms  page: the program ran ") && decision.contains(" by the table"), "{out}");
    assert_eq!(out.matches("it decided").count(), 1, "the other column says nothing: {out}");
}

#[test]
fn run_says_that_nothing_was_decided_where_too_little_was_read() {
    let mut s = Script::new();
    let m = s.anon(512);
    s.load(m, 0);
    let trace = s.file("zeros-few.vt");
    let out = vellum(&["run", "--trace", trace.path(), "--machine", "westmere-ex", "--set", "zero.huge=auto"]).out;
    assert!(out.contains("for zeros it decided nothing: too few first reads of huge memory"), "{out}");
}

#[test]
fn json_has_every_decision_of_auto_and_no_such_key_for_other_forms() {
    let trace = reads("zeros-json.vt");
    let args = ["run", "--trace", trace.path(), "--machine", "westmere-ex", "--json", "--set", "zero.huge=auto"];
    let doc: Value =
        serde_json::from_str(&vellum(&[&args[..], &["--vs", "zero.huge=off"]].concat()).out).expect("JSON");
    let decisions = doc["variants"][0]["zero_decisions"].as_array().expect("a list");
    let counters = &doc["variants"][0]["counters"];
    let by = |why: &str| decisions.iter().filter(|d| d["why"] == why).count() as i64;
    assert_eq!(Some(by("dwell")), counters["zero_auto_page"].as_i64());
    assert_eq!(Some(by("again")), counters["zero_auto_forget"].as_i64());
    let first = &decisions[0];
    assert_eq!((first["why"].as_str(), first["to"].as_str()), (Some("dwell"), Some("page")));
    assert!(first["figures"]["table"].as_u64() > first["figures"]["page"].as_u64(), "{first}");
    assert!(first["start"].as_u64() < first["end"].as_u64() && first["cycle"].as_u64() > Some(0), "{first}");
    assert!(doc["variants"][1].get("zero_decisions").is_none());
}
