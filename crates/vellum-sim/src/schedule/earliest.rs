//! The least of many numbers that change one at a time.

/// A number for each index, and the least of them: a tree in which each node has the lesser of its
/// two children, the root at 1. An index that was never set has `u64::MAX`.
#[derive(Clone, Debug)]
pub struct Earliest {
    nodes: Vec<u64>,
}

impl Default for Earliest {
    /// No index is set.
    fn default() -> Earliest {
        Earliest { nodes: vec![u64::MAX; 2] }
    }
}

impl Earliest {
    /// The least number.
    pub fn least(&self) -> u64 {
        self.nodes[1]
    }

    /// The first index that has the least number, if any was set.
    pub fn first(&self) -> Option<usize> {
        if self.least() == u64::MAX {
            return None;
        }
        let leaves = self.nodes.len() / 2;
        let mut at = 1;
        while at < leaves {
            at *= 2;
            at += usize::from(self.nodes[at] > self.nodes[at + 1]);
        }
        Some(at - leaves)
    }

    /// The least number of all other indices.
    pub fn least_but(&self, index: usize) -> u64 {
        let mut at = self.nodes.len() / 2 + index;
        if at >= self.nodes.len() {
            return self.least();
        }
        let mut least = u64::MAX;
        while at > 1 {
            least = least.min(self.nodes[at ^ 1]);
            at /= 2;
        }
        least
    }

    /// The number of an index.
    pub fn get(&self, index: usize) -> u64 {
        self.nodes.get(self.nodes.len() / 2 + index).copied().unwrap_or(u64::MAX)
    }

    /// Changes it.
    #[inline]
    pub fn set(&mut self, index: usize, number: u64) {
        while index >= self.nodes.len() / 2 {
            self.grow();
        }
        let mut at = self.nodes.len() / 2 + index;
        self.nodes[at] = number;
        while at > 1 {
            let least = self.nodes[at].min(self.nodes[at ^ 1]);
            at /= 2;
            if self.nodes[at] == least {
                break;
            }
            self.nodes[at] = least;
        }
    }

    /// Twice as many indices.
    fn grow(&mut self) {
        let leaves = self.nodes.len() / 2;
        let mut nodes = vec![u64::MAX; 4 * leaves];
        nodes[2 * leaves..3 * leaves].copy_from_slice(&self.nodes[leaves..]);
        for at in (1..2 * leaves).rev() {
            nodes[at] = nodes[2 * at].min(nodes[2 * at + 1]);
        }
        self.nodes = nodes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_the_least_however_numbers_change() {
        let mut earliest = Earliest::default();
        assert_eq!((earliest.first(), earliest.least_but(3)), (None, u64::MAX));
        let mut numbers = vec![u64::MAX; 100];
        let mut x = 1u64;
        for _ in 0..5000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let index = (x >> 33) as usize % 100;
            numbers[index] = if x >> 60 == 0 { u64::MAX } else { x >> 40 };
            earliest.set(index, numbers[index]);
            let least = *numbers.iter().min().expect("a hundred");
            assert_eq!((earliest.least(), earliest.get(index)), (least, numbers[index]));
            let first = numbers.iter().position(|n| *n == least).filter(|_| least != u64::MAX);
            assert_eq!(earliest.first(), first);
            let others = numbers.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, n)| *n);
            assert_eq!(Some(earliest.least_but(index)), others.min());
        }
        assert_eq!(earliest.get(1000), u64::MAX);
    }
}
