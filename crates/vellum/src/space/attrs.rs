//! What callers ask for: rights, placement, policies, advice.
//!
//! Everything a region remembers fits one 64-bit word (`Packed`), so a fault reads a region's whole
//! mind with one load and "the same attributes" is a comparison of two words. Rejected: a struct of
//! separate fields in the region, which a reader without a lock would see half changed.

use crate::addr::{Order, Va};
use crate::config::NumaPolicy;

/// What a program may do with a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rights {
    /// Loads.
    pub read: bool,
    /// Stores. Every MMU we know gives loads with them.
    pub write: bool,
    /// Instruction fetches. Gives loads too.
    pub exec: bool,
}

impl Rights {
    /// None: the pages stay, nobody may touch them (`PROT_NONE`).
    pub const NONE: Rights = Rights { read: false, write: false, exec: false };
    /// Loads only.
    pub const READ: Rights = Rights { read: true, write: false, exec: false };
    /// Loads and stores.
    pub const READ_WRITE: Rights = Rights { read: true, write: true, exec: false };
    /// Loads and fetches.
    pub const READ_EXEC: Rights = Rights { read: true, write: false, exec: true };
    /// All three.
    pub const ALL: Rights = Rights { read: true, write: true, exec: true };

    /// Whether they give nothing at all.
    #[inline]
    pub const fn is_none(self) -> bool {
        !(self.read || self.write || self.exec)
    }

    /// Whether they give `access`.
    #[inline]
    pub const fn allows(self, access: Access) -> bool {
        match access {
            Access::Read => !self.is_none(),
            Access::Write => self.write,
            Access::Exec => self.exec,
        }
    }
}

/// What a program tried when it faulted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Exec,
}

/// A region's own word on huge pages, beside the switch `thp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugeAdvice {
    /// Wanted, where `thp` is not `never`.
    Huge,
    /// Not wanted, whatever `thp` says.
    NoHuge,
}

/// How large the leaves of a region are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LeafSize {
    /// As the switch `thp` and the region's advice decide. A fault that finds no free block of 2
    /// MiB maps 4 KiB; it does not wait for a block that another CPU is about to give back.
    #[default]
    Policy,
    /// This size and no other: 4 KiB, 2 MiB or 1 GiB. Start and length must be multiples of it. A
    /// fault that finds no block of that size says so. Later verbs may split such a leaf; the parts
    /// then are ordinary pages.
    Exactly(Order),
}

/// What a new mapping is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attrs {
    /// What programs may do.
    pub rights: Rights,
    /// The mapping's own huge-page policy; `None` leaves it to the switch.
    pub thp: Option<HugeAdvice>,
    /// The mapping's own NUMA policy; `None` leaves it to the switch.
    pub numa: Option<NumaPolicy>,
    /// Size of the leaves.
    pub leaf: LeafSize,
}

impl Attrs {
    /// Private memory, zero when first read, every policy left to the switches.
    pub const fn anonymous(rights: Rights) -> Attrs {
        Attrs { rights, thp: None, numa: None, leaf: LeafSize::Policy }
    }

    /// All of it in one word; 0 is no value of it. From bit 0 on: 3 bits of rights; 4: a word on
    /// huge pages, 2 at most; 8: leaf size, 1 + its order; 16: kind of policy, 4 at most; 19 to 23:
    /// clear here, set in a region that maps an object: it may not be written, it is a device, its
    /// writes are noted, they go to copies, it maps one; 24 to 31: the policy's node, any `u8`; 63:
    /// always set.
    pub(crate) fn pack(self) -> Packed {
        let rights = self.rights.read as u64
            | (self.rights.write as u64) << 1
            | (self.rights.exec as u64) << 2;
        let thp = match self.thp {
            None => 0,
            Some(HugeAdvice::Huge) => 1,
            Some(HugeAdvice::NoHuge) => 2,
        };
        let leaf = match self.leaf {
            LeafSize::Policy => 0,
            LeafSize::Exactly(order) => 1 + order.get() as u64,
        };
        let (kind, node) = match self.numa {
            None => (0, 0),
            Some(NumaPolicy::Local) => (1, 0),
            Some(NumaPolicy::Interleave) => (2, 0),
            Some(NumaPolicy::Bind(n)) => (3, n as u64),
            Some(NumaPolicy::Prefer(n)) => (4, n as u64),
        };
        Packed(1 << 63 | rights | thp << 4 | leaf << 8 | kind << 16 | node << 24)
    }
}

const _: () = assert!((1 + Order::GIANT.get() as u64) < 1 << 8);

/// Bit of [`Packed`]: the right to write.
const WRITE: u64 = 1 << 1;
/// The same: the region maps an object.
const OBJECT: u64 = 1 << 23;
/// The same: it does, and who writes gets a copy of the page.
const PRIVATE: u64 = 1 << 22;
/// The same: it does, and the first write to a page is noted.
const TRACKED: u64 = 1 << 21;

/// The same: it does, and the object is a device.
const DEVICE: u64 = 1 << 20;
/// The same: it is, and nobody may write to it.
const READ_ONLY: u64 = 1 << 19;

