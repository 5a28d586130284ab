//! Arrows between files point down only: no file of the toolkit imports one that, by whatever way, imports it.
//!
//! Read from the sources: what a file says by `use`, and paths from `crate::` in its code. A name is followed
//! through what modules export again, to the file that defines it. Tests are left out: they look at everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::{Attribute, Item, Meta, UseTree, Visibility};

/// A module's name from the root, which has none.
type Name = Vec<String>;

#[derive(Default)]
struct Module {
    /// Paths that its code names, as they are written.
    named: Vec<Name>,
    /// What it exports of others, under which name.
    exported: BTreeMap<String, Name>,
}

type Modules = BTreeMap<Name, Module>;
type Arrows = BTreeMap<Name, BTreeSet<Name>>;

/// All modules whose files are in `folder`, those of tests aside.
fn read(folder: &Path, name: &Name, all: &mut Modules) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|s| s.to_str()).expect("a name");
        // Of threads, too, there are models for tests.
        if matches!(stem, "tests" | "models") {
            continue;
        }
        let mut name = name.clone();
        if !matches!(stem, "mod" | "lib") {
            name.push(stem.to_owned());
        }
        if path.is_dir() {
            read(&path, &name, all);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            all.insert(name, module(&text));
        }
    }
}

fn module(text: &str) -> Module {
    let mut module = Module::default();
    let code = code_of(text);
    let file = syn::parse_file(code).expect("a source that compiles");
    module.take(&file.items, 0);
    module.scan(code, "crate::");
    let stands_within = |item: &Item| matches!(item, Item::Mod(m) if m.content.is_some());
    if !file.items.iter().any(stands_within) {
        module.scan(code, "super::");
    }
    module
}

impl Module {
    /// What is said by `use`. `depth`: modules around that stand within the file.
    fn take(&mut self, items: &[Item], depth: usize) {
        for item in items {
            match item {
                Item::Use(u) if !is_for_tests(&u.attrs) => {
                    let again = depth == 0 && !matches!(u.vis, Visibility::Inherited);
                    self.used(&u.tree, &Vec::new(), again, depth);
                }
                Item::Mod(m) if !is_for_tests(&m.attrs) => {
                    if let Some((_, items)) = &m.content {
                        self.take(items, depth + 1);
                    }
                }
                _ => {}
            }
        }
    }

    fn used(&mut self, tree: &UseTree, before: &Name, again: bool, depth: usize) {
        let with = |last: String| [&before[..], &[last]].concat();
        let (path, name) = match tree {
            UseTree::Path(path) => {
                return self.used(&path.tree, &with(path.ident.to_string()), again, depth);
            }
            UseTree::Group(group) => {
                let all = group.items.iter();
                return all.for_each(|tree| self.used(tree, before, again, depth));
            }
            UseTree::Name(name) if name.ident == "self" => (before.clone(), before.last().cloned()),
            UseTree::Name(name) => (with(name.ident.to_string()), Some(name.ident.to_string())),
            UseTree::Rename(to) => (with(to.ident.to_string()), Some(to.rename.to_string())),
            UseTree::Glob(_) if depth == 0 => {
                panic!("what a glob imports cannot be read: {before:?}")
            }
            UseTree::Glob(_) => return,
        };
        // Out of the modules that stand within the file.
        let out = path.iter().take_while(|part| *part == "super").count();
        if depth > 0 && (1..=depth).contains(&out) {
            return;
        }
        let path: Name = path
            .into_iter()
            .skip(if depth > 0 { depth.min(out) } else { 0 })
            .collect();
        if again && let Some(name) = name {
            self.exported.insert(name, path.clone());
        }
        self.named.push(path);
    }

    /// Paths with this beginning in its code.
    fn scan(&mut self, code: &str, beginning: &str) {
        for line in code.lines() {
            let line = line.split("//").next().unwrap_or_default();
            for (at, _) in line.match_indices(beginning) {
                let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
                let whole = line[at..].split(|c| !is_part(c)).next().unwrap_or_default();
                let parts = whole.split("::").filter(|part| !part.is_empty());
                let goes_on = line[..at].ends_with(|c: char| is_part(c) || c == '$');
                if !goes_on && !line[..at].ends_with("pub(in ") {
                    self.named.push(parts.map(str::to_owned).collect());
                }
            }
        }
    }
}

/// A file without its tests, which stand last.
fn code_of(text: &str) -> &str {
    let tests = [
        "mod tests {",
        "pub(super) mod tests {",
        "pub(crate) mod tests {",
    ];
    let starts = tests
        .iter()
        .filter_map(|t| text.find(&format!("#[cfg(test)]\n{t}")));
    &text[..starts.min().unwrap_or(text.len())]
}

fn is_for_tests(attrs: &[Attribute]) -> bool {
    let of_tests = |list: &syn::MetaList| list.tokens.to_string().contains("test");
    attrs.iter().any(|attr| match &attr.meta {
        Meta::List(list) => list.path.is_ident("cfg") && of_tests(list),
        _ => false,
    })
}

