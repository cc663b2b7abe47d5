//! One set-associative cache.
//!
//! The tags of a set are together in memory (see `set.rs`). A miss allocates at once and reports
//! its victim, since every caller would otherwise search the set twice. The way of a line is not
//! exposed: under LRU it changes with every hit.

use super::geometry::{Divider, Geometry, GeometryError, Policy};
use super::replacement::{Tree, nru, rrip};
use super::set::{
    DIRTY, FLAGS, INVALID, REUSED, clean, matches, push_front, quotient, stride, with_vectors,
};

/// A line that left a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Victim {
    /// Line address.
    pub line: u64,
    /// Whether it was written since it came in.
    pub dirty: bool,
    /// Whether it had come from a level that kept it until it was used again.
    pub reused: bool,
}

/// What an access met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The line was there.
    Hit,
    /// It was not; now it is, in place of the victim if the set was full.
    Miss(Option<Victim>),
}

/// No line has this address.
const NO_LINE: u64 = u64::MAX;

/// One cache: line addresses in sets, with the policy that says who leaves.
#[derive(Clone, Debug)]
pub struct Cache {
    divider: Divider,
    ways: usize,
    stride: usize,
    policy: Policy,
    /// `sets * stride` tags; under LRU the most recent of a set first.
    tags: Vec<u32>,
    /// Under PLRU, the tree bits of each set; under NRU, the bits of its ways, under RRIP their
    /// ages; else empty.
    bits: Vec<u64>,
    /// Under rotating NRU, the way behind each set's last victim; else empty.
    behind: Vec<u8>,
    tree: Tree,
    random: u64,
    /// The line accessed last, which is the most recent of its set under any policy, and the place
    /// of its tag; [`NO_LINE`] when it has left. Programs touch a line several times in a row, and
    /// then nothing need be searched or reordered.
    last: u64,
    last_at: usize,
    /// Ways without a line, in all sets together: while 0, a miss need not look for one.
    vacant: u64,
    geometry: Geometry,
}

/// Where a line is looked for.
struct Location {
    set: usize,
    /// The first of the set's tags.
    base: usize,
    key: u32,
}

impl Cache {
    /// An empty cache.
    pub fn new(geometry: Geometry) -> Result<Cache, GeometryError> {
        geometry.check()?;
        let sets = geometry.sets as usize;
        let stride = stride(geometry.ways);
        let policy = geometry.policy;
        let has_bits = !matches!(policy, Policy::Lru | Policy::Random);
        Ok(Cache {
            divider: Divider::new(geometry.sets, geometry.index),
            ways: geometry.ways as usize,
            stride,
            policy,
            tags: vec![INVALID; sets * stride],
            bits: vec![0; if has_bits { sets } else { 0 }],
            behind: vec![0; if policy == Policy::NruRotating { sets } else { 0 }],
            tree: Tree::new(geometry.ways),
            // Any odd number serves as the increment; the generator must not start at 0.
            random: geometry.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            last: NO_LINE,
            last_at: 0,
            vacant: geometry.lines(),
            geometry,
        })
    }

    /// It is about to be used, and empty: writes to the pages of the host's memory that its tags
    /// take. A page that is read first, as a search does, costs the host two faults and, in a
    /// process of several threads, an interrupt of its other CPUs.
    pub(super) fn wake(&mut self) {
        const PAGE: usize = 4096 / size_of::<u32>();
        debug_assert!(self.is_empty());
        self.tags.chunks_mut(PAGE).for_each(|page| page[0] = std::hint::black_box(INVALID));
    }

    /// The shape it was made with.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline(always)]
    fn locate(&self, line: u64) -> Location {
        let (set, quotient) = self.divider.split(line);
        debug_assert!(line < self.geometry.reach());
        Location { set, base: set * self.stride, key: clean(quotient) }
    }

    /// The set of a line.
    #[inline]
    pub fn set_of(&self, line: u64) -> usize {
        self.locate(line).set
    }

    /// Looks for a line and, if it is not there, brings it in. `write` marks it dirty.
    #[inline]
    pub fn access(&mut self, line: u64, write: bool) -> Lookup {
        self.access_with(line, u32::from(write))
    }

