//! A pool of zeroed memory: mapping it anew would cost more than most runs.

use std::cell::RefCell;
use std::io;
use std::ptr::NonNull;

use vellum_host::memory::Memory;

thread_local! {
    static POOL: RefCell<Vec<Memory>> = const { RefCell::new(Vec::new()) };
}

/// Zeroed memory, which goes back to this thread's pool. Whoever has it cleans up what it wrote
/// before it drops it.
pub struct Lent {
    /// Until it is dropped.
    memory: Option<Memory>,
    base: NonNull<u8>,
}

impl Lent {
    /// At least that many zeroed bytes, aligned to 2 MiB.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn new(bytes: usize) -> io::Result<Lent> {
        let found = POOL.with_borrow_mut(|pool| {
            let fits = |m: &Memory| {
                m.bytes() >= bytes
                    && m.bytes() <= bytes.next_multiple_of(vellum_host::memory::ALIGN)
            };
            // From the back, so that a world gets what the one before it had.
            pool.iter().rposition(fits).map(|n| pool.remove(n))
        });
        let memory = found.map_or_else(|| Memory::new(bytes, false), Ok)?;
        Ok(Lent { base: memory.base(), memory: Some(memory) })
    }

    /// The first byte.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // What a run left behind that failed may not be clean.
        if !std::thread::panicking() {
            POOL.with_borrow_mut(|pool| pool.extend(self.memory.take()));
        }
    }
}
