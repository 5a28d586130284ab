//! The flags that `-h` shows of commands with many flags, each on a line, so that the help fits on a screen of 24 lines of
//! 80 columns.

/// The texts of `-h` for a command and its subcommands, by the command's words: flags and arguments
/// in the order of the help, each with a few words. If several entries name a flag, the later one
/// counts.
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
            ("tls-key", "The private key of --tls-cert"),
            ("admin", "Dashboard, metrics [default: :7480]"),
            ("data", "Of the log [default: tidewire-data]"),
            (
                "ingest-token-file",
                "Token that clients of ingest must send",
            ),
            ("kv-maxmemory", "Memory of kv [default: no limit]"),
            ("durability", "Keys' level: none, sync, replicated, os"),
            ("kv-password-file", "Password that clients of kv must send"),
        ],
    ),
    (
        "send",
        &[
            ("files", "Files to send [default: -, standard input]"),
            ("to", "The server [default: 127.0.0.1:7400]"),
            ("stream", "The stream [default: default]"),
            ("level", "durable, received or replicated"),
            ("producer", "Producer's name: nothing is stored twice"),
            ("format", "lines or length-prefixed"),
            ("append", "Sends everything behind what the server has"),
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
            ("producer", "Prefix of the producers' names"),
            ("state", "A directory that only this command uses"),
            ("token-file", "The secret that the server asks for"),
            ("once", "Ends when all present lines are shipped"),
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
            ("cursor", "Begins at this cursor's position"),
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
            ("retain-bytes", "Most bytes that are kept; the oldest go"),
            ("retain-age", "How long records are kept, such as 7d"),
            ("limit-bytes", "Most bytes; then messages are refused"),
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
            ("data", "Data directory of a stopped server"),
            ("password-file", "The password of the running server"),
            ("key-max", "Memory for one key [default: 4GiB]"),
            ("replace", "Replaces keys that exist"),
        ],
    ),
    ("info", LOOK),
    ("info", &[("json", "Everything, as JSON")]),
    ("top", LOOK),
    (
        "top",
        &[("interval", "Interval between looks [default: 1s]")],
    ),
];

const LOOK: &[(&str, &str)] = &[
    ("admin", "Admin listener [default: 127.0.0.1:7480]"),
    ("admin-token-file", "The admin token"),
    ("tls", "Speaks TLS"),
];
