//! Damaged files: an error of one line, never a panic, never other events than were written.
mod common;

use common::{block_at, events, forged, read, version_1, write};
use proptest::prelude::*;
use vellum_trace::TraceError;

fn small() -> (Vec<vellum_trace::Event>, Vec<u8>) {
    let numbers: Vec<u64> =
        (0..300u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7).collect();
    let list = events(&numbers);
    let bytes = write(&list);
    (list, bytes)
}

fn one_line(e: &TraceError) {
    let text = e.to_string();
    assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
}

#[test]
fn every_flipped_bit_is_an_error() {
    let (_, good) = small();
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            match read(&bad) {
                Ok(_) => panic!("bit {bit} of byte {at} was not noticed"),
                Err(e) => one_line(&e),
            }
        }
    }
}

#[test]
fn a_file_cut_anywhere_is_truncated_or_no_trace() {
    let (_, good) = small();
    for n in 0..good.len() {
        match read(&good[..n]) {
            Err(TraceError::NotATrace) => assert!(n < 8),
            Err(e @ TraceError::Truncated { .. }) => one_line(&e),
            other => panic!("cut at {n}: {other:?}"),
        }
    }
}

#[test]
fn bytes_after_the_end_are_an_error() {
    let (_, mut bytes) = small();
    bytes.push(0);
    assert!(matches!(read(&bytes), Err(TraceError::Corrupt { .. })));
}

#[test]
fn another_version_is_named_as_such() {
    let (_, mut bytes) = small();
    bytes[8] = 3;
    match read(&bytes) {
        Err(e @ TraceError::Version { found: 3, supported: 2 }) => one_line(&e),
        other => panic!("{other:?}"),
    }
}

#[test]
fn foreign_files_are_named_as_such() {
    for foreign in
        [&b""[..], b"x", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0", &[0; 4096], b"==1== Lackey"]
    {
        assert!(matches!(read(foreign), Err(TraceError::NotATrace)));
    }
}

#[test]
fn hostile_lengths_are_refused_before_anything_is_allocated() {
    let (_, good) = small();
    let mut header = good.clone();
    header[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(read(&header), Err(TraceError::Corrupt { .. })));
    let block = block_at(&good);
    assert_eq!(good[block], b'B');
    for word in [1, 5, 9] {
        let mut bad = good.clone();
        bad[block + word..block + word + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(read(&bad), Err(TraceError::Corrupt { .. })));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_forged_block_with_right_checksums_is_an_error_and_no_panic(
        ops in prop::collection::vec(0u8..24, 0..200),
        numbers in prop::collection::vec(any::<u8>(), 0..400),
        announced in 0u32..300_000,
    ) {
        let mut raw = (ops.len() as u32).to_le_bytes().to_vec();
        // A thread to begin with, so that the rest is looked at.
        raw[0] = raw[0].wrapping_add(2);
        raw.extend([17, 16]);
        raw.extend(ops);
        raw.extend([0, 0]);
        raw.extend(numbers);
        // There is no trailer, so even a block that happens to be legal cannot make a trace.
        let trace = forged(&raw, announced);
        prop_assert!(read(&trace).is_err());
        prop_assert!(read(&version_1(trace)).is_err());
    }

    #[test]
    fn any_bytes_behind_the_magic_are_an_error(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut file = b"VELLUM\r\n\x02\0\0\0".to_vec();
        file.extend(bytes);
        prop_assert!(read(&file).is_err());
    }
}
