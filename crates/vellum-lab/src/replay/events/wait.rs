//! What an event may have to wait for.

/// What keeps a thread from its next event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Nothing.
    No,
    /// Calls before this number on this mapping.
    Call(u32, u64),
    /// Calls before this number on this file.
    File(u32, u64),
    /// All events before this number.
    All(u64),
    /// This event of this thread.
    Event(usize, u64),
}
