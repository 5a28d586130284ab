//! What is written is read; what is damaged, or nothing of the kind, is refused and never more.

use tidewire_rdb::{Consumer, Decoder, Encoder, Error, Group, Item, Key, Stream, Value};

fn text(n: usize, rng: &mut fastrand::Rng) -> Vec<u8> {
    (0..n).map(|_| rng.u8(..)).collect()
}

fn stream(n: usize, rng: &mut fastrand::Rng) -> Stream {
    let (mut ms, mut seq) = (rng.u64(..1 << 60), rng.u64(..));
    let entry = |rng: &mut fastrand::Rng| {
        match rng.u8(..4) {
            0 => (ms, seq) = (ms + rng.u64(1..1 << 33), rng.u64(..1 << 60)),
            _ => seq = seq.saturating_add(1),
        }
        let long = rng.u8(..8) == 0;
        let fields = ["a", "temperature", "b"];
        let pairs = (0..rng.usize(1..3)).flat_map(|at| [fields[at].into(), text(4090, rng)]);
        let pairs = pairs.map(|mut text: Vec<u8>| {
            text.truncate(if long { 4096 } else { 30 });
            text
        });
        ((ms, seq), pairs.collect())
    };
    let mut next = entry;
    let mut entries: Vec<_> = (0..n).map(|_| next(rng)).collect();
    entries.dedup_by_key(|(id, _): &mut (_, Vec<Vec<u8>>)| *id);
    let last = entries.last().map_or((7, 7), |(id, _)| *id);
    let mut ids = entries.iter().map(|(id, _)| *id);
    let mut consumer = |n: usize, rng: &mut fastrand::Rng| {
        let seen_ms = rng.u64(..);
        Consumer {
            name: text(9, rng),
            seen_ms,
            // What is written does not say, and so it is taken for this.
            active_ms: Some(seen_ms),
            pending: ids
                .by_ref()
                .take(n)
                .map(|id| (id, rng.u64(..), rng.u64(1..300)))
                .collect(),
        }
    };
    let groups = (0..rng.usize(..3)).map(|at| Group {
        name: text(at + 1, rng),
        last: (rng.u64(..), rng.u64(..)),
        read: rng.bool().then(|| rng.u64(..1 << 62)),
        consumers: (0..rng.usize(..3)).map(|n| consumer(20 * n, rng)).collect(),
    });
    let groups = groups.collect();
    Stream {
        last,
        max_deleted: (rng.u64(..), 3),
        added: rng.u64(..1 << 62),
        groups,
        entries,
    }
}

fn any(rng: &mut fastrand::Rng) -> Value {
    let n = [1, 3, 70, 20_000][rng.usize(..4)];
    let few = n.min(300);
    let texts = |rng: &mut fastrand::Rng| (0..few).map(|_| text(rng.usize(..40), rng)).collect();
    match rng.u8(..6) {
        5 => Value::Stream(Box::new(stream(few, rng))),
        0 => Value::String(text(n, rng)),
        1 => Value::List(texts(rng)),
        2 => Value::Set(texts(rng)),
        3 => Value::Hash((0..few).map(|_| (text(5, rng), text(9, rng))).collect()),
        _ => Value::ZSet((0..few).map(|_| (text(6, rng), rng.f64())).collect()),
    }
}

fn file(rng: &mut fastrand::Rng) -> (Vec<u8>, Vec<Key>) {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes);
    let mut keys = Vec::new();
    for database in 0..rng.u32(1..4) {
        for _ in 0..rng.usize(..6) {
            let key = Key {
                database,
                key: text(rng.usize(..30), rng),
                deadline_ms: rng.bool().then(|| rng.u64(..)),
                value: any(rng),
            };
            encoder.key(database, &key.key, key.deadline_ms, &key.value, &mut bytes);
            keys.push(key);
        }
    }
    encoder.end(&mut bytes);
    (bytes, keys)
}

/// Reads with as many bytes at a time as `piece` says.
fn read(bytes: &[u8], mut piece: impl FnMut() -> usize) -> Result<Vec<Key>, Error> {
    let (mut decoder, mut keys) = (Decoder::default(), Vec::new());
    let (mut from, mut to) = (0, 0);
    loop {
        match decoder.next(&bytes[from..to])? {
            Some((used, item)) => {
                from += used;
                match item {
                    Item::Key(key) => keys.push(key),
                    Item::End => return Ok(keys),
                    Item::Library(_) | Item::Skipped(_) => {}
                }
            }
            None if to == bytes.len() => {
                let what = "too short";
                return Err(Error::Bad { offset: 0, what });
            }
            None => to = bytes.len().min(to + piece()),
        }
    }
}

#[test]
fn what_is_written_is_read_however_it_comes() {
    for seed in 0..60 {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let (bytes, keys) = file(rng);
        assert_eq!(read(&bytes, || bytes.len()).as_ref(), Ok(&keys));
        let mut piece = fastrand::Rng::with_seed(seed);
        assert_eq!(read(&bytes, || piece.usize(1..9000)), Ok(keys));
    }
}

