//! Where the page tables of a hypervisor lie.
//!
//! The tables map the guest's physical memory: in each level an entry of 8 bytes for each part of
//! that memory, 512 entries to a node of 4 KiB. The nodes of a level follow one another in the
//! order of the guest's addresses, and the levels lie behind the guest's memory, one after the
//! other. So the entries of eight neighbouring parts share a line, as in real tables. The entries
//! themselves are not kept: each guest-physical address stands for the host address of the same
//! number.

/// Lines of a node.
const NODE_LINES: u64 = 64;
/// Bits of the guest-physical address that a node of 512 entries tells apart.
const NODE_BITS: u32 = 9;
/// Bits of an offset in a 4 KiB page.
const PAGE_BITS: u32 = 12;
/// Most levels.
const LEVELS: usize = 5;

/// The lines of a hypervisor's page tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NestedTables {
    /// First line of the nodes of each level, from level 1.
    first: [u64; LEVELS],
    leaf: u8,
    levels: u8,
    end: u64,
}

impl NestedTables {
    /// The tables of a guest of so many 4 KiB frames. Leaves are in level `leaf` (1: 4 KiB, 2:
    /// 2 MiB, 3: 1 GiB), the root in level `levels`.
    pub fn new(frames: u64, leaf: u8, levels: u8) -> NestedTables {
        let mut tables = NestedTables { first: [0; LEVELS], leaf, levels, end: frames * 64 };
        for level in leaf..=levels {
            tables.first[usize::from(level) - 1] = tables.end;
            let nodes = frames.div_ceil(1 << (NODE_BITS * u32::from(level)));
            tables.end += nodes * NODE_LINES;
        }
        tables
    }

    /// The level of the leaves.
    #[inline]
    pub fn leaf(&self) -> u8 {
        self.leaf
    }

    /// The level of the root: a walk that finds nothing cached reads the entries from here down to
    /// the leaf.
    #[inline]
    pub fn levels(&self) -> u8 {
        self.levels
    }

    /// The line of the entry of a level that a walk for a guest-physical address reads.
    #[inline]
    pub fn line(&self, address: u64, level: u8) -> u64 {
        let entry = address >> (PAGE_BITS + NODE_BITS * (u32::from(level) - 1));
        self.first[usize::from(level) - 1] + entry / 8
    }

    /// One past the last line of the tables.
    pub fn end(&self) -> u64 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_entries_of_all_levels_lie_behind_the_guests_memory_and_apart() {
        let frames = (3 * GIB) >> 12;
        for (leaf, levels) in [(1, 4), (2, 4), (3, 4), (1, 5), (2, 5), (3, 5)] {
            let tables = NestedTables::new(frames, leaf, levels);
            let mut free = frames * 64;
            for level in leaf..=levels {
                let (first, last) = (tables.line(0, level), tables.line(3 * GIB - 1, level));
                assert!(first == free && last >= first, "level {level} of {tables:?}");
                free = (last + 1).next_multiple_of(64);
            }
            assert_eq!(tables.end(), free);
        }
    }

    #[test]
    fn eight_neighbours_share_a_line_and_512_a_node() {
        let tables = NestedTables::new((4 * GIB) >> 12, 1, 4);
        let first = tables.line(0, 1);
        assert_eq!(tables.line(7 << 12, 1), first);
        assert_eq!(tables.line(8 << 12, 1), first + 1);
        assert_eq!(tables.line((1 << 21) - 1, 1), first + 63);
        assert_eq!(tables.line(1 << 21, 1), first + 64);
        assert_eq!(tables.line(7 << 21, 2), tables.line(0, 2));
        assert_eq!(tables.line(GIB, 2), tables.line(0, 2) + 64);
    }
}
