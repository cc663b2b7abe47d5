//! The provenance of a figure, from the machine file.
//!
//! An experiment names constants, or groups of them (`l2` stands for all keys that begin with
//! `l2.`). If any of them is fitted, so is the figure. Else, if any is a guess, the figure is a
//! guess, and is shown with that guess halved and doubled. Else it is a prediction. What the
//! experiment sets itself, such as a replacement policy, does not count.

use vellum_sim::file::{Basis, ConstantRow, Machine};

use super::side;
use crate::error::LabError;

/// The mark of a figure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mark {
    /// It rests on measurements of the state before and on outside sources only.
    Predicted,
    /// A constant is an estimate.
    Guess,
    /// A constant was fitted to a measurement of the state after.
    Fitted,
}

impl Mark {
    /// The letter in tables.
    pub const fn letter(self) -> &'static str {
        match self {
            Mark::Predicted => "p",
            Mark::Guess => "g",
            Mark::Fitted => "f",
        }
    }
    /// The word in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Mark::Predicted => "predicted",
            Mark::Guess => "guess",
            Mark::Fitted => "fitted",
        }
    }
}

/// A guess, and the figure with it halved and doubled. `None` where no such machine can exist.
#[derive(Clone, Debug)]
pub struct Sensitivity {
    /// The constant's key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// The figure with half of it.
    pub halved: Option<f64>,
    /// The figure with twice as much.
    pub doubled: Option<f64>,
}

impl Sensitivity {
    /// The largest change of the figure, as a share of it.
    pub fn moves(&self, figure: f64) -> f64 {
        let off = |v: Option<f64>| v.map_or(0.0, |v| (v - figure).abs() / figure.abs().max(1e-9));
        off(self.halved).max(off(self.doubled))
    }
}

/// The constants a figure rests on.
#[derive(Clone, Debug)]
pub struct Provenance {
    /// The mark that follows from them.
    pub mark: Mark,
    /// The constants.
    pub constants: Vec<ConstantRow>,
    /// The guesses among them that are numbers, halved and doubled.
    pub sensitivities: Vec<Sensitivity>,
    /// Whether they were halved and doubled.
    pub varied: bool,
}

/// The constants of some groups, and the mark that follows.
pub fn provenance(machine: &Machine, groups: &[&str]) -> Result<Provenance, LabError> {
    let all = machine.constants();
    for group in groups {
        if !all.iter().any(|row| within(&row.key, group)) {
            return Err(LabError::failed(format_args!(
                "the machine `{}` has no constant `{group}`",
                machine.name
            )));
        }
    }
    let constants: Vec<ConstantRow> =
        all.into_iter().filter(|row| groups.iter().any(|group| within(&row.key, group))).collect();
    let mark = constants.iter().map(|row| mark_of(row.basis)).max().unwrap_or(Mark::Predicted);
    Ok(Provenance { mark, constants, sensitivities: Vec::new(), varied: false })
}

fn within(key: &str, group: &str) -> bool {
    key.strip_prefix(group).is_some_and(|tail| tail.is_empty() || tail.starts_with('.'))
}

fn mark_of(basis: Basis) -> Mark {
    match basis {
        Basis::Before | Basis::Outside => Mark::Predicted,
        Basis::Guess => Mark::Guess,
        Basis::Fitted => Mark::Fitted,
    }
}

/// As [`provenance`], with each guess that is a number halved and doubled and the figure measured
/// again.
pub fn measured_provenance(
    machine: &Machine,
    groups: &[&str],
    figure: &(dyn Fn(&Machine) -> Result<f64, LabError> + Sync),
) -> Result<Provenance, LabError> {
    let rests =
        measured_provenances(machine, groups, &|machine| figure(machine).map(|figure| [figure]))?;
    let [provenance] = rests;
    Ok(provenance)
}

