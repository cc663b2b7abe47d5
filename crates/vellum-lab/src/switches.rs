//! Switches from the command line: the base column and the columns beside it.
//!
//! A column is a full set of values, kept as text in the order of the library's table, beside the
//! [`Config`] they make. The text is what tables and JSON print; the config is what the machine
//! runs.
//!
//! Who runs a program on Linux asks two things: what another setting of Linux would do, and what
//! this library would. So the base has Linux's choices, with the huge pages of the host that was
//! recorded ([`linux`]); each `--vs` changes those; and the last column has the library's own.
//! `--as vellum` begins with these instead. Rejected: the library's choices as the base (readers
//! took its cleared blocks and its copies of 2 MiB for their kernel's).
//!
//! `--vs X=V` asks "what does X=V do?". Where the base has V already, it would compare a thing with
//! itself. Therefore a switch which only `--vs` names, with nothing but the base's value, is
//! *plain* in the base: the value that leaves the mechanism out, or if V is that, the library's
//! own. Rejected: refusing such a line
//! (the commonest question would be an error).

use vellum::config::Config;
use vellum::error::ConfigError;
use vellum_trace::{Header, printable};

use crate::cli::Choices;
use crate::error::LabError;
use crate::replay::CollapseScan;

/// A switch as users see it.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    /// Its one name.
    pub name: &'static str,
    /// The values it takes.
    pub values: &'static str,
    /// The library's choice.
    pub default: &'static str,
    /// What is bought, and what is paid for it.
    pub trades: &'static str,
}

/// What a replay does beside the library, which has no thread of its own.
const OF_REPLAY: [Switch; 4] = [
    Switch {
        name: "collapse.scan",
        values: "off|PAGES, from 1 on",
        default: "off",
        trades: "huge pages later where there were none at first, for copying and memory that \
                 nobody uses: Linux's khugepaged, each of whose scans looks at so many \
                 pages (pages_to_scan)",
    },
    Switch {
        name: "collapse.sleep",
        values: "MILLISECONDS, from 1 on",
        default: "10000",
        trades: "the time from a scan of collapse.scan to the next: huge pages sooner, for more \
                 scans (scan_sleep_millisecs)",
    },
    Switch {
        name: "collapse.none",
        values: "PAGES, 0 to 511",
        default: "511",
        trades: "how many of 512 pages may be missing where collapse.scan makes a huge page: more \
                 of these, for memory that nobody uses (max_ptes_none)",
    },
    Switch {
        name: "file.folios",
        values: "off|SIZE such as 128K, whole pages to 1G",
        default: "off",
        trades: "fewer faults on files, for pages that are dirty though nobody wrote to them: a \
                 fault maps all that Linux's page cache keeps in one piece, having read so much \
                 ahead (read_ahead_kb)",
    },
];

/// All switches: the library's, then those of a replay.
pub fn switches() -> impl Iterator<Item = Switch> {
    let of_library = vellum::config::SWITCHES.iter().map(|s| {
        let (name, values, default, trades) = (s.name, s.values, s.default, s.trades);
        Switch { name, values, default, trades }
    });
    of_library.chain(OF_REPLAY)
}

/// One column: a name, every switch's value, and the configuration they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variant {
    /// What the column is called: the values of the switches in which the columns differ.
    pub name: String,
    /// Every switch and its value, in the order of [`switches`].
    pub values: Vec<(&'static str, String)>,
    /// What the library is given.
    pub config: Config,
    /// What is collapsed in the background.
    pub collapse: CollapseScan,
    /// Pages that are read ahead of files whose folios are mapped whole; 0: pages are mapped.
    pub folio_ahead: u64,
}

impl Variant {
    /// Every switch at its default.
    pub fn defaults() -> Variant {
        Variant {
            name: "defaults".to_owned(),
            values: switches().map(|s| (s.name, s.default.to_owned())).collect(),
            config: Config::default(),
            collapse: CollapseScan::default(),
            folio_ahead: 0,
        }
    }