    /// The same for the most recent line of its set, where that changes nothing but the line.
    /// `is_plain`, told the set, may refuse. `false` says nothing, and changes nothing.
    #[inline(always)]
    pub fn access_again(
        &mut self,
        line: u64,
        write: bool,
        is_plain: impl FnOnce(usize) -> bool,
    ) -> bool {
        let Location { set, base, key } = self.locate(line);
        let first = &mut self.tags[base];
        let again = *first | FLAGS == key | FLAGS
            && (self.last == line || matches!(self.policy, Policy::Lru | Policy::Random))
            && is_plain(set);
        if again {
            *first |= u32::from(write);
            (self.last, self.last_at) = (line, base);
        }
        again
    }

    /// The same for a line anywhere in its set: what it does if the line is there. `false` says
    /// that it is not, and changes nothing.
    #[inline(never)]
    pub fn access_there(&mut self, line: u64, write: bool) -> bool {
        if line == self.last {
            self.tags[self.last_at] |= u32::from(write);
            return true;
        }
        let Location { set, base, key } = self.locate(line);
        let found = with_vectors!(self.stride / 4, V, {
            let found = matches::<V>(&self.tags[base..base + V * 4], key);
            if found != 0 {
                self.last = line;
                self.last_at = base;
                self.hit_in::<V>(set, base, found.trailing_zeros() as usize, u32::from(write));
            }
            found
        });
        found != 0
    }

    /// The same; the line gets these flags beside its own.
    #[inline]
    fn access_with(&mut self, line: u64, flags: u32) -> Lookup {
        if line == self.last {
            self.tags[self.last_at] |= flags;
            return Lookup::Hit;
        }
        let Location { set, base, key } = self.locate(line);
        self.last = line;
        self.last_at = base;
        let first = &mut self.tags[base];
        if *first | FLAGS == key | FLAGS && matches!(self.policy, Policy::Lru | Policy::Random) {
            *first |= flags;
            return Lookup::Hit;
        }
        with_vectors!(self.stride / 4, V, self.access_in::<V>(set, base, key, flags))
    }

    #[inline]
    fn access_in<const V: usize>(
        &mut self,
        set: usize,
        base: usize,
        key: u32,
        flags: u32,
    ) -> Lookup {
        let tags = &mut self.tags[base..base + V * 4];
        let found = matches::<V>(tags, key);
        if found != 0 {
            self.hit_in::<V>(set, base, found.trailing_zeros() as usize, flags);
            return Lookup::Hit;
        }
        Lookup::Miss(self.insert_in::<V>(set, base, key | flags))
    }

    /// The line in a way of a set is used, and gets these flags.
    #[inline]
    fn hit_in<const V: usize>(&mut self, set: usize, base: usize, way: usize, flags: u32) {
        let tags = &mut self.tags[base..base + V * 4];
        match self.policy {
            Policy::Lru => {
                let tag = tags[way] | flags;
                push_front::<V>(tags, way, tag);
            }
            Policy::Plru => {
                tags[way] |= flags;
                self.last_at = base + way;
                self.bits[set] = self.tree.touch(self.bits[set], way);
            }
            _ => {
                tags[way] |= flags;
                self.last_at = base + way;
                if self.policy != Policy::Random {
                    self.use_way(set, way);
                }
            }
        }
    }

    /// Puts a tag that is not in the set into it.
    #[inline]
    fn insert_in<const V: usize>(&mut self, set: usize, base: usize, tag: u32) -> Option<Victim> {
        let tags = &mut self.tags[base..base + V * 4];
        let out = match self.policy {
            Policy::Lru => {
                let out = tags[self.ways - 1];
                push_front::<V>(tags, self.ways - 1, tag);
                out
            }
            _ => {
                let way = self.choose::<V>(set, base);
                if self.policy == Policy::Plru {
                    self.bits[set] = self.tree.touch(self.bits[set], way);
                } else if self.policy != Policy::Random {
                    self.fill_way(set, way, tag);
                }
                self.last_at = base + way;
                std::mem::replace(&mut self.tags[base + way], tag)
            }
        };
        if out == INVALID {
            self.vacant -= 1;
            return None;
        }
        Some(self.held(set, out))
    }

