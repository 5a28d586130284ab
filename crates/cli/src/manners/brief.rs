//! What `-h` shows of commands with many flags: these, each on a line, so that the whole fits on a screen of 24 lines of 80.

/// Of a command, by its words, and of those below it: flags and places in the order of the help, and what each is in a few
/// words. Of several, the later one says what a flag is.
pub(super) const BRIEF: &[(&str, &[(&str, &str)])] = &[
    (
        "serve",
        &[
            (
                "services",
                "echo, ingest, kv (the default), ack, http, discard",
            ),
            ("config", "A file of settings (TOML)"),
            ("engine", "auto, threads, epoll or uring"),
            ("workers", "Loops [default: one a core]"),
            ("bind", "Where all listen [default: 127.0.0.1]"),
            ("listen", "HOST:PORT, PORT or unix:/PATH"),
            ("tls-cert", "Speaks TLS with this certificate"),
            ("tls-key", "Its private key"),
            ("admin", "Dashboard, metrics [default: :7480]"),
            ("data", "Of the log [default: tidewire-data]"),
            ("ingest-token-file", "What clients of ingest must show"),
            ("kv-maxmemory", "Memory of kv [default: no limit]"),
            ("durability", "Of keys: none, sync, replicated, os"),
            ("kv-password-file", "What clients of kv must say"),
        ],
    ),
    (
        "send",
        &[
            ("files", "Files to send [default: -, standard input]"),
            ("to", "The server [default: 127.0.0.1:7400]"),
            ("stream", "The stream [default: default]"),
            ("level", "durable, received or replicated"),
            ("producer", "A name: nothing is stored twice"),
            ("format", "lines or length-prefixed"),
            ("append", "Sends all after what the server has"),
            ("token-file", "The secret that the server asks for"),
            ("retry", "How long to try [default: 60s]"),
            ("tls", "Speaks TLS"),
        ],
    ),
    (
        "ship",
        &[
            ("what", "Files, quoted patterns, directories"),
            ("to", "Servers [default: 127.0.0.1:7400]"),
            ("stream", "The stream [default: default]"),
            ("producer", "What names of producers begin with"),
            ("state", "A directory that is this command's alone"),
            ("token-file", "The secret that the server asks for"),
            ("once", "Ends when what is there was shipped"),
            ("exclude", "Files that are not followed"),
            ("multiline-start", "Lines that match begin a message"),
            ("journal", "Ships the journal of this machine"),
            ("tls", "Speaks TLS"),
        ],
    ),
    (
        "read",
        &[
            ("to", "The server [default: 127.0.0.1:7400]"),
            ("data", "The directory of a log instead"),
            ("home", "kafka://HOST[:PORT],.../TOPIC instead"),
            ("stream", "The stream [default: default]"),
            ("from", "A position, first or tail"),
            ("since", "A time, or so long ago (10m)"),
            ("follow", "Waits at the tail for more"),
            ("count", "Ends after so many records"),
            ("cursor", "Goes on where this cursor was left"),
            ("json", "A JSON object a line"),
            ("raw", "Payloads only, one a line"),
            ("token-file", "The secret that the server asks for"),
            ("retry", "How long to try [default: 60s]"),
            ("tls", "Speaks TLS"),
        ],
    ),
    (
        "stream",
        &[
            ("retain-bytes", "Most that is kept: the oldest go"),
            ("retain-age", "How long records are kept, such as 7d"),
            ("limit-bytes", "Most that is taken: then none until some go"),
            ("compression", "none, lz4 or zstd"),
            ("name", "The stream"),
            ("cursor", "The cursor"),
            ("yes", "Does it"),
            ("json", "As JSON"),
            ("to", "The server [default: 127.0.0.1:7400]"),
            ("token-file", "The secret of administrators"),
            ("tls", "Speaks TLS"),
        ],
    ),
    (
        "kv import",
        &[
            ("file", "The dump"),
            ("to", "A running server"),
            ("data", "The data of one that is not running"),
            ("password-file", "The password of the running server"),
            ("key-max", "Memory for one key [default: 4GiB]"),
            ("replace", "Puts keys in the place of others"),
        ],
    ),
    (
        "bench",
        &[
            ("addr", "The server [default: one is started]"),
            ("engine", "Of that: auto, threads, epoll, uring"),
            ("connections", "Connections [default: 1]"),
            ("rate", "A second, each sent at its time"),
            ("slo", "Finds the rate that holds p99<1ms"),
            ("duration", "How long to measure [default: 3s]"),
            ("json", "Writes the result as JSON"),
            ("html", "Writes the result as a page"),
            ("size", "Bytes of a message"),
            ("pipeline", "Sent before a reply [default: 1]"),
            ("batch", "Messages in each write"),
            ("a", "The base, as KEY=VALUE,..."),
            ("b", "What is compared with it"),
            ("rounds", "How many [default: 20]"),
            ("duet", "Loads both at once, not in turns"),
        ],
    ),
    ("info", LOOK),
    ("info", &[("json", "All there is, as JSON")]),
    ("top", LOOK),
    ("top", &[("interval", "How often it looks [default: 1s]")]),
    ("bench ack", ACK),
    ("bench ack", &[("rounds", "Instead of some time")]),
    ("bench ab ack", ACK),
    ("bench kv", KV),
    ("bench ab kv", KV),
    ("bench http", HTTP),
    ("bench ab http", HTTP),
    (
        "bench idle",
        &[("active", "Share that is active [default: 0]")],
    ),
    (
        "bench compare",
        &[
            ("a", "The result before, as JSON"),
            ("b", "The result after"),
            ("metric", "What [default: server_cpu_ns_per_request]"),
            ("threshold", "What is no regression yet [default: 2]"),
            ("markdown", "Prints a table for a pull request"),
        ],
    ),
    (
        "lab",
        &[
            (
                "suite",
                "engines, classic, kv, connections, http, peers, or a file",
            ),
            ("runs", "Where runs are written, and taken up again"),
            ("rounds", "Blocks of all servers [default: the suite's]"),
            ("run-time", "Of a run [default: the suite's]"),
            ("print", "Prints the suite, and runs nothing"),
            ("plan", "Shows what would be run, and runs nothing"),
            ("json", "Writes the result as JSON"),
            ("html", "Writes the result as a page"),
        ],
    ),
];

const LOOK: &[(&str, &str)] = &[
    ("admin", "Its place [default: 127.0.0.1:7480]"),
    ("admin-token-file", "The admin token"),
    ("tls", "Speaks TLS"),
];

const ACK: &[(&str, &str)] = &[
    ("preset", "Loads as the classic client of a mode"),
    ("mode", "The server's mode"),
    ("protocol", "classic or native"),
    ("level", "Of acknowledgements"),
];

const KV: &[(&str, &str)] = &[
    ("keys", "How many, and how chosen [default: 1m]"),
    ("value-size", "Bytes [default: 64]"),
    ("reads", "GET in percent [default: 50]"),
    ("command", "Instead of GET and SET"),
];

const HTTP: &[(&str, &str)] = &[
    ("path", "Path and query [default: /]"),
    ("method", "Of the request [default: GET]"),
    ("header", "A field of the request"),
    ("body", "Bytes of the request's body"),
    ("status", "That every reply has [default: 200]"),
];
