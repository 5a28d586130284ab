//! The properties that decide the head of a reply, and the head that was made last: most replies of a server differ
//! only in their bodies.

/// Most bytes that a head takes beside the fields of a handler.
pub(crate) const FIXED: usize = 256;

/// How the end of a reply's body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Known(u64),
    Chunked,
    /// The body ends when the connection is closed.
    Closing,
    /// The reply has no body, and its head says nothing of one.
    Never,
}

/// The content type of a body for which the handler gives no field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Unsaid,
    Text,
    Html,
    Json,
}

impl Content {
    /// The field.
    pub(crate) fn line(self) -> &'static [u8] {
        match self {
            Content::Unsaid => b"",
            Content::Text => b"content-type: text/plain; charset=utf-8\r\n",
            Content::Html => b"content-type: text/html; charset=utf-8\r\n",
            Content::Json => b"content-type: application/json\r\n",
        }
    }
}

/// All that a head without fields of a handler depends on, beside the date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) status: u16,
    pub(crate) keep: bool,
    pub(crate) http11: bool,
    pub(crate) content: Content,
    pub(crate) length: Length,
}

/// The head that was made last. A head is kept when it was made twice in a row: so heads that differ each
/// time are never copied.
#[derive(Debug)]
pub(crate) struct Last {
    kind: Option<Kind>,
    bytes: [u8; FIXED],
    /// The length of the head; 0 until the head was made twice.
    len: usize,
}

impl Default for Last {
    fn default() -> Last {
        Last {
            kind: None,
            bytes: [0; FIXED],
            len: 0,
        }
    }
}

impl Last {
    /// The ready head of this kind, if it was made.
    #[inline]
    pub(crate) fn head(&self, kind: &Kind) -> Option<&[u8]> {
        (self.len > 0 && self.kind.as_ref() == Some(kind)).then(|| &self.bytes[..self.len])
    }

    /// A head was made.
    #[inline]
    pub(crate) fn made(&mut self, kind: Kind, head: &[u8]) {
        if self.kind != Some(kind) {
            (self.kind, self.len) = (Some(kind), 0);
        } else if let Some(place) = self.bytes.get_mut(..head.len()) {
            place.copy_from_slice(head);
            self.len = head.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_there_once_it_was_made_twice_in_a_row() {
        let kind = Kind {
            status: 200,
            keep: true,
            http11: true,
            content: Content::Text,
            length: Length::Known(13),
        };
        let longer = Kind {
            length: Length::Known(14),
            ..kind
        };
        let mut last = Last::default();
        for (made, kept) in [
            (kind, None),
            (longer, None),
            (kind, None),
            (kind, Some(&b"it"[..])),
        ] {
            assert_eq!(last.head(&kind), None);
            last.made(made, b"it");
            assert_eq!(last.head(&kind), kept);
        }
        assert_eq!(last.head(&longer), None);
        last.made(longer, b"another");
        assert_eq!(last.head(&kind), None);
    }
}
