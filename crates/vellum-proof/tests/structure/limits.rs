//! What a reader has to hold in mind at once: methods, parameters, files, columns.

use crate::Finding;
use crate::sources::{Crate, Source, is_test};
use std::collections::BTreeMap;
use syn::visit::{self, Visit};
use syn::{FnArg, Item, Signature, Type};

/// Methods of the type that embedders hold.
const METHODS_OF_VM: usize = 60;
/// Methods of any other type.
const METHODS: usize = 40;
/// Parameters besides `self`. A foreign caller that dictates more is not our choice.
const PARAMETERS: usize = 5;
/// Elements of a tuple in a signature.
const TUPLE: usize = 2;
/// Rust files in a folder.
const FILES: usize = 14;
/// Columns of a line, unless it holds an address.
const COLUMNS: usize = 100;
/// Lines of the comment at the head of a file.
const HEAD: usize = 20;

/// Types of the crate in `src` with too many methods, tests left out.
pub fn methods(src: &str, files: &[Source]) -> Vec<Finding> {
    let read = Crate::new(src, files);
    let mut counts: BTreeMap<(usize, String), usize> = BTreeMap::new();
    for (module, item) in read.items() {
        let Item::Impl(block) = item else { continue };
        let Type::Path(of) = &*block.self_ty else { continue };
        let path: Vec<String> = of.path.segments.iter().map(|s| s.ident.to_string()).collect();
        let Some(of) = read.resolve(module, &path) else { continue };
        if block.trait_.is_none() {
            let own = |i: &&syn::ImplItem| matches!(i, syn::ImplItem::Fn(f) if !is_test(&f.attrs));
            *counts.entry(of).or_default() += block.items.iter().filter(own).count();
        }
    }
    let most = |name: &str| if name == "Vm" { METHODS_OF_VM } else { METHODS };
    counts.retain(|(_, name), count| *count > most(name));
    let told = |((file, name), count): ((usize, String), usize)| {
        Finding::new("methods", &files[file].path, &name, format!("has {count} methods"))
    };
    counts.into_iter().map(told).collect()
}

/// Signatures with too many parameters, or with a large tuple.
pub fn signatures(file: &Source) -> Vec<Finding> {
    struct Signatures<'a>(&'a Source, Vec<Finding>);
    impl<'ast> Visit<'ast> for Signatures<'_> {
        fn visit_signature(&mut self, signature: &'ast Signature) {
            let name = signature.ident.to_string();
            let line = signature.ident.span().start().line;
            let count = signature.inputs.iter().filter(|i| matches!(i, FnArg::Typed(_))).count();
            if count > PARAMETERS && signature.abi.is_none() {
                let text = format!("line {line}: {count} parameters");
                self.1.push(Finding::new("parameters", &self.0.path, &name, text));
            }
            let mut largest = Largest(0);
            largest.visit_signature(signature);
            if largest.0 > TUPLE {
                let text = format!("line {line}: a tuple of {}", largest.0);
                self.1.push(Finding::new("tuple", &self.0.path, &name, text));
            }
        }
    }
    struct Largest(usize);
    impl<'ast> Visit<'ast> for Largest {
        fn visit_type_tuple(&mut self, tuple: &'ast syn::TypeTuple) {
            self.0 = self.0.max(tuple.elems.len());
            visit::visit_type_tuple(self, tuple);
        }
    }
    let mut found = Signatures(file, Vec::new());
    found.visit_file(file.syntax());
    found.1
}

/// Folders with too many files.
pub fn folders(files: &[Source]) -> Vec<Finding> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files {
        *counts.entry(file.folder()).or_default() += 1;
    }
    counts.retain(|_, count| *count > FILES);
    let told = |(folder, count)| Finding::new("folder", folder, "", format!("has {count} files"));
    counts.into_iter().map(told).collect()
}

