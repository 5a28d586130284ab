//! Room for connections: the limit on open descriptors.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises this process's limit of open files to its hard limit; returns the new limit, `None` for
/// no limit. Every connection needs a descriptor, and the usual limit of 1,024 is a convention for
/// `select`.
pub fn raise_limit() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Refused in some containers: then what there is must do, and accepting pauses beyond it.
        if setrlimit(Resource::Nofile, limit).is_err() {
            return getrlimit(Resource::Nofile).current;
        }
    }
    limit.current
}
