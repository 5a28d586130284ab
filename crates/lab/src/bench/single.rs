//! One run against one server.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use tidewire::EngineChoice;
use tidewire_load::preflight;
use tidewire_load::trust::{Standing, Trust};
use tidewire_load::workload::{self, Arrivals, Chosen, Extent, Outcome, Plan, Purpose, Watch};

use super::arrivals;
use super::ceiling::{self, Ceiling};
use super::generator::GeneratorArgs;
use super::live::Live;
use super::loads::{Beside, Loads};
use super::search::{self, SearchArgs};
use super::side::{Server, Side};
use super::target::Ready;
use super::watch::Watcher;
use super::{output, page, processes, runs};
use tidewire_command::count;
use tidewire_command::exit::{Failure, MISSED, UNTRUSTWORTHY};
use tidewire_command::host;
use tidewire_command::span::Span;

/// Default length of a run.
const DURATION: Duration = Duration::from_secs(3);
/// Most rounds of a run.
const ROUNDS_MAX: u64 = 500_000;
/// Load before the measured time, where that is given by time.
const WARM_UP: Duration = Duration::from_millis(300);

/// One run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The server's address [default: a server is started, and stopped at the end]
    #[arg(long, value_name = "HOST:PORT", value_parser = host::server)]
    addr: Option<SocketAddr>,
    /// The server's process, to measure its CPU time and that of its children [default: the one that listens at
    /// the address, where it can be seen]
    #[arg(long)]
    pid: Option<u32>,
    /// Engine of the server that is started: threads, epoll, uring or auto [default: auto]
    #[arg(long, conflicts_with = "addr")]
    engine: Option<EngineChoice>,
    /// More arguments for the server that is started, such as "--workers 2 --busy-poll 50"
    #[arg(
        long,
        value_name = "ARGS",
        conflicts_with = "addr",
        allow_hyphen_values = true
    )]
    server_args: Option<String>,
    #[command(flatten)]
    generator: GeneratorArgs,
    #[command(flatten)]
    search: SearchArgs,
    /// Loads a server that answers from nothing too, a second long: the most that this generator can reach, which a
    /// result should stay away from
    #[arg(long)]
    ceiling: bool,
    /// Shows rate, percentiles and a histogram of latencies while it runs, where stdout is a terminal. Ctrl-C or q ends
    /// the run and shows the result so far
    #[arg(long)]
    live: bool,
    /// How long to measure [default: 3s]
    #[arg(long, value_name = "TIME", conflicts_with = "count")]
    duration: Option<Span>,
    /// Load before measuring [default: 300ms]
    #[arg(long, value_name = "TIME", conflicts_with = "count")]
    warmup: Option<Span>,
    /// Sends so many messages, over all connections, instead of for some time
    #[arg(long, short = 'n', value_name = "N", value_parser = count::count)]
    count: Option<u64>,
    /// Writes the result as JSON (docs/bench.schema.json says what is in it)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes the latencies as HdrHistogram's tools read them
    #[arg(long, value_name = "FILE")]
    hgrm: Option<PathBuf>,
    /// Writes the result as one page that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The result for machines.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    server: SocketAddr,
    server_engine: Option<&'a str>,
    requests_per_second: f64,
    mib_per_second: f64,
    trust: &'a Trust,
    /// Ceiling of the generator, if that was asked for.
    ceiling: Option<Ceiling>,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// Runs it and shows what came out.
