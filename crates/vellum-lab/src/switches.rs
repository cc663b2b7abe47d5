//! Switches from the command line: the base column and the columns beside it.
//!
//! A column is a full set of values, kept as text in the order of the library's table, beside the
//! [`Config`] they make. The text is what tables and JSON print; the config is what the machine
//! runs.
//!
//! `--vs X=V` asks "what does X=V do?". The library's defaults are the best known choices, so for
//! most switches V is the default already and a base at defaults would compare a thing with itself.
//! Therefore a switch which only `--vs` names, with nothing but its default, is *plain* in the
//! base: the value that leaves the mechanism out. Rejected: refusing such a line (the commonest
//! question would be an error), and plain values everywhere (a run without `--vs` would not be of
//! the library's defaults).

use vellum::config::{Config, SWITCHES};
use vellum::error::ConfigError;

use crate::error::LabError;

/// One column: a name, every switch's value, and the configuration they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variant {
    /// What the column is called: the values of the switches in which the columns differ.
    pub name: String,
    /// Every switch and its value, in the order of [`SWITCHES`].
    pub values: Vec<(&'static str, String)>,
    /// What the machine is given.
    pub config: Config,
}

impl Variant {
    /// Every switch at its default.
    pub fn defaults() -> Variant {
        Variant {
            name: "defaults".to_owned(),
            values: SWITCHES.iter().map(|s| (s.name, s.default.to_owned())).collect(),
            config: Config::default(),
        }
    }

    /// Sets one switch; the error is the line to print.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), LabError> {
        self.config.set(name, value).map_err(|e| match e {
            ConfigError::UnknownSwitch => LabError::usage(format_args!(
                "there is no switch `{name}`{}; `vellum switches` lists them",
                nearest(name).map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default()
            )),
            ConfigError::BadValue(values) => LabError::usage(format_args!(
                "switch `{name}` does not take `{value}`; it takes {values}"
            )),
        })?;
        if let Some(slot) = self.values.iter_mut().find(|(n, _)| *n == name) {
            value.clone_into(&mut slot.1);
        }
        Ok(())
    }

    fn get(&self, name: &str) -> &str {
        self.values.iter().find(|(n, _)| *n == name).map_or("", |(_, v)| v)
    }
}

/// The columns of one run, from `--set` and `--vs` as they were typed; the base is first.
pub fn columns(set: &[String], vs: &[String]) -> Result<Vec<Variant>, LabError> {
    let set = set.iter().map(|s| pairs(s)).collect::<Result<Vec<_>, _>>()?.concat();
    let vs = vs.iter().map(|s| pairs(s)).collect::<Result<Vec<_>, _>>()?;

    once(&set)?;
    for pairs in &vs {
        once(pairs)?;
    }
    let mut base = Variant::defaults();
    for (name, value) in &set {
        base.set(name, value)?;
    }
    for s in SWITCHES {
        let asked: Vec<&str> =
            vs.iter().flatten().filter(|(n, _)| *n == s.name).map(|(_, v)| *v).collect();
        let chosen = set.iter().any(|(n, _)| *n == s.name);
        if !chosen && !asked.is_empty() && asked.iter().all(|v| *v == s.default) {
            base.set(s.name, plain(s.name, s.values))?;
        }
    }
    let mut columns = vec![base.clone()];
    for pairs in &vs {
        let mut v = base.clone();
        for (name, value) in pairs {
            v.set(name, value)?;
        }
        columns.push(v);
    }
    if let Some(twin) =
        (1..columns.len()).find(|&i| columns[..i].iter().any(|c| c.values == columns[i].values))
    {
        return Err(LabError::usage(format_args!(
            "two columns are the same ({}); change a --vs, or --set another base",
            vs[twin - 1].iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(",")
        )));
    }
    name_columns(&mut columns);
    Ok(columns)
}

/// Refuses a column that names a switch twice: one of the two values would be dropped without a
/// word.
fn once(pairs: &[(&str, &str)]) -> Result<(), LabError> {
    for (i, (name, _)) in pairs.iter().enumerate() {
        if pairs[..i].iter().any(|(n, _)| n == name) {
            return Err(LabError::usage(format_args!(
                "switch `{name}` is set twice for one column; give it one value"
            )));
        }
    }
    Ok(())
}

