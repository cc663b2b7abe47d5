//! Import of valgrind's lackey (`valgrind --tool=lackey --trace-mem=yes`).
//!
//! Lackey prints a line for each access: `I addr,size`, ` L addr,size`, ` S addr,size`, ` M
//! addr,size` (a load and a store of the same bytes). Lines of valgrind itself begin with `==` and
//! are skipped, as is what a program prints in between if it does not look like an access. Lackey
//! serialises threads without naming them, and says nothing of memory calls: everything belongs to
//! one thread, and mappings are 2 MiB neighbourhoods made at first touch. Consecutive instructions
//! in one 64-byte line become one fetch.
use crate::build::Builder;
use crate::event::Flags;
use crate::totals::Totals;
use crate::{LINE, TraceError, TraceWriter};
use std::io::{BufRead, Write};

/// What is being done where the text, and not the trace, is at fault for a [`TraceError::Io`].
pub const READING: &str = "reading lackey's text";
/// Longest line looked at; a longer one is not lackey's.
const MAX_LINE: usize = 256;
/// Lines without a single access after which the input is refused.
const PATIENCE: u64 = 10_000;

enum Kind {
    Fetch,
    Load,
    Store,
    Modify,
}

enum Line {
    Access(Kind, u64, u64),
    Other,
    Bad(&'static str),
}

fn parse(line: &[u8]) -> Line {
    let (kind, rest) = match line {
        [b'I', b' ', b' ', rest @ ..] => (Kind::Fetch, rest),
        [b' ', b'L', b' ', rest @ ..] => (Kind::Load, rest),
        [b' ', b'S', b' ', rest @ ..] => (Kind::Store, rest),
        [b' ', b'M', b' ', rest @ ..] => (Kind::Modify, rest),
        _ => return Line::Other,
    };
    let Some(text) = std::str::from_utf8(rest).ok() else {
        return Line::Other;
    };
    let Some((addr, size)) = text.trim_end().split_once(',') else {
        return Line::Bad("an access without a comma between address and size");
    };
    let Ok(addr) = u64::from_str_radix(addr, 16) else {
        return Line::Bad("an address that is not hexadecimal");
    };
    match size.parse::<u64>() {
        Ok(0) => Line::Bad("an access of 0 bytes"),
        Ok(size) if size <= 4096 => Line::Access(kind, addr, size),
        Ok(_) => Line::Bad("an access of more than 4096 bytes"),
        Err(_) => Line::Bad("a size that is not a number"),
    }
}

/// Reads one line into `buf` without its end; longer ones are cut. `false` at the end of input.
fn read_line(from: &mut impl BufRead, buf: &mut Vec<u8>) -> Result<bool, TraceError> {
    buf.clear();
    let mut any = false;
    loop {
        let chunk = match from.fill_buf() {
            Ok(c) => c,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(TraceError::io(READING)(e)),
        };
        if chunk.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = chunk.iter().position(|b| *b == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        buf.extend_from_slice(&part[..part.len().min(MAX_LINE - buf.len())]);
        let used = part.len() + usize::from(end.is_some());
        from.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// An instruction line being collected.
#[derive(Default)]
struct Run {
    line: u64,
    insns: u8,
}

fn flush<W: Write>(b: &mut Builder<W>, run: &mut Run) -> Result<(), TraceError> {
    if run.insns > 0 {
        b.fetch(run.line * LINE, std::mem::take(&mut run.insns))?;
    }
    Ok(())
}

fn access<W: Write>(
    b: &mut Builder<W>,
    addr: u64,
    size: u64,
    flags: Flags,
) -> Result<(), TraceError> {
    // Block stores of more than 64 bytes (fxsave and the like) come as several accesses.
    let mut at = addr;
    let mut left = size;
    while left > 0 {
        let n = left.min(64);
        b.access(at, n as u8, flags)?;
        at = at.wrapping_add(n);
        left -= n;
    }
    Ok(())
}

/// Converts lackey's text into a trace and finishes it.
///
/// A line of instructions is written before the accesses of its last instruction's successors; an
/// instruction's own accesses follow its line.
///
/// # Errors
/// [`TraceError::BadText`] for a line that is an access but cannot be read, or if there is none at
/// all; [`TraceError::Io`].
pub fn import<R: BufRead, W: Write>(
    mut from: R,
    writer: TraceWriter<W>,
) -> Result<(Totals, W), TraceError> {
    let mut b = Builder::new(writer, None);
    let thread = b.start_thread()?;
    b.switch(thread)?;
    let mut buf = Vec::with_capacity(MAX_LINE);
    let mut run = Run::default();
    let (mut number, mut seen) = (0u64, 0u64);
    while read_line(&mut from, &mut buf)? {
        number += 1;
        match parse(&buf) {
            Line::Access(kind, addr, size) => {
                seen += 1;
                if addr >= crate::build::MAX_USER {
                    return Err(TraceError::BadText {
                        line: number,
                        what: "an address outside user memory",
                    });
                }
                match kind {
                    Kind::Fetch => {
                        if addr / LINE != run.line || run.insns == 64 {
                            flush(&mut b, &mut run)?;
                            run.line = addr / LINE;
                        }
                        run.insns += 1;
                    }
                    Kind::Load | Kind::Store | Kind::Modify => {
                        flush(&mut b, &mut run)?;
                        if !matches!(kind, Kind::Store) {
                            access(&mut b, addr, size, Flags::READ)?;
                        }
                        if !matches!(kind, Kind::Load) {
                            access(&mut b, addr, size, Flags::WRITE)?;
                        }
                    }
                }
            }
            Line::Other if seen == 0 && number >= PATIENCE => {
                return Err(TraceError::BadText {
                    line: number,
                    what: "no access in 10,000 lines",
                });
            }
            Line::Other => {}
            Line::Bad(what) => return Err(TraceError::BadText { line: number, what }),
        }
    }
    if seen == 0 {
        return Err(TraceError::BadText { line: number, what: "the text ends without an access" });
    }
    flush(&mut b, &mut run)?;
    b.end_thread(thread)?;
    b.finish()
}