    /// Sets one switch; the error is the line to print.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), LabError> {
        self.take(name, value).map_err(|e| match e {
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

    fn take(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let Some(switch) = OF_REPLAY.iter().find(|s| s.name == name) else {
            return self.config.set(name, value);
        };
        let taken = match name {
            "collapse.scan" => self.collapse.set_pages(value),
            "collapse.sleep" => self.collapse.set_sleep(value),
            "file.folios" => {
                let pages = if value == "off" { Some(0) } else { pages(value) };
                pages.map(|pages| self.folio_ahead = pages).is_some()
            }
            _ => self.collapse.set_most_missing(value),
        };
        taken.then_some(()).ok_or(ConfigError::BadValue(switch.values))
    }

    /// The switches for which `shown` holds, as `name=value` in a list.
    pub fn named(&self, shown: impl Fn(&str, &str) -> bool) -> String {
        let shown = self.values.iter().filter(|(name, value)| shown(name, value));
        shown.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
    }

    /// The value of a switch.
    pub fn get(&self, name: &str) -> &str {
        self.values.iter().find(|(n, _)| *n == name).map_or("", |(_, v)| v)
    }
}

/// What is read ahead of a file at most: 1 GiB.
const MOST_AHEAD: u64 = 1 << 18;

/// A size as pages, 1 to [`MOST_AHEAD`] of them.
fn pages(size: &str) -> Option<u64> {
    let (digits, unit) = match size.as_bytes().last()? {
        b'K' => (&size[..size.len() - 1], 10),
        b'M' => (&size[..size.len() - 1], 20),
        b'G' => (&size[..size.len() - 1], 30),
        _ => (size, 0),
    };
    let number = Some(digits).filter(|d| d.bytes().all(|b| b.is_ascii_digit()))?;
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << unit)?;
    Some(bytes / 4096).filter(|p| bytes % 4096 == 0 && (1..=MOST_AHEAD).contains(p))
}

/// The library's switches that say what Linux 6.x does on x86-64, but for huge pages. Basis:
/// outside, its sources: `process_huge_page` clears page by page towards the one that faulted,
/// through the caches; a store to a shared huge page splits it; there is one zero page;
/// `fault_around_bytes` and `read_ahead_kb` are the library's defaults, too.
pub const LINUX: &[(&str, &str)] = &[
    ("clear.unit", "page"),
    ("clear.order", "near-last"),
    ("clear.stores", "cached"),
    ("zero.colours", "1"),
    ("cow.huge", "split"),
];

/// `pages_to_scan`, 8 blocks; the rest is as here. Basis: outside, Linux's sources.
const LINUX_SCAN: (&str, &str) = ("collapse.scan", "4096");

/// A setting of the recorded host's kernel, and the switch that says it.
struct Recorded<'h> {
    /// Its file.
    file: &'static str,
    /// What the file said, with no pause at all as the shortest one.
    said: &'h str,
    switch: &'static str,
}

impl Recorded<'_> {
    /// Whether the trace has the setting, and its value is none that Linux takes.
    fn is_damaged(&self) -> bool {
        !self.said.is_empty() && !self.is_valid()
    }

    /// The switch may take words, too.
    fn is_valid(&self) -> bool {
        self.said.starts_with(|c: char| c.is_ascii_digit())
            && Variant::defaults().set(self.switch, self.said).is_ok()
    }
}

/// The recorded host's khugepaged, and its page cache.
fn settings(recorded: &Header) -> [Recorded<'_>; 4] {
    let host = &recorded.host_khugepaged;
    let of = |file, said, switch| Recorded { file, said, switch };
    let sleep = match host.scan_sleep_millisecs.as_str() {
        "0" => "1",
        said => said,
    };
    [
        of("scan_sleep_millisecs", sleep, "collapse.sleep"),
        of("pages_to_scan", host.pages_to_scan.as_str(), "collapse.scan"),
        of("max_ptes_none", host.max_ptes_none.as_str(), "collapse.none"),
        of("read_ahead_kb", recorded.host_folio_ahead.as_str(), "file.folios"),
    ]
}

/// A line for each of these settings that the trace has and that cannot be one.
pub fn damaged(recorded: &Header) -> Vec<String> {
    let linux = linux(recorded);
    let damaged = settings(recorded).into_iter().filter(Recorded::is_damaged);
    let line = |r: Recorded<'_>| {
        format!(
            "note: the trace says `{}` of the recorded host's {}, which is no value of it; Linux's \
             own choice is taken, {}={}",
            printable(r.said),
            r.file,
            r.switch,
            linux.get(r.switch)
        )
    };
    damaged.map(line).collect()
}

