//! Random commands, made from templates.
//!
//! In a template `(A|B)` is one of several, `[A]` there or not, `{A}` one to four times, and `$c` a
//! random word of some class, or several. A few commands are spoilt on purpose.

use fastrand::Rng;

use crate::templates::{ONLY_REDIS, SINCE_7_2, TEMPLATES};

pub(crate) type Args = Vec<Vec<u8>>;

/// A random command that the peer has.
pub(crate) fn command(rng: &mut Rng, is_7_2: bool) -> Args {
    let own = if is_7_2 { SINCE_7_2 } else { ONLY_REDIS };
    let at = rng.usize(..TEMPLATES.len() + own.len());
    let template = TEMPLATES
        .get(at)
        .unwrap_or_else(|| &own[at - TEMPLATES.len()]);
    let mut args = Vec::new();
    expand(template, rng, &mut args);
    if rng.u8(..) < 5 && (is_7_2 || !UNSPOILT.contains(&&args[0][..])) {
        spoil(&mut args, rng);
    }
    args
}

/// Redis 7.0 looks for the keys of these before it looks at their arguments; 7.2 and ours do not.
const UNSPOILT: [&[u8]; 8] = [
    b"BITCOUNT",
    b"BITPOS",
    b"GETEX",
    b"SCAN",
    // These have other words for it.
    b"XREAD",
    b"XREADGROUP",
    b"ZRANK",
    b"ZREVRANK",
];

fn spoil(args: &mut Args, rng: &mut Rng) {
    let at = 1 + rng.usize(..args.len().max(2) - 1);
    match rng.u8(..4) {
        0 => drop(args.pop().filter(|_| args.len() > 1)),
        1 if at < args.len() => args[at] = any(rng, &["x", "0", "nan", "LIMIT"]),
        2 if at < args.len() => drop(args.remove(at)),
        _ => args.push(any(rng, &["", "x", "1", "WITHSCORES", "COUNT"])),
    }
    if args.is_empty() {
        args.push(b"GET".to_vec());
    }
}

/// The index of the bracket that closes the one at the front.
fn closing(template: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in template.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    panic!("not closed: {template}")
}

