//! A table of invalid matrix arrays: at least one row per invariant and format.

use sparsebatch_formats::{
    BatchValues, Coo, CooPattern, Csr, CsrPattern, Dia, DiaPattern, Ell, EllPattern, FormatError,
    HybPattern, RaggedCsr, SellP, SellPPattern, UniformBatch,
};

/// Arrays that break one invariant, and the error they must give.
#[derive(Debug)]
pub struct InvalidInput {
    /// The format and the invariant.
    pub name: &'static str,
    /// The constructor's error; `Ok` when it accepted the arrays.
    pub result: Result<(), FormatError>,
    /// The expected text of the error.
    pub expected: &'static str,
}

/// Runs the constructors of all rows of the table.
pub fn invalid_inputs() -> Vec<InvalidInput> {
    let mut table = csr_pointers();
    table.extend(csr_columns());
    table.extend(coo());
    table.extend(ell());
    table.extend(dia());
    table.extend(hyb());
    table.extend(sellp());
    table.extend(batches());
    table
}

fn row<V>(
    name: &'static str,
    result: Result<V, FormatError>,
    expected: &'static str,
) -> InvalidInput {
    InvalidInput { name, result: result.map(|_| ()), expected }
}

const HUGE: usize = 1 << 31;

fn new_csr(
    nrows: usize,
    ncols: usize,
    row_ptr: &[i32],
    col_idx: &[i32],
) -> Result<CsrPattern, FormatError> {
    CsrPattern::try_new(nrows, ncols, row_ptr.to_vec(), col_idx.to_vec())
}

/// CSR patterns whose sizes or row pointers are wrong.
fn csr_pointers() -> Vec<InvalidInput> {
    vec![
        row(
            "csr 1: nrows beyond i32",
            new_csr(HUGE, 1, &[0], &[]),
            "nrows is 2147483648, the largest supported is 2147483647",
        ),
        row(
            "csr 1: ncols beyond i32",
            new_csr(0, HUGE, &[0], &[]),
            "ncols is 2147483648, the largest supported is 2147483647",
        ),
        row(
            "csr 2: row_ptr too short",
            new_csr(2, 2, &[0, 1], &[0]),
            "row_ptr has 2 entries, expected 3",
        ),
        row(
            "csr 2: row_ptr starts late",
            new_csr(1, 2, &[1, 1], &[0]),
            "row_ptr[0] is 1, expected 0",
        ),
        row(
            "csr 2: row_ptr decreases",
            new_csr(2, 2, &[0, 2, 1], &[0, 1]),
            "row_ptr[2] is 1, expected a value in 2..=2",
        ),
        row(
            "csr 2: row_ptr is negative",
            new_csr(1, 2, &[0, -1], &[]),
            "row_ptr[1] is -1, expected a value in 0..=0",
        ),
        row(
            "csr 2: row_ptr ends early",
            new_csr(1, 2, &[0, 1], &[0, 1]),
            "row_ptr[1] is 1, expected 2",
        ),
    ]
}

/// CSR patterns whose columns are wrong, and a CSR matrix with too few values.
fn csr_columns() -> Vec<InvalidInput> {
    vec![
        row(
            "csr 3: column too large",
            new_csr(1, 2, &[0, 1], &[2]),
            "col_idx[0] is 2, expected an index in 0..2",
        ),
        row(
            "csr 3: column negative",
            new_csr(1, 2, &[0, 1], &[-1]),
            "col_idx[0] is -1, expected an index in 0..2",
        ),
        row(
            "csr 4: columns unsorted",
            new_csr(1, 3, &[0, 2], &[2, 0]),
            "col_idx[1] is 0 after 2, expected strictly ascending indices",
        ),
        row(
            "csr 4: column twice",
            new_csr(1, 3, &[0, 2], &[1, 1]),
            "col_idx[1] is 1 after 1, expected strictly ascending indices",
        ),
        row(
            "csr: values too short",
            Csr::<f64>::try_new(1, 1, vec![0, 1], vec![0], vec![]),
            "values has 0 entries, expected 1",
        ),
    ]
}

fn coo() -> Vec<InvalidInput> {
    let new = |row_idx: &[i32], col_idx: &[i32]| {
        CooPattern::try_new(2, 3, row_idx.to_vec(), col_idx.to_vec())
    };
    vec![
        row(
            "coo 1: nrows beyond i32",
            CooPattern::try_new(HUGE, 1, vec![], vec![]),
            "nrows is 2147483648, the largest supported is 2147483647",
        ),
        row("coo 2: row_idx too short", new(&[0], &[0, 1]), "row_idx has 1 entries, expected 2"),
        row("coo 2: row too large", new(&[2], &[0]), "row_idx[0] is 2, expected an index in 0..2"),
        row(
            "coo 2: column negative",
            new(&[1], &[-1]),
            "col_idx[0] is -1, expected an index in 0..3",
        ),
        row(
            "coo 3: rows unsorted",
            new(&[1, 0], &[0, 1]),
            "row_idx[1] is 0 after 1, expected strictly ascending indices",
        ),
        row(
            "coo 3: columns unsorted",
            new(&[1, 1], &[1, 0]),
            "col_idx[1] is 0 after 1, expected strictly ascending indices",
        ),
        row(
            "coo 3: entry twice",
            new(&[1, 1], &[1, 1]),
            "col_idx[1] is 1 after 1, expected strictly ascending indices",
        ),
        row(
            "coo: values too long",
            Coo::try_new(1, 1, vec![], vec![], vec![1.0f32]),
            "values has 1 entries, expected 0",
        ),
    ]
}

