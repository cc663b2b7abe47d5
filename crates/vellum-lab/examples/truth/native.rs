//! Programs run on this computer, in pairs of huge pages never and always.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::cases::Case;
use crate::statistics::{self, Estimate};

/// The variable that tells the programs which pages to ask for.
pub const PAGES: &str = "TRUTH_PAGES";
/// The variable that makes them small.
pub const SMALL: &str = "TRUTH_SMALL";

/// Where Linux says whether it gives huge pages.
const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// CPU seconds of one program, run by run.
#[derive(Clone, Default, Debug)]
pub struct Times {
    /// With 4 KiB pages.
    pub never: Vec<f64>,
    /// With huge pages.
    pub always: Vec<f64>,
}

impl Times {
    /// Time with huge pages over time without, pair by pair.
    pub fn ratio(&self) -> Estimate {
        let pairs = self.never.iter().zip(&self.always);
        statistics::of_median(&pairs.map(|(never, always)| always / never).collect::<Vec<_>>())
    }
    /// As JSON.
    pub fn to_json(&self) -> Value {
        json!({ "never": self.never, "always": self.always })
    }
    /// From what [`Times::to_json`] has made.
    pub fn from_json(value: &Value) -> Option<Times> {
        let list = |key: &str| -> Option<Vec<f64>> {
            value.get(key)?.as_array()?.iter().map(Value::as_f64).collect()
        };
        Some(Times { never: list("never")?, always: list("always")? })
    }
}

/// Whether this host can be measured; otherwise the line that says why not.
pub fn check() -> Result<(), String> {
    for name in [PAGES, SMALL] {
        if std::env::var_os(name).is_some() {
            return Err(format!("the variable {name} is set, and would be recorded; unset it"));
        }
    }
    let enabled = std::fs::read_to_string(ENABLED)
        .map_err(|e| format!("this kernel has no transparent huge pages ({ENABLED}: {e})"))?;
    if enabled.contains("[never]") {
        return Err(format!(
            "huge pages are off on this host; `echo madvise > {ENABLED}` as root turns them on"
        ));
    }
    Ok(())
}

/// Whether this is a virtual machine whose balloon reports free memory to its host. A huge page
/// that was reported costs a fault of the host when it is used again.
pub fn returns_free_memory() -> bool {
    // The number of the device, and its feature of free page reporting: virtio 1.2, 5.5.
    const BALLOON: &str = "0x0005";
    const REPORTING: usize = 5;
    let Ok(devices) = std::fs::read_dir("/sys/bus/virtio/devices") else { return false };
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    devices.flatten().map(|d| d.path()).any(|device| {
        read(device.join("device")).trim() == BALLOON
            && read(device.join("features")).as_bytes().get(REPORTING) == Some(&b'1')
    })
}

/// Runs a program once and gives the CPU seconds, user and system, of it and its children.
fn once(program: &Path, case: &Case, pages: &str) -> Result<f64, String> {
    let failed = |what: &dyn std::fmt::Display| format!("{} ({PAGES}={pages}): {what}", case.name);
    let child = Command::new(program)
        .args(case.args)
        .env(PAGES, pages)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| failed(&e))?;
    let pid = libc::pid_t::try_from(child.id()).map_err(|e| failed(&e))?;
    let mut status = 0;
    // SAFETY: rusage is plain data, all zeroes is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the child is ours and nobody else waits for it; both results are live.
    while unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } != pid {
        let e = std::io::Error::last_os_error();
        if e.kind() != std::io::ErrorKind::Interrupted {
            return Err(failed(&e));
        }
    }
    if status != 0 {
        return Err(failed(&format_args!("ended with status {status}")));
    }
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Ok(seconds(usage.ru_utime) + seconds(usage.ru_stime))
}

/// An interval that excludes 1 by less than this may do so by chance: of 17 intervals of 95 % about
/// one misses its median. Predictions have no part in it.
const CLOSE: f64 = 0.01;

/// Whether an interval excludes 1, and by little.
fn is_close(ratio: &Estimate) -> bool {
    let by = (ratio.low - 1.0).max(1.0 - ratio.high);
    by > 0.0 && by < CLOSE
}

/// Runs so many pairs, and twice as many again where their interval excludes 1 by little. Which one
/// of a pair is first changes from pair to pair. One run of each before them counts for nothing.
pub fn pairs(program: &Path, case: &Case, count: usize) -> Result<Times, String> {
    let mut times = Times::default();
    let mut wanted = count;
    for pair in 0.. {
        if times.never.len() == wanted {
            if wanted > count || !is_close(&times.ratio()) {
                break;
            }
            wanted = 3 * count;
        }
        let first = pair % 2;
        let mut seconds = [0.0; 2];
        for which in [first, 1 - first] {
            seconds[which] = once(program, case, ["never", "always"][which])?;
        }
        if pair > 0 {
            times.never.push(seconds[0]);
            times.always.push(seconds[1]);
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_close_that_excludes_one_by_less_than_a_percent() {
        let close = |low, high| is_close(&Estimate { value: (low + high) / 2.0, low, high });
        assert!(close(1.001, 1.010) && close(0.9, 0.995));
        assert!(!close(0.999, 1.010) && !close(1.011, 1.02) && !close(0.5, 0.98));
    }
}
