//! Counts instructions, with callgrind or else with the processor's counter.
//!
//! Callgrind comes first: its count is the same on every run and every computer, and it can leave
//! out the clearing of blocks. The program runs itself under callgrind, once for each row, and
//! callgrind collects inside [`measured`] only. Without valgrind, a hardware counter counts the
//! user-mode instructions of the same function, if the system grants one (few virtual machines have
//! one). It also counts an interrupt now and then, and cannot leave anything out.

use std::cell::RefCell;
use std::io;
use std::process::{Command, Stdio};

use perf_event::events::Hardware;
use perf_event::{Builder, Counter};

use super::flat::boot;
use super::rows::{Counted, ROWS};

thread_local! {
    /// The hardware counter of this thread, while a row is counted by it.
    static HARDWARE: RefCell<Option<Counter>> = const { RefCell::new(None) };
}

/// Runs the body of a row. Callgrind finds it by its name.
#[inline(never)]
pub fn measured(body: &mut dyn FnMut()) {
    switch(Counter::enable);
    body();
    switch(Counter::disable);
}

fn switch(how: fn(&mut Counter) -> io::Result<()>) {
    HARDWARE.with_borrow_mut(|counter| {
        if let Some(counter) = counter {
            how(counter).expect("a counter that was made can be switched");
        }
    });
}

/// How this computer can count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CountMethod {
    /// By callgrind.
    Callgrind,
    /// By the processor.
    Hardware,
}

impl CountMethod {
    /// The best way there is.
    pub fn best() -> Option<CountMethod> {
        let mut valgrind = Command::new("valgrind");
        let valgrind =
            valgrind.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if valgrind.is_ok_and(|s| s.success()) {
            Some(CountMethod::Callgrind)
        } else {
            Builder::new(Hardware::INSTRUCTIONS).build().ok().map(|_| CountMethod::Hardware)
        }
    }
    /// How to say it.
    pub fn name(self) -> &'static str {
        match self {
            CountMethod::Callgrind => "callgrind",
            CountMethod::Hardware => "the processor's counter",
        }
    }
}

/// Runs one row in this process; how many operations it did. This is what callgrind watches.
///
/// # Errors
/// There is no such row, or no memory for it.
pub fn once(row: usize) -> io::Result<u64> {
    let Some(Counted { run, size, .. }) = ROWS.get(row) else {
        let message = format!("there is no row {row}; rows are 0 to {}", ROWS.len() - 1);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    };
    Ok(run(&boot(*size)?.vm))
}

/// Instructions per operation of one row. `again` gives the command that makes this program run
/// [`once`] and print `operations: N`.
///
/// # Errors
/// The way does not work here after all.
pub fn count(
    way: CountMethod,
    row: usize,
    again: &(dyn Fn(usize) -> io::Result<Command> + Sync),
) -> io::Result<u64> {
    match way {
        CountMethod::Callgrind => by_callgrind(&again(row)?),
        CountMethod::Hardware => by_hardware(row),
    }
}

fn by_callgrind(program: &Command) -> io::Result<u64> {
    let out = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--toggle-collect=*instructions*count*measured*",
        ])
        // Entered while collecting, it ends that until it returns.
        .arg("--toggle-collect=*clear_block*")
        .arg(program.get_program())
        .args(program.get_args())
        .stdin(Stdio::null())
        .output()?;
    match (number(&out.stderr, "Collected : "), number(&out.stdout, "operations: ")) {
        (Some(all), Some(operations)) if out.status.success() && all > 0 => {
            Ok(all / operations.max(1))
        }
        _ => {
            let said = String::from_utf8_lossy(&out.stderr);
            let last = said.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("nothing");
            Err(io::Error::other(format!("valgrind gave no count; the last it said: {last}")))
        }
    }
}

/// The number behind some words in a program's output.
fn number(text: &[u8], before: &str) -> Option<u64> {
    let text = String::from_utf8_lossy(text);
    text.split(before).nth(1)?.split_whitespace().next()?.parse().ok()
}

fn by_hardware(row: usize) -> io::Result<u64> {
    counted_by(&Builder::new(Hardware::INSTRUCTIONS), row)
}

fn counted_by(what: &Builder<'_>, row: usize) -> io::Result<u64> {
    HARDWARE.set(Some(what.build()?));
    let operations = once(row);
    let counter = HARDWARE.take();
    let all = counter.map_or(Ok(0), |mut c| c.read())?;
    match all {
        0 => Err(io::Error::other("the processor's counter counted nothing")),
        all => Ok(all / operations?.max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event::events::Software;

    #[test]
    fn numbers_are_found_behind_their_words() {
        assert_eq!(number(b"==7== Collected : 1234 x", "Collected : "), Some(1234));
        assert_eq!(number(b"==7== Collected : ", "Collected : "), None);
    }

    #[test]
    fn every_row_does_what_it_says() {
        for (row, counted) in ROWS.iter().enumerate() {
            assert!(once(row).unwrap() > 0, "{}", counted.name);
        }
        assert!(once(ROWS.len()).is_err());
    }

    #[test]
    fn a_counter_of_the_system_counts_what_is_measured() {
        // Nanoseconds, since the counter of instructions is missing on most virtual machines; the
        // way is the same.
        let clock = Builder::new(Software::TASK_CLOCK);
        match clock.build() {
            Ok(_) => assert!(counted_by(&clock, 0).unwrap() > 0),
            Err(e) => eprintln!("skipped: this system grants no counters ({e})"),
        }
    }
}
