//! The settings of a script for its JSON: `cjson.encode_sparse_array` and others like it.

/// Deepest nesting that may be asked for. The original takes 1000; a connection on a thread of its own has half a
/// MiB of stack.
pub(crate) const DEPTH_MAX: i64 = 128;

/// The settings that a script can change; for its own run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonConfig {
    /// Whether tables with many holes become objects rather than errors.
    pub(crate) sparse_convert: bool,
    pub(crate) sparse_ratio: i64,
    pub(crate) sparse_safe: i64,
    pub(crate) encode_depth: i64,
    pub(crate) decode_depth: i64,
    /// Significant digits.
    pub(crate) precision: i64,
    /// How numbers are treated that JSON does not have.
    pub(crate) encode_invalid: Invalid,
    pub(crate) decode_invalid: bool,
    pub(crate) keep_buffer: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    Refused,
    Written,
    Null,
}

impl Default for JsonConfig {
    fn default() -> JsonConfig {
        JsonConfig {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth: DEPTH_MAX,
            decode_depth: DEPTH_MAX,
            precision: 14,
            encode_invalid: Invalid::Refused,
            decode_invalid: true,
            keep_buffer: true,
        }
    }
}
