//! Reading a machine file.

use std::path::Path;

use toml::Value;

use super::constant::{Basis, ConstantRow, Share};
use super::error::MachineError;
use super::spec::Machine;

/// What is wrong with the text of a file, and in which line.
pub(super) fn syntax(file: &str, text: &str, e: &toml::de::Error) -> MachineError {
    MachineError::Syntax {
        file: file.to_string(),
        line: e.span().map_or(1, |s| text[..s.start.min(text.len())].matches('\n').count() + 1),
        message: e.message().trim().replace('\n', ", "),
    }
}

/// Bytes a machine file may have; the presets have some 10,000.
const MAX_FILE: u64 = 1 << 20;

impl Machine {
    /// Reads a machine file, a regular file of at most 1 MiB.
    pub fn load(path: &Path) -> Result<Machine, MachineError> {
        let file = path.display().to_string();
        let unreadable = |why: String| MachineError::Unreadable { file: file.clone(), why };
        let meta = std::fs::metadata(path).map_err(|e| unreadable(e.to_string()))?;
        if !meta.is_file() || meta.len() > MAX_FILE {
            return Err(unreadable(
                "no regular file of at most 1 MiB; give the path of a .toml machine file".into(),
            ));
        }
        let text = std::fs::read_to_string(path).map_err(|e| unreadable(e.to_string()))?;
        Machine::parse(&file, &text)
    }

    /// Reads the text of a machine file; `file` is its name in messages.
    pub fn parse(file: &str, text: &str) -> Result<Machine, MachineError> {
        let machine: Machine = toml::from_str(text).map_err(|e| syntax(file, text, &e))?;
        machine.finish(file, toml::from_str(text).map_err(|e| syntax(file, text, &e))?)
    }

    /// Reads a changed tree of a machine file.
    pub(super) fn from_tree(file: &str, tree: toml::Table) -> Result<Machine, MachineError> {
        let machine = Value::Table(tree.clone()).try_into::<Machine>();
        machine.map_err(|e| syntax(file, "", &e))?.finish(file, tree)
    }

    fn finish(mut self, file: &str, tree: toml::Table) -> Result<Machine, MachineError> {
        self.tree = tree;
        self.file = file.to_string();
        match self.check() {
            Ok(()) => Ok(self),
            Err((key, wrong, mend)) => {
                Err(MachineError::Value { file: file.to_string(), key, wrong, mend })
            }
        }
    }

    /// Every constant of the file, in the order of keys.
    pub fn constants(&self) -> Vec<ConstantRow> {
        let mut rows = Vec::new();
        collect(String::new(), &Value::Table(self.tree.clone()), &mut rows);
        rows
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_string() } else { format!("{path}.{key}") }
}

/// Walks a tree in key order; a table with a basis is a constant.
fn collect(path: String, value: &Value, rows: &mut Vec<ConstantRow>) {
    match value {
        Value::Table(table) => {
            let text = |key| table.get(key).and_then(Value::as_str);
            if let (Some(basis), Some(inner)) = (text("basis"), table.get("value")) {
                let all = [Basis::Before, Basis::Outside, Basis::Fitted, Basis::Guess];
                let basis = all.into_iter().find(|b| b.name() == basis).unwrap_or(Basis::Guess);
                let source = text("source").unwrap_or_default().to_string();
                let value = inner.as_str().map_or_else(|| inner.to_string(), str::to_string);
                let number = |v: &Value| v.as_float().or(v.as_integer().map(|n| n as f64));
                let spread = table.get("spread").and_then(number);
                let spread = spread.and_then(|share| Share::try_from(share).ok());
                rows.push(ConstantRow { key: path, value, basis, source, spread });
                return;
            }
            table.iter().for_each(|(key, inner)| collect(join(&path, key), inner, rows));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(n, inner)| collect(join(&path, &n.to_string()), inner, rows));
        }
        _ => {}
    }
}
