//! `tidewire serve`: the ready servers in one process, on one set of loops.
//!
//! Settings come from flags and a file ([`args`]), are checked as a whole ([`settings`]), become
//! listeners ([`endpoint`], [`services`]), with a durable log where a service needs one ([`log`]), and
//! run until a signal asks for the end ([`crate::signals`]).

mod admin;
mod admission;
mod announce;
mod args;
mod blocked;
mod control;
mod counted;
mod deadlines;
mod door;
mod durable;
mod ending;
mod endpoint;
mod events;
mod full;
mod guard;
mod handing;
mod http;
mod inherit;
mod kv;
mod life;
mod limits;
mod listen_at;
mod log;
mod manager;
mod open;
mod replica;
mod scoped;
mod services;
mod settings;
mod shown;
mod socket_access;
mod takeover;
mod tls;
mod unused;
mod upgrade;

use tidewire::EngineChoice;

pub(crate) use args::Args;
pub(crate) use durable::DIRECTORY;
pub(crate) use endpoint::Kind;
pub(crate) use log::{KV_DIRECTORY, kv_settings};
pub(crate) use replica::client_settings;

use self::events::Events;
use self::handing::Handing;
use self::inherit::Inherited;
use self::life::{End, Life, Origin};
use self::manager::Manager;
use self::settings::{Settings, TokenSource};
use self::takeover::Takeover;
use self::upgrade::Upgrade;
use crate::allocator;
use crate::descriptors;
use crate::exit::Failure;
use crate::logging::Logging;

/// Runs until a signal.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let upgrade = Upgrade::remember();
    let (options, token_source) = args.options()?;
    let logging = Logging::start(
        options.log_format,
        options.log.as_deref(),
        options.log_connections,
    )?;
    let mut handed = manager::sockets()?;
    let takeover = match options.takeover {
        false => None,
        true if !handed.is_empty() => {
            return Err(Failure::usage(
                "--takeover beside sockets that the service manager passes: only one of them can be meant",
            ));
        }
        true => {
            let (takeover, theirs) =
                Takeover::ask(options.control.as_ref(), options.takeover_forget)?;
            handed = theirs;
            Some(takeover)
        }
    };
    let mut inherited = Inherited::new(handed);
    let mut settings = match configure(options, token_source, &inherited) {
        Ok(settings) => settings,
        Err(why) => {
            return Err(match takeover {
                Some(takeover) => takeover.give_up(why),
                None => why,
            });
        }
    };
    settings.warn_of_strangers();
    settings.descriptors = descriptors::raise_limit();
    if settings.engine == EngineChoice::Threads || !settings.serves_kv() {
        allocator::small_pages();
    }
    if let Some(takeover) = &takeover {
        takeover.release_logs(&settings)?;
    }
    // Before anything listens: a signal from here on means a graceful stop.
    let mut events = Events::catch()?;
    let manager = Manager::default();
    let control = control::open(settings.control.as_ref(), inherited.take_control())?;
    let mut handing = Handing::new(control, upgrade);
    let mut takeover = takeover;
    let mut origin = match takeover {
        Some(_) => Origin::Takeover,
        None => Origin::Start,
    };
    loop {
        // A port that was any is a certain one once somebody has listened there.
        inherited
            .settle(&mut settings.endpoints)
            .map_err(Failure::usage)?;
        let first = std::mem::take(&mut inherited);
        let begun = Life::begin(&settings, &manager, &logging, first, origin, &mut events);
        let life = match begun {
            Ok(life) => life,
            Err(why) => {
                return Err(match takeover {
                    Some(takeover) => takeover.give_up(why),
                    None => why,
                });
            }
        };
        if let Some(takeover) = takeover.take() {
            if let Err(refused) = takeover.serving() {
                life.abandon();
                return Err(refused);
            }
            life.is_alone();
        }
        handing.adopt();
        life.announce()
            .map_err(|e| Failure::usage(format!("cannot write to stdout where it listens: {e}")))?;
        match life.run(&mut events, &mut handing)? {
            End::Over => return Ok(()),
            End::Again(listeners) => (inherited, origin) = (listeners, Origin::Return),
        }
    }
}

/// The settings, checked as a whole, with the places of what was passed on.
fn configure(
    options: args::Options,
    token_source: TokenSource,
    inherited: &Inherited,
) -> Result<Settings, Failure> {
    let given = inherited.given().map_err(Failure::usage)?;
    let mut settings = Settings::from(options, token_source, given)?;
    settings.admin_is_given = inherited.gives_admin();
    settings.close_side_doors()?;
    settings.flags.check(&settings)?;
    inherited
        .settle(&mut settings.endpoints)
        .map_err(Failure::usage)?;
    let fronts = settings.endpoints.iter().map(|endpoint| &endpoint.front);
    for front in fronts.chain([&settings.admin_front]) {
        front.check(settings.handshake)?;
    }
    Ok(settings)
}
