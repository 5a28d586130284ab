//! `tidewire top`: what a running server is doing, live in a terminal.

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span as Words};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use tidewire_admin::Page;

use super::change::Change;
use super::columns::{columns, is_word};
use super::fetch::Asker;
use super::numbers::{bytes, count, known, time};
use super::report;
use super::whom::Whom;
use crate::exit::Failure;
use crate::span::Span;

/// The server to ask, and how often.
#[derive(Debug, clap::Args)]
#[command(after_help = "Keys: q or Esc ends, p holds the picture still.")]
pub(crate) struct Top {
    #[command(flatten)]
    whom: Whom,

    /// Time between two looks; at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Span,
}

/// Values that are kept for the little charts.
const KEPT: usize = 240;
/// Lines of a terminal from which on unused services are shown.
const ROOMY: u16 = 40;
/// How often keys are looked for.
const KEYS: Duration = Duration::from_millis(100);

type Asked = Result<Page, String>;

impl Top {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        run(self)
    }
}

fn run(args: &Top) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return Err(Failure::usage(
            "top draws on a terminal, and stdout is none: tidewire info prints these figures once",
        ));
    }
    let interval = args.interval.0.max(Duration::from_millis(100));
    let asker = Asker::new(&args.whom)?;
    let url = asker.url().to_owned();
    // A wrong address is reported before the screen changes.
    let first = asker.page().map_err(Failure::failed)?;
    let (tell, pages) = channel();
    // The thread is not joined: it ends when the receiver is gone.
    thread::spawn(move || {
        loop {
            thread::sleep(interval);
            if tell.send(asker.page()).is_err() {
                return;
            }
        }
    });
    let mut view = View::new(url, interval);
    view.take(Ok(first));
    let mut terminal = ratatui::init();
    let drawn = watch(&mut terminal, &mut view, &pages);
    ratatui::restore();
    drawn.map_err(|e| Failure::failed(format!("cannot draw on the terminal: {e}")))
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    view: &mut View,
    pages: &Receiver<Asked>,
) -> io::Result<()> {
    terminal.draw(|frame| view.draw(frame))?;
    loop {
        let mut changed = false;
        match pages.recv_timeout(KEYS) {
            Ok(asked) => {
                view.take(asked);
                changed = true;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        while event::poll(Duration::ZERO)? {
            changed = true;
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('c') if ctrl => return Ok(()),
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('p') => view.held = !view.held,
                    _ => {}
                }
            }
        }
        if changed {
            terminal.draw(|frame| view.draw(frame))?;
        }
    }
}

/// The little charts.
const CHARTS: [&str; 4] = ["connections", "received", "sent", "loop latency p99"];

/// The state of the screen.
struct View {
    url: String,
    interval: Duration,
    now: Option<Page>,
    before: Option<Page>,
    /// Why no newer page came, and since when.
    lost: Option<(String, Instant)>,
    held: bool,
    charts: [VecDeque<u64>; CHARTS.len()],
    shown: [String; CHARTS.len()],
}

impl View {
    fn new(url: String, interval: Duration) -> View {
        View {
            url,
            interval,
            now: None,
            before: None,
            lost: None,
            held: false,
            charts: Default::default(),
            shown: Default::default(),
        }
    }

    fn take(&mut self, asked: Asked) {
        match asked {
            Ok(_) if self.held => {}
            Ok(page) => {
                self.before = self.now.replace(page);
                self.lost = None;
                self.keep();
            }
            Err(why) => {
                let since = self
                    .lost
                    .take()
                    .map_or_else(Instant::now, |(_, since)| since);
                self.lost = Some((why, since));
            }
        }
    }

