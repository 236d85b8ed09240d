//! What a matrix looks like: the figures by which formats and kernels are chosen.

use crate::CsrPatternRef;

/// How many rows have each number of entries: `histogram[len]` rows have `len` entries. As long as
/// the longest row, plus one; empty without rows.
pub fn row_length_histogram(pattern: CsrPatternRef<'_>) -> Vec<usize> {
    let lengths = || {
        pattern
            .row_ptr()
            .windows(2)
            .map(|row| (row[1] - row[0]) as usize)
    };
    let Some(longest) = lengths().max() else {
        return Vec::new();
    };
    let mut histogram = vec![0; longest + 1];
    for len in lengths() {
        histogram[len] += 1;
    }
    histogram
}
