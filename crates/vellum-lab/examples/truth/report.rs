//! The table, the goals and the page.

use std::fmt::Write as _;

use crate::cases::Case;
use crate::predict::Modelled;
use crate::statistics::{self, Estimate, error};

/// The median error of the ratio may be this.
const MEDIAN: f64 = 0.10;
/// The worst error of the ratio may be this.
const WORST: f64 = 0.35;
/// A modelled time may be off by this ...
const TIME: f64 = 0.40;
/// ... in this share of the programs.
const SHARE: f64 = 0.75;

/// One program: what was measured and what was predicted.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub case: Case,
    /// Time with huge pages over time without.
    pub measured: Estimate,
    /// The same as predicted.
    pub predicted: Estimate,
    /// Medians of the measured CPU seconds.
    pub native: Modelled,
    /// Medians of the modelled ones.
    pub modelled: Modelled,
}

impl Row {
    fn error(&self) -> f64 {
        error(self.predicted.value, self.measured.value)
    }
    /// Errors of the two times, with 4 KiB pages and with huge ones.
    fn time_errors(&self) -> [f64; 2] {
        [
            error(self.modelled.never, self.native.never),
            error(self.modelled.always, self.native.always),
        ]
    }
    fn times_hold(&self) -> bool {
        self.time_errors().iter().all(|e| e.abs() <= TIME)
    }
    fn sign(&self) -> &'static str {
        match self.measured.agrees(self.predicted.value) {
            Some(true) => "right",
            Some(false) => "WRONG",
            None => "open",
        }
    }
    fn misses(&self) -> bool {
        self.sign() == "WRONG" || self.error().abs() > WORST || !self.times_hold()
    }
    /// The cells of the table, as [`HEADS`] has them.
    fn cells(&self) -> [String; 10] {
        let span = |e: &Estimate| format!("{:.3} [{:.3}, {:.3}]", e.value, e.low, e.high);
        let [never, always] = self.time_errors().map(percent);
        [
            self.case.name.to_owned(),
            span(&self.measured),
            span(&self.predicted),
            percent(self.error()),
            self.sign().to_owned(),
            format!("{:.3}", self.native.never),
            format!("{:.3} ({never})", self.modelled.never),
            format!("{:.3}", self.native.always),
            format!("{:.3} ({always})", self.modelled.always),
            if self.misses() { "miss" } else { "" }.to_owned(),
        ]
    }
}

const HEADS: [&str; 10] = [
    "program",
    "measured ratio",
    "predicted ratio",
    "error",
    "sign",
    "never, s",
    "modelled, s",
    "always, s",
    "modelled, s",
    "",
];

fn share(of_one: f64) -> String {
    format!("{:.0} %", of_one * 100.0)
}

fn percent(share: f64) -> String {
    format!("{:+.0} %", share * 100.0)
}