/// The alternatives of a group, split at the bars that are in no inner group.
fn alternatives(group: &str) -> Vec<&str> {
    let (mut depth, mut from, mut all) = (0, 0, Vec::new());
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b'|' if depth == 0 => {
                all.push(&group[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    all.push(&group[from..]);
    all
}

/// Adds the words of a template.
pub(crate) fn expand(template: &str, rng: &mut Rng, args: &mut Args) {
    let mut rest = template.trim_start();
    while let Some(first) = rest.bytes().next() {
        let len = match first {
            b'(' | b'[' | b'{' => {
                let end = closing(rest);
                let group = &rest[1..end];
                match first {
                    b'(' => expand(rng.choice(alternatives(group)).unwrap(), rng, args),
                    b'[' if rng.bool() => expand(group, rng, args),
                    b'[' => {}
                    _ => (0..1 + rng.usize(..4)).for_each(|_| expand(group, rng, args)),
                }
                end + 1
            }
            b'$' => {
                word(rest.as_bytes()[1], rng, args);
                2
            }
            _ => {
                let end = rest.find(' ').unwrap_or(rest.len());
                args.push(rest[..end].into());
                end
            }
        };
        rest = rest[len..].trim_start();
    }
}

fn any(rng: &mut Rng, words: &[&str]) -> Vec<u8> {
    rng.choice(words).unwrap().as_bytes().to_vec()
}

/// The type of a field of bits, and where it is.
fn field(rng: &mut Rng, args: &mut Args) {
    let kind = match rng.u8(..20) {
        0 => any(
            rng,
            &["u64", "i65", "u0", "i0", "x", "", "i", "u-1", "I8", "i08"],
        ),
        n if n < 10 => format!("u{}", rng.u8(1..64)).into_bytes(),
        _ => format!("i{}", rng.u8(1..65)).into_bytes(),
    };
    let at = match rng.u8(..20) {
        0 => any(
            rng,
            &[
                "-1",
                "#-1",
                "x",
                "#",
                "4294967296",
                "##1",
                "#9223372036854775807",
            ],
        ),
        n if n < 8 => format!("#{}", rng.u8(..6)).into_bytes(),
        _ => rng.u8(..100).to_string().into_bytes(),
    };
    args.extend([kind, at]);
}

/// A longitude and a latitude.
fn place(rng: &mut Rng, args: &mut Args) {
    let mut degrees = |most: i32| -> Vec<u8> {
        let (whole, part) = (rng.i32(-most..most), rng.u32(..1_000_000));
        match rng.u8(..20) {
            0 => any(
                rng,
                &[
                    "0",
                    "180",
                    "-180",
                    "85.05112878",
                    "-85.06",
                    "181",
                    "x",
                    "nan",
                    "1e-9",
                ],
            ),
            1..6 => format!("{whole}").into_bytes(),
            6..14 => format!("{}.{part:06}", 10 + whole % 4).into_bytes(),
            _ => format!("{whole}.{part}").into_bytes(),
        }
    };
    let (longitude, latitude) = (degrees(180), degrees(85));
    args.extend([longitude, latitude]);
}

/// How far something is.
fn length(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..16) {
        0 => any(rng, &["0", "-1", "x", "nan", "inf", "1e300", "40000"]),
        1..5 => rng.u32(..100_000).to_string().into_bytes(),
        5..8 => format!("{}.{}", rng.u32(..2000), rng.u32(..1000)).into_bytes(),
        _ => rng.u32(..3000).to_string().into_bytes(),
    }
}

/// Keys that usually hold this type, a few of each: `p` is a HyperLogLog, `a` a sorted set of
/// places, `o` is a sorted set with equal scores, as ranges of members want it, `q` a set from
/// SDIFFSTORE. Few commands name these.
fn key(of: u8, rng: &mut Rng) -> Vec<u8> {
    let others: &[u8] = match of {
        // No sorted set with other scores, and nothing without an order.
        b'o' | b'q' | b'j' | b'a' => b"hlt",
        _ => b"hlszt",
    };
    let of = if rng.u8(..) < 8 {
        *rng.choice(others).unwrap()
    } else {
        of
    };
    vec![of, b'0' + rng.u8(..3)]
}

fn member(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..20) {
        0 => Vec::new(),
        1 => vec![b'm'; 65],
        2 => b"\r\n\0\xff".to_vec(),
        3..7 => rng.i32(-3..12).to_string().into_bytes(),
        7 => any(
            rng,
            &[
                "007",
                "-00",
                "9223372036854775807",
                "9223372036854775808",
                "1.5",
            ],
        ),
        _ => vec![b'a' + rng.u8(..9)],
    }
}

/// A number as both read it; see also [`odd_score`].
fn float(rng: &mut Rng) -> Vec<u8> {
    const ODD: &[&str] = &[
        "inf",
        "-inf",
        "+inf",
        "1e3",
        "-0",
        "0.1",
        "3.0",
        "1e-7",
        "123456789.123",
        "1e20",
        "5e-324",
        "1.7976931348623157e308",
        "nan",
        "abc",
        "-1.5E2",
        "0.30000000000000004",
        "infinity",
        ".5",
        "5.",
        "4503599627370497.5",
        "1e17",
        "1e21",
        "0.0001",
        "0.00001",
    ];
    match rng.u8(..8) {
        0 => any(rng, ODD),
        1 => format!("{}", f64::from(rng.i32(-1000..1000)) / 8.0).into_bytes(),
        _ => rng.i32(-3..6).to_string().into_bytes(),
    }
}

/// A score as C reads them, and Redis; Valkey has another reader.
fn odd_score(rng: &mut Rng) -> Vec<u8> {
    const ODD: &[&str] = &[
        "0x10",
        "-0X1.8p1",
        "0x",
        "0x.8",
        "0x1p-1074",
        "0x1p-1080",
        "0x1p1030",
        "",
        " 1",
        "\t2",
        " ",
        "1 ",
        "1e999",
        "-1e999",
        "1e-999",
        "+0x3",
        "0x1p",
        "infinity",
        "nan",
    ];
    match rng.u8(..4) {
        0 => format!("{:#x}", rng.u8(..)).into_bytes(),
        _ => any(rng, ODD),
    }
}

/// A number as INCRBYFLOAT takes them: with more digits and a wider range than 64 bits have.
fn long_float(rng: &mut Rng) -> Vec<u8> {
    const ODD: &[&str] = &[
        "18446744073709551615",
        "-18446744073709551616",
        "1e4932",
        "-1.1e4932",
        "1e5000",
        "1e-4950",
        "1e-4940",
        "1e-5000",
        "0x1p-3",
        "-0X1.8p70",
        "0x",
        "0x1.8",
        "",
        " 1",
        "1e",
        "0.00000000000000000500000000000000000001",
        "0.000000000000000005",
    ];
    let sign = if rng.bool() { "" } else { "-" };
    match rng.u8(..8) {
        0 => float(rng),
        1 => any(rng, ODD),
        2 => rng.i64(..).to_string().into_bytes(),
        3 => format!("{sign}{}.{}", rng.u64(..), rng.u64(..)).into_bytes(),
        4 => format!("{sign}{}e{}", rng.u128(..), rng.i32(-60..40)).into_bytes(),
        5 => format!("{sign}{}e{}", rng.u64(..), rng.i32(-5000..5000)).into_bytes(),
        6 => format!("{sign}0.{}", rng.u32(..1000)).into_bytes(),
        _ => format!("{sign}{}.{}", rng.u32(..100), rng.u32(..100)).into_bytes(),
    }
}

/// The id of an entry that is added; ids at the end are usually above all others.
fn added_id(rng: &mut Rng) -> Vec<u8> {
    const ODD: &[&str] = &[
        "5",
        "0-0",
        "0-*",
        "x",
        "-",
        "+",
        "*-1",
        "1-",
        "007-1",
        "1-*x",
        "0-1",
        "40",
        "18446744073709551615-*",
        "18446744073709551615-18446744073709551615",
    ];
    match rng.u8(..24) {
        0 => any(rng, ODD),
        1..8 => format!("{}-{}", rng.u8(1..30), rng.u8(..4)).into_bytes(),
        _ => format!("{}-*", rng.u8(28..31)).into_bytes(),
    }
}

/// An id that may be there.
fn id(rng: &mut Rng) -> Vec<u8> {
    const ODD: &[&str] = &["0", "x", "-", "1-x", "18446744073709551616", "-1", "$", ">"];
    match rng.u8(..40) {
        0 => any(rng, ODD),
        1..8 => rng.u8(..32).to_string().into_bytes(),
        8 => format!("30-{}", rng.u8(..)).into_bytes(),
        9..25 => format!("{}-{}", rng.u8(28..31), rng.u8(..4)).into_bytes(),
        _ => format!("{}-{}", rng.u8(..31), rng.u8(..3)).into_bytes(),
    }
}

/// An end of a range of ids.
fn bound(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..12) {
        0..3 => b"-".to_vec(),
        3..6 => b"+".to_vec(),
        6 => [b"(".to_vec(), id(rng)].concat(),
        7 => any(
            rng,
            &[
                "(",
                "((1",
                "(0-0",
                "(18446744073709551615-18446744073709551615",
                "(-",
            ],
        ),
        _ => id(rng),
    }
}

