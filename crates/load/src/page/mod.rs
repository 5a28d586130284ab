//! A result as one page: self-contained, without scripts or anything from a network, so that it can be mailed,
//! archived and opened in twenty years.
//!
//! The idea: charts are SVG made here. Colours are CSS variables, so one page is light and dark; series differ by
//! their marks and places too, never by colour alone. Whatever came from outside goes through [`escape`].

mod axes;
mod chart;
mod curve;
mod escape;
mod grid;
mod heat;
mod ratios;
mod style;

use std::fmt::{self, Write as _};

pub use chart::{Bar, Chart, Dots};
pub use curve::Line;
pub use escape::{Escaped, escape};
pub use grid::Cell;
pub use heat::Column;
pub use ratios::{Difference, Group, Lane};

/// A cell of a table with more bytes than this has words, which may be broken.
const WORDS: usize = 24;

/// A part of a page.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// The section's heading.
    pub heading: String,
    /// The results in sentences.
    pub sentences: Vec<String>,
    /// The reasons to doubt the result.
    pub doubts: Vec<String>,
    /// The figures; the first row names the columns.
    pub table: Vec<Vec<String>>,
    /// The charts.
    pub charts: Vec<Chart>,
}

/// A page.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The question that the page answers.
    pub title: String,
    /// What was measured, where and when, in a line.
    pub about: String,
    /// The verdict, in sentences.
    pub verdict: Vec<String>,
    /// The verdict as a picture.
    pub picture: Option<Chart>,
    /// How to read the verdict and the picture, in sentences.
    pub reading: Vec<String>,
    /// The results.
    pub sections: Vec<Section>,
    /// The machine: names and values.
    pub facts: Vec<(String, String)>,
    /// The commands that made the page.
    pub commands: Vec<String>,
    /// All data as JSON, for download.
    pub data: String,
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = escape(&self.title);
        write!(
            f,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
             'unsafe-inline'; img-src data:\">\n\
             <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>{}</style>\n</head>\n\
             <body>\n<main>\n<h1>{title}</h1>\n",
            style::CSS
        )?;
        if !self.about.is_empty() {
            writeln!(f, "<p class=\"about\">{}</p>", escape(&self.about))?;
        }
        for sentence in &self.verdict {
            writeln!(f, "<p class=\"verdict\">{}</p>", escape(sentence))?;
        }
        if let Some(picture) = &self.picture {
            writeln!(f, "<div class=\"charts\">{picture}</div>")?;
        }
        for sentence in &self.reading {
            writeln!(f, "<p class=\"reading\">{}</p>", escape(sentence))?;
        }
        for section in &self.sections {
            self::section(f, section)?;
        }
        writeln!(f, "<section>\n<h2>How it was made</h2>")?;
        for command in &self.commands {
            writeln!(f, "<pre>{}</pre>", escape(command))?;
        }
        writeln!(f, "<dl>")?;
        for (name, value) in &self.facts {
            writeln!(f, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value))?;
        }
        writeln!(f, "</dl>")?;
        if !self.data.is_empty() {
            writeln!(
                f,
                "<p><a download=\"tidewire.json\" {DATA}{}\">All figures as JSON</a></p>",
                Percent(&self.data)
            )?;
        }
        writeln!(f, "</section>\n</main>\n</body>\n</html>")
    }
}

fn section(f: &mut fmt::Formatter<'_>, section: &Section) -> fmt::Result {
    writeln!(f, "<section>\n<h2>{}</h2>", escape(&section.heading))?;
    for sentence in &section.sentences {
        writeln!(f, "<p>{}</p>", escape(sentence))?;
    }
    if let Some((head, rows)) = section.table.split_first() {
        write!(f, "<div class=\"wide\"><table>\n<thead><tr>")?;
        for cell in head {
            write!(f, "<th scope=\"col\">{}</th>", escape(cell))?;
        }
        writeln!(f, "</tr></thead>\n<tbody>")?;
        for row in rows {
            write!(f, "<tr>")?;
            for (column, cell) in row.iter().enumerate() {
                // On a narrow screen each cell stands below the other, with the name of its column.
                let name = escape(head.get(column).map_or("", String::as_str));
                match column {
                    0 => write!(f, "<th scope=\"row\">{}</th>", escape(cell))?,
                    _ if cell.len() > WORDS => {
                        let cell = escape(cell);
                        write!(f, "<td class=\"words\" data-head=\"{name}\">{cell}</td>")?;
                    }
                    _ => write!(f, "<td data-head=\"{name}\">{}</td>", escape(cell))?,
                }
            }
            writeln!(f, "</tr>")?;
        }
        writeln!(f, "</tbody></table></div>")?;
    }
    if !section.doubts.is_empty() {
        writeln!(f, "<ul class=\"doubts\">")?;
        for doubt in &section.doubts {
            writeln!(f, "<li>{}</li>", escape(doubt))?;
        }
        writeln!(f, "</ul>")?;
    }
    writeln!(f, "<div class=\"charts\">")?;
    for chart in &section.charts {
        write!(f, "{chart}")?;
    }
    writeln!(f, "</div>\n</section>")
}

/// What stands in front of the data of a page.
const DATA: &str = "href=\"data:application/json;charset=utf-8,";

