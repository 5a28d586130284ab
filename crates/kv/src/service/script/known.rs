//! The functions that are known, as all loops see them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::text::Script;

/// A function and its own description.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) script: Arc<Script>,
    pub(super) description: Option<Vec<u8>>,
    pub(super) flags: Vec<Vec<u8>>,
}

impl Function {
    /// The function's name in lower case.
    fn key(&self) -> Vec<u8> {
        self.script.name.to_ascii_lowercase().into_bytes()
    }
}

/// A library whose functions are known.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) id: u64,
    pub(super) name: Arc<[u8]>,
    pub(super) code: Arc<[u8]>,
    pub(super) functions: Vec<Function>,
}

/// A name, and the library that has the name now.
pub(super) type Changed = (Arc<[u8]>, Option<Arc<Library>>);

/// All libraries at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) changes: u64,
    /// Libraries by their names.
    pub(super) libraries: BTreeMap<Arc<[u8]>, Arc<Library>>,
    /// Functions by their names in lower case: as commands they are found whatever the case.
    by_name: HashMap<Vec<u8>, Arc<Script>>,
    /// Two functions have one name, of which the last counts.
    has_twins: bool,
}

impl Known {
    /// The library that has a function of this name, and is another than the one of `but`.
    pub(super) fn has(&self, name: &[u8], but: &[u8]) -> bool {
        if self.has_twins {
            let others = self.libraries.values();
            let others = others.filter(|library| *library.name != *but);
            let mut functions = others.flat_map(|library| &library.functions);
            return functions.any(|one| one.script.name.as_bytes().eq_ignore_ascii_case(name));
        }
        let but = self.libraries.get(but).map(|library| library.id);
        self.function(name)
            .is_some_and(|script| but.is_none() || script.library != but)
    }

    /// The function of this name.
    pub(super) fn function(&self, name: &[u8]) -> Option<&Arc<Script>> {
        self.by_name.get(&name.to_ascii_lowercase())
    }

    /// Applies changes of libraries. Costs what that is, whatever else there is; how many functions it has looked
    /// at.
    pub(super) fn change(&mut self, changed: Vec<Changed>) -> usize {
        let mut looked = 0;
        for (name, new) in changed {
            let old = match &new {
                Some(new) => self.libraries.insert(name, new.clone()),
                None => self.libraries.remove(&name),
            };
            if self.has_twins {
                continue;
            }
            for function in old.iter().flat_map(|old| &old.functions) {
                looked += 1;
                self.by_name.remove(&function.key());
            }
            for function in new.iter().flat_map(|new| &new.functions) {
                looked += 1;
                let twin = self.by_name.insert(function.key(), function.script.clone());
                self.has_twins |= twin.is_some();
            }
        }
        if self.has_twins {
            looked += self.find_names();
        }
        looked
    }

    fn find_names(&mut self) -> usize {
        let mut looked = 0;
        self.by_name.clear();
        self.has_twins = false;
        for function in self.libraries.values().flat_map(|one| &one.functions) {
            looked += 1;
            let twin = self.by_name.insert(function.key(), function.script.clone());
            self.has_twins |= twin.is_some();
        }
        looked
    }
}

/// The functions that all loops know; read again by the first loop that looks after a change. The
/// committed ones, and the ones of the last unit that has looked at what it had changed itself.
#[derive(Debug, Default)]
pub(super) struct Functions(Mutex<[Arc<Known>; 2]>);

impl Functions {
    pub(super) fn both(&self) -> MutexGuard<'_, [Arc<Known>; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The committed functions at the last look.
    pub(super) fn known(&self) -> Arc<Known> {
        self.both()[0].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::shebang::Flags;
    use super::*;

    fn library(id: u64, name: &Arc<[u8]>, functions: &[String]) -> Arc<Library> {
        let function = |function: &String| Function {
            script: Arc::new(Script::new(
                function.clone(),
                Arc::default(),
                Flags::of_function(&[]),
                Some(id),
            )),
            description: None,
            flags: Vec::new(),
        };
        Arc::new(Library {
            id,
            name: name.clone(),
            code: Arc::default(),
            functions: functions.iter().map(function).collect(),
        })
    }

    /// Changes one after another lead to what is found out from nothing, also where functions have one name.
    #[test]
    fn what_has_changed_is_taken_over_as_if_all_were_looked_at() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut known = Known::default();
        let names: Vec<Arc<[u8]>> = (0..8)
            .map(|n| Arc::from(format!("l{n}").as_bytes()))
            .collect();
        for id in 0..2000 {
            let name = names[chance.usize(..names.len())].clone();
            // Mostly functions that no other library has.
            let function = |n: usize| match chance.u8(..20) {
                0 => ["twin", "TWIN"][n % 2].to_owned(),
                _ => format!("f{id}_{n}"),
            };
            let functions: Vec<String> = (0..3).map(function).collect();
            let new = chance.bool().then(|| library(id, &name, &functions));
            known.change(vec![(name, new)]);
            let mut afresh = Known {
                libraries: known.libraries.clone(),
                ..Known::default()
            };
            afresh.find_names();
            assert_eq!(
                known.has_twins, afresh.has_twins,
                "seed {seed}, change {id}"
            );
            let functions_of = known.libraries.values().flat_map(|one| &one.functions);
            for name in functions_of.map(Function::key).chain([b"twin".to_vec()]) {
                let of = |known: &Known| known.function(&name).and_then(|script| script.library);
                assert_eq!(of(&known), of(&afresh), "seed {seed}, change {id}");
            }
            let names_of = |known: &Known| known.by_name.len();
            assert_eq!(
                names_of(&known),
                names_of(&afresh),
                "seed {seed}, change {id}"
            );
            for but in &names {
                for function in ["twin", &functions[0], "none"] {
                    let has = known.libraries.values().any(|library| {
                        let mut functions = library.functions.iter();
                        library.name != *but
                            && functions.any(|one| one.script.name.eq_ignore_ascii_case(function))
                    });
                    assert_eq!(
                        known.has(function.as_bytes(), but),
                        has,
                        "seed {seed}, change {id}"
                    );
                }
            }
        }
    }

    #[test]
    fn one_library_more_costs_what_is_in_it() {
        let mut known = Known::default();
        let mut all = Vec::new();
        for id in 0..1000_u64 {
            let name: Arc<[u8]> = Arc::from(format!("l{id}").as_bytes());
            let new = library(id, &name, &[format!("f{id}")]);
            all.push((name, Some(new)));
        }
        assert_eq!(known.change(all), 1000);
        let name: Arc<[u8]> = Arc::from(&b"new"[..]);
        let new = library(1000, &name, &["f".to_owned(), "g".to_owned()]);
        assert_eq!(known.change(vec![(name.clone(), Some(new))]), 2);
        assert_eq!(known.change(vec![(name, None)]), 2);
    }
}