    fn keep(&mut self) {
        let Some(now) = &self.now else { return };
        let change = Change::new(now, self.before.as_ref());
        let open = change.sum("tidewire_connections_open", &[]);
        let received = change.rate("tidewire_received_bytes_total", &[]);
        let sent = change.rate("tidewire_sent_bytes_total", &[]);
        let late = change.lag(0.99, &[]);
        let rate = |n: Option<f64>| known(n, |n| format!("{}/s", bytes(n)));
        self.shown = [count(open), rate(received), rate(sent), known(late, time)];
        let values = [Some(open), received, sent, late.map(|s| s * 1e9)];
        for (kept, value) in self.charts.iter_mut().zip(values) {
            kept.push_back(value.unwrap_or(0.0) as u64);
            if kept.len() > KEPT {
                kept.pop_front();
            }
        }
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let Some(now) = &self.now else { return };
        let change = Change::new(now, self.before.as_ref());
        let mut services = report::services(&change);
        let loops = report::loops(&change);
        let area = frame.area();
        if area.height < ROOMY {
            let accepted = change.by("tidewire_connections_accepted_total", "service");
            let used = |name: &str| accepted.get(name).is_some_and(|&n| n > 0.0);
            if services.iter().any(|row| used(&row[0])) {
                services.retain(|row| used(&row[0]));
            }
        }
        let charts = if area.height >= 24 { 4 } else { 0 };
        let [head, top, middle, rest, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(charts),
            Constraint::Length(services.len() as u16 + 2),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(area);
        self.head(frame, head, now);
        self.charts(frame, top);
        let spare = ["at", "closed", "accepted", "refused"];
        let head = &report::SERVICES;
        table(frame, middle, "services", head, &services, &spare);
        self.rest(frame, rest, &change, &loops);
        self.foot(frame, keys);
    }

    fn head(&self, frame: &mut Frame<'_>, area: Rect, page: &Page) {
        let colour = match (self.lost.is_some(), page.state.as_str()) {
            (true, _) => Color::Red,
            (false, "serving") => Color::Green,
            (false, _) => Color::Yellow,
        };
        let state = if self.lost.is_some() {
            "no answer"
        } else {
            page.state.as_str()
        };
        let words = Line::from(vec![
            Words::styled("tidewire ", Style::new().add_modifier(Modifier::BOLD)),
            Words::styled(
                format!("{state} "),
                Style::new().fg(colour).add_modifier(Modifier::BOLD),
            ),
            Words::raw(format!(
                "at {}  engine {}  up {}  pid {}",
                self.url,
                page.engine,
                super::numbers::span(page.uptime_seconds),
                page.pid
            )),
        ]);
        frame.render_widget(Paragraph::new(words), area);
    }

    fn charts(&self, frame: &mut Frame<'_>, area: Rect) {
        if area.height == 0 {
            return;
        }
        let areas = Layout::horizontal([Constraint::Fill(1); CHARTS.len()])
            .spacing(2)
            .split(area);
        for (n, name) in CHARTS.iter().enumerate() {
            let [title, chart] =
                Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(areas[n]);
            let words = Line::from(vec![
                // First, for what is cut where there is no room is the end.
                Words::styled(
                    self.shown[n].clone(),
                    Style::new().add_modifier(Modifier::BOLD),
                ),
                Words::styled(format!(" {name}"), dim()),
            ]);
            frame.render_widget(Paragraph::new(words), title);
            let kept = &self.charts[n];
            let fit = kept.len().saturating_sub(usize::from(chart.width));
            let values: Vec<u64> = kept.iter().skip(fit).copied().collect();
            // A chart of zeros is empty, not full.
            let most = values.iter().copied().max().unwrap_or(0).max(1);
            let line = Sparkline::default().data(&values).max(most);
            frame.render_widget(line.style(Style::new().fg(Color::Cyan)), chart);
        }
    }

    fn rest(&self, frame: &mut Frame<'_>, area: Rect, change: &Change<'_>, loops: &[Vec<String>]) {
        let limits = change.limits().into_iter().take(12);
        let limits: Vec<_> = limits
            .map(|(what, place, n)| vec![what, place, count(n)])
            .collect();
        let closed = change.closed().into_iter().take(12);
        let closed: Vec<_> = closed
            .map(|(reason, service, n)| vec![reason.into(), service.into(), count(n)])
            .collect();
        let mut facts = report::facts(change)
            .into_iter()
            .skip(2)
            .map(|(name, value)| vec![name.to_owned(), value])
            .collect::<Vec<_>>();
        for (title, more) in [
            ("log", report::log(change, report::MESSAGES)),
            ("log of keys", report::log(change, report::KEYS)),
            ("kv", report::kv(change)),
        ] {
            facts.extend(
                more.into_iter()
                    .map(|(name, value)| vec![format!("{title} {name}"), value]),
            );
        }
        let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)])
            .spacing(2)
            .areas(area);
        let third = |n: usize| Constraint::Length(n as u16 + 2);
        let [upper, lower, last] =
            Layout::vertical([third(loops.len()), third(limits.len()), Constraint::Min(0)])
                .areas(left);
        table(
            frame,
            upper,
            "loops",
            &report::LOOPS,
            loops,
            &["turns", "held", "open"],
        );
        table(
            frame,
            lower,
            "limits reached",
            &["what", "where", "times"],
            &limits,
            &["where"],
        );
        let head = ["reason", "service", "times"];
        table(
            frame,
            last,
            "connections closed",
            &head,
            &closed,
            &["service"],
        );
        table(frame, right, "server", &["", ""], &facts, &[]);
    }

    fn foot(&self, frame: &mut Frame<'_>, area: Rect) {
        let words = match &self.lost {
            Some((why, since)) => Line::styled(
                format!("no answer for {} s: {why}", since.elapsed().as_secs()),
                Style::new().fg(Color::Red),
            ),
            None => {
                let held = if self.held {
                    "paused; p goes on"
                } else {
                    "p holds"
                };
                let every = self.interval.as_secs_f64();
                Line::styled(format!("q ends  {held}  every {every} s"), dim())
            }
        };
        frame.render_widget(Paragraph::new(words), area);
    }
}