/// The data that a page carries; `None` for a text that is no page, or has none.
pub fn carried(page: &str) -> Option<String> {
    let (_, rest) = page.strip_prefix("<!doctype html>")?.rsplit_once(DATA)?;
    let (data, _) = rest.split_once('"')?;
    let mut bytes = Vec::with_capacity(data.len());
    let mut left = data.bytes();
    while let Some(byte) = left.next() {
        let value = |digit: u8| (digit as char).to_digit(16);
        bytes.push(match byte {
            b'%' => u8::try_from(value(left.next()?)? * 16 + value(left.next()?)?).ok()?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// A text in an address: bytes that may not stand there as %XX.
struct Percent<'a>(&'a str);

impl fmt::Display for Percent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            match byte {
                b'a'..=b'z'
                | b'A'..=b'Z'
                | b'0'..=b'9'
                | b'-'
                | b'_'
                | b'.'
                | b'~'
                | b','
                | b':' => {
                    f.write_char(byte.into())?;
                }
                byte => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Estimate;

    const HOSTILE: &str =
        "</script><script>alert('x')</script>\"><img src=x onerror=alert(1)>\u{0}&";

    fn page() -> Page {
        let line = Line {
            label: HOSTILE.into(),
            points: vec![(0.0, 1.0), (1.0, 2.0)],
        };
        Page {
            title: HOSTILE.into(),
            about: HOSTILE.into(),
            verdict: vec![HOSTILE.into()],
            picture: Some(Chart::Ratios {
                title: HOSTILE.into(),
                unit: HOSTILE.into(),
                less: HOSTILE.into(),
                more: HOSTILE.into(),
                groups: vec![Group {
                    label: HOSTILE.into(),
                    remark: HOSTILE.into(),
                    lanes: vec![Lane {
                        label: HOSTILE.into(),
                        ratio: Some(Estimate {
                            value: 1.0,
                            low: 0.5,
                            high: 2.0,
                        }),
                        equal: Some(1.1),
                        difference: Difference::NotShown,
                    }],
                }],
            }),
            reading: vec![HOSTILE.into()],
            sections: vec![Section {
                heading: HOSTILE.into(),
                sentences: vec![HOSTILE.into()],
                doubts: vec![HOSTILE.into()],
                table: vec![vec![HOSTILE.into(); 2]; 2],
                charts: vec![
                    Chart::Bars {
                        title: HOSTILE.into(),
                        unit: HOSTILE.into(),
                        parts: vec![HOSTILE.into(); 2],
                        bars: vec![Bar {
                            label: HOSTILE.into(),
                            values: vec![1.0, 2.0],
                        }],
                    },
                    Chart::Grid {
                        title: HOSTILE.into(),
                        unit: HOSTILE.into(),
                        columns: vec![HOSTILE.into()],
                        rows: vec![(
                            HOSTILE.into(),
                            vec![
                                Some(Cell {
                                    text: HOSTILE.into(),
                                    worse: Some(f64::NAN),
                                }),
                                None,
                            ],
                        )],
                    },
                    Chart::Dots {
                        title: HOSTILE.into(),
                        unit: HOSTILE.into(),
                        rows: vec![Dots {
                            label: HOSTILE.into(),
                            values: vec![1.0, f64::NAN, f64::INFINITY, 0.0, -1.0],
                        }],
                    },
                    Chart::Spectrum {
                        title: HOSTILE.into(),
                        lines: vec![line.clone()],
                    },
                    Chart::Lines {
                        title: HOSTILE.into(),
                        across: HOSTILE.into(),
                        up: HOSTILE.into(),
                        lines: vec![line.clone()],
                    },
                    Chart::Curve {
                        title: HOSTILE.into(),
                        across: HOSTILE.into(),
                        lines: vec![line.clone()],
                        marks: vec![
                            (HOSTILE.into(), 1.0),
                            (HOSTILE.into(), f64::NAN),
                            (HOSTILE.into(), f64::INFINITY),
                        ],
                    },
                    Chart::Heat {
                        title: HOSTILE.into(),
                        across: HOSTILE.into(),
                        columns: vec![
                            Column {
                                at: f64::NAN,
                                spectrum: line.points,
                            },
                            Column {
                                at: 1.0,
                                spectrum: vec![(f64::NAN, f64::INFINITY)],
                            },
                        ],
                    },
                ],
            }],
            facts: vec![(HOSTILE.into(), HOSTILE.into())],
            commands: vec![HOSTILE.into()],
            data: HOSTILE.into(),
        }
    }

    #[test]
    fn nothing_from_outside_becomes_markup() {
        let text = page().to_string();
        for tag in ["<script", "<img", "onerror=alert(1)>\"", "\u{0}"] {
            assert!(!text.contains(tag), "{tag}");
        }
        // Every opened element is one of ours.
        let ours = "!doctype html head meta link title style body main h1 h2 h3 p section pre dl dt dd a ul li div table \
                    thead tbody tr th td figure figcaption svg g rect line path circle text span";
        for tag in text.split('<').skip(1) {
            let name: String = tag
                .trim_start_matches('/')
                .chars()
                .take_while(|c| !c.is_whitespace() && *c != '>')
                .collect();
            assert!(
                ours.split_whitespace().any(|known| known == name),
                "<{name}"
            );
        }
    }

    #[test]
    fn nothing_is_fetched_and_nothing_is_not_a_number() {
        let text = page().to_string();
        for word in ["http:", "https:", "url(", "@import", "NaN", "=\"inf"] {
            assert!(!text.contains(word), "{word}");
        }
    }

    #[test]
    fn the_data_of_a_page_can_be_had_again() {
        assert_eq!(carried(&page().to_string()).as_deref(), Some(HOSTILE));
        for none in [
            "",
            "{}",
            "<!doctype html>",
            "<!doctype html><a href=\"data:application/json;charset=utf-8,%4",
        ] {
            assert_eq!(carried(none), None, "{none}");
        }
        assert_eq!(carried(&Page::default().to_string()), None);
    }

    #[test]
    fn an_empty_page_is_a_page() {
        let text = Page::default().to_string();
        assert!(text.starts_with("<!doctype html>") && text.ends_with("</html>\n"));
    }
}
