//! Who was recorded, how, and what the same program cost natively.
//!
//! The native run happens before the recorded one, so everything is known when the header is
//! written and a reader has it after the first kilobyte, from a pipe too. Fields are tagged: a
//! later writer may add tags that an older reader of the same version skips.
use crate::varint::{Bytes, put};

/// Which tool produced the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recorder {
    /// Our plugin in QEMU's user mode.
    #[default]
    Qemu,
    /// Imported from valgrind's lackey.
    Lackey,
    /// Made by a program (tests, synthetic workloads).
    Made,
}

/// What one native run of the same command cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NativeRun {
    /// Minor page faults, with transparent huge pages switched off for the process.
    pub minor_faults: u64,
    /// Major page faults.
    pub major_faults: u64,
    /// Largest resident set, bytes.
    pub peak_rss: u64,
    /// User time, microseconds.
    pub user_us: u64,
    /// System time, microseconds.
    pub system_us: u64,
    /// Elapsed time, microseconds.
    pub wall_us: u64,
    /// Were transparent huge pages off during the run?
    pub thp_off: bool,
}

/// Files of `/sys/kernel/mm/transparent_hugepage/khugepaged` of the recording host, as they read;
/// empty if unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Khugepaged {
    /// `scan_sleep_millisecs`: time from a scan to the next.
    pub scan_sleep_millisecs: String,
    /// `pages_to_scan`: what a scan looks at.
    pub pages_to_scan: String,
    /// `max_ptes_none`: how many pages of a huge page may be missing.
    pub max_ptes_none: String,
}

/// The beginning of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// Command line, program first.
    pub command: Vec<String>,
    /// What produced the events.
    pub recorder: Recorder,
    /// Instruction set of the recorded program, as `uname -m` names it.
    pub arch: String,
    /// Bytes in a page of the recording host; 0 if unknown.
    pub page_size: u64,
    /// Kernel release of the recording host.
    pub host_kernel: String,
    /// `/sys/kernel/mm/transparent_hugepage/enabled` of the recording host, as it read.
    pub host_thp: String,
    /// `defrag` beside it: how hard the host looks for a huge page at a fault.
    pub host_thp_defrag: String,
    /// `use_zero_page` beside it: whether reads get a huge page of zeros.
    pub host_thp_zero_page: String,
    /// `shmem_enabled` beside it: as `enabled`, for shared memory.
    pub host_thp_shmem: String,
    /// What is set there of the collapse in the background.
    pub host_khugepaged: Khugepaged,
    /// How much the kernel reads ahead of a file, as `8192K`, where its faults map all that its
    /// cache keeps in one piece; empty where they map pages, or if unknown.
    pub host_folio_ahead: String,
    /// Sampling windows as the user wrote them; empty if every access was kept.
    pub window: String,
    /// Figures of the native run, if there was one.
    pub native: Option<NativeRun>,
}

/// A text from a file or a program with its control characters escaped: it may hold sequences that
/// a terminal obeys.
pub fn printable(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(escape).collect()
}

/// Most bytes an encoded header may have.
pub(crate) const MAX_HEADER: usize = 64 << 10;
/// Most arguments kept of a command line, and most bytes kept of one.
const MAX_ARGS: usize = 256;
const MAX_ARG: usize = 128;
const MAX_TEXT: usize = 1024;

const T_COMMAND: u64 = 1;
const T_RECORDER: u64 = 2;
const T_ARCH: u64 = 3;
const T_PAGE: u64 = 4;
const T_KERNEL: u64 = 5;
const T_THP: u64 = 6;
const T_WINDOW: u64 = 7;
const T_NATIVE: u64 = 8;
const T_THP_DEFRAG: u64 = 9;
const T_THP_ZERO_PAGE: u64 = 10;
const T_THP_SHMEM: u64 = 11;
const T_SCAN_SLEEP: u64 = 12;
const T_SCAN_PAGES: u64 = 13;
const T_SCAN_NONE: u64 = 14;
const T_FOLIO_AHEAD: u64 = 15;

fn clip(s: &str, max: usize) -> &str {
    let mut end = s.len().min(max);
    while !s.is_char_boundary(end) {
        end -= 1;
    }
    &s[..end]
}

