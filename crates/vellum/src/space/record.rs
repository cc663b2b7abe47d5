//! What the subsystem keeps of a space beside its page table, and the handle callers hold.

use core::ptr::NonNull;

use crate::addr::Pfn;
use crate::machine::{Asid, MAX_CPUS};
use crate::space::slab_ref::SlabRef;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{self, Lock};

const WORDS: usize = MAX_CPUS / 64;

/// Spaces that a `Vm` may have at once; the next [`create`](crate::Vm::create) or
/// [`fork`](crate::Vm::fork) gets `NoMemory`. A page is mapped once by each space at most, so this
/// is what keeps map counts, the references to the huge page of zeros and the members of a fork
/// family inside their 32 bits: memory alone does not, since a machine may have frames for the
/// tables of 2^33 spaces.
pub const MAX_SPACES: u64 = 1 << 30;

/// An address space. Verbs take it by reference, [`Vm::exit`](crate::Vm::exit) by value; a space
/// that is dropped instead keeps its memory for ever.
///
/// A space belongs to the `Vm` that made it: a verb of another one that has
/// anything to do panics before it looks at it. The handle may outlive its
/// `Vm`; nothing can be done with it then, and its own methods read nothing but the handle.
#[must_use = "a space that is dropped without `exit` keeps its memory for ever"]
#[derive(Debug)]
pub struct Space {
    pub(crate) handle: SlabRef,
    /// Whose it is: the id of its `Platform`.
    vm: usize,
    record: NonNull<SpaceRecord>,
}

// SAFETY: the record is made of atomics and locks, and only the space's own `Vm` looks at it, which
// is `Sync` if that may be anywhere.
unsafe impl Send for Space {}
// SAFETY: as above.
unsafe impl Sync for Space {}

#[cold]
#[inline(never)]
fn foreign() -> ! {
    panic!("the space belongs to another Vm")
}

impl Space {
    pub(crate) fn new(handle: SlabRef, vm: usize, record: NonNull<SpaceRecord>) -> Space {
        Space { handle, vm, record }
    }

    /// The record.
    ///
    /// # Safety
    /// The `Vm` of that id still is.
    ///
    /// # Panics
    /// If the space is another's.
    #[inline(always)]
    pub(crate) unsafe fn record(&self, vm: usize) -> &SpaceRecord {
        if self.vm != vm {
            foreign();
        }
        // SAFETY: the `Vm` that made the space is there, by the caller's promise. The slab object
        // lives until `exit` consumes the handle; zero bytes are a valid record.
        unsafe { self.record.as_ref() }
    }

    /// A number no other living space of the same `Vm` has.
    pub fn id(&self) -> u64 {
        self.handle.raw()
    }
}

/// A space's record; 256 zero bytes at first. (L: mmap lock.)
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct SpaceRecord {
    /// Bit 0: faults are stopped. The rest raises after the intervals of any node were changed,
    /// before any entry below them is, and when faults may go on. A fault compares all of it with
    /// what it read earlier before it changes an entry. Written under L.
    edits: AtomicU64,
    /// The root's frame. Never changes.
    pub root: AtomicU64,
    /// The identifier in the TLBs, below 4096 (`tlb::CONTEXT_WORDS`), 0 for none. Never changes.
    pub asid: AtomicU64,
    /// This object's own handle: what owners of frames say. Never changes.
    pub handle: AtomicU64,
    /// The fork family's handle, 0 for none. L, set once.
    pub family: AtomicU64,
    /// The next space on the family's list, and the one before, 0 for none. The family's lock.
    pub sibling: AtomicU64,
    pub before: AtomicU64,
    /// First object of the list of index shifts, 0 for none. L; taken off under the family's lock,
    /// too.
    pub shifted: AtomicU64,
    /// The region made last, with a reference of its own; equal attributes use it again. L.
    pub latest: AtomicU64,
    /// The region a change of attributes made last, with a reference of its own, for the next
    /// change to the same. L.
    pub changed: AtomicU64,
    /// Above `hole_below` no hole is of `hole_bytes` bytes or more; 0 if nothing was hole_bytes
    /// (`place.rs`). L.
    pub hole_bytes: AtomicU64,
    pub hole_below: AtomicU64,
    layout: AtomicU32,
    /// Not 0 where shared zeros are forbidden. Set under L, never taken back.
    no_zeros: AtomicU32,
    /// Not 0 once the space holds its reference to the huge page of zeros; then never 0 again.
    /// Anyone, by exchange.
    pub zeros: AtomicU64,
    /// Not 0 once the space has mapped an object, or its parent had. L, never taken back.
    objects: AtomicU64,
    /// Of a child, the number of its fork. Never changes.
    fork: AtomicU64,
    /// Shifts added since those that no region has were last dropped, and how many more may be
    /// before that is done again. L.
    pub shifts_added: AtomicU32,
    pub shifts_due: AtomicU32,
    /// CPUs whose root is this space's.
    pub active: CpuWords,
    /// CPUs that may hold translations under the asid.
    pub cached: CpuWords,
    /// CPUs of `cached` that must drop them before they run here again.
    pub stale: CpuWords,
}

const _: () = assert!(size_of::<SpaceRecord>() <= 256);

