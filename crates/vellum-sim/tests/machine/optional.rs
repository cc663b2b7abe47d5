//! Hardware that a machine file may name or leave out: left out, the machine is without it.

use std::cell::Cell;

use crate::common::*;
use vellum::addr::{Level, Order, Pfn, Va};
use vellum::entry::{Codec, Entry};
use vellum::machine::{Hooks as _, Machine as _, Scope, Stores, Use, Verb, Work};
use vellum_sim::cache::{Index, Policy, PrefetchShape};
use vellum_sim::file::{self, Machine, MachineError};
use vellum_sim::format::{Format, X86};
use vellum_sim::memory::Ticks;
use vellum_sim::{Kind, Options, Parts, SimMachine};
use vellum_testkit::ext::MachineExt;

/// `tiny` with lines put in before a heading.
fn tiny_with(before: &str, lines: &str) -> Result<Machine, MachineError> {
    let text = file::preset_text("tiny").expect("a preset");
    assert!(text.contains(before), "the preset no longer has {before}");
    Machine::parse("my.toml", &text.replacen(before, &format!("{lines}\n{before}"), 1))
}

/// A constant as a line of a file.
fn line(key: &str, value: &str) -> String {
    format!("{key} = {{ value = {value}, basis = \"guess\", source = \"a choice\" }}\n")
}

#[test]
fn a_file_may_say_how_a_level_chooses_its_sets() {
    let with = |value| tiny_with("[tlb.l1i]", &line("index", value));
    let index = |machine: &Machine| machine.hierarchy(1).llc.index;
    assert_eq!(index(&file::preset("tiny").expect("valid")), Index::Modulo);
    assert_eq!(index(&with("\"modulo\"").expect("valid")), Index::Modulo);
    let hashed = with("\"hash\"").expect("valid");
    assert_eq!(index(&hashed), Index::Hash);
    assert_eq!(hashed.hierarchy(1).l2.index, Index::Modulo, "the last level alone");
    let rows = hashed.constants();
    assert!(rows.iter().any(|row| row.key == "llc.index" && row.value == "hash"));
    let message = with("\"xor\"").expect_err("refused").to_string();
    let says = "unknown variant `xor`, expected one of `modulo`, `hash`, `pages`";
    assert!(message.contains(says), "{message}");
    let hashed = tiny_with("[llc]", &line("index", "\"hash\"")).expect("valid").hierarchy(1);
    assert_eq!([hashed.l2.index, hashed.llc.index], [Index::Hash, Index::Modulo], "each its own");
}

#[test]
fn a_file_may_name_what_the_first_level_of_data_does_and_no_other_level() {
    let tiny = |heading, key, value| tiny_with(heading, &line(key, value));
    let refill = tiny("[l2]", "refill", "9").expect("valid").first_level();
    assert_eq!((refill.refill.map(Ticks::cycles), refill.predicts_ways), (Some(9), false));
    let ways = tiny("[l2]", "way_predictor", "\"linear\"").expect("valid").first_level();
    assert_eq!((ways.refill, ways.predicts_ways), (None, true));
    let message = tiny("[l2]", "refill", "0").expect_err("refused").to_string();
    assert!(message.contains("l1d.refill"), "{message}");
    for (heading, name) in [("[l1d]", "l1i.refill"), ("[llc]", "l2.refill")] {
        let message = tiny(heading, "refill", "9").expect_err("refused").to_string();
        assert!(message.contains(name) && message.contains("first level"), "{message}");
    }
    assert!(tiny("[tlb.l1i]", "refill", "9").is_err(), "unknown in the last level");
    let both = tiny_with("[l2]", &(line("refill", "9") + &line("refill_dirty", "30")));
    assert_eq!(both.expect("valid").first_level().refill_dirty.map(Ticks::cycles), Some(30));
    let message = tiny("[l2]", "refill_dirty", "30").expect_err("refused").to_string();
    assert!(message.contains("named without l1d.refill"), "{message}");
    let message = tiny("[l1d]", "refill_dirty", "30").expect_err("refused").to_string();
    assert!(message.contains("l1i.refill_dirty"), "{message}");
    let port = tiny("[tlb.l1i]", "line", "3").expect("valid").overlap().last_level_line;
    assert_eq!(port.cycles(), 3);
    let message = tiny("[tlb.l1i]", "line", "1e15").expect_err("refused").to_string();
    assert!(message.contains("llc.line"), "{message}");
    assert!(tiny("[l2]", "way_predictor", "\"physical\"").is_err());
}

