//! The files that `tidewire ship` follows and their progress, as a page, as JSON and for
//! Prometheus.

use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tidewire::{Endpoint, Listen};
use tidewire_admin::catalogue::ship as metrics;
use tidewire_admin::{Admin, Snapshot};
use tidewire_http::Router;
use tidewire_ship::{Counts, FileSystem, Following, Network, Shipper, Store};

use crate::exit::Failure;

/// Files on the page, and in the metrics: the files that wait longest.
const ON_PAGE: usize = 1000;
const IN_METRICS: usize = 100;
/// The shortest time between two gatherings of the shown state.
const EVERY: Duration = Duration::from_secs(1);

const STYLE: &str = "body { font-family: system-ui, sans-serif; margin: 2em }
table { border-collapse: collapse }
th, td { padding: 0.2em 0.8em; text-align: left; border-bottom: 1px solid #ccc }
td.n { text-align: right; font-variant-numeric: tabular-nums }
";

/// The state at the last gathering.
#[derive(Default)]
struct Gathered {
    at: Option<Duration>,
    counts: Counts,
    /// The file that waits longest first.
    files: Vec<Following>,
    server: String,
    trouble: Option<String>,
}

/// Serves the status page until the value is dropped.
pub(super) struct Status {
    gathered: Arc<Mutex<Gathered>>,
    _admin: Admin,
}

impl Status {
    /// Listens there.
    pub(super) fn start(at: &str) -> Result<Status, Failure> {
        let place: Endpoint = at
            .parse()
            .map_err(|e| Failure::usage(format!("--status {at}: {e}")))?;
        let gathered = Arc::new(Mutex::new(Gathered::default()));
        let of = || gathered.clone();
        let (page, files, scraped) = (of(), of(), of());
        let pages = Router::new()
            .get("/", move |_, response| {
                let response = response.header("content-type", "text/html; charset=utf-8");
                response.body(lock(&page).page().as_bytes())
            })
            .get("/page.css", |_, response| {
                let response = response.header("content-type", "text/css; charset=utf-8");
                response.body(STYLE.as_bytes())
            })
            .get("/files.json", move |_, response| {
                response.json(&lock(&files).json())
            })
            .get("/metrics", move |_, response| {
                let response = response.header("content-type", Snapshot::PROMETHEUS);
                response.body(lock(&scraped).snapshot().to_prometheus().as_bytes())
            })
            .get("/health", |_, response| response.text("alive\n"));
        let admin = Admin::start_pages(Listen::at(&place), pages)
            .map_err(|e| Failure::failed(format!("--status {at}: {e}")))?;
        eprintln!("tidewire: status on http://{}/", admin.addr());
        Ok(Status {
            gathered,
            _admin: admin,
        })
    }

    /// Gathers the shown state, once a second.
    pub(super) fn show<F: FileSystem, N: Network, S: Store>(
        &self,
        shipper: &Shipper<F, N, S>,
        now: Duration,
    ) {
        let mut gathered = lock(&self.gathered);
        let is_fresh = |at: Duration| now.saturating_sub(at) < EVERY;
        if gathered.at.is_some_and(is_fresh) {
            return;
        }
        let mut files: Vec<Following> = shipper.following(now).collect();
        files.sort_by(|one, other| {
            let of = |f: &Following| (f.lag, f.behind);
            of(other)
                .cmp(&of(one))
                .then_with(|| one.path.cmp(&other.path))
        });
        *gathered = Gathered {
            at: Some(now),
            counts: shipper.counts(),
            files,
            server: shipper.server().to_owned(),
            trouble: shipper.trouble().map(str::to_owned),
        };
    }
}

fn lock(gathered: &Mutex<Gathered>) -> MutexGuard<'_, Gathered> {
    gathered.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gathered {
    fn lag(&self) -> Duration {
        self.files.first().map_or(Duration::ZERO, |file| file.lag)
    }

    fn snapshot(&self) -> Snapshot {
        let counts = &self.counts;
        let mut to = Snapshot::default();
        to.add(&metrics::MESSAGES, &[], counts.acknowledged);
        to.add(&metrics::BYTES, &[], counts.bytes);
        to.add(&metrics::FILES, &[], counts.files);
        to.add(&metrics::BEHIND, &[], counts.behind);
        to.add(&metrics::LAG, &[], self.lag().as_secs_f64());
        let mut shown = std::collections::BTreeSet::new();
        for file in self.files.iter().take(IN_METRICS) {
            let path = file.path.to_string_lossy();
            // A truncated file and its new contents have one name: the one that waits longer
            // counts.
            if shown.insert(path.clone()) {
                to.add(&metrics::FILE_BEHIND, &[&path], file.behind);
                to.add(&metrics::FILE_LAG, &[&path], file.lag.as_secs_f64());
            }
        }
        to.add(&metrics::LOSSES, &[], counts.losses);
        to.add(&metrics::FAILED, &[], counts.failed);
        to.add(&metrics::LEFT_OUT, &[], counts.left_out);
        to.add(&metrics::IGNORED, &[], counts.ignored);
        to.add(&metrics::SKIPPED, &[], counts.skipped);
        to.add(&metrics::HOLES, &[], counts.holes);
        to.add(&metrics::SET_BACK, &[], counts.set_back);
        to.add(&metrics::HELD, &[], counts.held);
        to.add(&metrics::WAITING, &[], self.trouble.is_some());
        to
    }

    fn json(&self) -> String {
        let files = self.files.iter().map(|file| {
            json!({
                "path": file.path.to_string_lossy(),
                "producer": file.producer,
                "state": file.state,
                "length": file.len,
                "stored": file.acked,
                "behind_bytes": file.behind,
                "lag_seconds": file.lag.as_secs_f64(),
            })
        });
        let all = json!({
            "server": self.server,
            "trouble": self.trouble,
            "behind_bytes": self.counts.behind,
            "lag_seconds": self.lag().as_secs_f64(),
            "losses": self.counts.losses,
            "files": files.collect::<Vec<_>>(),
        });
        all.to_string()
    }

    fn page(&self) -> String {
        let counts = &self.counts;
        let mut page = String::from(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"5\">\
             <link rel=\"stylesheet\" href=\"/page.css\"><title>tidewire ship</title></head><body><h1>tidewire ship</h1>",
        );
        let server = escaped(&self.server);
        let _ = write!(
            page,
            "<p>To {server}: {} files followed, {} bytes behind, {:.1} s at most; {} messages acknowledged, {} losses, {} files \
             failing, {} left out, {} ignored.</p>",
            counts.files,
            counts.behind,
            self.lag().as_secs_f64(),
            counts.acknowledged,
            counts.losses,
            counts.failed,
            counts.left_out,
            counts.ignored,
        );
        if let Some(trouble) = &self.trouble {
            let _ = write!(page, "<p><b>Waiting: {}</b></p>", escaped(trouble));
        }
        page.push_str(
            "<table><tr><th>file</th><th>state</th><th>length</th><th>stored</th><th>behind, bytes</th><th>behind, s</th></tr>",
        );
        for file in self.files.iter().take(ON_PAGE) {
            let _ = write!(
                page,
                "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
                 <td class=\"n\">{:.1}</td></tr>",
                escaped(&file.path.to_string_lossy()),
                file.state,
                file.len,
                file.acked,
                file.behind,
                file.lag.as_secs_f64(),
            );
        }
        page.push_str("</table>");
        if self.files.len() > ON_PAGE {
            let more = self.files.len() - ON_PAGE;
            let _ = write!(page, "<p>{more} more are in /files.json.</p>");
        }
        page.push_str("</body></html>\n");
        page
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered() -> Gathered {
        let file = |path: &str, lag| Following {
            path: path.into(),
            producer: format!("h:{path}#1"),
            state: "followed",
            len: 100,
            acked: 60,
            behind: 40,
            lag: Duration::from_secs(lag),
        };
        Gathered {
            files: vec![
                file("/l/<b>.log", 7),
                file("/l/<b>.log", 3),
                file("/l/a.log", 1),
            ],
            trouble: Some("nobody listens at <that>".into()),
            ..Gathered::default()
        }
    }

    #[test]
    fn names_of_files_are_no_markup() {
        let page = gathered().page();
        assert!(
            page.contains("/l/&lt;b&gt;.log") && !page.contains("<that>"),
            "{page}"
        );
    }

    #[test]
    fn the_file_that_waits_longest_counts() {
        let text = gathered().snapshot().to_prometheus();
        for line in [
            "tidewire_ship_lag_seconds 7",
            "tidewire_ship_file_lag_seconds{file=\"/l/<b>.log\"} 7",
            "tidewire_ship_file_behind_bytes{file=\"/l/a.log\"} 40",
            "tidewire_ship_waiting 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }
}
