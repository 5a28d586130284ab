//! How each command is used, for the end of its `--help`.

/// Examples of each command, by the command's words.
pub(super) const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "tidewire serve",
            "tidewire send app.log",
            "tidewire read --from first",
            "tidewire serve --help",
        ],
    ),
    (
        "serve",
        &[
            "tidewire serve",
            "tidewire serve kv --durability sync --data /var/lib/tidewire",
            "tidewire serve ingest --listen ingest=logs.example:7400 --ingest-token-file token",
            "tidewire serve kv/resp --listen kv/resp=unix:/run/tidewire/kv.sock",
            "tidewire serve --config /etc/tidewire.toml --takeover",
        ],
    ),
    (
        "send",
        &[
            "tidewire send --producer app app.log",
            "tail -n 0 -F app.log | tidewire send --to logs.example:7400",
            "tidewire send --to 127.0.0.1:7400 --stream web --level received access.log",
        ],
    ),
    (
        "ship",
        &["tidewire ship '/var/log/nginx/*.log' --to logs.example:7400"],
    ),
    (
        "read",
        &[
            "tidewire read --from first",
            "tidewire read --stream web --since 10m --follow --raw",
            "tidewire read --cursor reports --json --count 100",
            "tidewire read --data tidewire-data --from first",
        ],
    ),
    (
        "stream",
        &[
            "tidewire stream list",
            "tidewire stream create web --retain-age 7d",
        ],
    ),
    ("stream list", &["tidewire stream list --json"]),
    ("stream show", &["tidewire stream show web"]),
    (
        "stream create",
        &["tidewire stream create web --retain-bytes 10GiB --retain-age 7d"],
    ),
    ("stream set", &["tidewire stream set web --retain-age none"]),
    ("stream delete", &["tidewire stream delete web --yes"]),
    (
        "stream trim",
        &["tidewire stream trim web --before 1000 --yes"],
    ),
    (
        "stream delete-cursor",
        &["tidewire stream delete-cursor web reports"],
    ),
    (
        "info",
        &[
            "tidewire info",
            "tidewire info --admin https://db.example:7480 --json",
        ],
    ),
    (
        "top",
        &["tidewire top --admin 127.0.0.1:7480 --interval 500ms"],
    ),
    (
        "log",
        &[
            "tidewire log info --data /var/lib/tidewire",
            "tidewire log check",
        ],
    ),
    (
        "log info",
        &["tidewire log info --data /var/lib/tidewire/kv"],
    ),
    ("log streams", &["tidewire log streams"]),
    ("log check", &["tidewire log check --data /backup/today"]),
    ("log dump", &["tidewire log dump --records"]),
    (
        "log backup",
        &["tidewire log backup --data /var/lib/tidewire /backup/today"],
    ),
    (
        "log restore",
        &["tidewire log restore --data /var/lib/tidewire /backup/today"],
    ),
    (
        "log unreplicated",
        &["tidewire log unreplicated --home 'kafka://k1,k2,k3/events?partitions=12'"],
    ),
    (
        "log extract",
        &["tidewire log extract 00000000000000000003.damaged --raw"],
    ),
    (
        "log repair",
        &["tidewire log repair", "tidewire log repair --yes"],
    ),
    ("kv", &["tidewire kv import dump.rdb --to 127.0.0.1:6380"]),
    (
        "kv import",
        &["tidewire kv import dump.rdb --to 127.0.0.1:6380 --replace"],
    ),
    (
        "kv export",
        &["tidewire kv export --data /var/lib/tidewire dump.rdb"],
    ),
    (
        "config",
        &[
            "tidewire config example > tidewire.toml",
            "tidewire config check tidewire.toml",
        ],
    ),
    (
        "config example",
        &["tidewire config example > tidewire.toml"],
    ),
    (
        "config check",
        &["tidewire config check /etc/tidewire.toml"],
    ),
    (
        "completions",
        &["tidewire completions bash > ~/.local/share/bash-completion/completions/tidewire"],
    ),
    ("man", &["tidewire man /usr/local/share/man/man1"]),
];
