//! Printing: tables, JSON, and text that is safe to show on a terminal.
//!
//! File names and labels may contain anything, including control sequences of a terminal. All
//! printed text passes through [`printable`]; text that shares a line with other text also passes
//! through [`one_line`] first.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::Global;
use super::error::CliError;

/// Version of the JSON schema, the field `schema` of every object; see `docs/json.md`.
pub(crate) const SCHEMA: u32 = 2;

/// Whether a character could control a terminal, or show text in an order other than its own:
/// control characters except tabs and line ends, marks of direction, separators of lines.
fn is_unsafe(c: char) -> bool {
    let is_mark = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    (c.is_control() && !matches!(c, '\n' | '\t')) || is_mark
}

/// Writes the unsafe characters of a text as Rust escapes, such as `\u{1b}`. Line ends stay.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe, |c| c.escape_unicode().to_string())
}

/// As [`printable`], for text that shares a line with other text: line ends and tabs are escaped
/// too.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_unsafe(c) || matches!(c, '\n' | '\t'), |c| c.escape_default().to_string())
}

/// Writes the unsafe characters of JSON, which occur in strings only, as JSON escapes.
fn printable_json(line: &str) -> Cow<'_, str> {
    // All unsafe characters have at most four hexadecimal digits.
    escaped(line, is_unsafe, |c| format!("\\u{:04x}", u32::from(c)))
}

fn escaped(
    text: &str,
    is_unsafe: impl Fn(char) -> bool,
    escape: impl Fn(char) -> String,
) -> Cow<'_, str> {
    if !text.contains(&is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_unsafe(c) {
            true => safe.push_str(&escape(c)),
            false => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// A writer that makes text printable and passes it on line by line.
pub(crate) struct Printable<W: Write> {
    inner: W,
    line: Vec<u8>,
}

impl<W: Write> Printable<W> {
    /// Wraps a writer.
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, line: Vec::new() }
    }

    fn show(&mut self, bytes: usize) -> io::Result<()> {
        let shown: Vec<u8> = self.line.drain(..bytes).collect();
        self.inner.write_all(printable(&String::from_utf8_lossy(&shown)).as_bytes())
    }
}

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if let Some(end) = self.line.iter().rposition(|&byte| byte == b'\n') {
            self.show(end + 1)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.show(self.line.len())?;
        self.inner.flush()
    }
}

/// Writes to stdout. A closed pipe is not an error: its reader has seen what it wanted.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(printable(text).as_bytes()).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::Internal(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints the JSON object or the text, as the options request.
pub(crate) fn result(
    global: Global,
    json: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), CliError> {
    if global.json {
        let line = serde_json::to_string(json)
            .map_err(|error| CliError::Internal(format!("JSON: {error}")))?;
        print(&format!("{}\n", printable_json(&line)))
    } else if global.quiet {
        Ok(())
    } else {
        print(&text())
    }
}

/// Prints a note to stderr, unless quiet.
pub(crate) fn note(global: Global, text: &str) {
    if !global.quiet {
        eprintln!("note: {}", one_line(text));
    }
}

/// Names and values as lines, with the values aligned.
pub(crate) fn pairs<K: AsRef<str>>(pairs: &[(K, String)]) -> String {
    let width = pairs.iter().map(|(key, _)| key.as_ref().len()).max().unwrap_or(0);
    let line =
        |(key, value): &(K, String)| format!("{:<width$}  {}\n", key.as_ref(), one_line(value));
    pairs.iter().map(line).collect()
}

/// Converts to milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A file skipped by `--skip-bad`, as JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Skipped {
    /// The file.
    pub(crate) file: PathBuf,
    /// The reason in words.
    pub(crate) error: String,
}

/// A table of text columns, each as wide as its longest cell; numbers are right-aligned.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table with these headings.
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|&h| h.to_owned()).collect()] }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| one_line(cell).into_owned()).collect());
    }

    /// Lays out the table: the first column left-aligned, the others right-aligned, the last
    /// left-aligned when `last_left`.
    pub(crate) fn render(&self, last_left: bool) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                if column > 0 {
                    line.push_str("  ");
                }
                let width = widths[column];
                if column == 0 || (last_left && column + 1 == columns) {
                    line.push_str(&format!("{cell:<width$}"));
                } else {
                    line.push_str(&format!("{cell:>width$}"));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A count and a noun, with a plural s where needed.
pub(crate) fn counted(count: usize, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        _ => format!("{count} {thing}s"),
    }
}

/// A number of bytes in a readable unit.
pub(crate) fn bytes(count: usize) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_aligns_its_columns() {
        let mut table = Table::new(&["status", "systems"]);
        table.row(vec!["Converged".to_owned(), "12".to_owned()]);

        assert_eq!(table.render(false), "status     systems\nConverged       12\n");
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
    }

    #[test]
    fn what_would_command_a_terminal_is_escaped() {
        // ESC [ 2 J clears the screen, OSC sets a title, U+009B is CSI in one character.
        let name = "a\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}1m\r\u{202e}b\tc\nd \u{fc}";

        assert_eq!(
            printable(name),
            "a\\u{1b}[2J\\u{1b}]0;t\\u{7}\\u{9b}1m\\u{d}\\u{202e}b\tc\nd \u{fc}"
        );
        assert!(one_line(name).ends_with("b\\tc\\nd \u{fc}"), "{}", one_line(name));
        assert!(matches!(printable("plain \u{3b1}\n"), Cow::Borrowed(_)));
        let json = serde_json::to_string(name).unwrap();
        let safe = printable_json(&json);
        assert!(safe.chars().all(|c| !is_unsafe(c)), "{safe}");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), name);
    }

    #[test]
    fn text_that_comes_in_pieces_is_escaped() {
        let mut shown = Vec::new();
        let mut writer = Printable::new(&mut shown);

        // The pieces end between the two bytes of U+009B, and in the middle of a line.
        for piece in [&b"a\xc2"[..], b"\x9b1m", b"\nb\x1b"] {
            writer.write_all(piece).unwrap();
        }
        writer.flush().unwrap();

        assert_eq!(String::from_utf8(shown).unwrap(), "a\\u{9b}1m\nb\\u{1b}");
    }

    #[test]
    fn cells_and_values_stay_in_their_line() {
        let mut table = Table::new(&["system", "rows"]);
        table.row(vec!["a\nb\u{1b}".to_owned(), "1".to_owned()]);

        assert_eq!(table.render(false).lines().count(), 2);
        assert_eq!(pairs(&[("input", "a\nb".to_owned())]), "input  a\\nb\n");
    }
}
