//! Patterns whose entries are near the diagonal: [`Band`] and [`reverse_cuthill_mckee`].

use std::collections::VecDeque;

use sparsebatch_formats::CsrPatternRef;

use super::min_degree::symmetric_neighbours;
use super::{SymbolicError, check_square};

/// The most diagonals on each side of the main one that [`Band::of`] takes.
pub const MOST_DIAGONALS: usize = 8;

/// The band of a pattern: an order of its rows and columns, and the number of diagonals beside the
/// main one that have entries in that order.
///
/// LU without pivoting in that order fills in nothing outside of the band.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Band {
    order: Option<Vec<u32>>,
    lower: usize,
    upper: usize,
}

impl Band {
    /// The band of a square pattern: in the order of its rows, or in reverse Cuthill-McKee order
    /// where fewer diagonals have entries in that one. A tridiagonal pattern keeps its order.
    ///
    /// Time and memory are proportional to rows and entries.
    ///
    /// # Errors
    /// [`SymbolicError::NotSquare`]; [`SymbolicError::NoBand`] when entries are more than
    /// [`MOST_DIAGONALS`] away from the diagonal in both orders.
    ///
    /// # Examples
    /// ```
    /// use sparsebatch_formats::Csr;
    /// use sparsebatch_solve_core::symbolic::Band;
    /// let a = Csr::try_new(3, 3, vec![0, 2, 4, 6], vec![0, 1, 1, 2, 0, 2], vec![1.0; 6])?;
    /// let band = Band::of(a.view().pattern())?;
    /// assert_eq!((band.lower(), band.upper(), band.order()), (2, 1, None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of(pattern: CsrPatternRef<'_>) -> Result<Self, SymbolicError> {
        let nrows = check_square(pattern)?;
        let (lower, upper) = diagonals(pattern, |index| index);
        let given = Self { order: None, lower, upper };
        if given.half_width() <= 1 {
            return Ok(given);
        }
        // More entries than such a band has places for: no order helps.
        let fits = pattern.nnz() <= (2 * MOST_DIAGONALS + 1) * nrows;
        let band = match fits.then(|| Self::in_order(pattern, reverse_cuthill_mckee(pattern))) {
            Some(Ok(other)) if other.lower + other.upper < lower + upper => other,
            Some(Err(error)) => return Err(error),
            _ => given,
        };
        if band.half_width() > MOST_DIAGONALS {
            return Err(SymbolicError::NoBand { lower, upper, limit: MOST_DIAGONALS });
        }
        Ok(band)
    }

    fn in_order(
        pattern: CsrPatternRef<'_>,
        order: Result<Vec<u32>, SymbolicError>,
    ) -> Result<Self, SymbolicError> {
        let order = order?;
        let mut inverse = vec![0; order.len()];
        for (position, &index) in order.iter().enumerate() {
            inverse[index as usize] = position;
        }
        let (lower, upper) = diagonals(pattern, |index| inverse[index]);
        Ok(Self { order: Some(order), lower, upper })
    }

    /// The order: position `k` holds row and column `order[k]` of the matrix. `None` for the order
    /// of the rows.
    pub fn order(&self) -> Option<&[u32]> {
        self.order.as_deref()
    }

    /// Number of diagonals below the main one up to the last with an entry.
    pub fn lower(&self) -> usize {
        self.lower
    }

    /// Number of diagonals above the main one up to the last with an entry.
    pub fn upper(&self) -> usize {
        self.upper
    }

    /// The larger of [`Band::lower`] and [`Band::upper`].
    pub fn half_width(&self) -> usize {
        self.lower.max(self.upper)
    }
}

/// The largest distances of entries from the diagonal, below and above, once `place` has moved rows
/// and columns.
fn diagonals(pattern: CsrPatternRef<'_>, place: impl Fn(usize) -> usize) -> (usize, usize) {
    let (mut lower, mut upper) = (0, 0);
    for row in 0..pattern.nrows() {
        let at = place(row);
        for &col in &pattern.col_idx()[pattern.row(row)] {
            let col = place(col as usize);
            lower = lower.max(at.saturating_sub(col));
            upper = upper.max(col.saturating_sub(at));
        }
    }
    (lower, upper)
}

/// An order that brings the entries of a square pattern near to the diagonal: position `k` of the
/// permuted matrix `P A P^T` holds row and column `result[k]` of A.
///
/// On the graph of `A + A^T`, one connected part after the other:
/// 1. Start from a row of least degree, and go on to a row of least degree among the farthest from
///    it as long as the distance of the farthest grows.
/// 2. Number the rows breadth first from there, neighbours in ascending order of their degree.
/// 3. Reverse the numbers.
///
/// Equal degrees are taken in ascending order of rows: the result is a function of the pattern
/// alone.
///
/// # Errors
/// [`SymbolicError::NotSquare`].
///
/// # Source
/// E. Cuthill, J. McKee, Reducing the bandwidth of sparse symmetric matrices, 1969,
/// doi:10.1145/800195.805928; the start: A. George, J. W. H. Liu, An implementation of a
/// pseudoperipheral node finder, 1979, doi:10.1145/355841.355845.
pub fn reverse_cuthill_mckee(pattern: CsrPatternRef<'_>) -> Result<Vec<u32>, SymbolicError> {
    let nrows = check_square(pattern)?;
    let mut graph = symmetric_neighbours(pattern);
    let degrees: Vec<usize> = graph.iter().map(Vec::len).collect();
    for neighbours in &mut graph {
        neighbours.sort_unstable_by_key(|&row| (degrees[row as usize], row));
    }
    let mut starts: Vec<u32> = (0..nrows as u32).collect();
    starts.sort_by_key(|&row| degrees[row as usize]);
    let mut search = Search { graph: &graph, seen: vec![0; nrows], stamp: 0 };
    let (mut order, mut is_ordered) = (Vec::with_capacity(nrows), vec![false; nrows]);
    for start in starts {
        if is_ordered[start as usize] {
            continue;
        }
        let part = search.border_first(start, &degrees);
        part.iter().for_each(|&row| is_ordered[row as usize] = true);
        order.extend(part);
    }
    order.reverse();
    Ok(order)
}

