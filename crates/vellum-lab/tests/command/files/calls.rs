//! What system calls that move bytes cost.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{Script, Temporary, vellum};
use vellum_trace::event::{Change, Event, Flags};

/// Lines of a read or write of 8 KiB, as the kernel touches them in the program's memory.
fn moved(s: &mut Script, memory: u32, write: bool) {
    let flags = if write { Flags::KERNEL.with(Flags::WRITE) } else { Flags::KERNEL };
    for line in 0..128 {
        s.push(Event::Access { mapping: memory, size: 64, flags, offset: line * 64 });
    }
}

/// The times by price of a machine that has these, in cycles.
fn charges(s: &Script, prices: &[(&str, u64)]) -> serde_json::Value {
    column(s, prices, &[])["charges"].clone()
}

/// The run's only column.
fn column(s: &Script, prices: &[(&str, u64)], more: &[&str]) -> serde_json::Value {
    let tiny = vellum(&["machines", "tiny", "--toml"]).out;
    let line = |(key, value): &(&str, u64)| {
        format!("{key} = {{ value = {value}, basis = \"guess\", source = \"a test\" }}\n")
    };
    let lines: String = prices.iter().map(line).collect();
    let machine = tiny.replace("[costs.work]\n", &format!("{lines}\n[costs.work]\n"));
    // Tests run beside each other.
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let name = format!("calls-{run}.toml");
    let machine = Temporary::with(&name, machine.as_bytes());
    let trace = s.file(&format!("calls-{run}.vt"));
    let args = ["run", "--trace", trace.path(), "--machine", machine.path(), "--json"];
    let options = ["--as", "vellum", "--set", "thp=never", "--cpus", "1"];
    let said = vellum(&[&args[..], &options, more].concat());
    let doc: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    doc["variants"][0].clone()
}

/// Three writes, of which the first gives the file pages, two reads, and a call on no file.
#[test]
fn a_call_is_charged_once_and_pages_of_a_write_once() {
    let mut s = Script::new();
    let memory = s.anon(2);
    s.touch(memory, 0..2);
    let file = s.new_file(0);
    for _ in 0..3 {
        s.call(Change::FileWrite { file, offset: 0, bytes: 8192 });
        moved(&mut s, memory, false);
        s.store(memory, 0);
    }
    for _ in 0..2 {
        s.call(Change::FileRead { file, offset: 0, bytes: 8192 });
        moved(&mut s, memory, true);
        s.store(memory, 0);
    }
    moved(&mut s, memory, true);
    let prices = [
        ("file_call", 1000),
        ("write_call", 70),
        ("grow_call", 300),
        ("file_line", 200),
        ("add_file", 50),
    ];
    let priced = charges(&s, &prices);
    assert_eq!(priced["costs.file_call"], 6 * 1000);
    assert_eq!(priced["costs.write_call"], 3 * 70);
    assert_eq!(priced["costs.grow_call"], 300);
    assert_eq!(priced["costs.add_file"], 2 * 50);
    assert!(priced["costs.file_line"].as_u64() > Some(0));
    assert_eq!(priced["costs.copy_line"], 0);
    let plain = charges(&s, &[]);
    assert_eq!(plain["costs.file_call"], 0);
    let calls = |of: &serde_json::Value| of["costs.work.call"].as_u64().expect("a mapping is made");
    let call = calls(&priced);
    // That mapping alone; each of the six has two verbs, or more, where it has no price.
    let machine = vellum(&["machines", "tiny", "--toml"]).out;
    assert!(machine.contains(&format!("\ncall = {{ value = {call},")), "{call}");
    assert!(calls(&plain) >= 6 * 2 * call, "{} and {call}", calls(&plain));
}

/// What a write takes more is the calls' time, and no other's.
#[test]
fn a_write_costs_the_calls_more() {
    let mut s = Script::new();
    let file = s.new_file(0);
    for _ in 0..3 {
        s.call(Change::FileWrite { file, offset: 0, bytes: 100 });
    }
    let times = |write: u64, grow: u64| {
        let prices = [("file_call", 1000), ("write_call", write), ("grow_call", grow)];
        let counters = column(&s, &prices, &[])["counters"].clone();
        ["cycles_calls", "cycles_program"].map(|name| counters[name].as_i64().expect("cycles"))
    };
    let ([calls, program], [more, same]) = (times(70, 300), times(170, 1300));
    assert_eq!([more - calls, same - program], [3 * 100 + 1000, 0]);
}

/// A log: of eight records to a page one gives the file a page. A hole gets its pages as well,
/// whoever has read it before.
#[test]
fn a_longer_file_costs_more_only_where_it_gets_a_page() {
    let (mut s, prices) = (Script::new(), [("file_call", 1000), ("grow_call", 300)]);
    let file = s.new_file(0);
    for n in 0..32 {
        s.call(Change::FileWrite { file, offset: n * 512, bytes: 512 });
    }
    assert_eq!(charges(&s, &prices)["costs.grow_call"], 4 * 300);
    s.call(Change::FileResize { file, bytes: 1 << 20 });
    s.call(Change::FileWrite { file, offset: 1 << 19, bytes: 64 });
    assert_eq!(charges(&s, &prices)["costs.grow_call"], 5 * 300);
    s.call(Change::FileRead { file, offset: 3 << 18, bytes: 64 << 10 });
    for n in 0..4 {
        s.call(Change::FileWrite { file, offset: (3 << 18) + n * 4096, bytes: 4096 });
    }
    assert_eq!(charges(&s, &prices)["costs.grow_call"], 9 * 300);
    s.call(Change::FileResize { file, bytes: 0 });
    s.call(Change::FileWrite { file, offset: 0, bytes: 4096 });
    assert_eq!(charges(&s, &prices)["costs.grow_call"], 10 * 300, "cut, and written anew");
}

/// A file has its pages where memory has lost them, and where it was there before.
#[test]
fn a_write_to_a_page_that_memory_has_lost_is_as_any() {
    let (mut s, prices) = (Script::new(), [("file_call", 1000), ("grow_call", 300)]);
    let file = s.new_file(0);
    s.call(Change::FileWrite { file, offset: 0, bytes: 32 << 10 });
    s.call(Change::FileSync { file, offset: 0, bytes: u64::MAX });
    s.call(Change::FileAdvise { file, offset: 0, bytes: u64::MAX, advice: 4 });
    let old = s.new_file(256 << 10);
    for file in [file, old] {
        for n in 0..8 {
            s.call(Change::FileWrite { file, offset: n * 4096, bytes: 100 });
        }
    }
    for files in ["warm", "cold"] {
        let column = column(&s, &prices, &["--files", files]);
        assert_eq!(column["charges"]["costs.grow_call"], 300, "{files}");
    }
}

/// Two threads on a CPU, each in a call that takes longer than a turn.
#[test]
fn a_call_is_one_where_another_thread_has_its_turn_meanwhile() {
    let mut s = Script::new();
    let memory = [0, 1].map(|_| s.anon(512));
    for (thread, memory) in (0..).zip(memory) {
        if thread > 0 {
            s.push(Event::ThreadStart { thread }).switch(thread);
        }
        for line in 0..512 * 64 {
            let flags = Flags::KERNEL.with(Flags::WRITE);
            s.push(Event::Access { mapping: memory, size: 64, flags, offset: line * 64 });
        }
    }
    let prices = [("file_call", 1000), ("file_line", 500)];
    assert_eq!(charges(&s, &prices)["costs.file_call"], 2 * 1000);
}
