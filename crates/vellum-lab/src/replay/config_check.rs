//! Checks what names a part of the machine: a machine without it is refused.

use std::borrow::Cow;

use vellum::config::{Config, NumaPolicy, ZeroHuge};
use vellum_sim::file::{Codec, Machine};

use crate::cli::FileState;
use crate::error::LabError;

/// The machine as `config` wants it. A machine of five levels can be set to walk four, as its
/// hardware can; not the other way.
pub fn check_config<'m>(
    machine: &'m Machine,
    config: &Config,
    files: FileState,
) -> Result<Cow<'m, Machine>, LabError> {
    if let NumaPolicy::Bind(n) | NumaPolicy::Prefer(n) = config.numa
        && usize::from(n) >= machine.nodes.len()
    {
        return Err(LabError::usage(format_args!(
            "numa names node {n}, but the machine `{}` has nodes 0 to {}",
            machine.name,
            machine.nodes.len() - 1
        )));
    }
    let zero_tables = matches!(config.zero_huge, ZeroHuge::Table | ZeroHuge::TablePrivate);
    if zero_tables && *machine.mmu.codec == Codec::Aarch64 {
        return Err(LabError::usage(format_args!(
            "zero.huge asks for tables of zeros, which the machine `{}` cannot have: its entry \
             format leaves them out",
            machine.name
        )));
    }
    if files == FileState::Cold && machine.disk.is_none() {
        return Err(LabError::usage(format_args!(
            "--files cold: the machine `{}` has no disk; add a [disk] section to its file, or take \
             another (docs/machine-format.md)",
            machine.name
        )));
    }
    match config.levels {
        Some(levels) if levels > *machine.mmu.levels => Err(LabError::usage(format_args!(
            "the machine `{}` walks {} levels, not {levels}; take one that does (`vellum \
             machines`)",
            machine.name, *machine.mmu.levels
        ))),
        Some(levels) if levels < *machine.mmu.levels => {
            let mut shallow = machine.clone();
            shallow.mmu.levels.value = levels;
            Ok(Cow::Owned(shallow))
        }
        _ => Ok(Cow::Borrowed(machine)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_sim::file::preset;

    const WARM: FileState = FileState::Warm;

    #[test]
    fn depth_can_be_less_than_the_machines_and_not_more() {
        let with = |levels| Config { levels: Some(levels), ..Config::default() };
        let deep = preset("icelake-x").unwrap();
        assert_eq!(*check_config(&deep, &with(4), WARM).unwrap().mmu.levels, 4);
        assert_eq!(*check_config(&deep, &with(5), WARM).unwrap().mmu.levels, 5);
        assert!(
            check_config(&preset("milan").unwrap(), &with(5), WARM)
                .unwrap_err()
                .to_string()
                .contains("walks 4 levels")
        );
    }

    #[test]
    fn a_node_must_exist() {
        let tiered = preset("tiered").unwrap();
        let with = |numa| Config { numa, ..Config::default() };
        assert!(check_config(&tiered, &with(NumaPolicy::Bind(1)), WARM).is_ok());
        assert!(
            check_config(&tiered, &with(NumaPolicy::Prefer(2)), WARM)
                .unwrap_err()
                .to_string()
                .contains("nodes 0 to 1")
        );
    }
}
