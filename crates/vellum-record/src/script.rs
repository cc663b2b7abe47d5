//! What a block will do, written down when it is translated and read when it has run.
use crate::flow::branch::Branch;
use crate::flow::{Effect, Report, Uses};
use std::collections::HashMap;
use std::sync::Mutex;

/// An instruction line and how many instructions begin in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Line {
    pub addr: u64,
    pub insns: u8,
}

/// Consecutive ones of a block's lines.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Lines {
    pub from: u16,
    pub to: u16,
}

/// What is known of an instruction's accesses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Access {
    /// The registers that its loads' addresses are made of, and its stores'.
    pub loads: u16,
    pub stores: u16,
    pub modifies: bool,
    pub atomic: bool,
    /// Its store is reported, and stands for its load as well.
    pub both: bool,
    /// What runs behind it, before anything else is told.
    pub then: Lines,
}

impl Access {
    pub fn new(uses: &Uses) -> Access {
        Access {
            loads: uses.loads,
            stores: uses.stores,
            modifies: uses.modifies,
            atomic: uses.atomic,
            both: matches!(uses.report, Report::Modify(_)),
            then: Lines::default(),
        }
    }

    /// Whether an access goes into the trace as a store. QEMU reports an instruction that modifies
    /// memory as a load and then a store, but a processor faults on it once, as a write: so the
    /// store goes first and the load after it. An atomic one may be reported as one store only, so
    /// both of its halves are stores.
    #[inline(always)]
    pub fn recorded_as_store(&self, store: bool) -> bool {
        if self.modifies { !store || self.atomic } else { store }
    }
}

/// What is known of a block.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Block {
    /// Where it begins, and the address behind it.
    pub start: u64,
    pub after: u64,
    pub lines: Box<[Line]>,
    /// Of its lines, those that run before anything else is told.
    pub first: Lines,
    /// By place in the block.
    pub accesses: Box<[Access]>,
    /// The tag of the access that tells the beginning of the block as well, if one does.
    pub tag: u64,
    /// What the condition of its branch is made of.
    pub condition: u16,
    pub effect: Effect,
}

/// What entering a block means.
pub struct Script {
    pub block: Block,
    pub branch: Branch,
}

/// Scripts of all blocks. Generated code and words on their way keep pointing to them, so they live
/// for ever; QEMU translates code again when its buffer is full, and then finds the same ones.
static SCRIPTS: Mutex<Option<HashMap<Block, &'static Script>>> = Mutex::new(None);

/// The script of a block.
pub fn keep(block: Block) -> &'static Script {
    let mut scripts = SCRIPTS.lock().unwrap_or_else(|e| e.into_inner());
    let scripts = scripts.get_or_insert_default();
    if let Some(old) = scripts.get(&block) {
        return old;
    }
    let branch = Branch::new(block.after, block.condition);
    let kept: &'static Script = Box::leak(Box::new(Script { block: block.clone(), branch }));
    scripts.insert(block, kept);
    kept
}
