//! Patterns of paths.

/// Whether `path` matches `pattern`. A segment in braces matches any segment that is not empty.
pub(crate) fn matches(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut there) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), there.next()) {
            (None, None) => return true,
            (Some(wanted), Some(there)) if wanted == there => {}
            (Some(wanted), Some(there)) if name(wanted).is_some() && !there.is_empty() => {}
            _ => return false,
        }
    }
}

/// The segment of `path` that `pattern` calls `name`.
pub(crate) fn param<'p>(pattern: &str, path: &'p str, called: &str) -> Option<&'p str> {
    let mut both = pattern.split('/').zip(path.split('/'));
    both.find(|(wanted, _)| name(wanted) == Some(called))
        .map(|(_, there)| there)
}

/// The name in the braces.
pub(crate) fn name(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_one_segment() {
        assert!(matches("/a/{b}/c", "/a/x/c"));
        for other in ["/a//c", "/a/x", "/a/x/c/", "/a/x/y/c", "/b/x/c"] {
            assert!(!matches("/a/{b}/c", other), "{other}");
        }
        assert_eq!(param("/{a}/{b}", "/1/2", "b"), Some("2"));
        assert_eq!(param("/{a}/{b}", "/1/2", "c"), None);
    }
}
