//! The pages in `docs/` say what the command does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::common::{Script, counters, shipped, vellum};

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn the_page_of_switches_is_what_the_command_prints() {
    assert_eq!(
        page("switches.md"),
        vellum(&["switches", "--markdown"]).out,
        "run `./run switches --markdown > docs/switches.md`"
    );
}

#[test]
fn the_page_of_counters_names_exactly_the_counters_there_are() {
    let text = page("json.md");
    let part = &text[text.find("## Counters of the library").expect("a heading")
        ..text.find("## Rows of the table").expect("a heading")];
    let documented: BTreeSet<String> = part
        .lines()
        .filter_map(|l| l.strip_prefix("| `"))
        .flat_map(|l| l.split('|').next().unwrap_or("").split(", ").collect::<Vec<_>>())
        .map(|n| n.trim_matches(|c| c == '`' || c == ' ').to_owned())
        .collect();
    let mut s = Script::new();
    let m = s.anon(4);
    s.touch(m, 0..4);
    let counted: BTreeSet<String> = counters(&s.file("documented.vt"), &["--machine", "tiny"])
        .remove(0)
        .keys()
        .cloned()
        .collect();
    assert_eq!(documented, counted);
}

/// The pages of the project, at its root and in `docs/`.
fn pages(root: &Path) -> Vec<PathBuf> {
    [root.to_path_buf(), root.join("docs")]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).expect("a folder"))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "md"))
        .collect()
}

/// What stands in backquotes.
fn quoted_in(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Paths in backquotes that end in `.rs`, `.md`, `.toml`, `.txt` or `/`.
fn paths_in(text: &str) -> impl Iterator<Item = &str> {
    let is_path = |quoted: &&str| {
        !quoted.contains(|c: char| c.is_whitespace() || "*<:".contains(c))
            && [".rs", ".md", ".toml", ".txt", "/"].iter().any(|end| quoted.ends_with(end))
    };
    quoted_in(text).filter(is_path)
}

/// Names in backquotes as only tests have them: of six words and more, or ending in `...`.
fn tests_in(text: &str) -> impl Iterator<Item = &str> {
    quoted_in(text).filter_map(|quoted| {
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let (name, rest) = quoted.split_at(quoted.find(|c| !is_word(c)).unwrap_or(quoted.len()));
        let words = name.split('_').count();
        match rest {
            "" if words >= 6 => Some(name),
            "..." if words >= 3 => Some(name),
            _ => None,
        }
    })
}

/// The sources below a folder, one after the other.
fn sources(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            all.push_str(&std::fs::read_to_string(&path).expect("a source"));
        }
    }
}

#[test]
fn every_test_that_a_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = String::new();
    sources(&root.join("crates"), &mut all);
    for page in pages(&root) {
        let text = std::fs::read_to_string(&page).expect("a page");
        let missing: Vec<&str> = tests_in(&text).filter(|name| !all.contains(name)).collect();
        assert!(missing.is_empty(), "{}: {missing:?}", page.display());
    }
    let found: Vec<&str> = tests_in("`a_b_c_d_e_f` a_b_c_d_e_g `a_b_c...` `a_b...`").collect();
    assert_eq!(found, ["a_b_c_d_e_f", "a_b_c"]);
}

#[test]
fn every_path_that_a_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // A page may leave out the crate that it is about, and `src`.
    let mut folders = vec![root.clone(), root.join("docs"), root.join("crates")];
    for entry in std::fs::read_dir(root.join("crates")).expect("a folder") {
        let folder = entry.expect("an entry").path();
        folders.extend([folder.join("src"), folder.join("src/repro"), folder]);
    }
    for page in pages(&root) {
        let text = std::fs::read_to_string(&page).expect("a page");
        let missing: Vec<&str> = paths_in(&text)
            .filter(|path| !folders.iter().any(|folder| folder.join(path).exists()))
            .collect();
        assert!(missing.is_empty(), "{}: {missing:?}", page.display());
    }
    assert_eq!(paths_in("`a.rs` b.rs `c d.rs` `e/`").collect::<Vec<_>>(), ["a.rs", "e/"]);
}