pub(crate) fn run(args: &Loads<Args>) -> Result<(), Failure> {
    let args = &args.at_url()?;
    let (load, plan) = args.plan()?;
    if args.generator.is_null() {
        return ceiling::serve(&load.workload);
    }
    let mut watcher = Watcher::new()?;
    if let Some(part) = args.generator.part() {
        return processes::serve(part, &plan, &args.generator(&load)?);
    }
    let processes = args.generator.processes();
    let in_the_way = preflight::of_connections(
        plan.connections as u64,
        processes as u64,
        args.needs_descriptors(),
    );
    for finding in in_the_way {
        show_line!("in the way: {}", finding.what);
        show_line!("            {}", finding.command);
    }
    let server = Ready::find(&args.side(), &load.workload, &args.generator)?;
    let target = server.target();
    let generator = args.generator(&load)?;
    runs::first(&*args.load, &args.generator, &generator, &server)?;
    if args.search.is_wanted(plan.arrivals.rate().is_some()) {
        args.generator
            .in_one_process("--sweep, nor with --slo without --rate")?;
        args.look_for(plan, &generator, &server, &mut watcher)?;
        return server.stop().map(drop);
    }
    let words = std::env::args_os().skip(1);
    let mut live = args.live.then(|| Live::new(&plan)).flatten();
    let watch: Watch<'_> = &mut |at| match &mut live {
        Some(live) => live.look(at) && !watcher.interrupted(),
        None => watcher.look(at),
    };
    let done = processes::run(&args.generator, words, &plan, &generator, target, watch);
    drop(live);
    watcher.done();
    let outcome = done.map_err(|e| runs::failed(&e, &server))?;
    let ceiling = match args.ceiling && !outcome.interrupted {
        true => Ceiling::of(&plan, &args.generator, &generator, &mut watcher)?,
        false => None,
    };
    let engine = server.engine();
    show_line!(
        "load          {}{}",
        plan.workload.described(),
        arrivals::described(&plan.arrivals)
    );
    show_line!("              {}", args.generator.described());
    let on = engine.map_or_else(String::new, |engine| format!(" on {engine}"));
    show_line!("server        {}{on}", target.addr);
    let mut trust = Trust::of(&plan, &outcome);
    if let Some(ceiling) = ceiling.filter(|ceiling| ceiling.reached) {
        let rate = outcome.requests_per_second();
        trust.beside_ceiling(rate, ceiling.requests_per_second);
    }
    let ran = output::Ran {
        plan: &plan,
        outcome: &outcome,
        trust: &trust,
        ceiling: ceiling.as_ref(),
    };
    show!("{}", output::text(&ran));
    let written = |path: &Path, text: String| {
        fs::write(path, text)
            .map_err(|e| Failure::failed(format!("cannot write {}: {e}", path.display())))
    };
    if let Some(path) = &args.hgrm {
        written(path, outcome.histograms.felt().hgrm())?;
    }
    let shown = Shown {
        plan: &plan,
        server: target.addr,
        server_engine: engine,
        requests_per_second: outcome.requests_per_second(),
        mib_per_second: outcome.mib_per_second(),
        trust: &trust,
        ceiling,
        outcome: &outcome,
    };
    let kind = format!("bench {}", plan.workload.name());
    if let Some(path) = &args.html {
        let environment = output::environment();
        let data = output::carried(&kind, &environment, &shown);
        let page = page::single::page(&ran, data, &environment);
        page::write(path, &page)?;
    }
    if let Some(path) = &args.json {
        output::write(path, &kind, output::environment(), shown)?;
    }
    if let Some(limit) = server.stop()? {
        show_line!("log           {limit}");
    }
    match trust.standing {
        Standing::NotTrustworthy => Err(Failure {
            status: UNTRUSTWORTHY,
            message: "the figures are not trustworthy: see the notes".into(),
        }),
        // An objective is not missed by a run that cannot be believed.
        Standing::Trustworthy | Standing::Reservations => {
            match args.search.missed(&plan, &outcome) {
                Some(message) => Err(Failure {
                    status: MISSED,
                    message,
                }),
                None => Ok(()),
            }
        }
    }
}

impl Beside for Args {
    const PURPOSE: Purpose = Purpose::Once;
}

impl Loads<Args> {
    /// These loads with the parts of the URL as options.
    fn at_url(&self) -> Result<Loads<Args>, Failure> {
        let mut args = self.clone();
        if let Some(url) = self.load.url() {
            if self.addr.is_some() || self.engine.is_some() || self.server_args.is_some() {
                return Err(Failure::usage(
                    "a URL says where the server is: without --addr, --engine and --server-args",
                ));
            }
            args.beside.addr = Some(host::server(&url.server).map_err(Failure::usage)?);
            if url.tls {
                args.beside.generator = args.beside.generator.clone().over_tls(&url.host);
            }
        }
        if args.pid.is_some() && args.addr.is_none() {
            return Err(Failure::usage(
                "--pid is of a server that runs already: name it with --addr",
            ));
        }
        Ok(args)
    }

