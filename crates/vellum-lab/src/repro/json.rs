//! Pages as JSON; `docs/json.md` explains the keys.

use serde_json::{Value, json};

use super::basis::Provenance;
use super::page::{Page, Row, Statement, Table};

/// The whole answer.
pub fn document<'p>(
    on: &str,
    seed: Option<u64>,
    pages: impl Iterator<Item = &'p Page> + Clone,
) -> Value {
    let statements: Vec<Value> = pages.clone().flat_map(|p| &p.statements).map(statement).collect();
    json!({
        "on": on,
        "seed": seed,
        "statements": statements,
        "experiments": pages.map(page).collect::<Vec<_>>(),
    })
}

fn page(p: &Page) -> Value {
    json!({
        "name": p.name,
        "on": p.on,
        "tables": p.tables.iter().map(table).collect::<Vec<_>>(),
        "skipped": p.skipped,
    })
}

fn table(t: &Table) -> Value {
    let rows: Vec<Value> = t.rows.iter().map(row).collect();
    json!({ "title": t.title, "columns": t.columns, "rows": rows })
}

fn row(r: &Row) -> Value {
    json!({
        "name": r.name,
        "published": r.published,
        "ours": r.ours,
        "ratio_published": Row::ratio(r.published),
        "ratio_ours": Row::ratio(r.ours),
        "spread": r.spread,
        "mark": r.mark().map(super::basis::Mark::letter),
        "rests_on": r.provenance.as_ref().map_or_else(Vec::new, rests_on),
        "guesses": r.provenance.as_ref().map_or_else(Vec::new, guesses),
    })
}

fn rests_on(provenance: &Provenance) -> Vec<Value> {
    let constants = provenance.constants.iter();
    constants
        .map(|c| json!({ "constant": c.key, "value": c.value, "basis": c.basis.name() }))
        .collect()
}

fn guesses(provenance: &Provenance) -> Vec<Value> {
    let one = |s: &super::basis::Sensitivity| {
        json!({
            "constant": s.key,
            "value": s.value,
            "ratio_halved": s.halved,
            "ratio_doubled": s.doubled,
        })
    };
    provenance.sensitivities.iter().map(one).collect()
}

fn statement(s: &Statement) -> Value {
    json!({
        "id": s.id,
        "value": s.value,
        "band": s.band,
        "basis": s.provenance.mark.word(),
        "ok": s.ok(),
    })
}