    /// The line of a tag.
    #[inline]
    fn held(&self, set: usize, tag: u32) -> Victim {
        let line = self.divider.join(set, quotient(tag));
        Victim { line, dirty: tag & DIRTY != 0, reused: tag & REUSED != 0 }
    }

    #[inline]
    fn choose<const V: usize>(&mut self, set: usize, base: usize) -> usize {
        if self.vacant > 0 {
            let way =
                matches::<V>(&self.tags[base..base + V * 4], INVALID).trailing_zeros() as usize;
            if way < self.ways {
                return way;
            }
        }
        if self.policy == Policy::Plru {
            return self.tree.victim(self.bits[set]);
        }
        if self.policy != Policy::Random {
            return self.choose_by_bits(set);
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (((self.random >> 32) * self.ways as u64) >> 32) as usize
    }

    // Out of line: the search is unrolled nine times, and other policies should not carry these.
    #[inline(never)]
    fn use_way(&mut self, set: usize, way: usize) {
        self.bits[set] = match self.policy {
            Policy::Rrip => rrip::with_age(self.bits[set], way, 0),
            _ => nru::touch(self.bits[set], way, self.ways),
        };
    }

    #[inline(never)]
    fn fill_way(&mut self, set: usize, way: usize, tag: u32) {
        match self.policy {
            Policy::Rrip if tag & REUSED == 0 => {
                self.bits[set] = rrip::with_age(self.bits[set], way, rrip::NEW);
            }
            _ => self.use_way(set, way),
        }
    }

    #[inline(never)]
    fn choose_by_bits(&mut self, set: usize) -> usize {
        if self.policy == Policy::Rrip {
            let (way, ages) = rrip::victim(self.bits[set], self.ways);
            self.bits[set] = ages;
            return way;
        }
        if self.policy == Policy::Nru {
            return nru::victim(self.bits[set], 0, self.ways);
        }
        let way = nru::victim(self.bits[set], self.behind[set].into(), self.ways);
        self.behind[set] = ((way + 1) % self.ways) as u8;
        way
    }

    #[inline]
    fn find(&self, base: usize, key: u32) -> Option<usize> {
        let found =
            with_vectors!(self.stride / 4, V, matches::<V>(&self.tags[base..base + V * 4], key));
        (found != 0).then(|| base + found.trailing_zeros() as usize)
    }

    /// Whether a line is there. Changes nothing.
    #[inline]
    pub fn probe(&self, line: u64) -> bool {
        let Location { base, key, .. } = self.locate(line);
        self.find(base, key).is_some()
    }

    /// Marks a line dirty if it is there, and says whether it is. Does not count as a use.
    #[inline]
    pub fn mark_dirty(&mut self, line: u64) -> bool {
        let Location { base, key, .. } = self.locate(line);
        let found = self.find(base, key);
        if let Some(at) = found {
            self.tags[at] |= DIRTY;
        }
        found.is_some()
    }

    /// Marks the line accessed last as kept by a level below until now, and dirty if it was there.
    #[inline]
    pub(super) fn mark_reused(&mut self, dirty: bool) {
        debug_assert!(self.last != NO_LINE);
        self.tags[self.last_at] |= REUSED | u32::from(dirty);
    }

    /// Brings in a line that left the level above, or marks it dirty where it already is; under
    /// RRIP that is no use of it.
    #[inline]
    pub fn fill(&mut self, from_above: Victim) -> Lookup {
        let Victim { line, dirty, reused } = from_above;
        let flags = u32::from(dirty) | if reused { REUSED } else { 0 };
        if self.policy == Policy::Rrip {
            let Location { base, key, .. } = self.locate(line);
            if let Some(at) = self.find(base, key) {
                self.tags[at] |= flags;
                return Lookup::Hit;
            }
        }
        self.access_with(line, flags)
    }

    /// Takes a line out; the value says whether it was dirty.
    #[inline]
    pub fn take(&mut self, line: u64) -> Option<bool> {
        let Location { set, base, key } = self.locate(line);
        let at = self.find(base, key)?;
        let dirty = self.tags[at] & DIRTY != 0;
        if line == self.last {
            self.last = NO_LINE;
        }
        if self.policy == Policy::Lru {
            // The order of use of the others stays; the hole goes to the end, where the next victim
            // is looked for.
            self.tags.copy_within(at + 1..base + self.ways, at);
            self.tags[base + self.ways - 1] = INVALID;
        } else {
            self.tags[at] = INVALID;
            if matches!(self.policy, Policy::Nru | Policy::NruRotating) {
                self.bits[set] &= !(1 << (at - base));
            }
        }
        self.vacant += 1;
        Some(dirty)
    }

    /// Takes a line out whatever its state; says whether it was there.
    pub fn invalidate_line(&mut self, line: u64) -> bool {
        self.take(line).is_some()
    }

    /// Empties the cache; returns how many of its lines were dirty.
    pub fn flush(&mut self) -> u64 {
        let dirty = self.tags.iter().filter(|&&t| t & DIRTY != 0).count() as u64;
        self.tags.fill(INVALID);
        self.bits.fill(0);
        self.behind.fill(0);
        self.last = NO_LINE;
        self.vacant = self.geometry.lines();
        dirty
    }

    /// Whether no line is held.
    pub fn is_empty(&self) -> bool {
        self.vacant == self.geometry.lines()
    }

    /// Line addresses held, set by set.
    pub fn lines(&self) -> impl Iterator<Item = Victim> + '_ {
        let held = self.tags.iter().enumerate().filter(|&(_, &t)| t | FLAGS != INVALID | FLAGS);
        held.map(|(i, &t)| self.held(i / self.stride, t))
    }

