//! What `zero.huge=auto` decided, in plain words and as JSON.
//!
//! The library keeps decisions as numbers; here they get their sentences, once for `vellum run` and `vellum repro hugezero`. Times are
//! printed in simulated milliseconds since the machine was switched on, JSON has cycles. Tables of counters show how often; only this shows
//! when, where and by which figures.

use serde_json::{Value, json};
use vellum::zero::auto::ZeroForm;
use vellum::zero::decided::{ZeroDecision, ZeroReason};

use super::number::{bytes, grouped};

/// Lines printed of one run; the rest is counted, and JSON has all.
const SHOWN: usize = 10;

/// The lines of a run; none where nothing was decided.
pub fn lines(decisions: &[ZeroDecision], clock_hz: u64) -> Vec<String> {
    let mut out: Vec<String> = decisions.iter().take(SHOWN).map(|d| line(d, clock_hz)).collect();
    if decisions.len() > SHOWN {
        out.push(format!("and {} more, of which JSON has all", grouped((decisions.len() - SHOWN) as i64)));
    }
    let lost: u64 = decisions.iter().map(|d| d.lost).sum();
    if lost > 0 {
        out.push(format!("{} older ones were not read in time", grouped(lost as i64)));
    }
    out
}

/// All of them as JSON.
pub fn json(decisions: &[ZeroDecision]) -> Value {
    decisions
        .iter()
        .map(|d| {
            let (why, figures) = reason(d.why);
            json!({
                "cycle": d.at,
                "space": d.space,
                "start": d.region.0.0,
                "end": d.region.1.0,
                "from": form(d.from),
                "to": form(d.to),
                "why": why,
                "figures": figures,
                "exchanged": d.exchanged,
                "lost": d.lost,
            })
        })
        .collect()
}

fn form(form: ZeroForm) -> &'static str {
    match form {
        ZeroForm::Page => "page",
        ZeroForm::Table => "table",
    }
}

fn reason(why: ZeroReason) -> (&'static str, Value) {
    match why {
        ZeroReason::Dwell { page, table } => ("dwell", json!({ "page": page, "table": table })),
        ZeroReason::Scattered { near } => ("scattered", json!({ "near": near })),
        ZeroReason::Sure { eights } => ("sure", json!({ "eights": eights })),
        ZeroReason::Phase { was, is } => ("phase", json!({ "was": was, "is": is })),
        ZeroReason::Visits { page, table, of } => ("visits", json!({ "page": page, "table": table, "of": of })),
        ZeroReason::Again { cost, ran } => ("again", json!({ "cost": cost, "ran": ran })),
    }
}

fn line(d: &ZeroDecision, clock_hz: u64) -> String {
    let n = |n: u64| grouped(n.min(i64::MAX as u64) as i64);
    let ms = d.at as f64 * 1e3 / clock_hz.max(1) as f64;
    let to = form(d.to);
    let why = match d.why {
        ZeroReason::Dwell { page, table } => format!(
            "{to}: the program ran {} cycles between reads of new 2 MiB by the page, {} by the table",
            n(page / 4),
            n(table / 4)
        ),
        ZeroReason::Scattered { near } => {
            format!("{to}: of 8 first reads {near} were beside another, so they are scattered")
        }
        ZeroReason::Sure { eights } => format!("{to}, by whole GiB: {eights} times 8 first reads were scattered"),
        ZeroReason::Phase { was: 0, is } => {
            format!("compare: first reads were scattered and are in order, {} cycles apart", n(is / 4))
        }
        ZeroReason::Phase { was, is } => {
            format!("compare again: first reads are {} cycles apart and were {}", n(is / 4), n(was / 4))
        }
        ZeroReason::Visits { page, table, of } => format!(
            "{to}: in the same time the program came by {} of {} times 2 MiB by the page, {} by the table",
            n(page),
            n(of),
            n(table)
        ),
        ZeroReason::Again { cost, ran } => {
            format!("look again: {} cycles of faults and comparing were paid for by {} cycles since", n(cost), n(ran))
        }
    };
    let moved =
        if d.exchanged == 0 { String::new() } else { format!("; {} exchanged", bytes((d.exchanged << 21) as i64)) };
    format!("{ms:9.3} ms  {why}{moved}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum::addr::Va;

    fn decision(why: ZeroReason) -> ZeroDecision {
        ZeroDecision {
            at: 2_400_000,
            space: 7,
            region: (Va(1 << 30), Va(2 << 30)),
            from: ZeroForm::Page,
            to: ZeroForm::Table,
            why,
            exchanged: 8,
            lost: 0,
        }
    }

    #[test]
    fn a_decision_reads_as_a_sentence_with_its_figures() {
        let made = [decision(ZeroReason::Dwell { page: 1_200_000, table: 800_000 })];
        assert_eq!(
            lines(&made, 2_400_000_000),
            [
                "    1.000 ms  table: the program ran 300,000 cycles between reads of new 2 MiB by the page, 200,000 by the table; 16 MiB exchanged"
            ]
        );
        assert_eq!(
            json(&made).to_string(),
            r#"[{"cycle":2400000,"space":7,"start":1073741824,"end":2147483648,"from":"page","to":"table","why":"dwell","figures":{"page":1200000,"table":800000},"exchanged":8,"lost":0}]"#
        );
    }

    #[test]
    fn more_than_ten_are_counted_and_lost_ones_are_told() {
        let mut made = vec![decision(ZeroReason::Scattered { near: 1 }); 15];
        made[3].lost = 4;
        let lines = lines(&made, 1);
        assert_eq!(lines.len(), 12);
        assert_eq!(lines[10..], ["and 5 more, of which JSON has all", "4 older ones were not read in time"]);
        assert_eq!(json(&made).as_array().map(Vec::len), Some(15));
    }
}
