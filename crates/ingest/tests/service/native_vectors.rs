//! The test vectors of the native protocol, `docs/formats/protocol-vectors.txt`: each is decoded to the
//! fields that stand beside it, and encoded from them again.

use std::fmt::Write;

use tidewire_ingest::native::codec::{
    AdminFrame, Begin, Hello, Level, Malformed, Read, ReaderFrame, Reason, ServerFrame, Wanted,
};

const VECTORS: &str = include_str!("../../../../docs/formats/protocol-vectors.txt");

fn bytes(hex: &str) -> Vec<u8> {
    assert_eq!(hex.len() % 2, 0, "{hex}");
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Received => "received",
        Level::Durable => "durable",
        Level::Replicated => "replicated",
    }
}

fn hello(bytes: &[u8]) -> Result<(String, Vec<u8>), Malformed> {
    let Read::Whole(hello, len) = Hello::decode(bytes)? else {
        panic!("not whole");
    };
    assert_eq!(len, bytes.len());
    let fields = match hello {
        Hello::Produce(p) => format!(
            "hello=produce level={} sparse={} adopt={} window_messages={} window_bytes={} \
             first_id={} stream={:?} producer={:?} token={:?}",
            p.level.map_or("default", level),
            p.sparse,
            p.adopt,
            p.window_messages,
            p.window_bytes,
            p.first_id,
            p.stream,
            p.producer,
            p.token
        ),
        Hello::Subscribe(s) => {
            let begin = match s.begin {
                Begin::Position(at) => format!("position:{at}"),
                Begin::Tail => "tail".to_owned(),
                Begin::Timestamp(at) => format!("timestamp:{at}"),
                Begin::Cursor => "cursor".to_owned(),
            };
            format!(
                "hello=subscribe begin={begin} follow={}{} credit={} stream={:?} cursor={:?} \
                 token={:?}",
                s.follow,
                if s.may_be_absent {
                    " may_be_absent=true"
                } else {
                    ""
                },
                s.credit,
                s.stream,
                s.cursor,
                s.token
            )
        }
        Hello::Administer(a) => format!("hello=administer token={:?}", a.token),
    };
    let mut again = Vec::new();
    hello.encode(&mut again).unwrap();
    Ok((fields, again))
}

fn server(bytes: &[u8]) -> Result<(String, Vec<u8>), Malformed> {
    let Read::Whole(frame, len) = ServerFrame::decode(bytes, 1 << 20)? else {
        panic!("not whole");
    };
    assert_eq!(len, bytes.len());
    let fields = match frame {
        ServerFrame::Welcome(w) => format!(
            "frame=welcome level={} payload_max={} window_messages={} keepalive_ms={} \
             window_bytes={} last_id={}{}",
            level(w.level),
            w.payload_max,
            w.window_messages,
            w.keepalive_ms,
            w.window_bytes,
            w.last_id.map_or("none".to_owned(), |id| id.to_string()),
            if w.forgotten { " forgotten=true" } else { "" },
        ),
        ServerFrame::Ack {
            id,
            keep_alive,
            why,
        } => {
            let why = match why {
                "" => String::new(),
                why => format!(" why={why:?}"),
            };
            format!("frame=ack id={id} keep_alive={keep_alive}{why}")
        }
        ServerFrame::Refusal(r) => {
            assert_eq!(r.closes, r.reason.closes());
            format!(
                "frame=refusal id={} reason={} retry_after_ms={} text={:?} closes={}",
                r.id,
                r.reason.to_string().replace(' ', "-"),
                r.retry_after_ms,
                r.text,
                r.closes
            )
        }
        ServerFrame::ReaderWelcome(w) => format!(
            "frame=reader-welcome first={} next={} start={} body_max={}{}",
            w.first,
            w.next,
            w.start,
            w.body_max,
            if w.skipped { " skipped=true" } else { "" }
        ),
        ServerFrame::Batch(b) => format!(
            "frame=batch first={} timestamp_us={} count={} producer={:?} messages={}",
            b.first,
            b.timestamp_us,
            b.count,
            b.producer,
            hex(b.messages)
        ),
        ServerFrame::End { next, short } => {
            let short = if short { " short=true" } else { "" };
            format!("frame=end next={next}{short}")
        }
        ServerFrame::AdminWelcome => "frame=admin-welcome".to_owned(),
        ServerFrame::Stream(s) => format!(
            "frame=stream first={} next={} bytes={} newest_us={} retain_bytes={} retain_age_us={} \
             limit_bytes={} lag={} producers={} cursors={} readers={} compression={} name={:?}{}",
            s.first,
            s.next,
            s.bytes,
            s.newest_us,
            s.retain_bytes,
            s.retain_age_us,
            s.limit_bytes,
            s.lag,
            s.producers,
            s.cursors,
            s.readers,
            s.compression,
            s.name,
            s.pins
                .map(|pins| format!(" pins={pins}"))
                .unwrap_or_default()
        ),
        ServerFrame::Place(p) => format!(
            "frame=place position={} lag={} cursor={:?} peer={:?}",
            p.position, p.lag, p.cursor, p.peer
        ),
        ServerFrame::Done { id, more } => format!("frame=done id={id} more={more}"),
        ServerFrame::Unknown(kind) => format!("frame=unknown kind={kind}"),
    };
    let mut again = Vec::new();
    frame.encode(&mut again);
    Ok((fields, again))
}

