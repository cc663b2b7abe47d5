//! Constants as lines of a machine file, each with its basis and source.

use std::fmt::Write;

use vellum_host::calibrate::Figure;
use vellum_host::calibrate::topology::CacheShape;
use vellum_host::calibrate::translation::BankGuess;

pub(super) struct Text(pub(super) String);

pub(super) const KERNEL: &str = "the kernel's description of this host in /sys";
pub(super) const USUAL: &str = "not to be found out from outside; usual for cores of this class";
pub(super) const FLUSH: &str = "an estimate for bare metal";
pub(super) const LEFT: &str =
    "measured on this host, less what the simulator has for the rest of the loop";

impl Text {
    pub(super) fn section(&mut self, name: &str) {
        let _ = write!(self.0, "\n{name}\n");
    }
    /// `value` as TOML.
    pub(super) fn constant(&mut self, key: &str, value: &str, basis: &str, source: &str) {
        let _ = writeln!(
            self.0,
            "{key} = {{ value = {value}, basis = \"{basis}\", source = \"{source}\" }}"
        );
    }
    pub(super) fn guess(&mut self, key: &str, value: &str, source: &str) {
        self.constant(key, value, "guess", source);
    }
    pub(super) fn before(&mut self, key: &str, value: &str, source: &str) {
        self.constant(key, value, "before", source);
    }
    /// A time that was measured by itself.
    pub(super) fn measured(&mut self, key: &str, figure: Figure) {
        self.spread(key, &time(figure.ns), "measured on this host", figure.spread);
    }
    /// A time that the simulator leaves unexplained of a measured one, whose spread it has.
    pub(super) fn left(&mut self, key: &str, ns: f64, measured: Figure) {
        let apart = measured.spread * measured.ns;
        let spread = if ns > 0.0 { apart / ns } else { 0.0 };
        self.spread(key, &time(ns), LEFT, spread);
    }
    pub(super) fn spread(&mut self, key: &str, value: &str, source: &str, spread: f64) {
        let spread = spread.clamp(0.0, 9.99);
        let _ = writeln!(
            self.0,
            "{key} = {{ value = {value}, basis = \"before\", source = \"{source}\", spread = \
             {spread:.4} }}"
        );
    }
    pub(super) fn cache(&mut self, name: &str, shape: CacheShape, figure: Figure, known: bool) {
        let basis = if known { "outside" } else { "guess" };
        self.section(&format!("[{name}]"));
        self.constant("size", &shape.size.to_string(), basis, KERNEL);
        match shape.ways_known {
            true => self.constant("ways", &shape.ways.to_string(), basis, KERNEL),
            false => self.guess("ways", &shape.ways.to_string(), "the kernel does not know"),
        }
        self.measured("latency", figure);
        self.guess("policy", "\"lru\"", "not published");
    }
    pub(super) fn tlb(&mut self, name: &str, banks: &[BankGuess], source: Option<&str>) {
        self.section(&format!("[tlb.{name}]"));
        self.guess("latency", if name == "l2" { "7" } else { "0" }, USUAL);
        self.guess("fracture", "true", "pages of sizes without entries are kept in pieces");
        let (basis, source) = source.map_or(("guess", USUAL), |s| ("outside", s));
        for bank in banks {
            self.section(&format!("[[tlb.{name}.banks]]"));
            let sizes: Vec<_> = bank.sizes.iter().map(|s| format!("\"{s}\"")).collect();
            self.constant("sizes", &format!("[{}]", sizes.join(", ")), basis, source);
            self.constant("entries", &bank.entries.to_string(), basis, source);
            self.constant("ways", &bank.ways.to_string(), basis, source);
        }
    }
}

/// Nanoseconds as a TOML string.
pub(super) fn time(ns: f64) -> String {
    format!("\"{ns:.3} ns\"")
}

/// CPU numbers as a TOML string.
pub(super) fn list(cpus: &[u32]) -> String {
    let cpus: Vec<_> = cpus.iter().map(u32::to_string).collect();
    format!("\"{}\"", cpus.join(","))
}
