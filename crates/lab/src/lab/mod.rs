//! `tidewire lab`: a matrix of workloads and servers, and the conclusions from it.
//!
//! A suite lists the runs ([`suite`]); each run is stored as a line ([`record`]); [`result`] turns the lines into text,
//! JSON or a page ([`page`]).

mod beside;
mod cost;
mod counts;
mod faults;
mod growth;
mod page;
mod record;
mod result;
mod ship_cost;
mod show;
mod suite;
mod text;

use std::path::PathBuf;
use std::time::Duration;

use tidewire_load::preflight;
use tidewire_load::workload::Extent;

use crate::bench::{Want, Watcher, environment, report, write_page, write_report};
use tidewire_command::count;
use tidewire_command::exit::{Failure, UNTRUSTWORTHY, WRONG};
use tidewire_command::span::Span;

use self::cost::Cost;
use self::faults::Faults;
use self::record::{FORMAT, Header, Place, Records, Run};
use self::result::{Matrix, Times};
use self::suite::{Host, Suite, Work};

/// A matrix of workloads and servers: which server design, by how much, and may one believe it.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub(crate) struct Args {
    #[command(subcommand)]
    instead: Option<Instead>,
    /// A suite: engines, classic, kv, connections, http, peers, or a TOML file like one of them
    #[arg(value_name = "SUITE", required = true)]
    suite: Option<String>,
    /// Where each run is written down as it is done; a matrix that was interrupted goes on from there
    /// [default: lab-SUITE.jsonl]
    #[arg(long, value_name = "FILE")]
    runs: Option<PathBuf>,
    /// Blocks: each has every server of a workload once, and its base twice [default: the suite's]
    #[arg(long, value_name = "N", value_parser = count::some)]
    rounds: Option<u32>,
    /// How long a run is measured [default: the suite's]
    #[arg(long, value_name = "TIME")]
    run_time: Option<Span>,
    /// Load before measuring, in each run [default: the suite's]
    #[arg(long, value_name = "TIME")]
    warmup: Option<Span>,
    /// Where the order of runs begins: the same seed gives the same order
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Prints the suite, and runs nothing
    #[arg(long)]
    print: bool,
    /// Shows what would be run, and runs nothing
    #[arg(long)]
    plan: bool,
    /// Counts too, behind the runs: the instructions of user code and the system calls that each native server spends on
    /// a message of each workload, under valgrind and strace
    #[arg(long)]
    count: bool,
    /// Writes the result as JSON, every run included
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes the result as one page that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// What to do instead of running a matrix.
#[derive(Debug, clap::Subcommand)]
enum Instead {
    /// Counts instructions and system calls of a message.
    Counts(Box<counts::Args>),
    /// Counts what one more costs of everything of which there can be many.
    Growth(growth::Args),
    /// Shows a result on disk, and makes its page anew.
    Show(show::Args),
}

/// What the result of a matrix is called in its file.
const KIND: &str = "lab";
/// Messages of a segment that is counted.
const MESSAGES_COUNTED: u32 = 200;

/// A run to be made.
struct Task<'a> {
    place: Place,
    work: &'a Work,
    host: &'a Host,
}

/// Runs it and shows what came out.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(instead) = &args.instead {
        tidewire_command::descriptors::raise_limit();
        return match instead {
            Instead::Counts(counts) => counts.run(),
            Instead::Growth(growth) => growth.run(),
            Instead::Show(show) => show.run(),
        };
    }
    let text = Suite::text(args.suite.as_deref().unwrap_or_default())?;
    if args.print {
        show!("{text}");
        return Ok(());
    }
    tidewire_command::descriptors::raise_limit();
    let suite = args.suite(&text)?;
    let tasks = tasks(&suite, args.seed);
    show_plan(&suite, tasks.len());
    if args.plan {
        return Ok(());
    }
    let facts = environment();
    let header = args.header(&suite, text, &facts)?;
    let path = args.path();
    let mut records = Records::open(&path, &header)?;
    let mut watcher = Watcher::new()?;
    let mut faults = Faults::default();
    let whole = measure(&suite, &tasks, &mut records, &mut watcher, &mut faults)?;
    watcher.done();
    let times = Times {
        run_ms: header.run_ms,
        warm_up_ms: header.warm_up_ms,
    };
    let mut matrix = Matrix::of(&suite, &records.runs, times, &faults)?;
    let miscounted = match args.count && whole {
        true => count_all(&suite, &mut matrix, &mut watcher)?,
        false => None,
    };
    show!("{facts}");
    show!("{matrix}");
    if !whole {
        let path = path.display();
        show_line!("interrupted: this is what there was; the same command goes on, from {path}");
    }
    let doubt = matrix.doubt();
    let report = report(KIND, facts, matrix);
    if let Some(to) = &args.html {
        write_page(to, &page::page(&report))?;
    }
    if let Some(to) = &args.json {
        write_report(to, &report)?;
    }
    if let Some(failure) = faults.failure().or(miscounted) {
        return Err(failure);
    }
    doubtless(doubt)
}

