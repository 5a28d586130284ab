//! Which bytes may stand where.

/// The characters of methods and names (RFC 9110, 5.6.2).
pub(crate) fn is_token(b: u8) -> bool {
    TOKEN[usize::from(b)]
}

static TOKEN: [bool; 256] = alphanumeric_and(b"!#$%&'*+-.^_`|~");

/// A table of ASCII's letters, its digits, and the given characters.
pub(crate) const fn alphanumeric_and(others: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 128 {
        table[b] = (b as u8).is_ascii_alphanumeric();
        b += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
}
