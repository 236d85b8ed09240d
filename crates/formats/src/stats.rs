//! What a matrix looks like: the figures by which formats and kernels are chosen.

use crate::convert::{FromCsr, StorageSize, occupied_diagonals};
use crate::{
    CooPattern, CsrPattern, CsrPatternRef, DiaPattern, EllPattern, FormatError, HybPattern, Scalar,
    SellPPattern, View,
};

/// Figures of one matrix. Made by [`MatrixStats::new`] in a few passes, O(nnz + nrows + ncols).
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixStats {
    /// Number of rows.
    pub nrows: usize,
    /// Number of columns.
    pub ncols: usize,
    /// Stored entries, explicit zeros included.
    pub nnz: usize,
    /// Entries per row.
    pub row_length: RowLengths,
    /// Rows without entries.
    pub empty_rows: usize,
    /// The largest `row - column` of an entry below the diagonal; 0 when there is none.
    pub lower_bandwidth: usize,
    /// The largest `column - row` of an entry above the diagonal; 0 when there is none.
    pub upper_bandwidth: usize,
    /// Diagonals that hold an entry.
    pub ndiags: usize,
    /// Entries on the main diagonal whose value is not zero.
    pub nonzero_diagonal: usize,
    /// Entries whose value is zero.
    pub explicit_zeros: usize,
    /// Entries that are NaN or infinite.
    pub non_finite: usize,
    /// The share of the entries off the diagonal whose mirror image is stored too, in 0..=1; 1
    /// when all entries are on the diagonal, 0 for a matrix that is not square.
    pub structural_symmetry: f64,
    /// Whether the matrix is square and equals its transpose: a_ij == a_ji, entries that are not
    /// stored counting as 0. A NaN off the diagonal equals nothing, so the matrix is not symmetric
    /// then.
    pub is_symmetric: bool,
    /// Bytes in each format.
    pub bytes: FormatBytes,
}

/// Entries per row of one matrix; all 0 for a matrix without rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowLengths {
    /// Entries of the shortest row.
    pub min: usize,
    /// nnz / nrows.
    pub mean: f64,
    /// Entries of the longest row.
    pub max: usize,
    /// The standard deviation over all rows: sqrt(sum (len - mean)^2 / nrows).
    pub deviation: f64,
}

/// Bytes of indices and values in each format, under its default options; `None` where the
/// conversion would be refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormatBytes {
    /// Compressed sparse rows.
    pub csr: Option<usize>,
    /// Coordinates.
    pub coo: Option<usize>,
    /// ELLPACK.
    pub ell: Option<usize>,
    /// Diagonals.
    pub dia: Option<usize>,
    /// Hybrid of ELL and COO.
    pub hyb: Option<usize>,
    /// Padded slices.
    pub sellp: Option<usize>,
}

impl MatrixStats {
    /// Computes the figures of a matrix. Extra memory: a few words per row and column.
    ///
    /// # Examples
    /// ```
    /// use sparsebatch_formats::{Csr, stats::MatrixStats};
    /// // [2 0; 1 3]
    /// let a = Csr::try_new(2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![2.0, 1.0, 3.0])?;
    /// let stats = MatrixStats::new(a.view());
    /// assert_eq!((stats.lower_bandwidth, stats.upper_bandwidth), (1, 0));
    /// assert!(!stats.is_symmetric);
    /// # Ok::<(), sparsebatch_formats::FormatError>(())
    /// ```
    pub fn new<T: Scalar>(matrix: View<'_, CsrPattern, T>) -> Self {
        let (pattern, values) = (matrix.pattern(), matrix.values());
        let row_length = RowLengths::new(pattern);
        let places = Places::new(matrix);
        let symmetry = Symmetry::new(matrix);
        Self {
            nrows: pattern.nrows(),
            ncols: pattern.ncols(),
            nnz: pattern.nnz(),
            row_length,
            empty_rows: row_lengths(pattern).filter(|&len| len == 0).count(),
            lower_bandwidth: places.lower_bandwidth,
            upper_bandwidth: places.upper_bandwidth,
            ndiags: occupied_diagonals(pattern).len(),
            nonzero_diagonal: places.nonzero_diagonal,
            explicit_zeros: values.iter().filter(|&&v| v == T::ZERO).count(),
            non_finite: values.iter().filter(|v| !v.is_finite()).count(),
            structural_symmetry: symmetry.structural,
            is_symmetric: symmetry.numerical,
            bytes: FormatBytes::new::<T>(pattern),
        }
    }
}

