//! Bytes to a trace, under libFuzzer: what a hostile writer makes, with right checksums.
//!
//! The bytes are the operations and the numbers of one block. The reader must refuse them with an
//! error, or give events that the writer takes and that come back the same. `scripts/soak trace`
//! builds and runs it.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{Corpus, fuzz_target};
use vellum_trace::{Event, Header, TraceError, TraceReader, TraceWriter};

/// Bytes before a header's fields: magic, version, length.
const BEFORE: usize = 16;

/// A header, as format 1 and as format 2.
static HEADERS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
    let whole = write(&[]).expect("an empty trace");
    let fields = u32::from_le_bytes([whole[12], whole[13], whole[14], whole[15]]) as usize;
    [1, 2].map(|version| {
        let mut header = whole[..BEFORE + fields].to_vec();
        header[8] = version;
        let sum = crc32fast::hash(&header);
        header.extend(sum.to_le_bytes());
        header
    })
});

fn write(events: &[Event]) -> Result<Vec<u8>, TraceError> {
    let mut w = TraceWriter::new(Vec::new(), &Header::default(), 1)?;
    for e in events {
        w.push(e)?;
    }
    Ok(w.finish()?.1)
}

/// The events of a file, up to its first error.
fn read(file: &[u8]) -> (Vec<Event>, Option<TraceError>) {
    let (mut all, mut block) = (Vec::new(), Vec::new());
    let mut reader = TraceReader::new(file).expect("a right header");
    loop {
        match reader.next_block(&mut block) {
            Ok(true) => all.append(&mut block),
            Ok(false) => return (all, None),
            Err(e) => return (all, Some(e)),
        }
    }
}

fuzz_target!(|bytes: &[u8]| -> Corpus {
    // Format, how many of the bytes are operations, how many events those make beyond one each.
    let [format, split, more, rest @ ..] = bytes else { return Corpus::Reject };
    let (ops, numbers) = rest.split_at(rest.len() * usize::from(*split) / 256);
    // A thread to begin with, so that the rest is looked at.
    let mut raw = (ops.len() as u32 + 2).to_le_bytes().to_vec();
    raw.extend([17, 16]);
    raw.extend(ops);
    raw.extend([0, 0]);
    raw.extend(numbers);
    let packed = zstd::bulk::compress(&raw, 1).expect("compressible");
    let mut block = vec![b'B'];
    for n in [raw.len(), packed.len(), ops.len() + 2 + usize::from(*more)] {
        block.extend((n as u32).to_le_bytes());
    }
    block.extend(packed);
    let header = &HEADERS[usize::from(*format) % 2];
    let sum = crc32fast::hash(&block);
    let file = [&header[..], &block[..], &sum.to_le_bytes()[..]].concat();

    let (events, error) = read(&file);
    // There is no trailer, so what is good can only end too early.
    match error.expect("a trace without an end") {
        TraceError::Truncated { at } => assert_eq!(at, file.len() as u64),
        TraceError::Corrupt { at, .. } => {
            assert_eq!(at, header.len() as u64, "the position of the block");
            assert!(events.is_empty());
        }
        other => panic!("{other}"),
    }
    let again = read(&write(&events).expect("the writer has the same rules"));
    assert!(again.1.is_none() && again.0 == events, "other events than were written");
    Corpus::Keep
});
