//! Streams against a plain map, and written down while they change.
