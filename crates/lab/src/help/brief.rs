//! What `-h` shows of commands with many flags: these, each on a line, so that the whole fits on a screen of 24 lines of 80.

/// The texts of `-h` for a command and its subcommands, by the command's words: flags and arguments
/// in the order of the help, each with a few words. If several entries name a flag, the later one
/// counts.
pub(super) const BRIEF: &[(&str, &[(&str, &str)])] = &[
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
