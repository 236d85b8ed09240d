//! Residual histories: files as `solve --history` writes them, and their figure.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sparsebatch_formats::io::read_file;

use crate::page::{Chart, Figure};
use crate::table::{Table, number};

/// The first line of a history file.
const HEADER: &str = "item,iteration,residual";

/// Approximate number of points drawn per system; longer histories are thinned out.
const POINTS: usize = 1000;

/// Most systems drawn per history.
const DRAWN: usize = 12;

/// The residuals of some systems, iteration by iteration.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The source of the history, such as a file's name.
    pub name: String,
    /// For each system its number, and `||b - A x||_2` after 0, 1, ... iterations, as the
    /// recurrence of the method gives it.
    pub systems: Vec<(u64, Vec<f64>)>,
}

/// The reason why a history cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum HistoryError {
    /// The file cannot be read.
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A line does not belong to a history.
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The expected text.
        expected: &'static str,
        /// The text found.
        found: String,
    },
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Line { path, line, expected, found } => {
                write!(f, "{}:{line}: expected {expected}, found {found}", path.display())
            }
        }
    }
}

impl std::error::Error for HistoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Line { .. } => None,
        }
    }
}

impl History {
    /// Reads a file of lines `item,iteration,residual` under a heading.
    ///
    /// # Errors
    /// When the file cannot be read, or a line does not belong to a history.
    pub fn read(path: &Path) -> Result<Self, HistoryError> {
        let bytes =
            read_file(path).map_err(|source| HistoryError::Io { path: path.to_owned(), source })?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let fault = |line: usize, expected, found: &str| HistoryError::Line {
            path: path.to_owned(),
            line,
            expected,
            found: shown(found),
        };
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let line = 1 + bytes[..error.valid_up_to()].iter().filter(|&&b| b == b'\n').count();
            HistoryError::Line {
                path: path.to_owned(),
                line,
                expected: "UTF-8",
                found: "another byte".to_owned(),
            }
        })?;
        let mut lines = text.lines().enumerate();
        match lines.next() {
            Some((_, HEADER)) => {}
            found => return Err(fault(1, HEADER, found.map_or("", |(_, line)| line))),
        }
        let mut history = Self { name, systems: Vec::new() };
        for (index, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let wrong = || fault(index + 1, "item, iteration and residual", line);
            let mut cells = line.split(',');
            let (Some(item), Some(iteration), Some(residual), None) =
                (cells.next(), cells.next(), cells.next(), cells.next())
            else {
                return Err(wrong());
            };
            let item: u64 = item.parse().map_err(|_| wrong())?;
            let iteration: usize = iteration.parse().map_err(|_| wrong())?;
            let residual: f64 = residual.parse().map_err(|_| wrong())?;
            if history.systems.last().is_none_or(|system| system.0 != item) {
                history.systems.push((item, Vec::new()));
            }
            let system = history.systems.last_mut().expect("one was pushed");
            if system.1.len() != iteration {
                return Err(fault(index + 1, "iterations counted from 0, one a line", line));
            }
            system.1.push(residual);
        }
        if history.systems.is_empty() {
            return Err(fault(2, "a residual", ""));
        }
        Ok(history)
    }

    /// Indices of the systems that are drawn: the fastest to converge, the slowest, and some in
    /// between.
    fn drawn(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.systems.len()).collect();
        order.sort_by_key(|&place| self.systems[place].1.len());
        if order.len() <= DRAWN {
            return order;
        }
        let last = order.len() - 1;
        (0..DRAWN).map(|step| order[step * last / (DRAWN - 1)]).collect()
    }
}

