//! What users can reach of a crate, read from its sources: types, traits, functions and methods, each with
//! the documentation of the page on which rustdoc shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Expr, ExprLit, ImplItem, Item, Lit, Meta, TraitItem, UseTree, Visibility};

/// What an example would have to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A type or a trait: by its name.
    Type,
    /// A function in a module: called.
    Function,
    /// A function of a type without `self`: called by the type's name.
    Associated,
    /// A method, of a type or a trait: called, or written by an implementor of the trait.
    Method,
}

#[derive(Debug)]
pub(crate) struct Public {
    /// The type whose page it stands on; for functions, nothing.
    pub(crate) of: String,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// All the documentation of its page.
    pub(crate) page: String,
}

/// A crate, as its users see it.
pub(crate) struct Crate {
    pub(crate) items: Vec<Public>,
    /// All the documentation there is.
    pub(crate) everything: String,
    /// Enums to which a variant cannot be added without breaking code that matches on them.
    pub(crate) closed_enums: Vec<String>,
}

/// A crate as it is collected: definitions may come before or after the `pub use` that exports them.
#[derive(Default)]
struct Found {
    exported: BTreeSet<String>,
    types: BTreeSet<String>,
    functions: BTreeSet<String>,
    methods: Vec<(String, String, Kind)>,
    pages: BTreeMap<String, String>,
    /// What modules say of themselves.
    fronts: String,
    closed_enums: Vec<String>,
}

/// What is public in the crate whose sources are in `folder`.
pub(crate) fn of_crate(folder: &Path) -> Crate {
    let mut found = Found::default();
    found.file(&folder.join("lib.rs"), folder, true);
    let page = |of: &str| found.pages.get(of).cloned().unwrap_or_default();
    let item = |of: &str, name: &str, kind| Public {
        of: of.to_owned(),
        name: name.to_owned(),
        kind,
        page: page(if of.is_empty() { name } else { of }),
    };
    let public = |name: &String| found.exported.contains(name);
    let types = found.types.iter().filter(|name| public(name));
    let functions = found.functions.iter().filter(|name| public(name));
    let methods = found.methods.iter().filter(|(of, ..)| public(of));
    let items = types
        .map(|name| item(name, name, Kind::Type))
        .chain(functions.map(|name| item("", name, Kind::Function)))
        .chain(methods.map(|(of, name, kind)| item(of, name, *kind)))
        .collect();
    let closed_enums = found.closed_enums.iter().filter(|name| public(name));
    let closed_enums = closed_enums.cloned().collect();
    let pages: String = found.pages.values().map(String::as_str).collect();
    Crate {
        items,
        everything: found.fronts + &pages,
        closed_enums,
    }
}

impl Found {
    /// A source file; the modules of its own lie in `folder`.
    fn file(&mut self, path: &Path, folder: &Path, public: bool) {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.fronts.push_str(&text_of(&file.attrs));
        for item in &file.items {
            self.item(item, folder, public);
        }
    }

    fn item(&mut self, item: &Item, folder: &Path, public: bool) {
        match item {
            Item::Mod(m) if m.content.is_none() && !is_for_tests(&m.attrs) => {
                let name = m.ident.to_string();
                let inner = folder.join(&name);
                let beside = folder.join(format!("{name}.rs"));
                let path: PathBuf = if beside.exists() {
                    beside
                } else {
                    inner.join("mod.rs")
                };
                self.file(&path, &inner, public && is_public(&m.vis));
            }
            Item::Use(u) if public && is_public(&u.vis) => self.export(&u.tree),
            Item::Struct(i) => self.defined(&i.vis, &i.ident, &i.attrs, public),
            Item::Enum(i) => {
                self.defined(&i.vis, &i.ident, &i.attrs, public);
                let open = |attr: &Attribute| attr.path().is_ident("non_exhaustive");
                if is_public(&i.vis) && !i.attrs.iter().any(open) {
                    self.closed_enums.push(i.ident.to_string());
                }
            }
            Item::Trait(i) => {
                self.defined(&i.vis, &i.ident, &i.attrs, public);
                for item in &i.items {
                    if let TraitItem::Fn(f) = item {
                        self.method(&i.ident, &f.sig, &f.attrs);
                    }
                }
            }
            Item::Fn(f) if is_public(&f.vis) => {
                let name = f.sig.ident.to_string();
                self.document(&name, &f.attrs);
                if public {
                    self.exported.insert(name.clone());
                }
                self.functions.insert(name);
            }
            Item::Impl(i) if i.trait_.is_none() && !is_for_tests(&i.attrs) => {
                let syn::Type::Path(path) = &*i.self_ty else {
                    return;
                };
                let of = &path.path.segments.last().expect("a name").ident;
                self.document(&of.to_string(), &i.attrs);
                for item in &i.items {
                    match item {
                        ImplItem::Fn(f) if is_public(&f.vis) => self.method(of, &f.sig, &f.attrs),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn defined(&mut self, vis: &Visibility, name: &syn::Ident, attrs: &[Attribute], public: bool) {
        if is_public(vis) {
            let name = name.to_string();
            self.document(&name, attrs);
            if public {
                self.exported.insert(name.clone());
            }
            self.types.insert(name);
        }
    }

    fn method(&mut self, of: &syn::Ident, sig: &syn::Signature, attrs: &[Attribute]) {
        let of = of.to_string();
        self.document(&of, attrs);
        let kind = match sig.receiver() {
            Some(_) => Kind::Method,
            None => Kind::Associated,
        };
        self.methods.push((of, sig.ident.to_string(), kind));
    }

    fn document(&mut self, page: &str, attrs: &[Attribute]) {
        let page = self.pages.entry(page.to_owned()).or_default();
        page.push_str(&text_of(attrs));
    }

    fn export(&mut self, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => self.export(&path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.export(tree)),
            UseTree::Name(name) => drop(self.exported.insert(name.ident.to_string())),
            UseTree::Rename(name) => panic!("{} is exported by another name", name.ident),
            UseTree::Glob(_) => panic!("what a glob exports cannot be read from the source"),
        }
    }
}

/// The documentation among these attributes.
fn text_of(attrs: &[Attribute]) -> String {
    let mut text = String::new();
    for attr in attrs {
        if let Meta::NameValue(value) = &attr.meta
            && value.path.is_ident("doc")
            && let Expr::Lit(ExprLit {
                lit: Lit::Str(line),
                ..
            }) = &value.value
        {
            text.push_str(&line.value());
            text.push('\n');
        }
    }
    text
}

fn is_public(vis: &Visibility) -> bool {
    matches!(vis, Visibility::Public(_))
}

/// `#[cfg(test)]`, `#[cfg(all(test, not(loom)))]`, `#[cfg(loom)]`.
fn is_for_tests(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| match &attr.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let of = list.tokens.to_string();
            of.contains("test") || of == "loom"
        }
        _ => false,
    })
}
