//! Tables by column, which a page shows, sorts and offers as CSV.

use std::collections::HashMap;

use serde_json::{Value, json};

/// A table, column by column; all columns have the same number of cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    columns: Vec<(String, Column)>,
}

/// The cells of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Numbers; a missing or non-finite number is a gap.
    Numbers(Vec<Option<f64>>),
    /// Texts; an empty one is a gap.
    Texts(Vec<String>),
}

impl Column {
    fn len(&self) -> usize {
        match self {
            Self::Numbers(cells) => cells.len(),
            Self::Texts(cells) => cells.len(),
        }
    }

    fn is_gap(&self) -> bool {
        match self {
            Self::Numbers(cells) => cells.iter().all(|cell| number(*cell).is_null()),
            Self::Texts(cells) => cells.iter().all(String::is_empty),
        }
    }
}

impl Table {
    /// A table without columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a column of numbers under a heading.
    pub fn numbers(mut self, heading: &str, cells: impl IntoIterator<Item = Option<f64>>) -> Self {
        self.columns.push((heading.to_owned(), Column::Numbers(cells.into_iter().collect())));
        self
    }

    /// Adds a column of texts under a heading.
    pub fn texts(
        mut self,
        heading: &str,
        cells: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let cells = cells.into_iter().map(Into::into).collect();
        self.columns.push((heading.to_owned(), Column::Texts(cells)));
        self
    }

    /// Removes columns that consist of gaps only.
    pub fn without_gaps(mut self) -> Self {
        self.columns.retain(|(_, column)| !column.is_gap());
        self
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }

    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The table as JSON for the page: texts as indices into the distinct ones, a single index if
    /// all are equal, numbers to seven significant digits.
    pub(crate) fn to_json(&self) -> Value {
        let columns: Vec<Value> = self
            .columns
            .iter()
            .map(|(name, column)| match column {
                Column::Numbers(cells) => {
                    let cells: Vec<Value> = cells.iter().copied().map(number).collect();
                    json!({ "name": name, "numbers": cells })
                }
                Column::Texts(cells) => {
                    let mut words: Vec<&str> = Vec::new();
                    let mut places = HashMap::new();
                    let index: Vec<usize> = cells
                        .iter()
                        .map(|cell| {
                            *places.entry(cell.as_str()).or_insert_with(|| {
                                words.push(cell);
                                words.len() - 1
                            })
                        })
                        .collect();
                    let index = if words.len() > 1 { json!(index) } else { Value::Null };
                    json!({ "name": name, "words": words, "index": index })
                }
            })
            .collect();
        json!({ "length": self.len(), "columns": columns })
    }
}

/// A number for the page: integers exactly, others to seven significant digits, null for a gap.
pub(crate) fn number(value: Option<f64>) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Some(value) if value.is_finite() && value.fract() == 0.0 && value.abs() < EXACT => {
            json!(value as i64)
        }
        Some(value) if value.is_finite() => {
            let short: f64 = format!("{value:.6e}").parse().unwrap_or(value);
            json!(short)
        }
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_gaps_are_null() {
        assert_eq!(number(Some(0.012046079635620117)).to_string(), "0.01204608");
        assert_eq!(number(Some(1e-11)).to_string(), "1e-11");
        assert_eq!(number(Some(145_000_000.0)).to_string(), "145000000");
        assert_eq!(number(Some(f64::NAN)), Value::Null);
        assert_eq!(number(Some(f64::INFINITY)), Value::Null);
        assert_eq!(number(None), Value::Null);
    }

    #[test]
    fn texts_are_written_once() {
        let table = Table::new().texts("a", ["x", "y", "x"]).texts("b", ["z", "z", "z"]);

        let json = table.to_json();

        assert_eq!(json["columns"][0]["words"], json!(["x", "y"]));
        assert_eq!(json["columns"][0]["index"], json!([0, 1, 0]));
        assert_eq!(json["columns"][1]["index"], Value::Null);
    }

    #[test]
    fn columns_of_gaps_can_be_left_out() {
        let table = Table::new().numbers("a", [None, Some(f64::NAN)]).texts("b", ["", "x"]);

        assert_eq!(table.without_gaps(), Table::new().texts("b", ["", "x"]));
    }
}
