//! The analysis as text for people.
use super::{Info, Pressure};
use crate::event::MapKind;
use crate::printable;
use crate::totals::Totals;
use std::fmt;

struct Mib(u64);

impl fmt::Display for Mib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.saturating_mul(10) >> 20;
        write!(f, "{}.{} MiB", tenths / 10, tenths % 10)
    }
}

/// Digits in groups of three.
struct Grouped(u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut out = String::new();
        for (i, c) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                out.push(',');
            }
            out.push(c);
        }
        f.pad(&out)
    }
}

/// A kind of memory in the words of the field.
fn name(kind: MapKind) -> &'static str {
    match kind {
        MapKind::Anon => "anonymous",
        MapKind::AnonShared => "anonymous, shared",
        MapKind::FilePrivate => "files, private",
        MapKind::FileShared => "files, shared",
        MapKind::Image => "the program's image",
        MapKind::ImageBss => "its zero-filled data (bss)",
        MapKind::Stack => "stack of the first thread",
        MapKind::Heap => "heap (brk)",
        MapKind::Unknown => "never seen mapped",
    }
}

fn pressure(f: &mut fmt::Formatter<'_>, name: &str, p: &Pressure) -> fmt::Result {
    let one_in = p.accesses.checked_div(p.walks).unwrap_or(0);
    write!(
        f,
        "TLB, {name} pages: {} first-level misses, {} walks",
        Grouped(p.first_misses),
        Grouped(p.walks)
    )?;
    if p.walks > 0 {
        write!(f, ", 1 in {} accesses", Grouped(one_in))?;
    }
    writeln!(f)
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.totals;
        writeln!(f, "command:      {}", printable(&self.header.command.join(" ")))?;
        writeln!(
            f,
            "recorded by:  {:?} on {} ({}), huge pages: {}",
            self.header.recorder,
            printable(&self.header.host_kernel),
            printable(&self.header.arch),
            printable(&self.header.host_thp)
        )?;
        if self.partial {
            writeln!(
                f,
                "partial:      the recording ended before its program; these are its whole blocks"
            )?;
        }
        if !self.header.window.is_empty() {
            writeln!(f, "window:       {}", printable(&self.header.window))?;
        }
        writeln!(
            f,
            "accesses:     {} ({} loads, {} stores), {} left out by windows, {} lines by the \
             kernel",
            Grouped(t.accesses()),
            Grouped(t.loads),
            Grouped(t.stores),
            Grouped(t.skipped_accesses),
            Grouped(t.kernel)
        )?;
        let percent = |n: u64, of: u64| n.saturating_mul(100).checked_div(of).unwrap_or(0);
        writeln!(
            f,
            "dependent:    {} % of the loads, {} % of the stores have an address loaded just \
             before",
            percent(self.dependent_loads, t.loads),
            percent(self.dependent_stores, t.stores)
        )?;
        if self.mispredicted > 0 {
            let counted = Grouped(self.mispredicted);
            writeln!(f, "branches:     {counted} loads are behind one that was predicted wrongly")?;
        }
        writeln!(
            f,
            "instructions: {} in {} lines, {} left out",
            Grouped(t.instructions),
            Grouped(t.fetches),
            Grouped(t.skipped_instructions)
        )?;
        writeln!(
            f,
            "threads:      {} in all, at most {} at once; {} mappings, {} calls",
            t.threads, self.threads_alive, t.mappings, t.calls
        )?;
        if self.files.files > 0 {
            writeln!(
                f,
                "files:        {}; {} read and {} written by calls, {} mapped",
                Grouped(self.files.files),
                Mib(self.files.read),
                Mib(self.files.written),
                Mib(self.files.mapped)
            )?;
        }
        writeln!(
            f,
            "touched:      {} in {} pages, {} of them visited again ({} %); {} blocks of 2 MiB",
            Mib(self.pages * crate::PAGE),
            Grouped(self.pages),
            Grouped(self.revisited),
            (self.revisited * 100).checked_div(self.pages).unwrap_or(0),
            Grouped(self.blocks)
        )?;
        for (kind, pages) in &self.by_kind {
            writeln!(f, "    {:<28} {:>12} pages", name(*kind), Grouped(*pages))?;
        }
        pressure(f, "4 KiB", &self.tlb_4k)?;
        pressure(f, "2 MiB", &self.tlb_2m)?;
        writeln!(f, "returns to a page, by accesses since the last visit:")?;
        let all: u64 = self.reuse.iter().sum();
        for (i, n) in self.reuse.iter().enumerate().filter(|(_, n)| **n > 0) {
            let percent = n * 100 / all.max(1);
            writeln!(f, "    {:>12} {:>14}  {percent:>3} %", format!("2^{i}"), Grouped(*n))?;
        }
        if let Some(n) = self.header.native {
            writeln!(
                f,
                "native run:   {} minor and {} major faults, {} at most resident, {} ms user, \
                 {} ms system",
                Grouped(n.minor_faults),
                Grouped(n.major_faults),
                Mib(n.peak_rss),
                n.user_us / 1000,
                n.system_us / 1000
            )?;
        }
        let totals = Totals { touched_pages: self.pages, ..self.totals };
        if let Some(small) = super::too_small(&totals, self.header.native.as_ref()) {
            writeln!(f, "note:         {small}")?;
        }
        Ok(())
    }
}
