//! What a 2 MiB block may hold, as far as a bound follows it.
//!
//! The block is cut into slots. A slot is empty or holds one unit, and two neighbours that are
//! empty can hold one unit of twice the size, and so on up to half of the block. Blocks that differ
//! in the order of two halves, at any level, are the same.

/// By number of what is held: other numbers.
#[derive(Clone, Default)]
pub struct Links {
    start: Vec<u32>,
    to: Vec<u32>,
}

impl Links {
    /// Adds those of the next number.
    fn push(&mut self, to: impl IntoIterator<Item = u32>) {
        self.start.push(self.to.len() as u32);
        self.to.extend(to);
    }

    /// Those of a number.
    #[inline]
    pub fn of(&self, number: usize) -> &[u32] {
        let end = self.start.get(number + 1).map_or(self.to.len(), |&end| end as usize);
        &self.to[self.start[number] as usize..end]
    }
}

/// All that a block may hold, by number. Nothing is 0; a unit more leads to a higher number.
pub struct Parts {
    /// By kind: what one unit more can make of it.
    pub more: Vec<Links>,
    /// By kind: what is left if one unit goes, for each unit held.
    pub less: Vec<Links>,
    /// By kind and number: units held.
    pub units: Vec<Vec<u8>>,
}

impl Parts {
    /// Of a block of `1 << height` slots. A unit of kind `k` takes `1 << heights[k]` of them.
    pub fn new(heights: &[usize], height: usize) -> Parts {
        let nothing = |_| Links { start: vec![0], to: vec![] };
        let kinds = 0..heights.len();
        let mut parts = Parts {
            more: kinds.clone().map(nothing).collect(),
            less: kinds.clone().map(nothing).collect(),
            units: vec![vec![0]; heights.len()],
        };
        for level in 0..=height {
            if level > 0 {
                parts = parts.pairs(heights, level);
            } else {
                parts.wholes(heights, level);
            }
        }
        parts
    }

    pub fn len(&self) -> usize {
        self.units[0].len()
    }

    /// Adds the blocks that one unit fills.
    fn wholes(&mut self, heights: &[usize], level: usize) {
        let wholes = (0..heights.len()).filter(|&k| heights[k] == level);
        for (number, whole) in (self.len() as u32..).zip(wholes) {
            for k in 0..heights.len() {
                self.more[k].push([]);
                self.less[k].push((k == whole).then_some(0));
                self.units[k].push((k == whole) as u8);
            }
            // 0 comes first, so its links do.
            let more = &mut self.more[whole];
            more.to.insert(more.start[1] as usize, number);
            more.start[1..].iter_mut().for_each(|s| *s += 1);
        }
    }

    /// Of a block with two such halves.
    fn pairs(&self, heights: &[usize], level: usize) -> Parts {
        let pair = |a: u32, b: u32| a.max(b) * (a.max(b) + 1) / 2 + a.min(b);
        let kinds = 0..self.units.len();
        let mut pairs = Parts {
            more: vec![Links::default(); kinds.len()],
            less: vec![Links::default(); kinds.len()],
            units: vec![vec![]; kinds.len()],
        };
        for b in 0..self.len() {
            for a in 0..=b {
                for k in kinds.clone() {
                    let either = |links: &Links| -> Vec<u32> {
                        let left = links.of(a).iter().map(|&a| pair(a, b as u32));
                        let right = links.of(b).iter().map(|&b| pair(a as u32, b));
                        left.chain(right).collect()
                    };
                    let mut more = either(&self.more[k]);
                    more.sort_unstable();
                    more.dedup();
                    pairs.more[k].push(more);
                    pairs.less[k].push(either(&self.less[k]));
                    pairs.units[k].push(self.units[k][a] + self.units[k][b]);
                }
            }
        }
        pairs.wholes(heights, level);
        pairs
    }
}
