//! The functions there are, found out from the libraries that the store has.

use std::sync::Arc;

use tidewire_lua::Registered;

use super::at::At;
use super::known::{Function, Known, Library};
use super::run::interpreter;
use super::shebang::{self, Flags};
use super::text::Script;
use super::vm::What;
use crate::commands::Error;
use crate::store::{self, Seen};

/// The number of a library that is only tried.
const TRIAL: u64 = u64::MAX;

/// The function of this name.
pub(super) fn find(name: &[u8], seen: Seen, at: &mut At<'_, '_>) -> Result<Arc<Script>, Error> {
    let known = current(seen, at)?;
    let found = known.by_name.get(&name.to_ascii_lowercase());
    found.cloned().ok_or(Error::new("ERR Function not found"))
}

/// The functions as they are now. What is answered because of them has to wait for
/// [what has changed them](store::Store::library_ticket).
///
/// # Errors
/// There is no interpreter to look into libraries.
pub(super) fn current(seen: Seen, at: &mut At<'_, '_>) -> Result<Arc<Known>, Error> {
    let shared = at.here();
    // Before it is looked what there is: a change in between has it done again.
    let changes = shared.store.library_changes(seen);
    let functions = &shared.scripts.functions;
    let old = functions.both().clone();
    if let Some(same) = old.iter().find(|known| known.changes == changes) {
        return Ok(same.clone());
    }
    let mut known = Known {
        changes,
        ..Known::default()
    };
    for library in shared.store.libraries_as(seen) {
        let mut others = old.iter().flat_map(|known| &known.libraries);
        let same = others.find(|other| other.id == library.id);
        let made = match same {
            Some(same) => same.clone(),
            None => match try_text(&library.code, at)? {
                Ok(registered) => Arc::new(made(&library, &registered)),
                Err(why) => {
                    tracing::error!(
                        library = %String::from_utf8_lossy(&library.name),
                        why = %String::from_utf8_lossy(&why),
                        "a library of functions that was loaded before does not load: its functions are not there"
                    );
                    Arc::new(made(&library, &[]))
                }
            },
        };
        for function in &made.functions {
            let name = function.script.name.to_ascii_lowercase().into_bytes();
            known.by_name.insert(name, function.script.clone());
        }
        known.libraries.push(made);
    }
    let known = Arc::new(known);
    functions.both()[usize::from(seen == Seen::Newest)] = known.clone();
    Ok(known)
}

/// Loads a library to see what is in it, or the error line.
///
/// # Errors
/// There is no interpreter.
pub(super) fn try_text(
    code: &[u8],
    at: &mut At<'_, '_>,
) -> Result<Result<Vec<Registered>, Vec<u8>>, Error> {
    let text = match shebang::read_library(code) {
        Ok((_, text)) => text,
        Err(error) => return Ok(Err(error.0.into_owned())),
    };
    let mut interpreter = interpreter(at)
        .map_err(|why| Error::text(format!("ERR no interpreter for scripts: {why}")))?;
    interpreter.running.begin(What::Library);
    let loaded = interpreter.vm.load(TRIAL, &text);
    interpreter.running.begun.set(None);
    interpreter.vm.keep_libraries(|id| id != TRIAL);
    interpreter.tell();
    *at.interpreter() = Some(interpreter);
    Ok(match loaded {
        Ok(registered) if registered.is_empty() => Err(b"ERR No functions registered".to_vec()),
        loaded => loaded,
    })
}

fn made(library: &store::Library, registered: &[Registered]) -> Library {
    let text = shebang::read_library(&library.code).map_or_else(|_| Vec::new(), |(_, text)| text);
    let text: Arc<[u8]> = text.into();
    let function = |one: &Registered| {
        let name = String::from_utf8_lossy(&one.name).into_owned();
        let flags = Flags::of_function(&one.flags);
        Function {
            script: Arc::new(Script::new(name, text.clone(), flags, Some(library.id))),
            description: one.description.clone(),
            flags: one.flags.clone(),
        }
    };
    Library {
        id: library.id,
        name: library.name.clone(),
        code: library.code.clone(),
        functions: registered.iter().map(function).collect(),
    }
}
