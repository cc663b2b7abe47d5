//! Per page: when it was last visited, and whether it was visited more than once.
use crate::build::Mixer;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;

const CHUNK: u64 = 256;

#[derive(Clone, Copy, Default)]
struct Visit {
    /// Time of the last visit plus one; 0: never.
    last: u64,
    again: bool,
    /// Touched by something that is no visit.
    besides: bool,
}

impl Visit {
    fn is_touched(&self) -> bool {
        self.last != 0 || self.besides
    }
}

/// All pages touched.
#[derive(Default)]
pub(super) struct Pages {
    chunks: HashMap<(u32, u64), Box<[Visit]>, BuildHasherDefault<Mixer>>,
}

impl Pages {
    fn page(&mut self, mapping: u32, page: u64) -> &mut Visit {
        let chunk = self
            .chunks
            .entry((mapping, page / CHUNK))
            .or_insert_with(|| vec![Visit::default(); CHUNK as usize].into_boxed_slice());
        &mut chunk[(page % CHUNK) as usize]
    }

    /// Notes that a page is touched by an instruction that is fetched, or by the end of an access
    /// that begins on another.
    pub(super) fn touch(&mut self, mapping: u32, page: u64) {
        let v = self.page(mapping, page);
        v.again |= v.is_touched();
        v.besides = true;
    }

    /// Notes a visit; returns the time since the last one.
    pub(super) fn visit(&mut self, mapping: u32, page: u64, now: u64) -> Option<u64> {
        let v = self.page(mapping, page);
        v.again |= v.besides;
        let before = std::mem::replace(&mut v.last, now + 1);
        if before == 0 {
            return None;
        }
        v.again = true;
        Some((now + 1).saturating_sub(before))
    }

    /// Pages of the mappings that `which` chooses.
    pub(super) fn count(&self, which: impl Fn(u32) -> bool) -> u64 {
        self.chunks
            .iter()
            .filter(|((m, _), _)| which(*m))
            .map(|(_, c)| c.iter().filter(|v| v.is_touched()).count() as u64)
            .sum()
    }

    /// Pages visited more than once.
    pub(super) fn revisited(&self) -> u64 {
        let again = |c: &[Visit]| c.iter().filter(|v| v.again).count() as u64;
        self.chunks.values().map(|c| again(c)).sum()
    }

    /// Distinct 2 MiB blocks of recorded addresses.
    pub(super) fn blocks(&self, base: impl Fn(u32) -> u64) -> u64 {
        let mut seen = BTreeSet::new();
        for ((m, n), chunk) in &self.chunks {
            for (i, v) in chunk.iter().enumerate() {
                if v.is_touched() {
                    seen.insert((base(*m) / crate::PAGE + n * CHUNK + i as u64) / 512);
                }
            }
        }
        seen.len() as u64
    }
}
