//! What the runs on a preset came to.

use crate::repro::page::{Statement, Table};

/// Figures, verdicts, and the sentences around them.
pub(super) struct Found {
    pub table: Table,
    pub statements: Vec<Statement>,
    /// What was run, and on which machines.
    pub run: Vec<String>,
    /// What it means.
    pub means: String,
    /// Why runs miss, and what could not be run.
    pub limits: Vec<String>,
}

/// How far a figure is from the published one, in per cent of that.
pub(super) fn error(ours: f64, published: f64) -> f64 {
    (ours / published - 1.0) * 100.0
}
