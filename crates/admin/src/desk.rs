//! The answers of the admin listener.

use std::time::Duration;

use bytes::Bytes;
use tidewire::{Instant, Throttle};
use tidewire_http::{Body, Done, Handler, Request, Response, Router};

use crate::gate::Gate;
use crate::page_of_turn::PageOfTurn;
use crate::panel::Panel;
use crate::snapshot::Snapshot;

/// Nothing from elsewhere is loaded or run, and no other site can show these pages inside its own.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The dashboard, file by file: path, media type, text.
const FILES: [(&str, &str, &str); 5] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("../assets/dashboard.html"),
    ),
    (
        "/dashboard.css",
        "text/css; charset=utf-8",
        include_str!("../assets/dashboard.css"),
    ),
    (
        "/dashboard.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/dashboard.js"),
    ),
    (
        "/uplot.css",
        "text/css; charset=utf-8",
        include_str!("../assets/uplot/uPlot.min.css"),
    ),
    (
        "/uplot.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/uplot/uPlot.iife.min.js"),
    ),
];

/// Answers requests that the gate lets through.
pub(crate) struct Desk {
    gate: Gate,
    router: Router,
    lines: Throttle,
}

impl Desk {
    pub(crate) fn new(gate: Gate, panel: &Panel) -> Desk {
        Desk::of(gate, routes(panel))
    }

    /// A desk with the given pages.
    pub(crate) fn of(gate: Gate, router: Router) -> Desk {
        Desk {
            gate,
            router,
            lines: Throttle::new(Duration::from_secs(10)),
        }
    }

    fn turned(&self, request: &Request<'_>, status: u16, why: &str, now: Instant) {
        if let Some(held_back) = self.lines.pass(now) {
            let (path, host) = (request.path(), request.host());
            tracing::warn!(
                path,
                host,
                status,
                why,
                held_back,
                "admin: a request was refused"
            );
        }
    }
}

impl Handler for Desk {
    fn body(&self, request: &Request<'_>) -> Body {
        match self.gate.check(request) {
            Ok(()) => self.router.body(request),
            Err(_) => Body::Ignore,
        }
    }

    fn handle(&self, request: &Request<'_>, response: Response<'_>) -> Done {
        let response = response
            .header("content-security-policy", POLICY)
            .header("x-content-type-options", "nosniff")
            .header("referrer-policy", "no-referrer")
            .header("cross-origin-resource-policy", "same-origin")
            .header("cache-control", "no-store");
        match self.gate.check(request) {
            Ok(()) => self.router.handle(request, response),
            Err(turned) => {
                self.turned(request, turned.status, turned.why, response.now());
                let response = match turned.status {
                    401 => response.header("www-authenticate", "Basic realm=\"tidewire\""),
                    _ => response,
                };
                response.error(turned.status, turned.why)
            }
        }
    }
}

fn routes(panel: &Panel) -> Router {
    let mut router = Router::new();
    for (path, kind, text) in FILES {
        router = router.get(path, move |_, response| {
            let text = Bytes::from_static(text.as_bytes());
            response.header("content-type", kind).shared(text)
        });
    }
    let of = || panel.clone();
    let (metrics, stats, config, ready) = (of(), of(), of(), of());
    let (scraped, drawn) = (PageOfTurn::default(), PageOfTurn::default());
    let (shown, changed) = (of(), of());
    router
        .get("/metrics", move |_, response| {
            let page = scraped.get(response.now(), || metrics.snapshot().to_prometheus());
            let response = response.header("content-type", Snapshot::PROMETHEUS);
            response.shared(page)
        })
        .get("/stats.json", move |_, response| {
            // Everything in the page can be serialised; an empty page would show a failure.
            let page = || serde_json::to_string(&stats.page()).unwrap_or_default();
            let page = drawn.get(response.now(), page);
            if page.is_empty() {
                return response.error(500, "the page cannot be written");
            }
            let response = response.header("content-type", "application/json");
            response.shared(page)
        })
        .get("/config", move |_, response| {
            response.json(&config.config())
        })
        .get("/health", |_, response| response.text("alive\n"))
        .get("/ready", move |_, response| {
            // Asked once: the status and the words agree.
            let (is_ready, state) = ready.readiness();
            let response = response.status(if is_ready { 200 } else { 503 });
            response.text(&format!("{state}\n"))
        })
        .get("/log", move |_, response| match shown.levels() {
            Some(levels) => response.text(&format!("{}\n", levels.shown())),
            None => response.error(404, "logging is not changed here"),
        })
        .post("/log", move |request, response| {
            change_levels(&changed, request, response)
        })
}

fn change_levels(panel: &Panel, request: &Request<'_>, response: Response<'_>) -> Done {
    let Some(levels) = panel.levels() else {
        return response.error(404, "logging is not changed here");
    };
    let Some(filter) = request.text() else {
        return response.error(400, "a filter is text");
    };
    match levels.set(filter.trim()) {
        Ok(()) => {
            let filter = levels.shown();
            tracing::warn!(filter, "admin: the log filter was changed");
            response.text(&format!("{filter}\n"))
        }
        Err(why) => response.error(400, &why),
    }
}
