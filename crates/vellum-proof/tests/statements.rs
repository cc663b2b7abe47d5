//! `docs/statements.md` and the sources agree on the numbered statements, in both directions.
//!
//! Each number that the sources use is defined on the page. Each statement of the page names a test
//! that exists, or says what is missing. Each test with a number in its name is listed under it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What the sources say about statements.
#[derive(Clone, Default)]
struct Sources {
    /// Numbers that comments and strings use, each with a file that uses it.
    ids: BTreeSet<(String, String)>,
    /// Test functions as `crate::function`.
    tests: BTreeSet<String>,
}

/// A statement as the page has it.
struct Statement<'p> {
    id: &'p str,
    /// `crate::function`, or `crate::start_of_name_...` for all that begin so.
    tests: Vec<&'p str>,
    /// Says what is not built or not tested.
    has_gap: bool,
}

impl Statement<'_> {
    fn lists(&self, test: &str) -> bool {
        self.tests.iter().any(|name| is_named_by(test, name))
    }
}

fn is_named_by(test: &str, name: &str) -> bool {
    match name.strip_suffix("...") {
        Some(start) => test.starts_with(start),
        None => test == name,
    }
}

fn statements(page: &str) -> Vec<Statement<'_>> {
    let mut found: Vec<Statement<'_>> = Vec::new();
    for line in page.lines() {
        if let Some((id, _)) = line.strip_prefix("**").and_then(|rest| rest.split_once("** ")) {
            found.push(Statement { id, tests: Vec::new(), has_gap: false });
        } else if let (Some(item), Some(last)) = (line.strip_prefix("- "), found.last_mut()) {
            if let Some(test) = item.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) {
                last.tests.push(test);
            }
            last.has_gap |= item.starts_with("not built: ") || item.starts_with("no test: ");
        }
    }
    found
}

/// The numbers of the statements in a text: `A-1`, `A-S2`.
fn ids_in(text: &str) -> impl Iterator<Item = String> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let bytes = text.as_bytes();
    (0..bytes.len()).filter_map(move |i| {
        let starts = matches!(bytes[i], b'A'..=b'G') && !(i > 0 && is_word(&bytes[i - 1]));
        let rest = bytes[i + 1..].strip_prefix(b"-").filter(|_| starts)?;
        let kind = usize::from(matches!(rest.first(), Some(b'S' | b'L')));
        let digits = rest[kind..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        (digits > 0).then(|| text[i..i + 2 + kind + digits].to_string())
    })
}

/// The numbers with which the name of a test begins: `a_02_a_04_...` has two.
fn ids_of(test: &str) -> Vec<String> {
    let mut words = test.split("::").last().unwrap_or(test).split('_');
    let mut ids = Vec::new();
    while let (Some(part @ ("a" | "b" | "c" | "d" | "e" | "f" | "g")), Some(word)) =
        (words.next(), words.next())
    {
        let number = word.trim_start_matches(['s', 'l']);
        let kind = &word[..word.len() - number.len()];
        let Ok(number) = number.parse::<u32>() else { break };
        ids.push(format!("{}-{}{number}", part.to_uppercase(), kind.to_uppercase()));
    }
    ids
}

/// The functions of a source file that are tests, and those that `on_both!(body, name)` makes.
fn tests_in(source: &str) -> impl Iterator<Item = &str> {
    let plain = source.split("#[test]").skip(1).filter_map(|after| {
        let line = after.lines().map(str::trim).find(|line| line.starts_with("fn "))?;
        line.strip_prefix("fn ")?.split('(').next()
    });
    let made = source.split("on_both!(").skip(1).filter_map(|after| {
        let name = after.split(')').next()?.split(',').nth(1)?;
        Some(name.trim())
    });
    plain.chain(made)
}

