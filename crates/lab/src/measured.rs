//! Where the servers come from that are started to be measured: the program `tidewire`.

use std::env;
use std::path::PathBuf;

use tidewire_command::exit::Failure;

/// The program whose `serve` is measured.
const PROGRAM: &str = "tidewire";

/// The variable by which `tidewire` says which executable it is when it runs this program.
const SAID: &str = "TIDEWIRE_PROGRAM";

/// The `tidewire` that runs this program; else the one beside it, or in PATH.
pub(crate) fn program() -> Result<PathBuf, Failure> {
    let said = env::var_os(SAID).map(PathBuf::from);
    let beside = env::current_exe().ok();
    let beside = beside.and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|dir| dir.join(PROGRAM));
    let mut places = said.into_iter().chain(beside).chain(in_path);
    places.find(|place| place.is_file()).ok_or_else(|| {
        Failure::failed(format!(
            "cannot find the program {PROGRAM} to start a server from: it is neither beside tidewire-lab nor in PATH"
        ))
    })
}
