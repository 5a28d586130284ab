//! `tidewire bench` with values out of range, and what it says of its own limits.

use serde_json::Value;

use crate::common::{run, schema, stderr, stdout};

#[test]
fn what_no_machine_can_hold_is_refused_with_a_word() {
    for (args, word) in [
        (&["kv", "--pipeline", "400m"][..], "--batch"),
        (
            &["kv", "--command", "SET {key} {value}", "--pipeline", "400m"],
            "--batch",
        ),
        (&["connect", "-c", "4000m"], "--connections"),
        (
            &["ack", "--rounds", "10m", "--round-messages", "1"],
            "--rounds",
        ),
        (&["ack", "-c", "1k", "--rounds", "1k"], "--rounds"),
        (&["echo", "-c", "4k", "--processes", "4k"], "--processes"),
        (&["http", "--path", "0:/"], "weight"),
        (&["kv", "--command", "0:PING"], "weight"),
        (
            &[
                "kv",
                "--command",
                "PING",
                "--command",
                "PING",
                "--command",
                "PING",
                "--reply",
                "any",
                "--reply",
                "any",
            ],
            "--reply",
        ),
    ] {
        let output = run(&[&["bench"], args].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(
            said.contains(word) && !said.contains("panicked"),
            "{args:?}: {said}"
        );
    }
}

#[test]
fn an_impossible_rate_ends_in_its_time() {
    let output = run(&[
        "bench",
        "echo",
        "--rate",
        "1000g",
        "--duration",
        "100ms",
        "--no-pin",
    ]);
    let out = stdout(&output);
    assert!(
        matches!(output.status.code(), Some(0 | 4)),
        "{out}{}",
        stderr(&output)
    );
    assert!(out.contains("were due and not yet sent"), "{out}");
}

#[test]
fn weighted_paths_and_commands_are_each_checked_against_their_own_replies() {
    let paths = [
        "--path",
        "3:/",
        "--path",
        "1:/nowhere",
        "--pipeline",
        "5",
        "-c",
        "3",
    ];
    let http = [
        &["bench", "http", "--duration", "300ms", "--no-pin"],
        &paths[..],
    ]
    .concat();
    // The demo server has one of them only; a request for both is an error.
    let output = run(&http);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(
        stderr(&output).contains("status 404"),
        "{}",
        stderr(&output)
    );
    let good = [
        "bench",
        "http",
        "--path",
        "3:/",
        "--path",
        "1:/bytes/10",
        "--pipeline",
        "5",
        "-c",
        "3",
        "-n",
        "2000",
        "--no-pin",
    ];
    let output = run(&good);
    assert!(
        matches!(output.status.code(), Some(0 | 4)),
        "{}",
        stderr(&output)
    );
    let mix = [
        "bench",
        "kv",
        "--keys",
        "50",
        "--no-pin",
        "-n",
        "3000",
        "--pipeline",
        "8",
        "-c",
        "2",
        "--command",
        "1:HSET h:{n} f {value}",
        "--reply",
        "integer",
        "--command",
        "2:HGET h:{n} f",
        "--reply",
        "nil|bulk:{value}",
        "--command",
        "0.5:INCR c:{n}",
        "--reply",
        "integer",
    ];
    let output = run(&mix);
    assert!(
        matches!(output.status.code(), Some(0 | 4)),
        "{}",
        stderr(&output)
    );
    assert!(stdout(&output).contains("1:HSET"), "{}", stdout(&output));
    let swapped: Vec<&str> = mix
        .iter()
        .map(|word| if *word == "integer" { "status" } else { word })
        .collect();
    assert_eq!(run(&swapped).status.code(), Some(2));
}

#[test]
fn the_ceiling_of_the_generator_stands_beside_every_load_that_has_one() {
    let path = std::env::temp_dir().join(format!("tidewire-ceiling-{}.json", std::process::id()));
    for load in [
        &["echo", "-c", "4"][..],
        &["discard"],
        &["kv", "--keys", "100", "--value-size", "10..300"],
        &["http", "--pipeline", "3"],
        &["http", "--close"],
        &["ack", "--window", "1000"],
        &["connect", "-c", "3"],
    ] {
        let file = path.to_str().unwrap();
        let more = ["--ceiling", "--duration", "200ms", "--json", file, "--live"];
        let output = run(&[&["bench"], load, &more].concat());
        let out = stdout(&output);
        assert!(
            matches!(output.status.code(), Some(0 | 4)),
            "{load:?} {out} {}",
            stderr(&output)
        );
        assert!(out.contains("answers from nothing"), "{load:?} {out}");
        assert!(
            !out.contains('\u{1b}'),
            "a live view without a terminal: {out:?}"
        );
        let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let schema = schema::bench();
        schema::check(&schema, &schema, &json, "").unwrap();
        let ceiling = &json["result"]["ceiling"];
        assert!(
            ceiling["requests_per_second"].as_f64().unwrap() > 0.0,
            "{load:?} {ceiling}"
        );
    }
    std::fs::remove_file(&path).unwrap();
    for refused in [
        &["kv", "--command", "PING", "--no-fill"][..],
        &["ack", "--protocol", "native"],
    ] {
        let more = ["--ceiling", "--duration", "50ms"];
        let output = run(&[&["bench"], refused, &more].concat());
        assert_eq!(output.status.code(), Some(2), "{refused:?}");
        assert!(stderr(&output).contains("--ceiling"), "{}", stderr(&output));
    }
}
