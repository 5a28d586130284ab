//! Which handler answers which path.

use std::fmt;

use crate::handler::{Body, Handler};
use crate::method::Method;
use crate::request::Request;
use crate::response::{Done, Response};
use crate::route;

type Handle = Box<dyn Fn(&Request<'_>, Response<'_>) -> Done + Send + Sync>;

/// Sends requests to handlers by method and path. Patterns are paths in which `{name}` stands for
/// any one segment; the first that fits is taken, plain patterns before patterns with names.
///
/// HEAD is answered by the handler of GET, without the body. An unknown path is a 404; a known one
/// with another method a 405 that says which there are, or with a method that the standard does not
/// know a 501; OPTIONS says which there are.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tidewire_http::{Http, Router, testing};
///
/// let notes = Arc::new(Mutex::new(Vec::<String>::new()));
/// let (read, write) = (notes.clone(), notes);
/// let router = Router::new()
///     .get("/notes", move |_, response| response.text(&read.lock().unwrap().join("\n")))
///     .post("/notes", move |request, response| match request.text() {
///         Some(text) => {
///             write.lock().unwrap().push(text.to_owned());
///             response.status(201).empty()
///         }
///         None => response.error(400, "notes are text"),
///     });
/// let got = testing::exchange(Http::new(router), b"POST /notes HTTP/1.1\r\nHost: h\r\n\r\n");
/// assert_eq!(got.status, 201);
/// ```
#[derive(Default)]
pub struct Router {
    /// Plain patterns first.
    routes: Vec<Route>,
    plain: usize,
}

struct Route {
    pattern: Box<str>,
    /// Whether no part of the path has a name.
    is_plain: bool,
    methods: Vec<(Method<'static>, Body, Handle)>,
}

impl Router {
    /// Knows no path yet.
    #[must_use]
    pub fn new() -> Router {
        Router::default()
    }

    /// Adds a handler for GET and HEAD.
    #[must_use]
    pub fn get<F>(self, pattern: &str, handle: F) -> Router
    where
        F: Fn(&Request<'_>, Response<'_>) -> Done + Send + Sync + 'static,
    {
        self.route(Method::Get, pattern, Body::Gather, handle)
    }

    /// Adds a handler for POST; its request's body is gathered.
    #[must_use]
    pub fn post<F>(self, pattern: &str, handle: F) -> Router
    where
        F: Fn(&Request<'_>, Response<'_>) -> Done + Send + Sync + 'static,
    {
        self.route(Method::Post, pattern, Body::Gather, handle)
    }

    /// Adds a handler for a method, and says how it takes bodies.
    ///
    /// # Panics
    /// If the pattern does not begin with `/`, or has a handler for this method already.
    #[must_use]
    pub fn route<F>(
        mut self,
        method: Method<'static>,
        pattern: &str,
        body: Body,
        handle: F,
    ) -> Router
    where
        F: Fn(&Request<'_>, Response<'_>) -> Done + Send + Sync + 'static,
    {
        assert!(pattern.starts_with('/'), "{pattern:?} is no path");
        let known = self
            .routes
            .iter()
            .position(|route| *route.pattern == *pattern);
        let at = known.unwrap_or_else(|| {
            let is_plain = !pattern.split('/').any(|part| route::name(part).is_some());
            let at = if is_plain {
                self.plain
            } else {
                self.routes.len()
            };
            self.plain += usize::from(is_plain);
            let route = Route {
                pattern: pattern.into(),
                is_plain,
                methods: Vec::new(),
            };
            self.routes.insert(at, route);
            at
        });
        let methods = &mut self.routes[at].methods;
        assert!(
            methods.iter().all(|(known, ..)| *known != method),
            "two handlers for {method} {pattern}"
        );
        methods.push((method, body, Box::new(handle)));
        self
    }

    #[inline(always)]
    fn find(&self, path: &str) -> Option<&Route> {
        let (plain, named) = self.routes.split_at(self.plain);
        for route in plain {
            if *route.pattern == *path {
                return Some(route);
            }
        }
        let mut named = named.iter();
        named.find(|route| route::matches(&route.pattern, path))
    }
}

impl Route {
    #[inline]
    fn method(&self, method: Method<'_>) -> Option<&(Method<'static>, Body, Handle)> {
        let by = |wanted| self.methods.iter().find(|(known, ..)| *known == wanted);
        by(method).or_else(|| match method {
            Method::Head => by(Method::Get),
            _ => None,
        })
    }

    fn allowed(&self) -> String {
        let mut names: Vec<&str> = self.methods.iter().map(|(m, ..)| m.name()).collect();
        if names.contains(&"GET") && !names.contains(&"HEAD") {
            names.push("HEAD");
        }
        if !names.contains(&"OPTIONS") {
            names.push("OPTIONS");
        }
        names.join(", ")
    }

    fn without_method(&self, method: Method<'_>, response: Response<'_>) -> Done {
        match method {
            Method::Options => response.status(204).header("allow", self.allowed()).empty(),
            Method::Other(_) => response.error(501, "an unknown method"),
            _ => {
                let response = response.header("allow", self.allowed());
                response.error(405, "this path does not allow this method")
            }
        }
    }
}

impl Handler for Router {
    fn body(&self, request: &Request<'_>) -> Body {
        let route = self.find(request.path());
        let method = route.and_then(|route| route.method(request.method()));
        method.map_or(Body::Ignore, |(_, body, _)| *body)
    }

    fn handle(&self, request: &Request<'_>, response: Response<'_>) -> Done {
        let Some(route) = self.find(request.path()) else {
            return match request.method() {
                Method::Options if request.path() == "*" => response.status(204).empty(),
                Method::Other(_) => response.error(501, "an unknown method"),
                _ => response.error(404, "nothing is here"),
            };
        };
        match route.method(request.method()) {
            // The request keeps no pattern of another router.
            Some((_, _, handle)) if route.is_plain && request.pattern.is_none() => {
                handle(request, response)
            }
            Some((_, _, handle)) => {
                let pattern = Some(&*route.pattern);
                handle(
                    &Request {
                        pattern,
                        ..*request
                    },
                    response,
                )
            }
            None => route.without_method(request.method(), response),
        }
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes = self
            .routes
            .iter()
            .map(|route| (&route.pattern, route.allowed()));
        f.debug_map().entries(routes).finish()
    }
}
