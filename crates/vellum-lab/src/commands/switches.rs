//! `vellum switches`: the library's table of switches, as text, JSON, or the page
//! `docs/switches.md`.

use std::fmt::Write as _;

use serde_json::json;
use vellum::config::SWITCHES;
use vellum_trace::Header;

use super::output::{print, print_json};
use crate::cli::SwitchesArgs;
use crate::error::LabError;
use crate::switches::linux;
use crate::text;

/// Prints the list.
pub fn run(args: &SwitchesArgs) -> Result<(), LabError> {
    if args.json {
        let list: Vec<_> = SWITCHES
            .iter()
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
    for s in SWITCHES {
        let _ = writeln!(out, "  {:<12} {:<34} default {}", s.name, s.values, s.default);
        for line in text::wrapped(s.trades, 80) {
            let _ = writeln!(out, "               {line}");
        }
    }
    out
}

/// The page `docs/switches.md`, which a test compares with this.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Switches\n\n\
         A switch has one name everywhere: in `--set SWITCH=VALUE` and `--vs SWITCH=VALUE,...` of\n\
         `vellum run`, and as a field of `vellum::config::Config`. This page is what\n\
         `vellum switches --markdown` prints; a test compares the two.\n\n\
         The base of a table has Linux's choices (below), its last column the library's own,\n\
         which are the defaults. `--set` changes every column. Each `--vs` adds one: the base\n\
         with those switches changed. If a switch appears only in `--vs`, and always with the\n\
         value that the base has, the base has its plain value instead (never, off, local, 4).\n\n\
         | switch | values | default | what it trades |\n|---|---|---|---|\n",
    );
    for s in SWITCHES {
        let values = s.values.replace('|', "\\|");
        let _ = writeln!(out, "| `{}` | `{}` | `{}` | {} |", s.name, values, s.default, s.trades);
    }
    out += "\nLinux's choices are the defaults but for the following. `thp`, `object.huge` and\n\
            `zero.huge` are as the recorded host had them (`enabled`, `shmem_enabled`,\n\
            `use_zero_page`), and as here where a trace does not say. Three things that Linux\n\
            does have no switch: it collapses pages in the background, compacts memory at a\n\
            fault (`defrag`, which a trace tells), and has large pages below 2 MiB.\n\n";
    let linux = linux(&Header::default());
    for (s, (name, value)) in SWITCHES.iter().zip(&linux.values) {
        if s.default != value {
            let _ = writeln!(out, "- `{name}={value}`");
        }
    }
    out
}