/// Every way in which the page and the sources differ.
fn differences(page: &str, sources: &Sources) -> Vec<String> {
    let statements = statements(page);
    let mut found = Vec::new();
    for (i, statement) in statements.iter().enumerate() {
        let id = statement.id;
        if statements[..i].iter().any(|earlier| earlier.id == id) {
            found.push(format!("{id} is defined twice"));
        }
        if statement.tests.is_empty() && !statement.has_gap {
            found.push(format!("{id} names no test and no gap"));
        }
        for name in &statement.tests {
            if !sources.tests.iter().any(|test| is_named_by(test, name)) {
                found.push(format!("{id} names {name}, which does not exist"));
            }
        }
    }
    for (id, file) in &sources.ids {
        if !statements.iter().any(|statement| statement.id == id) {
            found.push(format!("{file} uses {id}, which the page does not define"));
        }
    }
    for test in &sources.tests {
        for id in ids_of(test) {
            if !statements.iter().any(|statement| statement.id == id && statement.lists(test)) {
                found.push(format!("{id} does not list {test}"));
            }
        }
    }
    found
}

fn read_folder(folder: &Path, name: &str, sources: &mut Sources) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("target") {
                read_folder(&path, name, sources);
            }
        } else if path.extension().is_some_and(|kind| kind == "rs" || kind == "md") {
            read_file(&path, name, sources);
        }
    }
}

fn read_file(path: &Path, name: &str, sources: &mut Sources) {
    let text = fs::read_to_string(path).unwrap();
    let file = path.strip_prefix(root()).unwrap_or(path).display().to_string();
    sources.ids.extend(ids_in(&text).map(|id| (id, file.clone())));
    sources.tests.extend(tests_in(&text).map(|test| format!("{name}::{test}")));
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn page() -> String {
    fs::read_to_string(root().join("docs/statements.md")).unwrap()
}

fn sources() -> Sources {
    let mut sources = Sources::default();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap();
        read_folder(&folder.path(), folder.file_name().to_str().unwrap(), &mut sources);
    }
    read_folder(&root().join("kernel"), "kernel", &mut sources);
    read_file(&root().join("scripts/mutants.txt"), "scripts", &mut sources);
    sources
}

#[test]
fn every_statement_is_defined_once_and_names_its_tests_or_what_is_missing() {
    assert_eq!(differences(&page(), &sources()), [""; 0]);
}

#[test]
fn the_page_has_every_part() {
    let page = page();
    let ids: Vec<&str> = statements(&page).iter().map(|statement| statement.id).collect();
    let parts = [("A", 14), ("B", 12), ("C", 13), ("D", 16), ("E", 16), ("F", 14), ("G", 7)];
    for (part, last) in parts {
        for number in 1..=last {
            assert!(ids.contains(&&*format!("{part}-{number}")), "{part}-{number}");
        }
    }
}

#[test]
fn each_kind_of_difference_is_found() {
    let (page, sources) = (page(), sources());
    let planted = |page: &str, sources: &Sources, expected: &str| {
        let found = differences(page, sources);
        assert!(found.iter().any(|line| line.contains(expected)), "{expected}: {found:?}");
    };
    let with = |line: &str| format!("{page}\n{line}\n");

    let unknown = format!("A-{}", 99);
    let mut more = sources.clone();
    more.ids.extend(ids_in(&format!("// As {unknown} has it.")).map(|id| (id, "a.rs".into())));
    planted(&page, &more, &format!("a.rs uses {unknown}"));

    let mut more = sources.clone();
    more.tests.extend(tests_in("#[test]\nfn a_01_c_02_x() {}").map(|test| format!("v::{test}")));
    planted(&page, &more, "A-1 does not list v::a_01_c_02_x");
    planted(&page, &more, "C-2 does not list v::a_01_c_02_x");
    let mut more = sources.clone();
    more.tests
        .extend(tests_in("on_both!(\n    f,\n    c_02_y\n);").map(|name| format!("v::{name}")));
    planted(&page, &more, "C-2 does not list v::c_02_y");

    let mut fewer = sources.clone();
    fewer.tests.retain(|test| !test.contains("::b_02_"));
    planted(&page, &fewer, "B-2 names vellum::b_02_");

    planted(&with("- `vellum::no_such_test`"), &sources, "vellum::no_such_test, which does not");
    planted(&with("**A-1** Again."), &sources, "A-1 is defined twice");
    planted(&with(&format!("**{unknown}** Bare.")), &sources, "names no test and no gap");
}
