//! Header fields that a handler gives a reply.

use crate::grammar::is_token;

/// Appends a field if handlers may write such a field.
pub(crate) fn push_field(fields: &mut Vec<u8>, name: &str, value: &[u8]) -> bool {
    const OURS: [&str; 4] = ["connection", "content-length", "date", "transfer-encoding"];
    let legal = !name.is_empty()
        && name.bytes().all(is_token)
        && value
            .iter()
            .all(|&b| b == b'\t' || (b >= b' ' && b != 0x7f))
        && !OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours));
    if legal {
        fields.extend_from_slice(name.as_bytes());
        fields.extend_from_slice(b": ");
        fields.extend_from_slice(value);
        fields.extend_from_slice(b"\r\n");
    }
    legal
}
