//! What `auto` stands for on a GPU: [`choose_method`].

mod trial;

use rayon::prelude::*;
use sparsebatch_cpu_ref::symbolic::{FactorPattern, min_degree};
use sparsebatch_formats::{Batch, CsrPatternRef, Scalar};
use sparsebatch_spmv_gpu::DeviceInfo;

use super::lu::values_beside_factors;
use crate::options::{Method, Preconditioner, Rhs, SolveOptions};
use trial::trial;

/// A method for a batch on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuChoice {
    /// CG, BiCGStab or the sparse LU.
    pub method: Method,
    /// Of CG and BiCGStab: what the options ask for, or none where [`Preconditioner::Auto`] needs no
    /// fewer iterations.
    pub preconditioner: Preconditioner,
    /// Why, with the estimates.
    pub reason: String,
}

/// Nanoseconds of a system in a batch of 10,000 on an NVIDIA H200, per unit of work. Fitted to measured
/// rows (`benches/results/gpu-solvers.jsonl`, `gpu-solver-sets.jsonl`) to within a factor of 2.5; only
/// their ratios matter.
mod nanoseconds {
    /// A product and its subtraction in a factorisation.
    pub(super) const LU_PAIR: f64 = 0.0006;
    /// An entry of the factors.
    pub(super) const LU_ENTRY: f64 = 0.026;
    /// To begin and to end a solve by either: by itself, entries.
    pub(super) const START: [f64; 2] = [3.5, 0.0028];
    /// An iteration of CG: by itself, entries, rows.
    pub(super) const CG: [f64; 3] = [0.1, 0.00025, 0.002];
    /// An iteration of BiCGStab: by itself, entries, rows.
    pub(super) const BICGSTAB: [f64; 3] = [0.15, 0.0018, 0.0003];
}

/// Patterns that are looked at; in ragged batches of more the first ones.
const MAX_PATTERNS: usize = 64;

/// Shared memory that factors cannot have.
const RESERVED_BYTES: u64 = 2048;

/// Values that the kernels of the LU can number.
const MAX_VALUES: u64 = 65_534;

/// What is known of the values of a batch, without those that are not finite.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Values {
    /// Whether every matrix is symmetric, value by value, with a positive diagonal.
    symmetric: bool,
    /// The largest of all matrices' least of the greatest ratios, of rows or of columns, between what is
    /// beside the diagonal and what is on it: a bound of the spectral radius of Jacobi's iteration.
    radius: f64,
}