impl RowLengths {
    /// Counts the entries of the rows.
    pub fn new(pattern: CsrPatternRef<'_>) -> Self {
        let nrows = pattern.nrows();
        if nrows == 0 {
            return Self::default();
        }
        let mean = pattern.nnz() as f64 / nrows as f64;
        let squares: f64 = row_lengths(pattern).map(|len| (len as f64 - mean).powi(2)).sum();
        Self {
            min: row_lengths(pattern).min().unwrap_or(0),
            mean,
            max: row_lengths(pattern).max().unwrap_or(0),
            deviation: (squares / nrows as f64).sqrt(),
        }
    }
}

impl FormatBytes {
    /// Sizes all formats with values of type `T`; nothing is converted.
    pub fn new<T: Scalar>(pattern: CsrPatternRef<'_>) -> Self {
        fn bytes<P: FromCsr, T: Scalar>(pattern: CsrPatternRef<'_>) -> Option<usize> {
            let size: Result<StorageSize, FormatError> =
                P::size_from_csr(pattern, &P::Options::default());
            size.ok().map(StorageSize::bytes::<T>)
        }
        Self {
            csr: bytes::<CsrPattern, T>(pattern),
            coo: bytes::<CooPattern, T>(pattern),
            ell: bytes::<EllPattern, T>(pattern),
            dia: bytes::<DiaPattern, T>(pattern),
            hyb: bytes::<HybPattern, T>(pattern),
            sellp: bytes::<SellPPattern, T>(pattern),
        }
    }

    /// Name and bytes of each format, in the order CSR, COO, ELL, DIA, HYB, SELL-P.
    pub fn by_name(self) -> [(&'static str, Option<usize>); 6] {
        [
            ("csr", self.csr),
            ("coo", self.coo),
            ("ell", self.ell),
            ("dia", self.dia),
            ("hyb", self.hyb),
            ("sellp", self.sellp),
        ]
    }
}

/// How many rows have each number of entries: `histogram[len]` rows have `len` entries. Its length
/// is that of the longest row plus one; it is empty for a matrix without rows.
pub fn row_length_histogram(pattern: CsrPatternRef<'_>) -> Vec<usize> {
    let Some(longest) = row_lengths(pattern).max() else {
        return Vec::new();
    };
    let mut histogram = vec![0; longest + 1];
    for len in row_lengths(pattern) {
        histogram[len] += 1;
    }
    histogram
}

fn row_lengths(pattern: CsrPatternRef<'_>) -> impl Iterator<Item = usize> {
    (0..pattern.nrows()).map(move |row| pattern.row(row).len())
}

/// Where the entries lie relative to the diagonal.
#[derive(Default)]
struct Places {
    lower_bandwidth: usize,
    upper_bandwidth: usize,
    nonzero_diagonal: usize,
}

impl Places {
    fn new<T: Scalar>(matrix: View<'_, CsrPattern, T>) -> Self {
        let (pattern, values) = (matrix.pattern(), matrix.values());
        let mut places = Self::default();
        for row in 0..pattern.nrows() {
            let range = pattern.row(row);
            // Columns ascend: the first and the last entry reach farthest.
            if let [first, ..] = pattern.col_idx()[range.clone()] {
                let last = pattern.col_idx()[range.end - 1] as usize;
                let lower = row.saturating_sub(first as usize);
                places.lower_bandwidth = places.lower_bandwidth.max(lower);
                places.upper_bandwidth = places.upper_bandwidth.max(last.saturating_sub(row));
            }
            let diagonal = pattern.position(row, row);
            places.nonzero_diagonal += diagonal.is_some_and(|k| values[k] != T::ZERO) as usize;
        }
        places
    }
}

struct Symmetry {
    structural: f64,
    numerical: bool,
}

impl Symmetry {
    /// Looks up the mirror image of each entry. Rows come in ascending order, so the position of
    /// (column, row) in row `column` only moves forward: O(nnz) in total.
    fn new<T: Scalar>(matrix: View<'_, CsrPattern, T>) -> Self {
        let (pattern, values) = (matrix.pattern(), matrix.values());
        if pattern.nrows() != pattern.ncols() {
            return Self { structural: 0.0, numerical: false };
        }
        let mut next: Vec<i32> = pattern.row_ptr()[..pattern.nrows()].to_vec();
        let (mut off_diagonal, mut mirrored, mut numerical) = (0usize, 0usize, true);
        for row in 0..pattern.nrows() {
            for k in pattern.row(row) {
                let col = pattern.col_idx()[k] as usize;
                if col == row {
                    continue;
                }
                off_diagonal += 1;
                let end = pattern.row(col).end;
                let mut mirror = next[col] as usize;
                while mirror < end && (pattern.col_idx()[mirror] as usize) < row {
                    mirror += 1;
                }
                next[col] = mirror as i32;
                if mirror < end && pattern.col_idx()[mirror] as usize == row {
                    mirrored += 1;
                    numerical &= values[k] == values[mirror];
                } else {
                    numerical &= values[k] == T::ZERO;
                }
            }
        }
        Self {
            structural: if off_diagonal == 0 { 1.0 } else { mirrored as f64 / off_diagonal as f64 },
            numerical,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Csr;

    #[test]
    fn figures_of_a_small_matrix() {
        // [1 2 0 0; 2 0 5 0; 0 0 0 0; 7 . 0 4], the dot an explicit zero
        let a = Csr::try_new(
            4,
            4,
            vec![0, 2, 4, 4, 7],
            vec![0, 1, 0, 2, 0, 1, 3],
            vec![1.0, 2.0, 2.0, 5.0, 7.0, 0.0, 4.0],
        )
        .unwrap();

        let stats = MatrixStats::new(a.view());

        assert_eq!((stats.nrows, stats.ncols, stats.nnz), (4, 4, 7));
        assert_eq!((stats.row_length.min, stats.row_length.max), (0, 3));
        assert_eq!(stats.row_length.mean, 1.75);
        assert_eq!(stats.row_length.deviation, (4.75f64 / 4.0).sqrt());
        assert_eq!(stats.empty_rows, 1);
        assert_eq!((stats.lower_bandwidth, stats.upper_bandwidth), (3, 1));
        assert_eq!(stats.ndiags, 5);
        assert_eq!(stats.nonzero_diagonal, 2);
        assert_eq!(stats.explicit_zeros, 1);
        assert_eq!(stats.non_finite, 0);
        // (0,1) and (1,0) mirror each other; (1,2), (3,0), (3,1) have no mirror.
        assert_eq!(stats.structural_symmetry, 0.4);
        assert!(!stats.is_symmetric);
        assert_eq!(stats.bytes.csr, Some(5 * 4 + 7 * 12));
        assert_eq!(stats.bytes.coo, Some(7 * 16));
        assert_eq!(stats.bytes.ell, Some(12 * 12));
        // Four of the five diagonals have holes, so each keeps one mask word.
        assert_eq!(stats.bytes.dia, Some(5 * 4 + 4 * 8 + 20 * 8));
        // Two of four rows are needed to fill a slot column, three have 2 entries: width 2.
        assert_eq!(stats.bytes.hyb, Some(8 * 12 + 16));
        assert_eq!(stats.bytes.sellp, Some(4 * (2 + 4) + 64 * 12));
        assert_eq!(row_length_histogram(a.view().pattern()), [1, 0, 2, 1]);
    }

    #[test]
    fn a_missing_mirror_of_an_explicit_zero_keeps_the_symmetry() {
        let a = Csr::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 1], vec![1.0, 0.0, 1.0]).unwrap();

        let stats = MatrixStats::new(a.view());

        assert!(stats.is_symmetric);
        assert_eq!(stats.structural_symmetry, 0.0);
    }

