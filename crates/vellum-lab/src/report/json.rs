//! The stable JSON of `vellum run --json`; `docs/json.md` describes it, and a test holds the two
//! together.
//!
//! Same trace, same machine, same seed, same switches: same bytes. So nothing here depends on the
//! clock or the host; wall-clock figures come under a key of their own, and only when asked for.

use serde_json::{Map, Value, json};

use super::counters::Counters;
use crate::switches::Variant;

/// A finished column.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// Its switches.
    pub variant: &'a Variant,
    /// What it counted.
    pub counters: &'a Counters,
    /// Whether the replay reached the end of the trace.
    pub complete: bool,
}

/// What the native run said, in the words of the counters.
pub fn native(n: &Counters) -> Value {
    Value::Object(n.iter().map(|(k, v)| (k.to_owned(), Value::from(v))).collect())
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
            json!({
                "name": c.variant.name,
                "switches": switches,
                "complete": c.complete,
                "counters": native(c.counters),
            })
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
        let doc = document(
            "milan",
            1,
            &[Column { variant: &variant, counters: &counters, complete: true }],
            true,
            Some(&counters),
        );
        let text = serde_json::to_string(&doc).unwrap();
        let begins =
            r#"{"machine":"milan","seed":1,"complete":true,"variants":[{"name":"defaults","#;
        assert!(text.starts_with(&format!(r#"{begins}"switches":{{"thp":"#)), "{text}");
        assert!(
            text.ends_with(r#""complete":true,"counters":{"pgfault":7}}],"native":{"pgfault":7}}"#),
            "{text}"
        );
    }
}