/// The table for a terminal.
pub fn table(rows: &[Row]) -> String {
    let mut lines = vec![HEADS.map(str::to_owned)];
    lines.extend(rows.iter().map(Row::cells));
    let width = |column: usize| lines.iter().map(|l| l[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 10] = std::array::from_fn(width);
    let mut out = String::new();
    for line in &lines {
        let cells = line.iter().zip(widths).enumerate().map(|(at, (cell, width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let text = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(out, "{}", text.trim_end());
    }
    out
}

/// The table for a page.
fn markdown(rows: &[Row]) -> String {
    let mut out = format!("| {} |\n|{}\n", HEADS.join(" | "), "---|".repeat(HEADS.len()));
    for row in rows {
        let _ = writeln!(out, "| {} |", row.cells().join(" | "));
    }
    out
}

/// A goal: what it says, what came out, and whether it is met.
#[derive(Clone, Debug)]
pub struct Goal {
    /// What is asked for.
    pub text: String,
    /// What came out.
    pub found: String,
    /// Whether that is enough.
    pub met: bool,
}

/// All goals.
pub fn goals(rows: &[Row]) -> Vec<Goal> {
    let signs: Vec<bool> =
        rows.iter().filter_map(|r| r.measured.agrees(r.predicted.value)).collect();
    let right = signs.iter().filter(|right| **right).count();
    let errors: Vec<f64> = rows.iter().map(|r| r.error().abs()).collect();
    let (middle, worst) = (statistics::median(&errors), statistics::of_range(&errors).high);
    let hold = rows.iter().filter(|r| r.times_hold()).count();
    let needed = (SHARE * rows.len() as f64).ceil() as usize;
    vec![
        Goal {
            text: "the sign is right wherever the measured interval excludes 1".to_owned(),
            found: format!("{right} of {}", signs.len()),
            met: right == signs.len(),
        },
        Goal {
            text: format!("the median error of the ratio is at most {}", share(MEDIAN)),
            found: share(middle),
            met: middle <= MEDIAN,
        },
        Goal {
            text: format!("the worst error of the ratio is at most {}", share(WORST)),
            found: share(worst),
            met: worst <= WORST,
        },
        Goal {
            text: format!(
                "both times are within {} for three quarters of the programs",
                share(TIME)
            ),
            found: format!("{hold} of {}, {needed} needed", rows.len()),
            met: hold >= needed,
        },
    ]
}

/// What the goals come to, in a line for the first screen.
pub fn line(rows: &[Row], day: &str) -> String {
    let found: Vec<String> = goals(rows).into_iter().map(|g| g.found).collect();
    format!(
        "{} programs, {day}: gain or loss right in {}, ratio off {}, worst {}",
        rows.len(),
        found[0],
        found[1],
        found[2]
    )
}

/// The goals, one a line.
pub fn summary(goals: &[Goal]) -> String {
    let line = |g: &Goal| {
        format!("{}  {}: {}\n", if g.met { "met   " } else { "MISSED" }, g.text, g.found)
    };
    goals.iter().map(line).collect()
}

/// What is known of the rows that miss a goal, one a line.
pub fn misses(rows: &[Row]) -> String {
    let line = |r: &Row| {
        let why = r.case.lacks.unwrap_or("not explained yet");
        format!("- {} ({}): {why}.\n", r.case.name, r.case.what)
    };
    rows.iter().filter(|r| r.misses()).map(line).collect()
}

/// Where and when it was measured.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The computer, in a line.
    pub computer: String,
    /// The day.
    pub day: String,
    /// Pairs of runs.
    pub pairs: usize,
    /// Calibrations, or the machine that was given in place of them.
    pub machine: String,
}

/// The page `docs/truth.md`.
pub fn page(rows: &[Row], setting: &Setting) -> String {
    let mut what = String::new();
    for row in rows {
        let _ = writeln!(what, "| {} | {} |", row.case.name, row.case.what);
    }
    let mut met = String::new();
    for goal in goals(rows) {
        let word = if goal.met { "yes" } else { "no" };
        let _ = writeln!(met, "| {} | {} | {word} |", goal.text, goal.found);
    }
    let misses = misses(rows);
    let missed = if misses.is_empty() { "No program misses a goal.\n".to_owned() } else { misses };
    include_str!("page.md")
        .replace("{computer}", &setting.computer)
        .replace("{day}", &setting.day)
        .replace("{pairs}", &setting.pairs.to_string())
        .replace("{machine}", &setting.machine)
        .replace("{worst}", &share(WORST))
        .replace("{time}", &share(TIME))
        .replace("{goals}\n", &met)
        .replace("{rows}\n", &markdown(rows))
        .replace("{misses}\n", &missed)
        .replace("{programs}\n", &what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::CASES;

    fn row(measured: f64, predicted: f64, modelled: f64) -> Row {
        let about = |value: f64| Estimate { value, low: value * 0.99, high: value * 1.01 };
        Row {
            case: CASES[0],
            measured: about(measured),
            predicted: about(predicted),
            native: Modelled { never: 1.0, always: measured },
            modelled: Modelled { never: modelled, always: modelled * predicted },
        }
    }

    fn met(rows: &[Row]) -> Vec<bool> {
        goals(rows).iter().map(|g| g.met).collect()
    }

    #[test]
    fn each_goal_can_be_missed() {
        let good = row(0.8, 0.82, 1.1);
        assert_eq!(met(std::slice::from_ref(&good)), [true; 4]);
        assert_eq!(met(&[row(0.95, 1.02, 1.0)]), [false, true, true, true]);
        assert_eq!(met(&[row(0.8, 0.95, 1.0)]), [true, false, true, true]);
        let far = row(0.5, 0.75, 0.9);
        assert_eq!(met(&[good.clone(), good.clone(), far]), [true, true, false, true]);
        let slow = row(0.8, 0.8, 1.5);
        assert_eq!(met(&[good.clone(), good.clone(), good.clone(), slow.clone()]), [true; 4]);
        assert_eq!(met(&[good.clone(), good, slow]), [true, true, true, false]);
    }

    #[test]
    fn a_page_has_every_program_and_names_those_that_miss() {
        let setting = Setting {
            computer: "a computer".to_owned(),
            day: "2000-01-01".to_owned(),
            pairs: 11,
            machine: "3 calibrations".to_owned(),
        };
        let mut wrong = row(0.5, 1.5, 1.0);
        wrong.case = CASES[1];
        let page = page(&[row(0.8, 0.8, 1.0), wrong], &setting);
        assert!(!page.contains('{'), "{page}");
        assert_eq!(page.matches(CASES[0].name).count(), 2, "{page}");
        assert_eq!(page.matches(CASES[1].name).count(), 3, "{page}");
        assert_eq!(table(&[row(0.8, 0.8, 1.0)]).lines().count(), 2);
        let line = line(&[row(0.8, 0.8, 1.0), row(0.8, 0.96, 1.0)], "2000-01-01");
        assert_eq!(
            line,
            "2 programs, 2000-01-01: gain or loss right in 2 of 2, ratio off 10 %, worst 20 %"
        );
    }
}
