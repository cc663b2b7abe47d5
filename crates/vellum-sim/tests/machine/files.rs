//! Machine files: the presets, and every kind of error with the line it prints.

use vellum_sim::cache::{Agent, Kind};
use vellum_sim::cache::{Hierarchy, Structure};
use vellum_sim::file::{self, Basis, Machine, MachineError};
use vellum_sim::format::X86;
use vellum_sim::memory::{Core, Memory, Ticks};
use vellum_sim::tlb::{NestedShape, PageSize, Tlb, WalkCache, WalkCacheShape};
use vellum_sim::{Options, SimMachine};

fn tiny() -> String {
    file::preset_text("tiny").expect("a preset").to_string()
}

/// The message for `tiny` with one piece of text replaced.
fn error(from: &str, to: &str) -> String {
    let text = tiny();
    assert!(text.contains(from), "the preset no longer has '{from}'");
    let message =
        Machine::parse("my.toml", &text.replacen(from, to, 1)).expect_err("refused").to_string();
    assert!(!message.contains('\n'), "one line: {message}");
    assert!(message.starts_with("my.toml:"), "names the file: {message}");
    message
}

/// The message for `tiny` with the value of one constant replaced.
fn value_error(key: &str, value: &str) -> String {
    let machine = file::preset("tiny").expect("valid");
    machine.with(key, value).expect_err("refused").to_string()
}