fn dim() -> Style {
    Style::new().fg(Color::DarkGray)
}

fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    head: &[&str],
    rows: &[Vec<String>],
    spare: &[&str],
) {
    if rows.is_empty() || area.height == 0 {
        return;
    }
    let columns = columns(usize::from(area.width), head, rows, spare);
    let cell = |at: usize, text: &str| {
        let side = if is_word(head, at) {
            Alignment::Left
        } else {
            Alignment::Right
        };
        Cell::from(Line::from(text.to_owned()).alignment(side))
    };
    let line = |cells: Vec<Cell<'static>>| Row::new(cells);
    let body = rows.iter().map(|row| {
        let cells = columns.iter().map(|&(at, _)| cell(at, &row[at]));
        line(cells.collect())
    });
    let widths = columns
        .iter()
        .map(|&(_, width)| Constraint::Length(width as u16));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let block = Block::new().title(Line::styled(title.to_owned(), bold));
    let mut table = Table::new(body, widths).block(block).column_spacing(1);
    if head.iter().any(|name| !name.is_empty()) {
        let head = columns.iter().map(|&(at, _)| cell(at, head[at]));
        table = table.header(line(head.collect()).style(dim()));
    }
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn page(time: f64, received: u64) -> Page {
        let text = format!(
            r#"{{"version":"1","pid":7,"time":{time},"uptime_seconds":{time},"engine":"epoll","state":"serving",
            "listeners":[{{"service":"echo","addr":"127.0.0.1:7"}}],
            "metrics":{{
            "tidewire_connections_accepted_total":[{{"labels":{{"service":"echo","loop":"loop-0"}},"value":3}}],
            "tidewire_connections_open":[{{"labels":{{"service":"echo","loop":"loop-0"}},"value":2}}],
            "tidewire_received_bytes_total":[{{"labels":{{"service":"echo","loop":"loop-0"}},"value":{received}}}],
            "tidewire_loop_turns_total":[{{"labels":{{"loop":"loop-0"}},"value":9}}],
            "tidewire_connections_closed_total":[{{"labels":{{"service":"echo","reason":"idle"}},"value":1}}],
            "tidewire_kv_keys":[{{"labels":{{"db":"0"}},"value":5}}]
            }}}}"#
        );
        super::super::fetch::parse(&text).unwrap()
    }

    fn drawn(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(usize::from(width).max(1));
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>() + "\n")
            .collect()
    }

    #[test]
    fn what_happens_is_drawn_at_any_size() {
        let mut view = View::new("http://h".into(), Duration::from_secs(1));
        view.take(Ok(page(1.0, 0)));
        view.take(Ok(page(2.0, 2048)));
        let shown = drawn(&view, 140, 45);
        for text in [
            "serving",
            "echo",
            "127.0.0.1:7",
            "2 KiB/s",
            "loop-0",
            "closed: idle",
            "kv keys",
            "q ends",
        ] {
            assert!(shown.contains(text), "{text}:\n{shown}");
        }
        let narrow = drawn(&view, 80, 24);
        assert!(narrow.contains("2 KiB/s received"), "{narrow}");
        for (width, height) in [(1, 1), (10, 5), (80, 24), (80, 10), (300, 100)] {
            drawn(&view, width, height);
        }
    }

    #[test]
    fn a_server_that_is_gone_is_said_to_be() {
        let mut view = View::new("http://h".into(), Duration::from_secs(1));
        view.take(Ok(page(1.0, 0)));
        view.take(Err("it is gone".into()));
        let shown = drawn(&view, 120, 40);
        assert!(
            shown.contains("no answer") && shown.contains("it is gone"),
            "{shown}"
        );
        view.take(Ok(page(2.0, 0)));
        assert!(!drawn(&view, 120, 40).contains("no answer"));
        view.held = true;
        view.take(Ok(page(3.0, 9999)));
        assert_eq!(view.now.as_ref().unwrap().time, 2.0, "held");
    }
}
