//! The frame allocator against a naive model that knows one bit a frame.

use crate::flat::{Flat, FrameHands, Meta};
use proptest::prelude::*;
use vellum::addr::{Order, Pfn};
use vellum::error::NoMemory;
use vellum::machine::{Machine, MmuRules, NodeInfo, Topology, Use};
use vellum::unstable::{Frames, Token, Want};

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

/// Frames over their metadata; the fields drop in this order.
struct Rig {
    frames: Frames,
    m: Flat,
    _meta: Meta,
}

/// Three CPUs on the first of two nodes.
fn rig(ranges: &[(u64, u64); 2]) -> Rig {
    let mut t = Topology::flat(3, Pfn(0), 1);
    t.nodes = 2;
    for (node, &(first, frames)) in t.node.iter_mut().zip(ranges) {
        *node = NodeInfo { first: Pfn(first), frames };
    }
    let m = Flat::new(t, MmuRules::X86_64);
    let meta = Meta::new(Frames::layout(m.topology()).unwrap());
    // SAFETY: zeroed memory of that layout, kept beside the value.
    let frames = unsafe { Frames::new(m.topology(), meta.base()) }.unwrap();
    Rig { frames, m, _meta: meta }
}

impl Rig {
    fn alloc(&self, o: u8) -> Result<Pfn, NoMemory> {
        self.frames.alloc(&self.m, order(o), &Want::kernel(Use::Table))
    }
    fn free(&self, pfn: Pfn, o: u8) {
        self.frames.put(&self.m, pfn, order(o));
    }
}

/// What the allocator should do, said frame by frame.
struct Model {
    /// For each frame the block that holds it, if one does.
    taken: Vec<bool>,
    node: Vec<(u64, u64)>,
    held: Vec<(Pfn, u8)>,
    pending: Vec<(Pfn, u8, u64)>,
}

impl Model {
    fn is_free(&self, first: u64, o: u8) -> bool {
        (first..first + (1 << o)).all(|f| !self.taken[f as usize])
    }
    fn could(&self, o: u8) -> bool {
        self.node.iter().any(|&(first, n)| {
            let aligned = first.next_multiple_of(1 << o)..(first + n + 1).saturating_sub(1 << o);
            aligned.step_by(1 << o).any(|f| self.is_free(f, o))
        })
    }
    fn set(&mut self, first: Pfn, o: u8, taken: bool) {
        self.taken[first.0 as usize..first.0 as usize + (1 << o)].fill(taken);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Alloc { cpu: usize, order: u8 },
    Free { cpu: usize, pick: usize },
    FreeInPieces { cpu: usize, pick: usize, piece: u8 },
    Retire { pick: usize, generation: u64 },
    Complete { generation: u64 },
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    let order = prop_oneof![8 => Just(0u8), 6 => 1..=8u8, 3 => Just(9u8), 2 => 10..=11u8];
    prop_oneof![
        12 => (0..3usize, order).prop_map(|(cpu, order)| Step::Alloc { cpu, order }),
        7 => (0..3usize, any::<usize>()).prop_map(|(cpu, pick)| Step::Free { cpu, pick }),
        1 => (0..3usize, any::<usize>(), 0..9u8)
            .prop_map(|(cpu, pick, piece)| Step::FreeInPieces { cpu, pick, piece }),
        2 => (any::<usize>(), 0..20u64)
            .prop_map(|(pick, generation)| Step::Retire { pick, generation }),
        1 => (0..20u64).prop_map(|generation| Step::Complete { generation }),
        1 => Just(Step::Drain),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn any_sequence_of_calls_agrees_with_the_model(steps in prop::collection::vec(step(), 1..400)) {
        // The nodes meet in the middle of a word of a block, and neither starts or ends on one.
        let ranges = [(600, 4500), (5100, 2900)];
        let r = rig(&ranges);
        let taken = vec![false; 8000];
        let mut model = Model { taken, node: ranges.to_vec(), held: vec![], pending: vec![] };
        let mut top = Token::top();
        for step in steps {
            match step {
                Step::Alloc { cpu, order: o } => {
                    r.m.run_on(cpu);
                    match r.alloc(o) {
                        Ok(pfn) => {
                            prop_assert!(pfn.is_aligned(order(o)));
                            let node = r.frames.node_of(pfn).unwrap();
                            prop_assert_eq!(r.frames.node_of(pfn.add((1 << o) - 1)), Some(node));
                            prop_assert!(model.is_free(pfn.0, o), "{:?} was not free", pfn);
                            model.set(pfn, o, true);
                            model.held.push((pfn, o));
                        }
                        Err(NoMemory) => prop_assert!(!model.could(o), "order {} refused", o),
                    }
                }
                Step::Free { cpu, pick } if !model.held.is_empty() => {
                    r.m.run_on(cpu);
                    let (pfn, o) = model.held.swap_remove(pick % model.held.len());
                    r.free(pfn, o);
                    model.set(pfn, o, false);
                }
                Step::FreeInPieces { cpu, pick, piece } if !model.held.is_empty() => {
                    r.m.run_on(cpu);
                    let (pfn, o) = model.held.swap_remove(pick % model.held.len());
                    let piece = piece.min(o);
                    if o >= 9 {
                        r.frames.cut(&r.m, pfn, order(o), order(piece));
                    }
                    for i in 0..1u64 << (o - piece) {
                        r.free(pfn.add(i << piece), piece);
                    }
                    model.set(pfn, o, false);
                }
                Step::Retire { pick, generation } if !model.held.is_empty() => {
                    let (pfn, o) = model.held.swap_remove(pick % model.held.len());
                    r.frames.retire_at(&r.m, &mut top, (pfn, order(o)), generation);
                    model.pending.push((pfn, o, generation));
                }
                Step::Complete { generation } => {
                    let mut freed = 0;
                    for (first, n) in ranges {
                        // A queue a node; it stops at the first block of a later generation.
                        let mine = |p: &(Pfn, u8, u64)| p.0.0 >= first && p.0.0 < first + n;
                        let mut stopped = false;
                        let mut keep = vec![];
                        for p in std::mem::take(&mut model.pending) {
                            stopped |= mine(&p) && p.2 > generation;
                            if mine(&p) && !stopped {
                                freed += 1 << p.1;
                                model.set(p.0, p.1, false);
                            } else {
                                keep.push(p);
                            }
                        }
                        model.pending = keep;
                    }
                    prop_assert_eq!(r.frames.completed(&r.m, &mut top, generation), freed);
                }
                Step::Drain => r.frames.drain(&r.m),
                _ => {}
            }
            let counts = r.frames.audit(&r.m).unwrap();
            let used: u64 = model.held.iter().map(|&(_, o)| 1 << o).sum();
            let pending: u64 = model.pending.iter().map(|&(_, o, _)| 1 << o).sum();
            prop_assert_eq!((counts.total, counts.used, counts.pending), (7400, used, pending));
            let free: u64 = (0..2).map(|n| r.frames.free_frames(n)).sum();
            prop_assert_eq!(free, 7400 - used - pending);
        }
        r.m.run_on(0);
    }
}
