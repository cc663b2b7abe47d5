//! A stored value: the thread, the slot, and the thread's count of stores.
//!
//! Each thread owns one word of every slot, so several threads write different words of one page. A
//! thread counts its stores over all pages, so the counts of one word grow, and the stores of one
//! thread are ordered.

/// Set in what is stored in a forked space: no such value may be seen in another one.
const CHILD: u64 = 1 << 43;

/// The value of a thread's store number `count`, to a page.
pub fn word(writer: usize, slot: usize, count: u64) -> u64 {
    (writer as u64 + 1) << 56 | (slot as u64) << 44 | count
}

/// A value stored in a forked space.
pub fn child_word(writer: usize, slot: usize, count: u64) -> u64 {
    word(writer, slot, count) | CHILD
}

/// Where in the page the word of a thread lies: its byte offset. All of eight threads have
/// different ones.
pub fn offset(writer: usize, slot: usize) -> usize {
    8 * (writer * 64 + slot * 13 % 64)
}

/// The store that left this value in the word of that thread, 0 for zeros. `None` if no store of it
/// can have.
pub fn count(value: u64, writer: usize, slot: usize) -> Option<u64> {
    let count = value & (CHILD - 1);
    (value == 0 || count != 0 && value == word(writer, slot, count)).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_of_one_word_alone() {
        let value = word(3, 70, 12345);
        assert_eq!(count(value, 3, 70), Some(12345));
        assert_eq!(count(0, 3, 70), Some(0));
        let others = [
            count(value, 2, 70),
            count(value, 3, 71),
            count(child_word(3, 70, 5), 3, 70),
            count(77, 0, 0),
        ];
        assert_eq!(others, [None; 4]);
    }

    #[test]
    fn threads_have_different_words() {
        for slot in 0..100 {
            let all: std::collections::BTreeSet<usize> = (0..8).map(|w| offset(w, slot)).collect();
            assert!(all.len() == 8 && all.iter().all(|&at| at < 4096 && at % 8 == 0));
        }
    }
}