    fn generator(&self, load: &Chosen) -> Result<workload::Generator, Failure> {
        if self.ceiling {
            ceiling::check(&load.workload)?;
            self.generator.in_one_process("--ceiling")?;
            if self.generator.is_tls() {
                return Err(Failure::usage("--ceiling goes without TLS"));
            }
        }
        let generator = self.generator.generator(load)?;
        Ok(workload::Generator {
            live: self.live,
            ..generator
        })
    }

    /// Whether a server is started here that has a descriptor for each connection.
    fn needs_descriptors(&self) -> bool {
        let direct = |args: &String| args.contains("--direct-descriptors");
        self.addr.is_none() && !self.server_args.as_ref().is_some_and(direct)
    }

    fn plan(&self) -> Result<(Chosen, Plan), Failure> {
        let load = self.load.load()?;
        let (load, extent) = self.extent(load)?;
        let connections = self.generator.connections();
        let has_rate = self.generator.has_rate() || self.load.own_rate(connections).is_some();
        let arrivals = match self.search.is_wanted(has_rate) {
            // A search has rates of its own.
            true => Arrivals::Closed,
            false => runs::arrivals(&*self.load, &self.generator)?,
        };
        let plan = Plan {
            workload: load.workload.clone(),
            connections,
            arrivals,
            extent,
        };
        Ok((load, plan))
    }

    fn extent(&self, load: Chosen) -> Result<(Chosen, Extent), Failure> {
        if let Some(count) = self.count {
            if load.workload.is_held() {
                return Err(Failure::usage(
                    "--count: connections are held for a time, see --duration",
                ));
            }
            return Ok((load.endless(), Extent::Count(count)));
        }
        if let (None, Some(rounds)) = (self.duration, load.workload.rounds()) {
            let rounds = rounds.saturating_mul(self.generator.connections() as u64);
            if rounds > ROUNDS_MAX {
                return Err(Failure::usage(format!(
                    "--rounds: at most {ROUNDS_MAX} on all connections together, for each is kept"
                )));
            }
            return Ok((load, Extent::Rounds));
        }
        let extent = Extent::Time {
            warm_up: self.warmup.map_or(WARM_UP, |span| span.0),
            measured: self.duration.map_or(DURATION, |span| span.0),
        };
        Ok((load.endless(), extent))
    }

    /// Makes many runs instead of one.
    fn look_for(
        &self,
        plan: Plan,
        generator: &workload::Generator,
        server: &Ready,
        watcher: &mut Watcher,
    ) -> Result<(), Failure> {
        if self.hgrm.is_some() {
            return Err(Failure::usage(
                "--hgrm is of one run: not with --sweep, nor with --slo without --rate",
            ));
        }
        let [warm_up, measured] = [self.warmup, self.duration].map(|span| span.map(|span| span.0));
        let plan = Plan {
            extent: search::extent(warm_up, measured),
            ..plan
        };
        let out = search::Out {
            json: self.json.as_deref(),
            html: self.html.as_deref(),
        };
        let rate = self.generator.rate();
        search::run(&self.search, plan, rate, generator, server, watcher, &out)
    }

    fn side(&self) -> Side {
        let server = match self.addr {
            Some(addr) => Server::There {
                addr,
                pid: self.pid,
            },
            None => {
                let engine = self
                    .engine
                    .map(|engine| ["--engine".into(), engine.to_string()]);
                let more = self
                    .server_args
                    .iter()
                    .flat_map(|args| args.split_ascii_whitespace());
                let more = more.map(str::to_owned);
                Server::Own(engine.into_iter().flatten().chain(more).collect())
            }
        };
        Side {
            server,
            ..Side::default()
        }
    }
}