/// Decides what [`Method::Auto`] stands for on a GPU; other methods stand for themselves.
///
/// The rule estimates how long each method takes, and takes the quickest. LU: by the operations of the
/// factorisation in minimum-degree order, where factors fit in the shared memory of a block (LU in device
/// memory is not chosen by itself) and no diagonal entry is missing. CG for symmetric matrices of positive diagonal, BiCGStab for others: by
/// the number of iterations with Jacobi, `k = 1/2 sqrt((1 + r) / (1 - r)) ln(2 / rel_tol)` for CG, half as
/// many for BiCGStab, which has two products in each; r bounds the spectral radius of Jacobi's iteration
/// (of all matrices, by their rows or columns). For symmetric matrices k is at most the number of rows n
/// and 4 n over the bandwidth, as many as a wave takes to cross the grid four times. For others some
/// systems of the batch are solved by BiCGStab on the CPU, with the right-hand sides and guesses of `rhs`
/// or, where these are not known, with right-hand sides of x = 1: if all converge in few iterations, these
/// are counted. If they do not and r is 1 or more, LU is taken wherever it can be.
///
/// `rhs` has as many rows as the batch, `options.nrhs` times, or is left out.
///
/// # Source
/// The bound of CG: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed. 2003, section 6.11.3, with
/// the condition number bounded by Gershgorin's circles.
pub fn choose_method<T: Scalar>(
    batch: &Batch<T>,
    rhs: Option<Rhs<'_, T>>,
    options: &SolveOptions,
    info: &DeviceInfo,
) -> GpuChoice {
    let mut preconditioner = options.preconditioner;
    if options.method != Method::Auto {
        let reason = "asked for".to_owned();
        return GpuChoice { method: options.method, preconditioner, reason };
    }
    let values = values(batch);
    let rel_tol = options.rel_tol.unwrap_or_else(SolveOptions::default_rel_tol::<T>);
    let (krylov, costs, products) = match values.symmetric {
        true => (Method::Cg, nanoseconds::CG, 1.0),
        false => (Method::BiCgStab, nanoseconds::BICGSTAB, 2.0),
    };
    let mut bound = iterations(values.radius, rel_tol) / products;
    let mut tried = "a bound";
    if !values.symmetric
        && let Some(found) = trial(batch, rhs, options, rel_tol)
        && found.iterations < bound
    {
        (bound, preconditioner) = (found.iterations, found.preconditioner);
        tried = if rhs.is_some() { "by trial" } else { "by trial for x = 1" };
    }
    let patterns = match batch {
        Batch::Uniform(_) => batch.nitems().min(1),
        Batch::Ragged(_) => batch.nitems().min(MAX_PATTERNS),
    };
    let each = (0..patterns).into_par_iter().map(|item| {
        let pattern = batch.pattern(item);
        let (nrows, nnz) = (pattern.nrows() as f64, pattern.nnz() as f64);
        let most =
            if values.symmetric { nrows.min(4.0 * nrows / wide(pattern)) } else { f64::INFINITY };
        let iterations = bound.min(most);
        let lu = lu_time(pattern, size_of::<T>(), info).unwrap_or(f64::INFINITY);
        let each = costs[0] + costs[1] * nnz + costs[2] * nrows;
        let [start, load] = if nrows > 0.0 { nanoseconds::START } else { [0.0; 2] };
        [start + load * nnz + iterations * each, lu, iterations]
    });
    let add = |a: [f64; 3], b: [f64; 3]| [a[0] + b[0], a[1] + b[1], a[2].max(b[2])];
    let [iterative, lu, iterations] = each.collect::<Vec<_>>().into_iter().fold([0.0; 3], add);
    let kind = match values.symmetric {
        true => "symmetric with a positive diagonal",
        false => "not all symmetric",
    };
    let name = krylov.name();
    if lu.is_infinite() {
        let reason = format!(
            "{kind}; lu has no diagonal entry somewhere, or its factors do not fit on chip"
        );
        return GpuChoice { method: krylov, preconditioner, reason };
    }
    let each = |time: f64| time / patterns.max(1) as f64;
    let (method, reason) = match lu < iterative {
        true if iterative.is_infinite() => (
            Method::Lu,
            format!("{kind}, nothing bounds the iterations of {name}, and the factors fit"),
        ),
        lu_is_quicker => (
            if lu_is_quicker { Method::Lu } else { krylov },
            format!(
                "{kind}: about {:.3} ns a system by lu, {:.3} by {name} in {:.1} iterations ({tried})",
                each(lu),
                each(iterative),
                iterations
            ),
        ),
    };
    GpuChoice { method, preconditioner, reason }
}

/// Iterations of CG for a spectral radius of Jacobi's; infinite where that says nothing.
fn iterations(radius: f64, rel_tol: f64) -> f64 {
    if radius >= 1.0 || rel_tol <= 0.0 {
        return f64::INFINITY;
    }
    let condition = (1.0 + radius) / (1.0 - radius);
    (0.5 * condition.sqrt() * (2.0 / rel_tol).ln()).max(1.0)
}

/// The bandwidth of a pattern, at least 1.
fn wide(pattern: CsrPatternRef<'_>) -> f64 {
    let of_row = |row: usize| {
        let columns = &pattern.col_idx()[pattern.row(row)];
        let distance = |col: &i32| row.abs_diff(*col as usize);
        columns.first().map_or(0, distance).max(columns.last().map_or(0, distance))
    };
    (0..pattern.nrows()).map(of_row).max().unwrap_or(0).max(1) as f64
}

/// Nanoseconds of the sparse LU; `None` where it cannot be.
fn lu_time(pattern: CsrPatternRef<'_>, value_bytes: usize, info: &DeviceInfo) -> Option<f64> {
    let nrows = pattern.nrows();
    let bytes = u64::from(info.shared_bytes_per_block).saturating_sub(RESERVED_BYTES);
    let most = (bytes / value_bytes as u64).min(MAX_VALUES) as usize;
    let most = most.checked_sub(values_beside_factors(pattern))?;
    if pattern.nnz() > most || (0..nrows).any(|row| pattern.position(row, row).is_none()) {
        return None;
    }
    let order = min_degree(pattern).ok()?;
    let factors = FactorPattern::lu(pattern, Some(&order), most).ok()?;
    Some(
        nanoseconds::LU_PAIR * factors.flops() as f64
            + nanoseconds::LU_ENTRY * factors.nnz() as f64,
    )
}