/// `Arora 2025` of a machine file is a row there; nothing else stands for a posting.
#[test]
fn every_posting_that_a_machine_file_names_is_in_the_page_of_sources() {
    let page = page("sources.md");
    let known: BTreeSet<&str> = page
        .lines()
        .filter_map(|l| l.strip_prefix("| ")?.split(" | ").next())
        .filter(|short| short.ends_with(|c: char| c.is_ascii_digit()))
        .collect();
    assert_eq!(known.len(), 6);
    let mut named: BTreeSet<&str> = BTreeSet::new();
    for machine in vellum_sim::file::presets() {
        let said = vellum(&["machines", machine]).out;
        named.extend(known.iter().copied().filter(|short| said.contains(short)));
        assert!(said.ends_with("docs/sources.md\n"), "{machine}");
        let words: Vec<&str> = said.split_whitespace().collect();
        for pair in words.windows(2) {
            let word = pair[0].trim_matches(|c: char| !c.is_alphanumeric());
            let note = word.len() == 3 && word.starts_with(|c: char| ('A'..='G').contains(&c));
            assert!(!(note && word.contains('.')), "{machine}: a note outside of the tree: {word}");
            assert!(pair != ["posting", "000"] && pair[0] != "[S]", "{machine}");
        }
    }
    assert_eq!(named.len(), 4, "FreeBSD's names no machine, nor does a held-out one: {named:?}");
}

/// `before -> after`: `9 > 1` reads as "9 is more than 1".
#[test]
fn no_page_writes_a_change_as_a_comparison() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let is_figure = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    for page in pages(&root) {
        let text = std::fs::read_to_string(&page).expect("a page");
        let words: Vec<&str> = text.split_whitespace().collect();
        let found = words.windows(3).find(|w| w[1] == ">" && is_figure(w[0]) && is_figure(w[2]));
        assert!(found.is_none(), "{}: {found:?}", page.display());
    }
    // What the experiments print, but for the redirection that writes a page.
    let mut all = String::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/repro"), &mut all);
    let is_quoted = |line: &str, at: usize| line[..at].matches('"').count() % 2 == 1;
    let found = all
        .lines()
        .filter(|line| !line.contains("--markdown"))
        .find(|line| line.find(" > ").is_some_and(|at| is_quoted(line, at)));
    assert_eq!(found, None);
}

#[test]
fn the_page_of_counters_says_what_each_row_is_made_of() {
    use vellum_lab::report::{GROUPS, Group, SCREEN};
    let text = page("json.md");
    let part = &text[text.find("## Rows of the table").expect("a heading")
        ..text.find("## `native`").expect("a heading")];
    let screen = Group { title: "first screen", rows: SCREEN };
    let rows = GROUPS.iter().chain([&screen]).flat_map(|g| g.rows.iter().map(|r| (g.title, r)));
    let expected: Vec<String> = rows
        .map(|(title, row)| {
            let counters: Vec<String> =
                [Some(row.counter), row.and].iter().flatten().map(|c| format!("`{c}`")).collect();
            format!("| {title} | {} | {} |", row.label.trim_start(), counters.join(" + "))
        })
        .collect();
    let written: Vec<&str> = part.lines().filter(|l| l.starts_with("| ")).skip(1).collect();
    assert_eq!(written, expected);
}

#[test]
fn the_sweep_of_the_page_about_machine_files_runs() {
    let page = page("machine-format.md");
    let line = page.lines().find(|l| l.contains(" --sweep ") && l.starts_with("./run"));
    let words: Vec<&str> = line.expect("an example").split_whitespace().skip(1).collect();
    let trace = shipped("python-store.vt");
    let at_home = |word: &&str| match word.strip_prefix("traces/") {
        Some(_) => trace.to_str().expect("a name of ours").to_owned(),
        None => (*word).to_owned(),
    };
    let args: Vec<String> = words.iter().map(at_home).chain(["--json".to_owned()]).collect();
    let said = vellum(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(said.code, Some(0), "{}", said.err);
    let doc: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    let columns = doc["variants"].as_array().expect("variants");
    let names: Vec<&str> = columns.iter().filter_map(|c| c["name"].as_str()).collect();
    assert_eq!(names, ["llc.size=8M", "llc.size=16M", "llc.size=32M"]);
    let misses: Vec<i64> =
        columns.iter().filter_map(|c| c["counters"]["llc_misses_demand"].as_i64()).collect();
    assert!(misses.is_sorted_by(|a, b| a > b), "a larger cache misses less: {misses:?}");
    assert!(columns.iter().all(|c| c["switches"] == columns[0]["switches"]));
}

#[test]
fn the_page_about_switches_quotes_the_sources() {
    let page = page("policy.md");
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vellum/src");
    let mut all = String::new();
    sources(&library, &mut all);
    let blocks: Vec<&str> = page
        .split("```rust\n")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("```")?.0))
        .collect();
    let unknown: Vec<&&str> = blocks.iter().filter(|block| !all.contains(**block)).collect();
    assert!(unknown.is_empty() && blocks.len() == 4, "{unknown:?}");
    let lines: usize = blocks[..3].iter().map(|block| block.lines().count()).sum();
    assert!(lines == 11 && page.contains("## Eleven lines"), "{lines}");
}

