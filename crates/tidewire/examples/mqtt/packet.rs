//! Packets of MQTT 3.1.1, as far as the broker knows them.

/// The longest packet that is taken, in bytes.
pub(crate) const LONGEST: usize = 256 << 10;

/// What a client sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    Connect {
        client: &'a str,
        keep_alive_s: u16,
        will: Option<Publish<'a>>,
    },
    Publish {
        publish: Publish<'a>,
        /// QoS 1 has one, and is to be acknowledged.
        id: Option<u16>,
    },
    Acknowledged(u16),
    Subscribe {
        id: u16,
        /// Each with the QoS that is asked for.
        filters: Vec<(&'a str, u8)>,
    },
    Unsubscribe {
        id: u16,
        filters: Vec<&'a str>,
    },
    Ping,
    Disconnect,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Publish<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) retain: bool,
    pub(crate) qos: u8,
}

/// The first packet of some bytes and its length, or `None` if it is not whole.
pub(crate) fn first(bytes: &[u8]) -> Result<Option<(Packet<'_>, usize)>, &'static str> {
    let (mut len, mut head) = (0, 1);
    loop {
        let Some(&byte) = bytes.get(head) else {
            return Ok(None);
        };
        len |= usize::from(byte & 0x7f) << (7 * (head - 1));
        head += 1;
        match byte & 0x80 {
            0 => break,
            _ if head > 4 => return Err("a length of more than four bytes"),
            _ => {}
        }
    }
    if len > LONGEST {
        return Err("a packet that is too long");
    }
    let Some(body) = bytes.get(head..head + len) else {
        return Ok(None);
    };
    let packet = parse(bytes[0], Reader(body)).ok_or("a malformed packet")?;
    Ok(Some((packet, head + len)))
}

fn parse(first: u8, mut body: Reader<'_>) -> Option<Packet<'_>> {
    let flags = first & 15;
    Some(match (first >> 4, flags) {
        (1, 0) => connect(&mut body)?,
        (3, _) => {
            let qos = flags >> 1 & 3;
            let topic = body.text().filter(|t| is_topic(t) && qos < 2)?;
            let id = if qos == 0 { None } else { Some(body.id()?) };
            let (payload, retain) = (body.rest(), flags & 1 != 0);
            let publish = Publish {
                topic,
                payload,
                retain,
                qos,
            };
            Packet::Publish { publish, id }
        }
        (4, 0) => Packet::Acknowledged(body.id()?),
        (8, 2) => {
            let (id, mut filters) = (body.id()?, Vec::new());
            while !body.0.is_empty() {
                let filter = body.text().filter(|f| is_filter(f))?;
                filters.push((filter, body.byte().filter(|qos| *qos < 3)?));
            }
            Some(Packet::Subscribe { id, filters }).filter(|_| body.0.is_empty())?
        }
        (10, 2) => {
            let (id, mut filters) = (body.id()?, Vec::new());
            while !body.0.is_empty() {
                filters.push(body.text()?);
            }
            Packet::Unsubscribe { id, filters }
        }
        (12, 0) => Packet::Ping,
        (14, 0) => Packet::Disconnect,
        _ => return None,
    })
}

fn connect<'a>(body: &mut Reader<'a>) -> Option<Packet<'a>> {
    let is_known = body.text()? == "MQTT" && body.byte()? == 4;
    let flags = body.byte().filter(|_| is_known)?;
    let keep_alive_s = body.number()?;
    let client = body.text()?;
    let will = match flags & 4 {
        0 => None,
        _ => Some(Publish {
            topic: body.text().filter(|topic| is_topic(topic))?,
            payload: body.bytes()?,
            retain: flags & 0x20 != 0,
            qos: (flags >> 3 & 3).min(1),
        }),
    };
    Some(Packet::Connect {
        client,
        keep_alive_s,
        will,
    })
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn number(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    fn id(&mut self) -> Option<u16> {
        self.number().filter(|id| *id != 0)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?.into();
        let (first, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(first)
    }

    fn text(&mut self) -> Option<&'a str> {
        let text = std::str::from_utf8(self.bytes()?).ok()?;
        (!text.contains('\0')).then_some(text)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

fn is_topic(topic: &str) -> bool {
    !topic.is_empty() && !topic.contains(['+', '#'])
}

/// `+` stands for one level, `#` for all that follow, and each is a level of its own.
fn is_filter(filter: &str) -> bool {
    let mut levels = filter.split('/').peekable();
    let mut fits = !filter.is_empty();
    while let Some(level) = levels.next() {
        fits &= match level {
            "+" => true,
            "#" => levels.peek().is_none(),
            _ => !level.contains(['+', '#']),
        };
    }
    fits
}

/// Whether a topic is meant by a filter. Topics of the server itself (`$SYS/...`) are meant by name only.
pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
    loop {
        match (filter.next(), topic.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(wanted), Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
}

/// A publication as a subscriber is sent it.
pub(crate) fn publish(topic: &str, payload: &[u8], retain: bool, id: Option<u16>) -> Vec<u8> {
    let mut packet = vec![0x30 | u8::from(id.is_some()) << 1 | u8::from(retain)];
    let mut len = 2 + topic.len() + payload.len() + if id.is_some() { 2 } else { 0 };
    while len > 0x7f {
        packet.push(len as u8 | 0x80);
        len >>= 7;
    }
    packet.push(len as u8);
    packet.extend((topic.len() as u16).to_be_bytes());
    packet.extend(topic.as_bytes());
    packet.extend(id.iter().flat_map(|id| id.to_be_bytes()));
    packet.extend(payload);
    packet
}
