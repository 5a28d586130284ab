//! The admin listener: a small server beside the server.

use std::fmt;
use std::io;
use std::time::Duration;

use tidewire::{
    Builder, Endpoint, EngineChoice, Layered, Limits, Listen, Listening, Protocol, Running,
    Service, StartError, Wrap,
};
use tidewire_http::{Http, Router, Settings};

use crate::catalogue::admin as metrics;
use crate::desk::Desk;
use crate::gate::{Gate, Token};
use crate::panel::Panel;
use crate::room::Room;

/// Connections at once. Each may hold a page that it does not read.
const CONNECTIONS: usize = 256;
/// Connections beyond all places, until an older one is closed: more than a turn of the loop
/// accepts.
const COMING: usize = 256;
/// Memory of all connections of the admin listener.
const MEMORY: usize = 64 << 20;
/// How long the listener's connections may take to end.
const END: Duration = Duration::from_millis(500);

/// Serves a [`Panel`], on a loop of its own, until it is dropped.
///
/// ```
/// use tidewire_admin::{Admin, Panel};
///
/// let panel = Panel::new(serde_json::json!({}));
/// let admin = Admin::start("127.0.0.1:0", &panel, None, Vec::new())?;
/// println!("http://{}/", admin.addr());
/// # Ok::<(), tidewire::StartError>(())
/// ```
pub struct Admin {
    running: Option<Running>,
    panel: Panel,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Admin({})", self.addr())
    }
}

impl Admin {
    /// Listens. With a token, all pages but `/health` and `/ready` ask for it; without one there is
    /// nothing that changes anything. `names` are the names by which it may be reached, beside
    /// addresses and `localhost`.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn start(
        at: impl Into<Listen>,
        panel: &Panel,
        token: Option<Token>,
        names: Vec<String>,
    ) -> Result<Admin, StartError> {
        let (app, limits) = app(panel, token, names);
        Admin::serve(at.into(), panel, app.clone(), app, limits)
    }

    /// Serves the given pages instead of a server's pages, to clients that name an address of this
    /// host. No request changes any state.
    ///
    /// # Errors
    /// The address cannot be bound.
    ///
    /// ```
    /// use tidewire_admin::Admin;
    /// use tidewire_http::Router;
    ///
    /// let pages = Router::new().get("/", |_, response| response.text("all is well\n"));
    /// let admin = Admin::start_pages("127.0.0.1:0", pages)?;
    /// # Ok::<(), tidewire::StartError>(())
    /// ```
    pub fn start_pages(at: impl Into<Listen>, pages: Router) -> Result<Admin, StartError> {
        let panel = Panel::new(serde_json::json!({}));
        let (app, limits) = app_of(None, Vec::new(), |gate| Desk::of(gate, pages));
        Admin::serve(at.into(), &panel, app.clone(), app, limits)
    }

    /// Starts the admin listener with a layer in front, such as TLS.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn start_behind(
        wrap: impl Wrap,
        at: impl Into<Listen>,
        panel: &Panel,
        token: Option<Token>,
        names: Vec<String>,
    ) -> Result<Admin, StartError> {
        let (app, limits) = app(panel, token, names);
        let layered = Layered::with_limits(wrap, app.clone(), limits.clone());
        Admin::serve(at.into(), panel, app, layered, limits)
    }

    fn serve<S: Service<Conn: Protocol<Message: Send>>>(
        at: Listen,
        panel: &Panel,
        app: Http<Desk>,
        service: S,
        limits: Limits,
    ) -> Result<Admin, StartError> {
        let mut builder = Builder::new();
        let service = builder.service_with(Room::new(service, CONNECTIONS), limits);
        builder.name(service, "admin");
        builder.listen(service, at);
        // The listener needs only readiness: no ring, whose memory is limited, and few buffers.
        builder
            .engine(EngineChoice::Epoll)
            .buffers(8)
            .memory(MEMORY);
        let running = builder.start()?;
        let observer = running.observer();
        panel.add(move |to| {
            let counters = app.counters();
            let connections = observer.counters();
            to.add(&metrics::CONNECTIONS, &[], connections.open);
            to.add(&metrics::CONNECTIONS_ACCEPTED, &[], connections.accepted);
            for (reason, n) in connections.each_refused() {
                to.add(&metrics::CONNECTIONS_REFUSED, &[reason], n);
            }
            for (reason, n) in connections.each_closed() {
                to.add(&metrics::CONNECTIONS_CLOSED, &[reason], n);
            }
            for (reason, n) in &connections.reasons {
                to.add(&metrics::CONNECTIONS_CLOSED_BY_PROTOCOL, &[reason], *n);
            }
            for (status, n) in [
                ("2xx", counters.replies_2xx),
                ("3xx", counters.replies_3xx),
                ("4xx", counters.replies_4xx),
                ("5xx", counters.replies_5xx),
            ] {
                to.add(&metrics::REQUESTS, &[status], n);
            }
        });
        Ok(Admin {
            running: Some(running),
            panel: panel.clone(),
        })
    }

    /// The address of the admin listener.
    #[must_use]
    pub fn addr(&self) -> &Endpoint {
        let running = self.running.as_ref().expect("it runs until it is dropped");
        &running.addrs()[0]
    }

    /// Duplicates of the admin listener's sockets, for a successor.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn listeners(&self) -> io::Result<Vec<Listening>> {
        let running = self.running.as_ref().expect("it runs until it is dropped");
        running.listeners()
    }

    /// Ends, and leaves waiting clients to a successor that has the [listeners](Admin::listeners).
    pub fn hand_over(mut self) {
        if let Some(running) = self.running.take() {
            running.hand_over(END).wait();
        }
    }
}

/// The HTTP service that answers requests, and the limits of its connections.
fn app(panel: &Panel, token: Option<Token>, names: Vec<String>) -> (Http<Desk>, Limits) {
    app_of(token, names, |gate| Desk::new(gate, panel))
}

fn app_of(
    token: Option<Token>,
    names: Vec<String>,
    desk: impl FnOnce(Gate) -> Desk,
) -> (Http<Desk>, Limits) {
    let names = names.into_iter().map(|name| name.to_ascii_lowercase());
    let names = names.collect();
    let settings = Settings {
        body: 4 << 10,
        ..Settings::default()
    };
    let limits = Limits {
        connections: CONNECTIONS + COMING,
        // A client that takes all places must at least work for it.
        idle: Some(Duration::from_secs(15)),
        first_byte: Some(Duration::from_secs(5)),
        ..settings.limits()
    };
    let app = Http::with(settings, desk(Gate { token, names }));
    (app, limits)
}

impl Drop for Admin {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop(END);
        }
        // The panel and the server refer to each other.
        self.panel.clear();
    }
}