impl SpaceRecord {
    #[inline]
    pub fn root(&self) -> Pfn {
        Pfn(self.root.load(Ordering::Relaxed))
    }
    #[inline]
    pub fn asid(&self) -> Asid {
        Asid(self.asid.load(Ordering::Relaxed) as u16)
    }
    /// What the locks of this space are told apart by.
    #[inline]
    pub fn id(&self) -> u64 {
        self.handle.load(Ordering::Relaxed)
    }
    /// Serialises the verbs that change what is mapped where.
    #[inline]
    pub fn mmap_lock(&self) -> &Lock<sync::MmapLock> {
        Lock::from_word(&self.layout)
    }
    /// Whether shared zeros may be mapped. An answer that is to hold is asked for under the lock of
    /// the node concerned.
    #[inline]
    pub fn takes_zeros(&self) -> bool {
        self.no_zeros.load(Ordering::Relaxed) == 0
    }
    /// From here on they may not.
    pub fn forbid_zeros(&self) {
        self.no_zeros.store(1, Ordering::Relaxed);
    }
    /// Whether some region may map an object.
    pub fn maps_objects(&self) -> bool {
        self.objects.load(Ordering::Relaxed) != 0
    }
    /// From here on some may.
    pub fn note_object(&self) {
        self.objects.store(1, Ordering::Relaxed);
    }
    /// What there is to compare later. While faults are stopped nothing will compare equal.
    #[inline(always)]
    pub fn edits(&self) -> Edits {
        Edits(self.edits.load(Ordering::Acquire) & !STOPPED)
    }
    /// Whether no region was edited since, and faults are not stopped. To be asked under the lock
    /// of a node for its entries: who stopped them and has been there, or an edit that has, is seen
    /// then.
    #[inline(always)]
    pub fn is_unedited(&self, since: Edits) -> bool {
        self.edits.load(Ordering::Acquire) == since.0
    }
    /// The intervals have changed, the entries will.
    pub fn edited(&self) {
        self.edits.store(self.edits.load(Ordering::Relaxed) + EDIT, Ordering::Release);
    }
    /// Whether a fork is copying, or a verb takes rights and gives others.
    #[inline]
    pub fn faults_stopped(&self) -> bool {
        self.edits.load(Ordering::Acquire) & STOPPED != 0
    }
    /// From here on no fault changes an entry; whoever takes a node's lock after the caller had it
    /// knows. Under the mmap lock.
    pub fn stop_faults(&self) {
        debug_assert!(!self.faults_stopped(), "two verbs stop faults at once");
        self.edits.store(self.edits.load(Ordering::Relaxed) | STOPPED, Ordering::Release);
    }
    /// They may again; what they saw before is to be looked at again.
    pub fn let_faults_go(&self) {
        debug_assert!(self.faults_stopped(), "faults go that were not stopped");
        self.edits.store((self.edits.load(Ordering::Relaxed) & !STOPPED) + EDIT, Ordering::Release);
    }
    /// The space is a child whose fork begins, of that number. Before others can find it by its
    /// family.
    pub fn begin_child(&self, fork: u64) {
        self.fork.store(fork, Ordering::Relaxed);
        self.edits.store(UNFINISHED, Ordering::Relaxed);
    }
    /// The fork is over.
    pub fn finish_child(&self) {
        self.edits.store(EDIT, Ordering::Release);
    }
    /// The number of the fork that has made it.
    pub fn fork(&self) -> u64 {
        self.fork.load(Ordering::Relaxed)
    }
    /// Whether the space's fork has not finished it: nobody else reads its tables.
    pub fn is_unfinished(&self) -> bool {
        self.edits.load(Ordering::Acquire) == UNFINISHED
    }
}

/// The bit of `SpaceRecord::edits` that says that faults are stopped.
const STOPPED: u64 = 1;
/// All of it, of a child that its fork has not finished.
const UNFINISHED: u64 = u64::MAX;
/// An edit. There is room for 2^63 of them: one each nanosecond for 292 years. So none comes back
/// to what a fault has read, and only the other bit can be recounted.
const EDIT: u64 = 2;

/// What a space's edits were when a fault looked.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Edits(u64);

/// A set of CPUs that many change at once.
#[derive(Debug)]
pub(crate) struct CpuWords([AtomicU64; WORDS]);

impl CpuWords {
    /// Words of a set.
    pub const WORDS: usize = WORDS;

    /// The bits of word `i` that stand for one of so many CPUs.
    pub fn in_word(cpus: usize, i: usize) -> u64 {
        match cpus.saturating_sub(i * 64) {
            0 => 0,
            n @ 1..64 => (1 << n) - 1,
            _ => !0,
        }
    }

    #[inline]
    pub fn insert(&self, cpu: usize) {
        self.0[cpu / 64].fetch_or(1 << (cpu % 64), Ordering::SeqCst);
    }
    /// Whether it was in.
    #[inline]
    pub fn remove(&self, cpu: usize) -> bool {
        self.0[cpu / 64].fetch_and(!(1 << (cpu % 64)), Ordering::SeqCst) & 1 << (cpu % 64) != 0
    }
    #[inline]
    pub fn contains(&self, cpu: usize) -> bool {
        self.0[cpu / 64].load(Ordering::SeqCst) & 1 << (cpu % 64) != 0
    }
    /// Word `i` of the set.
    #[inline]
    pub fn word(&self, i: usize) -> u64 {
        self.0[i].load(Ordering::SeqCst)
    }
    #[inline]
    pub fn insert_word(&self, i: usize, cpus: u64) {
        self.0[i].fetch_or(cpus, Ordering::SeqCst);
    }
    /// Words that can be other than zero on a machine of that many CPUs.
    #[inline]
    pub fn words(cpus: usize) -> usize {
        cpus.div_ceil(64).min(WORDS)
    }
}
