//! What is known of an object's size while one thread changes it.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// In units of 8 bytes the size before a change, and after it, 16 bits each, and above them twice
/// the changes, one more while one is under way.
#[derive(Debug)]
pub struct Size(AtomicU64);

const NUMBER: u64 = 1 << 32;
const UNIT: u64 = 8;

fn pack(number: u64, from: u64, to: u64) -> u64 {
    number | from << 16 | to
}

fn sizes(word: u64) -> (u64, u64) {
    ((word >> 16 & 0xffff) * UNIT, (word & 0xffff) * UNIT)
}

impl Size {
    /// A size at rest.
    pub fn new(bytes: u64) -> Size {
        Size(AtomicU64::new(pack(0, bytes / UNIT, bytes / UNIT)))
    }

    /// The size is about to change: what it was. `None` while another thread changes it.
    pub fn begin(&self, bytes: u64) -> Option<u64> {
        let word = self.0.load(SeqCst);
        let (_, old) = sizes(word);
        let next = pack((word & !(NUMBER - 1)) + NUMBER, old / UNIT, bytes / UNIT);
        let free =
            word & NUMBER == 0 && self.0.compare_exchange(word, next, SeqCst, SeqCst).is_ok();
        free.then_some(old)
    }

    /// It has changed.
    pub fn end(&self) {
        let word = self.0.load(SeqCst);
        let (_, new) = sizes(word);
        self.0.store(pack((word & !(NUMBER - 1)) + NUMBER, new / UNIT, new / UNIT), SeqCst);
    }

    /// Before an access.
    pub fn read(&self) -> u64 {
        self.0.load(SeqCst)
    }

    /// Whether an access that needs the object to be `bytes` long may have found it so, or not;
    /// `before` was read before it.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn may_reach(&self, before: u64, bytes: u64, reached: bool) -> Result<(), String> {
        let (from, to) = sizes(before);
        let known = self.0.load(SeqCst) == before;
        match reached {
            true if known && bytes > from.max(to) => {
                Err(format!("byte {bytes:#x} of an object of {from:#x}, {to:#x} was reached"))
            }
            false if known && bytes <= from.min(to) => {
                Err(format!("byte {bytes:#x} of an object of {from:#x}, {to:#x} is past its end"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_known_but_for_what_changes_it() {
        let size = Size::new(80 * 4096);
        let reach = |before, bytes| [true, false].map(|r| size.may_reach(before, bytes, r).is_ok());
        let rest = size.read();
        assert_eq!([4096, 80 * 4096 + 8].map(|n| reach(rest, n)), [[true, false], [false, true]]);
        assert_eq!((size.begin(16), size.begin(24)), (Some(80 * 4096), None));
        let change = size.read();
        assert_eq!([16, 24].map(|bytes| reach(change, bytes)), [[true, false], [true, true]]);
        size.end();
        assert_eq!((reach(change, 24), reach(size.read(), 24)), ([true, true], [false, true]));
        assert_eq!(size.begin(0), Some(16));
    }
}
