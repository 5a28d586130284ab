//! A run as it goes, on a terminal: rate, percentiles, and how latencies are spread.
//!
//! The idea: the generator shows a copy of its histogram when it is asked, twice a second. All else
//! is done here, on the thread that only waits.

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span as Words};
use ratatui::widgets::{Paragraph, Sparkline};
use ratatui::{DefaultTerminal, Frame};
use tidewire_load::histogram::{Latencies, LatencySummary};
use tidewire_load::workload::{Extent, Plan, Progress};

use super::arrivals;
use tidewire_load::numbers::{grouped, micros};

/// Rates that are kept for the little chart.
const KEPT: usize = 300;
/// Time between two pictures.
const EVERY: Duration = Duration::from_millis(450);

/// The terminal, as it was when this is dropped.
pub(super) struct Live {
    terminal: DefaultTerminal,
    view: View,
    drawn: Option<Duration>,
}

impl Live {
    /// Takes the terminal; `None` if stdout is none.
    pub(super) fn new(plan: &Plan) -> Option<Live> {
        if !io::stdout().is_terminal() {
            return None;
        }
        let terminal = ratatui::try_init().ok()?;
        Some(Live {
            terminal,
            view: View::new(plan),
            drawn: None,
        })
    }

    /// Shows how far a run is; false if a key ends it.
    pub(super) fn look(&mut self, at: Progress<'_>) -> bool {
        if self.drawn.is_none_or(|drawn| at.elapsed >= drawn + EVERY) {
            self.drawn = Some(at.elapsed);
            self.view.take(at);
            // A failed drawing is no reason to stop; the result is shown at the end.
            let _ = self.terminal.draw(|frame| self.view.draw(frame));
        }
        !ended().unwrap_or(false)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Whether a key has been pressed that ends the run. In raw mode Ctrl-C is one of them.
fn ended() -> io::Result<bool> {
    while event::poll(Duration::ZERO)? {
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('c') if ctrl => return Ok(true),
                KeyCode::Char('q') | KeyCode::Esc => return Ok(true),
                _ => {}
            }
        }
    }
    Ok(false)
}

/// The state of the screen.
struct View {
    title: String,
    /// How long it will be, if that is known.
    length: Option<Duration>,
    rates: VecDeque<u64>,
    before: (Duration, u64),
    elapsed: Duration,
    requests: u64,
    rate: f64,
    summary: Option<LatencySummary>,
    latencies: Option<Latencies>,
}

impl View {
    fn new(plan: &Plan) -> View {
        View {
            title: format!(
                "{}{}, {} connections",
                plan.workload.described(),
                arrivals::described(&plan.arrivals),
                grouped(plan.connections as f64)
            ),
            length: match plan.extent {
                Extent::Time { warm_up, measured } => Some(warm_up + measured),
                Extent::Count(_) | Extent::Rounds => None,
            },
            rates: VecDeque::new(),
            before: (Duration::ZERO, 0),
            elapsed: Duration::ZERO,
            requests: 0,
            rate: 0.0,
            summary: None,
            latencies: None,
        }
    }