#[test]
fn every_flipped_bit_is_found_by_the_checksum_or_before() {
    let rng = &mut fastrand::Rng::with_seed(3);
    let (bytes, keys) = file(rng);
    for _ in 0..400 {
        let mut bad = bytes.clone();
        let at = rng.usize(..bad.len());
        bad[at] ^= 1 << rng.u8(..8);
        let found = read(&bad, || 1 << 20);
        // A file may say that it has no checksum only by one of zeros.
        assert!(found.is_err() || found.as_ref() == Ok(&keys), "byte {at}");
        assert!(found.is_err(), "byte {at}");
    }
    for end in (0..bytes.len()).step_by(97) {
        assert!(read(&bytes[..end], || 1 << 20).is_err());
    }
}

/// Bytes that begin as a dump and go on by chance, and parts of real ones in an order of their own.
#[test]
fn nothing_makes_it_panic_or_take_more_than_it_is_given() {
    let kinds = [
        0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 0xf7, 0xfe,
    ];
    for seed in 0..30_000 {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut bytes = b"REDIS0011".to_vec();
        for _ in 0..rng.usize(1..5) {
            bytes.push(kinds[rng.usize(..kinds.len())]);
            bytes.extend_from_slice(b"\x01k");
            let n = rng.usize(..60);
            let mut packed = text(n, rng);
            if rng.bool() && n >= 11 {
                // A packed collection whose size is right.
                packed[..4].copy_from_slice(&(n as u32).to_le_bytes());
                packed[n - 1] = 0xff;
            }
            bytes.push(n as u8);
            bytes.extend(packed);
        }
        let _ = read(&bytes, || 7);
    }
}

#[test]
fn what_cannot_be_given_is_refused_by_name() {
    for (kind, says) in [(7, "of a module"), (22, "fields expire"), (9, "2.6")] {
        let bytes = [&b"REDIS0011"[..], &[kind], b"\x03key\x01x"].concat();
        let why = read(&bytes, || 100).unwrap_err().to_string();
        assert!(why.contains(says) && why.contains("key"), "{why}");
    }
    let why = read(b"REDIS0099", || 100).unwrap_err().to_string();
    assert!(why.contains("version 99"), "{why}");
    let why = read(b"VALKEY081", || 100).unwrap_err().to_string();
    assert!(why.contains("version 81"), "{why}");
}

/// The kind that Valkey has for hashes whose fields may expire is another one of Redis.
#[test]
fn hashes_of_valkey_whose_fields_last_are_read() {
    let hash = |deadline: i64| {
        let field = [&b"\x16\x03key\x01\x01f\x01v"[..], &deadline.to_le_bytes()].concat();
        // Without a checksum.
        [b"VALKEY080", &field[..], b"\xff\0\0\0\0\0\0\0\0"].concat()
    };
    let keys = read(&hash(-1), || 3).unwrap();
    let value = Value::Hash(vec![(b"f".to_vec(), b"v".to_vec())]);
    assert_eq!((keys.len(), &keys[0].value), (1, &value));
    let why = read(&hash(1), || 3).unwrap_err().to_string();
    assert!(
        why.contains("fields expire") && why.contains("key"),
        "{why}"
    );
}

/// A string of zeros, `run` times 264 bytes, compressed by LZF.
fn zeros(run: usize) -> Vec<u8> {
    let mut packed = vec![0, 0];
    packed.extend([0xe0, 0xff, 0].repeat(run));
    let long = 1 + run * 264;
    let length = |n: usize| [&[0x80][..], &(n as u32).to_be_bytes()].concat();
    [vec![0xc3], length(packed.len()), length(long), packed].concat()
}

/// The file has a hundredth of what it says.
#[test]
fn a_key_takes_no_more_memory_than_it_may() {
    let bomb = |strings: u8| {
        let mut file = b"REDIS0009\x01".to_vec();
        file.extend([1, b'k', strings]);
        file.extend(zeros(400).repeat(strings.into()));
        file
    };
    // What is compressed, and what is packed small.
    let packed = {
        let mut listpack = vec![1; 60_000 * 2];
        listpack.push(0xff);
        let size = (listpack.len() as u32 + 6).to_le_bytes();
        let head = [&size[..], &[0xff, 0xff]].concat();
        let length = (listpack.len() as u32 + 6).to_be_bytes();
        let file = [b"REDIS0012\x14\x01k\x80", &length[..], &head, &listpack];
        file.concat()
    };
    for (file, most) in [(bomb(1), 200 << 10), (bomb(9), 1 << 20), (packed, 3 << 20)] {
        let keys_of = |most| {
            let mut decoder = Decoder::default().with_key_max(most);
            let (used, _) = decoder.next(&file)?.unwrap();
            decoder.next(&file[used..]).map(|item| item.is_some())
        };
        assert_eq!(keys_of(most), Ok(true));
        let refused = keys_of(most / 2).unwrap_err().to_string();
        assert!(refused.contains("more memory"), "{refused}");
    }
}
