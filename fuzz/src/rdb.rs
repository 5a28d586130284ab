//! Reading a dump that is anything: it is read or refused, the same in pieces as at once, within the memory that a
//! key may take; what was read is the same when it is written and read again.

use tidewire_rdb::{Decoder, Encoder, Error, Item, Key, Value};

/// What a key may take here.
const KEY_MAX: usize = 64 << 10;
/// Pieces of one length that are given of an item; twice as many bytes each time then. Each has what came before decoded again,
/// and a hundred bytes can stand for 26 KB: inputs of some KiB in pieces of 16 bytes took seconds under a sanitizer.
const PIECES: usize = 64;

/// The first byte says how the rest comes: from its beginning or behind that of a dump, and in pieces of which
/// length.
pub fn rdb_decode(input: &[u8]) {
    let Some((&how, rest)) = input.split_first() else {
        return;
    };
    let file = if how & 1 == 0 {
        rest.to_vec()
    } else {
        [b"REDIS0012", rest].concat()
    };
    let (keys, end) = read(&file, file.len());
    let piece = usize::from(how >> 1) + 16;
    assert_eq!(read(&file, piece), (keys.clone(), end));
    for key in &keys {
        let bytes = key.key.len() + size(&key.value);
        assert!(bytes <= KEY_MAX, "{bytes} bytes of a key");
    }
    let again = written(&keys);
    assert_eq!(read(&again, again.len()), (keys, Ok(true)));
}

/// The keys before the end, and what that was: the file's own, that there is no more, or an error.
fn read(file: &[u8], piece: usize) -> (Vec<Key>, Result<bool, Error>) {
    let mut decoder = Decoder::default().with_key_max(KEY_MAX);
    let (mut keys, mut from, mut to) = (Vec::new(), 0, 0);
    let (mut pieces, mut looked_at) = (0, 0);
    loop {
        looked_at += to - from;
        assert!(
            looked_at <= (PIECES + 5) * (file.len() + 1),
            "{looked_at} bytes"
        );
        match decoder.next(&file[from..to]) {
            Ok(Some((used, item))) => {
                assert!(used > 0 && used <= to - from);
                // What is behind it was not decoded.
                looked_at -= to - from - used;
                from += used;
                pieces = 0;
                match item {
                    Item::Key(key) => keys.push(key),
                    Item::End => return (keys, Ok(true)),
                    Item::Library(_) | Item::Skipped(_) => {}
                }
            }
            Ok(None) if to == file.len() => return (keys, Ok(false)),
            Ok(None) => {
                pieces += 1;
                let more = if pieces < PIECES { 1 } else { to - from };
                to = file.len().min(to + piece.max(more));
            }
            Err(error) => return (keys, Err(error)),
        }
    }
}

fn written(keys: &[Key]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes);
    for key in keys {
        encoder.key(
            key.database,
            &key.key,
            key.deadline_ms,
            &key.value,
            &mut bytes,
        );
    }
    encoder.end(&mut bytes);
    bytes
}

fn size(value: &Value) -> usize {
    match value {
        Value::String(s) => s.len(),
        Value::List(all) | Value::Set(all) => all.iter().map(Vec::len).sum(),
        Value::Hash(all) => all.iter().map(|(f, v)| f.len() + v.len()).sum(),
        Value::Stream(stream) => {
            let entries = stream.entries.iter().flat_map(|(_, texts)| texts);
            let names = stream.groups.iter().flat_map(|group| {
                let consumers = group.consumers.iter().map(|consumer| &consumer.name);
                consumers.chain([&group.name])
            });
            entries.chain(names).map(Vec::len).sum()
        }
        Value::ZSet(all) => all.iter().map(|(member, _)| member.len() + 8).sum(),
    }
}