fn field(out: &mut Vec<u8>, tag: u64, bytes: &[u8]) {
    put(out, tag);
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn text(b: &[u8]) -> Option<String> {
    String::from_utf8(b.to_vec()).ok()
}

impl Header {
    /// The header as bytes. Texts that are very long are cut (an argument at 128 bytes, 256
    /// arguments).
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for arg in self.command.iter().take(MAX_ARGS) {
            field(&mut out, T_COMMAND, clip(arg, MAX_ARG).as_bytes());
        }
        let recorder = match self.recorder {
            Recorder::Qemu => 0,
            Recorder::Lackey => 1,
            Recorder::Made => 2,
        };
        field(&mut out, T_RECORDER, &[recorder]);
        field(&mut out, T_ARCH, clip(&self.arch, MAX_TEXT).as_bytes());
        let mut page = Vec::new();
        put(&mut page, self.page_size);
        field(&mut out, T_PAGE, &page);
        field(&mut out, T_KERNEL, clip(&self.host_kernel, MAX_TEXT).as_bytes());
        field(&mut out, T_THP, clip(&self.host_thp, MAX_TEXT).as_bytes());
        for (tag, said) in [
            (T_THP_DEFRAG, &self.host_thp_defrag),
            (T_THP_ZERO_PAGE, &self.host_thp_zero_page),
            (T_THP_SHMEM, &self.host_thp_shmem),
            (T_SCAN_SLEEP, &self.host_khugepaged.scan_sleep_millisecs),
            (T_SCAN_PAGES, &self.host_khugepaged.pages_to_scan),
            (T_SCAN_NONE, &self.host_khugepaged.max_ptes_none),
            (T_FOLIO_AHEAD, &self.host_folio_ahead),
        ] {
            if !said.is_empty() {
                field(&mut out, tag, clip(said, MAX_TEXT).as_bytes());
            }
        }
        field(&mut out, T_WINDOW, clip(&self.window, MAX_TEXT).as_bytes());
        if let Some(n) = self.native {
            let mut v = Vec::new();
            for x in [
                n.minor_faults,
                n.major_faults,
                n.peak_rss,
                n.user_us,
                n.system_us,
                n.wall_us,
                u64::from(n.thp_off),
            ] {
                put(&mut v, x);
            }
            field(&mut out, T_NATIVE, &v);
        }
        out
    }

    /// The header from bytes; `None` if they are not one.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let mut h = Header::default();
        let mut b = Bytes::new(bytes);
        while !b.is_empty() {
            let tag = b.varint()?;
            let len = usize::try_from(b.varint()?).ok()?;
            let value = b.take(len)?;
            match tag {
                T_COMMAND if h.command.len() < MAX_ARGS => h.command.push(text(value)?),
                T_RECORDER => {
                    h.recorder = match value {
                        [0] => Recorder::Qemu,
                        [1] => Recorder::Lackey,
                        [2] => Recorder::Made,
                        _ => return None,
                    }
                }
                T_ARCH => h.arch = text(value)?,
                T_PAGE => h.page_size = Bytes::new(value).varint()?,
                T_KERNEL => h.host_kernel = text(value)?,
                T_THP => h.host_thp = text(value)?,
                T_THP_DEFRAG => h.host_thp_defrag = text(value)?,
                T_THP_ZERO_PAGE => h.host_thp_zero_page = text(value)?,
                T_THP_SHMEM => h.host_thp_shmem = text(value)?,
                T_SCAN_SLEEP => h.host_khugepaged.scan_sleep_millisecs = text(value)?,
                T_SCAN_PAGES => h.host_khugepaged.pages_to_scan = text(value)?,
                T_SCAN_NONE => h.host_khugepaged.max_ptes_none = text(value)?,
                T_FOLIO_AHEAD => h.host_folio_ahead = text(value)?,
                T_WINDOW => h.window = text(value)?,
                T_NATIVE => {
                    let mut v = Bytes::new(value);
                    h.native = Some(NativeRun {
                        minor_faults: v.varint()?,
                        major_faults: v.varint()?,
                        peak_rss: v.varint()?,
                        user_us: v.varint()?,
                        system_us: v.varint()?,
                        wall_us: v.varint()?,
                        thp_off: v.varint()? != 0,
                    });
                }
                _ => {}
            }
        }
        Some(h)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_native_figures_comes_back() {
        let h = Header {
            command: vec!["sqlite3".into(), ":memory:".into()],
            arch: "x86_64".into(),
            page_size: 4096,
            host_thp: "always [madvise] never".into(),
            host_thp_defrag: "always defer defer+madvise [madvise] never".into(),
            host_thp_zero_page: "1".into(),
            host_thp_shmem: "always within_size advise [never] deny force".into(),
            host_khugepaged: Khugepaged {
                scan_sleep_millisecs: "5000".into(),
                pages_to_scan: "512".into(),
                max_ptes_none: "0".into(),
            },
            host_folio_ahead: "8192K".into(),
            native: Some(NativeRun { minor_faults: 79_902, thp_off: true, ..NativeRun::default() }),
            ..Header::default()
        };
        assert_eq!(Header::decode(&h.encode()), Some(h));
    }

    #[test]
    fn an_unknown_tag_is_skipped_and_a_cut_header_is_refused() {
        let h = Header { arch: "x86_64".into(), ..Header::default() };
        let mut bytes = h.encode();
        field(&mut bytes, 99, b"later");
        assert_eq!(Header::decode(&bytes), Some(h));
        assert_eq!(Header::decode(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn a_very_long_argument_is_cut_at_a_character() {
        let h = Header { command: vec!["\u{e9}".repeat(5000)], ..Header::default() };
        let back = Header::decode(&h.encode()).expect("still a header");
        assert!(back.command[0].len() <= MAX_ARG);
        assert!(h.encode().len() < MAX_HEADER);
    }
}
