//! `vellum switches`: the table of switches, as text, JSON, or the page `docs/switches.md`.

use std::fmt::Write as _;

use serde_json::json;
use vellum_trace::Header;

use super::output::{print, print_json};
use crate::cli::SwitchesArgs;
use crate::error::LabError;
use crate::switches::{linux, switches};
use crate::text;

/// Prints the list.
pub fn run(args: &SwitchesArgs) -> Result<(), LabError> {
    if args.json {
        let list: Vec<_> = switches()
            .map(|s| {
                let values: Vec<&str> = s.values.split('|').collect();
                json!({
                    "name": s.name, "values": values, "default": s.default, "trades": s.trades,
                })
            })
            .collect();
        return print_json(&list);
    }
    print(&if args.markdown { markdown() } else { list() })
}

fn list() -> String {
    let mut out =
        String::from("Switches, for --set and --vs. The default is the best known choice.\n\n");
    for s in switches() {
        let _ = writeln!(out, "  {:<12} {:<34} default {}", s.name, s.values, s.default);
        for line in text::wrapped(s.trades, 80) {
            let _ = writeln!(out, "               {line}");
        }
    }
    out
}

/// What `collapse.scan` and `file.folios` do.
const OF_REPLAY: &str = "
`collapse.scan` is Linux's khugepaged. It scans each `collapse.sleep` of simulated time from when
the program has a page in memory that may be collapsed. With `thp=advise` the first scan comes at
once: Linux wakes khugepaged for the first such program, and few programs advise. With `thp=always`
it comes after one sleep. A scan goes on where the last one stopped. It counts 512 pages for each
2 MiB, whatever is there: 4096 are 16 MiB. It makes a huge page

- of private anonymous memory of one mapping that may have huge pages by `thp` and its own advice,
- if a page is there that may be written, zeros apart,
- if at most `collapse.none` of the 512 pages are missing, zeros among them,
- and if at most 256 are shared with a forked child.

If there is no free block of 2 MiB, the scan waits for a minute, and ends where that happens again.
The CPU that first comes to the time of a scan does it between two slices, as work of the kernel.

In the base, `collapse.scan`, `collapse.sleep` and `collapse.none` are `pages_to_scan`,
`scan_sleep_millisecs` and `max_ptes_none` of the recorded host. Where a trace does not have one of
them, or no value of it, the base has Linux's default: 4096, 10000 and 511. A host that did not
sleep (0) is taken for one that slept 1 ms.

Linux collapses files and shared memory, too, where it is set to. A trace does not say when the next
scan of khugepaged would have been, and what else it had to scan: this program has all of it. Nor
does a trace have the time that a program sleeps.

`file.folios` is what Linux 6.18 does with files on ext4 and XFS. Its page cache keeps a file in
folios. A fault on a page maps all of its folio, if that lies in the mapping and in one table of
entries: a load at least the 64 KiB around it, a store in a shared mapping, a copy never. A write
makes folios as long as it is, up to 2 MiB, where they are aligned. A fault on a page that the cache
does not have reads ahead, page by page at first; if the program comes to the next part, that has
folios of 4 pages, and so on. What was there before the program began counts as kept page by page.
Mapping and unmapping a folio cost as much as a page does. In the base, the size is what the
recorded host reads ahead, if its faults map folios. Files in memory (tmpfs) are taken for others.
";

/// The page `docs/switches.md`, which a test compares with this.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Switches\n\n\
         A switch has one name everywhere: in `--set SWITCH=VALUE` and `--vs SWITCH=VALUE,...` of\n\
         `vellum run`, and as a field of `vellum::config::Config`. Only those named\n\
         `collapse.*` and `file.folios` are of `vellum run` alone: the library has no thread of\n\
         its own, and no folios. This page is what `vellum switches --markdown` prints; a test\n\
         compares the two.\n\n\
         The base of a table has Linux's choices (below), its last column the library's own,\n\
         which are the defaults. `--set` changes every column. Each `--vs` adds one: the base\n\
         with those switches changed. If a switch appears only in `--vs`, and always with the\n\
         value that the base has, the base has another instead: the plain one, which leaves the\n\
         mechanism out (never, off, local, 4), or, if that is what was asked for, the default. So\n\
         beside `--vs cow.huge=split` the base has `cow.huge=copy`. The line `base:` below a\n\
         table names its values.\n\n\
         | switch | values | default | what it trades |\n|---|---|---|---|\n",
    );
    for s in switches() {
        let values = s.values.replace('|', "\\|");
        let _ = writeln!(out, "| `{}` | `{}` | `{}` | {} |", s.name, values, s.default, s.trades);
    }
    out += "\nLinux's choices are the defaults but for the following. `thp`, `object.huge` and\n\
            `zero.huge` are as the recorded host had them (`enabled`, `shmem_enabled`,\n\
            `use_zero_page`), `collapse.*` as its khugepaged was set, and as here where a trace\n\
            does not say. Two things that Linux does have no switch: it compacts memory at a\n\
            fault (`defrag`, which a trace tells), and has large pages below 2 MiB.\n\n";
    let linux = linux(&Header::default());
    for (s, (name, value)) in switches().zip(&linux.values) {
        if s.default != *value {
            let _ = writeln!(out, "- `{name}={value}`");
        }
    }
    out += OF_REPLAY;
    out
}