/// Entries that fill blocks of a stream.
pub(crate) fn burst(rng: &mut Rng) -> impl Iterator<Item = Args> {
    let key = key(b'j', rng);
    let n = rng.usize(50..250);
    (0..n).map(move |at| {
        let name = if at % 70 == 69 { "b" } else { "a" };
        let value = at.to_string();
        let words: [&[u8]; 5] = [b"XADD", &key, b"30-*", name.as_bytes(), value.as_bytes()];
        words.map(<[u8]>::to_vec).to_vec()
    })
}

fn integer(rng: &mut Rng) -> Vec<u8> {
    const ODD: &[&str] = &[
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "1.0",
        "+1",
        " 1",
        "",
        "01",
        "-0",
        "x",
        "4294967296",
        "-4294967297",
    ];
    match rng.u8(..24) {
        0 => any(rng, ODD),
        _ => rng.i32(-6..7).to_string().into_bytes(),
    }
}

/// Pushes a number and as many keys, rarely a wrong number.
fn counted(of: u8, rng: &mut Rng, args: &mut Args) {
    let n = 1 + rng.usize(..3);
    let said = match rng.u8(..30) {
        0 => any(rng, &["0", "-1", "9", "x", "9223372036854775807"]),
        _ => n.to_string().into_bytes(),
    };
    args.push(said);
    (0..n).for_each(|_| args.push(key(of, rng)));
}

