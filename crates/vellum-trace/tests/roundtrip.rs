//! What goes in comes out.
mod common;

use common::{events, read, write};
use proptest::prelude::*;
use vellum_trace::{Event, Flags, Header, TraceError, TraceReader, TraceWriter};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_legal_list_of_events_comes_back(
        numbers in prop::collection::vec(any::<u64>(), 0..2000),
    ) {
        let list = events(&numbers);
        prop_assert_eq!(read(&write(&list)).expect("readable"), list);
    }

    #[test]
    fn kernel_ranges_come_back_as_one_access_a_line(
        ranges in prop::collection::vec((0u64..1 << 20, 1u64..600_000, any::<bool>()), 1..40)
    ) {
        let start = events(&[]);
        let mut w = TraceWriter::new(Vec::new(), &Header::default(), 1).expect("memory");
        for e in &start[..2] {
            w.push(e).expect("legal");
        }
        w.push(&big_mapping()).expect("legal");
        let mut expected = Vec::new();
        for (offset, len, write) in &ranges {
            w.kernel(0, *offset, *len, *write).expect("legal");
            let mut at = *offset;
            while at < offset + len {
                let next = (at / 64 + 1) * 64;
                let flags = if *write { Flags::KERNEL.with(Flags::WRITE) } else { Flags::KERNEL };
                let size = (next.min(offset + len) - at) as u8;
                expected.push(Event::Access { mapping: 0, size, flags, offset: at });
                at = next;
            }
        }
        let (totals, bytes) = w.finish().expect("memory");
        prop_assert_eq!(totals.kernel, expected.len() as u64);
        prop_assert_eq!(&read(&bytes).expect("readable")[3..], &expected[..]);
    }
}

fn big_mapping() -> Event {
    use vellum_trace::event::{Change, Map};
    Event::Call(Box::new(vellum_trace::Call {
        order: 0,
        change: Change::Map(Map {
            mapping: 0,
            len: 2 << 20,
            prot: vellum_trace::Prot(3),
            kind: vellum_trace::MapKind::Anon,
            base: 0x10000,
            inside: None,
            file_offset: 0,
            file: None,
            synthetic: false,
            moved: false,
            populate: false,
        }),
    }))
}

#[test]
fn an_event_is_16_bytes() {
    assert_eq!(size_of::<Event>(), 16);
}

#[test]
fn several_blocks_come_back_and_the_totals_are_right() {
    let mut x = 1u64;
    let numbers: Vec<u64> = (0..1_200_000)
        .map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            x ^ (x >> 31)
        })
        .collect();
    let list = events(&numbers);
    let bytes = write(&list);
    let mut r = TraceReader::new(&bytes[..]).expect("a trace");
    let (mut block, mut others, mut at, mut blocks) = (Vec::new(), Vec::new(), 0, 0);
    while r.next_block_with(&mut block, &mut others).expect("readable") {
        assert!(block == list[at..at + block.len()], "block {blocks} differs");
        let is_other = |e: &Event| !matches!(e, Event::Access { .. } | Event::Fetch { .. });
        let found: Vec<u32> =
            (0..block.len() as u32).filter(|&n| is_other(&block[n as usize])).collect();
        assert!(others == found && !found.is_empty(), "block {blocks}");
        at += block.len();
        blocks += 1;
    }
    assert_eq!(at, list.len());
    assert!(blocks > 3, "only {blocks} blocks");
    let stores = list
        .iter()
        .filter(|e| matches!(e, Event::Access { flags, .. } if flags.write() && !flags.kernel()));
    assert_eq!(r.totals().stores, stores.count() as u64);
}

#[test]
fn illegal_events_are_refused_and_leave_the_trace_whole() {
    let legal = events(&[]);
    let bad = [
        Event::Access { mapping: 0, size: 0, flags: Flags::READ, offset: 0 },
        Event::Access { mapping: 0, size: 65, flags: Flags::READ, offset: 0 },
        Event::Access { mapping: 9, size: 8, flags: Flags::READ, offset: 0 },
        Event::Access { mapping: 0, size: 8, flags: Flags::READ, offset: u64::MAX - 3 },
        Event::Fetch { mapping: 0, insns: 65, offset: 0 },
        Event::Fetch { mapping: 0, insns: 1, offset: 8 },
        Event::Switch { thread: 7 },
        Event::ThreadStart { thread: 7 },
        Event::ThreadEnd { thread: 7 },
        big_mapping(),
    ];
    let mut w = TraceWriter::new(Vec::new(), &Header::default(), 1).expect("memory");
    assert!(matches!(w.push(&bad[0]), Err(TraceError::BadEvent { .. })), "before any thread");
    for e in &legal {
        w.push(e).expect("legal");
    }
    for e in &bad {
        assert!(matches!(w.push(e), Err(TraceError::BadEvent { .. })), "{e:?}");
    }
    let (_, bytes) = w.finish().expect("memory");
    assert_eq!(read(&bytes).expect("readable"), legal);
}

#[test]
fn the_totals_of_a_file_are_read_from_its_end() {
    let list = events(&[7, 45, 999, 12_345, 77]);
    let path = std::env::temp_dir().join(format!("vellum-totals-{}.vt", std::process::id()));
    let bytes = write(&list);
    std::fs::write(&path, &bytes).expect("a file");
    let mut r = TraceReader::open(&path).expect("a trace");
    while r.next_block(&mut Vec::new()).expect("readable") {}
    let whole = vellum_trace::read_totals(&path).expect("totals");
    assert_eq!((whole.totals, whole.partial), (r.totals(), false));
    std::fs::remove_file(&path).expect("removed");
}

#[test]
fn a_file_without_its_end_is_a_trace_of_its_whole_blocks_and_a_stream_is_not() {
    let path = std::env::temp_dir().join(format!("vellum-partial-{}.vt", std::process::id()));
    let mut w = TraceWriter::new(Vec::new(), &Header::default(), 1).expect("memory");
    let mut lengths = vec![w.get_mut().len()];
    events(&[])[..2].iter().for_each(|e| w.push(e).expect("legal"));
    w.push(&big_mapping()).expect("legal");
    for page in 0..300 {
        let (mapping, size, flags, offset) = (0, 1, Flags::READ, page * 4096);
        w.push(&Event::Access { mapping, size, flags, offset }).expect("legal");
        if page % 100 == 99 {
            w.flush().expect("memory");
            lengths.push(w.get_mut().len());
        }
    }
    let (_, bytes) = w.finish().expect("memory");
    for cut in lengths[0]..bytes.len() {
        std::fs::write(&path, &bytes[..cut]).expect("a file");
        let sums = vellum_trace::read_totals(&path);
        let Some(blocks) = lengths.iter().rposition(|l| *l <= cut).filter(|n| *n > 0) else {
            assert!(matches!(sums, Err(TraceError::Truncated { .. })), "{cut}: {sums:?}");
            continue;
        };
        let sums = sums.expect("whole blocks");
        assert!(sums.partial, "{cut}");
        let pages = blocks as u64 * 100;
        assert_eq!((sums.totals.loads, sums.totals.touched_pages), (pages, pages), "{cut}");
        let mut r = TraceReader::open(&path).expect("a trace");
        while r.next_block(&mut Vec::new()).expect("readable") {}
        assert!(r.is_partial() && r.totals().loads == pages, "{cut}");
        assert!(matches!(read(&bytes[..cut]), Err(TraceError::Truncated { .. })), "{cut}");
    }
    std::fs::remove_file(&path).expect("removed");
}
