//! The functions there are, found out from the libraries that the store has.

use std::sync::Arc;

use tidewire_lua::{NotLoaded, Registered, Stop};

use super::at::At;
use super::known::{Function, Known, Library};
use super::run::interpreter;
use super::shebang::{self, Flags};
use super::text::Script;
use super::vm::What;
use crate::commands::Error;
use crate::service::shared::Shared;
use crate::store::{self, Seen};

/// The number of a library that is only tried.
const TRIAL: u64 = u64::MAX;

/// The function of this name.
pub(super) fn find(name: &[u8], seen: Seen, at: &mut At<'_, '_>) -> Result<Arc<Script>, Error> {
    let known = current(seen, at)?;
    let found = known.function(name);
    found.cloned().ok_or(Error::new("ERR Function not found"))
}

/// Whether the present functions are known, so that no library has to be looked into.
pub(super) fn are_at_hand(seen: Seen, shared: &Shared) -> bool {
    let changes = shared.store.library_changes(seen);
    let both = shared.scripts.functions.both();
    both.iter().any(|known| known.changes == changes)
}

/// The present functions. An answer that depends on these functions has to wait for [the unit that
/// has changed them](store::Store::library_ticket).
///
/// # Errors
/// There is no interpreter to look into libraries.
pub(super) fn current(seen: Seen, at: &mut At<'_, '_>) -> Result<Arc<Known>, Error> {
    let shared = at.here();
    let functions = &shared.scripts.functions;
    let own = usize::from(seen == Seen::Newest);
    loop {
        // The number is read before the libraries: a change in between repeats the look.
        let changes = shared.store.library_changes(seen);
        let old = functions.both().clone();
        if let Some(same) = old.iter().find(|known| known.changes == changes) {
            return Ok(same.clone());
        }
        // From what was known last, if the store knows what has changed since; else from nothing.
        let since = |of: usize| {
            let known = old[of].changes;
            let changed = shared.store.libraries_since(seen, known)?;
            (known < changes).then_some((Some(of), changed))
        };
        let (base, changed) = since(own).or_else(|| since(1 - own)).unwrap_or_else(|| {
            let all = shared.store.libraries_as(seen).into_iter();
            let all = all.map(|library| (library.name.clone(), Some(library)));
            (None, all.collect())
        });
        let was = base.map(|base| old[base].changes);
        let mut made = Vec::with_capacity(changed.len());
        for (name, library) in changed {
            let library = match library {
                Some(library) => Some(look(&library, &old, at)?),
                None => None,
            };
            made.push((name, library));
        }
        // A shared table is copied before it is changed.
        drop(old);
        let mut both = functions.both();
        if base.map(|base| both[base].changes) != was {
            // Another has looked meanwhile.
            continue;
        }
        let both = &mut *both;
        if base != Some(own) {
            both[own] = base.map_or_else(Arc::default, |base| Arc::new(Known::clone(&both[base])));
        }
        let known = Arc::make_mut(&mut both[own]);
        known.change(made);
        known.changes = changes;
        return Ok(both[own].clone());
    }
}

/// The functions of a library, if they are not known.
fn look(
    library: &store::Library,
    old: &[Arc<Known>; 2],
    at: &mut At<'_, '_>,
) -> Result<Arc<Library>, Error> {
    let known = old
        .iter()
        .filter_map(|known| known.libraries.get(&library.name));
    if let Some(same) = known.into_iter().find(|other| other.id == library.id) {
        return Ok(same.clone());
    }
    Ok(Arc::new(match try_text(&library.code, at)? {
        Ok(registered) => made(library, &registered),
        Err(why) => {
            tracing::error!(
                library = %String::from_utf8_lossy(&library.name),
                why = %String::from_utf8_lossy(&why),
                "a library of functions that was loaded before does not load: its functions are not there"
            );
            made(library, &[])
        }
    }))
}

/// Loads a library to see what is in it, or the error line.
///
/// # Errors
/// The error that no interpreter can be made.
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
    interpreter.running.begin(What::Library, at.watched());
    if let Some(watched) = at.watched() {
        watched.begin_load();
    }
    at.go_in();
    let loaded = interpreter.vm.load(TRIAL, &text, None);
    if !at.come_back() {
        return Err(Error::new("ERR FUNCTION LOAD timeout"));
    }
    if let Some(watched) = at.watched() {
        watched.end();
    }
    interpreter.running.end();
    interpreter.vm.keep_libraries(|id| id != TRIAL);
    interpreter.tell();
    *at.interpreter() = Some(interpreter);
    Ok(match loaded {
        Ok(registered) if registered.is_empty() => Err(b"ERR No functions registered".to_vec()),
        Ok(registered) => Ok(registered),
        Err(NotLoaded::Failed(line)) => Err(line),
        Err(NotLoaded::Stopped(Stop(why))) => Err(why.as_bytes().to_vec()),
        Err(NotLoaded::Outgrown) => Err(b"ERR not enough memory".to_vec()),
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
