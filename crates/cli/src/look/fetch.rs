//! Asking the admin listener.

use std::time::Duration;

use tidewire_admin::Page;
use ureq::Agent;
use ureq::unversioned::resolver::DefaultResolver;

use super::connect::Secured;
use super::whom::Whom;
use crate::exit::Failure;
use crate::secret::Secret;

/// Most bytes of an answer.
const MOST: u64 = 32 << 20;
/// Longest time for one.
const WITHIN: Duration = Duration::from_secs(5);

/// Asks one server, again and again.
pub(super) struct Asker {
    agent: Agent,
    url: String,
    token: Option<String>,
}

impl Asker {
    pub(super) fn new(whom: &Whom) -> Result<Asker, Failure> {
        let token = match &whom.admin_token_file {
            Some(path) => Some(Secret::from_file(path)?),
            None => Secret::from_environment("TIDEWIRE_ADMIN_TOKEN")?,
        };
        let place = whom.admin.trim_end_matches('/');
        let (scheme, rest) = match place.split_once("://") {
            Some((scheme, rest)) => (Some(scheme), rest),
            None => (None, place),
        };
        if !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Failure::usage(format!(
                "--admin {place}: a port without a host; on this machine it is --admin 127.0.0.1:{rest}"
            )));
        }
        if rest.is_empty() || rest.starts_with("unix:") {
            return Err(Failure::usage(format!(
                "--admin {place}: HOST:PORT, http://HOST:PORT or https://HOST:PORT; a Unix socket is asked by curl --unix-socket"
            )));
        }
        let tls = match scheme {
            Some("https") => Some(whom.tls.made()?),
            None => whom.tls.client()?,
            Some("http") if !whom.tls.is_wanted() => None,
            Some("http") => {
                return Err(Failure::usage(format!(
                    "--admin {place} names a plain connection, but a flag asks for TLS: write https://{rest}"
                )));
            }
            Some(_) => {
                return Err(Failure::usage(format!(
                    "--admin {place}: HOST:PORT, http://HOST:PORT or https://HOST:PORT"
                )));
            }
        };
        let url = match tls {
            Some(_) => format!("https://{rest}"),
            None => format!("http://{rest}"),
        };
        let config = Agent::config_builder()
            .timeout_global(Some(WITHIN))
            .http_status_as_error(false)
            // A redirect would send the token to another server.
            .max_redirects(0)
            .proxy(None)
            .build();
        let agent = match tls {
            Some(tls) => Agent::with_parts(config, Secured(tls), DefaultResolver::default()),
            None => config.into(),
        };
        Ok(Asker {
            agent,
            url,
            token: token.map(Secret::into_text),
        })
    }

    /// The URL of the page.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The page's text, unchanged.
    pub(super) fn text(&self) -> Result<String, String> {
        let url = format!("{}/stats.json", self.url);
        let mut request = self.agent.get(&url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let asked = || format!("cannot ask {url}");
        let mut answer = request.call().map_err(|e| {
            // The error's own text says which kind of failure it is.
            let why = match e {
                ureq::Error::Io(e) => e.to_string(),
                other => other.to_string(),
            };
            format!(
                "{}: {why}; is a server there, and is --admin its admin listener (the line \
                 `listening service=admin` of its output{})?",
                asked(),
                match self.url.starts_with("https") {
                    true =>
                        ", with tls=on; --tls-ca names the authority that signed its certificate",
                    false => "; where that says tls, --tls or --tls-ca FILE",
                }
            )
        })?;
        let status = answer.status().as_u16();
        let body = answer.body_mut().with_config().limit(MOST);
        let text = body
            .read_to_string()
            .map_err(|e| format!("{}: {e}", asked()))?;
        match status {
            200 => Ok(text),
            401 => Err(format!(
                "{}: {}",
                asked(),
                unauthorised(self.token.is_some())
            )),
            _ => Err(format!(
                "{}: the server answered with status {status}: {}",
                asked(),
                clean(text.trim())
            )),
        }
    }

    /// The page, without characters that a terminal would obey.
    pub(super) fn page(&self) -> Result<Page, String> {
        parse(&self.text()?)
    }
}

/// Why an admin listener answered with status 401, and what to do.
fn unauthorised(has_token: bool) -> &'static str {
    match has_token {
        false => {
            "the admin listener requires a token, and none was sent; give it with --admin-token-file FILE or \
             TIDEWIRE_ADMIN_TOKEN"
        }
        true => {
            "the admin listener refused the token that was sent; it must be the one in the file that the server's \
             --admin-token-file names"
        }
    }
}

pub(super) fn parse(text: &str) -> Result<Page, String> {
    let mut page: Page = serde_json::from_str(text)
        .map_err(|e| format!("the answer is not from an admin listener of tidewire: {e}; --admin must name it (the line `listening service=admin`)"))?;
    for text in [
        &mut page.version,
        &mut page.engine,
        &mut page.engine_reason,
        &mut page.state,
        &mut page.doing,
    ] {
        *text = clean(text);
    }
    for listener in &mut page.listeners {
        listener.service = clean(&listener.service);
        listener.addr = clean(&listener.addr);
    }
    let points = page.metrics.values_mut().flatten();
    for value in points.flat_map(|point| point.labels.values_mut()) {
        *value = clean(value);
    }
    Ok(page)
}

/// Names come from clients, and may contain any characters.
fn clean(text: &str) -> String {
    let shown = |c: char| match c.is_control() {
        true => '?',
        false => c,
    };
    text.chars().map(shown).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_admin_token_and_a_wrong_one_are_told_apart() {
        assert!(unauthorised(false).contains("none was sent"));
        assert!(unauthorised(true).contains("refused the token"));
    }

    #[test]
    fn a_terminal_is_not_told_what_to_do() {
        let text = r#"{"version":"1","state":"\u001b[2Jserving","metrics":{"m":[{"labels":{"stream":"a\u001b]0;x\u0007\n"},"value":1}]}}"#;
        let page = parse(text).unwrap();
        assert_eq!(page.state, "?[2Jserving");
        assert_eq!(page.metrics["m"][0].labels["stream"], "a?]0;x??");
        assert!(parse("<html>").is_err());
    }
}