fn word(class: u8, rng: &mut Rng, args: &mut Args) {
    let word = match class {
        b'h' | b'l' | b's' | b'z' | b't' | b'o' | b'q' | b'j' | b'p' | b'a' => key(class, rng),
        b'k' => key(*rng.choice(b"hlsztjpa").unwrap(), rng),
        b'F' => return field(rng, args),
        b'O' => return place(rng, args),
        b'A' => length(rng),
        b'U' => any(rng, &["m", "km", "km", "mi", "FT", "x"]),
        b'I' => added_id(rng),
        b'N' => id(rng),
        b'B' => bound(rng),
        b'W' => any(rng, &["$", "0", ">", "0-0", "5", "20"]),
        b'G' => any(rng, &["g1", "g1", "g2"]),
        b'C' => any(rng, &["c1", "c1", "c2", "c3"]),
        b'K' => return counted(*rng.choice(b"sz").unwrap(), rng, args),
        b'L' | b'S' | b'Z' => return counted(class.to_ascii_lowercase(), rng, args),
        b'm' => member(rng),
        b'v' => match rng.u8(..6) {
            0 => vec![b'v'; rng.usize(..200)],
            1 => float(rng),
            2 => integer(rng),
            _ => member(rng),
        },
        // Many members: collections get big.
        b'M' => {
            let (from, n) = (rng.usize(..300), rng.usize(..200));
            let step = 1 + rng.usize(..2);
            args.extend((from..from + n + 1).map(|n| format!("m{}", n * step).into_bytes()));
            return;
        }
        b'P' => {
            let (from, n) = (rng.usize(..300), rng.usize(..200));
            args.extend((2 * from..2 * (from + n + 1)).map(|n| n.to_string().into_bytes()));
            return;
        }
        b'i' => integer(rng),
        // A small index or number. Redis's lists wrap at 32 bits, and so many random members are too many.
        b'd' => rng.i32(-6..7).to_string().into_bytes(),
        b'n' => match rng.u8(..12) {
            0 => integer(rng),
            _ => rng.u8(..5).to_string().into_bytes(),
        },
        // Where a limit starts: below zero it means what the version likes.
        b'u' => rng.u8(..5).to_string().into_bytes(),
        // Too big to be one; as a bound it is infinite in Redis.
        b'x' if rng.u8(..) == 0 => b"1e400".to_vec(),
        b'x' => float(rng),
        b'f' => long_float(rng),
        b'X' => odd_score(rng),
        // A weight.
        b'w' if rng.u8(..) < 16 => any(rng, &["x", "inf", "-inf", "nan", ""]),
        b'w' => (f64::from(rng.i8(..)) / 8.0).to_string().into_bytes(),
        b'b' => match rng.u8(..6) {
            0 => any(
                rng,
                &[
                    "-inf", "+inf", "inf", "(inf", "(-inf", "[1", "", "(", "1e999", "-1e999",
                ],
            ),
            1 => [b"(".to_vec(), float(rng)].concat(),
            _ => float(rng),
        },
        b'y' => match rng.u8(..10) {
            0 => any(rng, &["", "x", "(", "["]),
            1 | 2 => b"-".to_vec(),
            3 | 4 => b"+".to_vec(),
            n => [vec![if n < 8 { b'[' } else { b'(' }], member(rng)].concat(),
        },
        b'g' => any(
            rng,
            &[
                "*", "**", "***", "a*", "*a*b*", "?*", "?", "[a-c]", "[^a]", "*1", "h?", "\\a",
                "m*5", "[", "", "a", "[]", "\\", "[a-", "a**",
            ],
        ),
        // Too big a timeout is said to be negative by Redis 7.0.
        b'c' => any(rng, &["0", "0.1", "1", "-1", "x"]),
        // A time far away, in milliseconds or in seconds.
        b'e' => any(
            rng,
            &[
                "4000000000000",
                "4000000000001",
                "5000000000000",
                "1",
                "-1",
                "x",
            ],
        ),
        b'E' => any(
            rng,
            &["4000000000", "4000000001", "5000000000", "1", "0", "x"],
        ),
        b'r' => any(
            rng,
            &["0", "1", "2", "7", "8", "100", "-1", "x", "4294967296"],
        ),
        other => panic!("no class {}", char::from(other)),
    };
    args.push(word);
}
