//! The audit: the whole machine is recounted while nothing runs.

use vellum::machine::{USES, Use};

use super::frames::use_of;
use super::{Rule, Stop};
use crate::format::{Format, Meaning};
use crate::machine::SimState;
use crate::mmu::fresh::{self, Fresh};
use crate::tlb::Flags;

impl<F: Format> SimState<F> {
    /// Frames are in one state each and the sums add up; map counts equal the entries found by
    /// walking every loaded tree; data frames without a mapping are leaks when `expect_mapped`;
    /// zero frames are zero; every cached translation of a loaded root is legal.
    pub(crate) fn audit(&mut self, parked: u64) -> Result<(), Stop> {
        self.audit_frames(parked);
        self.audit_caches();
        match self.stop.take() {
            Some(stop) => {
                self.dead = true;
                Err(*stop)
            }
            None => Ok(()),
        }
    }

    fn audit_frames(&mut self, parked: u64) {
        let mut found = std::collections::BTreeMap::new();
        let roots: Vec<u64> = self.oracle.roots.iter().map(|r| r.table).collect();
        for table in roots {
            let note = self.oracle.tables[table as usize];
            if note.level == self.mmu.levels && self.oracle.uses[table as usize] == Use::Table as u8
            {
                self.count_leaves(table, self.mmu.levels, &mut found);
            }
        }
        let mut sums = [0u64; USES];
        let mut unmapped = 0u64;
        let mut leak = None;
        let (used, own) = (self.oracle.used, self.ram.own());
        sums[Use::Free as usize] += own - used;
        for pfn in (0..used).chain(own..self.ram.frames()) {
            let used = self.oracle.uses[pfn as usize];
            let device = self.ram.is_device(pfn);
            sums[used as usize] += u64::from(!device);
            if !device && (used == Use::Free as u8 || used == Use::Slab as u8) {
                continue;
            }
            let note = self.oracle.frames[pfn as usize];
            let seen = found.remove(&pfn).unwrap_or(0);
            if note.maps != seen {
                return self.fail(
                    0,
                    Rule::FrameState,
                    None,
                    Some(pfn),
                    format!("{} entries were counted for it and {seen} map it", note.maps),
                );
            }
            if used == Use::Data as u8 && seen == 0 {
                unmapped += 1;
                leak = Some(pfn);
            }
            if used == Use::Zero as u8
                && !(self.contents.is_zero(pfn)
                    && (!self.contents.has_bytes(pfn) || self.ram.is_zero(pfn)))
            {
                return self.fail(
                    0,
                    Rule::Zero,
                    None,
                    Some(pfn),
                    "a shared zero frame does not hold zeros".into(),
                );
            }
        }
        if let Some((&pfn, _)) = found.first_key_value() {
            let used = use_of(self.oracle.uses[pfn as usize]);
            return self.fail(
                0,
                Rule::FrameState,
                None,
                Some(pfn),
                format!("entries map a frame that is {used:?}"),
            );
        }
        if sums != self.oracle.in_use {
            return self.fail(
                0,
                Rule::FrameState,
                None,
                None,
                format!("frames by use are {sums:?}, counted as {:?}", self.oracle.in_use),
            );
        }
        if unmapped > parked {
            let why = format!("{unmapped} data frames are mapped nowhere, {parked} should be");
            self.fail(0, Rule::Leak, None, leak, why);
        }
    }

    fn count_leaves(
        &self,
        table: u64,
        level: u8,
        found: &mut std::collections::BTreeMap<u64, u32>,
    ) {
        for slot in 0..512u64 {
            match F::meaning(self.ram.load(table << 12 | slot << 3), level) {
                Meaning::Leaf(frame, _) => {
                    for pfn in frame >> 12..(frame >> 12) + (1u64 << (9 * (level - 1))) {
                        *found.entry(pfn).or_insert(0) += 1;
                    }
                }
                // What a shared table of zeros maps is counted for nobody.
                Meaning::Table(child, _) if self.oracle.is_zero_table(child >> 12) => {}
                Meaning::Table(child, _) if level > 1 => {
                    self.count_leaves(child >> 12, level - 1, found)
                }
                _ => {}
            }
        }
    }

    fn audit_caches(&mut self) {
        for c in 0..self.cpus.len() {
            let Some(root) = self.cpus[c].root else { continue };
            let ctx = self.cpus[c].ctx;
            let entries: Vec<_> = self.cpus[c]
                .tlbs()
                .flat_map(|t| t.iter().copied().collect::<Vec<_>>())
                .filter(|e| e.ctx == ctx)
                .collect();
            for e in entries {
                self.judge(c, &e, e.va);
                let table = self.oracle.roots[root as usize].table;
                let w = fresh::walk::<F>(&self.ram, table << 12, self.mmu.levels, e.va);
                let rights = e.flags & Flags::RIGHTS;
                let allowed = matches!(w, Fresh::Leaf { flags, .. } if flags.contains(rights));
                if !e.stale && !allowed {
                    self.fail(
                        c,
                        Rule::Incremental,
                        Some(e.va),
                        Some(e.frame >> 12),
                        format!("{e:?} is not marked, and a walk finds {w:?}"),
                    );
                }
            }
            let validated = self.cpus[c].tlbs().try_for_each(|t| t.validate());
            if let Err(why) = validated {
                self.fail(c, Rule::Size, None, None, why);
            }
            let nested = self.cpus[c].nested.as_ref().map(|kept| kept.validate());
            if let Some(Err(why)) = nested {
                self.fail(c, Rule::Contract, None, None, format!("nested translations: {why}"));
            }
            let prefetcher = self.cpus[c].prefetcher.as_ref();
            if let Some(Err(why)) = prefetcher.map(|p| p.validate()) {
                self.fail(c, Rule::Contract, None, None, format!("prefetcher: {why}"));
            }
        }
        if let Err(why) = self.caches.validate() {
            self.fail(0, Rule::Contract, None, None, format!("data caches: {why}"));
        }
    }
}
