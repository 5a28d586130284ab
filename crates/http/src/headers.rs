//! Header fields, borrowed from the received bytes.

use std::fmt;

/// The fields of a head or of trailers, in the order in which they came.
///
/// ```
/// use tidewire_http::{Http, testing};
///
/// let app = Http::new(|request: &tidewire_http::Request<'_>, response: tidewire_http::Response<'_>| {
///     let names: Vec<&str> = request.headers().iter().map(|(name, _)| name).collect();
///     response.text(&format!("{names:?} {:?}", request.headers().get("ACCEPT")))
/// });
/// let got = testing::exchange(app, b"GET / HTTP/1.1\r\nHost: h\r\nAccept: text/plain\r\n\r\n");
/// assert_eq!(got.text(), r#"["Host", "Accept"] Some("text/plain")"#);
/// ```
#[derive(Clone, Copy)]
pub struct Headers<'a>(pub(crate) &'a [httparse::Header<'a>]);

impl<'a> Headers<'a> {
    /// No fields.
    pub(crate) const NONE: Headers<'static> = Headers(&[]);

    /// The value of the first field of that name, in whatever case, if it is valid UTF-8.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        std::str::from_utf8(self.get_bytes(name)?).ok()
    }

    /// The value of the first field of that name, in whatever case.
    #[must_use]
    pub fn get_bytes(&self, name: &str) -> Option<&'a [u8]> {
        let mut all = self.0.iter();
        let field = all.find(|field| field.name.eq_ignore_ascii_case(name))?;
        Some(trimmed(field.value))
    }

    /// All fields: names as they were sent, values without the blanks around them.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        self.0
            .iter()
            .map(|field| (field.name, trimmed(field.value)))
    }

    /// How many fields there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, value): (_, &[u8])| (name, String::from_utf8_lossy(value).into_owned());
        f.debug_map().entries(self.iter().map(shown)).finish()
    }
}

/// The value without spaces and tabs around it.
pub(crate) fn trimmed(value: &[u8]) -> &[u8] {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let start = value.iter().position(|b| !blank(b)).unwrap_or(value.len());
    let end = value
        .iter()
        .rposition(|b| !blank(b))
        .map_or(start, |at| at + 1);
    &value[start..end]
}
