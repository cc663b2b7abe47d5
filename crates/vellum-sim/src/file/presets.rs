//! The machines that come with the simulator.

use super::error::MachineError;
use super::spec::Machine;

/// Name and text of each file.
const FILES: [(&str, &str); 6] = [
    ("milan", include_str!("../../machines/milan.toml")),
    ("icelake-x", include_str!("../../machines/icelake-x.toml")),
    ("thunderx2", include_str!("../../machines/thunderx2.toml")),
    ("westmere-ex", include_str!("../../machines/westmere-ex.toml")),
    ("tiered", include_str!("../../machines/tiered.toml")),
    ("tiny", include_str!("../../machines/tiny.toml")),
];

/// Names of the presets.
pub fn presets() -> [&'static str; FILES.len()] {
    FILES.map(|(name, _)| name)
}

/// A preset's text, to start a machine file from.
pub fn preset_text(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(n, _)| *n == name).map(|&(_, text)| text)
}

/// A preset by name.
pub fn preset(name: &str) -> Result<Machine, MachineError> {
    match preset_text(name) {
        Some(text) => Machine::parse(&format!("{name}.toml"), text),
        None => Err(MachineError::Unknown { name: name.to_string(), known: presets().join(", ") }),
    }
}

impl Machine {
    /// Whether it is the preset of that name to the last value, whatever its own name and words
    /// are.
    pub fn is_preset(&self, name: &str) -> bool {
        preset(name).is_ok_and(|preset| self.constants() == preset.constants())
    }
}