/// What a write does through a region that maps an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ViewKind {
    /// It changes the object.
    Shared,
    /// It changes the object, whose pager has to know.
    Tracked,
    /// It changes a copy, which the space gets.
    Private,
    /// It reaches a device, if that may be written.
    Device { writable: bool },
}

impl ViewKind {
    /// Whether such a region may give those rights.
    pub fn may_give(self, rights: Rights) -> bool {
        match self {
            // No code is fetched from a device, not even by speculation.
            ViewKind::Device { writable } => !rights.exec && (writable || !rights.write),
            _ => true,
        }
    }
}

/// Attributes in one word; a fault takes out what it asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packed(pub u64);

impl Packed {
    #[inline]
    pub fn rights(self) -> Rights {
        Rights { read: self.0 & 1 != 0, write: self.0 & 2 != 0, exec: self.0 & 4 != 0 }
    }
    /// The rights, a bit each, that `then` lacks, and those that it has in addition.
    #[inline(always)]
    pub fn taken_and_given(self, then: Packed) -> (u64, u64) {
        let (had, has) = (self.0 & 7, then.0 & 7);
        (had & !has, has & !had)
    }
    /// As [`Rights::allows`].
    #[inline]
    pub fn allows(self, access: Access) -> bool {
        let any_of = match access {
            Access::Read => 7,
            Access::Write => 2,
            Access::Exec => 4,
        };
        self.0 & any_of != 0
    }
    #[inline]
    pub fn thp(self) -> Option<HugeAdvice> {
        match self.0 >> 4 & 0xf {
            1 => Some(HugeAdvice::Huge),
            2 => Some(HugeAdvice::NoHuge),
            _ => None,
        }
    }
    /// The same of a region that maps an object.
    #[inline]
    pub fn with_object(self, kind: ViewKind) -> Packed {
        let kind = match kind {
            ViewKind::Shared => 0,
            ViewKind::Tracked => TRACKED,
            ViewKind::Private => PRIVATE,
            ViewKind::Device { writable: true } => DEVICE,
            ViewKind::Device { writable: false } => DEVICE | READ_ONLY,
        };
        Packed(self.0 | OBJECT | kind)
    }
    /// Which kind of view it is, of a region that maps an object.
    #[inline]
    pub fn view_kind(self) -> ViewKind {
        match self.0 & (PRIVATE | TRACKED | DEVICE) {
            0 => ViewKind::Shared,
            TRACKED => ViewKind::Tracked,
            DEVICE => ViewKind::Device { writable: self.0 & READ_ONLY == 0 },
            _ => ViewKind::Private,
        }
    }
    /// Whether the region maps a device.
    #[inline]
    pub fn is_device(self) -> bool {
        self.0 & DEVICE != 0
    }
    /// Whether the region maps an object.
    #[inline]
    pub fn has_object(self) -> bool {
        self.0 & OBJECT != 0
    }
    /// Whether the region maps an object and who writes gets a copy.
    #[inline]
    pub fn is_private_view(self) -> bool {
        self.0 & PRIVATE != 0
    }
    /// Whether the region maps an object and who writes changes it.
    #[inline]
    pub fn is_shared_view(self) -> bool {
        self.0 & (OBJECT | PRIVATE) == OBJECT
    }
    /// Whether the region maps an object whose pager has to know of each page that is written.
    #[inline]
    pub fn is_tracked_view(self) -> bool {
        self.0 & TRACKED != 0
    }
    /// Whether programs may write to an object by it, which is no device.
    pub fn writes_object(self) -> bool {
        self.is_shared_view() && !self.is_device() && self.rights().write
    }
    /// Whether a fault maps the object's own page, of which nobody has to be told before, in a
    /// region that maps an object. `writes`: the fault writes.
    #[inline(always)]
    pub fn maps_page(self, writes: bool) -> bool {
        let others = DEVICE | if writes { PRIVATE | TRACKED } else { 0 };
        self.0 & others == 0
    }
    /// Whether an entry that maps the object's own page gives the right to write, if no write of it
    /// is known.
    #[inline(always)]
    pub fn gives_writes(self) -> bool {
        self.0 & (WRITE | PRIVATE | TRACKED) == WRITE
    }
    /// The same of a region that maps an object, for a page of which the pager knows that it is
    /// written.
    #[inline(always)]
    pub fn noted(self) -> Packed {
        Packed(self.0 & !TRACKED)
    }
    /// The rights of an entry that maps the object's own page, of which no write is known.
    #[inline]
    pub fn object_rights(self) -> Rights {
        Rights { write: self.gives_writes(), ..self.rights() }
    }
    /// Whether it does not, and leaves the choice of memory nodes to the switch: one test.
    #[inline(always)]
    pub fn is_private_anywhere(self) -> bool {
        self.0 >> 16 & 0xff == 0
    }
    #[inline(always)]
    pub fn numa(self) -> Option<NumaPolicy> {
        let kind = self.0 >> 16 & 0x7;
        if kind == 0 {
            return None;
        }
        let node = (self.0 >> 24) as u8;
        match kind {
            1 => Some(NumaPolicy::Local),
            2 => Some(NumaPolicy::Interleave),
            3 => Some(NumaPolicy::Bind(node)),
            4 => Some(NumaPolicy::Prefer(node)),
            _ => None,
        }
    }
    #[inline]
    pub fn leaf(self) -> LeafSize {
        match (self.0 >> 8) as u8 {
            0 => LeafSize::Policy,
            n => Order::new(n - 1).map_or(LeafSize::Policy, LeafSize::Exactly),
        }
    }
    /// All of them.
    pub fn attrs(self) -> Attrs {
        Attrs { rights: self.rights(), thp: self.thp(), numa: self.numa(), leaf: self.leaf() }
    }
}

