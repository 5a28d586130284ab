//! Figures in rows and columns, each tinted by how it compares: where a design wins and where it does not, at a glance.
//!
//! The idea: the tint repeats what the figure says, so no reader needs to tell colours apart; blue
//! is better, orange worse, the stronger the more, up to twice.

use std::fmt;

use super::escape::escape;

/// A cell of a grid.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The text of the cell.
    pub text: String,
    /// How many times worse the value is than the base, below 1 for better: the cell's tint.
    pub worse: Option<f64>,
}

/// Strength of the strongest tint, in percent.
const TINT: f64 = 45.0;

pub(super) fn figure(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    unit: &str,
    columns: &[String],
    rows: &[(String, Vec<Option<Cell>>)],
) -> fmt::Result {
    writeln!(
        f,
        "<figure class=\"full\"><figcaption>{}</figcaption>\n<div class=\"key\">{}</div>",
        escape(title),
        escape(unit)
    )?;
    write!(
        f,
        "<div class=\"wide\"><table class=\"grid\">\n<thead><tr><th></th>"
    )?;
    for column in columns {
        write!(f, "<th scope=\"col\">{}</th>", escape(column))?;
    }
    writeln!(f, "</tr></thead>\n<tbody>")?;
    for (name, cells) in rows {
        write!(f, "<tr><th scope=\"row\">{}</th>", escape(name))?;
        for (number, cell) in cells.iter().enumerate() {
            // On a narrow screen each cell stands below the other, with the name of its column.
            let head = escape(columns.get(number).map_or("", String::as_str));
            let (tint, text) = match cell {
                Some(cell) => (Tint(cell.worse), &*cell.text),
                None => (Tint(None), "-"),
            };
            write!(f, "<td data-head=\"{head}\"{tint}>{}</td>", escape(text))?;
        }
        writeln!(f, "</tr>")?;
    }
    writeln!(f, "</tbody></table></div></figure>")
}

struct Tint(Option<f64>);

impl fmt::Display for Tint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let far = self.0.filter(|worse| worse.is_finite() && *worse > 0.0);
        let far = far.map_or(0.0, f64::log2);
        let strength = far.abs().min(1.0) * TINT;
        if strength < 1.0 {
            return Ok(());
        }
        let colour = if far < 0.0 { "c0" } else { "c1" };
        write!(
            f,
            " style=\"background:color-mix(in srgb,var(--{colour}) {strength:.0}%,transparent)\""
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_is_blue_worse_is_orange_and_nothing_has_no_tint() {
        let tint = |worse| Tint(worse).to_string();
        assert!(tint(Some(0.5)).contains("var(--c0) 45%"));
        assert!(tint(Some(0.01)).contains("var(--c0) 45%"));
        assert!(tint(Some(1.5)).contains("var(--c1) 26%"));
        for none in [
            None,
            Some(1.0),
            Some(0.0),
            Some(-1.0),
            Some(f64::NAN),
            Some(f64::INFINITY),
        ] {
            assert_eq!(tint(none), "", "{none:?}");
        }
    }
}