/// Looks at all values; at none twice.
fn values<T: Scalar>(batch: &Batch<T>) -> Values {
    let none = Values { symmetric: true, radius: 0.0 };
    let add = |a: Values, b: Values| Values {
        symmetric: a.symmetric && b.symmetric,
        radius: a.radius.max(b.radius),
    };
    (0..batch.nitems())
        .into_par_iter()
        .map_init(<(Vec<T>, Vec<f64>, Vec<usize>)>::default, |(copy, columns, next), item| {
            values_of(batch.pattern(item), batch.values_in(item, copy), columns, next)
        })
        .reduce(|| none, add)
}

/// What is known of one matrix; `columns` and `next` are for numbers of its columns.
fn values_of<T: Scalar>(
    pattern: CsrPatternRef<'_>,
    values: &[T],
    columns: &mut Vec<f64>,
    next: &mut Vec<usize>,
) -> Values {
    // Ends NonFinite by any method.
    if values.iter().any(|value| !value.to_f64().is_finite()) {
        return Values { symmetric: true, radius: 0.0 };
    }
    let nrows = pattern.nrows();
    columns.clear();
    columns.resize(2 * nrows, 0.0);
    let (beside, diagonal) = columns.split_at_mut(nrows);
    // The next entry of each row that a mirrored one has not been matched with: rows in order meet the
    // columns of each row in order.
    next.clear();
    next.extend(pattern.row_ptr()[..nrows].iter().map(|&first| first as usize));
    let (mut symmetric, mut by_rows) = (true, 0.0f64);
    for (row, own) in diagonal.iter_mut().enumerate() {
        let mut sum = 0.0;
        for k in pattern.row(row) {
            let (col, value) = (pattern.col_idx()[k] as usize, values[k].to_f64());
            let mirror = next[col];
            symmetric &= mirror < pattern.row_ptr()[col + 1] as usize
                && pattern.col_idx()[mirror] as usize == row
                && values[mirror] == values[k];
            next[col] += 1;
            if col == row {
                *own = value;
            } else {
                sum += value.abs();
                beside[col] += value.abs();
            }
        }
        symmetric &= *own > 0.0;
        by_rows = by_rows.max(ratio(sum, *own));
    }
    let columns = beside.iter().zip(&*diagonal).map(|(&sum, &diagonal)| ratio(sum, diagonal));
    Values { symmetric, radius: by_rows.min(columns.fold(0.0, f64::max)) }
}

