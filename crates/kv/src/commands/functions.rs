//! The command that changes the libraries of functions. Clients cannot call it: FUNCTION compiles a text and then stores
//! it with this command, which is the one that stands in the log.

use super::{Ctx, Done, Error, Keys, MEMORY, REMOVES, Spec, WRITE};

/// `function put NAME CODE`, `function remove NAME`, `function clear`.
pub(crate) static FUNCTION: Spec = Spec::new("function", -2, WRITE | MEMORY, Keys::All, function);

/// Like [`FUNCTION`], for changes that are allowed when memory is short.
pub(crate) static FEWER_FUNCTIONS: Spec =
    Spec::new("function", -2, WRITE | REMOVES, Keys::All, function);

fn function(ctx: &mut Ctx<'_, '_>, args: &[&[u8]]) -> Done {
    match args[1..] {
        [b"put", name, code] => ctx.db.put_library(name, code)?,
        [b"remove", name] => {
            if !ctx.db.remove_library(name) {
                return Err(Error::new("ERR Library not found"));
            }
        }
        [b"clear"] => ctx.db.clear_libraries(),
        _ => return Err(Error::SYNTAX),
    }
    ctx.reply.ok();
    Ok(())
}
