//! The machine's MMU rules and the library's switches for a run, chosen by the run's number.
//!
//! Every combination is reached, and neighbouring numbers differ in everything. Memory is plenty,
//! so that no verb may fail for want of it, or scarce.

use vellum::addr::Order;
use vellum::config::{
    ClearBatch, ClearOrder, ClearStores, ClearUnit, Colours, Config, CowHuge, NumaPolicy,
    Preemption, Thp, ZeroHuge,
};
use vellum::machine::{Invalidation, MmuRules};
use vellum_host::mmu::buffer::Shape;
use vellum_host::rng::spread;

use crate::command::CPUS;
use crate::small::Plan;

/// Frames of all nodes together that are enough for whatever commands can do.
const PLENTY: u64 = 1 << 14;

fn colours(log: u8) -> Colours {
    Order::new(log).map_or(Colours::L1d, Colours::Exactly)
}

/// The setting of a run.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Entries as on aarch64; else as on x86_64.
    pub arm: bool,
    /// The machine.
    pub plan: Plan,
    /// The switches.
    pub config: Config,
    /// Whether the library may say that memory ran out.
    pub scarce: bool,
}

impl Setting {
    /// The setting with that number.
    pub fn of(number: u64) -> Setting {
        let mut left = spread(number);
        let mut pick = |n: u64| {
            let picked = left % n;
            left /= n;
            picked
        };
        let arm = pick(2) == 1;
        let thp = [Thp::Always, Thp::Always, Thp::Advise, Thp::Never][pick(4) as usize];
        let scarce = pick(2) == 1;
        let nodes = 1 + pick(4) / 3;
        let frames = if scarce {
            [100, 200, 400, 700, 1100, 1600, 2100, 3000][pick(8) as usize]
        } else {
            PLENTY
        };
        let tlb = [
            Shape::TINY,
            Shape { base: 2, huge: 1, giant: 1, nodes: 2 },
            Shape { base: 16, huge: 4, giant: 1, nodes: 4 },
        ];
        let rules = MmuRules {
            levels: 4 + pick(4) as u8 / 3,
            max_leaf: if pick(3) == 2 { Order::HUGE } else { Order::GIANT },
            hardware_ad: pick(2) == 0,
            fault_invalidates: !arm,
            break_before_make: arm,
            // Two identifiers run out at once.
            asids: [0, 3, 256][pick(3) as usize],
            invalidation: if pick(2) == 0 {
                Invalidation::Interrupt
            } else {
                Invalidation::Broadcast
            },
        };
        let numa = [NumaPolicy::Local, NumaPolicy::Interleave, NumaPolicy::Prefer(nodes as u8 - 1)];
        let config = Config {
            thp,
            zero_page: pick(3) != 2,
            tlb_batch: pick(3) != 2,
            numa: numa[pick(3) as usize],
            ..Config::default()
        };
        let forms = [ZeroHuge::Off, ZeroHuge::Page, ZeroHuge::Table, ZeroHuge::TablePrivate];
        let config = Config { zero_huge: forms[pick(4) as usize], ..config };
        let plan = Plan {
            cpus: CPUS,
            nodes: nodes as usize,
            frames: frames / nodes,
            rules,
            tlb: tlb[pick(3) as usize],
        };
        let config = Config {
            zero_colours: [Colours::L1d, Colours::Exactly(Order::BASE), colours(2), colours(4)]
                [pick(4) as usize],
            clear_unit: [ClearUnit::Page, ClearUnit::Extent][pick(2) as usize],
            // Batches of three pages end everywhere.
            clear_batch: [ClearBatch::Auto, ClearBatch::Pages(3)][pick(2) as usize],
            clear_order: [ClearOrder::NearLast, ClearOrder::Ascending][pick(2) as usize],
            clear_stores: [ClearStores::Auto, ClearStores::Cached, ClearStores::Bypass]
                [pick(3) as usize],
            alloc_zero: pick(3) == 2,
            preempt: [Preemption::Voluntary, Preemption::None, Preemption::Full, Preemption::Lazy]
                [pick(4) as usize],
            alloc_cursor: pick(4) != 0,
            file_readahead: [1, config.file_readahead][pick(2) as usize],
            file_around: [Order::BASE, config.file_around][pick(2) as usize],
            object_huge: [Thp::Never, Thp::Advise, Thp::Always][pick(3) as usize],
            cow_huge: [CowHuge::Copy, CowHuge::Split][pick(2) as usize],
            ..config
        };
        Setting { arm, plan, config, scarce }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_four_settings_have_every_value_of_everything() {
        let all: Vec<Setting> = (0..64).map(Setting::of).collect();
        let both = |is: fn(&Setting) -> bool| all.iter().any(is) && !all.iter().all(is);
        assert!(
            both(|s| s.arm)
                && both(|s| s.scarce)
                && both(|s| s.config.zero_page)
                && both(|s| s.config.tlb_batch)
        );
        assert!(
            both(|s| s.plan.rules.levels == 5)
                && both(|s| s.plan.nodes == 2)
                && both(|s| s.plan.rules.hardware_ad)
        );
        assert!(both(|s| s.plan.rules.asids == 0) && both(|s| s.plan.rules.asids == 3));
        assert!(both(|s| s.config.thp == Thp::Never) && both(|s| s.config.thp == Thp::Advise));
        assert!(
            [ZeroHuge::Off, ZeroHuge::Page, ZeroHuge::Table, ZeroHuge::TablePrivate]
                .iter()
                .all(|form| all.iter().any(|s| s.config.zero_huge == *form))
        );
        assert!(
            both(|s| s.config.object_huge == Thp::Never)
                && both(|s| s.config.object_huge == Thp::Always)
        );
        assert!(both(|s| s.config.alloc_zero) && both(|s| s.config.alloc_cursor));
        assert!(both(|s| s.config.clear_batch == ClearBatch::Pages(3)));
        assert!(both(|s| s.config.cow_huge == CowHuge::Split));
        assert!(
            both(|s| s.config.file_readahead == 1) && both(|s| s.config.file_around > Order::BASE)
        );
        assert!(
            both(|s| s.config.numa == NumaPolicy::Interleave)
                && both(|s| s.plan.tlb == Shape::TINY)
        );
    }
}
