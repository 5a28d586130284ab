//! Code that all clients of librdkafka here share: their settings, and the texts of their errors.

use std::sync::Arc;

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::target::{Settings, Target};

/// The settings of librdkafka for all clients of a target.
pub(super) fn config(target: &Target, settings: &Settings) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("client.id", "tidewire");
    for (name, value) in &settings.client {
        config.set(only_name(name), value);
    }
    config.set("bootstrap.servers", target.brokers.join(","));
    // A topic that a broker makes because it was asked about has the broker's defaults, which do not keep the promise.
    config.set("allow.auto.create.topics", "false");
    config
}

/// Some settings have two names; a name that is set here must not be set under the other one,
/// because it would be unknown which of them counts.
fn only_name(name: &str) -> &str {
    match name {
        "metadata.broker.list" => "bootstrap.servers",
        "request.required.acks" => "acks",
        "delivery.timeout.ms" => "message.timeout.ms",
        "queue.buffering.max.ms" => "linger.ms",
        name => name,
    }
}

/// The text of an error, for people. Values of settings are not in it: they may be secrets.
pub(super) fn told(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, why, ..) => format!("Kafka: {why}"),
        KafkaError::Transaction(error) => format!("Kafka: {} ({})", error.string(), error.name()),
        error => format!("Kafka: {error}"),
    }
}

pub(super) fn failed(error: &KafkaError) -> Arc<str> {
    told(error).into()
}

/// Whether the error is about one broker, or the way to it: the client goes on with the others, and retries this one by itself.
pub(super) fn passes(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::Resolve
        )
    )
}

#[cfg(test)]
mod tests {
    use tidewire_replicate::Bell;

    use super::super::home;
    use super::*;

    #[test]
    fn another_name_of_a_setting_does_not_get_past_it() {
        let target: Target = "kafka://h/t".parse().expect("a target");
        let client = vec![("metadata.broker.list".to_owned(), "else:1".to_owned())];
        let settings = Settings {
            client,
            ..Settings::default()
        };
        let config = config(&target, &settings);
        let of = |name| config.get(name);
        assert_eq!(of("allow.auto.create.topics"), Some("false"));
        assert_eq!(
            (of("bootstrap.servers"), of("metadata.broker.list")),
            (Some("h:9092"), None)
        );
    }

    #[test]
    fn values_of_settings_are_not_told() {
        let target: Target = "kafka://h/t".parse().expect("a target");
        for name in ["sasl.pasword", "statistics.interval.ms"] {
            let client = vec![(name.to_owned(), "hunter2".to_owned())];
            let settings = Settings {
                client,
                ..Settings::default()
            };
            let refused = home(&target, &settings, Bell::default()).err();
            let why = refused.expect("no such setting").to_string();
            assert!(why.contains(name) && !why.contains("hunter2"), "{why}");
        }
    }
}
