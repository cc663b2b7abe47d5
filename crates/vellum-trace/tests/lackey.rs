//! Import of valgrind's text, real and malformed.
use vellum_trace::event::Event;
use vellum_trace::{Header, TraceError, TraceReader, TraceWriter, lackey};

fn import(text: &[u8]) -> Result<Vec<Event>, TraceError> {
    let w = TraceWriter::new(Vec::new(), &Header::default(), 1)?;
    let (_, bytes) = lackey::import(text, w)?;
    let mut r = TraceReader::new(&bytes[..])?;
    let (mut all, mut block) = (Vec::new(), Vec::new());
    while r.next_block(&mut block)? {
        all.append(&mut block);
    }
    Ok(all)
}

const TEXT: &str = "\
==77== Lackey, an example Valgrind tool
I  04001030,3
I  04001033,5
 S 1ffefffe98,8
hello from the program
I  04001038,4
 L 1ffefffe98,8
 M 04222ff8,16
I  04001080,4
==77== Exit code: 0
";

#[test]
fn loads_stores_modifies_and_lines_are_understood() {
    let all = import(TEXT.as_bytes()).expect("lackey's text");
    let mut seen = String::new();
    for e in &all {
        match e {
            Event::Access { size, flags, .. } => {
                seen += &format!("{}{size} ", if flags.write() { "S" } else { "L" });
            }
            Event::Fetch { insns, offset, .. } => {
                seen += &format!("I{insns}@{:x} ", offset & 0xfff);
            }
            _ => {}
        }
    }
    assert_eq!(seen, "I2@0 S8 I1@0 L8 L16 S16 I1@80 ");
}

#[test]
fn malformed_lines_are_named_with_their_number() {
    for (bad, what) in [
        ("I  04001030", "comma"),
        (" L zz,8", "hexadecimal"),
        (" S 10,x", "number"),
        (" S 10,0", "0 bytes"),
        (" M 10,99999", "4096"),
        (" L ffffffffff600000,8", "outside"),
        (" L fffffffffffffffff,8", "hexadecimal"),
    ] {
        let text = format!("{TEXT}{bad}\n");
        match import(text.as_bytes()) {
            Err(e @ TraceError::BadText { line: 11, .. }) => {
                assert!(e.to_string().contains(what), "{e}");
            }
            other => panic!("{bad}: {other:?}"),
        }
    }
}

#[test]
fn text_without_accesses_binary_and_endless_lines_are_refused() {
    assert!(matches!(import(b""), Err(TraceError::BadText { .. })));
    assert!(matches!(import(&[0xff; 5000]), Err(TraceError::BadText { .. })));
    assert!(matches!(
        import("x\n".repeat(20_000).as_bytes()),
        Err(TraceError::BadText { line: 10_000, .. })
    ));
    let mut long = vec![b'I'; 1 << 20];
    long.extend_from_slice(b"\n L 1000,8\n");
    assert!(import(&long).is_ok(), "one long line of the program's own does no harm");
}

#[test]
fn an_access_across_a_neighbourhood_becomes_two() {
    let all = import(b" S 3ffffc,8\n").expect("lackey's text");
    let sizes: Vec<u8> = all
        .iter()
        .filter_map(|e| match e {
            Event::Access { size, .. } => Some(*size),
            _ => None,
        })
        .collect();
    assert_eq!(sizes, [4, 4]);
}

#[test]
fn the_output_of_a_real_valgrind_is_understood() {
    let out = std::process::Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=2", "/bin/true"])
        .output()
        .expect("valgrind (`apt install valgrind`)");
    let all = import(&out.stderr).expect("lackey's text");
    let text = String::from_utf8_lossy(&out.stderr);
    let lines = |start: &str| text.lines().filter(|l| l.starts_with(start)).count();
    let writes = |e: &&Event| matches!(e, Event::Access { flags, .. } if flags.write());
    let stores = all.iter().filter(writes).count();
    // Accesses over 64 bytes or across two neighbourhoods become several, so there may be a few
    // more.
    let expected = lines(" S ") + lines(" M ");
    assert!(
        expected > 1000 && stores >= expected && stores < expected + expected / 100 + 10,
        "{stores} {expected}"
    );
    let insns: usize = all
        .iter()
        .map(|e| if let Event::Fetch { insns, .. } = e { usize::from(*insns) } else { 0 })
        .sum();
    assert_eq!(insns, lines("I  "));
}