fn ratio(sum: f64, diagonal: f64) -> f64 {
    if diagonal == 0.0 { f64::INFINITY } else { sum / diagonal.abs() }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::generate::{Family, Problem};
    use sparsebatch_formats::{BatchValues, Csr, UniformBatch};

    use super::*;

    /// As much shared memory as an H200 has.
    fn info() -> DeviceInfo {
        DeviceInfo { shared_bytes_per_block: 232_448, ..DeviceInfo::default() }
    }

    fn chosen<T: Scalar>(batch: &Batch<T>) -> GpuChoice {
        choose_method(batch, None, &SolveOptions::default(), &info())
    }

    fn dense(n: usize, value: impl Fn(usize, usize) -> f64) -> Csr<f64> {
        let row_ptr = (0..=n).map(|r| (r * n) as i32).collect();
        let col_idx = (0..n * n).map(|k| (k % n) as i32).collect();
        let values = (0..n * n).map(|k| value(k / n, k % n)).collect();
        Csr::try_new(n, n, row_ptr, col_idx, values).unwrap()
    }

    /// Chosen as measured, or within 30 % of it.
    #[test]
    fn families_have_the_method_that_is_quickest() {
        for (family, n, method) in [
            (Family::Tri, 128, Method::Lu),
            (Family::Tri, 1024, Method::Lu),
            (Family::Lap2d, 256, Method::Cg),
            (Family::Lap2d, 900, Method::Cg),
            (Family::Rand9, 54, Method::BiCgStab),
            (Family::Rand9, 512, Method::BiCgStab),
        ] {
            let batch = Problem::new(family, n).unwrap().batch(200).unwrap().batch;

            let choice = chosen(&batch);

            assert_eq!(choice.method, method, "{} {n}: {}", family.name(), choice.reason);
            assert_eq!(chosen(&batch.cast::<f32>()).method, method, "{} {n}", family.name());
        }
    }

    #[test]
    fn lu_is_for_matrices_that_nothing_is_known_of() {
        // Small on the diagonal, as in chemistry.
        let stiff = dense(20, |row, col| if row == col { 1.0 } else { (col + 1) as f64 });
        let choice = chosen(&Batch::from(stiff.clone()));
        assert_eq!(choice.method, Method::Lu);
        assert!(choice.reason.contains("nothing bounds the iterations"), "{}", choice.reason);
        // Unless its factors do not fit.
        let small = DeviceInfo { shared_bytes_per_block: 4096, ..info() };
        let choice = choose_method(&Batch::from(stiff), None, &SolveOptions::default(), &small);
        assert_eq!(choice.method, Method::BiCgStab);
        assert!(choice.reason.contains("do not fit"), "{}", choice.reason);
    }

    #[test]
    fn systems_that_nothing_bounds_are_tried() {
        // Rows do not dominate; all but the identity nearly cancels.
        let near = dense(40, |row, col| {
            let small = 0.06 * ((row * 37 + col * 101) as f64 * 0.618).fract() - 0.03;
            if row == col { 1.0 } else { small + 0.03f64.copysign(small) }
        });
        let choice = chosen(&Batch::from(near));

        assert_eq!(choice.method, Method::BiCgStab, "{}", choice.reason);
        assert!(choice.reason.contains("by trial"), "{}", choice.reason);
    }

    #[test]
    fn systems_that_are_not_finite_have_no_say() {
        let lap2d = Problem::new(Family::Lap2d, 256).unwrap().batch(5).unwrap().batch;
        let Batch::Uniform(batch) = &lap2d else { panic!("of one pattern") };
        let BatchValues::ItemMajor(values) = batch.values() else { panic!("item-major") };
        let mut values = values.clone();
        let nnz = values.len() / 5;
        (values[3], values[nnz + 7]) = (f64::NAN, f64::INFINITY);
        let (pattern, values) = (batch.pattern().clone(), BatchValues::ItemMajor(values));
        let with = UniformBatch::try_new(pattern, 5, values).unwrap();

        assert_eq!(chosen(&Batch::Uniform(with)), chosen(&lap2d));
    }

    #[test]
    fn empty_and_zero_matrices_are_chosen_for() {
        let empty = Csr::<f64>::try_new(0, 0, vec![0], vec![], vec![]).unwrap();
        let no_entries = Csr::<f64>::try_new(2, 2, vec![0, 0, 0], vec![], vec![]).unwrap();
        let zeros = dense(3, |_, _| 0.0);
        for (matrix, method) in
            [(empty, Method::Cg), (no_entries, Method::BiCgStab), (zeros, Method::Lu)]
        {
            assert_eq!(chosen(&Batch::from(matrix)).method, method);
        }
        assert_eq!(chosen::<f64>(&[].into_iter().collect()).method, Method::Cg);
    }

    #[test]
    fn what_is_asked_for_is_taken() {
        let options = SolveOptions { method: Method::BiCgStab, ..SolveOptions::default() };
        let choice = choose_method(&Batch::from(dense(2, |_, _| 1.0)), None, &options, &info());

        assert_eq!((choice.method, &*choice.reason), (Method::BiCgStab, "asked for"));
    }

    #[test]
    fn bounds_follow_rows_or_columns() {
        // Columns dominate by 4, rows do not.
        let a = dense(3, |row, col| match (row, col) {
            (0, 0) => 1.0,
            (row, col) if row == col => 100.0,
            (0, _) => 25.0,
            _ => 0.0,
        });
        let values = values(&Batch::from(a));

        assert_eq!(values, Values { symmetric: false, radius: 0.25 });
        assert!(iterations(0.25, 1e-10) < iterations(0.5, 1e-10));
        assert_eq!(iterations(1.0, 1e-10), f64::INFINITY);
    }
}
