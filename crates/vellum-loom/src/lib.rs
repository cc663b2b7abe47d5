//! The smallest lock-free parts under loom, which tries every execution that the C11 memory model allows.
//!
//! The sources of `vellum::sync` are compiled here a second time, the very files, over atomics that are loom's. Allocator and
//! magazines live in structures too large for loom, so their protocols are stated as models with the same orderings (`words`); the real code is
//! explored, one access at a time, by `vellum-proof`. Under loom sequentially consistent accesses are acquire and release, and only fences
//! are more: what passes here does not lean on x86.
//!
//! A `cfg(loom)` in the library was rejected: it would put a second meaning behind each of its types for the sake of four files.

#![cfg(test)]

mod atomic;
mod epochs;
mod locks;
mod words;

/// What the included files expect around them.
#[allow(dead_code, unused_imports, missing_docs)]
#[path = "../../vellum/src/sync"]
mod sync {
    mod epoch;
    mod level;
    mod lock;
    mod seq;

    pub(crate) use crate::atomic;
    pub use epoch::{EpochGuard, Epochs};
    pub use level::{Above, Busy, Guarded, Inner, Layout, Level, Node, Queue, Token, Top};
    pub use lock::{Guard, Lock};
    pub use seq::{SeqCount, SeqWrite};

    /// loom stops at every atomic by itself.
    pub(crate) fn touch<M, T>(_: &M, _: &T, _: bool) {}
}

mod machine {
    pub use vellum::machine::*;

    use std::ptr::NonNull;

    use vellum::addr::Pfn;
    use vellum::entry::X86_64;

    /// One CPU's view of a machine that has nothing but CPUs: each thread has one of its own.
    pub struct OneCpu(pub CpuId);

    impl Machine for OneCpu {
        type Codec = X86_64;

        fn cpu(&self) -> CpuId {
            self.0
        }
        fn preempt_off(&self) {}
        fn preempt_on(&self) {}
        fn relax(&self) {
            loom::thread::yield_now();
        }
        fn now(&self) -> u64 {
            0
        }
        fn topology(&self) -> &Topology {
            unreachable!("locks ask for no topology")
        }
        fn rules(&self) -> MmuRules {
            unreachable!("locks ask for no rules")
        }
        fn entry_load(&self, _: Pfn, _: usize) -> u64 {
            unreachable!("locks load no entry")
        }
        fn entry_store(&self, _: Pfn, _: usize, _: u64) {
            unreachable!("locks store no entry")
        }
        fn entry_cas(&self, _: Pfn, _: usize, _: u64, _: u64) -> Result<(), u64> {
            unreachable!("locks exchange no entry")
        }
        fn direct(&self, _: Pfn) -> NonNull<u8> {
            unreachable!("locks have no frames")
        }
        fn clear(&self, _: Pfn, _: u64) {}
        fn copy(&self, _: Pfn, _: Pfn, _: u64) {}
        fn read(&self, _: Pfn, _: usize, _: &mut [u8]) {}
        fn write(&self, _: Pfn, _: usize, _: &[u8]) {}
        fn load_root(&self, _: Option<Root>) {}
        fn flush_local(&self, _: Scope) {}
        fn flush_remote(&self, _: &CpuMask, _: Scope) {}
    }
}

/// Runs a model in every execution with at most three preemptions.
fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}
