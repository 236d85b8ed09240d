//! Values by diagonals, as the kernel `dia` reads them: empty slots hold `DIA_FILL`, which kernels
//! can tell from every entry.

use rayon::prelude::*;
use sparsebatch_cuda::Value;
use sparsebatch_formats::convert::SlotMap;
use sparsebatch_formats::{CsrPattern, DiaPattern, Pattern, View};

/// Rows that a thread brings to their slots at a time.
const ROWS: usize = 1 << 14;

/// The entries of some rows: their rows, their slots, and for each diagonal where they go.
struct Part<'a, T> {
    rows: std::ops::Range<usize>,
    slots: &'a mut [u32],
    diagonals: Vec<&'a mut [T]>,
}

/// The slot of each entry of a matrix, and its values in the slots of `dia`, its pattern by
/// diagonals. All threads take part: a large matrix is bound by the first touch of the memory.
pub(super) fn by_diagonals<T: Value>(
    dia: &DiaPattern,
    matrix: View<'_, CsrPattern, T>,
) -> (SlotMap, Vec<T>) {
    let (pattern, nrows) = (matrix.pattern(), dia.nrows());
    let offsets = dia.diag_offsets();
    let mut map = vec![0u32; pattern.nnz()];
    let mut values = filled(dia.stored_len());
    let mut diagonals: Vec<_> =
        values.chunks_mut(nrows.max(1)).map(|d| d.chunks_mut(ROWS)).collect();
    let (mut parts, mut rest) = (Vec::with_capacity(nrows.div_ceil(ROWS)), &mut map[..]);
    for first in (0..nrows).step_by(ROWS) {
        let rows = first..(first + ROWS).min(nrows);
        let slots;
        (slots, rest) = rest.split_at_mut(pattern.row(rows.end - 1).end - pattern.row(first).start);
        let diagonals = diagonals.iter_mut().filter_map(Iterator::next).collect();
        parts.push(Part { rows, slots, diagonals });
    }
    parts.into_par_iter().for_each(|Part { rows, slots, mut diagonals }| {
        let (first, mut slots) = (rows.start, slots.iter_mut());
        for row in rows {
            let entries = pattern.row(row);
            let mut d = 0;
            for (&col, value) in
                pattern.col_idx()[entries.clone()].iter().zip(&matrix.values()[entries])
            {
                // Columns ascend as the offsets do, and each has its diagonal.
                while offsets[d] != col - row as i32 {
                    d += 1;
                }
                diagonals[d][row - first] = value.dia_entry();
                if let Some(slot) = slots.next() {
                    *slot = (d * nrows + row) as u32;
                }
            }
        }
    });
    (SlotMap::Slots(map), values)
}

/// Other values of the same matrix in their slots.
pub(super) fn in_diagonals<T: Value>(map: &SlotMap, stored_len: usize, values: &[T]) -> Vec<T> {
    let mut slots = filled(stored_len);
    for (entry, value) in values.iter().enumerate() {
        slots[map.slot(entry)] = value.dia_entry();
    }
    slots
}

fn filled<T: Value>(len: usize) -> Vec<T> {
    (0..len).into_par_iter().with_min_len(ROWS).map(|_| T::DIA_FILL).collect()
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::convert::{DiaOptions, FromCsr};
    use sparsebatch_formats::generate::{Stencil, laplace};
    use sparsebatch_formats::{Csr, DiaPattern};

    use super::*;

    /// More rows than a thread takes at a time.
    #[test]
    fn slots_are_those_of_the_conversion_and_the_rest_is_fill() {
        let a: Csr<f64> = laplace(Stencil::Point5, &[190, 190]).unwrap();
        let (dia, expected) =
            DiaPattern::from_csr(a.view().pattern(), &DiaOptions::default()).unwrap();

        let (map, values) = by_diagonals(&dia, a.view());

        assert!(a.nrows() > 2 * ROWS);
        assert_eq!(map, expected);
        let same = in_diagonals(&map, dia.stored_len(), a.values());
        assert!(values.iter().zip(&same).all(|(a, b)| a.to_bits() == b.to_bits()));
        let fill = values.iter().filter(|value| value.to_bits() == f64::DIA_FILL.to_bits());
        assert_eq!(fill.count(), dia.stored_len() - a.nnz());
    }

    #[test]
    fn a_matrix_without_rows_has_no_slots() {
        let a = Csr::<f64>::zeros(0, 3).unwrap();
        let dia = DiaPattern::try_new(0, 3, Vec::new()).unwrap();

        assert_eq!(by_diagonals(&dia, a.view()), (SlotMap::Slots(Vec::new()), Vec::new()));
    }
}
