//! The bugs that tests plant.

/// A mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Remote flushes reach only the CPU that asks.
    SkippedRemoteFlush,
    /// Local flushes do nothing.
    SkippedLocalFlush,
    /// A frame is given back the moment its entry is removed, before the flush.
    EarlyFree,
    /// Write-protecting a page leaves it writable.
    WritableShared,
    /// Invalidations are acknowledged and drop nothing (a stale read follows).
    DeafTlb,
    /// One frame is never given back.
    Leak,
    /// Clearing does nothing.
    SkippedClear,
    /// Copying does nothing.
    SkippedCopy,
    /// Walks begun before an invalidation fill the TLB after it.
    LateFill,
    /// An entry that is to be absent for a while stays as it was.
    SkippedAbsent,
}