fn wanted(wanted: &Wanted) -> String {
    let limit = |name: &str, limit: Option<Option<u64>>| {
        limit.map(|limit| match limit {
            Some(limit) => format!("{name}:{limit}"),
            None => format!("{name}:none"),
        })
    };
    let compression = wanted.compression;
    let all = [
        limit("retain_bytes", wanted.retain_bytes),
        limit("retain_age_us", wanted.retain_age_us),
        limit("limit_bytes", wanted.limit_bytes),
        compression.map(|by| format!("compression:{}", by.name())),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(",")
}

fn admin(bytes: &[u8]) -> Result<(String, Vec<u8>), Malformed> {
    let Read::Whole(frame, len) = AdminFrame::decode(bytes)? else {
        panic!("not whole");
    };
    assert_eq!(len, bytes.len());
    let fields = match frame {
        AdminFrame::Create { wanted, .. } | AdminFrame::Set { wanted, .. } if wanted.is_unknown => {
            return Ok(("unsupported".into(), bytes.to_vec()));
        }
        AdminFrame::List { after } => format!("frame=list after={after:?}"),
        AdminFrame::Create { stream, wanted: w } => {
            format!("frame=create stream={stream:?} wanted={}", wanted(&w))
        }
        AdminFrame::Set { stream, wanted: w } => {
            format!("frame=set stream={stream:?} wanted={}", wanted(&w))
        }
        AdminFrame::Delete { stream } => format!("frame=delete stream={stream:?}"),
        AdminFrame::Cursors { stream, after } => {
            format!("frame=cursors stream={stream:?} after={after:?}")
        }
        AdminFrame::Readers { stream } => format!("frame=readers stream={stream:?}"),
        AdminFrame::DeleteCursor { stream, cursor } => {
            format!("frame=delete-cursor stream={stream:?} cursor={cursor:?}")
        }
        AdminFrame::Trim { stream, before } => {
            format!("frame=trim stream={stream:?} before={before}")
        }
        AdminFrame::Unknown(kind) => format!("frame=unknown kind={kind}"),
    };
    let mut again = Vec::new();
    frame.encode(&mut again).unwrap();
    Ok((fields, again))
}

fn reader(bytes: &[u8]) -> Result<(String, Vec<u8>), Malformed> {
    let Read::Whole(frame, len) = ReaderFrame::decode(bytes)? else {
        panic!("not whole");
    };
    assert_eq!(len, bytes.len());
    let fields = match frame {
        ReaderFrame::Credit(bytes) => format!("frame=credit bytes={bytes}"),
        ReaderFrame::CommitCursor(position) => format!("frame=commit-cursor position={position}"),
        ReaderFrame::Unknown(kind) => format!("frame=unknown kind={kind}"),
    };
    let mut again = Vec::new();
    frame.encode(&mut again);
    Ok((fields, again))
}

#[test]
fn every_vector_is_what_it_says() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for line in VECTORS
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        let mut parts = line.splitn(4, ' ');
        let mut part = || parts.next().unwrap_or_else(|| panic!("{line}"));
        let (name, direction, text, fields) = (part(), part(), part(), part());
        let whole = bytes(text);
        let decoded = match direction {
            "hello" => hello(&whole),
            "server" => server(&whole),
            "reader" => reader(&whole),
            "admin" => admin(&whole),
            _ => panic!("no such direction: {line}"),
        };
        seen += 1;
        let found = match &decoded {
            Ok((found, _)) => found.as_str(),
            Err(_) => "malformed",
        };
        if found != fields {
            wrong.push(format!("{name} {direction} {text} {found}"));
        }
        // Vectors with extras are told by their names: they are read, and written without.
        if let Ok((_, again)) = &decoded
            && again != &whole
            && !name.ends_with("-extended")
        {
            wrong.push(format!("{name} {direction} {} {found}", hex(again)));
        }
    }
    assert!(wrong.is_empty(), "should be:\n{}", wrong.join("\n"));
    assert!(seen > 30, "{seen}");
}

/// Every beginning of a vector asks for more, and for no more than the whole.
#[test]
fn every_beginning_of_a_frame_is_partial() {
    for line in VECTORS
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        let parts: Vec<&str> = line.splitn(4, ' ').collect();
        if parts[3] == "malformed" {
            continue;
        }
        let whole = bytes(parts[2]);
        for len in 0..whole.len() {
            let part = &whole[..len];
            let needed = match parts[1] {
                "hello" => match Hello::decode(part) {
                    Ok(Read::Partial(needed)) => needed,
                    other => panic!("{line}: {other:?}"),
                },
                "server" => match ServerFrame::decode(part, 1 << 20) {
                    Ok(Read::Partial(needed)) => needed,
                    other => panic!("{line}: {other:?}"),
                },
                "admin" => match AdminFrame::decode(part) {
                    Ok(Read::Partial(needed)) => needed,
                    other => panic!("{line}: {other:?}"),
                },
                _ => match ReaderFrame::decode(part) {
                    Ok(Read::Partial(needed)) => needed,
                    other => panic!("{line}: {other:?}"),
                },
            };
            assert!(needed > len && needed <= whole.len(), "{line}: {len}");
        }
    }
}

#[test]
fn reasons_keep_their_numbers() {
    for (at, reason) in Reason::ALL.iter().enumerate() {
        assert_eq!(usize::from(reason.code()), at + 1);
        assert_eq!(Reason::of(reason.code()), *reason);
    }
    assert_eq!(Reason::of(999), Reason::Unknown(999));
}
