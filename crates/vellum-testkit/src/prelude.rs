//! What nearly every test names, so that it needs one `use`.

pub use super::ext::{FramesExt, MachineExt, VmExt};
pub use super::fixture::*;
pub use super::flat::*;
pub use super::index::{Keys, Model, block, covering, page};
pub use super::interleave::*;
pub use super::random::Random;
pub use super::sources::{code, sources};
pub use super::state::{State, assert_same};
pub use crate::{listed, on_both};

pub use vellum::addr::{Level, Order, PAGE_SIZE, Pfn, Va};
pub use vellum::config::{Colours, Config, CowHuge, NumaPolicy, Preemption, Thp, ZeroHuge};
pub use vellum::entry::{Aarch64, CacheMode, Codec, Entry, X86_64};
pub use vellum::error::{FaultError, InitError, NoMemory, ObjectError};
pub use vellum::error::{PoisonError, RangeError, SpaceError};
pub use vellum::machine::{CacheLevel, Caches, Machine, MmuRules, NodeInfo, Scope, Stores};
pub use vellum::machine::{Topology, Use};
pub use vellum::space::Placement;
pub use vellum::space::{Access, Advice, Attrs, Fault, HugeAdvice, KeptPage, LeafSize, Page};
pub use vellum::space::{Rights, Seals, Space, Usage};
pub use vellum::stats::{Counter, Stats};
pub use vellum::unstable::Extent;
pub use vellum::unstable::Token;
pub use vellum::unstable::{AllocRequest, Frames};
pub use vellum::vm::{DeviceMemory, GrabWait, Grabbed, Object, ObjectPart, ReadPattern, Vm};