    fn take(&mut self, at: Progress<'_>) {
        let (then, requests) = std::mem::replace(&mut self.before, (at.elapsed, at.requests));
        let seconds = at.elapsed.saturating_sub(then).as_secs_f64();
        if seconds > 0.0 {
            self.rate = at.requests.saturating_sub(requests) as f64 / seconds;
            self.rates.push_back(self.rate as u64);
            if self.rates.len() > KEPT {
                self.rates.pop_front();
            }
        }
        (self.elapsed, self.requests) = (at.elapsed, at.requests);
        self.summary = at.latencies.and_then(Latencies::summary);
        self.latencies = at.latencies.cloned();
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let [head, time, rate, chart, names, figures, _, spread, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(3),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let line = |frame: &mut Frame<'_>, area: Rect, line: Line<'_>| {
            frame.render_widget(Paragraph::new(line), area);
        };
        line(frame, head, Line::styled(self.title.as_str(), bold));
        let of = self.length.map_or_else(String::new, |length| {
            format!(" of {:.1}", length.as_secs_f64())
        });
        let words = format!(
            "{:.1}{of} s, {} answered",
            self.elapsed.as_secs_f64(),
            grouped(self.requests as f64)
        );
        line(frame, time, Line::raw(words));
        let mean = self.requests as f64 / self.elapsed.as_secs_f64().max(1e-9);
        let words = vec![
            Words::styled(format!("{} a second", grouped(self.rate)), bold),
            Words::raw(format!(
                "   {} in the mean, warm-up included",
                grouped(mean)
            )),
        ];
        line(frame, rate, Line::from(words));
        let fit = self.rates.len().saturating_sub(usize::from(chart.width));
        let rates: Vec<u64> = self.rates.iter().skip(fit).copied().collect();
        let sparkline = Sparkline::default().data(&rates);
        frame.render_widget(sparkline.style(Style::new().fg(Color::Cyan)), chart);
        self.percentiles(frame, names, figures);
        self.spread(frame, spread);
        line(
            frame,
            foot,
            Line::styled("q or Ctrl-C ends the run and shows the result", dim()),
        );
    }

    fn percentiles(&self, frame: &mut Frame<'_>, names: Rect, figures: Rect) {
        let shown = self.summary.as_ref().map(|of| {
            [
                ("p50", of.p50_ns),
                ("p90", of.p90_ns),
                ("p99", of.p99_ns),
                ("p99.9", of.p99_9_ns),
                ("max", of.max_ns),
            ]
        });
        let Some(shown) = shown else {
            let words = Line::styled("no latencies yet: nothing was measured so far", dim());
            return frame.render_widget(Paragraph::new(words), figures);
        };
        let row = |cell: &dyn Fn(&(&str, u64)) -> String| {
            let cells = shown.iter().map(|of| format!("{:>12}", cell(of)));
            cells.collect::<String>()
        };
        let heads = Line::styled(row(&|(name, _)| (*name).to_owned()), dim());
        frame.render_widget(Paragraph::new(heads), names);
        let values = row(&|(_, ns)| micros(*ns as f64 / 1e3));
        frame.render_widget(Paragraph::new(values), figures);
    }

    /// A bar for each span of latencies, as long as its share.
    fn spread(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = usize::from(area.height).min(16);
        let Some(latencies) = self.latencies.as_ref().filter(|_| rows > 1) else {
            return;
        };
        let spans = latencies.spans(rows);
        let most = spans.iter().map(|(_, count)| *count).max().unwrap_or(0);
        let room = usize::from(area.width).saturating_sub(28);
        let lines = spans.iter().map(|(to_ns, count)| {
            // A span that has anything is to be seen.
            let long = (*count as f64 / most.max(1) as f64 * room as f64).ceil() as usize;
            Line::from(vec![
                Words::styled(format!("{:>10} ", micros(*to_ns as f64 / 1e3)), dim()),
                Words::styled(
                    "\u{2588}".repeat(long.min(room)),
                    Style::new().fg(Color::Cyan),
                ),
                Words::raw(format!(" {}", grouped(*count as f64))),
            ])
        });
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
    }
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use tidewire_load::workload::{Arrivals, EchoLoad, Workload};

    use super::*;

    fn drawn(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(usize::from(width).max(1));
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>() + "\n")
            .collect()
    }

    #[test]
    fn a_run_is_drawn_at_any_size() {
        let plan = Plan {
            workload: Workload::of(EchoLoad {
                size: 64,
                pipeline: 1,
                batch: 0,
            }),
            connections: 5_000,
            arrivals: Arrivals::Closed,
            extent: Extent::Time {
                warm_up: Duration::from_secs(1),
                measured: Duration::from_secs(9),
            },
        };
        let mut view = View::new(&plan);
        let at = |millis, requests, latencies| Progress {
            server: None,
            elapsed: Duration::from_millis(millis),
            now_ns: 0,
            requests,
            latencies,
        };
        view.take(at(500, 100, None));
        assert!(drawn(&view, 80, 24).contains("no latencies yet"));
        let mut latencies = Latencies::new();
        latencies.record_many(20_000, 900);
        latencies.record_many(3_000_000, 100);
        view.take(at(1_000, 1_100, Some(&latencies)));
        let shown = drawn(&view, 80, 24);
        for words in [
            "5,000 connections",
            "1.0 of 10.0 s",
            "2,000 a second",
            "p99.9",
            "3000 us",
            "\u{2588}",
            " 900",
        ] {
            assert!(shown.contains(words), "{words}:\n{shown}");
        }
        for (width, height) in [(1, 1), (10, 5), (80, 10), (300, 100)] {
            drawn(&view, width, height);
        }
    }
}