/// `tiny` with a store buffer.
fn with_store_buffer(places: &str) -> Result<Machine, MachineError> {
    let tiny = file::preset("tiny").expect("valid");
    tiny.overlaid("stores.toml", &format!("[core]\n{}", line("store_buffer", places)))
}

/// Cycles of these accesses to a huge page whose first line is in the first level.
fn cycles(machine: &Machine, accesses: impl IntoIterator<Item = (u64, Kind)>) -> u64 {
    let sim = SimMachine::<X86>::build(&Parts::of(machine, 1), Options::default());
    let sim = sim.expect("it can be built");
    let next = Cell::new(16);
    let ran = sim.solo(0, |cpu| {
        let k = Kernel::new(&sim, &next, 1);
        k.map_huge(A, RW);
        k.load();
        let go = |(at, kind)| {
            cpu.access(A + at, 8, kind, false).expect("mapped");
        };
        go((0, Kind::Store));
        cpu.syscall();
        let start = cpu.now();
        accesses.into_iter().for_each(go);
        cpu.now() - start
    });
    sim.audit(None).unwrap_or_else(|stop| panic!("{stop}"));
    ran.unwrap_or_else(|stop| panic!("{stop}"))
}

#[test]
fn a_core_may_have_a_store_buffer_of_a_possible_size() {
    assert_eq!(file::preset("tiny").expect("valid").overlap().store_buffer, 0, "never full");
    for (value, places) in [("1", 1), ("64", 64), ("256", 256)] {
        assert_eq!(with_store_buffer(value).expect("valid").overlap().store_buffer, places);
    }
    for value in ["0", "257"] {
        let message = with_store_buffer(value).expect_err("refused").to_string();
        let says = format!("{value} stores; use 1 to 256, or leave it out");
        assert!(message.contains(&says) && message.contains("core.store_buffer"), "{message}");
    }
}

/// Stores to a line that is there, and one in 16 to a line that is in no cache.
#[test]
fn a_full_store_buffer_holds_up_the_core_and_none_changes_nothing() {
    let place = |n: u64| if n.is_multiple_of(16) { (64 + n * 8) * 64 } else { 0 };
    let run = |machine| cycles(&machine, (0..1024).map(|n| (place(n), Kind::Store)));
    let none = run(file::preset("tiny").expect("valid"));
    let [wide, narrow] = ["256", "16"].map(|n| run(with_store_buffer(n).expect("valid")));
    assert!(wide >= none && narrow > 2 * wide, "{none}, {wide}, {narrow} cycles");
}

/// A load brings a line, and a store to it comes at once: that store keeps its place till then.
#[test]
fn a_store_to_a_line_on_its_way_holds_up_the_store_behind_it() {
    let refill = format!("[l1d]\n{}", line("refill", "9"));
    let machine = with_store_buffer("1").expect("valid").overlaid("refill.toml", &refill);
    let machine = machine.expect("valid");
    let run = |to| {
        let stores = [to, 0, 0].map(|at| (at, Kind::Store));
        cycles(&machine, [(4096, Kind::Load)].into_iter().chain(stores))
    };
    let (joins, none) = (run(4096), run(0));
    assert!(joins > none + 50, "{joins} and {none} cycles");
}

#[test]
fn a_cache_may_replace_by_not_recently_used_bits_or_by_ages() {
    let tiny = file::preset("tiny").expect("valid");
    for level in ["l1i", "l1d", "l2", "llc"] {
        for (name, policy) in
            [("nru", Policy::Nru), ("nru-rotating", Policy::NruRotating), ("rrip", Policy::Rrip)]
        {
            let machine = tiny.with(&format!("{level}.policy"), &format!("\"{name}\""));
            let shape = machine.expect("valid").hierarchy(1);
            let caches = [shape.l1i, shape.l1d, shape.l2, shape.llc];
            assert_eq!(caches.iter().filter(|cache| cache.policy == policy).count(), 1, "{level}");
        }
    }
    let ages = tiny.with("llc.policy", "\"rrip\"").expect("valid").with("llc.ways", "24");
    let message = ages.expect_err("refused").to_string();
    assert!(message.contains("llc") && message.contains("up to 21"), "{message}");
}

