//! `tidewire serve`: the ready servers in one process, on one set of loops.
//!
//! The frame is everything except [`products`]: settings from one schema ([`settings`]), listeners and their layers
//! ([`listeners`]), logs that are lent ([`logs`]), a server from its start to its end ([`running`]), passing listeners from
//! one process to the next ([`handover`]), and the admin listener ([`admin`]). The frame knows products only through
//! [`product`]. A server runs until a signal asks for its end ([`crate::signals`]).

mod admin;
mod handover;
mod listeners;
mod logs;
mod product;
mod products;
mod running;
mod settings;

use std::path::Path;

use tidewire::EngineChoice;

pub(crate) use logs::options::DIRECTORY;
pub(crate) use logs::replica::client_settings;
pub(crate) use products::install;
pub(crate) use products::kv::kv_settings;
pub(crate) use settings::example::example;
pub(crate) use settings::sources::Args;

use self::handover::handing::Handing;
use self::handover::inherit::Inherited;
use self::handover::takeover::Takeover;
use self::handover::upgrade::Upgrade;
use self::product::Plan;
use self::running::end::End;
use self::running::ending::Ending;
use self::running::events::Events;
use self::running::life::{Life, Origin};
use self::running::manager::Manager;
use self::running::remains::Remains;
use self::settings::file::{self, File, Problem};
use self::settings::frame::Settings;
use self::settings::given::Given;
use self::settings::sources::{self, Asked};
use crate::allocator;
use crate::descriptors;
use crate::exit::Failure;
use crate::logging::Logging;

/// Runs until a signal.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let upgrade = Upgrade::remember();
    let (asked, sources, given) = args.asked()?;
    let options = &asked.options;
    let logging = Logging::start(
        options.log_format,
        options.log.as_deref(),
        options.log_connections,
    )?;
    for (name, meant) in sources::misspelt(std::env::vars_os().map(|(name, _)| name)) {
        tracing::warn!(
            name,
            meant,
            "a variable of the environment is no setting: perhaps a similar name was meant"
        );
    }
    let mut handed = running::manager::sockets()?;
    let takeover = match options.takeover {
        false => None,
        true if !handed.is_empty() => {
            return Err(Failure::usage(
                "--takeover cannot be combined with sockets that the service manager passes: leave one of them out",
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
    let mut plan = match configure(asked, &given, &inherited) {
        Ok(plan) => plan,
        Err(why) => {
            return Err(match takeover {
                Some(takeover) => takeover.give_up(why),
                None => why,
            });
        }
    };
    plan.warn_of_strangers();
    plan.settings.descriptors = descriptors::raise_limit();
    if plan.engine == EngineChoice::Threads || !plan.served().any(|(_, product)| product.is_large())
    {
        allocator::small_pages();
    }
    if let Some(running) = &takeover {
        let released = running
            .check_logs(&plan)
            .and_then(|()| running.release_logs(&plan));
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
    let control = handover::control::open(plan.control.as_ref(), inherited.take_control())?;
    plan.settings.control_path = control.as_ref().map(|control| control.path().to_owned());
    let mut handing = Handing::new(control, upgrade);
    let mut takeover = takeover;
    let mut origin = match takeover {
        Some(_) => Origin::Takeover,
        None => Origin::Start,
    };
    let mut remains = Remains::default();
    loop {
        // A port that was any is a certain one once a server has listened there.
        inherited
            .settle(&mut plan.settings.endpoints)
            .map_err(Failure::failed)?;
        let first = std::mem::take(&mut inherited);
        let begun = Life::begin(
            &plan,
            &sources,
            &manager,
            &logging,
            first,
            origin,
            &mut events,
        );
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
            Failure::failed(format!(
                "cannot write the listening addresses to stdout: {e}"
            ))
        })?;
        let (life, why) = life.run(&mut events, &mut handing);
        let ending = Ending::begin(life, why, &mut handing, &mut remains);
        match ending.run(&mut events, &mut handing)? {
            End::Over => return Ok(()),
            End::Again(listeners) => (inherited, origin) = (listeners, Origin::Return),
            End::Anew(listeners) => (inherited, origin) = (listeners, Origin::Start),
        }
    }
}

/// Finds all mistakes in a configuration file, each with its line; if there are none, checks whether a server could
/// start with these settings.
///
/// # Errors
/// The configuration cannot be read, or a server could not use it.
pub(crate) fn check(path: &Path) -> Result<Vec<Problem>, Failure> {
    let schema = sources::schema();
    let (file, problems) = File::parse(schema, &file::text_of(path)?);
    if problems.is_empty() {
        // The command line of this command is right.
        let wrong = |why: String| Failure::failed(format!("{}: {why}", path.display()));
        let asked = sources::asked_of(schema, file).map_err(wrong)?;
        let made = configure(asked, &Given::default(), &Inherited::default());
        let made = made.map_err(|e| wrong(e.message))?;
        check_files(&made).map_err(|e| wrong(e.message))?;
    }
    Ok(problems)
}

/// Whether the files of secrets and users can be used. A server reads these files once, when it starts, because they
/// may be pipes.
fn check_files(plan: &Plan) -> Result<(), Failure> {
    plan.admin.token()?;
    plan.served()
        .try_for_each(|(_, product)| product.check_files(plan))
}

/// The settings, checked as a whole, with the places of what was passed on.
fn configure(asked: Asked, flags: &Given, inherited: &Inherited) -> Result<Plan, Failure> {
    let given = inherited.given().map_err(Failure::failed)?;
    let mut settings = Settings::from(asked.options, given)?;
    settings.admin_is_given = inherited.gives_admin();
    let mut plan = Plan::new(settings, asked.products, asked.values)?;
    plan.leave_out()?;
    flags.check(&plan)?;
    plan.check()?;
    inherited
        .settle(&mut plan.settings.endpoints)
        .map_err(Failure::failed)?;
    let fronts = plan.endpoints.iter().map(|endpoint| &endpoint.front);
    for front in fronts.chain([&plan.admin_front]) {
        front.check(plan.handshake)?;
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Except `log`: this name stands for the durable log there, and the log filter is shown where it can be changed.
    #[test]
    fn every_flag_is_shown() {
        let (file, problems) = File::parse(
            sources::schema(),
            "services = ['echo', 'ingest', 'kv', 'http', 'ack', 'discard']",
        );
        assert!(problems.is_empty(), "{problems:?}");
        let asked = sources::asked_of(sources::schema(), file).expect("it is right");
        let plan = configure(asked, &Given::default(), &Inherited::default());
        let plan = plan.unwrap_or_else(|e| panic!("{}", e.message));
        let shown = plan.shown(&Default::default());
        for setting in sources::schema().settings() {
            let table = setting.table.as_deref().unwrap_or_default();
            let own = plan.all().any(|(service, _)| service.name == table);
            let at = match own {
                true => shown[table].get(setting.key()),
                false => shown.get(&setting.name),
            };
            assert!(at.is_some(), "{}", setting.name);
        }
        assert_eq!(shown["kv"]["login"], Value::from(30.0));
        assert_eq!(shown["kv"]["query-buffer"], Value::from(1 << 30));
        assert_eq!(shown["ingest"]["level"], "durable");
    }
}
