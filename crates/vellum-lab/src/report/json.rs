//! The stable JSON of `vellum run --json`; `docs/json.md` describes it, and a test holds the two
//! together.
//!
//! Same trace, same machine, same seed, same switches: same bytes. So nothing here depends on the
//! clock or the host; wall-clock figures come under a key of their own, and only when asked for.

use serde_json::{Map, Value, json};

use super::counters::Counters;
use super::interval::Interval;
use crate::switches::Variant;

/// A finished column.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// Its switches.
    pub variant: &'a Variant,
    /// What it counted.
    pub counters: &'a Counters,
    /// Cycles by constant.
    pub charges: &'a Counters,
    /// Its time beside the first column's.
    pub interval: Option<&'a Interval>,
    /// Whether the replay reached the end of the trace.
    pub complete: bool,
}

/// What the native run said, in the words of the counters.
pub fn native(n: &Counters) -> Value {
    Value::Object(n.iter().map(|(k, v)| (k.to_owned(), Value::from(v))).collect())
}

/// A ratio of times, and the constant that moves it furthest.
fn ratio(interval: &Interval) -> Value {
    let thousandths = |value: f64| (value * 1000.0).round() / 1000.0;
    json!({
        "value": thousandths(interval.ratio),
        "low": thousandths(interval.low),
        "high": thousandths(interval.high),
        "most": interval.most.as_ref().map(|(key, to)| json!({
            "constant": key,
            "low": thousandths(to[0]),
            "high": thousandths(to[1]),
        })),
    })
}

/// The document.
pub fn document(
    machine: &str,
    seed: u64,
    columns: &[Column<'_>],
    complete: bool,
    native_run: Option<&Counters>,
) -> Map<String, Value> {
    let variants: Vec<Value> = columns
        .iter()
        .map(|c| {
            let switches: Map<String, Value> = c
                .variant
                .values
                .iter()
                .map(|(n, v)| ((*n).to_owned(), Value::from(v.as_str())))
                .collect();
            let mut variant = json!({
                "name": c.variant.name,
                "switches": switches,
                "complete": c.complete,
                "counters": native(c.counters),
                "charges": native(c.charges),
            });
            if let Some(interval) = c.interval {
                variant["time_ratio"] = ratio(interval);
            }
            variant
        })
        .collect();
    let mut doc = Map::new();
    doc.insert("machine".to_owned(), machine.into());
    doc.insert("seed".to_owned(), seed.into());
    doc.insert("complete".to_owned(), complete.into());
    doc.insert("variants".to_owned(), variants.into());
    if let Some(n) = native_run {
        doc.insert("native".to_owned(), native(n));
    }
    doc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_documented_shape_and_order() {
        let variant = Variant::defaults();
        let mut counters = Counters::new();
        counters.put("pgfault", 7);
        let mut charges = Counters::new();
        charges.put("l2.latency", 3);
        let most = Some(("l2.latency".to_owned(), [0.7, 0.9]));
        let interval = Interval { ratio: 0.8, low: 0.69, high: 0.9104, most };
        let column = Column {
            variant: &variant,
            counters: &counters,
            charges: &charges,
            interval: Some(&interval),
            complete: true,
        };
        let doc = document("milan", 1, &[column], true, Some(&counters));
        let text = serde_json::to_string(&doc).unwrap();
        let begins =
            r#"{"machine":"milan","seed":1,"complete":true,"variants":[{"name":"defaults","#;
        assert!(text.starts_with(&format!(r#"{begins}"switches":{{"thp":"#)), "{text}");
        assert!(
            text.ends_with(
                &[
                    r#""complete":true,"counters":{"pgfault":7},"charges":{"l2.latency":3},"#,
                    r#""time_ratio":{"value":0.8,"low":0.69,"high":0.91,"#,
                    r#""most":{"constant":"l2.latency","low":0.7,"high":0.9}}}],"#,
                    r#""native":{"pgfault":7}}"#,
                ]
                .concat()
            ),
            "{text}"
        );
    }
}
