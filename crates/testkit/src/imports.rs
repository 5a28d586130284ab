//! Finds which file of a crate imports which, and circles of imports.
//!
//! Imports are read from the sources: paths in `use`, and paths that begin with `crate::` or
//! `super::` in code. A name is followed through the modules that export it again, to the file that
//! defines it. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::{Attribute, Item, Meta, UseTree};

/// A module's name from the root, which has none.
type Name = Vec<String>;

#[derive(Default)]
struct Module {
    /// Paths that its code names, as they are written.
    named: Vec<Name>,
    /// Imported and exported names, and what they stand for.
    imported: BTreeMap<String, Name>,
}

type Modules = BTreeMap<Name, Module>;
type Arrows = BTreeMap<Name, BTreeSet<Name>>;

/// The files of a crate, and for each the files that it imports.
#[derive(Debug)]
pub struct Imports(Arrows);

impl Imports {
    /// Reads the sources in `folder`, a crate's `src`.
    ///
    /// # Panics
    /// If a file cannot be read or is no Rust.
    #[must_use]
    pub fn of(folder: &Path) -> Imports {
        let mut all = Modules::new();
        read(folder, &Name::new(), &mut all);
        Imports(arrows(&all))
    }

    /// How many files there are.
    #[must_use]
    pub fn files(&self) -> usize {
        self.0.len()
    }

    /// How many pairs of files there are of which one imports the other.
    #[must_use]
    pub fn arrows(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    /// Sets of files of which each imports every other one, directly or through others; the largest first.
    #[must_use]
    pub fn knots(&self) -> Vec<Vec<String>> {
        let reached: BTreeMap<&Name, BTreeSet<&Name>> = self
            .0
            .keys()
            .map(|from| (from, self.reached(from)))
            .collect();
        let mut knots = BTreeSet::new();
        for (from, all) in &reached {
            let knot: BTreeSet<&Name> = all
                .iter()
                .copied()
                .filter(|to| reached.get(to).is_some_and(|back| back.contains(from)))
                .collect();
            if !knot.is_empty() {
                knots.insert(knot);
            }
        }
        let name = |name: &&Name| match name.is_empty() {
            true => "lib".to_owned(),
            false => name.join("::"),
        };
        let mut knots: Vec<Vec<String>> = knots
            .iter()
            .map(|knot| knot.iter().map(name).collect())
            .collect();
        knots.sort_by_key(|knot| std::cmp::Reverse(knot.len()));
        knots
    }

    /// The arrows between files of one knot, as `from -> to`.
    #[must_use]
    pub fn arrows_on_circles(&self) -> Vec<String> {
        let all = self
            .0
            .iter()
            .flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
        all.filter(|(from, to)| self.reached(to).contains(from))
            .map(|(from, to)| format!("{} -> {}", from.join("::"), to.join("::")))
            .collect()
    }

    /// The arrows from files outside of a module to files of it.
    #[must_use]
    pub fn into_module(&self, module: &[&str]) -> Vec<(String, String)> {
        let is_inside = |name: &Name| {
            name.iter()
                .map(String::as_str)
                .zip(module)
                .filter(|(a, b)| a == *b)
                .count()
                == module.len()
        };
        let all = self
            .0
            .iter()
            .flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
        all.filter(|(from, to)| is_inside(to) && !is_inside(from))
            .map(|(from, to)| (from.join("::"), to.join("::")))
            .collect()
    }

    /// The files to which arrows lead from this one, over any number of steps.
    fn reached<'m>(&'m self, from: &Name) -> BTreeSet<&'m Name> {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            let next = self.0.get(at).into_iter().flatten();
            for next in next {
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        seen
    }
}

/// Reads all modules whose files are in `folder`. Files of tests, and binaries beside the crate's own, are left out.
fn read(folder: &Path, name: &Name, all: &mut Modules) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|s| s.to_str()).expect("a name");
        // Threads, too, have models for tests.
        if matches!(stem, "tests" | "models" | "bin") {
            continue;
        }
        let mut name = name.clone();
        if !matches!(stem, "mod" | "lib" | "main") {
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
    /// Takes the `use` items. `depth` is the number of enclosing modules within the file.
    fn take(&mut self, items: &[Item], depth: usize) {
        for item in items {
            match item {
                Item::Use(u) if !is_for_tests(&u.attrs) => {
                    // Modules below see a private one as well.
                    self.used(&u.tree, &Vec::new(), depth == 0, depth);
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
            // The glob imports from the module itself, as far as can be read.
            UseTree::Glob(_) if depth == 0 => (before.clone(), None),
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
            self.imported.insert(name, path.clone());
        }
        self.named.push(path);
    }

    /// Paths with this beginning in its code.
    fn scan(&mut self, code: &str, beginning: &str) {
        for line in code.lines() {
            // `take` reads the imports at the top of a file.
            if line.starts_with("use ") || (line.starts_with("pub") && line.contains(" use ")) {
                continue;
            }
            let line = line.split("//").next().unwrap_or_default();
            for (at, _) in line.match_indices(beginning) {
                let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
                let whole = line[at..].split(|c| !is_part(c)).next().unwrap_or_default();
                let parts: Vec<&str> = whole.split("::").filter(|part| !part.is_empty()).collect();
                let is_group = !parts
                    .iter()
                    .any(|part| *part != "crate" && *part != "super");
                let goes_on = line[..at].ends_with(|c: char| is_part(c) || c == '$');
                // A group in braces is read by `take`.
                if !goes_on && !is_group && !line[..at].ends_with("pub(in ") {
                    self.named
                        .push(parts.into_iter().map(str::to_owned).collect());
                }
            }
        }
    }
}

/// A file without its tests, which stand last.
#[must_use]
pub fn code_of(text: &str) -> &str {
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
    assert!(steps < 20, "{path:?} in {within:?} is imported in a circle");
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
                let Some(again) = all.get(&at)?.imported.get(part) else {
                    return Some(at);
                };
                let whole = [&again[..], &path[i + 1..]].concat();
                // The name belongs to another crate: no file of this crate is needed for it.
                return defined(all, &at, &whole, steps + 1);
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

#[cfg(test)]
mod tests {
    use super::*;

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
        Imports(arrows(&all)).arrows_on_circles()
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
        // A group in braces names files below the root, not the root.
        let group = [
            ("", "pub use a::A;"),
            ("a", "use crate::{b, c};"),
            ("b", ""),
            ("c", ""),
        ];
        assert!(made(&group).is_empty());
        // Names in comments and tests do not count.
        let tests = "// crate::b::B\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}";
        assert!(made(&[("a", tests), ("b", "use crate::a::A;")]).is_empty());
    }
}