#[test]
fn a_file_may_have_a_prefetcher_whose_three_constants_all_must_be_possible() {
    assert_eq!(file::preset("tiny").expect("valid").prefetcher(), None);
    let section = |keys: [(&str, &str); 3]| {
        let lines: String = keys.iter().map(|(key, value)| line(key, value)).collect();
        tiny_with("[tlb.l1i]", &format!("[prefetch]\n{lines}"))
    };
    let machine = section([("streams", "32"), ("train", "3"), ("depth", "20")]).expect("valid");
    let shape =
        PrefetchShape { streams: 32, train: 3, depth: 20, walks: false, crosses_pages: false };
    assert_eq!(machine.prefetcher(), Some(shape));
    for key in ["prefetch.streams", "prefetch.train", "prefetch.depth"] {
        assert!(machine.constants().iter().any(|row| row.key == key), "{key}");
    }
    let half = machine.scaled("prefetch.depth", 1, 2).expect("valid");
    assert_eq!(half.prefetcher(), Some(PrefetchShape { depth: 10, ..shape }));
    for (key, value, say) in [
        ("streams", "0", "0 streams; use 1 to 256"),
        ("streams", "257", "257 streams; use 1 to 256"),
        ("train", "1", "1 misses; use 2 (which tell a direction) to 63"),
        ("train", "64", "64 misses; use 2"),
        ("depth", "0", "0 lines ahead; use 1 to 63"),
        ("depth", "64", "64 lines ahead; use 1 to 63"),
    ] {
        let message = machine.with(&format!("prefetch.{key}"), value).expect_err("refused");
        let message = message.to_string();
        assert!(message.contains(say) && message.contains(key), "'{message}' lacks '{say}'");
    }
    let walks = machine.overlaid("walks.toml", &format!("[prefetch]\n{}", line("walks", "true")));
    assert_eq!(walks.expect("valid").prefetcher(), Some(PrefetchShape { walks: true, ..shape }));
    let crosses = "[prefetch]\n".to_owned() + &line("crosses_pages", "true");
    let virtually = machine.overlaid("crosses.toml", &crosses).expect("valid");
    assert_eq!(virtually.prefetcher(), Some(PrefetchShape { crosses_pages: true, ..shape }));
    let both = machine.overlaid("both.toml", &(crosses + &line("walks", "true")));
    let shape = PrefetchShape { walks: true, crosses_pages: true, ..shape };
    assert_eq!(both.expect("valid").prefetcher(), Some(shape));
    let message =
        section([("streams", "32"), ("train", "3"), ("ahead", "20")]).expect_err("no key");
    assert!(message.to_string().contains("unknown field `ahead`"), "{message}");
}

#[test]
fn a_part_of_a_file_laid_over_a_machine_replaces_its_constants_and_adds_what_it_lacked() {
    let tiny = file::preset("tiny").expect("valid");
    let lay = |text: &str| tiny.overlaid("part.toml", text);
    let text = "name = \"mine\"\n[llc]\n".to_owned() + &line("ways", "4") + "[prefetch]\n";
    let shape = [("streams", "32"), ("train", "3"), ("depth", "20")].map(|(k, v)| line(k, v));
    let machine = lay(&(text + &shape.concat())).expect("valid");
    assert_eq!((machine.name.as_str(), *machine.llc.ways), ("mine", 4));
    assert_eq!(machine.llc.ways.source, "a choice", "the source goes with the value");
    assert_eq!(machine.llc.size, tiny.llc.size, "what is not named stays");
    assert!(machine.prefetcher().is_some() && tiny.prefetcher().is_none());
    assert_eq!(machine.constants().len(), tiny.constants().len() + 3);
    for (text, says) in [
        ("[llc]\nwayz = { value = 4, basis = \"guess\", source = \"x\" }\n", "wayz"),
        ("[llc]\nways = 4\n", "part.toml"),
        ("\n[llc\n", "part.toml:2: "),
        ("[llc]\nways = { value = 65, basis = \"guess\", source = \"x\" }\n", "65 ways"),
    ] {
        let message = lay(text).expect_err("refused").to_string();
        assert!(message.contains(says), "'{message}' lacks '{says}'");
    }
}

