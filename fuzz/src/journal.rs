//! Reading journald's export format that is anything: however it comes, it is the same entries and the same end.

use tidewire_ship::journal::{Entry, Malformed, Parser};

/// The first byte says in pieces of which length the rest comes.
pub fn journal_export(input: &[u8]) {
    let Some((&piece, bytes)) = input.split_first() else {
        return;
    };
    let whole = read(bytes, bytes.len());
    assert_eq!(read(bytes, usize::from(piece)), whole);
    for entry in &whole.0 {
        let told = entry.to_json();
        assert!(told.starts_with("{\"") && told.ends_with('}'), "{told}");
        assert!(!told.contains('\n'), "{told}");
        let cursor = entry.field("__CURSOR").map(str::from_utf8);
        assert_eq!(entry.cursor(), cursor.and_then(Result::ok));
    }
}

/// The entries, and why nothing more can be read, if that is so.
fn read(bytes: &[u8], piece: usize) -> (Vec<Entry>, Option<Malformed>) {
    let (mut parser, mut entries) = (Parser::default(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        parser.push(piece);
        loop {
            match parser.entry() {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => break,
                Err(malformed) => return (entries, Some(malformed)),
            }
        }
    }
    entries.extend(parser.end());
    (entries, None)
}
