//! Watermarks of a memory node.

/// How much of a node is free, against its marks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mark {
    /// At most the minimum: what is left is for table nodes and slabs.
    Min,
    /// At most the low mark: time to reclaim.
    Low,
    /// At most the high mark: reclaim that runs goes on.
    High,
    /// Above all marks.
    Plenty,
}

/// Marks of a node, in base frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watermarks {
    /// Frames that data allocations leave: 1/512 of the node, at most 16 MiB, none in nodes below
    /// 64 MiB.
    pub min: u64,
    /// Twice that.
    pub low: u64,
    /// Three times that.
    pub high: u64,
}

impl Watermarks {
    /// Those of no node.
    pub(in super::super) const NONE: Watermarks = Watermarks { min: 0, low: 0, high: 0 };

    /// Those of a node of so many frames.
    pub(in super::super) fn of(frames: u64) -> Watermarks {
        let min = if frames < 1 << 14 { 0 } else { (frames / 512).min(4096) };
        Watermarks { min, low: 2 * min, high: 3 * min }
    }

    /// Where a node with so many free frames stands.
    pub(in super::super) fn mark(self, free: u64) -> Mark {
        match free {
            _ if free <= self.min => Mark::Min,
            _ if free <= self.low => Mark::Low,
            _ if free <= self.high => Mark::High,
            _ => Mark::Plenty,
        }
    }
}