    #[test]
    fn nan_off_the_diagonal_is_not_symmetric() {
        let nan = f64::NAN;
        let full = |values| Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], values).unwrap();

        let off = MatrixStats::new(full(vec![1.0, nan, nan, 1.0]).view());
        let on = MatrixStats::new(full(vec![nan, 2.0, 2.0, 1.0]).view());

        assert!(!off.is_symmetric && off.non_finite == 2);
        assert!(on.is_symmetric && on.non_finite == 1);
        assert_eq!(off.structural_symmetry, 1.0);
    }

    #[test]
    fn formats_that_would_blow_up_have_no_size() {
        // 200,000 rows, one of them full: 4 * 10^10 slots of ELL.
        let size = 200_000;
        let mut row_ptr = vec![size; size as usize + 1];
        row_ptr[0] = 0;
        let columns = (0..size).collect();
        let a = Csr::try_new(200_000, 200_000, row_ptr, columns, vec![1.0f32; 200_000]).unwrap();

        let bytes = MatrixStats::new(a.view()).bytes;

        assert_eq!((bytes.ell, bytes.dia), (None, None));
        assert_eq!(bytes.csr, Some(200_001 * 4 + 200_000 * 8));
        assert_eq!(bytes.hyb, Some(200_000 * 12));
    }

    #[test]
    fn matrices_without_rows_or_square_shape_have_figures() {
        let empty = MatrixStats::new(Csr::<f64>::zeros(0, 0).unwrap().view());
        let wide = MatrixStats::new(Csr::<f64>::zeros(0, 3).unwrap().view());

        assert_eq!(empty.row_length, RowLengths::default());
        assert!(empty.is_symmetric && !wide.is_symmetric);
        assert_eq!((empty.structural_symmetry, wide.structural_symmetry), (1.0, 0.0));
    }
}
