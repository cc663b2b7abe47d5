//! The allocator against a naive model that knows one bit a frame.

use proptest::prelude::*;
use vellum_testkit::prelude::*;

/// What the allocator should do, for each frame.
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
    FreeInParts { cpu: usize, pick: usize, part: u8 },
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
            .prop_map(|(cpu, pick, part)| Step::FreeInParts { cpu, pick, part }),
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
        let fx = FramesFixture::new(Flat::new(nodes(3, &ranges), MmuRules::X86_64));
        let taken = vec![false; 8000];
        let mut model = Model { taken, node: ranges.to_vec(), held: vec![], pending: vec![] };
        let mut top = Token::top();
        for step in steps {
            match step {
                Step::Alloc { cpu, order: o } => {
                    fx.m.run_on(cpu);
                    match fx.alloc(o) {
                        Ok(pfn) => {
                            prop_assert!(pfn.is_aligned(order(o)));
                            let node = fx.frames.node_of(pfn).unwrap();
                            prop_assert_eq!(fx.frames.node_of(pfn.add((1 << o) - 1)), Some(node));
                            prop_assert!(model.is_free(pfn.0, o), "{:?} was not free", pfn);
                            model.set(pfn, o, true);
                            model.held.push((pfn, o));
                        }
                        Err(NoMemory) => prop_assert!(!model.could(o), "order {} refused", o),
                    }
                }
                Step::Free { cpu, pick } if !model.held.is_empty() => {
                    fx.m.run_on(cpu);
                    let (pfn, o) = model.held.swap_remove(pick % model.held.len());
                    fx.free(pfn, o);
                    model.set(pfn, o, false);
                }
                Step::FreeInParts { cpu, pick, part } if !model.held.is_empty() => {
                    fx.m.run_on(cpu);
                    let (pfn, o) = model.held.swap_remove(pick % model.held.len());
                    let part = part.min(o);
                    if o >= 9 {
                        fx.split(pfn, o, part);
                    }
                    fx.free_all((0..1u64 << (o - part)).map(|i| pfn.add(i << part)), part);
                    model.set(pfn, o, false);
                }
                Step::Retire { pick, generation } if !model.held.is_empty() => {
                    let (pfn, o) = model.held.swap_remove(pick % model.held.len());
                    fx.frames.retire_at(&fx.m, &mut top, (pfn, order(o)), generation);
                    model.pending.push((pfn, o, generation));
                }
                Step::Complete { generation } => {
                    let (mut freed, mut stopped) = (0, [false; 2]);
                    for p in std::mem::take(&mut model.pending) {
                        // Each node has a queue, and stops at the first block of a later
                        // generation.
                        let stopped = &mut stopped[usize::from(p.0.0 >= ranges[1].0)];
                        *stopped |= p.2 > generation;
                        if *stopped {
                            model.pending.push(p);
                        } else {
                            freed += 1 << p.1;
                            model.set(p.0, p.1, false);
                        }
                    }
                    prop_assert_eq!(fx.frames.completed(&fx.m, &mut top, generation), freed);
                }
                Step::Drain => fx.frames.drain(&fx.m),
                _ => {}
            }
            let counts = fx.counts();
            let used: u64 = model.held.iter().map(|&(_, o)| 1 << o).sum();
            let pending: u64 = model.pending.iter().map(|&(_, o, _)| 1 << o).sum();
            prop_assert_eq!((counts.total, counts.used, counts.pending), (7400, used, pending));
            let free: u64 = (0..2).map(|n| fx.frames.free_frames(n)).sum();
            prop_assert_eq!(free, 7400 - used - pending);
        }
        fx.m.run_on(0);
    }
}
