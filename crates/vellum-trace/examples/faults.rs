//! Minor faults that Linux would take for a trace with 4 KiB pages, by the rules of
//! `docs/trace-format.md`, beside those that it took. The simulator does this properly; here it is
//! forty lines, to see whether the rules are right.
//!
//! `cargo run --release -p vellum-trace --example faults FILE...`
use std::collections::{HashMap, HashSet};
use std::error::Error;
use vellum_trace::event::{Advice, Change, Event};
use vellum_trace::{Map, MapKind, TraceReader};

/// State of the pages of all mappings: present, and writable without a fault.
#[derive(Default)]
struct Pages {
    maps: Vec<Map>,
    present: HashSet<(u32, u64)>,
    writable: HashSet<(u32, u64)>,
    by_kind: HashMap<MapKind, u64>,
}

impl Pages {
    fn touch(&mut self, mapping: u32, page: u64, write: bool) {
        let key = (mapping, page);
        if self.writable.contains(&key) || (!write && self.present.contains(&key)) {
            return;
        }
        let m = &self.maps[mapping as usize];
        *self.by_kind.entry(m.kind).or_default() += 1;
        if write || m.kind == MapKind::FileShared {
            self.present.insert(key);
            self.writable.insert(key);
        } else if m.kind.is_file() {
            let address = m.base / 4096 + page;
            let first = (address & !15).max(m.base / 4096);
            let last = (address | 15).min((m.base + m.len) / 4096 - 1);
            self.present.extend((first..=last).map(|a| (mapping, a - m.base / 4096)));
        } else {
            self.present.insert(key);
        }
    }

    fn drop_range(&mut self, mapping: u32, offset: u64, len: u64) {
        for p in offset / 4096..(offset + len) / 4096 {
            self.present.remove(&(mapping, p));
            self.writable.remove(&(mapping, p));
        }
    }

    fn call(&mut self, change: &Change) {
        match change {
            Change::Map(m) => self.maps.push(m.clone()),
            Change::Unmap { mapping, offset, len }
            | Change::Advise { mapping, offset, len, advice: Advice::DontNeed } => {
                self.drop_range(*mapping, *offset, *len);
            }
            Change::Remap { old, offset, len, new } => {
                for p in 0..len / 4096 {
                    let from = (*old, offset / 4096 + p);
                    if self.present.remove(&from) {
                        self.present.insert((*new, p));
                    }
                    if self.writable.remove(&from) {
                        self.writable.insert((*new, p));
                    }
                }
            }
            Change::Fork { .. } => self.writable.clear(),
            _ => {}
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    for path in std::env::args().skip(1) {
        let mut reader = TraceReader::open(&path)?;
        let (mut pages, mut block) = (Pages::default(), Vec::new());
        while reader.next_block(&mut block)? {
            for e in &block {
                match e {
                    Event::Access { mapping, offset, size, flags } => {
                        for page in offset / 4096..=(offset + u64::from(*size) - 1) / 4096 {
                            pages.touch(*mapping, page, flags.write());
                        }
                    }
                    Event::Fetch { mapping, offset, .. } => {
                        pages.touch(*mapping, offset / 4096, false)
                    }
                    Event::Call(c) => pages.call(&c.change),
                    _ => {}
                }
            }
        }
        let all: u64 = pages.by_kind.values().sum();
        let mut kinds: Vec<_> = pages.by_kind.iter().map(|(k, n)| format!("{k:?} {n}")).collect();
        kinds.sort();
        let native = reader.header().native.map_or(0, |n| n.minor_faults);
        println!("{path}: {all} by the rules ({}), {native} natively", kinds.join(", "));
    }
    Ok(())
}
