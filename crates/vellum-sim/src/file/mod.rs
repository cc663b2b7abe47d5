//! Machine files: what a simulated machine is made of, with the origin of every number.
//!
//! A file is TOML; each constant in it is a table `{ value, basis, source }` ([`Constant`]).
//! Nothing has a default: a constant that is not in the file would be one whose origin nobody can
//! see. `docs/machine-format.md` describes the keys.
//!
//! [`parse`](Machine::parse) reads and checks; the shapes that the models are built from
//! ([`Machine::hierarchy`] and its neighbours) are derived in `shapes.rs` and cannot fail on a
//! checked machine.

mod check;
mod constant;
mod error;
mod load;
mod presets;
mod scale;
mod shapes;
mod spec;
mod units;

pub use constant::{Basis, Constant, ConstantRow, Share};
pub use error::MachineError;
pub use presets::{preset, preset_text, presets};
pub use shapes::{Costs, WORK_COSTS};
pub use spec::{
    CacheSpec, Codec, CoreSpec, CostSpec, Invalidation, LlcSpec, Machine, MemorySpec, MmuSpec,
    NestedSpec, NestedWalkSpec, NodeSpec, PrefetchSpec, TlbBank, TlbSpec, TlbSpecs, WalkCacheSpec,
    WalkLevel, WayPrediction, WorkCosts,
};
pub use units::{Bandwidth, Bytes, CpuList, Duration, Threshold};
