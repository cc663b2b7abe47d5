//! A page of at most 100 columns, for someone who has never heard of the mechanism.

use std::fmt::Write as _;

use vellum_sim::file::Basis;

use super::basis::{Mark, Provenance};
use super::context::PublishedExperiment;
use super::page::{Page, Pair, Row, Statement, Table};
use crate::report::table::WIDTH;
use crate::text::wrapped;

const NAME: usize = 41;
/// Rows are told what a guess does to them only where it moves them by more: 1 %.
const MOVES: f64 = 0.01;

/// The page.
pub fn page(page: &Page) -> String {
    let mut out = String::new();
    let room = WIDTH.saturating_sub(page.title.chars().count() + 1);
    let _ = writeln!(out, "{} {:>room$}", page.title, page.on);
    let _ = writeln!(out, "{}\n", "=".repeat(WIDTH));
    paragraphs(&mut out, "Asked", &page.asked);
    paragraphs(&mut out, "Run", &page.run);
    for t in &page.tables {
        table(&mut out, t);
    }
    if page.tables.iter().flat_map(|t| &t.rows).any(|row| row.provenance.is_some()) {
        let legend = "p: rests on figures from before the mechanism, or from sources that never \
                      saw it. f: on a fitted figure. g: on a guess. Ratios are after over \
                      before.";
        block(&mut out, "   ", legend);
        out.push('\n');
    }
    if !page.statements.is_empty() {
        out.push_str("Statements\n");
        let ids = page.statements.iter().map(|s| s.id.len()).max().unwrap_or(0);
        page.statements.iter().for_each(|s| statement(&mut out, s, ids));
        out.push('\n');
    }
    paragraphs(&mut out, "Came out", &page.out);
    paragraphs(&mut out, "Means", &page.means);
    paragraphs(&mut out, "Where it does not help, and what is missing", &page.limits);
    paragraphs(&mut out, "Skipped", &page.skipped);
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// The page of an experiment in `docs/`: how the mechanism works, then the terminal's pages.
pub fn markdown(experiment: &PublishedExperiment, pages: &[&Page]) -> String {
    let title = pages.first().map_or(experiment.name, |page| page.title.as_str());
    let name = experiment.name;
    let mut out = format!("# {title}\n\n{}\n## What the command prints\n\n", experiment.how);
    let how = format!(
        "`vellum repro {name}` runs the published tests again and prints what follows. A test \
         holds the figures of this page to a tenth; `vellum repro {name} --markdown > \
         docs/{name}.md` writes the page.",
    );
    block(&mut out, "", &how);
    for answer in pages {
        let _ = write!(out, "\n```text\n{}```\n", page(answer));
    }
    out
}

fn paragraphs(out: &mut String, title: &str, texts: &[String]) {
    if texts.is_empty() {
        return;
    }
    let _ = writeln!(out, "{title}");
    texts.iter().for_each(|text| block(out, "   ", text));
    out.push('\n');
}

fn block(out: &mut String, indent: &str, text: &str) {
    for line in wrapped(text, WIDTH - indent.len()) {
        let _ = writeln!(out, "{indent}{line}");
    }
}

fn table(out: &mut String, t: &Table) {
    let [before, after] = &t.columns;
    let measured = t.rows.iter().all(|row| row.published == [None, None]);
    let _ = writeln!(out, "{}", t.title);
    // Short names stand above the columns themselves.
    let short = before.chars().count().max(after.chars().count()) < 9;
    let [left, right] = if short { [before.as_str(), after.as_str()] } else { ["before", "after"] };
    let first = if short { String::new() } else { format!("before: {before}; after: {after}") };
    if measured {
        let first = format!("   {first}");
        let _ = writeln!(
            out,
            "{first:<w$}{left:>9}{right:>9}{:>7}{:>8}",
            "ratio",
            "spread",
            w = WIDTH - 35
        );
    } else {
        if !short {
            block(out, "   ", &first);
        }
        let _ = writeln!(out, "{:<NAME$}{:^25}{:^25}", "", "published", "ours");
        let cells = format!("{left:>9}{right:>9}{:>7}", "ratio");
        let _ = writeln!(out, "{:<NAME$}{cells}{cells}{:>7}", "", "spread");
    }
    for row in &t.rows {
        let _ = writeln!(out, "{}", line(row, measured).trim_end());
        if let Some(provenance) = &row.provenance {
            sensitivities(out, row, provenance);
        }
    }
    other_guesses(out, t);
    out.push('\n');
}

fn line(row: &Row, measured: bool) -> String {
    let name = format!("   {}", row.name);
    let ratio = |pair: Pair| Row::ratio(pair).map_or(String::new(), |r| format!("{r:.2}"));
    let cells = |pair: Pair| {
        let [before, after] = pair.map(|v| v.map_or("-".to_owned(), figure));
        if pair == [None, None] {
            format!("{:>25}", "")
        } else {
            format!("{before:>9}{after:>9}{:>7}", ratio(pair))
        }
    };
    let spread = row.spread.map_or(String::new(), percent);
    let mark = row.mark().map_or("", Mark::letter);
    if measured {
        return format!("{name:<w$}{}{spread:>8} {mark}", cells(row.ours), w = WIDTH - 35);
    }
    format!("{name:<NAME$}{}{}{spread:>7} {mark}", cells(row.published), cells(row.ours))
}

/// What guesses do to a row's ratio, where they do something.
fn sensitivities(out: &mut String, row: &Row, provenance: &Provenance) {
    let Some(ratio) = Row::ratio(row.ours) else { return };
    for s in provenance.sensitivities.iter().filter(|s| s.moves(ratio) > MOVES) {
        let say = |v: Option<f64>| v.map_or("no such machine".to_owned(), |v| format!("{v:.2}"));
        let text = format!(
            "guess {} = {}: ratio {} with half, {} with twice",
            s.key,
            s.value,
            say(s.halved),
            say(s.doubled)
        );
        block(out, "      ", &text);
    }
}

/// The guesses of a table that do nothing to any of its ratios, those that are words and cannot be
/// halved, and those nobody varied.
fn other_guesses(out: &mut String, t: &Table) {
    let provenances =
        || t.rows.iter().filter_map(|row| Some((Row::ratio(row.ours)?, row.provenance.as_ref()?)));
    let (mut still, mut words, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for (_, provenance) in provenances() {
        for guess in provenance.constants.iter().filter(|c| c.basis == Basis::Guess) {
            let sensitivities = || {
                provenances().flat_map(|(ratio, provenance)| {
                    provenance.sensitivities.iter().map(move |s| (ratio, s))
                })
            };
            let mut mine = sensitivities().filter(|(_, s)| s.key == guess.key).peekable();
            let has =
                |provenance: &Provenance| provenance.constants.iter().any(|c| c.key == guess.key);
            if mine.peek().is_none()
                && !provenances().any(|(_, provenance)| provenance.varied && has(provenance))
            {
                left.push(guess.key.clone());
            } else if mine.peek().is_none() {
                words.push(format!("{} = {}", guess.key, guess.value));
            } else if mine.all(|(ratio, s)| s.moves(ratio) <= MOVES) {
                still.push(guess.key.clone());
            }
        }
    }
    let groups = [
        ("guesses that move no ratio here by 1 %", still),
        ("guesses that are words", words),
        ("guesses not varied in this table", left),
    ];
    for (what, mut names) in groups {
        names.sort();
        names.dedup();
        if !names.is_empty() {
            block(out, "   ", &format!("{what}: {}", names.join(", ")));
        }
    }
}

fn statement(out: &mut String, s: &Statement, ids: usize) {
    let verdict = if s.ok() { "holds" } else { "DOES NOT HOLD" };
    let head = format!(
        "   {:<ids$} {}: {} in [{}, {}]  ",
        s.id,
        s.what,
        figure(s.value),
        figure(s.band[0]),
        figure(s.band[1])
    );
    let tail = format!("{}, {verdict}", s.provenance.mark.word());
    let room = WIDTH.saturating_sub(head.chars().count());
    let _ = writeln!(out, "{head}{tail:>room$}");
}

/// A share in hundredths, with a digit behind the point where it would say nothing without.
fn percent(share: f64) -> String {
    let digits = if share != 0.0 && share < 0.0095 { 2 } else { 0 };
    format!("{:.digits$} %", share * 100.0)
}

/// A figure with the digits that matter.
pub fn figure(x: f64) -> String {
    match x.abs() {
        0.0 => "0".to_owned(),
        a if a < 0.0995 => format!("{x:.4}"),
        a if a < 9.995 => format!("{x:.3}"),
        a if a < 999.5 => format!("{x:.1}"),
        _ => crate::report::number::grouped(x.round() as i64),
    }
}
