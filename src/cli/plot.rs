//! Spy plots: the positions of the entries of a matrix, as SVG.

use std::io::Write;
use std::path::Path;

use plotters::prelude::*;
use sparsebatch::io::atomic_write;
use sparsebatch::{CsrPatternRef, FormatError};

use super::error::CliError;
use super::output::one_line;

/// Most cells in a row or column of the drawing; larger matrices are drawn as densities.
const CELLS: usize = 256;
/// Width and height of the matrix in the drawing, and the margin around it.
const SIDE: i32 = 768;
const MARGIN: i32 = 40;

/// The share of stored entries in each cell of a grid over the matrix.
struct Densities {
    rows: usize,
    columns: usize,
    counts: Vec<u32>,
    /// Most matrix positions per cell.
    places: f64,
}

impl Densities {
    fn new(pattern: CsrPatternRef<'_>) -> Self {
        let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
        let (rows, columns) = (nrows.clamp(1, CELLS), ncols.clamp(1, CELLS));
        let mut counts = vec![0; rows * columns];
        for row in 0..nrows {
            for k in pattern.row(row) {
                let column = pattern.col_idx()[k] as usize;
                counts[row * rows / nrows * columns + column * columns / ncols] += 1;
            }
        }
        let places = nrows.div_ceil(rows) as f64 * ncols.div_ceil(columns) as f64;
        Self { rows, columns, counts, places }
    }

    /// The grey of a cell, 0 for black, or `None` if it has no entry. A cell with a single entry is
    /// visible however large the matrix.
    fn shade(&self, row: usize, column: usize) -> Option<u8> {
        let count = self.counts[row * self.columns + column];
        let share = (f64::from(count) / self.places.max(1.0)).min(1.0);
        (count > 0).then(|| (180.0 * (1.0 - share.sqrt())) as u8)
    }
}

/// Draws a pattern.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn spy(path: &Path, pattern: CsrPatternRef<'_>, name: &str) -> Result<(), CliError> {
    // XML cannot contain control characters, not even escaped.
    let name = one_line(name);
    let title =
        format!("{name}: {} x {}, {} entries", pattern.nrows(), pattern.ncols(), pattern.nnz());
    let mut svg = String::new();
    draw(&mut svg, &Densities::new(pattern), &title)
        .map_err(|error| CliError::Internal(format!("plot: {error}")))?;
    let io = |source| FormatError::Io { path: path.to_owned(), source };
    Ok(atomic_write(path, |w| w.write_all(svg.as_bytes()).map_err(io))?)
}

fn draw(
    svg: &mut String,
    densities: &Densities,
    title: &str,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let longer = densities.rows.max(densities.columns) as i32;
    let pixel = |cell: usize| MARGIN + cell as i32 * SIDE / longer;
    let (right, bottom) = (pixel(densities.columns), pixel(densities.rows));
    let size = ((right + MARGIN) as u32, (bottom + MARGIN) as u32);
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    area.fill(&WHITE)?;
    area.draw(&Text::new(title.to_owned(), (MARGIN, MARGIN / 3), ("sans-serif", 16)))?;
    for row in 0..densities.rows {
        let mut column = 0;
        while column < densities.columns {
            let shade = densities.shade(row, column);
            let start = column;
            // Neighbouring cells of the same shade form one rectangle.
            while column < densities.columns && densities.shade(row, column) == shade {
                column += 1;
            }
            if let Some(grey) = shade {
                let corners = [(pixel(start), pixel(row)), (pixel(column), pixel(row + 1))];
                area.draw(&Rectangle::new(corners, RGBColor(grey, grey, grey).filled()))?;
            }
        }
    }
    area.draw(&Rectangle::new([(MARGIN, MARGIN), (right, bottom)], BLACK.stroke_width(1)))?;
    area.present()
}

#[cfg(test)]
mod tests {
    use sparsebatch::{CsrPattern, Pattern};

    use super::*;

    #[test]
    fn entries_and_nothing_else_are_drawn() {
        let pattern = CsrPattern::try_new(2, 3, vec![0, 2, 3], vec![0, 1, 2]).unwrap();

        let densities = Densities::new(pattern.view());

        let drawn = |row: usize| [0, 1, 2].map(|column| densities.shade(row, column).is_some());
        assert_eq!([drawn(0), drawn(1)], [[true, true, false], [false, false, true]]);
    }

    #[test]
    fn a_title_with_markup_stays_text() {
        let pattern = CsrPattern::try_new(1, 1, vec![0, 1], vec![0]).unwrap();
        let mut svg = String::new();

        draw(&mut svg, &Densities::new(pattern.view()), "a<b>&c").unwrap();

        assert!(svg.contains("a&lt;b&gt;&amp;c"), "{svg}");
    }

    #[test]
    fn one_entry_of_a_large_matrix_is_visible() {
        let n = 100_000;
        let mut row_ptr = vec![0; n];
        row_ptr.push(1);
        let pattern = CsrPattern::try_new(n, n, row_ptr, vec![7]).unwrap();
        let mut svg = String::new();

        draw(&mut svg, &Densities::new(pattern.view()), "one").unwrap();

        // The rectangles are the background, the entry and the frame.
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(svg.contains("one"));
    }
}