#[test]
fn what_is_charged_for_pages_may_be_left_out_and_is_charged_once_each_way() {
    let costs = [
        ("charge_page", 700),
        ("uncharge_page", 300),
        ("uncharge_large", 5000),
        ("add_file", 90),
        ("drop_file", 20),
    ];
    let lines: String = costs.map(|(key, cycles)| line(key, &cycles.to_string())).concat();
    let charged = tiny_with("[costs.work]", &lines).expect("valid");
    let plain = file::preset("tiny").expect("valid");
    let took = |machine: &Machine, order: Order, uses: &[Use]| {
        let sim = SimMachine::<X86>::new(machine, Options::default()).expect("a machine");
        let run = |cpu: &vellum_sim::Cpu<'_, X86>| {
            let start = cpu.now();
            uses.iter().for_each(|&to| sim.becomes(Pfn(512), order, to));
            cpu.now() - start
        };
        sim.solo(0, run).expect("nothing forbidden")
    };
    for (order, uses, cycles) in [
        (Order::BASE, &[Use::Data] as &[Use], 700),
        (Order::BASE, &[Use::Data, Use::Free], 1000),
        (Order::BASE, &[Use::Data, Use::Pending, Use::Free], 1000),
        (Order::BASE, &[Use::Table, Use::Free], 0),
        (Order::BASE, &[Use::Object], 90),
        (Order::BASE, &[Use::Object, Use::Free], 110),
        (Order::HUGE, &[Use::Object, Use::Free], 0),
        (Order::HUGE, &[Use::Data], 0),
        (Order::HUGE, &[Use::Data, Use::Free], 5000),
        (Order::HUGE, &[Use::Table, Use::Free], 0),
    ] {
        let more = took(&charged, order, uses) - took(&plain, order, uses);
        assert_eq!(more, cycles, "{order:?} {uses:?}");
    }
}

#[test]
fn a_page_of_an_object_may_be_charged_when_it_is_mapped_and_when_it_is_not_any_more() {
    let costs = [("map_file", 700), ("unmap_file", 300)];
    let lines: String = costs.map(|(key, cycles)| line(key, &cycles.to_string())).concat();
    let charged = tiny_with("[costs.work]", &lines).expect("valid");
    let plain = file::preset("tiny").expect("valid");
    // What three acts on an entry take, and a table with it that is taken out and put elsewhere.
    let took = |machine: &Machine, used: Use, level: u8, verb: Verb| {
        let sim = SimMachine::<X86>::new(machine, Options::default()).expect("a machine");
        let next = Cell::new(16);
        let k = Kernel::new(&sim, &next, 0);
        let order = if level == 1 { Order::BASE } else { Order::HUGE };
        let block = k.block(order, used);
        sim.zero_out(block, order.frames());
        let run = |cpu: &vellum_sim::Cpu<'_, X86>| {
            k.load();
            let mut last = cpu.now();
            let mut took = || cpu.now() - std::mem::replace(&mut last, cpu.now());
            let acts =
                [Entry::Leaf(block, RO), Entry::Leaf(block, RW), Entry::Empty].map(|entry| {
                    k.verb(verb, || {
                        k.set_at(A, level, entry);
                        sim.flush_local(Scope::All);
                    });
                    took()
                });
            k.set_at(A, level, Entry::Leaf(block, RO));
            let (table, above) = (k.node(A, level), level + 1);
            took();
            k.set_at(A, above, Entry::Empty);
            sim.flush_local(Scope::All);
            k.set_at(A, above, Entry::Table(table));
            (acts, took())
        };
        sim.solo(0, run).expect("nothing forbidden")
    };
    for (used, level, verb, cycles) in [
        (Use::Object, 1, Verb::Map, [700, 0, 300]),
        (Use::Object, 1, Verb::Fault, [700, 0, 0]),
        (Use::Object, 1, Verb::Exit, [700, 0, 300]),
        (Use::Object, 1, Verb::Protect, [0; 3]),
        (Use::Object, 1, Verb::Fork, [0, 0, 300]),
        (Use::Object, 1, Verb::Remap, [0; 3]),
        (Use::Object, 2, Verb::Map, [0; 3]),
        (Use::Data, 1, Verb::Map, [0; 3]),
    ] {
        let (with, table) = took(&charged, used, level, verb);
        let (without, table_without) = took(&plain, used, level, verb);
        let more = [0, 1, 2].map(|n: usize| with[n] - without[n]);
        assert_eq!(more, cycles, "{used:?}, level {level}, {verb:?}");
        assert_eq!(table, table_without, "{used:?}, level {level}: a table that moves");
    }
}

