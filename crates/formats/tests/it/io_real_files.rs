//! The real matrices and batches, compared with the tables that describe them. Skipped, with the
//! reason on stderr, where the data is not there.

use std::collections::BTreeMap;
use std::path::Path;

use sparsebatch_formats::io::{LoadOptions, load, read_batch, read_matrix_market};
use sparsebatch_formats::{Batch, FormatError, Pattern};
use sparsebatch_testing::{read_xref, shared_dir};

/// A row of one of the tables: its cells by column name.
type Row = BTreeMap<String, String>;

/// The tables of a Markdown file, each row under its section's heading.
fn tables(text: &str) -> Vec<(String, Row)> {
    let (mut rows, mut section, mut head) = (Vec::new(), String::new(), Vec::new());
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.split(' ').next().unwrap().clone_into(&mut section);
        }
        let Some(inner) = line.strip_prefix('|') else {
            head.clear();
            continue;
        };
        let cells: Vec<String> = inner.split('|').map(|cell| cell.trim().to_owned()).collect();
        if head.is_empty() {
            head = cells;
        } else if !cells[0].starts_with("---") {
            rows.push((section.clone(), head.iter().cloned().zip(cells).collect()));
        }
    }
    rows
}

fn number(row: &Row, column: &str) -> Option<usize> {
    row.get(column)?.parse().ok()
}

fn check_matrix(path: &Path, row: &Row) {
    let name = &row["name"];
    let read = read_matrix_market(path);
    if row["field"] == "complex" {
        let error = read.expect_err(name);
        assert!(matches!(error, FormatError::Unsupported { .. }), "{error}");
        return;
    }
    let matrix = read.unwrap_or_else(|error| panic!("{error}"));
    let rows = number(row, "rows").unwrap();
    assert_eq!(matrix.nrows(), rows, "{name}");
    assert_eq!(matrix.ncols(), number(row, "cols").unwrap_or(rows), "{name}");
    // Column "nnz" excludes explicit zeros. "entries" of small/ counts them where the numbers
    // differ; "stored" of large/ counts the lines of the file, which has the lower triangle of a
    // symmetric matrix.
    let symmetric = row["symmetry"] == "symmetric";
    let nnz = row.iter().find(|(column, _)| column.starts_with("nnz"));
    let nnz: usize = nnz.unwrap().1.parse().unwrap();
    let pattern = matrix.pattern().view();
    let diagonal = || (0..rows).filter(|&i| pattern.position(i, i).is_some()).count();
    let entries = match number(row, "stored") {
        Some(stored) if symmetric => 2 * stored - diagonal(),
        Some(stored) => stored,
        None => number(row, "entries").unwrap_or(nnz),
    };
    assert_eq!(matrix.nnz(), entries, "{name}");
    let nonzeros = matrix.values().iter().filter(|&&value| value != 0.0);
    assert_eq!(nonzeros.count(), nnz, "{name}");
    if symmetric {
        for i in 0..rows {
            for k in pattern.row(i) {
                let j = pattern.col_idx()[k] as usize;
                let mirror = pattern.position(j, i).expect(name);
                assert_eq!(matrix.values()[mirror], matrix.values()[k], "{name}");
            }
        }
    }
}

#[test]
fn every_matrix_is_as_its_table_says() {
    let Some(data) = shared_dir() else { return };
    let folder = data.join("matrices");
    let text = std::fs::read_to_string(folder.join("SOURCES.md")).unwrap();
    let mut checked = 0;
    for (section, row) in tables(&text) {
        // The table of matrices that are not there has no column "field".
        let Some(name) = row.get("name").filter(|_| row.contains_key("field")) else {
            continue;
        };
        let ending = if section == "small/" { "mtx" } else { "mtx.gz" };
        check_matrix(&folder.join(&section).join(format!("{name}.{ending}")), &row);
        checked += 1;
    }
    let files =
        ["small", "large"].map(|part| std::fs::read_dir(folder.join(part)).unwrap().count());
    assert_eq!(checked, files[0] + files[1]);
}

#[test]
fn every_batch_is_as_its_table_says() {
    let Some(data) = shared_dir() else { return };
    let folder = data.join("matrices");
    let text = std::fs::read_to_string(folder.join("SOURCES.md")).unwrap();
    let mut checked = 0;
    for (section, row) in tables(&text) {
        if section != "batch/" {
            continue;
        }
        let file = read_batch(folder.join("batch").join(&row["file"])).unwrap();
        let Batch::Uniform(batch) = &file.batch else {
            panic!("{}", row["file"]);
        };
        assert_eq!(batch.nitems(), number(&row, "items").unwrap());
        assert_eq!(batch.pattern().nrows(), number(&row, "rows").unwrap());
        assert_eq!(batch.pattern().nnz(), number(&row, "stored entries per item").unwrap());
        assert_eq!(file.rhs.len(), batch.nitems() * batch.pattern().nrows());
        checked += 1;
    }
    assert_eq!(checked, std::fs::read_dir(folder.join("batch")).unwrap().count());
}

/// The largest of max |b - A x| / max (|A| |x| + |b|), rows within an item, over the items.
fn backward_error(batch: &Batch<f64>, rhs: &[f64], x: &[f64]) -> f64 {
    let mut values = Vec::new();
    let mut worst = 0.0f64;
    for item in 0..batch.nitems() {
        batch.copy_values(item, &mut values);
        let (pattern, start) = (batch.pattern(item), batch.row_offset(item));
        let (mut residuals, mut scales) = (0.0f64, 0.0f64);
        for row in 0..pattern.nrows() {
            let (mut residual, mut scale) = (rhs[start + row], rhs[start + row].abs());
            for k in pattern.row(row) {
                let product = values[k] * x[start + pattern.col_idx()[k] as usize];
                residual -= product;
                scale += product.abs();
            }
            residuals = residuals.max(residual.abs());
            scales = scales.max(scale);
        }
        worst = worst.max(residuals / scales);
    }
    worst
}

#[test]
fn reference_solutions_solve_their_batches() {
    let Some(data) = shared_dir() else { return };
    for name in ["alpha13", "mid57", "sn156", "raddiff1d", "raddiff2d"] {
        let folder = data.join("astro");
        let file = read_batch(folder.join(format!("batch_{name}.bin"))).unwrap();
        let reference = read_xref(folder.join(format!("xref_{name}.bin"))).unwrap();
        assert_eq!(file.batch.nitems(), reference.nitems, "{name}");
        assert_eq!(file.batch.pattern(0).nrows(), reference.nrows, "{name}");

        let error = backward_error(&file.batch, &file.rhs, &reference.x);

        assert!(error < 1e-15 * reference.nrows as f64, "{name}: {error:e}");
    }
}

#[test]
fn the_folder_of_small_matrices_is_a_ragged_batch() {
    let Some(data) = shared_dir() else { return };
    let loaded = load(&[data.join("matrices/small")], LoadOptions::default()).unwrap();
    assert_eq!(loaded.batch.nitems(), 24);
    assert!(matches!(loaded.batch, Batch::Ragged(_)));
    assert!(loaded.names.is_sorted());
    assert!(loaded.rhs.is_none());

    let error = load(&[data.join("matrices/large")], LoadOptions::default()).unwrap_err();
    assert!(error.to_string().contains("conf5_0-4x4-18.mtx.gz: `complex`"), "{error}");
}
