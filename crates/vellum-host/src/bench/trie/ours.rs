//! The library's trie as a page index of the benchmark.

use vellum::addr::{Order, Pfn};
use vellum::unstable::{Shape, Token, Trie, TrieEntry};

use super::peers::{Index, Page, PageRecord, RUN};
use crate::bench::fixture::BareVm;

/// A trie on a machine of the benchmark.
pub struct Ours<'h> {
    host: &'h BareVm,
    trie: Option<Trie>,
}

/// The entry of a base page.
fn entry(frame: u64) -> TrieEntry {
    TrieEntry::new(Pfn(frame), Order::BASE).expect("a frame number")
}

fn word(records: &[PageRecord], entry: TrieEntry) -> u64 {
    records[entry.pfn().0 as usize].0[1]
}

impl<'h> Ours<'h> {
    /// An empty one.
    pub fn new(host: &'h BareVm) -> Ours<'h> {
        Ours { host, trie: Some(host.vm.tries().create()) }
    }
    fn trie(&self) -> &Trie {
        self.trie.as_ref().expect("there until the end")
    }
    /// Its nodes.
    pub fn shape(&self) -> Shape {
        let mut top = Token::top();
        let guard = self.host.vm.tries().lock(self.trie(), &mut top);
        guard.validate().expect("a valid trie")
    }
    /// Enters and leaves an epoch so many times.
    pub fn enter(&self, times: u64) {
        (0..times).for_each(|_| drop(std::hint::black_box(self.host.vm.tries().read(self.trie()))));
    }
    /// Puts 2 MiB blocks in at indices, or takes them out.
    pub fn blocks(&mut self, indices: impl Iterator<Item = u64>, is_in: bool) {
        let block = TrieEntry::new(Pfn(512), Order::HUGE).expect("an aligned frame");
        let mut top = Token::top();
        let mut guard = self.host.vm.tries().lock(self.trie(), &mut top);
        let mut cursor = guard.cursor();
        for index in indices {
            if is_in {
                cursor.insert(index, block).expect("memory");
            } else {
                cursor.lookup(index);
                cursor.remove().expect("a block");
            }
        }
    }
}

impl Drop for Ours<'_> {
    fn drop(&mut self) {
        if let Some(trie) = self.trie.take() {
            self.host.vm.tries().destroy(trie, |_, _| ());
        }
    }
}

impl Index for Ours<'_> {
    const NAME: &'static str = "ours";
    const CURSOR: bool = true;
    fn insert(&mut self, pages: impl Iterator<Item = Page>, near: bool) {
        let mut top = Token::top();
        let mut guard = self.host.vm.tries().lock(self.trie(), &mut top);
        if near {
            let mut cursor = guard.cursor();
            pages.for_each(|(at, frame)| cursor.insert(at, entry(frame)).expect("memory"));
        } else {
            pages.for_each(|(at, frame)| guard.cursor().insert(at, entry(frame)).expect("memory"));
        }
    }
    fn lookup(&self, at: impl Iterator<Item = u64>, near: bool, records: &[PageRecord]) -> u64 {
        if near {
            let mut top = Token::top();
            let mut guard = self.host.vm.tries().lock(self.trie(), &mut top);
            let mut cursor = guard.cursor();
            return at.map(|index| word(records, cursor.lookup(index).expect("a page"))).sum();
        }
        let reader = self.host.vm.tries().read(self.trie());
        at.map(|index| word(records, reader.lookup(index).expect("a page"))).sum()
    }
    fn chase(&self, count: u64, records: &[PageRecord]) -> u64 {
        let reader = self.host.vm.tries().read(self.trie());
        let next = |at| records[reader.lookup(at).expect("a page").pfn().0 as usize].0[0];
        (0..count).fold(0, |at, _| next(at))
    }
    fn runs(&self, starts: impl Iterator<Item = u64>, records: &[PageRecord]) -> u64 {
        let reader = self.host.vm.tries().read(self.trie());
        let (mut out, mut sum) = ([entry(0); RUN as usize], 0);
        for start in starts {
            let count = reader.lookup_run(start, &mut out);
            sum += out[..count].iter().map(|entry| word(records, *entry)).sum::<u64>();
        }
        sum
    }
    fn remove(&mut self, indices: impl Iterator<Item = u64>, near: bool) {
        let mut top = Token::top();
        let mut guard = self.host.vm.tries().lock(self.trie(), &mut top);
        if near {
            let mut cursor = guard.cursor();
            for index in indices {
                cursor.lookup(index);
                cursor.remove().expect("a page");
            }
        } else {
            for index in indices {
                let mut cursor = guard.cursor();
                cursor.lookup(index);
                cursor.remove().expect("a page");
            }
        }
    }
    fn remove_all(&mut self, end: u64) {
        let mut top = Token::top();
        let mut guard = self.host.vm.tries().lock(self.trie(), &mut top);
        let mut sum = 0;
        guard.cursor().remove_range(0, end, |_, entry| sum += entry.pfn().0);
        std::hint::black_box(sum);
    }
    fn miss(&mut self, pages: impl Iterator<Item = Page>, kept: bool) {
        let mut top = Token::top();
        let mut guard = self.host.vm.tries().lock(self.trie(), &mut top);
        let mut cursor = guard.cursor();
        for (at, frame) in pages {
            if cursor.lookup(at).is_some() {
                continue;
            }
            if !kept {
                drop(cursor);
                cursor = guard.cursor();
            }
            cursor.insert(at, entry(frame)).expect("memory");
        }
    }
}
