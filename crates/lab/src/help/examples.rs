//! How each command is used, for the end of its `--help`.

/// Examples of each command, by the command's words.
pub(super) const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "tidewire bench echo --connections 50 --size 512 --duration 3s",
            "tidewire lab engines --plan",
        ],
    ),
    (
        "lab counts",
        &[
            "tidewire lab counts --check docs/counts.txt",
            "tidewire lab counts --only echo --print",
        ],
    ),
    (
        "bench",
        &[
            "tidewire bench echo --connections 50 --size 512 --duration 3s",
            "tidewire bench ab echo --a engine=epoll --b engine=uring",
        ],
    ),
    (
        "bench echo",
        &[
            "tidewire bench echo --connections 50 --size 512 --duration 3s",
            "tidewire bench echo --addr db.example:12345 --rate 20k",
        ],
    ),
    (
        "bench ack",
        &["tidewire bench ack --preset sync --rounds 5"],
    ),
    (
        "bench kv",
        &[
            "tidewire bench kv --connections 50 --pipeline 16",
            "tidewire bench kv --addr 127.0.0.1:6379",
        ],
    ),
    (
        "bench http",
        &["tidewire bench http --connections 64 --path /bytes/1000"],
    ),
    (
        "bench discard",
        &["tidewire bench discard --size 4096 --duration 3s"],
    ),
    (
        "bench idle",
        &["tidewire bench idle --connections 10000 --duration 10s"],
    ),
    (
        "bench connect",
        &["tidewire bench connect --connections 50 --duration 3s"],
    ),
    (
        "bench ab",
        &["tidewire bench ab echo --a engine=epoll --b engine=uring --rounds 20"],
    ),
    (
        "bench ab echo",
        &["tidewire bench ab echo --a engine=epoll --b engine=uring --rounds 20"],
    ),
    (
        "bench ab ack",
        &["tidewire bench ab ack --a engine=epoll --b engine=uring"],
    ),
    (
        "bench ab kv",
        &["tidewire bench ab kv --a engine=uring --b 'addr=127.0.0.1:6379,name=redis'"],
    ),
    (
        "bench ab http",
        &["tidewire bench ab http --a workers=1 --b workers=2"],
    ),
    (
        "bench ab discard",
        &["tidewire bench ab discard --a engine=threads --b engine=uring"],
    ),
    (
        "bench ab idle",
        &["tidewire bench ab idle --a engine=epoll --b engine=uring"],
    ),
    (
        "bench ab connect",
        &["tidewire bench ab connect --a placement=shared --b placement=acceptor"],
    ),
    (
        "bench compare",
        &["tidewire bench compare before.json after.json --threshold 5"],
    ),
    (
        "lab",
        &[
            "tidewire lab engines --plan",
            "tidewire lab kv --json kv.json --html kv.html",
        ],
    ),
];
