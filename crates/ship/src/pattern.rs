//! The files to follow: files, patterns of names, directories.

use std::path::{Component, Path, PathBuf};

use glob::{MatchOptions, Pattern as Glob};

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// This file, also if it is not there yet.
    File(PathBuf),
    /// Files whose names match.
    Glob(Glob),
    /// The files right in this directory, but for hidden and compressed ones.
    Directory(PathBuf),
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Pattern::File(path) | Pattern::Directory(path) => path.display().fmt(f),
            Pattern::Glob(glob) => f.write_str(glob.as_str()),
        }
    }
}

/// What cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pattern:?} cannot be followed: {why}")]
pub struct Unusable {
    /// The given text.
    pub pattern: String,
    /// Why.
    pub why: String,
}

/// `*` does not stand for a `/`, nor for a leading dot.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Endings of names of files that hold no lines.
const COMPRESSED: [&str; 7] = ["gz", "xz", "zst", "bz2", "lz4", "zip", "Z"];

/// Endings among them that can be read.
const PACKED: [&str; 2] = ["gz", "zst"];

impl Pattern {
    /// What is to be followed, from text that has been made absolute.
    ///
    /// # Errors
    /// [`Unusable`].
    pub fn new(text: &Path, is_directory: bool) -> Result<Pattern, Unusable> {
        let unusable = |why: String| Unusable {
            pattern: text.display().to_string(),
            why,
        };
        let name = text
            .to_str()
            .ok_or_else(|| unusable("its name is not UTF-8".into()))?;
        if is_directory {
            return Ok(Pattern::Directory(text.to_owned()));
        }
        if name.contains(['*', '?', '[']) {
            let glob = Glob::new(name).map_err(|e| unusable(e.to_string()))?;
            return Ok(Pattern::Glob(glob));
        }
        Ok(Pattern::File(text.to_owned()))
    }

    /// Whether it names this path.
    #[must_use]
    pub fn names(&self, path: &Path) -> bool {
        match self {
            Pattern::File(file) => path == file,
            Pattern::Glob(glob) => glob.matches_path_with(path, MATCHING),
            Pattern::Directory(directory) => {
                path.parent() == Some(directory) && !is_hidden(path) && !is_compressed(path)
            }
        }
    }

    /// How directories are walked: without regard to leading dots, which the walk cannot have where a name is not UTF-8
    /// (it panics). See [`Pattern::shows`].
    pub(crate) fn walking() -> MatchOptions {
        MatchOptions {
            require_literal_leading_dot: false,
            ..MATCHING
        }
    }

    /// Whether what the walk has found is hidden nowhere but where the pattern says a leading dot itself.
    pub(crate) fn shows(glob: &Glob, found: &Path) -> bool {
        let parts = || {
            glob.as_str()
                .split('/')
                .filter(|part| part.starts_with('.'))
        };
        let is_meant = |name: &str| {
            let mut dotted = parts().filter_map(|part| Glob::new(part).ok());
            dotted.any(|part| part.matches(name))
        };
        found.components().all(|part| match part {
            Component::Normal(name) => name
                .to_str()
                .is_some_and(|name| !name.starts_with('.') || is_meant(name)),
            _ => true,
        })
    }
}

fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_none_or(|name| name.starts_with('.'))
}

/// Whether the name says that the file is compressed.
pub(crate) fn is_compressed(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| COMPRESSED.contains(&ending))
}

/// Whether the name says that what is inside is compressed in a way that can be read.
#[must_use]
pub fn is_packed(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| PACKED.contains(&ending))
}

/// Whether `path` is called as rotation calls what was `original`: its name and more behind a dot or
/// a dash, in the same directory.
pub(crate) fn is_rotated(path: &Path, original: &Path) -> bool {
    let name = original.file_name().and_then(|name| name.to_str());
    path.parent() == original.parent()
        && name.is_some_and(|name| originals(path).any(|original| original == name))
}

/// The names that what is called so may have had before it was rotated, the longest first; none if what is inside cannot
/// be read.
pub(crate) fn originals(path: &Path) -> impl Iterator<Item = &str> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.filter(|_| is_packed(path) || !is_compressed(path));
    let name = name.unwrap_or_default();
    let ends = name.rmatch_indices(['.', '-']);
    ends.map(|(at, _)| &name[..at])
        .filter(|before| !before.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named() {
        let glob = Pattern::new(Path::new("/var/log/*.log"), false).unwrap();
        assert!(glob.names(Path::new("/var/log/a.log")));
        assert!(!glob.names(Path::new("/var/log/x/a.log")));
        assert!(!glob.names(Path::new("/var/log/.a.log")));
        let directory = Pattern::new(Path::new("/var/log"), true).unwrap();
        assert!(directory.names(Path::new("/var/log/a")));
        assert!(!directory.names(Path::new("/var/log/a.gz")));
        assert!(!directory.names(Path::new("/var/log/x/a")));
        assert!(Pattern::new(Path::new("/var/[log"), false).is_err());
    }

    #[test]
    fn names_of_rotated_files() {
        let is = |name: &str| is_rotated(Path::new(name), Path::new("/l/app.log"));
        assert!(is("/l/app.log.1") && is("/l/app.log-20260101"));
        assert!(is("/l/app.log.1.gz") && is("/l/app.log-20260101.zst"));
        assert!(!is("/l/app.log") && !is("/l/app.log.1.xz") && !is("/l/app.logs"));
        assert!(!is("/m/app.log.1"));
    }
}