/// Lines that are too long. One finding a file.
pub fn columns(file: &Source) -> Vec<Finding> {
    let long = |line: &str| line.chars().count() > COLUMNS && !line.contains("://");
    let lines = file.text.lines().enumerate().filter(|(_, line)| long(line));
    let lines: Vec<String> = lines.map(|(at, _)| (at + 1).to_string()).collect();
    let text = format!("too long: lines {}", lines.join(", "));
    let found = (!lines.is_empty()).then(|| Finding::new("columns", &file.path, "", text));
    found.into_iter().collect()
}

/// A head that is too long.
pub fn head(file: &Source) -> Vec<Finding> {
    let lines = file.text.lines().take_while(|line| line.starts_with("//!")).count();
    let text = format!("a head of {lines} lines");
    let found = (lines > HEAD).then(|| Finding::new("head", &file.path, "", text));
    found.into_iter().collect()
}

#[cfg(test)]
mod planted {
    use super::*;

    const PATH: &str = "crates/vellum/src/x.rs";

    fn keys(found: Vec<Finding>) -> Vec<String> {
        found.into_iter().map(|f| f.key).collect()
    }

    #[test]
    fn many_methods_are_found_wherever_they_are() {
        let told = |count: usize| {
            let block = |from: usize, to: usize| {
                let methods: String = (from..to).map(|n| format!("fn m{n}(&self) {{}}")).collect();
                format!("impl<'a> X<'a> {{ {methods} }}")
            };
            let x = format!("pub struct X<'a>(&'a u8); {}", block(0, 20));
            let y = format!("use crate::x::X; {}", block(20, count));
            keys(methods(
                "crates/vellum/src",
                &[
                    Source::new("crates/vellum/src/lib.rs", "mod x; mod y;"),
                    Source::new(PATH, &x),
                    Source::new("crates/vellum/src/y.rs", &y),
                ],
            ))
        };
        assert_eq!(told(40), [""; 0]);
        assert_eq!(told(41), ["methods crates/vellum/src/x.rs X"]);
    }

    #[test]
    fn many_parameters_are_found() {
        let told = |text| keys(signatures(&Source::new(PATH, text)));
        let key = vec![format!("parameters {PATH} f")];
        assert_eq!(told("fn f(a: u8, b: u8, c: u8, d: u8, e: u8, g: u8) {}"), key);
        assert_eq!(told("impl X { fn f(&self, a: u8, b: u8, c: u8, d: u8, e: u8) {} }"), [""; 0]);
        assert_eq!(told("mod x { trait X { fn f(a: A, b: A, c: A, d: A, e: A, g: A); } }"), key);
    }

    #[test]
    fn a_large_tuple_is_found() {
        let told = |text| keys(signatures(&Source::new(PATH, text)));
        let key = vec![format!("tuple {PATH} f")];
        assert_eq!(told("fn f((a, b, c): (u8, u8, u8)) {}"), key);
        assert_eq!(told("fn f() -> Option<Vec<(u8, u8, u8)>> { None }"), key);
        assert_eq!(told("fn f(at: (u8, u8)) -> (u8, u8) { at }"), [""; 0]);
    }

    #[test]
    fn a_full_folder_is_found() {
        let file = |n| Source::new(&format!("crates/vellum/src/frame/f{n}.rs"), "");
        let files: Vec<Source> = (0..15).map(file).collect();
        assert_eq!(keys(folders(&files[..14])), [""; 0]);
        assert_eq!(keys(folders(&files)), ["folder crates/vellum/src/frame"]);
    }

    #[test]
    fn a_long_line_is_found() {
        let told = |text: String| keys(columns(&Source::new(PATH, &text)));
        assert_eq!(told(format!("// {}", "é".repeat(97))), [""; 0]);
        assert_eq!(told(format!("// {}", "e".repeat(98))), [format!("columns {PATH}")]);
        assert_eq!(told(format!("// https://{}", "e".repeat(98))), [""; 0]);
    }

    #[test]
    fn a_long_head_is_found() {
        let told = |lines| keys(head(&Source::new(PATH, &"//! x\n".repeat(lines))));
        assert_eq!(told(20), [""; 0]);
        assert_eq!(told(21), [format!("head {PATH}")]);
    }
}