/// The part of a line that an error shows.
fn shown(text: &str) -> String {
    match text.char_indices().nth(60) {
        _ if text.is_empty() => "nothing".to_owned(),
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The figure of the histories; without any, a figure that says so.
pub(crate) fn figure(histories: &[History]) -> Figure {
    let (mut names, mut items, mut iterations, mut residuals) = (vec![], vec![], vec![], vec![]);
    let mut charts = Vec::new();
    for history in histories.iter().filter(|history| !history.systems.is_empty()) {
        let mut series = Vec::new();
        for (line, place) in history.drawn().into_iter().enumerate() {
            let (item, system) = &history.systems[place];
            let step = system.len().div_ceil(POINTS).max(1);
            let last = system.len().saturating_sub(1);
            let points: Vec<Value> = system
                .iter()
                .enumerate()
                .filter(|(iteration, _)| iteration % step == 0 || *iteration == last)
                .map(|(iteration, &residual)| {
                    names.push(history.name.clone());
                    items.push(Some(*item as f64));
                    iterations.push(Some(iteration as f64));
                    residuals.push(Some(residual));
                    // A logarithmic axis cannot show zero.
                    let drawn = Some(residual).filter(|residual| *residual > 0.0);
                    json!([iteration, number(drawn), residuals.len() - 1])
                })
                .collect();
            let role = if line == 0 { "ours".to_owned() } else { format!("line-{line}") };
            series.push(json!({
                "type": "line", "name": format!("system {item}"), "role": role, "rows": true,
                "symbolSize": 3, "data": points,
            }));
        }
        charts.push(Chart {
            name: history.name.clone(),
            height: 440,
            option: json!({
                "xAxis": { "type": "value", "name": "iterations" },
                "yAxis": { "type": "log", "name": "residual" },
                "series": series,
            }),
        });
    }
    let count: usize = histories.iter().map(|history| history.systems.len()).sum();
    Figure {
        title: "Convergence histories".to_owned(),
        caption: if charts.is_empty() {
            "Residuals ‖b - A x‖ by iteration.".to_owned()
        } else {
            format!(
                "Residuals ‖b - A x‖ by iteration, as the method's recurrence has them, of up to \
                 {DRAWN} of {count} systems: the quickest, the slowest, and some between."
            )
        },
        table: Table::new()
            .texts("history", names)
            .numbers("system", items)
            .numbers("iteration", iterations)
            .numbers("residual", residuals),
        charts,
        absent: "There are none: rows hold no histories. Give `sparsebatch report` files that \
                 `sparsebatch solve --history FILE.csv` wrote, beside the rows."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: impl AsRef<[u8]>) -> Result<History, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.csv");
        std::fs::write(&path, text).unwrap();
        History::read(&path)
            .map_err(|error| error.to_string().rsplit('/').next().unwrap_or_default().to_owned())
    }

    #[test]
    fn a_history_is_read() {
        let history = read("item,iteration,residual\n0,0,1e0\n0,1,1e-3\n2,0,5e-1\n").unwrap();

        assert_eq!(history.name, "h");
        assert_eq!(history.systems, [(0, vec![1.0, 1e-3]), (2, vec![0.5])]);
        let figure = figure(&[history]);
        assert_eq!((figure.charts.len(), figure.table.len()), (1, 3));
    }

    #[test]
    fn lines_that_are_none_are_named() {
        let error = |text: &str| read(text).unwrap_err();

        assert_eq!(error(""), "h.csv:1: expected item,iteration,residual, found nothing");
        assert_eq!(error("a,b\n"), "h.csv:1: expected item,iteration,residual, found \"a,b\"");
        assert_eq!(
            error("item,iteration,residual\n"),
            "h.csv:2: expected a residual, found nothing"
        );
        let line = "item,iteration,residual\n0,0,1\n0,x,1\n";
        let expected = "h.csv:3: expected item, iteration and residual, found \"0,x,1\"";
        assert_eq!(error(line), expected);
        assert!(error("item,iteration,residual\n0,0,1\n0,3,1\n").contains("counted from 0"));
        let bytes = [b"item,iteration,residual\n0,0,".as_slice(), &[0xff]].concat();
        assert_eq!(read(bytes).unwrap_err(), "h.csv:2: expected UTF-8, found another byte");
        let absent = History::read(Path::new("/nowhere/h.csv")).unwrap_err();
        assert!(absent.to_string().starts_with("/nowhere/h.csv: "));
    }

    #[test]
    fn without_histories_the_figure_says_so() {
        let figure = figure(&[]);

        assert!(figure.charts.is_empty() && figure.absent.contains("There are none"));
    }

    #[test]
    fn of_many_systems_the_quickest_and_the_slowest_are_drawn() {
        let systems = (0..100).map(|item| (item, vec![1.0; 1 + item as usize])).collect();
        let history = History { name: "h".to_owned(), systems };

        let drawn = history.drawn();

        assert_eq!((drawn.len(), drawn[0], drawn[11]), (12, 0, 99));
    }

    #[test]
    fn long_histories_are_thinned_out_but_for_their_ends() {
        let history = History { name: "h".to_owned(), systems: vec![(0, vec![1.0; 10_002])] };

        let figure = figure(&[history]);

        let points = figure.charts[0].option["series"][0]["data"].as_array().unwrap();
        assert_eq!(points.len(), 910 + 1);
        assert_eq!(points.last().unwrap()[0], 10_001);
    }
}
