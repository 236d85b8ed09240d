//! Patterns of bands.

use sparsebatch_formats::CsrPattern;

/// A square pattern of `n` rows that is a band with `half` diagonals on each side when row and
/// column `i` take place `i * step % n`. `step` and `n` have no common divisor. `has(row, col)`
/// tells, for places in the band, which entries beside the diagonal there are; those of the diagonal
/// all are.
///
/// # Panics
/// If `step` and `n` have a common divisor.
pub fn band_pattern(
    n: usize,
    half: usize,
    step: usize,
    has: impl Fn(usize, usize) -> bool,
) -> CsrPattern {
    let place = |row: usize| row * step % n;
    let mut row_at = vec![0; n];
    (0..n).for_each(|row| row_at[place(row)] = row as i32);
    let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
    for at in (0..n).map(place) {
        let near = at.saturating_sub(half)..(at + half + 1).min(n);
        let there = near.filter(|&col| col == at || has(at, col));
        let mut cols: Vec<i32> = there.map(|col| row_at[col]).collect();
        cols.sort_unstable();
        col_idx.append(&mut cols);
        row_ptr.push(col_idx.len() as i32);
    }
    CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap()
}
