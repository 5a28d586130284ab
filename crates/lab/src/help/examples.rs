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
        "lab growth",
        &[
            "tidewire lab growth --only keys",
            "tidewire lab growth --json growth.json",
        ],
    ),
    ("lab show", &["tidewire lab show kv.json --html kv.html"]),
    (
        "bench",
        &[
            "tidewire bench echo --connections 50 --size 512 --duration 3s",
            "tidewire bench ab echo --a engine=epoll --b engine=uring",
        ],
    ),
    (
        "bench ab",
        &["tidewire bench ab echo --a engine=epoll --b engine=uring --rounds 20"],
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