/// The module that defines what `path` names in `within`; none if it is of another crate.
fn defined(all: &Modules, within: &Name, path: &Name, steps: usize) -> Option<Name> {
    assert!(steps < 20, "{path:?} in {within:?} is exported in a circle");
    let mut at = match path.first()?.as_str() {
        "crate" => Name::new(),
        "self" | "super" => within.clone(),
        _ => {
            let child = [&within[..], &path[..1]].concat();
            all.get(&child)?;
            within.clone()
        }
    };
    for (i, part) in path.iter().enumerate() {
        let inner = [&at[..], std::slice::from_ref(part)].concat();
        match part.as_str() {
            "crate" | "self" => {}
            "super" => drop(at.pop()),
            _ if all.contains_key(&inner) => at = inner,
            part => {
                let Some(again) = all.get(&at)?.exported.get(part) else {
                    return Some(at);
                };
                let whole = [&again[..], &path[i + 1..]].concat();
                return defined(all, &at, &whole, steps + 1).or(Some(at));
            }
        }
    }
    Some(at)
}

fn arrows(all: &Modules) -> Arrows {
    let of = |(name, module): (&Name, &Module)| {
        let to = module
            .named
            .iter()
            .filter_map(|path| defined(all, name, path, 0));
        (name.clone(), to.filter(|to| to != name).collect())
    };
    all.iter().map(of).collect()
}

/// Each arrow that lies on a circle.
fn on_circles(arrows: &Arrows) -> Vec<String> {
    let leads = |from: &Name, to: &Name| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            if at == to {
                return true;
            }
            open.extend(
                arrows
                    .get(at)
                    .into_iter()
                    .flatten()
                    .filter(|next| seen.insert(*next)),
            );
        }
        false
    };
    let all = arrows
        .iter()
        .flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    all.filter(|(from, to)| leads(to, from))
        .map(|(from, to)| format!("{} -> {}", from.join("::"), to.join("::")))
        .collect()
}

#[test]
fn no_file_imports_one_that_imports_it() {
    let mut all = Modules::new();
    read(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &Name::new(),
        &mut all,
    );
    let arrows = arrows(&all);
    let count: usize = arrows.values().map(BTreeSet::len).sum();
    assert!(
        arrows.len() > 130 && count > 700,
        "{} files, {count} arrows",
        arrows.len()
    );
    let circles = on_circles(&arrows);
    assert!(circles.is_empty(), "{circles:#?}");
}

/// The same of the crates of the toolkit's house that stand above it.
#[test]
fn no_file_of_http_async_or_tls_imports_one_that_imports_it() {
    for (of, files) in [("http", 25), ("async", 5), ("tls", 5)] {
        let mut all = Modules::new();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of);
        read(&folder.join("src"), &Name::new(), &mut all);
        let arrows = arrows(&all);
        assert!(arrows.len() >= files, "{of}: {} files", arrows.len());
        let circles = on_circles(&arrows);
        assert!(circles.is_empty(), "{of}: {circles:#?}");
    }
}

/// Modules from lines like `link: use crate::env::Env;`.
fn made(files: &[(&str, &str)]) -> Vec<String> {
    let name = |name: &str| {
        name.split("::")
            .filter(|p| !p.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let all = files
        .iter()
        .map(|(of, text)| (name(of), module(text)))
        .collect();
    on_circles(&arrows(&all))
}

#[test]
fn circles_are_found_whatever_way_they_take() {
    let env = ("env", "pub struct Env;");
    assert!(made(&[env, ("link", "use crate::env::Env;")]).is_empty());
    // By three files, in code, through a parent, and by what the root exports.
    let by_three = [
        ("a", "use crate::b::B;"),
        ("b", "use std::io;\nuse crate::{c::C};"),
        ("c", "use crate::a::A;"),
    ];
    assert_eq!(made(&by_three), ["a -> b", "b -> c", "c -> a"]);
    let in_code = [
        ("a", "fn f() { crate::b::f() }"),
        ("b", "fn f() { super::a::f() }"),
    ];
    assert_eq!(made(&in_code), ["a -> b", "b -> a"]);
    let parent = [
        ("room", "pub use door::Door;\nmod door;"),
        ("room::door", "use super::Size;"),
    ];
    assert_eq!(made(&parent), ["room -> room::door", "room::door -> room"]);
    let root = [
        ("", "pub use env::Env;"),
        ("env", "use crate::link::Link;"),
        ("link", "use crate::Env;"),
    ];
    assert_eq!(made(&root), ["env -> link", "link -> env"]);
    // What is written in comments and tests does not count.
    let tests = "// crate::b::B\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}";
    assert!(made(&[("a", tests), ("b", "use crate::a::A;")]).is_empty());
}