fn ell() -> Vec<InvalidInput> {
    let new = |width, col_idx: &[i32]| EllPattern::try_new(1, 3, width, col_idx.to_vec());
    vec![
        row(
            "ell 1: slots beyond i32",
            EllPattern::try_new(1 << 20, 3, 1 << 20, vec![]),
            "stored_len is 1099511627776, the largest supported is 2147483647",
        ),
        row("ell 2: col_idx too short", new(2, &[0]), "col_idx has 1 entries, expected 2"),
        row("ell 2: column too large", new(1, &[3]), "col_idx[0] is 3, expected an index in 0..3"),
        row(
            "ell 2: column below the padding",
            new(1, &[-2]),
            "col_idx[0] is -2, expected an index in 0..3",
        ),
        row(
            "ell 3: columns unsorted",
            new(2, &[2, 1]),
            "col_idx[1] is 1 after 2, expected strictly ascending indices",
        ),
        row(
            "ell 3: entry after padding",
            new(2, &[-1, 1]),
            "col_idx[1] is 1 after -1, expected strictly ascending indices",
        ),
        row(
            "ell: values too short",
            Ell::<f64>::try_new(1, 1, 1, vec![0], vec![]),
            "values has 0 entries, expected 1",
        ),
    ]
}

fn dia() -> Vec<InvalidInput> {
    let new = |offsets: &[i32]| DiaPattern::try_new(2, 3, offsets.to_vec());
    vec![
        row(
            "dia 1: slots beyond i32",
            DiaPattern::try_new((1 << 31) - 1, 3, vec![0, 1]),
            "stored_len is 4294967294, the largest supported is 2147483647",
        ),
        row(
            "dia 2: offset above",
            new(&[0, 3]),
            "diag_offsets is 3, expected offsets in -(nrows - 1)..=ncols - 1",
        ),
        row(
            "dia 2: offset below",
            new(&[-2]),
            "diag_offsets is -2, expected offsets in -(nrows - 1)..=ncols - 1",
        ),
        row(
            "dia 2: offsets unsorted",
            new(&[1, 0]),
            "diag_offsets[1] is 0 after 1, expected strictly ascending indices",
        ),
        row(
            "dia 2: offset twice",
            new(&[1, 1]),
            "diag_offsets[1] is 1 after 1, expected strictly ascending indices",
        ),
        row(
            "dia: values too short",
            Dia::try_new(2, 2, vec![0], vec![1.0f64]),
            "values has 1 entries, expected 2",
        ),
    ]
}

fn hyb() -> Vec<InvalidInput> {
    let new = |ell: &[i32], coo_rows: usize, coo_cols: usize, col: i32| {
        let ell = EllPattern::try_new(1, 3, ell.len(), ell.to_vec())?;
        HybPattern::try_new(ell, CooPattern::try_new(coo_rows, coo_cols, vec![0], vec![col])?)
    };
    vec![
        row(
            "hyb 1: rows differ",
            new(&[0], 2, 3, 1),
            "rows of the COO part has 2 entries, expected 1",
        ),
        row(
            "hyb 1: columns differ",
            new(&[0], 1, 4, 1),
            "columns of the COO part has 4 entries, expected 3",
        ),
        row(
            "hyb 2: ELL slot left",
            new(&[0, -1], 1, 3, 1),
            "col_idx of the COO part[0] is 1 after -1, expected strictly ascending indices",
        ),
        row(
            "hyb 2: COO left of ELL",
            new(&[1], 1, 3, 0),
            "col_idx of the COO part[0] is 0 after 1, expected strictly ascending indices",
        ),
    ]
}