/// The value of a switch that leaves its mechanism out.
fn plain(name: &str, values: &'static str) -> &'static str {
    let mut all = values.split('|');
    match name {
        "levels" => "4",
        "zero.colours" => "1",
        "clear.batch" => "8M",
        // It sizes what `clear.batch=auto` does, and is nothing by itself.
        "clear.target" => "1000",
        "clear.order" => "ascending",
        "clear.stores" => "cached",
        _ => all
            .clone()
            .find(|v| matches!(*v, "never" | "off" | "none"))
            .or(all.next())
            .unwrap_or(""),
    }
}

/// The base is named by its values of the switches in which columns differ (when none do, by what
/// differs from the defaults), the others by what differs from the base. With many switches in play
/// the base is just that.
fn name_columns(columns: &mut [Variant]) {
    let names = |c: &Variant, shown: &dyn Fn(&str) -> bool| {
        let pairs = SWITCHES
            .iter()
            .map(|s| s.name)
            .filter(|n| shown(n))
            .map(|n| format!("{n}={}", c.get(n)));
        pairs.collect::<Vec<_>>()
    };
    let Some((base, others)) = columns.split_first_mut() else { return };
    let mut shown = names(base, &|n| others.iter().any(|c| c.get(n) != base.get(n)));
    if shown.is_empty() {
        let defaults = Variant::defaults();
        shown = names(base, &|n| base.get(n) != defaults.get(n));
    }
    for c in others {
        c.name = names(c, &|n| c.get(n) != base.get(n)).join(",");
    }
    base.name = match shown.len() {
        0 => "defaults".to_owned(),
        1 | 2 => shown.join(","),
        _ => "base".to_owned(),
    };
}

/// `a=b,c=d` as pairs.
fn pairs(text: &str) -> Result<Vec<(&str, &str)>, LabError> {
    text.split(',')
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) if !name.is_empty() && !value.is_empty() => {
                Ok((name.trim(), value.trim()))
            }
            _ => Err(LabError::usage(format_args!(
                "`{pair}` is not SWITCH=VALUE; write for example thp=never (`vellum switches` \
                 lists them)"
            ))),
        })
        .collect()
}

/// The switch a typing error most likely meant: the name at the smallest edit distance, if that is
/// at most 2.
fn nearest(name: &str) -> Option<&'static str> {
    crate::text::nearest(name, SWITCHES.iter().map(|s| s.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(s: &[&str]) -> Vec<String> {
        s.iter().map(|s| (*s).to_owned()).collect()
    }

    #[test]
    fn a_switch_asked_for_with_its_default_is_plain_in_the_base() {
        let c = columns(&[], &strings(&["thp=always"])).unwrap();
        assert_eq!(
            c.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
            ["thp=never", "thp=always"]
        );
        assert_eq!(c[1].config, Config::default());
    }

    #[test]
    fn a_switch_asked_for_with_another_value_is_at_its_default_in_the_base() {
        let c = columns(&[], &strings(&["thp=never", "thp=advise"])).unwrap();
        assert_eq!(
            c.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
            ["thp=always", "thp=never", "thp=advise"]
        );
    }

    #[test]
    fn set_reaches_every_column_and_vs_only_its_own() {
        let c =
            columns(&strings(&["zero.page=off"]), &strings(&["tlb.batch=off,thp=never"])).unwrap();
        assert!(c.iter().all(|c| !c.config.zero_page));
        assert!(c[0].config.tlb_batch && !c[1].config.tlb_batch);
        assert_eq!(
            [c[0].name.as_str(), c[1].name.as_str()],
            ["thp=always,tlb.batch=on", "thp=never,tlb.batch=off"]
        );
    }

    #[test]
    fn every_switch_has_a_plain_value_that_it_takes() {
        for s in SWITCHES {
            Variant::defaults().set(s.name, plain(s.name, s.values)).unwrap();
        }
    }

    #[test]
    fn mistakes_are_answered_with_what_would_be_right() {
        let text = |set: &[&str], vs: &[&str]| {
            columns(&strings(set), &strings(vs)).unwrap_err().to_string()
        };
        assert!(text(&["tph=never"], &[]).contains("did you mean `thp`"));
        assert!(text(&["thp=maybe"], &[]).contains("it takes never|advise|always"));
        assert!(text(&["thp"], &[]).contains("is not SWITCH=VALUE"));
        assert!(text(&["thp=never"], &["thp=never"]).contains("two columns are the same"));
    }
}
