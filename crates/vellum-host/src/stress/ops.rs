//! The one table of operations, with how often each is drawn.
//!
//! An operation has no addresses: the runner with a model (here `owned_pages`) adds arguments. So a
//! random run, a fuzzer's bytes and a simulator's script, read through [`Op::draw`] or
//! [`Op::from_byte`], mean the same operations.

use crate::rng::Rng;

/// An act of a program, or of its kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Map a range where nothing, or something, is mapped.
    Map,
    /// Map a range over whatever is there.
    Replace,
    /// Map wherever there is room.
    MapAnywhere,
    /// Unmap a range, holes included.
    Unmap,
    /// Change the rights of a range.
    Protect,
    /// Move a range elsewhere.
    Remap,
    /// Forget contents.
    DontNeed,
    /// Give huge-page advice, or collapse.
    Huge,
    /// Have pages present.
    Populate,
    /// Load.
    Touch,
    /// Store.
    Write,
    /// Fetch.
    Fetch,
    /// The kernel writes program memory.
    CopyIn,
    /// The kernel reads program memory.
    CopyOut,
    /// The kernel writes program memory whatever its rights.
    Force,
    /// Ask what lies at an address.
    Query,
    /// Fork the space.
    Fork,
    /// End a space.
    Exit,
    /// Run another space, or none.
    Switch,
    /// Look at what another thread owns.
    Peek,
    /// Take a block of frames, or give one back.
    Frame,
    /// Let another CPU have the core.
    Rest,
    /// Take the frame behind a page out of use.
    Poison,
    /// Forbid shared zeros in a space.
    Forbid,
    /// Give back the huge page of zeros.
    Shrink,
    /// Map a part of an object.
    MapObject,
    /// Map one so that who writes gets a copy.
    MapPrivate,
    /// Read an object's bytes without a mapping.
    ReadObject,
    /// Write them.
    WriteObject,
    /// Make an object longer or shorter.
    Resize,
    /// Make a hole in an object.
    Punch,
    /// Write what is dirty of an object to its pager.
    Sync,
    /// Free what is clean of an object.
    Evict,
    /// Have a pager write without waiting for it.
    WriteBack,
    /// Have a pager read before anybody wants a page, or say what it will be asked for.
    Ahead,
    /// Take pages of an object for oneself, and give them back.
    Grab,
    /// Ask which pages of an object were written.
    Harvest,
    /// Ask where an object has pages, and where it has none.
    Seek,
    /// Forbid that an object becomes shorter, or longer.
    Seal,
    /// Map a device.
    MapDevice,
    /// Make a block of an object's pages, or pages of a block.
    Block,
}

/// Every operation and its weight.
pub const TABLE: &[(Op, u32)] = &[
    (Op::Map, 70),
    (Op::Replace, 30),
    (Op::MapAnywhere, 8),
    (Op::Unmap, 60),
    (Op::Protect, 60),
    (Op::Remap, 25),
    (Op::DontNeed, 30),
    (Op::Huge, 20),
    (Op::Populate, 12),
    (Op::Touch, 220),
    (Op::Write, 260),
    (Op::Fetch, 15),
    (Op::CopyIn, 40),
    (Op::CopyOut, 40),
    (Op::Force, 10),
    (Op::Query, 20),
    (Op::Fork, 6),
    (Op::Exit, 6),
    (Op::Switch, 25),
    (Op::Peek, 160),
    (Op::Frame, 12),
    (Op::Rest, 20),
    (Op::Poison, 4),
    (Op::Forbid, 1),
    (Op::Shrink, 4),
    (Op::MapObject, 20),
    (Op::MapPrivate, 15),
    (Op::ReadObject, 15),
    (Op::WriteObject, 15),
    (Op::Resize, 6),
    (Op::Punch, 6),
    (Op::Sync, 8),
    (Op::Evict, 6),
    (Op::WriteBack, 4),
    (Op::Ahead, 4),
    (Op::Grab, 6),
    (Op::Harvest, 4),
    (Op::Seek, 10),
    (Op::Seal, 2),
    (Op::MapDevice, 8),
    (Op::Block, 6),
];

const fn total() -> u32 {
    let (mut i, mut sum) = (0, 0);
    while i < TABLE.len() {
        sum += TABLE[i].1;
        i += 1;
    }
    sum
}

impl Op {
    /// One operation by weight.
    pub fn draw(rng: &mut Rng) -> Op {
        let mut at = rng.below(total() as u64) as u32;
        for &(op, weight) in TABLE {
            if at < weight {
                return op;
            }
            at -= weight;
        }
        Op::Rest
    }
    /// The operation a byte stands for, all alike often: for fuzzers.
    pub fn from_byte(byte: u8) -> Op {
        TABLE[byte as usize % TABLE.len()].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_drawn_about_as_often_as_its_weight_says() {
        let mut rng = Rng::new(3);
        let n = 200_000u32;
        let mut count = vec![0u32; TABLE.len()];
        for _ in 0..n {
            let op = Op::draw(&mut rng);
            count[TABLE.iter().position(|e| e.0 == op).unwrap()] += 1;
        }
        for (&(op, weight), &seen) in TABLE.iter().zip(&count) {
            let wanted = n as f64 * weight as f64 / total() as f64;
            assert!(
                (seen as f64 - wanted).abs() < 6.0 * wanted.sqrt(),
                "{op:?}: {seen}, wanted {wanted}"
            );
        }
    }

    #[test]
    fn bytes_reach_every_operation() {
        assert!(TABLE.iter().all(|&(op, _)| (0..=255).any(|b| Op::from_byte(b) == op)));
    }
}
