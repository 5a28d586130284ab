//! A small web service: notes that are kept in memory, and a count of letters that takes an upload of
//! any size as it comes.
//!
//! ```text
//! cargo run -p tidewire-http --example notes
//! curl -d 'buy milk' http://127.0.0.1:8090/notes
//! curl http://127.0.0.1:8090/notes/0
//! curl -T some-file http://127.0.0.1:8090/letters
//! cargo run -p tidewire-http --example notes -- --self-test
//! ```

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidewire_http::{
    Body, Data, Done, Exchange, Headers, Http, Length, Method, Reply, Request, Response, Router,
    testing,
};

/// Notes kept, of all connections on all loops.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

/// More than these are refused.
const NOTES_MAX: usize = 1000;

impl Notes {
    fn add(&self, request: &Request<'_>, response: Response<'_>) -> Done {
        let Some(text) = request.text().filter(|text| !text.is_empty()) else {
            return response.error(400, "a note is some text");
        };
        let mut notes = self.0.lock().unwrap();
        if notes.len() >= NOTES_MAX {
            return response.error(507, "there are enough notes");
        }
        notes.push(text.to_owned());
        let place = format!("/notes/{}", notes.len() - 1);
        response.status(201).header("location", place).empty()
    }

    fn show(&self, request: &Request<'_>, response: Response<'_>) -> Done {
        let n = request.param("n").and_then(|n| n.parse::<usize>().ok());
        match n.and_then(|n| self.0.lock().unwrap().get(n).cloned()) {
            Some(note) => response.text(&note),
            None => response.error(404, "there is no such note"),
        }
    }
}

/// Counts letters; the upload is nowhere kept.
struct Letters(u64);

impl Exchange for Letters {
    fn data(&mut self, data: &mut Data<'_, '_>, _: &mut Reply<'_>) {
        let letters = data.bytes().iter().filter(|b| b.is_ascii_alphabetic());
        self.0 += letters.count() as u64;
        data.consume(data.len());
    }

    fn end(&mut self, _: Headers<'_>, reply: &mut Reply<'_>) {
        let text = format!("{} letters\n", self.0);
        let length = Length::Known(text.len() as u64);
        reply.head(200, &[("content-type", "text/plain")], length);
        reply.write(text.as_bytes());
        reply.end();
    }
}

fn app() -> Http<Router> {
    let notes = Arc::new(Notes::default());
    let (adding, showing) = (notes.clone(), notes);
    let letters = |_: &Request<'_>, response: Response<'_>| response.exchange(Letters(0));
    Http::new(
        Router::new()
            .post("/notes", move |request, response| {
                adding.add(request, response)
            })
            .get("/notes/{n}", move |request, response| {
                showing.show(request, response)
            })
            .route(Method::Put, "/letters", Body::Stream, letters),
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().any(|arg| arg == "--self-test") {
        return self_test();
    }
    let app = app();
    let mut builder = tidewire::Builder::new();
    let id = builder.service_with(app.clone(), app.limits());
    builder.listen(id, tidewire::Listen::at("127.0.0.1:8090"));
    let running = builder.start()?;
    println!("notes on {}", running.addrs()[0]);
    Signals::new([SIGINT, SIGTERM])?.forever().next();
    running.stop(Duration::from_secs(5));
    println!("{}", app.counters());
    Ok(())
}

/// Without a socket.
pub(crate) fn self_test() -> Result<(), Box<dyn Error>> {
    let app = app();
    let ask = |request: &str| testing::exchange(app.clone(), request.as_bytes());
    let added = ask("POST /notes HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\nbuy milk");
    assert_eq!(
        (added.status, added.header("location")),
        (201, Some("/notes/0"))
    );
    assert_eq!(
        ask("GET /notes/0 HTTP/1.1\r\nHost: h\r\n\r\n").text(),
        "buy milk"
    );
    assert_eq!(ask("GET /notes/1 HTTP/1.1\r\nHost: h\r\n\r\n").status, 404);
    let counted = ask("PUT /letters HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\na1b2");
    assert_eq!(counted.text(), "2 letters\n");
    println!("good");
    Ok(())
}
