//! The machines of the runs: a preset, and a part of a machine file over it.

use vellum_sim::file::{ConstantRow, Machine};

use crate::error::LabError;

/// A part of a machine file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    name: &'static str,
    text: &'static str,
}

const fn part(name: &'static str, text: &'static str) -> Part {
    Part { name, text }
}

pub(super) const MILAN_V3: Part = part("milan-v3", include_str!("machines/milan-v3.toml"));
pub(super) const MILAN_V8: Part = part("milan-v8", include_str!("machines/milan-v8.toml"));
pub(super) const GENOA: Part = part("genoa", include_str!("machines/genoa.toml"));
pub(super) const ZEN_5: Part = part("zen5", include_str!("machines/zen5.toml"));
pub(super) const WESTMERE: Part = part("westmere-ep", include_str!("machines/westmere-ep.toml"));
pub(super) const THUNDER: Part = part("thunderx2-v1", include_str!("machines/thunderx2-v1.toml"));

impl Part {
    /// The machine: the preset with this part over it.
    pub(super) fn over(&self, preset: &Machine) -> Result<Machine, LabError> {
        preset.overlaid(&format!("{}.toml", self.name), self.text).map_err(LabError::failed)
    }

    /// What it changes of the preset, each constant with what it rests on.
    pub(super) fn changes(&self, preset: &Machine) -> Result<String, LabError> {
        let (machine, old) = (self.over(preset)?, preset.constants());
        let new: Vec<ConstantRow> =
            machine.constants().into_iter().filter(|row| !old.contains(row)).collect();
        let line = |row: &ConstantRow| {
            format!("{} = {} ({}: {})", row.key, row.value, row.basis.name(), row.source)
        };
        let lines: Vec<String> = new.iter().map(line).collect();
        Ok(format!("{} is {} with: {}.", self.name, preset.name, lines.join("; ")))
    }
}
