//! The HTTP load, on a command line.

use tidewire_command::count;

use super::http::{HttpLoad, HttpRequest};
use super::load::Workload;
use super::options::{Chosen, Kind, Options, Unfit, at_least_one, bounded};
use super::url::Url;

/// Requests to a web server.
pub(super) const KIND: Kind = Kind::of::<HttpArgs>(
    "http",
    "A request to a web server; status, length and body of every reply are checked",
)
.used(
    &["tidewire bench http --connections 64 --path /bytes/1000"],
    &["tidewire bench ab http --a workers=1 --b workers=2"],
)
.briefly(&[
    ("path", "Path and query [default: /]"),
    ("method", "Of the request [default: GET]"),
    ("header", "A field of the request"),
    ("body", "Bytes of the request's body"),
    ("status", "That every reply has [default: 200]"),
]);

/// The HTTP load.
#[derive(Clone, Debug, clap::Args)]
struct HttpArgs {
    /// The server and what it is asked for, such as http://localhost:8080/index.html or https://..., instead of --addr and
    /// --path
    #[arg(value_name = "URL", conflicts_with = "path")]
    url: Option<Url>,
    /// Path and query of the request. May be repeated, with a weight in front of each as 80:/one: each time one of them
    /// is drawn
    #[arg(long, default_value = "/", value_name = "[WEIGHT:]TARGET", value_parser = target)]
    path: Vec<Target>,
    /// Method of the request
    #[arg(long, default_value = "GET", value_name = "NAME")]
    method: String,
    /// A header field of the request, such as "Accept: text/html"; may be repeated. Host is there
    /// unless given here
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Body of the request, so many bytes of a pattern
    #[arg(long, value_name = "BYTES", value_parser = count::bytes)]
    body: Option<usize>,
    /// Sends the body in chunks of this many bytes instead of saying its length
    #[arg(long, value_name = "BYTES", requires = "body", value_parser = count::bytes)]
    chunked: Option<usize>,
    /// The status that every reply must have
    #[arg(long, default_value_t = 200, value_name = "STATUS")]
    status: u16,
    /// The length that every reply's body must have [default: that of the first]
    #[arg(long, value_name = "BYTES", value_parser = count::bytes)]
    length: Option<usize>,
    /// Every reply's body must be the request's [default: it must be that of the first]
    #[arg(long)]
    echoes: bool,
    /// Requests in flight on each connection
    #[arg(long, default_value = "1", value_name = "N", value_parser = count::some)]
    pipeline: u32,
    /// A connection for each request
    #[arg(long, conflicts_with = "pipeline")]
    close: bool,
}

/// A requested path, and how often it is requested relative to others.
#[derive(Clone, Debug, PartialEq)]
struct Target {
    path: String,
    weight: f64,
}

fn target(text: &str) -> Result<Target, String> {
    let weighted = text.split_once(':').filter(|_| !text.starts_with('/'));
    let (weight, path) = match weighted {
        None => (1.0, text),
        Some((weight, path)) => match weight.parse::<f64>() {
            Ok(weight) if weight > 0.0 && weight.is_finite() => (weight, path),
            _ => return Err(format!("{text:?}: a weight is a number above 0")),
        },
    };
    Ok(Target {
        path: path.to_owned(),
        weight,
    })
}

impl HttpArgs {
    /// The bytes of a request.
    fn request(&self, path: &str, body: &[u8]) -> Result<Vec<u8>, Unfit> {
        let is_word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_graphic());
        for (flag, word) in [("--method", &*self.method), ("--path", path)] {
            if !is_word(word) {
                return Err(Unfit::because(format!("{flag} {word:?}: without blanks")));
            }
        }
        let mut head = format!("{} {path} HTTP/1.1\r\n", self.method);
        let named = |name: &str| {
            let mut names = self
                .headers
                .iter()
                .filter_map(|line| line.split(':').next());
            names.any(|known| known.eq_ignore_ascii_case(name))
        };
        if !named("host") {
            let host = self.url.as_ref().map_or("localhost", |url| &url.authority);
            head += &format!("Host: {host}\r\n");
        }
        for line in &self.headers {
            if !line.contains(':') || line.chars().any(char::is_control) {
                return Err(Unfit::because(format!(
                    "--header {line:?} is not NAME: VALUE"
                )));
            }
            head += &format!("{line}\r\n");
        }
        if self.close {
            head += "Connection: close\r\n";
        }
        match self.chunked {
            Some(_) => head += "Transfer-Encoding: chunked\r\n",
            None if self.body.is_some() => head += &format!("Content-Length: {}\r\n", body.len()),
            None => {}
        }
        head += "\r\n";
        let mut request = head.into_bytes();
        match self.chunked {
            Some(size) => {
                for chunk in body.chunks(size) {
                    request.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    request.extend_from_slice(chunk);
                    request.extend_from_slice(b"\r\n");
                }
                request.extend_from_slice(b"0\r\n\r\n");
            }
            None => request.extend_from_slice(body),
        }
        Ok(request)
    }
}

impl Options for HttpArgs {
    fn url(&self) -> Option<&Url> {
        self.url.as_ref()
    }

    fn load(&self) -> Result<Chosen, Unfit> {
        at_least_one("--chunked", self.chunked.unwrap_or(1))?;
        let bytes = self.body.unwrap_or(0);
        bounded(bytes, self.pipeline)?;
        let body: Vec<u8> = (0..bytes).map(|at| b'a' + (at % 26) as u8).collect();
        if self.path.len() > HttpLoad::REQUESTS_MAX {
            let most = HttpLoad::REQUESTS_MAX;
            return Err(Unfit::because(format!("--path: at most {most}")));
        }
        let request = |target: &Target| {
            let bytes = self.request(&target.path, &body)?;
            bounded(bytes.len(), self.pipeline)?;
            Ok(HttpRequest {
                bytes,
                weight: target.weight,
            })
        };
        let path: Vec<Target> = match &self.url {
            Some(url) => vec![Target {
                path: url.target.clone(),
                weight: 1.0,
            }],
            None => self.path.clone(),
        };
        let requests = path.iter().map(request);
        let requests: Vec<HttpRequest> = requests.collect::<Result<_, Unfit>>()?;
        let shown = |target: &Target| match path.len() {
            1 => target.path.clone(),
            _ => format!("{}:{}", target.weight, target.path),
        };
        let paths: Vec<String> = path.iter().map(shown).collect();
        // Leaked once for each run of the command, which then ends.
        let requests: &'static [HttpRequest] = requests.leak();
        let shown: &'static str = format!("{} {}", self.method, paths.join("; ")).leak();
        let body: &'static [u8] = body.leak();
        Ok(Chosen::of(Workload::of(HttpLoad {
            requests,
            shown,
            head: self.method == "HEAD",
            status: self.status,
            length: self.length.map(|length| length as u64),
            body: self.echoes.then_some(body),
            pipeline: self.pipeline,
            close: self.close,
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_may_have_a_weight_in_front() {
        let of = |text: &str| target(text).map(|target| (target.weight, target.path));
        assert_eq!(of("/a:7"), Ok((1.0, "/a:7".into())));
        assert_eq!(of("80:/a"), Ok((80.0, "/a".into())));
        assert_eq!(of("*"), Ok((1.0, "*".into())));
        for bad in ["0:/a", "-1:/a", "x:/a", "nan:/", "inf:/"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
