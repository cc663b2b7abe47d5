//! `--sweep KEY=V1,V2,...`: one column for each value of a constant of the machine, all with the
//! same switches.

use vellum_sim::file::Machine;

use crate::error::LabError;
use crate::switches::Variant;
use crate::text::nearest;

/// The columns of a sweep; the first value is the base.
#[derive(Debug)]
pub struct Sweep {
    /// The base's switches under the names of the values.
    pub columns: Vec<Variant>,
    /// The machine of each column.
    pub machines: Vec<Machine>,
}

impl Sweep {
    /// What `text` asks of `machine`, with the switches of `base`.
    pub fn new(text: &str, machine: &Machine, base: &Variant) -> Result<Sweep, LabError> {
        let Some((key, values)) = text.split_once('=') else {
            return Err(LabError::usage(format_args!(
                "--sweep {text}: write KEY=VALUE,VALUE, as in llc.size=16M,32M"
            )));
        };
        if key == "clock_hz" {
            return Err(LabError::usage(
                "--sweep clock_hz: times are told in cycles, of which a faster clock makes more; \
                 sweep what is slow beside it, as memory.latency",
            ));
        }
        let constants = machine.constants();
        if constants.iter().all(|row| row.key != key) {
            let near = nearest(key, constants.iter().map(|row| row.key.as_str()));
            return Err(LabError::usage(format_args!(
                "--sweep {key}: the machine `{}` has no such constant{}; `vellum machines {}` \
                 lists them",
                machine.name,
                near.map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default(),
                machine.name
            )));
        }
        let mut sweep = Sweep { columns: Vec::new(), machines: Vec::new() };
        for value in values.split(',') {
            if value.trim().is_empty() {
                return Err(LabError::usage(format_args!(
                    "--sweep {text}: a value in the list is empty; write KEY=VALUE,VALUE"
                )));
            }
            let name = format!("{key}={value}");
            if sweep.columns.iter().any(|column| column.name == name) {
                return Err(LabError::usage(format_args!(
                    "--sweep {text}: {value} is in the list twice; name each value once"
                )));
            }
            let swept = machine
                .with(key, value)
                .map_err(|e| LabError::usage(format_args!("--sweep {name}: {e}")))?;
            sweep.machines.push(swept);
            sweep.columns.push(Variant { name, ..base.clone() });
        }
        Ok(sweep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_has_a_machine_for_each_value_and_refuses_what_is_none() {
        let milan = vellum_sim::file::preset("milan").expect("a preset");
        let sweep = |text: &str| Sweep::new(text, &milan, &Variant::defaults());
        let found = sweep("llc.size=16M,64 MiB").expect("two sizes");
        let sizes: Vec<u64> = found.machines.iter().map(|m| m.llc.size.0).collect();
        assert_eq!(sizes, [16 << 20, 64 << 20]);
        assert_eq!(found.columns[1].name, "llc.size=64 MiB");
        assert_eq!(
            sweep("core.walkers=1,2").expect("two counts").machines[0].core.walkers.value,
            1
        );
        let says = |text: &str| sweep(text).expect_err("no sweep").to_string();
        assert!(says("llc.siez=16M").contains("did you mean `llc.size`"));
        assert!(says("llc.size=16M,many").starts_with("--sweep llc.size=many: "));
        for empty in ["llc.size=", "llc.size=8M,,9M", "llc.size=8M,"] {
            assert!(says(empty).starts_with(&format!("--sweep {empty}: a value in the list is")));
        }
        assert!(says("llc.size").contains("write KEY=VALUE,VALUE"));
        assert!(says("llc.size=8M,16M,8M").contains("8M is in the list twice"));
        assert!(says("clock_hz=1000000000").contains("told in cycles"));
    }
}
