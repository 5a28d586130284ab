//! The acknowledgement load, on a command line.

use std::str::FromStr;

use tidewire_command::count;
use tidewire_ingest::classic::Mode;
use tidewire_ingest::{Level, UnknownLevel, client};

use super::ack::{AckLoad, Rounds};
use super::load::Workload;
use super::native::NativeLoad;
use super::options::{Chosen, Kind, Options, Unfit, bounded};
use super::preset::Preset;

/// Messages that are acknowledged.
pub(super) const KIND: Kind = Kind::of::<AckArgs>(
    "ack",
    "Messages that are acknowledged; the chain of acknowledgements is checked",
)
.once::<AckRoundsArgs>()
.used(
    &["tidewire bench ack --preset sync --rounds 5"],
    &["tidewire bench ab ack --a engine=epoll --b engine=uring"],
)
.briefly(&[
    ("preset", "Loads as the classic client of a mode"),
    ("mode", "The server's mode"),
    ("protocol", "classic or native"),
    ("level", "Of acknowledgements"),
    ("rounds", "Instead of some time"),
]);

/// The acknowledgement load.
#[derive(Clone, Debug, clap::Args)]
struct AckArgs {
    /// Loads as the classic client of this mode does: request-reply, throttled, head-rest, sync or
    /// async. Other options change it
    #[arg(long)]
    preset: Option<Preset>,
    /// The server's mode: request-reply, throttled, head-rest, sync or async [default: sync]
    #[arg(long)]
    mode: Option<Mode>,
    /// Bytes of a payload; a message has 12 more [default: 5]
    #[arg(long, value_name = "BYTES", value_parser = payload)]
    size: Option<u32>,
    /// What the messages are framed by: classic (to the service ack) or native (to ingest)
    #[arg(long, default_value = "classic", value_name = "PROTOCOL")]
    protocol: Protocol,
    /// What acknowledgements are to mean: none, received, durable, or replicated at a server with a
    /// home (--addr). With the native protocol the client asks for it; with the classic one it is a
    /// setting of the server that is started [default: none, native durable]
    #[arg(long, visible_alias = "server-level", value_name = "LEVEL")]
    level: Option<Wanted>,
    /// Gives each connection's producer a name (native protocol)
    #[arg(long)]
    named: bool,
    /// Messages in each write; with --rate, the messages that are due [default: 150, in request-reply mode 1]
    #[arg(long, value_name = "N", value_parser = count::some)]
    batch: Option<u32>,
    /// Most messages sent and not acknowledged; 0 is no limit [default: 0, in request-reply mode 1]
    #[arg(long, value_name = "N", value_parser = count::count)]
    window: Option<u64>,
}

/// A level, of either protocol.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Level(Level),
    Replicated,
}

impl FromStr for Wanted {
    type Err = UnknownLevel;

    fn from_str(name: &str) -> Result<Wanted, UnknownLevel> {
        match name {
            "replicated" => Ok(Wanted::Replicated),
            name => name.parse().map(Wanted::Level),
        }
    }
}

fn payload(text: &str) -> Result<u32, String> {
    u32::try_from(count::bytes(text)?).map_err(|_| format!("{text:?} is too large"))
}

/// A framing of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Protocol {
    Classic,
    Native,
}

/// The acknowledgement load in rounds.
#[derive(Clone, Debug, clap::Args)]
struct AckRoundsArgs {
    #[command(flatten)]
    ack: AckArgs,
    /// Rounds, each of which ends when everything is acknowledged, instead of a duration
    /// [default: the preset's]
    #[arg(long, value_name = "N", value_parser = count::count)]
    rounds: Option<u64>,
    /// Messages of a round [default: the preset's, else 1000000]
    #[arg(long, value_name = "N", value_parser = count::count)]
    round_messages: Option<u64>,
}

