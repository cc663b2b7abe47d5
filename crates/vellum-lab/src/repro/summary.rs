//! A line or two of each experiment, for the first screen.
//!
//! The workloads and marks are those of the pages, as much of them as a second or two allows.
//! Guesses are not halved and doubled here. What did not help is shown apart from what did, because
//! a screen that shows only gains is an advertisement.

use super::page::{Pair, Row};
use super::text::figure;

/// What an experiment says on the first screen.
#[derive(Clone, Debug)]
pub struct Summary {
    /// What its gains are measured in.
    pub title: String,
    /// What it is for.
    pub gains: Vec<Row>,
    /// Where it does not help; names say of what.
    pub losses: Vec<Row>,
}

const NAME: usize = 46;

/// The heading of lines with published figures.
pub fn heading(title: &str) -> String {
    format!("{title:<NAME$}{:>24}{:>24}\n", "published", "ours")
}

/// A line with published figures and ours.
pub fn line(row: &Row) -> String {
    let name = format!("   {}", row.name);
    let mark = row.mark().map_or("", super::basis::Mark::letter);
    let text = format!("{name:<NAME$}{:>24}{:>24}  {mark}", pair(row.published), pair(row.ours));
    format!("{}\n", text.trim_end())
}

/// A line of what was measured on this computer.
pub fn native(row: &Row) -> String {
    let name = format!("   {}", row.name);
    let ratio = Row::ratio(row.ours).map_or(String::new(), |r| format!("{r:.2} x"));
    format!("{name:<w$}{:>24}{ratio:>9}\n", pair(row.ours), w = NAME + 20)
}

fn pair(pair: Pair) -> String {
    match pair {
        [None, None] => String::new(),
        pair => pair.map(|v| v.map_or("-".to_owned(), figure)).join(" -> "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_published_and_ours_and_stay_within_the_page() {
        let row = Row {
            name: "n".repeat(43),
            published: [Some(11.82), Some(16.48)],
            ours: [Some(123_456.0), None],
            spread: None,
            provenance: None,
        };
        let said = line(&row);
        assert!(said.contains("11.8 -> 16.5") && said.contains("123,456 -> -"), "{said}");
        let said = said
            + &heading("t")
            + &native(&Row { name: "n".repeat(63), ours: [Some(1.0), Some(0.5)], ..row });
        assert!(said.lines().all(|l| l.chars().count() <= crate::report::table::WIDTH), "{said}");
        assert!(said.contains("1.000 -> 0.500") && said.contains("0.50 x"), "{said}");
    }
}
