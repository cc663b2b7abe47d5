//! Reads Rust files and resolves the paths in them to files.
//!
//! A path is resolved as the compiler does it, as far as the checks need: through modules, `use`,
//! re-exports and globs. What a macro generates is not seen, but the paths in its body are. Code
//! under `cfg(test)` is left out.

use proc_macro2::{TokenStream, TokenTree};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, UseTree};

/// A file as it was read.
pub struct Source {
    /// Its path from the root of the project.
    pub path: String,
    /// What it holds.
    pub text: String,
    /// The same, parsed when first asked for.
    syntax: OnceCell<syn::File>,
}

impl Source {
    /// A file at `path` that holds `text`.
    pub fn new(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into(), syntax: OnceCell::new() }
    }

    /// What it holds, parsed.
    pub fn syntax(&self) -> &syn::File {
        let parse =
            || syn::parse_file(&self.text).unwrap_or_else(|error| panic!("{}: {error}", self.path));
        self.syntax.get_or_init(parse)
    }

    /// The folder it is in.
    pub fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

/// The root of the project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Rust file below `folder` of the project.
pub fn read(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().unwrap() != "target" {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap();
                found.push(Source::new(name, &fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// A module: where its code is, what it declares and what it imports.
#[derive(Default)]
struct Module<'a> {
    /// The index of its file.
    file: usize,
    /// Its items, without those of tests.
    items: Vec<&'a Item>,
    /// The names of the items that it defines.
    names: BTreeSet<String>,
    /// Names that `use` brings in.
    uses: BTreeMap<String, Names>,
    /// Modules and types that `use` brings in whole.
    globs: Vec<Names>,
}

/// The segments of a path.
pub type Names = Vec<String>;

/// A path that a file names, and where.
pub struct Mention {
    /// The module whose code names it.
    pub module: Names,
    /// The path as written.
    pub path: Names,
    /// The line.
    pub line: usize,
    /// It is re-exported: `pub use`, also with a restriction.
    pub exported: bool,
}

/// The modules of a crate, without its tests.
pub struct Crate<'a> {
    /// Its files. Files of tests are among them, and have no mentions.
    pub files: &'a [Source],
    modules: BTreeMap<Names, Module<'a>>,
    /// What each file names, by the file's index.
    pub mentions: Vec<Vec<Mention>>,
}

impl<'a> Crate<'a> {
    /// The crate whose root is `lib.rs` in `src`, a folder of the project, or else `main.rs`.
    pub fn new(src: &str, files: &'a [Source]) -> Crate<'a> {
        let mut read = Crate {
            files,
            modules: BTreeMap::new(),
            mentions: files.iter().map(|_| Vec::new()).collect(),
        };
        read.module(src, Names::new());
        read
    }

    /// Reads the module `at` from its file, and the modules that it declares.
    fn module(&mut self, src: &str, at: Names) {
        let stem = [&[src.to_string()], at.as_slice()].concat().join("/");
        let places = match at.is_empty() {
            true => [format!("{stem}/lib.rs"), format!("{stem}/main.rs")],
            false => [format!("{stem}.rs"), format!("{stem}/mod.rs")],
        };
        // A file at another path (`#[path]`) is not part of the picture.
        let index = |place: &String| self.files.iter().position(|f| f.path == *place);
        let Some(file) = places.iter().find_map(index) else { return };
        let items = &self.files[file].syntax().items;
        let mut reader = Reader { file, stack: vec![at], read: self, outside: Vec::new() };
        reader.enter(items);
        for child in reader.outside {
            self.module(src, child);
        }
    }

    /// Every item with its module.
    pub fn items(&self) -> impl Iterator<Item = (&Names, &'a Item)> {
        self.modules.iter().flat_map(|(at, m)| m.items.iter().map(move |item| (at, *item)))
    }

    /// The file and the name of the item that `path`, written in `module`, leads to; none for what
    /// is not of this crate.
    pub fn resolve(&self, module: &[String], path: &[String]) -> Option<(usize, String)> {
        self.find(module, path, 0)
    }

    fn find(&self, module: &[String], path: &[String], depth: usize) -> Option<(usize, String)> {
        let (first, rest) = path.split_first()?;
        let mut at = module.to_vec();
        match first.as_str() {
            "crate" | "$crate" => at.clear(),
            "self" => {}
            "super" => {
                at.pop();
            }
            _ => return self.descend(at, path, depth),
        }
        self.descend(at, rest, depth)
    }

    fn descend(&self, at: Names, rest: &[String], depth: usize) -> Option<(usize, String)> {
        let module = self.modules.get(&at)?;
        let Some((first, after)) = rest.split_first() else {
            return Some((module.file, at.last().cloned().unwrap_or_default()));
        };
        if first == "super" || first == "self" {
            return self.find(&at, rest, depth + 1);
        }
        let child = [at.as_slice(), std::slice::from_ref(first)].concat();
        if self.modules.contains_key(&child) {
            return self.descend(child, after, depth);
        }
        if module.names.contains(first) {
            return Some((module.file, first.clone()));
        }
        // Imports that lead to each other would never end.
        if depth > 16 {
            return None;
        }
        if let Some(path) = module.uses.get(first) {
            return self.find(&at, &[path.as_slice(), after].concat(), depth + 1);
        }
        let mut globs = module.globs.iter();
        globs.find_map(|glob| self.find(&at, &[glob.as_slice(), rest].concat(), depth + 1))
    }
}

/// Collects what one file declares and names.
struct Reader<'c, 'a> {
    file: usize,
    /// The module that is being read, below those around it.
    stack: Vec<Names>,
    read: &'c mut Crate<'a>,
    /// Modules in files of their own.
    outside: Vec<Names>,
}

impl<'a> Reader<'_, 'a> {
    fn enter(&mut self, items: &'a [Item]) {
        let module = self.read.modules.entry(self.at()).or_default();
        module.file = self.file;
        module.items.extend(items.iter().filter(|i| !is_test(attributes(i))));
        module.names.extend(module.items.iter().filter_map(|item| defined(item)));
        for item in items {
            self.visit_item(item);
        }
    }

    fn at(&self) -> Names {
        self.stack.last().unwrap().clone()
    }

    fn mention(&mut self, path: Names, line: usize, exported: bool) {
        let module = self.at();
        self.read.mentions[self.file].push(Mention { module, path, line, exported });
    }
}

impl<'a> Visit<'a> for Reader<'_, 'a> {
    fn visit_item(&mut self, item: &'a Item) {
        if is_test(attributes(item)) {
            return;
        }
        let Item::Mod(inner) = item else { return visit::visit_item(self, item) };
        let name = [self.at().as_slice(), &[inner.ident.to_string()]].concat();
        match &inner.content {
            Some((_, items)) => {
                self.stack.push(name);
                self.enter(items);
                self.stack.pop();
            }
            None => self.outside.push(name),
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        let exported = !matches!(item.vis, syn::Visibility::Inherited);
        let line = item.use_token.span.start().line;
        let mut leaves = Vec::new();
        flatten(&item.tree, &mut Names::new(), &mut leaves);
        let at = self.at();
        for (path, bound) in leaves {
            let module = self.read.modules.get_mut(&at).unwrap();
            match bound {
                Some(name) => drop(module.uses.insert(name, path.clone())),
                None => module.globs.push(path.clone()),
            }
            self.mention(path, line, exported);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            let names = path.segments.iter().map(|s| s.ident.to_string()).collect();
            self.mention(names, path.segments[0].ident.span().start().line, false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, used: &'a syn::Macro) {
        self.visit_path(&used.path);
        for (path, line) in paths(used.tokens.clone()) {
            self.mention(path, line, false);
        }
    }
}

/// The paths among the tokens of a macro that start at the crate's root or beside the module.
fn paths(tokens: TokenStream) -> Vec<(Names, usize)> {
    let mut found = Vec::new();
    let mut names = Names::new();
    let mut line = 0;
    let mut colons = 0;
    let mut end = |names: &mut Names, line| {
        let names = std::mem::take(names);
        if names.len() > 1 && ["crate", "self", "super"].contains(&names[0].as_str()) {
            found.push((names, line));
        }
    };
    let mut inside = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Punct(p) if p.as_char() == ':' => colons += 1,
            TokenTree::Ident(ident) => {
                if colons != 2 {
                    end(&mut names, line);
                    line = ident.span().start().line;
                }
                names.push(ident.to_string());
                colons = 0;
            }
            other => {
                end(&mut names, line);
                colons = 0;
                if let TokenTree::Group(group) = other {
                    inside.extend(paths(group.stream()));
                }
            }
        }
    }
    end(&mut names, line);
    found.extend(inside);
    found
}

/// The paths of a `use`, each with the name that it binds; a glob binds none.
fn flatten(tree: &UseTree, above: &mut Names, out: &mut Vec<(Names, Option<String>)>) {
    let mut leaf = |last: String, bound: String| {
        if last == "self" {
            out.push((above.clone(), Some(if bound == "self" { last_of(above) } else { bound })));
        } else {
            out.push(([above.as_slice(), &[last]].concat(), Some(bound)));
        }
    };
    match tree {
        UseTree::Path(path) => {
            above.push(path.ident.to_string());
            flatten(&path.tree, above, out);
            above.pop();
        }
        UseTree::Name(name) => leaf(name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(renamed) => leaf(renamed.ident.to_string(), renamed.rename.to_string()),
        UseTree::Glob(_) => out.push((above.clone(), None)),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, above, out)),
    }
}

fn last_of(names: &Names) -> String {
    names.last().cloned().unwrap_or_default()
}

/// Whether an item with these attributes is compiled for tests only.
pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let words = list.tokens.to_string();
        let mut words = words.split(|c: char| !c.is_alphanumeric());
        list.path.is_ident("cfg") && words.next().is_some_and(|w| w == "test" || w == "doctest")
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// The name that an item defines in its module.
fn defined(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Macro(i) => i.ident.as_ref()?,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::Type(i) => &i.ident,
        _ => return None,
    };
    Some(ident.to_string())
}