#[test]
fn a_page_of_an_object_that_a_fault_takes_out_and_puts_back_is_the_same_page() {
    let costs = [("map_file", 700), ("unmap_file", 300)];
    let lines: String = costs.map(|(key, cycles)| line(key, &cycles.to_string())).concat();
    let charged = tiny_with("[costs.work]", &lines).expect("valid");
    let plain = file::preset("tiny").expect("valid");
    // What comes back, and a table in no tree that gets a base page and a large one.
    let took = |machine: &Machine, other: bool| {
        let sim = SimMachine::<X86>::new(machine, Options::default()).expect("a machine");
        let next = Cell::new(16);
        let k = Kernel::new(&sim, &next, 0);
        let pages = [0; 2].map(|_| k.frame(Use::Object));
        let large = k.block(Order::HUGE, Use::Object);
        pages.into_iter().for_each(|page| sim.zero_out(page, 1));
        let run = |cpu: &vellum_sim::Cpu<'_, X86>| {
            k.load();
            k.set(A, Entry::Leaf(pages[0], RO));
            let start = cpu.now();
            k.verb(Verb::Fault, || {
                k.set(A, Entry::Empty);
                sim.flush_local(Scope::All);
                k.set(A, Entry::Leaf(pages[usize::from(other)], RW));
            });
            let back = cpu.now() - start;
            let table = k.table();
            let alone = [Entry::Leaf(pages[0], RO), Entry::Leaf(large, RO)].map(|entry| {
                let level = Level(if entry == Entry::Leaf(large, RO) { 2 } else { 1 });
                let start = cpu.now();
                sim.set_entry(table, level.0.into(), <X86 as Format>::Codec::encode(entry, level));
                cpu.now() - start
            });
            (back, alone)
        };
        sim.solo(0, run).expect("nothing forbidden")
    };
    for (other, cycles) in [(false, 0), (true, 700)] {
        let (with, without) = (took(&charged, other), took(&plain, other));
        assert_eq!(with.0 - without.0, cycles, "another: {other}");
        assert_eq!([0, 1].map(|n: usize| with.1[n] - without.1[n]), [700, 0], "in no tree");
    }
}

#[test]
fn a_call_that_moves_bytes_may_have_a_price_and_is_then_the_only_call() {
    let costs = [("file_call", 500), ("file_line", 40), ("write_call", 60), ("grow_call", 9)];
    let lines: String = costs.map(|(key, cycles)| line(key, &cycles.to_string())).concat();
    let priced = tiny_with("[costs.work]", &lines).expect("valid");
    let plain = file::preset("tiny").expect("valid");
    let (call, copy) = (plain.costs().work[Work::Call as usize], plain.costs().copy_line);
    // A call told by the program; a switch; one of the library's alone, and inside; lines in caches
    // moved alone, and inside; calls that write, of
    // which the second gives the file pages.
    let took = |machine: &Machine| {
        let sim = SimMachine::<X86>::new(machine, Options::default()).expect("a machine");
        let run = |cpu: &vellum_sim::Cpu<'_, X86>| {
            let time = |act: &dyn Fn()| {
                let start = cpu.now();
                act();
                cpu.now() - start
            };
            let call = || sim.work(Work::Call, 1);
            // SAFETY: a frame of the machine that nobody uses.
            let move_lines = || unsafe { sim.read(Pfn(512), 0, &mut [0; 1024]) };
            sim.zero_out(Pfn(512), 1);
            move_lines();
            [
                time(&|| cpu.syscall()),
                time(&|| cpu.thread_switch()),
                time(&call),
                time(&|| sim.in_file_call(call)),
                time(&move_lines),
                time(&|| sim.in_file_call(move_lines)),
                time(&|| sim.in_file_write(false, call)),
                time(&|| sim.in_file_write(true, call)),
                time(&call),
            ]
        };
        sim.solo(0, run).expect("nothing forbidden")
    };
    let (call, copies) = (call.cycles(), 16 * copy.cycles());
    assert_eq!(took(&plain), [call, call, call, call, copies, copies, call, call, call]);
    assert_eq!(took(&priced), [500, call, call, 0, copies, 16 * 20, 60, 60 + 9, call]);
    for key in ["file_line", "write_call", "grow_call"] {
        let message = tiny_with("[costs.work]", &line(key, "9")).expect_err("refused").to_string();
        assert!(message.contains(&format!("costs.{key}")) && message.contains("both"), "{message}");
    }
}