    /// Recounts everything: no line twice in a set, no line in a way that does not exist, holes
    /// last under LRU, bits under NRU only for lines and not for all, the number of vacant ways
    /// right, the line accessed last in its place.
    pub fn validate(&self) -> Result<(), String> {
        let mut vacant = 0;
        for (set, tags) in self.tags.chunks(self.stride).enumerate() {
            if tags.iter().all(|&t| t == INVALID) && self.bits.get(set).is_none_or(|&b| b == 0) {
                vacant += self.ways as u64;
                continue;
            }
            let (real, beyond) = tags.split_at(self.ways);
            if beyond.iter().any(|&t| t != INVALID) {
                return Err(format!("set {set}: a line beyond way {}", self.ways));
            }
            vacant += real.iter().filter(|&&t| t == INVALID).count() as u64;
            if real.iter().any(|&t| t | FLAGS == INVALID | FLAGS && t != INVALID) {
                return Err(format!("set {set}: a vacant way has flags"));
            }
            for (i, &t) in real.iter().enumerate().filter(|&(_, &t)| t != INVALID) {
                if real[..i].iter().any(|&u| u | FLAGS == t | FLAGS) {
                    return Err(format!("set {set}: line {} twice", self.held(set, t).line));
                }
                if self.policy == Policy::Lru && real[..i].contains(&INVALID) {
                    return Err(format!("set {set}: a hole before a line"));
                }
            }
            if matches!(self.policy, Policy::Nru | Policy::NruRotating) {
                let bits = self.bits[set];
                let held = (0..self.ways).filter(|&w| real[w] != INVALID).map(|w| 1 << w);
                if bits & !held.sum::<u64>() != 0 {
                    return Err(format!("set {set}: a vacant way counts as used"));
                }
                if self.ways > 1 && bits == nru::all(self.ways) {
                    return Err(format!("set {set}: all ways count as used"));
                }
            }
        }
        if self.last != NO_LINE {
            let Location { base, key, .. } = self.locate(self.last);
            if self.tags[self.last_at] | FLAGS != key | FLAGS
                || !(base..base + self.ways).contains(&self.last_at)
            {
                return Err(format!("line {}, accessed last, is not where it was", self.last));
            }
        }
        if vacant != self.vacant {
            return Err(format!("{vacant} vacant ways, {} counted", self.vacant));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "single_tests.rs"]
mod tests;