/// Nothing, or the failure with which a command ends whose figures should not be believed.
fn doubtless(doubt: Option<String>) -> Result<(), Failure> {
    match doubt {
        None => Ok(()),
        Some(message) => Err(Failure {
            status: UNTRUSTWORTHY,
            message,
        }),
    }
}

impl Args {
    fn path(&self) -> PathBuf {
        let stem = PathBuf::from(self.suite.as_deref().unwrap_or_default());
        let stem = stem
            .file_stem()
            .map_or("suite".into(), |name| name.to_string_lossy().into_owned());
        self.runs
            .clone()
            .unwrap_or_else(|| format!("lab-{stem}.jsonl").into())
    }

    /// The suite with what flags change, and without the servers that are not there and need not be.
    fn suite(&self, text: &str) -> Result<Suite, Failure> {
        let mut suite = Suite::read(text)?;
        suite.rounds = self.rounds.unwrap_or(suite.rounds);
        suite.run_time = self.run_time.unwrap_or(suite.run_time);
        suite.warm_up = self.warmup.unwrap_or(suite.warm_up);
        let mut gone = Vec::new();
        for host in &suite.servers {
            match host.missing() {
                Some(program) if host.optional => {
                    show_line!("left out: {} ({program} is not there)", host.name);
                    gone.push(host.name.clone());
                }
                Some(program) => {
                    let name = &host.name;
                    return Err(Failure::failed(format!(
                        "server {name:?}: no program {program}"
                    )));
                }
                None => {}
            }
        }
        suite.servers.retain(|host| !gone.contains(&host.name));
        for work in &mut suite.workloads {
            work.servers.retain(|name| !gone.contains(name));
        }
        Ok(suite)
    }

    fn header(
        &self,
        suite: &Suite,
        text: String,
        facts: &tidewire_load::environment::Environment,
    ) -> Result<Header, Failure> {
        let millis = |span: Span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX);
        Ok(Header {
            format: FORMAT,
            suite: text,
            rounds: suite.rounds,
            run_ms: millis(suite.run_time),
            warm_up_ms: millis(suite.warm_up),
            seed: self.seed,
            version: env!("CARGO_PKG_VERSION").into(),
            environment: serde_json::to_value(facts)
                .map_err(|e| Failure::failed(format!("the machine's facts: {e}")))?,
        })
    }
}

/// All runs in their order: block after block, and in each the workloads, and their servers, in an order that the
/// seed gives. What changes slowly on a machine then meets all servers alike.
fn tasks(suite: &Suite, seed: u64) -> Vec<Task<'_>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut tasks = Vec::new();
    for round in 0..suite.rounds {
        let mut works: Vec<&Work> = suite.workloads.iter().collect();
        random.shuffle(&mut works);
        for work in works {
            let hosts = suite.servers_of(work);
            let base = hosts.iter().filter(|host| host.name == suite.base_of(work));
            let mut sides: Vec<(&Host, bool)> = hosts.iter().map(|host| (*host, false)).collect();
            sides.extend(base.map(|host| (*host, true)));
            random.shuffle(&mut sides);
            tasks.extend(sides.into_iter().map(|(host, control)| Task {
                place: Place {
                    round,
                    workload: work.name.clone(),
                    server: host.name.clone(),
                    control,
                },
                work,
                host,
            }));
        }
    }
    tasks
}

fn show_plan(suite: &Suite, runs: usize) {
    show_line!("{}", suite.title);
    let each = suite.run_time.0 + suite.warm_up.0 + Duration::from_millis(150);
    let about = each.mul_f64(runs as f64).as_secs_f64() / 60.0;
    show_line!(
        "{runs} runs in {} blocks, about {about:.0} minutes",
        suite.rounds
    );
    for host in &suite.servers {
        show_line!("  {:<18} {}", host.name, host.shown());
    }
    for finding in preflight::findings() {
        show_line!(
            "in the way: {}\n            {}",
            finding.what,
            finding.command
        );
    }
}