#[test]
fn of_the_pieces_that_one_call_moves_only_the_first_waits_for_its_first_line() {
    let costs = [("file_call", 500), ("file_line", 2)];
    let lines: String = costs.map(|(key, cycles)| line(key, &cycles.to_string())).concat();
    let machine = tiny_with("[costs.work]", &lines).expect("valid");
    // 16 pieces of a line each, none of them in a cache.
    let took = |in_one: bool| {
        let sim = SimMachine::<X86>::new(&machine, Options::default()).expect("a machine");
        let run = |cpu: &vellum_sim::Cpu<'_, X86>| {
            // SAFETY: frames of the machine that nobody uses.
            let piece = |n: u64| unsafe { sim.read(Pfn(512 + n), 0, &mut [0; 64]) };
            let start = cpu.now();
            match in_one {
                true => sim.in_file_call(|| (0..16).for_each(piece)),
                false => (0..16).for_each(|n| sim.in_file_call(|| piece(n))),
            }
            cpu.now() - start
        };
        sim.solo(0, run).expect("nothing forbidden")
    };
    let (one, each) = (took(true), took(false));
    assert!(2 * one < each, "{one} and {each}");
}

#[test]
fn a_call_that_goes_on_where_one_ended_waits_for_no_first_line_if_there_is_a_prefetcher() {
    let costs = [("file_call", 500), ("file_line", 2)];
    let lines: String = costs.map(|(key, cycles)| line(key, &cycles.to_string())).concat();
    let plain = tiny_with("[costs.work]", &lines).expect("valid");
    let shape = [("streams", "32"), ("train", "3"), ("depth", "20")].map(|(k, v)| line(k, v));
    let text = "[prefetch]\n".to_owned() + &shape.concat();
    let ahead = plain.overlaid("ahead.toml", &text).expect("valid");
    // 16 calls of two lines each, in two files: in a row, and each a line too far.
    let took = |machine: &Machine, apart: usize| {
        let sim = SimMachine::<X86>::new(machine, Options::default()).expect("a machine");
        let run = |cpu: &vellum_sim::Cpu<'_, X86>| {
            let start = cpu.now();
            for n in 0..16 {
                let (file, at) = (Pfn(512 + n % 2), (n / 2) as usize * apart);
                // SAFETY: frames of the machine that nobody uses.
                sim.in_file_call(|| unsafe { sim.read(file, at, &mut [0; 128]) });
            }
            cpu.now() - start
        };
        sim.solo(0, run).expect("nothing forbidden")
    };
    assert!(2 * took(&ahead, 128) < took(&plain, 128));
    assert_eq!(took(&ahead, 192), took(&plain, 192));
}

#[test]
fn a_line_that_a_cache_holds_may_be_cleared_faster() {
    let machine = tiny_with("[costs.work]", &line("clear_cached_line", "2")).expect("valid");
    let plain = file::preset("tiny").expect("valid");
    let each = machine.costs().clear_page_line;
    assert!(each.cycles() > 2);
    let twice = |machine: &Machine| {
        let sim = SimMachine::<X86>::new(machine, Options::default()).expect("a machine");
        let run = |cpu: &vellum_sim::Cpu<'_, X86>| {
            [0, 1].map(|_| {
                let start = cpu.now();
                // SAFETY: a frame of the machine that nobody uses.
                unsafe { sim.clear_run(Pfn(512), 1, Stores::Cached, Va(0)) };
                cpu.now() - start
            })
        };
        sim.solo(0, run).expect("nothing forbidden")
    };
    let ([cold, hot], [cold_plain, hot_plain]) = (twice(&machine), twice(&plain));
    assert_eq!((cold, hot), (cold_plain, 64 * 2));
    assert!(hot_plain >= 64 * each.cycles(), "{hot_plain}");
}
