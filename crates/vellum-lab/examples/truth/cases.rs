//! What is run: programs of `scripts/truth-programs` and their arguments.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the programs are, seen from the project's root.
pub const FOLDER: &str = "scripts/truth-programs";

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it is called.
    pub name: &'static str,
    /// The program: the name of its file.
    pub program: &'static str,
    /// Its arguments.
    pub args: &'static [&'static str],
    /// What it does, for readers.
    pub what: &'static str,
    /// What the lab does not model and this program needs, if we know of something.
    pub lacks: Option<&'static str>,
}

const fn case(
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    what: &'static str,
) -> Case {
    Case { name, program, args, what, lacks: None }
}

/// Inferred. `core.mispredict` alone moves the modelled times of `table`, `graph` and `search` by 0
/// to 3 % of the measured ones (on one calibration, 2026-11-27).
const BRANCHES: &str = "behind a mispredicted branch only the next load waits for what the branch \
                        asked; a core begins the others anew, too, but those that it had begun on \
                        the wrong way are there by then, which no trace tells";
/// Inferred from the difference to `touch-dense`, whose pages are cold.
const WARM: &str = "frames that were given back a moment ago are warm for the kernel, too, and its \
                    prices are those of cold ones (inferred)";

/// What the model lacks of many streams.
const STREAMS: &str = "it writes to 256 places in turn. The model fetches ahead for each; a core \
                       does not where many of their pages meet in a set of a TLB, which was \
                       measured and is not understood";

/// All of them.
pub const CASES: &[Case] = &[
    case("stream-read", "stream", &["read"], "128 MiB read from end to end, 4 times"),
    case("stream-copy", "stream", &["copy"], "64 MiB copied to other 64 MiB and back, twice"),
    case("chase-128M", "chase", &["128", "4"], "4 million dependent loads in 128 MiB"),
    case("chase-4M", "chase", &["4", "20"], "20 million dependent loads in 4 MiB"),
    Case {
        lacks: Some(BRANCHES),
        ..case(
            "table",
            "table",
            &[],
            "a hash table of 128 MiB: 3 million inserts, 6 million lookups",
        )
    },
    case("update", "update", &[], "12 million words of 128 MiB changed, each at a random place"),
    case("graph", "graph", &[], "breadth-first search: 2 million vertices, 16 million edges"),
    case("transpose", "transpose", &[], "a matrix of 4096 x 4096 words turned round"),
    Case {
        lacks: Some(BRANCHES),
        ..case("search", "search", &[], "1 million binary searches in 128 MiB")
    },
    Case {
        lacks: Some(STREAMS),
        ..case("sort", "sort", &[], "3 passes of a radix sort over 32 MiB")
    },
    case("snapshot", "snapshot", &[], "128 MiB written while a child holds their old state"),
    case("zeros", "zeros", &[], "1 GiB that was never written, read twice"),
    case("touch-dense", "touch", &["64", "256", "1"], "256 MiB written once, each line"),
    case("touch-sparse", "touch", &["65536", "512", "8"], "a byte in each 64 KiB of 8 x 512 MiB"),
    Case {
        lacks: Some(WARM),
        ..case("churn-256K", "churn", &["256", "2000"], "2000 mappings of 256 KiB, filled")
    },
    Case {
        lacks: Some(WARM),
        ..case("churn-4M", "churn", &["4096", "128"], "128 mappings of 4 MiB, filled")
    },
    case("threads", "threads", &[], "2 threads fill 64 MiB each, then read in the other's"),
];

/// Compiles a program of the project in `root` into `folder`.
pub fn compile(root: &Path, program: &str, folder: &Path) -> Result<PathBuf, String> {
    let source = root.join(FOLDER).join(program).with_extension("c");
    let out = folder.join(program);
    let said = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .args([&out, &source])
        .output()
        .map_err(|e| format!("the C compiler `cc` does not start ({e}): install gcc"))?;
    if said.status.success() {
        return Ok(out);
    }
    let text = String::from_utf8_lossy(&said.stderr);
    Err(format!("{} does not compile:\n{}", source.display(), text.trim_end()))
}
