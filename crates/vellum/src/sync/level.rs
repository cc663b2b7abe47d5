//! The lock order, written once, as types.
//!
//! The order: mmap lock, attachment lock, family lock, object guard, frame busy, table node,
//! pending queue, allocator. Taking a lock borrows a [`Token`] of a level above and gives one of
//! its own level, so while the guard lives nothing at or above it can be taken through that token:
//! the wrong order does not compile. Two locks of one level are taken by their keys, ascending,
//! which only debug builds check.
//!
//! [`Token::top`] makes a token out of nothing; that is the start of a verb. Types cannot see it
//! used elsewhere, review does. Rejected: run-time lock ranks alone (they find a wrong order only
//! when it runs), and one nested type per path (verbs then differ in type for no reason).

use core::marker::PhantomData;

/// A level of the lock order.
pub trait LockLevel {
    /// How messages call it.
    const NAME: &'static str;
}

/// Levels above `L`: a holder of their token may take locks of level `L`.
pub trait Above<L: LockLevel>: LockLevel {}

macro_rules! levels {
    ($($(#[$doc:meta])* $level:ident = $name:literal),* $(,)?) => {
        $($(#[$doc])* #[derive(Debug)] pub enum $level {}
        impl LockLevel for $level { const NAME: &'static str = $name; })*
        levels!(@above $($level)*);
    };
    (@above $high:ident $($low:ident)*) => {
        $(impl Above<$low> for $high {})*
        levels!(@above $($low)*);
    };
    (@above) => {};
}

levels! {
    /// Nothing is held.
    Top = "nothing",
    /// A space's mmap lock.
    MmapLock = "mmap lock",
    /// The lock of the list of an object's attachments.
    Attachments = "attachment lock",
    /// The lock of a family of spaces that come from one by forks.
    Family = "family lock",
    /// The guard of an object's contents.
    Object = "object guard",
    /// A frame's busy lock.
    Busy = "frame busy",
    /// A table node. Within the level: space id, then ancestor before descendant, then lower
    /// address.
    TableLock = "table node",
    /// A node's queue of pending frames, a slab.
    Queue = "pending queue",
    /// Inside the frame allocator, which takes no lock of another kind.
    Inner = "allocator",
}

/// The right to take locks below `L`.
///
/// ```
/// use vellum::unstable::{Lock, TableLock, Queue, Token};
/// # fn f<M: vellum::machine::Machine>(m: &M, node: &Lock<TableLock>, queue: &Lock<Queue>) {
/// let mut top = Token::top();
/// let mut node = node.lock(m, &mut top, 7);
/// let _queue = queue.lock(m, node.token(), 0);
/// # }
/// ```
///
/// ```compile_fail
/// use vellum::unstable::{Lock, TableLock, Queue, Token};
/// # fn f<M: vellum::machine::Machine>(m: &M, node: &Lock<TableLock>, queue: &Lock<Queue>) {
/// let mut top = Token::top();
/// let mut queue = queue.lock(m, &mut top, 0);
/// let _node = node.lock(m, queue.token(), 7); // a node is above the queue
/// # }
/// ```
pub struct Token<L> {
    /// Of the lock last taken at this level; orders locks of one level.
    #[cfg(debug_assertions)]
    pub(super) key: u64,
    level: PhantomData<fn() -> L>,
    /// A token belongs to the thread that holds the locks.
    local: PhantomData<*mut ()>,
}

impl Token<Top> {
    /// The start of a verb: this thread holds nothing.
    #[inline]
    pub fn top() -> Token<Top> {
        Token::new(0)
    }
}

impl<L> Token<L> {
    #[inline]
    pub(super) fn new(key: u64) -> Token<L> {
        let _ = key;
        Token {
            #[cfg(debug_assertions)]
            key,
            level: PhantomData,
            local: PhantomData,
        }
    }
}