#[test]
fn every_preset_parses_checks_and_builds() {
    for name in file::presets() {
        let machine = file::preset(name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(machine.name, name);
        let mut caches =
            Hierarchy::new(&machine.hierarchy(1)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut memory = Memory::new(&machine.numa());
        assert_eq!(memory.frames(), machine.frames());
        let mut core = Core::new(machine.overlap());
        let last = memory.frames() * 64 - 1;
        caches.access(0, Agent::Demand, last, Kind::Load);
        assert_eq!(caches.counters(0).misses(Agent::Demand, Structure::Llc), 1);
        core.load(memory.read(core.now(), 0, last), false);
        core.validate().expect("consistent");
        caches.validate().expect("consistent");
        for spec in [&machine.tlb.l1i, &machine.tlb.l1d, &machine.tlb.l2] {
            let tlb = Tlb::new(&spec.shape());
            assert!(tlb.holds(PageSize::K4));
            tlb.validate().expect("consistent");
        }
        WalkCache::new(&machine.walk_cache()).validate().expect("consistent");
    }
}

#[test]
fn every_constant_of_every_preset_has_a_basis_and_a_source() {
    for name in file::presets() {
        let rows = file::preset(name).expect("valid").constants();
        assert!(rows.len() > 80, "{name}: {} constants", rows.len());
        for row in rows {
            assert!(!row.source.is_empty(), "{name}: {}", row.key);
            assert_ne!(
                row.basis,
                Basis::Fitted,
                "{name}: {} could not be used for a prediction",
                row.key
            );
        }
    }
}

#[test]
fn the_presets_are_the_machines_of_the_postings() {
    let milan = file::preset("milan").expect("valid");
    assert_eq!(milan.costs().clear_extent_line, Ticks(2122), "8.29 cycles a line");
    assert_eq!(milan.costs().clear_page_line, Ticks(2724), "10.64 cycles a line");
    let tiered = file::preset("tiered").expect("valid");
    assert_eq!(tiered.nodes.iter().map(|n| n.cpus.0.len()).collect::<Vec<_>>(), [16, 0]);
    assert_eq!(tiered.frames(), 100 << 18);
    let westmere = file::preset("westmere-ex").expect("valid");
    assert_eq!(westmere.hierarchy(0).llc.sets, 20480);
    let far = westmere.numa().latency[0][1];
    assert_eq!(far, Ticks::from_picoseconds(198_000, 2_371_000_000));
    let thunder = file::preset("thunderx2").expect("valid");
    assert_eq!(thunder.mmu.invalidation.value, file::Invalidation::Broadcast);
    assert!(thunder.mmu.break_before_make.value);
    let tiny = file::preset("tiny").expect("valid");
    assert_eq!(Tlb::new(&tiny.tlb.l1d.shape()).capacity(), 5);
}

#[test]
fn a_guess_can_be_halved_and_doubled() {
    let machine = file::preset("milan").expect("valid");
    for row in machine
        .constants()
        .iter()
        .filter(|r| r.basis == Basis::Guess && r.key.starts_with("costs."))
    {
        let (half, twice) = (
            machine.scaled(&row.key, 1, 2).expect("valid"),
            machine.scaled(&row.key, 2, 1).expect("valid"),
        );
        let _ = (half.costs(), twice.costs());
        assert_ne!(half.costs(), twice.costs(), "{}", row.key);
    }
    let twice = machine.scaled("memory.latency", 2, 1).expect("valid");
    assert_eq!(twice.numa().latency[0][0], Ticks::from_picoseconds(240_000, 2_420_000_000));
    let half = machine.scaled("costs.clear_extent_line", 1, 2).expect("valid");
    assert_eq!(half.costs().clear_extent_line, Ticks(1061));
    let elides = |times, by| {
        machine
            .scaled("costs.elision_threshold", times, by)
            .expect("valid")
            .costs()
            .elision_threshold
    };
    assert_eq!([elides(1, 2), elides(2, 1)], [16 << 20, 64 << 20], "half and twice the last level");
    assert!(machine.scaled("costs.nothing", 2, 1).is_err());
    assert!(machine.scaled("mmu.codec", 2, 1).is_err());
    assert!(machine.scaled("costs", 2, 1).is_err());
}

#[test]
fn text_that_is_no_toml_is_refused_with_its_line() {
    let message = error("[core]", "[core");
    assert!(message.starts_with("my.toml:9:") || message.starts_with("my.toml:8:"), "{message}");
}

#[test]
fn an_unknown_key_is_refused_and_the_known_ones_are_named() {
    let message = error("fill_buffers", "fil_buffers");
    assert!(
        message.contains("unknown field `fil_buffers`") && message.contains("`fill_buffers`"),
        "{message}"
    );
}

#[test]
fn a_missing_key_is_refused_by_name() {
    let text: String =
        tiny().lines().filter(|l| !l.starts_with("window")).map(|l| format!("{l}\n")).collect();
    let message = Machine::parse("my.toml", &text).expect_err("refused").to_string();
    assert!(message.contains("missing field `window`"), "{message}");
}

#[test]
fn a_bare_number_without_its_basis_is_refused() {
    let text: String = tiny()
        .lines()
        .map(|l| if l.starts_with("cpus =") { "cpus = 4\n".into() } else { format!("{l}\n") })
        .collect();
    let message = Machine::parse("my.toml", &text).expect_err("refused").to_string();
    assert!(message.contains("invalid type: integer `4`"), "{message}");
    let message = error("basis = \"guess\"", "basis = \"hearsay\"");
    assert!(
        message.contains("unknown variant `hearsay`") && message.contains("`outside`"),
        "{message}"
    );
    let message = error(", basis = \"guess\"", "");
    assert!(message.contains("missing field `basis`"), "{message}");
    let message = error("a choice, small so that tests meet evictions", "");
    assert!(message.contains("source is empty"), "{message}");
}

#[test]
fn a_value_of_the_wrong_unit_is_refused_with_an_example() {
    let message = value_error("l1d.size", "\"32 KB\"");
    assert!(message.contains("a size such as 32768 or \"32 KiB\""), "{message}");
    let message = value_error("costs.flush_page", "\"3 parsecs\"");
    assert!(message.contains("\"135 ns\""), "{message}");
    let message = value_error("nodes.0.cpus", "\"0..1\"");
    assert!(message.contains("\"0-7,16-23\""), "{message}");
    let message = value_error("nodes.0.bandwidth", "\"1 furlong\"");
    assert!(message.contains("\"204.8 GB/s\""), "{message}");
    let message = value_error("l2.policy", "\"fifo\"");
    assert!(message.contains("unknown variant `fifo`"), "{message}");
}

/// Key, impossible value, what the message must say.
const IMPOSSIBLE: &[(&str, &str, &str)] = &[
    ("clock_hz", "0", "give hertz"),
    ("cpus", "0", "use 1 to 256"),
    ("cpus", "257", "use 1 to 256"),
    ("cpus", "5", "CPU 4 is in no node"),
    ("cpus", "3", "CPU 3 does not exist; CPUs are numbered 0 to 2"),
    ("cpus_per_llc", "0", "use 1 to 4"),
    ("cpus_per_llc", "5", "use 1 to 4"),
    ("core.fill_buffers", "0", "use 1 to 64"),
    ("core.fill_buffers", "65", "use 1 to 64"),
    ("core.walkers", "9", "use 1 to 8"),
    ("core.window", "0", "in order"),
    ("core.instruction", "0", "takes no time"),
    ("l1d.size", "0", "0 sets"),
    ("l1d.size", "1000", "do not divide into 2 ways; use a multiple of 128"),
    ("l1d.ways", "0", "0 ways: use 1 to 64"),
    ("l1d.ways", "65", "ways"),
    ("l2.latency", "0", "a hit takes no time"),
    ("l2.latency", "1", "less than that of l1d"),
    ("llc.latency", "7", "less than that of l2"),
    ("llc.size", "\"4 GiB\"", "do not divide"),
    ("nodes.0.memory", "0", "needs memory"),
    ("nodes.0.memory", "\"3 MiB\"", "multiples of 2 MiB"),
    ("nodes.0.memory", "\"4000000 TiB\"", "use at most 16 TiB"),
    ("memory.latency", "[[60, 90], [90, \"99999999 ms\"]]", "a time of seconds"),
    ("costs.switch", "99999999999", "a time of seconds"),
    ("l1d.latency", "99999999999", "a time of seconds"),
    ("tlb.l2.latency", "99999999999", "a time of seconds"),
    ("l2.size", "\"1 GiB\"", "all caches together may hold 4 GiB"),
    ("nodes.0.bandwidth", "0", "give bytes a second"),
    ("nodes.1.cpus", "\"1-3\"", "CPU 1 is in node 0 too; name each CPU once"),
    ("nodes.1.cpus", "\"2\"", "CPU 3 is in no node; add it"),
    ("nodes.1.cpus", "\"2-4\"", "CPU 4 does not exist"),
    (
        "memory.latency",
        "[[60, 90]]",
        "1 rows of 2 columns; with 2 nodes give 2 rows of 2 latencies",
    ),
    ("memory.latency", "[[60, 90], [90]]", "2 rows of 2, 1 columns"),
    ("memory.latency", "[[60, 0], [90, 60]]", "a latency of 0"),
    ("tlb.l1d.banks.0.entries", "0", "use 1 to 32768"),
    ("tlb.l1d.banks.0.ways", "0", "0 ways do not divide 2 entries"),
    ("tlb.l2.banks.0.ways", "3", "3 ways do not divide 4 entries; use a divisor of 4"),
    ("tlb.l1d.banks.0.sizes", "[]", "no page size"),
    ("tlb.l1d.banks.1.sizes", "[\"4K\"]", "K4 has a bank already"),
    ("tlb.l1d.banks.0.sizes", "[\"64K\"]", "unknown variant `64K`"),
    ("tlb.walk.level2.entries", "0", "use 1 to"),
    ("mmu.levels", "3", "use 4 or 5"),
    ("mmu.levels", "6", "use 4 or 5"),
    ("mmu.contexts", "65535", "at most 65534"),
    ("mmu.max_leaf", "\"4K\"", "thp=never"),
    ("mmu.codec", "\"riscv64\"", "unknown variant `riscv64`"),
];

/// The same for a guest.
const IMPOSSIBLE_NESTED: &[(&str, &str, &str)] = &[
    ("mmu.nested.page", "\"64K\"", "unknown variant `64K`"),
    ("mmu.nested.levels", "3", "mmu.nested.levels: 3 levels; use 4 or 5"),
    ("mmu.nested.levels", "255", "use 4 or 5"),
    ("mmu.nested.entries", "0", "mmu.nested.entries: 0 entries; use 1 to 32768"),
    ("mmu.nested.ways", "3", "3 ways do not divide 16 entries; use a divisor of 16"),
    ("mmu.nested.walk.level3.ways", "0", "mmu.nested.walk.level3.ways: 0 ways"),
    ("mmu.nested.walk.level4.entries", "40000", "use 1 to 32768"),
    ("nodes.0.memory", "\"1048540 MiB\"", "use more sets or less memory"),
];

/// `tiny` as a guest.
fn guest() -> Machine {
    let constant = |key: &str, value: &str| {
        format!("{key} = {{ value = {value}, basis = \"guess\", source = \"x\" }}\n")
    };
    let mut text = tiny() + "\n[mmu.nested]\n";
    text += &constant("page", "\"2M\"");
    text += &constant("levels", "4");
    text += &constant("entries", "16");
    text += &constant("ways", "4");
    for level in [3, 4] {
        text += &format!("[mmu.nested.walk.level{level}]\n");
        text += &constant("entries", "8");
        text += &constant("ways", "8");
    }
    Machine::parse("tiny.toml", &text).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_guest_is_a_machine_whose_file_has_the_keys_of_nested_paging() {
    assert_eq!(file::preset("tiny").expect("valid").nested(), None);
    let machine = guest();
    let walk = WalkCacheShape { levels: [None, Some((8, 8)), Some((8, 8)), None] };
    let nested = NestedShape { page: PageSize::M2, levels: 4, entries: 16, ways: 4, walk };
    assert_eq!(machine.nested(), Some(nested));
    let keys: Vec<String> = machine.constants().into_iter().map(|row| row.key).collect();
    for key in ["page", "levels", "entries", "ways", "walk.level3.entries", "walk.level4.ways"] {
        let key = format!("mmu.nested.{key}");
        assert!(keys.contains(&key), "{key}");
    }
    let other = machine.with("mmu.nested.page", "\"4K\"").expect("valid");
    let lines = |m: &Machine| m.hierarchy(1).lines - m.frames() * 64;
    assert_eq!(lines(&machine), 3 * 64, "a node each of levels 2, 3 and 4");
    assert_eq!(lines(&other), (32 + 3) * 64, "and one of level 1 for each 2 MiB");
    let twice = machine.scaled("mmu.nested.entries", 2, 1).expect("valid");
    assert_eq!(twice.nested().map(|n| n.entries), Some(32));
    for machine in [machine, other] {
        SimMachine::<X86>::new(&machine, Options::default()).expect("it can be built");
    }
}

#[test]
fn impossible_nested_tables_are_refused_with_their_key_and_how_to_mend_them() {
    for (key, value, say) in IMPOSSIBLE_NESTED {
        let message = guest().with(key, value).expect_err("refused").to_string();
        assert!(message.contains(say), "{key} = {value}: '{message}' does not say '{say}'");
        assert!(!message.contains('\n') && message.starts_with("tiny.toml"), "{message}");
    }
    let text = "\n[mmu.nested.walk]\nstart = { value = 1, basis = \"guess\", source = \"x\" }\n";
    let message = Machine::parse("my.toml", &(tiny() + text)).expect_err("refused").to_string();
    assert!(message.contains("missing field `page`") || message.contains("`start`"), "{message}");
}

#[test]
fn every_impossible_value_is_refused_with_its_key_and_how_to_mend_it() {
    for (key, value, say) in IMPOSSIBLE {
        let message = value_error(key, value);
        assert!(message.contains(say), "{key} = {value}: '{message}' does not say '{say}'");
        assert!(!message.contains('\n') && message.starts_with("tiny.toml"), "{message}");
    }
}

#[test]
fn times_that_may_be_left_out_are_no_longer_than_the_others() {
    let time = "{ value = 70000000000000000, basis = \"guess\", source = \"x\" }";
    for (table, key) in [("[core]\n", "load"), ("[tlb.walk]\n", "start")] {
        let message = error(table, &format!("{table}{key} = {time}\n"));
        assert!(message.contains("a time of seconds; give at most"), "{message}");
    }
}

/// It is printed wherever the machine is.
#[test]
fn a_name_with_what_a_terminal_obeys_is_refused() {
    let message = error("name = \"tiny\"", "name = \"ti\\u001b[31mny\"");
    assert!(message.contains("control characters") && !message.contains('\u{1b}'), "{message}");
}

#[test]
fn any_level_with_sets_for_a_page_may_have_pages_that_lie_anywhere() {
    let with_index = |name: &str, text: &str, level: &str| {
        let index = "index = { value = \"pages\", basis = \"guess\", source = \"x\" }";
        Machine::parse(
            name,
            &text.replace(&format!("[{level}]\n"), &format!("[{level}]\n{index}\n")),
        )
    };
    let milan = include_str!("../../machines/milan.toml");
    for level in ["l1d", "l2", "llc"] {
        let machine = with_index("milan.toml", milan, level).expect("valid");
        SimMachine::<X86>::new(&machine, Options::default()).expect("it can be built");
    }
    let message = with_index("tiny.toml", &tiny(), "l2").expect_err("refused").to_string();
    let says =
        "l2.index: 16 sets: the index \"pages\" is for caches with at least the 64 lines of a page";
    assert!(message.contains(says), "{message}");
}

#[test]
fn an_aarch64_machine_has_four_levels() {
    let machine = file::preset("thunderx2").expect("valid");
    let message = machine.with("mmu.levels", "5").expect_err("refused").to_string();
    assert!(message.contains("aarch64 tables have 4"), "{message}");
}

#[test]
fn a_first_level_tlb_without_small_pages_is_refused() {
    let machine = file::preset("tiny").expect("valid");
    let message =
        machine.with("tlb.l1d.banks.0.sizes", "[\"2M\"]").expect_err("refused").to_string();
    assert!(message.contains("2M") || message.contains("M2 has a bank already"), "{message}");
    let text = tiny();
    let start = text.find("[[tlb.l1i.banks]]").expect("a bank");
    let end = start + text[start + 5..].find("[[").expect("another bank") + 5;
    let message = Machine::parse("my.toml", &(text[..start].to_string() + &text[end..]))
        .expect_err("refused")
        .to_string();
    assert!(message.contains("no bank holds 4 KiB pages"), "{message}");
}

#[test]
fn more_memory_than_the_tags_of_a_small_cache_reach_is_refused() {
    let machine = file::preset("tiny").expect("valid");
    let message = machine.with("nodes.0.memory", "\"2 TiB\"").expect_err("refused").to_string();
    assert!(message.contains("use more sets or less memory"), "{message}");
}

#[test]
fn no_nodes_at_all_are_refused() {
    let text = tiny();
    let start = text.find("[[nodes]]").expect("nodes");
    let end = text.find("[memory]").expect("memory");
    let text = format!("nodes = []\n{}{}", &text[..start], &text[end..]);
    let message = Machine::parse("my.toml", &text).expect_err("refused").to_string();
    assert!(message.contains("0 memory nodes; give 1 to 16"), "{message}");
}

#[test]
fn a_name_that_is_no_preset_and_a_file_that_is_not_there_are_refused() {
    let message = file::preset("milano").expect_err("refused").to_string();
    assert!(message.contains("'milano'") && message.contains("milan, icelake-x"), "{message}");
    let message = Machine::load("no/such.toml".as_ref()).expect_err("refused");
    assert!(matches!(message, MachineError::Unreadable { .. }), "{message}");
}

#[test]
fn a_preset_written_to_a_file_is_the_same_machine() {
    let path = std::env::temp_dir().join(format!("vellum-machine-{}.toml", std::process::id()));
    std::fs::write(&path, tiny()).expect("written");
    let machine = Machine::load(&path);
    std::fs::remove_file(&path).expect("removed");
    let machine = machine.expect("valid");
    assert_eq!(machine.hierarchy(1), file::preset("tiny").expect("valid").hierarchy(1));
}

/// Every line of a preset dropped, doubled or cut short is either still a machine or a one-line
/// error.
#[test]
fn damaged_files_never_panic() {
    for name in file::presets() {
        let text = file::preset_text(name).expect("a preset");
        let lines: Vec<&str> = text.lines().collect();
        for n in 0..lines.len() {
            let join = |changed: Vec<&str>| changed.join("\n");
            let without = join([&lines[..n], &lines[n + 1..]].concat());
            let twice = join([&lines[..=n], &lines[n..]].concat());
            let half = &lines[n][..lines[n].len() / 2];
            let cut = join([&lines[..n], &[half], &lines[n + 1..]].concat());
            for damaged in [without, twice, cut] {
                if let Err(e) = Machine::parse("damaged.toml", &damaged) {
                    assert!(!e.to_string().contains('\n'), "{e}");
                }
            }
        }
    }
}