/// What the kernel of the host that was recorded does, as far as switches can say it. Where the
/// trace does not tell, as the kernel's own defaults: huge pages always, one of them of zeros, and
/// base pages for shared memory. A host that was recorded and has no such setting has none.
pub fn linux(recorded: &Header) -> Variant {
    let thp = match chosen(&recorded.host_thp) {
        Some("always") => "always",
        Some("madvise") => "advise",
        None if recorded.host_kernel.is_empty() => "always",
        _ => "never",
    };
    // Objects get blocks where all of them lies within the size.
    let shmem = match chosen(&recorded.host_thp_shmem) {
        Some("always" | "force" | "within_size") => "always",
        Some("advise") => "advise",
        _ => "never",
    };
    let zeros = if recorded.host_thp_zero_page.trim() == "0" { "off" } else { "page" };
    let mut linux = Variant { name: "linux".to_owned(), ..Variant::defaults() };
    let own = [("thp", thp), ("object.huge", shmem), ("zero.huge", zeros)];
    for (name, value) in LINUX.iter().chain(&own).chain([&LINUX_SCAN]) {
        linux.set(name, value).expect("a switch that there is takes this value");
    }
    for setting in settings(recorded).iter().filter(|s| s.is_valid()) {
        linux.set(setting.switch, setting.said).expect("it was tried");
    }
    linux
}

/// The column of the library's own choices.
pub const VELLUM: &str = "vellum";

/// The word that a file of `/sys` has in brackets.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

/// The columns of one run, from `--as`, `--set` and `--vs` as they were typed; the base is first,
/// and last, beside Linux's choices, come the library's.
pub fn columns(
    choices: Choices,
    recorded: &Header,
    set: &[String],
    vs: &[String],
) -> Result<Vec<Variant>, LabError> {
    let start = match choices {
        Choices::Linux => linux(recorded),
        Choices::Vellum => Variant::defaults(),
    };
    let mut columns = changed(&start, set, vs)?;
    if choices == Choices::Linux {
        let mut own = changed(&Variant::defaults(), set, &[])?.remove(0);
        own.name = VELLUM.to_owned();
        if columns.iter().all(|c| c.values != own.values) {
            columns.push(own);
        }
    }
    Ok(columns)
}

