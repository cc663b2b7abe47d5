//! Changing the marks of leaves where their node is known.

use super::edit::Edit;
use super::node::{Header, Node};
use super::word::{PageMark, Word};
use crate::machine::Machine;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::touch;

/// Sets a mark of the leaf of an index, which lacks it, in its node.
#[inline(always)]
pub fn set_mark<'e, M: Machine>(
    edit: Edit<'e, M>,
    (node, header): (Node<'e>, Header<'e>),
    index: u64,
    mark: PageMark,
) {
    let slot = node.slot_of(index);
    touch(&edit.objects.machine, slot, true);
    slot.store(slot.load(Ordering::Relaxed) | mark.bit(), Ordering::Release);
    let before = header.counts();
    let after = before.marked(mark, 1);
    header.set_counts(after);
    if !before.has(mark) {
        edit.marks_changed(node, after.marks());
    }
}

/// Takes a mark from the leaves in some slots of a node, and gives all of them another. Says how
/// many lost the one, and how many got the other. The node is recounted once.
#[inline]
pub fn exchange_marks<'e, M: Machine>(
    edit: Edit<'e, M>,
    node: Node<'e>,
    slots: &[AtomicU64],
    (from, to): (PageMark, Option<PageMark>),
) -> (i64, i64) {
    let set = to.map_or(0, PageMark::bit);
    let (mut lost, mut got) = (0, 0);
    for slot in slots {
        let old = slot.load(Ordering::Relaxed);
        let new = old & !from.bit() | set;
        if Word(old).is_leaf() && new != old {
            touch(&edit.objects.machine, slot, true);
            slot.store(new, Ordering::Release);
            lost += i64::from(old & from.bit() != 0);
            got += i64::from(new & !old != 0);
        }
    }
    let header = edit.objects.header(node);
    let (before, less) = (header.counts(), header.counts().marked(from, -lost));
    let after = to.map_or(less, |to| less.marked(to, got));
    header.set_counts(after);
    if before.marks() != after.marks() {
        edit.marks_changed(node, after.marks());
    }
    (lost, got)
}