/// Makes the runs that are not there yet; whether that were all.
fn measure(
    suite: &Suite,
    tasks: &[Task<'_>],
    records: &mut Records,
    watcher: &mut Watcher,
    faults: &mut Faults,
) -> Result<bool, Failure> {
    let extent = Extent::Time {
        warm_up: suite.warm_up.0,
        measured: suite.run_time.0,
    };
    for (number, task) in tasks.iter().enumerate() {
        // If a server has failed under a workload, this pair is not run again; all other pairs are.
        if records.has(&task.place) || faults.of(&task.place).is_some() {
            continue;
        }
        if watcher.interrupted() {
            return Ok(false);
        }
        let Place {
            workload, server, ..
        } = &task.place;
        let all = tasks.len();
        watcher.show(&format!(
            "run {} of {all}: {workload}, {server}",
            number + 1
        ));
        let at = |mut failure: Failure| {
            failure.message = format!("{workload}, {server}: {}", failure.message);
            failure
        };
        let cell = task.work.cell().map_err(Failure::usage)?;
        let words = task.work.words().map_err(Failure::usage)?;
        let side = task.host.side()?;
        let ran = match cell.run(&words, &side, extent, watcher) {
            Ok(ran) => ran,
            Err(_) if watcher.interrupted() => return Ok(false),
            Err(failure) => {
                watcher.done();
                faults.add(&task.place, at(failure));
                continue;
            }
        };
        if ran.outcome.interrupted || watcher.interrupted() {
            return Ok(false);
        }
        records.add(Run::of(task.place.clone(), &ran))?;
    }
    Ok(true)
}

/// Counts what each server spends on a message of each workload. Where that cannot be had (a virtual machine, a load
/// without replies), the reason is kept instead. Returns the first wrong reply.
fn count_all(
    suite: &Suite,
    matrix: &mut Matrix,
    watcher: &mut Watcher,
) -> Result<Option<Failure>, Failure> {
    let want = Want {
        messages: MESSAGES_COUNTED,
        calls: true,
        binary: None,
    };
    let mut wrong = None;
    for (work, row) in suite.workloads.iter().zip(&mut matrix.workloads) {
        let cell = work.cell().map_err(Failure::usage)?;
        for column in row.servers.iter_mut().filter(|column| !column.control) {
            let host = suite.servers.iter().find(|host| host.name == column.name);
            let Some(host) = host.filter(|_| column.fault.is_none()) else {
                continue;
            };
            if watcher.interrupted() {
                return Ok(wrong);
            }
            watcher.show(&format!("counting {}, {}", work.name, host.name));
            match Cost::of(&cell, &host.side()?, &want) {
                Ok(cost) => column.counted = Some(cost),
                Err(mut failure) => {
                    failure.message = format!("{}, {}: {}", work.name, host.name, failure.message);
                    column.not_counted = Some(failure.message.clone());
                    if failure.status == WRONG {
                        wrong.get_or_insert(failure);
                    }
                }
            }
        }
    }
    watcher.done();
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_every_server_once_and_its_base_twice_in_an_order_that_changes() {
        let suite = Suite::read(
            "title='t'\nrounds=50\n[[server]]\nname='a'\nserve=''\n[[server]]\nname='b'\nserve=''\n\
             [[workload]]\nname='v'\nload='echo'\n[[workload]]\nname='w'\nload='echo'\nbase='b'\n",
        )
        .unwrap();
        let all = tasks(&suite, 1);
        assert_eq!(all.len(), 50 * 2 * 3);
        let mut firsts = std::collections::BTreeMap::new();
        for block in all.chunks(3) {
            let work = &block[0].place.workload;
            let mut sides: Vec<(&str, bool)> = block
                .iter()
                .map(|task| (&*task.place.server, task.place.control))
                .collect();
            *firsts.entry(sides[0]).or_insert(0) += 1;
            sides.sort_unstable();
            match &**work {
                "v" => assert_eq!(sides, [("a", false), ("a", true), ("b", false)]),
                _ => assert_eq!(sides, [("a", false), ("b", false), ("b", true)]),
            }
            assert!(block.iter().all(|task| task.place.workload == *work));
        }
        assert_eq!(firsts.len(), 4, "each may come first: {firsts:?}");
        let places = |seed| -> Vec<Place> {
            let all = tasks(&suite, seed);
            all.into_iter().map(|task| task.place).collect()
        };
        assert_eq!(places(1), places(1));
        assert_ne!(places(1), places(2));
    }
}
