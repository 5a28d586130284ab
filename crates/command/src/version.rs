//! The running program: its version, the commit that it was built from, and the engines in it.

/// The version, with the commit where that is known.
pub fn short() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("TIDEWIRE_COMMIT").filter(|commit| !commit.is_empty()) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    }
}

/// The version with the engines.
pub fn long() -> String {
    format!(
        "{}\nengines: threads, epoll, uring (taken where a probe at the start shows that it works)",
        short()
    )
}