#[test]
fn every_row_of_the_table_is_a_counter() {
    let mut s = Script::new();
    let m = s.anon(4);
    s.touch(m, 0..4);
    let counted = counters(&s.file("rows.vt"), &["--machine", "tiny"]).remove(0);
    let rows =
        vellum_lab::report::GROUPS.iter().flat_map(|g| g.rows).chain(vellum_lab::report::SCREEN);
    for row in rows {
        assert!(counted.contains_key(row.counter), "{}", row.counter);
        assert!(row.and.is_none_or(|n| counted.contains_key(n)), "{:?}", row.and);
        assert!(row.label.chars().count() <= 25, "{}", row.label);
    }
}

#[test]
fn every_machine_runs_and_is_listed() {
    let list = vellum(&["machines"]).out;
    let mut s = Script::new();
    let m = s.anon(600);
    s.touch(m, 0..600);
    let file = s.file("every.vt");
    for name in vellum_sim::file::presets() {
        assert!(list.contains(name));
        for c in counters(&file, &["--machine", name, "--vs", "thp=always"]) {
            assert_eq!(crate::common::count(&c, "frames_lost"), 0, "{name}");
        }
        assert_eq!(vellum(&["machines", name]).code, Some(0));
    }
}

#[test]
fn a_table_fits_the_page_and_says_what_was_checked() {
    let mut s = Script::new();
    let m = s.anon(600);
    s.touch(m, 0..600);
    s.native =
        Some(vellum_trace::NativeRun { minor_faults: 1200, thp_off: true, ..Default::default() });
    let file = s.file("table.vt");
    let vs = [
        "--vs",
        "thp=always",
        "--vs",
        "thp=always,tlb.batch=off,zero.page=off",
        "--vs",
        "numa=interleave",
    ];
    let args: Vec<&str> =
        ["run", "--trace", file.path(), "--machine", "tiny", "--set", "thp=never"]
            .iter()
            .chain(&vs)
            .copied()
            .collect();
    let said = vellum(&args);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.lines().all(|l| l.chars().count() <= 100), "{}", said.out);
    for words in [
        "modelled cycles",
        "0 stale",
        "0 frames lost",
        "accesses/s",
        "more than 5 % off",
        "base: Linux's choices: thp=never, clear.unit=page,",
        "vellum: this library's own choices, as the base but clear.unit=extent,",
        "from remote nodes",
    ] {
        assert!(said.out.contains(words), "`{words}` in:\n{}", said.out);
    }
}

/// Also where `--vs` asks for Linux's own value, and the base has the default instead.
#[test]
fn the_line_of_the_base_names_what_is_asked_about() {
    let file = Script::new().file("asked.vt");
    for (asked, base) in
        [("cow.huge=split", "cow.huge=copy"), ("clear.unit=page", "clear.unit=extent")]
    {
        let said = vellum(&["run", "--trace", file.path(), "--machine", "tiny", "--vs", asked]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let at = said.out.find("base: Linux's choices: ").expect("a line of the base");
        let line = said.out[at..].split("vellum: ").next().unwrap_or_default();
        assert!(line.contains(base), "{}", said.out);
    }
}

/// The README quotes three programs of docs/truth.md, which is generated.
#[test]
fn the_readme_has_the_ratios_that_the_page_of_truth_has() {
    let (readme, truth) = (page("../README.md"), page("truth.md"));
    for program in ["table", "transpose", "touch-sparse"] {
        let row = truth.lines().find(|l| l.starts_with(&format!("| {program} | ")));
        let cells: Vec<&str> = row.expect("a row").split('|').map(str::trim).collect();
        let ratio = |cell: &str| {
            let number = cell.split_whitespace().next().and_then(|n| n.parse::<f64>().ok());
            format!("{:.2}", number.expect("a ratio"))
        };
        let quoted = format!(" | {} | {} |\n", ratio(cells[2]), ratio(cells[3]));
        assert!(readme.contains(&quoted), "{program}:{quoted}");
    }
}