/// Breadth-first searches of a graph.
struct Search<'a> {
    graph: &'a [Vec<u32>],
    /// The number of the last search that met each row.
    seen: Vec<u32>,
    stamp: u32,
}

impl Search<'_> {
    /// The rows of the connected part of `start`, from a row far from its middle.
    fn border_first(&mut self, start: u32, degrees: &[usize]) -> Vec<u32> {
        let (mut rows, mut last, mut depth) = self.breadth_first(start);
        loop {
            let farthest = rows[last..].iter().copied();
            let Some(next) = farthest.min_by_key(|&row| (degrees[row as usize], row)) else {
                return rows;
            };
            let (other, other_last, other_depth) = self.breadth_first(next);
            if other_depth <= depth {
                return rows;
            }
            (rows, last, depth) = (other, other_last, other_depth);
        }
    }

    /// The rows that can be reached from `start`, nearest first, where the farthest of them begin,
    /// and their distance.
    fn breadth_first(&mut self, start: u32) -> (Vec<u32>, usize, usize) {
        self.stamp += 1;
        self.seen[start as usize] = self.stamp;
        let (mut rows, mut queue) = (vec![start], VecDeque::from([(start, 0)]));
        let (mut last, mut depth) = (0, 0);
        while let Some((row, distance)) = queue.pop_front() {
            for &next in &self.graph[row as usize] {
                let seen = &mut self.seen[next as usize];
                if *seen == self.stamp {
                    continue;
                }
                *seen = self.stamp;
                if distance + 1 > depth {
                    (last, depth) = (rows.len(), distance + 1);
                }
                rows.push(next);
                queue.push_back((next, distance + 1));
            }
        }
        (rows, last, depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparsebatch_formats::{CsrPattern, Pattern};

    fn pattern(nrows: usize, has: impl Fn(usize, usize) -> bool) -> CsrPattern {
        let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
        for row in 0..nrows {
            col_idx.extend((0..nrows as i32).filter(|&col| has(row, col as usize)));
            row_ptr.push(col_idx.len() as i32);
        }
        CsrPattern::try_new(nrows, nrows, row_ptr, col_idx).unwrap()
    }

    #[test]
    fn a_tridiagonal_pattern_keeps_its_order() {
        let band = Band::of(pattern(5, |i, j| i.abs_diff(j) < 2).view()).unwrap();

        assert_eq!((band.lower(), band.upper(), band.order()), (1, 1, None));
    }

    #[test]
    fn a_ring_becomes_pentadiagonal() {
        let ring = pattern(5, |i, j| matches!(i.abs_diff(j), 0 | 1 | 4));

        let band = Band::of(ring.view()).unwrap();

        assert_eq!(band.half_width(), 2);
        assert!(band.order().is_some());
    }

    #[test]
    fn a_shuffled_path_becomes_tridiagonal() {
        // The path 3 - 0 - 4 - 1 - 2.
        let path = [3usize, 0, 4, 1, 2];
        let at = |row: usize| path.iter().position(|&other| other == row).unwrap();
        let shuffled = pattern(5, |i, j| at(i).abs_diff(at(j)) < 2);

        let band = Band::of(shuffled.view()).unwrap();

        assert_eq!(band.half_width(), 1);
        let order = band.order().unwrap();
        assert!(order == [2, 1, 4, 0, 3] || order == [3, 0, 4, 1, 2], "{order:?}");
    }

    #[test]
    fn parts_without_a_connection_follow_each_other() {
        let blocks = pattern(6, |i, j| i % 3 == j % 3);

        let band = Band::of(blocks.view()).unwrap();

        assert_eq!(band.half_width(), 1);
    }

    #[test]
    fn empty_patterns_are_bands() {
        for nrows in [0, 1, 3] {
            let band = Band::of(pattern(nrows, |_, _| false).view()).unwrap();
            assert_eq!((band.half_width(), band.order()), (0, None));
        }
    }

    #[test]
    fn a_full_row_is_no_band_and_the_message_says_so() {
        let arrow = pattern(30, |i, j| i == j || i == 0 || j == 0);

        let error = Band::of(arrow.view()).unwrap_err();

        assert_eq!(error, SymbolicError::NoBand { lower: 29, upper: 29, limit: 8 });
        let expected = "entries are up to 29 below and 29 above the diagonal, also in reverse \
                        Cuthill-McKee order more than the 8 that a banded solve takes";
        assert_eq!(error.to_string(), expected);
        let wide = pattern(3, |_, _| true);
        assert!(Band::of(wide.view()).is_ok());
    }

    #[test]
    fn a_pattern_that_is_not_square_has_no_band() {
        let wide = CsrPattern::try_new(1, 2, vec![0, 1], vec![1]).unwrap();

        let expected = SymbolicError::NotSquare { nrows: 1, ncols: 2 };
        assert_eq!(Band::of(wide.view()), Err(expected.clone()));
        assert_eq!(reverse_cuthill_mckee(wide.view()), Err(expected));
    }
}