impl Options for AckRoundsArgs {
    fn load(&self) -> Result<Chosen, Unfit> {
        let rounds = self.rounds.is_some() || self.round_messages.is_some();
        if self.ack.protocol == Protocol::Native {
            if rounds {
                return Err(Unfit::because(
                    "--rounds goes with the classic protocol; see --count",
                ));
            }
            return self.ack.load();
        }
        let mut load = self.ack.classic()?;
        load.rounds = self.rounds(&load);
        if load
            .rounds
            .is_some_and(|r| r.rounds == 0 || r.messages == 0)
        {
            return Err(Unfit::because(
                "--rounds and --round-messages must be at least 1",
            ));
        }
        Ok(self.ack.chosen(load))
    }

    fn says_batch(&self) -> bool {
        self.ack.says_batch()
    }
}

impl AckRoundsArgs {
    fn rounds(&self, base: &AckLoad) -> Option<Rounds> {
        if base.rounds.is_none() && self.rounds.is_none() && self.round_messages.is_none() {
            return None;
        }
        let base = base.rounds.unwrap_or(Rounds {
            rounds: 1,
            messages: 1_000_000,
            restart_ids: false,
        });
        Some(Rounds {
            rounds: self.rounds.unwrap_or(base.rounds),
            messages: self.round_messages.unwrap_or(base.messages),
            ..base
        })
    }
}

impl AckArgs {
    fn native(&self) -> Result<NativeLoad, Unfit> {
        if self.preset.is_some() || self.mode.is_some() {
            return Err(Unfit::because(
                "--preset and --mode go with the classic protocol",
            ));
        }
        let load = NativeLoad {
            level: match self.level {
                None | Some(Wanted::Level(Level::Durable)) => client::Level::Durable,
                Some(Wanted::Level(Level::Received)) => client::Level::Received,
                Some(Wanted::Replicated) => client::Level::Replicated,
                Some(Wanted::Level(Level::None)) => {
                    return Err(Unfit::because(
                        "--level none: the native protocol has received, durable and replicated",
                    ));
                }
            },
            named: self.named,
            payload: self.size.unwrap_or(5),
            batch: self.batch.unwrap_or(150),
            window: self.window.unwrap_or(0),
        };
        bounded(load.message_len(), load.batch)?;
        Ok(load)
    }

    fn classic(&self) -> Result<AckLoad, Unfit> {
        if self.named {
            return Err(Unfit::because("--named goes with --protocol native"));
        }
        let mode = match (self.preset, self.mode) {
            (Some(Preset(preset)), Some(mode)) if preset != mode => {
                return Err(Unfit::because(format!(
                    "--preset {preset} with --mode {mode}: the preset speaks its own mode's dialect"
                )));
            }
            (Some(Preset(mode)), _) | (None, Some(mode)) => mode,
            (None, None) => Mode::Sync,
        };
        let base = self.preset.map_or_else(|| plain(mode), Preset::load);
        let load = AckLoad {
            level: match self.level {
                None => base.level,
                Some(Wanted::Level(level)) => level,
                Some(Wanted::Replicated) => {
                    return Err(Unfit::because(
                        "--level replicated goes with --protocol native",
                    ));
                }
            },
            payload: self.size.unwrap_or(base.payload),
            batch: self.batch.unwrap_or(base.batch),
            window: self.window.unwrap_or(base.window),
            ..base
        };
        bounded(load.message_len(), load.batch)?;
        Ok(load)
    }

    fn chosen(&self, load: AckLoad) -> Chosen {
        Chosen {
            workload: Workload::of(load),
            nodelay: self.preset.map(Preset::nodelay),
        }
    }
}

impl Options for AckArgs {
    fn load(&self) -> Result<Chosen, Unfit> {
        match self.protocol {
            Protocol::Native => Ok(Chosen::of(Workload::of(self.native()?))),
            Protocol::Classic => Ok(self.chosen(self.classic()?)),
        }
    }

    fn says_batch(&self) -> bool {
        self.batch.is_some()
    }
}

/// The load of a mode without a preset.
fn plain(mode: Mode) -> AckLoad {
    let lock_step = mode == Mode::RequestReply;
    AckLoad {
        mode,
        level: Level::None,
        payload: 5,
        batch: if lock_step { 1 } else { 150 },
        window: u64::from(lock_step),
        checks: None,
        rounds: None,
    }
}