/// As [`measured_provenance`] for several figures that rest on the same constants and are measured
/// together.
pub fn measured_provenances<const N: usize>(
    machine: &Machine,
    groups: &[&str],
    figures: &(dyn Fn(&Machine) -> Result<[f64; N], LabError> + Sync),
) -> Result<[Provenance; N], LabError> {
    let provenance = provenance(machine, groups)?;
    let guesses = provenance.constants.iter().filter(|row| row.basis == Basis::Guess);
    // Words (a policy, an inclusion) cannot be halved.
    let numbers: Vec<&ConstantRow> =
        guesses.filter(|row| machine.scaled(&row.key, 1, 1).is_ok()).collect();
    let asked: Vec<(&ConstantRow, u32, u32)> =
        numbers.iter().flat_map(|&row| [(row, 1, 2), (row, 2, 1)]).collect();
    let varied = side::by_side(&asked, |&(row, times, by)| {
        // A machine that cannot be with it (nine ways in a set of eight sizes) has no figure.
        machine.scaled(&row.key, times, by).ok().map(|machine| figures(&machine)).transpose()
    })?;
    Ok(std::array::from_fn(|nth| {
        let sensitivity = |(row, pair): (&&ConstantRow, &[Option<[f64; N]>])| Sensitivity {
            key: row.key.clone(),
            value: row.value.clone(),
            halved: pair[0].map(|figures| figures[nth]),
            doubled: pair[1].map(|figures| figures[nth]),
        };
        Provenance {
            sensitivities: numbers.iter().zip(varied.chunks(2)).map(sensitivity).collect(),
            varied: true,
            ..provenance.clone()
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(text: &str) -> Machine {
        Machine::parse("test.toml", text).expect("a machine")
    }

    #[test]
    fn a_mark_is_the_worst_basis_of_the_constants_named() {
        let thunder = vellum_sim::file::preset("thunderx2").expect("a preset");
        assert_eq!(provenance(&thunder, &["l1d.size", "l1d.ways"]).unwrap().mark, Mark::Predicted);
        assert_eq!(provenance(&thunder, &["l1d"]).unwrap().mark, Mark::Guess, "its latency is one");
        let text = vellum_sim::file::preset_text("thunderx2").expect("a preset");
        let from = "ways = { value = 8, basis = \"before\", \
                    source = \"Shan 2020: 64 B x 64 sets x 8 ways\" }";
        let fitted = text.replacen(from, &from.replace("before", "fitted"), 1);
        assert_ne!(fitted, text);
        assert_eq!(
            provenance(&machine(&fitted), &["l1d"]).unwrap().mark,
            Mark::Fitted,
            "fitted is worse than guessed"
        );
        assert_eq!(
            provenance(&machine(&fitted), &["l2.size"]).unwrap().mark,
            Mark::Predicted,
            "others are not concerned"
        );
    }

    #[test]
    fn a_group_that_no_constant_has_is_an_error_and_not_a_prediction() {
        let thunder = vellum_sim::file::preset("thunderx2").expect("a preset");
        assert!(provenance(&thunder, &["l1d.size", "l9"]).is_err());
        assert!(provenance(&thunder, &["l1"]).is_err(), "a group is a whole word");
    }

    #[test]
    fn guesses_are_halved_and_doubled_one_at_a_time() {
        let thunder = vellum_sim::file::preset("thunderx2").expect("a preset");
        let figure =
            |m: &Machine| Ok(f64::from(*m.llc.ways) + m.llc.size.0 as f64 / (1u64 << 30) as f64);
        let provenance = measured_provenance(&thunder, &["llc"], &figure).unwrap();
        let ways = provenance.sensitivities.iter().find(|s| s.key == "llc.ways").expect("a guess");
        let base = figure(&thunder).unwrap();
        assert_eq!((ways.halved, ways.doubled), (Some(base - 8.0), Some(base + 16.0)));
        assert!(ways.moves(base) > 0.9);
        assert!(provenance.sensitivities.iter().all(|s| s.key != "llc.size"), "that is no guess");
        assert!(
            provenance.sensitivities.iter().all(|s| s.key != "llc.policy"),
            "words cannot be halved"
        );
    }
}
