//! The conditions of a measurement: the number of cores, the load, huge pages of the host under the
//! memory, and faults and preemptions by the host's kernel.
//!
//! A figure of a shared machine needs them beside it. They are read from the system; what it does
//! not report is `None`, never a guess.

use std::fs::read_to_string;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Load averages over one and five minutes.
pub fn load() -> Option<[f64; 2]> {
    let text = read_to_string("/proc/loadavg").ok()?;
    let mut words = text.split_whitespace();
    Some([words.next()?.parse().ok()?, words.next()?.parse().ok()?])
}

/// Cores this process may run on.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Bytes of memory that can be had without pushing others out.
pub fn available() -> Option<u64> {
    field(&read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// Bytes that this process's control group may still take; without a limit, all there are.
pub fn left_to_group() -> u64 {
    let number = |path: &str| read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let left = |most: &str, taken: &str| Some(number(most)?.saturating_sub(number(taken)?));
    let second = left("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current");
    let first = || {
        let folder = "/sys/fs/cgroup/memory/memory";
        left(&format!("{folder}.limit_in_bytes"), &format!("{folder}.usage_in_bytes"))
    };
    second.or_else(first).unwrap_or(u64::MAX)
}

/// Bytes inside `range` that the host keeps on huge pages.
pub fn huge_bytes(range: Range<u64>) -> Option<u64> {
    bytes_in(&read_to_string("/proc/self/smaps").ok()?, range, "AnonHugePages:")
}

/// The same of shared memory and of files: bytes that huge pages map, not those that lie in one and
/// are mapped page by page.
pub fn shared_huge_bytes(range: Range<u64>) -> Option<u64> {
    shared_huge_in(&read_to_string("/proc/self/smaps").ok()?, range)
}

fn shared_huge_in(smaps: &str, range: Range<u64>) -> Option<u64> {
    let found = ["ShmemPmdMapped:", "FilePmdMapped:"]
        .into_iter()
        .filter_map(|name| bytes_in(smaps, range.clone(), name));
    found.reduce(|a, b| a + b)
}

/// When the host takes huge pages for shared memory that no file system was told of: the chosen
/// one of the words it offers.
pub fn shared_huge_setting() -> Option<String> {
    let words = read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled").ok()?;
    chosen(&words).map(str::to_owned)
}

/// The word in brackets.
fn chosen(words: &str) -> Option<&str> {
    words.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']'))
}

/// Bytes inside `range` that are resident; pages of zeros are not.
pub fn resident_bytes(range: Range<u64>) -> Option<u64> {
    bytes_in(&read_to_string("/proc/self/smaps").ok()?, range, "Rss:")
}

/// The sum of a field of such a text: mappings are listed by a line `from-to rights ...`, followed
/// by their fields.
fn bytes_in(smaps: &str, range: Range<u64>, name: &str) -> Option<u64> {
    let mut inside = false;
    let mut sum = None;
    for line in smaps.lines() {
        if let Some((from, to)) = line.split(' ').next().and_then(|w| w.split_once('-'))
            && let (Ok(from), Ok(to)) = (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16))
        {
            inside = from < range.end && range.start < to;
        } else if inside && let Some(bytes) = field(line, name) {
            sum = Some(sum.unwrap_or(0) + bytes);
        }
    }
    sum
}

/// `NAME: 123 kB` in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Faults without I/O that the host's kernel has served to this thread so far.
pub fn host_faults() -> u64 {
    usage().map_or(0, |u| u.ru_minflt as u64)
}

/// How often this thread has lost its core to another so far, without having asked for it.
pub fn interruptions() -> u64 {
    usage().map_or(0, |u| u.ru_nivcsw as u64)
}

fn usage() -> Option<libc::rusage> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    #[cfg(target_os = "linux")]
    let who = libc::RUSAGE_THREAD;
    #[cfg(not(target_os = "linux"))]
    let who = libc::RUSAGE_SELF;
    // SAFETY: the call writes one whole structure where the pointer says, or fails.
    let failed = unsafe { libc::getrusage(who, usage.as_mut_ptr()) } != 0;
    // SAFETY: it did not fail.
    (!failed).then(|| unsafe { usage.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    #[test]
    fn first_touches_of_memory_are_counted_and_second_ones_are_not() {
        let memory = Memory::new(4 << 20, false).unwrap();
        let before = host_faults();
        memory.warm();
        let first = host_faults() - before;
        memory.warm();
        let second = host_faults() - before - first;
        assert!(first > 0, "no fault for 1024 pages");
        assert!(second <= 2, "{second} faults for memory that was warm");
    }

    #[test]
    fn huge_pages_are_summed_over_the_mappings_that_touch_the_range() {
        let text = "1000-3000 rw-p 0 00:00 0\nRss: 8 kB\nAnonHugePages:      2 kB\n\
                    3000-5000 rw-p 0 00:00 0 [heap]\nAnonHugePages:      4 kB\n\
                    9000-a000 r--p 0 00:00 0\nAnonHugePages: 8 kB\n";
        assert_eq!(bytes_in(text, 0x2000..0x4000, "AnonHugePages:"), Some(6 << 10));
        assert_eq!(bytes_in(text, 0x6000..0x7000, "AnonHugePages:"), None);
        assert_eq!(bytes_in(text, 0x2000..0x4000, "Rss:"), Some(8 << 10));
    }

    #[test]
    fn shared_huge_pages_are_those_of_memory_and_of_files() {
        let text = "1000-3000 rw-s 0 00:01 7\nAnonHugePages: 8 kB\nShmemPmdMapped: 2 kB\n\
                    FilePmdMapped: 4 kB\n";
        assert_eq!(shared_huge_in(text, 0x1000..0x3000), Some(6 << 10));
        assert_eq!(shared_huge_in(text, 0x3000..0x4000), None);
        assert_eq!(chosen("always within_size advise [never] deny force\n"), Some("never"));
        assert_eq!(chosen("never"), None);
    }

    #[test]
    fn the_system_tells_its_load_and_memory() {
        if cfg!(target_os = "linux") {
            assert!(load().is_some_and(|l| l[0] >= 0.0) && available().is_some_and(|b| b > 0));
        }
        assert!(cores() >= 1);
    }
}
