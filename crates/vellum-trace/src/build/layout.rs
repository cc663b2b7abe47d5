//! Which mapping lies where: the recorded address space, followed call by call.
//!
//! Pieces are kept by address. A piece is the visible rest of a mapping; a mapping that was punched
//! has several. Each knows its *root*, the reservation it was placed into by fixed mappings, so
//! that a library's segments keep their distance in a replay.
use crate::event::{MapKind, Prot};
use std::collections::BTreeMap;

/// A visible part of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First address after it.
    pub(crate) end: u64,
    /// Mapping it belongs to.
    pub(crate) mapping: u32,
    /// Address of the mapping's offset 0.
    pub(crate) base: u64,
    /// Outermost reservation and its base address.
    pub(crate) root: (u32, u64),
    /// Rights.
    pub(crate) prot: Prot,
    /// What stands behind it.
    pub(crate) kind: MapKind,
}

/// A range of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where it begins in the recorded address space.
    pub(crate) start: u64,
    /// Its length in bytes.
    pub(crate) len: u64,
    /// The piece it was cut from.
    pub(crate) piece: Piece,
}

impl Part {
    /// Offset in its mapping.
    pub(crate) fn offset(&self) -> u64 {
        self.start - self.piece.base
    }
}

/// The recorded address space.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pieces: BTreeMap<u64, Piece>,
}

impl Layout {
    /// The piece at an address and where it begins.
    pub(crate) fn find(&self, addr: u64) -> Option<(u64, Piece)> {
        let (start, piece) = self.pieces.range(..=addr).next_back()?;
        (addr < piece.end).then_some((*start, *piece))
    }

    /// All parts that overlap `start .. end`, cut to it, by address.
    pub(crate) fn parts(&self, start: u64, end: u64) -> Vec<Part> {
        let first = self.find(start).map_or(start, |(at, _)| at);
        self.pieces
            .range(first..end)
            .map(|(at, piece)| {
                let from = (*at).max(start);
                Part { start: from, len: piece.end.min(end) - from, piece: *piece }
            })
            .collect()
    }

    /// Takes `start .. end` away and returns what was there.
    pub(crate) fn carve(&mut self, start: u64, end: u64) -> Vec<Part> {
        let parts = self.parts(start, end);
        for part in &parts {
            let piece = part.piece;
            let Some((at, _)) = self.find(part.start) else {
                continue;
            };
            self.pieces.remove(&at);
            if at < part.start {
                self.pieces.insert(at, Piece { end: part.start, ..piece });
            }
            let after = part.start + part.len;
            if after < piece.end {
                self.pieces.insert(after, piece);
            }
        }
        parts
    }

    /// Puts a piece into free space.
    pub(crate) fn insert(&mut self, start: u64, piece: Piece) {
        debug_assert!(self.parts(start, piece.end).is_empty());
        self.pieces.insert(start, piece);
    }

    /// Changes the rights of a range.
    pub(crate) fn protect(&mut self, start: u64, end: u64, prot: Prot) -> Vec<Part> {
        let parts = self.carve(start, end);
        for p in &parts {
            let piece = Piece { end: p.start + p.len, prot, ..p.piece };
            self.pieces.insert(p.start, piece);
        }
        // Rights may have come back: the kernel has one mapping then, which `mremap` moves as one.
        for at in parts.iter().map(|p| p.start).chain([end]) {
            self.join(at);
        }
        parts
    }

    /// Makes one piece of the two that meet at an address, if they differ in nothing else.
    fn join(&mut self, at: u64) {
        let below = self.pieces.range(..at).next_back().map(|(start, piece)| (*start, *piece));
        let (Some((start, below)), Some(above)) = (below, self.pieces.get(&at).copied()) else {
            return;
        };
        if below.end == at && (Piece { end: above.end, ..below }) == above {
            self.pieces.remove(&at);
            self.pieces.insert(start, above);
        }
    }

    /// The free range around an address, within `low .. high`.
    pub(crate) fn gap(&self, addr: u64, low: u64, high: u64) -> (u64, u64) {
        let below = self.pieces.range(..=addr).next_back();
        let above = self.pieces.range(addr..).next();
        (below.map_or(low, |(_, p)| p.end.max(low)), above.map_or(high, |(at, _)| (*at).min(high)))
    }

    /// Are the pieces in order and free of overlap?
    pub(crate) fn validate(&self) -> bool {
        let mut last = 0;
        self.pieces.iter().all(|(start, p)| {
            let ok = *start >= last && *start < p.end && p.base <= *start && p.root.1 <= *start;
            last = p.end;
            ok
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(mapping: u32, base: u64, end: u64) -> Piece {
        Piece { end, mapping, base, root: (mapping, base), prot: Prot::READ, kind: MapKind::Anon }
    }

    #[test]
    fn a_hole_leaves_both_ends_with_their_offsets() {
        let mut l = Layout::default();
        l.insert(0x1000, piece(0, 0x1000, 0x9000));
        let gone = l.carve(0x3000, 0x5000);
        assert_eq!(gone.len(), 1);
        assert_eq!((gone[0].offset(), gone[0].len), (0x2000, 0x2000));
        assert!(l.find(0x2fff).is_some() && l.find(0x3000).is_none());
        let (at, p) = l.find(0x5000).expect("upper end stays");
        assert_eq!((at, p.base), (0x5000, 0x1000));
        assert_eq!(l.gap(0x4000, 0, u64::MAX), (0x3000, 0x5000));
        assert!(l.validate());
    }

    #[test]
    fn a_range_over_several_pieces_gives_a_part_of_each() {
        let mut l = Layout::default();
        l.insert(0x1000, piece(0, 0x1000, 0x3000));
        l.insert(0x3000, piece(1, 0x3000, 0x4000));
        l.insert(0x6000, piece(2, 0x6000, 0x8000));
        let parts = l.parts(0x2000, 0x7000);
        let seen: Vec<_> = parts.iter().map(|p| (p.piece.mapping, p.offset(), p.len)).collect();
        assert_eq!(seen, [(0, 0x1000, 0x1000), (1, 0, 0x1000), (2, 0, 0x1000)]);
        l.protect(0x2000, 0x3000, Prot::NONE);
        assert_eq!(l.find(0x2000).map(|f| f.1.prot), Some(Prot::NONE));
        assert_eq!(l.find(0x1000).map(|f| f.1.prot), Some(Prot::READ));
        assert!(l.validate());
    }
}
