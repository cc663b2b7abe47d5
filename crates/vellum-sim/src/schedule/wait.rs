//! What a coroutine that waits has told whoever chooses the next turn.

/// A coroutine that waits until a condition holds.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    /// Who waits: not the CPU of the coroutine while a script runs on it.
    pub(crate) cpu: usize,
    /// A closure on the coroutine's stack.
    pub(crate) condition: *mut (dyn FnMut() -> bool + 'static),
}