/// Where a mapping goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// There and nowhere else; `Occupied` if anything is mapped in the range.
    At(Va),
    /// There; what was mapped in the range is unmapped first.
    Replace(Va),
    /// In the highest hole that is long enough, aligned to 2 MiB when the mapping is that long.
    /// Never in the lowest 64 KiB, so that a null pointer with an offset meets nothing.
    Anywhere,
}

/// A wish about mapped memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Forget the contents; the memory reads as zeros again.
    DontNeed,
    /// Huge pages are wanted here.
    Huge,
    /// Huge pages are not wanted here.
    NoHuge,
    /// Make each whole 2 MiB of the range that has a page one huge page, now. Where an object is
    /// shown, its pages become a block ([`Objects::collapse`](crate::vm::Objects::collapse)).
    Collapse,
    /// Have every page present, as if each had been read (or written).
    Populate {
        /// As if written: fresh pages, shared ones copied.
        write: bool,
    },
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn attributes_survive_packing() {
        let rights =
            [Rights::NONE, Rights::READ, Rights::READ_WRITE, Rights::READ_EXEC, Rights::ALL];
        let numa = [
            None,
            Some(NumaPolicy::Local),
            Some(NumaPolicy::Interleave),
            Some(NumaPolicy::Bind(15)),
        ];
        let leaf =
            [LeafSize::Policy, LeafSize::Exactly(Order::BASE), LeafSize::Exactly(Order::GIANT)];
        let mut seen = std::collections::BTreeSet::new();
        for rights in rights {
            for thp in [None, Some(HugeAdvice::Huge), Some(HugeAdvice::NoHuge)] {
                for numa in
                    numa.into_iter().chain([Some(NumaPolicy::Prefer(3)), Some(NumaPolicy::Bind(0))])
                {
                    for leaf in leaf {
                        let attrs = Attrs { rights, thp, numa, leaf };
                        assert_eq!(attrs.pack().attrs(), attrs);
                        views_survive_packing(attrs);
                        assert!(attrs.pack().0 != 0 && seen.insert(attrs.pack().0));
                    }
                }
            }
        }
    }

    fn views_survive_packing(attrs: Attrs) {
        for kind in [ViewKind::Shared, ViewKind::Tracked, ViewKind::Private] {
            let view = attrs.pack().with_object(kind);
            assert!(view.attrs() == attrs && view.has_object() && !view.is_private_anywhere());
            let private = kind == ViewKind::Private;
            assert_eq!((view.is_private_view(), view.is_shared_view()), (private, !private));
            let writes = attrs.rights.write && kind == ViewKind::Shared;
            assert_eq!((view.view_kind(), view.object_rights().write), (kind, writes));
        }
        assert!(!attrs.pack().has_object() && !attrs.pack().is_shared_view());
        for writable in [false, true] {
            let kind = ViewKind::Device { writable };
            let view = attrs.pack().with_object(kind);
            assert!(view.attrs() == attrs && view.is_device() && view.is_shared_view());
            assert!(view.view_kind() == kind && !view.is_tracked_view());
        }
        assert!(!attrs.pack().is_device());
    }

    #[test]
    fn a_device_gives_no_fetches_and_writes_if_it_may_be_written() {
        let gives = |writable, rights| ViewKind::Device { writable }.may_give(rights);
        assert!(gives(true, Rights::READ_WRITE) && gives(false, Rights::READ));
        assert!(!gives(false, Rights::READ_WRITE));
        assert!(!gives(true, Rights::READ_EXEC) && !gives(true, Rights::ALL));
        assert!(gives(false, Rights::NONE) && ViewKind::Shared.may_give(Rights::ALL));
    }

    #[test]
    fn stores_and_fetches_give_loads() {
        let write_only = Rights { read: false, write: true, exec: false };
        assert!(write_only.allows(Access::Read) && !write_only.allows(Access::Exec));
        assert!(!Rights::NONE.allows(Access::Read) && !Rights::READ.allows(Access::Write));
        for rights in [
            Rights::NONE,
            Rights::READ,
            Rights::READ_WRITE,
            Rights::READ_EXEC,
            Rights::ALL,
            write_only,
        ] {
            let packed = Attrs::anonymous(rights).pack();
            for access in [Access::Read, Access::Write, Access::Exec] {
                assert_eq!(packed.allows(access), rights.allows(access), "{rights:?} {access:?}");
            }
        }
    }
}
