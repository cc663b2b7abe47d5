//! The rows that are behind: what somebody else does better than the library.
//!
//! A row is behind if its best peer has the better figure. The kernel under us is a peer like the
//! crates; the floor is none, since it is not an allocator, a fault or an index. A row that is
//! behind by less than its own spread is listed all the same, and says so.

use serde::Serialize;

use super::Row;

/// A row that is behind.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Behind {
    /// The row's name.
    pub name: String,
    /// Its threads.
    pub threads: usize,
    /// The best peer.
    pub peer: &'static str,
    /// Ours over theirs.
    pub ratio: f64,
    /// The row's spread.
    pub spread: f64,
    /// Whether the two figures differ by no more than that.
    pub within_spread: bool,
}

impl Row {
    /// The peer that is ahead of this row, if there is one.
    pub fn behind(&self) -> Option<Behind> {
        let (peer, theirs) = self.best_peer()?;
        let ratio = self.ours / theirs;
        let past = if self.more_is_better() { theirs / self.ours } else { ratio } - 1.0;
        (past > 0.0).then(|| Behind {
            name: self.name.clone(),
            threads: self.threads,
            peer,
            ratio,
            spread: self.spread,
            within_spread: past <= self.spread,
        })
    }
}

/// Those of some rows that are behind, in their order.
pub fn behind(rows: &[Row]) -> Vec<Behind> {
    rows.iter().filter_map(Row::behind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(unit: &'static str, ours: f64, peers: &[(&'static str, f64)]) -> Row {
        Row {
            name: "a/b".into(),
            threads: 1,
            unit,
            ours,
            floor: Some(1.0),
            peers: peers.iter().copied().collect(),
            spread: 0.1,
        }
    }

    #[test]
    fn a_row_is_behind_its_best_peer_and_no_other() {
        let found = row("ns", 12.0, &[("bitmap", 20.0), ("linux", 10.0)]).behind().expect("behind");
        assert_eq!((found.peer, found.ratio, found.within_spread), ("linux", 1.2, false));
        assert!(row("ns", 10.5, &[("linux", 10.0)]).behind().expect("behind").within_spread);
        assert_eq!(row("ns", 9.0, &[("bitmap", 20.0), ("linux", 10.0)]).behind(), None);
        assert_eq!(row("ns", 10.0, &[("linux", 10.0)]).behind(), None, "level");
        assert_eq!(row("ns", 10.0, &[]).behind(), None, "the floor is no peer");
    }

    #[test]
    fn where_more_is_better_less_is_behind() {
        for unit in ["%", "x"] {
            let found = row(unit, 1.5, &[("linux", 1.8), ("buddy", 1.2)]).behind().expect("behind");
            assert_eq!((found.peer, found.within_spread), ("linux", false), "{unit}");
            assert_eq!(row(unit, 1.9, &[("linux", 1.8)]).behind(), None, "{unit}");
        }
    }
}
