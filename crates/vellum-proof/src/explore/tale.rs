//! A run as text: one line for each access or call, one column for each CPU.

use std::cell::{Cell, RefCell};
use std::fmt::Write;

thread_local! {
    static TALE: RefCell<Option<Vec<(usize, String)>>> = const { RefCell::new(None) };
    static TELLS: Cell<bool> = const { Cell::new(false) };
}

/// From here on what happens is written down.
pub fn begin() {
    TALE.set(Some(Vec::new()));
    TELLS.set(true);
}

/// What follows is not worth telling.
pub fn stop() {
    TELLS.set(false);
}

/// Adds a line for the CPU that does something, if it is written down at all.
pub fn tell(cpu: usize, what: impl FnOnce() -> String) {
    if TELLS.get() {
        TALE.with_borrow_mut(|tale| tale.get_or_insert_default().push((cpu, what())));
    }
}

/// Ends it: a column for each CPU.
pub fn end(cpus: usize) -> String {
    const WIDTH: usize = 44;
    stop();
    let lines = TALE.take().unwrap_or_default();
    let mut text = String::new();
    for cpu in 0..cpus {
        let _ = write!(text, "{:WIDTH$}", format!("CPU {cpu}"));
    }
    text.push('\n');
    for (cpu, what) in lines {
        let _ = writeln!(text, "{:1$}{what}", "", cpu * WIDTH);
    }
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
