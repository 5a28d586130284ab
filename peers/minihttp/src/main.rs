//! may_minihttp with one worker, answering every request as `tidewire serve http` answers `/`. The
//! address is the only argument.

use std::io;

use may_minihttp::{HttpServer, HttpService, Request, Response};

#[derive(Clone)]
struct Hello;

impl HttpService for Hello {
    fn call(&mut self, _: Request, response: &mut Response) -> io::Result<()> {
        response.header("Content-Type: text/plain; charset=utf-8");
        response.body("Hello, World!");
        Ok(())
    }
}

fn main() -> io::Result<()> {
    may::config().set_workers(1);
    let addr = std::env::args().nth(1).unwrap_or("127.0.0.1:8082".into());
    let server = HttpServer(Hello).start(&addr)?;
    println!("listening service=http addr={addr}");
    server
        .join()
        .map_err(|_| io::Error::other("the server has panicked"))
}
