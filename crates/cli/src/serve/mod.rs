//! `tidewire serve`: the ready servers in one process, on one set of loops.
//!
//! Settings are flags ([`args`]), and come from them, the environment and a file ([`sources`]); they are checked as a whole ([`settings`]), become
//! listeners ([`endpoint`], [`services`]), with a durable log where a service needs one ([`log`]), and
//! run until a signal asks for the end ([`crate::signals`]).

mod admin;
mod admin_options;
mod admission;
mod announce;
mod args;
mod begun;
mod blocked;
mod control;
mod counted;
mod deadlines;
mod door;
mod durability;
mod durable;
mod end;
mod ending;
mod endpoint;
mod events;
mod example;
mod file;
mod fleet;
mod follow;
mod fronts;
mod full;
mod given;
mod guard;
mod handing;
mod http;
mod inherit;
mod kind;
mod kv;
mod kv_archive;
mod kv_home;
mod kv_options;
mod kv_source;
mod life;
mod limits;
mod listen_at;
mod log;
mod manager;
mod now;
mod open;
mod passing;
mod replica;
mod schema;
mod scoped;
mod services;
mod settings;
mod shown;
mod socket_access;
mod sources;
mod takeover;
mod tls;
mod unused;
mod upgrade;

use std::path::Path;

use tidewire::EngineChoice;

pub(crate) use durable::DIRECTORY;
pub(crate) use example::example;
pub(crate) use log::kv_settings;
pub(crate) use replica::client_settings;
pub(crate) use sources::Args;

use self::end::End;
use self::ending::Ending;
use self::events::Events;
use self::file::{File, Problem};
use self::given::Given;
use self::handing::Handing;
use self::inherit::Inherited;
use self::life::{Life, Origin};
use self::manager::Manager;
use self::settings::Settings;
use self::sources::Sources;
use self::takeover::Takeover;
use self::upgrade::Upgrade;
use crate::allocator;
use crate::descriptors;
use crate::exit::Failure;
use crate::logging::Logging;

/// Runs until a signal.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let upgrade = Upgrade::remember();
    let (options, sources, given) = args.options()?;
    let logging = Logging::start(
        options.log_format,
        options.log.as_deref(),
        options.log_connections,
    )?;
    for (name, meant) in sources::misspelt(std::env::vars_os().map(|(name, _)| name)) {
        tracing::warn!(
            name,
            meant,
            "a variable that is no setting: perhaps another one is meant"
        );
    }
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
    let mut settings = match configure(options, sources, given, &inherited) {
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
    if let Some(running) = &takeover {
        let released = running
            .check_logs(&settings)
            .and_then(|()| running.release_logs(&settings));
        if let Err(why) = released {
            return Err(match takeover {
                Some(takeover) => takeover.give_up(why),
                None => why,
            });
        }
    }
    // Before anything listens: a signal from here on means a graceful stop.
    let mut events = Events::catch()?;
    let manager = Manager::default();
    let control = control::open(settings.control.as_ref(), inherited.take_control())?;
    settings.control_path = control.as_ref().map(|control| control.path().to_owned());
    let mut handing = Handing::new(control, upgrade);
    let mut takeover = takeover;
    let mut origin = match takeover {
        Some(_) => Origin::Takeover,
        None => Origin::Start,
    };
    loop {
        // A port that was any is a certain one once a server has listened there.
        inherited
            .settle(&mut settings.endpoints)
            .map_err(Failure::failed)?;
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
            match takeover.serving() {
                Ok(following) => life.is_alone(following),
                Err(refused) => {
                    life.abandon();
                    return Err(refused);
                }
            }
        }
        handing.adopt();
        life.announce().map_err(|e| {
            Failure::failed(format!("cannot write to stdout where it listens: {e}"))
        })?;
        let (life, why) = life.run(&mut events, &mut handing);
        match Ending::begin(life, why, &mut handing).run(&mut events, &mut handing)? {
            End::Over => return Ok(()),
            End::Again(listeners) => (inherited, origin) = (listeners, Origin::Return),
        }
    }
}

/// Says all that is wrong with a configuration file, each with its line; if that is nothing, whether a server could
/// have these settings.
///
/// # Errors
/// The configuration cannot be read, or a server could not use it.
pub(crate) fn check(path: &Path) -> Result<Vec<Problem>, Failure> {
    let schema = sources::schema();
    let (file, problems) = File::parse(&schema, &file::text_of(path)?);
    if problems.is_empty() {
        // The command line of this command is right.
        let wrong = |why: String| Failure::failed(format!("{}: {why}", path.display()));
        let options = sources::options_of(&schema, file).map_err(wrong)?;
        let (sources, given) = (Sources::default(), Given::default());
        let made = configure(options, sources, given, &Inherited::default());
        let made = made.map_err(|e| wrong(e.message))?;
        check_files(&made).map_err(|e| wrong(e.message))?;
    }
    Ok(problems)
}

/// Whether the files of secrets and users can be used; a server reads them as it begins, once, as they may be pipes.
fn check_files(settings: &Settings) -> Result<(), Failure> {
    settings.admin.token()?;
    match settings.serves_kv() {
        true => settings.kv.check(settings),
        false => Ok(()),
    }
}

/// The settings, checked as a whole, with the places of what was passed on.
fn configure(
    options: args::Options,
    sources: Sources,
    flags: Given,
    inherited: &Inherited,
) -> Result<Settings, Failure> {
    let given = inherited.given().map_err(Failure::failed)?;
    let mut settings = Settings::from(options, sources, flags, given)?;
    settings.admin_is_given = inherited.gives_admin();
    settings.close_side_doors()?;
    settings.check_log_keys()?;
    settings.flags.check(&settings)?;
    if settings.serves_kv() {
        settings.kv.home(&settings.durable)?;
    }
    inherited
        .settle(&mut settings.endpoints)
        .map_err(Failure::failed)?;
    let fronts = settings.endpoints.iter().map(|endpoint| &endpoint.front);
    for front in fronts.chain([&settings.admin_front]) {
        front.check(settings.handshake)?;
    }
    Ok(settings)
}
