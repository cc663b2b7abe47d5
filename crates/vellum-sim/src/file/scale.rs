//! Changing a machine: one constant, since a result that rests on a guess is shown with the guess
//! halved and doubled; or some, for a machine that differs from another in them.

use toml::{Table, Value};

use super::error::MachineError;
use super::load::syntax;
use super::spec::Machine;

impl Machine {
    /// The machine with one constant (`"core.walkers"`, `"nodes.0.memory"`) multiplied by `times /
    /// by`; a matrix is scaled whole, and `"llc"` as the size of the last level, for which it
    /// stands. Errors: no such constant, one that is no number, or a machine that cannot be.
    pub fn scaled(&self, key: &str, times: u32, by: u32) -> Result<Machine, MachineError> {
        let last_level = i64::try_from(self.llc.size.0).ok().map(Value::Integer);
        self.changed(key, |value| {
            let number = if value.as_str() == Some("llc") { last_level.as_ref()? } else { value };
            scale(number, times.max(1), by.max(1))
        })
    }

    /// The machine with one constant replaced, written as in the file (`"64 KiB"` with its quotes,
    /// or `8`).
    pub fn with(&self, key: &str, text: &str) -> Result<Machine, MachineError> {
        let parsed = text.parse::<Value>().unwrap_or_else(|_| Value::String(text.to_string()));
        self.changed(key, |_| Some(parsed))
    }

    /// The machine with the constants of `text` in place of its own, or beside them. The text is a
    /// part of a machine file: each constant in it has its value, its basis and its source. An
    /// array replaces an array. `file` is its name in messages.
    pub fn overlaid(&self, file: &str, text: &str) -> Result<Machine, MachineError> {
        let part: Table = toml::from_str(text).map_err(|e| syntax(file, text, &e))?;
        let mut tree = self.tree.clone();
        lay(&mut tree, part);
        Machine::from_tree(file, tree)
    }

    fn changed(
        &self,
        key: &str,
        change: impl FnOnce(&Value) -> Option<Value>,
    ) -> Result<Machine, MachineError> {
        let error = |wrong: &str, mend: &str| MachineError::Value {
            file: self.file.clone(),
            key: key.to_string(),
            wrong: wrong.to_string(),
            mend: mend.to_string(),
        };
        let mut tree = Value::Table(self.tree.clone());
        let mut at = &mut tree;
        for part in key.split('.') {
            let next = match at {
                Value::Table(table) => table.get_mut(part),
                Value::Array(items) => part.parse::<usize>().ok().and_then(|n| items.get_mut(n)),
                _ => None,
            };
            at = next.ok_or_else(|| {
                error("no such constant", "name it as the list of the machine's constants does")
            })?;
        }
        let constant = at.as_table_mut().filter(|t| t.contains_key("basis"));
        let Some(value) = constant.and_then(|t| t.get_mut("value")) else {
            return Err(error("not a constant", "name a key that has value, basis and source"));
        };
        *value = change(value)
            .ok_or_else(|| error("not a number", "only numbers, sizes and times can be scaled"))?;
        let Value::Table(tree) = tree else {
            return Err(error("not a table", "give a machine file"));
        };
        Machine::from_tree(&self.file, tree)
    }
}

/// Puts constants over those of a table; sections are gone into.
fn lay(table: &mut Table, part: Table) {
    for (key, value) in part {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) if !new.contains_key("basis") => {
                lay(old, new);
            }
            (_, value) => _ = table.insert(key, value),
        }
    }
}

/// A value times `times / by`; millionths are kept where the unit allows fractions.
fn scale(value: &Value, times: u32, by: u32) -> Option<Value> {
    match value {
        Value::Integer(i) => {
            let scaled = i128::from(*i) * i128::from(times) / i128::from(by);
            // A count of one cannot be halved to none.
            Some(Value::Integer(i64::try_from(scaled).ok()?.max((*i).min(1))))
        }
        Value::Float(f) => Some(Value::Float(f * f64::from(times) / f64::from(by))),
        Value::Array(items) => {
            Some(Value::Array(items.iter().map(|v| scale(v, times, by)).collect::<Option<_>>()?))
        }
        Value::String(text) => {
            let split = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')?;
            let (number, unit) = text.split_at(split);
            let known =
                ["B", "KiB", "MiB", "GiB", "TiB", "ps", "ns", "us", "ms", "cycles", "cycle"];
            if !known.contains(&unit.trim()) && !unit.trim().ends_with("B/s") {
                return None;
            }
            let number: f64 = number.replace('_', "").parse().ok()?;
            let scaled = format!("{:.6}", number * f64::from(times) / f64::from(by));
            Some(Value::String(format!(
                "{} {}",
                scaled.trim_end_matches('0').trim_end_matches('.'),
                unit.trim()
            )))
        }
        _ => None,
    }
}
