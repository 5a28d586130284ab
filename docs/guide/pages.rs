//! The pages with examples in Rust (README, `docs/start/server.md`, and the guide in `src/` for mdBook), as documentation:
//! `cargo test` compiles and runs every example in them. `tests/examples.rs` refuses a page that is missing here.

macro_rules! pages {
    ($($name:ident $file:literal)*) => {
        $(
            #[doc = include_str!($file)]
            pub mod $name {}
        )*
    };
}

pages! {
    readme "../../README.md"
    start_server "../start/server.md"
    introduction "src/introduction.md"
    first_protocol "src/first-protocol.md"
    framing "src/framing.md"
    replying_later "src/replying-later.md"
    other_connections "src/other-connections.md"
    proxy "src/proxy.md"
    clients "src/clients.md"
    asynchronous "src/async.md"
    http "src/http.md"
    workers "src/workers.md"
    tls "src/tls.md"
    overload "src/overload.md"
    testing "src/testing.md"
    engines "src/engines.md"
    metrics "src/metrics.md"
    deploying "src/deploying.md"
    log "src/log.md"
    shippers "src/shippers.md"
    key_value "src/key-value.md"
    wire_formats "src/wire-formats.md"
}
