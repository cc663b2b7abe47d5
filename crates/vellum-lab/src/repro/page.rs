//! The answer of an experiment.

use super::basis::{Mark, Provenance};

/// A figure before and after: the published columns, or ours. `None`: not measured, or not
/// published.
pub type Pair = [Option<f64>; 2];

/// One line of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was measured, with its unit.
    pub name: String,
    /// Published before and after.
    pub published: Pair,
    /// Ours before and after.
    pub ours: Pair,
    /// Simulated: largest minus smallest ratio over three seeds, as a share of the middle one.
    /// Measured: third minus first quartile over the median. `None` where nothing can vary.
    pub spread: Option<f64>,
    /// What it rests on; `None` for rows measured on this computer.
    pub provenance: Option<Provenance>,
}

impl Row {
    /// After over before.
    pub fn ratio(pair: Pair) -> Option<f64> {
        match pair {
            [Some(before), Some(after)] if before != 0.0 => Some(after / before),
            _ => None,
        }
    }
    /// How far ratios of several seeds lie apart: the largest less the smallest, as a share of the
    /// middle one.
    pub fn spread(mut ratios: Vec<f64>) -> Option<f64> {
        ratios.sort_by(f64::total_cmp);
        let middle = ratios.get(ratios.len() / 2)?;
        (middle.is_finite() && *middle != 0.0)
            .then(|| (ratios[ratios.len() - 1] - ratios[0]) / middle)
    }
    /// Its mark; `None` for rows measured on this computer.
    pub fn mark(&self) -> Option<Mark> {
        self.provenance.as_ref().map(|provenance| provenance.mark)
    }
}

/// Rows with the same two columns.
#[derive(Clone, Debug)]
pub struct Table {
    /// What they have in common.
    pub title: String,
    /// What the columns are: before and after.
    pub columns: [String; 2],
    /// The rows.
    pub rows: Vec<Row>,
}

impl Table {
    /// Figures measured on this computer beside what its model makes of the same.
    pub fn beside_model(what: &str, rows: Vec<(String, [f64; 2])>) -> Table {
        let row = |(name, [measured, modelled]): (String, [f64; 2])| Row {
            name,
            published: [None, None],
            ours: [Some(measured), Some(modelled)],
            spread: None,
            provenance: None,
        };
        Table {
            title: format!("{what}: measured, and modelled by --machine host"),
            columns: ["measured".into(), "modelled".into()],
            rows: rows.into_iter().map(row).collect(),
        }
    }
}

/// A numbered statement, judged.
#[derive(Clone, Debug)]
pub struct Statement {
    /// `B-6`.
    pub id: &'static str,
    /// What the value is.
    pub what: String,
    /// What came out.
    pub value: f64,
    /// What has to come out: from, to.
    pub band: [f64; 2],
    /// What it rests on.
    pub provenance: Provenance,
}

impl Statement {
    /// In its band, and no fitted constant was needed to get there.
    pub fn ok(&self) -> bool {
        self.provenance.mark != Mark::Fitted && (self.band[0]..=self.band[1]).contains(&self.value)
    }
}

/// An experiment's answer. Paragraphs are plain sentences; they are wrapped when shown.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The experiment's name.
    pub name: &'static str,
    /// One line.
    pub title: String,
    /// On what it ran: a machine and a seed, or this computer.
    pub on: String,
    /// What was asked.
    pub asked: Vec<String>,
    /// What was run.
    pub run: Vec<String>,
    /// Figures.
    pub tables: Vec<Table>,
    /// Judged statements.
    pub statements: Vec<Statement>,
    /// What came out, in words.
    pub out: Vec<String>,
    /// What it means.
    pub means: Vec<String>,
    /// Where it does not help, and what could not be reproduced.
    pub limits: Vec<String>,
    /// Parts that were not run, and why.
    pub skipped: Vec<String>,
}

impl Page {
    /// Our figures in the row of that name.
    pub fn ours(&self, name: &str) -> Option<Pair> {
        let mut rows = self.tables.iter().flat_map(|table| &table.rows);
        rows.find(|row| row.name == name).map(|row| row.ours)
    }
}