/// The columns that begin with a set of values.
fn changed(start: &Variant, set: &[String], vs: &[String]) -> Result<Vec<Variant>, LabError> {
    let set = set.iter().map(|s| pairs(s)).collect::<Result<Vec<_>, _>>()?.concat();
    let vs = vs.iter().map(|s| pairs(s)).collect::<Result<Vec<_>, _>>()?;

    once(&set)?;
    for pairs in &vs {
        once(pairs)?;
    }
    let mut base = start.clone();
    for (name, value) in &set {
        base.set(name, value)?;
    }
    for s in switches() {
        let asked: Vec<&str> =
            vs.iter().flatten().filter(|(n, _)| *n == s.name).map(|(_, v)| *v).collect();
        let chosen = set.iter().any(|(n, _)| *n == s.name);
        if !chosen && !asked.is_empty() && asked.iter().all(|v| *v == start.get(s.name)) {
            let plain = plain(s.name, s.values);
            base.set(s.name, if start.get(s.name) == plain { s.default } else { plain })?;
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
    name_columns(start, &mut columns);
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
        "collapse.none" => "0",
        // It never comes back.
        "collapse.sleep" => "4294967295",
        _ => all
            .clone()
            .find(|v| matches!(*v, "never" | "off" | "none"))
            .or(all.next())
            .unwrap_or(""),
    }
}

/// The base is named by its values of the switches in which columns differ (when none do, by what
/// differs from where it started), the others by what differs from the base. With many switches in
/// play the base is just that.
fn name_columns(start: &Variant, columns: &mut [Variant]) {
    let Some((base, others)) = columns.split_first_mut() else { return };
    let mut shown = base.named(|name, value| others.iter().any(|c| c.get(name) != value));
    if shown.is_empty() {
        shown = base.named(|name, value| start.get(name) != value);
    }
    for c in others {
        c.name = c.named(|name, value| base.get(name) != value).replace(", ", ",");
    }
    base.name = match shown.matches(", ").count() {
        _ if shown.is_empty() => start.name.clone(),
        0 | 1 => shown.replace(", ", ","),
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
    crate::text::nearest(name, switches().map(|s| s.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_trace::Khugepaged;

    fn strings(s: &[&str]) -> Vec<String> {
        s.iter().map(|s| (*s).to_owned()).collect()
    }

    /// The columns of the library's own choices.
    fn columns(set: &[String], vs: &[String]) -> Result<Vec<Variant>, LabError> {
        super::columns(Choices::Vellum, &Header::default(), set, vs)
    }

    fn host(thp: &str, zero_page: &str) -> Header {
        let (host_thp, host_thp_zero_page) = (thp.to_owned(), zero_page.to_owned());
        Header { host_thp, host_thp_zero_page, ..Header::default() }
    }

    #[test]
    fn the_base_is_linux_as_it_was_recorded_and_the_last_column_the_librarys_own() {
        let columns = |host: &Header, set: &[&str], vs: &[&str]| {
            super::columns(Choices::Linux, host, &strings(set), &strings(vs)).unwrap()
        };
        let names = |columns: &[Variant]| {
            columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>().join(" | ")
        };
        let madvise = host("always [madvise] never", "1");
        let c = columns(&madvise, &[], &[]);
        assert_eq!(names(&c), "linux | vellum");
        assert_eq!((c[0].get("thp"), c[0].get("cow.huge")), ("advise", "split"));
        assert_eq!((c[0].get("zero.huge"), c[0].get("clear.unit")), ("page", "page"));
        assert_eq!(c[1].config, Config::default());

        let c = columns(&madvise, &[], &["thp=always"]);
        assert_eq!(names(&c), "thp=advise | thp=always | vellum");
        assert!(c[..2].iter().all(|c| c.get("clear.stores") == "cached"));

        // What the host has already is asked for with what it has not.
        let c = columns(&host("[always] madvise never", "0"), &[], &["thp=always"]);
        assert_eq!(names(&c), "thp=never | thp=always | vellum");
        assert!(c[..2].iter().all(|c| c.get("zero.huge") == "off"));

        // `--set` reaches all, and a column is not shown twice.
        let c = columns(&madvise, &["thp=never"], &[]);
        assert_eq!(names(&c), "thp=never | vellum");
        assert!(c.iter().all(|c| c.get("thp") == "never"));
        let all: Vec<String> = switches().map(|s| format!("{}={}", s.name, s.default)).collect();
        let c = super::columns(Choices::Linux, &madvise, &all, &[]).unwrap();
        assert_eq!(c.len(), 1);

        // What Linux has anyway is compared with what the library has.
        for s in switches().filter(|s| linux(&madvise).get(s.name) != s.default) {
            let asked = format!("{}={}", s.name, linux(&madvise).get(s.name));
            assert!(columns(&madvise, &[], &[&asked]).len() >= 2, "{asked}");
        }
        let c = columns(&madvise, &[], &["zero.colours=1"]);
        assert_eq!(names(&c), "zero.colours=auto | zero.colours=1 | vellum");

        // A trace that does not say, and hosts that do.
        let none = linux(&Header::default());
        assert_eq!(
            ["thp", "zero.huge", "object.huge"].map(|n| none.get(n)),
            ["always", "page", "never"]
        );
        let without = Header { host_kernel: "6.1".to_owned(), ..Header::default() };
        assert_eq!(linux(&without).get("thp"), "never");
        let shmem = "always [within_size] advise never deny force".to_owned();
        let within = Header { host_thp_shmem: shmem, ..Header::default() };
        assert_eq!(linux(&within).get("object.huge"), "always");
    }

    #[test]
    fn the_base_scans_as_the_recorded_host_did_where_the_trace_has_that() {
        let of = |sleep: &str, pages: &str, none: &str| {
            let [scan_sleep_millisecs, pages_to_scan, max_ptes_none] =
                [sleep, pages, none].map(str::to_owned);
            let host_khugepaged = Khugepaged { scan_sleep_millisecs, pages_to_scan, max_ptes_none };
            let recorded = Header { host_khugepaged, ..Header::default() };
            let base = linux(&recorded);
            let values = ["collapse.sleep", "collapse.scan", "collapse.none"];
            (values.map(|name| base.get(name).to_owned()).join(" "), damaged(&recorded))
        };
        assert_eq!(of("500", "512", "0"), ("500 512 0".to_owned(), vec![]));
        assert_eq!(of("", "", ""), ("10000 4096 511".to_owned(), vec![]), "older traces");
        assert_eq!(of("", "512", ""), ("10000 512 511".to_owned(), vec![]), "one of them");
        assert_eq!(of("0", "4294967295", "511").0, "1 4294967295 511", "the bounds");
        for [sleep, pages, none] in [
            ["soon", "off", "512"],
            ["-1", "0", "-1"],
            ["4294967296", "5 12", "0x10"],
            ["1e3", "+8", "1\u{1b}[2J"],
        ] {
            let (base, notes) = of(sleep, pages, none);
            assert_eq!((base.as_str(), notes.len()), ("10000 4096 511", 3), "{notes:?}");
            assert!(notes.iter().all(|n| n.lines().count() == 1 && !n.contains('\u{1b}')));
            assert!(notes[1].contains(pages) && notes[1].contains("collapse.scan=4096"));
        }
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
        for s in switches() {
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
