//! System calls that move bytes between a program and a file in memory: a file without a name, in
//! the temporary folder, of which nothing has to reach the disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use super::super::chase::{LINE, PAGE};
use super::super::figure::{Figure, fastest};
use super::settle;

/// Bytes of a short call, and of a long one.
const FEW: usize = 16;
const MANY: usize = 64 << 10;
/// Calls of a turn.
const TIMES: u64 = 512;

/// Times of calls on files in memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CallTimes {
    /// A read of 16 bytes.
    pub few: Figure,
    /// Each further line of a read of 64 KiB that caches hold.
    pub line: Figure,
    /// A write of 16 bytes over others.
    pub over: Figure,
    /// A write of 4 KiB at the end of a file.
    pub grow: Figure,
    /// Each page after the first of a write of 64 KiB there.
    pub add: Figure,
    /// A page that a shorter file loses with its neighbours.
    pub drop: Figure,
}

/// Measures; nothing where the temporary folder gives no such file.
pub(super) fn measure() -> Option<CallTimes> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills in our structure. Who writes more than is allowed is ended.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0;
    if !asked || limit.rlim_cur < TIMES * MANY as u64 {
        return None;
    }
    let mut unnamed = OpenOptions::new();
    unnamed.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
    times(&unnamed.open(std::env::temp_dir()).ok()?).ok()
}

fn times(file: &File) -> io::Result<CallTimes> {
    let mut buffer = vec![1; MANY];
    file.write_all_at(&buffer, 0)?;
    let mut reads = |bytes: usize| {
        let mut read = || file.read_exact_at(&mut buffer[..bytes], 0);
        read()?;
        settle(|| each(&mut read))
    };
    let (few, many) = (reads(FEW)?, reads(MANY)?);
    let line = share(many.beyond(few), MANY / LINE);
    let mut write = || file.write_all_at(&buffer[..FEW], 0);
    write()?;
    let over = settle(|| each(&mut write))?;
    let mut drops = Vec::new();
    let mut writes = |bytes: usize| {
        settle(|| {
            let mut end = 0;
            file.set_len(0)?;
            let ns = each(|| {
                end += bytes as u64;
                file.write_all_at(&buffer[..bytes], end - bytes as u64)
            })?;
            let pages = end as usize / PAGE;
            drops.push(fastest(1, pages, || drop(file.set_len(0))));
            Ok(ns)
        })
    };
    let (grow, long) = (writes(PAGE)?, writes(MANY)?);
    let add = share(long.beyond(grow), MANY / PAGE - 1);
    drops.sort_by(f64::total_cmp);
    let drop = Figure { ns: drops[0], spread: drops[1] / drops[0] - 1.0 };
    Ok(CallTimes { few, line, over, grow, add, drop })
}

/// The time of one of several.
fn share(Figure { ns, spread }: Figure, of: usize) -> Figure {
    Figure { ns: ns / of as f64, spread }
}

/// Nanoseconds of an act, one of many.
fn each(mut act: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let mut result = Ok(());
    let ns = fastest(1, TIMES as usize, || {
        for _ in 0..TIMES {
            if let (Ok(()), Err(e)) = (&result, act()) {
                result = Err(e);
            }
        }
    });
    result.map(|()| ns)
}