fn sellp() -> Vec<InvalidInput> {
    let new = |(b, t), slice_ptr: &[i32], row_perm: &[i32], col_idx: &[i32]| {
        SellPPattern::try_new(2, b, t, slice_ptr.to_vec(), row_perm.to_vec(), col_idx.to_vec())
    };
    vec![
        row(
            "sellp 1: slice_size 0",
            new((0, 1), &[0], &[], &[]),
            "slice_size is 0, expected a positive 32-bit number",
        ),
        row(
            "sellp 1: threads_per_row 0",
            new((1, 0), &[0], &[], &[]),
            "threads_per_row is 0, expected a positive 32-bit number",
        ),
        row(
            "sellp 2: slice_ptr too short",
            new((2, 1), &[0], &[0], &[]),
            "slice_ptr has 1 entries, expected 2",
        ),
        row(
            "sellp 2: slice_ptr ends early",
            new((1, 1), &[0, 1], &[0], &[0, 1]),
            "slice_ptr[1] is 1, expected 2",
        ),
        row(
            "sellp 2: width no multiple",
            new((1, 2), &[0, 1], &[0], &[0]),
            "slice_ptr[1] is 1, expected 0 plus a multiple of slice_size * threads_per_row = 2",
        ),
        row(
            "sellp 3: row too large",
            new((2, 1), &[0, 2], &[0, 2], &[0, 0]),
            "row_perm[1] is 2, expected an index in 0..2",
        ),
        row(
            "sellp 3: row twice",
            new((2, 1), &[0, 2], &[0, 0], &[0, 0]),
            "row_perm is row 0 twice, expected a permutation of the rows",
        ),
        row(
            "sellp 4: column too large",
            new((1, 1), &[0, 1], &[0], &[2]),
            "col_idx[0] is 2, expected an index in 0..2",
        ),
        row(
            "sellp 4: columns unsorted",
            new((1, 1), &[0, 2], &[0], &[1, 0]),
            "col_idx[1] is 0 after 1, expected strictly ascending indices",
        ),
        row(
            "sellp 4: entry in a missing row",
            new((2, 1), &[0, 2], &[0], &[0, 0]),
            "col_idx[1] is 0, expected an index in 0..0",
        ),
        row(
            "sellp: values too short",
            SellP::<f64>::try_new(2, 1, 1, vec![0, 1], vec![0], vec![0], vec![]),
            "values has 0 entries, expected 1",
        ),
    ]
}

fn batches() -> Vec<InvalidInput> {
    let uniform = |nitems, values| {
        let pattern = CsrPattern::try_new(1, 2, vec![0, 2], vec![0, 1])?;
        UniformBatch::try_new(pattern.into(), nitems, values)
    };
    let ragged = |nrows: &[usize], nnz: &[usize], row_ptr: &[i32], col_idx: &[i32]| {
        let ncols = vec![2; nrows.len()];
        let values = vec![1.0; col_idx.len()];
        RaggedCsr::try_new(nrows, &ncols, nnz, row_ptr.to_vec(), col_idx.to_vec(), values)
    };
    vec![
        row(
            "uniform: values too short",
            uniform(2, BatchValues::ItemMajor(vec![1.0; 3])),
            "values has 3 entries, expected 4",
        ),
        row(
            "uniform: shared values too long",
            uniform(2, BatchValues::Shared(vec![1.0; 4])),
            "values has 4 entries, expected 2",
        ),
        row(
            "uniform: values overflow",
            uniform(usize::MAX, BatchValues::ItemMajor(vec![1.0])),
            "values of the batch is 36893488147419103230, the largest supported is 18446744073709551615",
        ),
        row(
            "ragged: sizes of other lengths",
            ragged(&[1], &[], &[0, 0], &[]),
            "nnz has 0 entries, expected 1",
        ),
        row(
            "ragged: row_ptr too short",
            ragged(&[1, 1], &[0, 0], &[0, 0, 0], &[]),
            "row_ptr has 3 entries, expected 4",
        ),
        row(
            "ragged: col_idx too short",
            ragged(&[1], &[2], &[0, 2], &[0]),
            "col_idx has 1 entries, expected 2",
        ),
        row(
            "ragged: rows overflow",
            ragged(&[usize::MAX, 1], &[0, 0], &[], &[]),
            "rows of the batch is 18446744073709551616, the largest supported is 18446744073709551615",
        ),
        row(
            "ragged: broken item",
            ragged(&[1, 1], &[1, 1], &[0, 1, 0, 1], &[0, 2]),
            "col_idx[0] is 2, expected an index in 0..2",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_invalid_input_is_refused_with_its_error() {
        for input in invalid_inputs() {
            let error = input.result.expect_err(input.name);
            assert_eq!(error.to_string(), input.expected, "{}", input.name);
        }
    }

    #[test]
    fn every_variant_of_validation_is_in_the_table() {
        let table = invalid_inputs();
        let has = |accepts: fn(&FormatError) -> bool| {
            table.iter().any(|input| input.result.as_ref().is_err_and(accepts))
        };

        assert!(has(|e| matches!(e, FormatError::Length { .. })));
        assert!(has(|e| matches!(e, FormatError::Pointer { .. })));
        assert!(has(|e| matches!(e, FormatError::IndexOutOfRange { .. })));
        assert!(has(|e| matches!(e, FormatError::NotAscending { .. })));
        assert!(has(|e| matches!(e, FormatError::TooLarge { .. })));
        assert!(has(|e| matches!(e, FormatError::Parameter { .. })));
    }
}
