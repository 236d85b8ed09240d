//! The fused and the composed engine. Where order and rounding of all sums are equal they agree bit
//! for bit; else in statuses, and nearly in iterations, on listed problems.
//!
//! Composed products use fused multiply-add where the machine has it; the baseline lanes never do.
//! If all entries of a matrix are powers of two its products are exact, so both round alike; dot
//! products and vector updates use no fused multiply-add in either.

use proptest::prelude::*;
use sparsebatch_cpu_ref::Isa;
use sparsebatch_cpu_ref::lanes::{LaneOptions, LanePlan};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, Csr, Pattern};
use sparsebatch_solve_core::{FormatChoice, KernelChoice};
use sparsebatch_solvers::{
    Engine, Method, Order, Preconditioner, SolveOptions, SolveScalar, SpmvOptions, Status, solve,
};
use sparsebatch_testing::random_vector;

use crate::solves::support::{Bits, iterative, options, pattern, ragged};

/// Powers of two: 16 on the diagonal, +-1, 1/2, 1/4 or 1/8 off it.
fn exact<T: SolveScalar>(nrows: usize, seed: u64, symmetric: bool) -> Csr<T> {
    let pattern = pattern(nrows, seed);
    let draws = random_vector::<f64>(nrows * nrows, seed ^ 9);
    let mut values = Vec::new();
    for row in 0..nrows {
        for k in pattern.view().row(row) {
            let col = pattern.col_idx()[k] as usize;
            let (i, j) = if symmetric { (row.min(col), row.max(col)) } else { (row, col) };
            let draw = draws[i * nrows + j];
            let size = [1.0, 0.5, 0.25, 0.125][(draw.abs() * 4.0) as usize % 4];
            let value = if row == col { 16.0 } else { size * draw.signum() };
            values.push(T::from_f64(value));
        }
    }
    let (row_ptr, col_idx) = pattern.into_parts();
    Csr::try_new(nrows, nrows, row_ptr, col_idx, values).unwrap()
}

fn check_bits<T: SolveScalar>(matrices: &[Csr<T>], mut options: SolveOptions) {
    options.history = true;
    let batch = ragged(matrices);
    let rows: Vec<usize> =
        matrices.iter().flat_map(|a| std::iter::repeat_n(a.nrows(), options.nrhs)).collect();
    let total = rows.iter().sum();
    let b: Vec<T> = random_vector(total, 77);
    let x0: Vec<T> = random_vector(total, 78);
    let criteria = options.criteria::<T>(rows.len()).unwrap();
    let baseline = LaneOptions { isa: Some(Isa::Baseline), lanes: Some(4) };
    let plan = LanePlan::new(&batch, options.scheme::<T>(), baseline, None).unwrap();
    let mut x = x0.clone();
    let outcomes = plan.solve(&batch, options.nrhs, &b, &mut x, &criteria, None).unwrap();
    let mut start = 0;
    let fused: Vec<Bits> = outcomes
        .iter()
        .zip(&rows)
        .map(|(outcome, &rows)| {
            start += rows;
            Bits::new(outcome, &x[start - rows..start])
        })
        .collect();

    options.engine = Engine::Composed(
        SpmvOptions::default().format(FormatChoice::Csr).kernel(KernelChoice::Rows),
    );
    let composed = Bits::all(&solve(&batch, &b, Some(&x0), &options).unwrap(), &rows);

    let what = format!("{} {} {}", T::NAME, options.method, options.preconditioner);
    assert_eq!(composed, fused, "{what}");
}

fn check_exact<T: SolveScalar>(nrows: usize, seed: u64) {
    for (method, preconditioner) in iterative() {
        let symmetric = method == Method::Cg || preconditioner == Preconditioner::IC0;
        let matrices: Vec<Csr<T>> = (0..6)
            .map(|i| exact(nrows.saturating_sub(i % 3).max(1), seed + i as u64, symmetric))
            .collect();
        for (nrhs, order) in [(1, Order::Natural), (2, Order::MinDegree)] {
            let mut options = options(method, preconditioner);
            options = options.nrhs(nrhs).order(order);
            // Restarts and iteration limits must agree, too.
            options.rel_tol = Some(([1e-10, 1e-17][seed as usize % 2]).into());
            options.max_iters = [1000, 4][seed as usize / 2 % 2].into();
            check_bits(&matrices, options);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Rows of ten entries and more are summed in four parts by products, not by whole solves.
    #[test]
    fn engines_agree_bit_for_bit_where_products_are_exact(
        nrows in 1usize..10,
        seed in 0u64..1 << 40,
    ) {
        check_exact::<f64>(nrows, seed);
        check_exact::<f32>(nrows, seed);
    }
}

#[test]
fn engines_agree_bit_for_bit_on_a_laplacian() {
    let m = 9;
    let mut rows = vec![vec![0.0; m * m]; m * m];
    for (row, entries) in rows.iter_mut().enumerate() {
        entries[row] = 4.0;
        let neighbours = [
            (row % m > 0).then(|| row - 1),
            (row % m < m - 1).then(|| row + 1),
            row.checked_sub(m),
            (row + m < m * m).then_some(row + m),
        ];
        for col in neighbours.into_iter().flatten() {
            entries[col] = -1.0;
        }
    }
    let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
    let a = crate::solves::support::dense::<f64>(&rows);
    for (method, preconditioner) in iterative() {
        check_bits(&[a.clone(), a.clone()], options(method, preconditioner));
    }
}

/// The composed engine with every format, and with every kernel that has another order of sums.
fn products() -> Vec<SpmvOptions> {
    use FormatChoice::{Coo, Csr, Dia, Ell, Hyb, SellP};
    let mut products: Vec<SpmvOptions> =
        [Csr, Coo, Ell, Dia, Hyb, SellP].map(|format| SpmvOptions::default().format(format)).into();
    products.push(SpmvOptions::default().kernel(KernelChoice::CsrI).parts(Some(7)));
    products
}

/// The engines on one batch: statuses equal, mean iterations within 10 %, true residuals passed.
fn check_close(name: &str, batch: &Batch<f64>, b: &[f64], options: &SolveOptions) {
    let fused = solve(batch, b, None, options).unwrap().report;
    assert!(fused.all_converged(), "{name}: {:?}", fused.status_counts());
    for spmv in products() {
        let what = format!("{name} {} {:?} {:?}", options.method, spmv.format, spmv.kernel);
        let composed = options.clone().engine(Engine::Composed(spmv.clone()));
        let composed = match solve(batch, b, None, &composed) {
            Ok(solution) => solution.report,
            // Scattered matrices cannot be stored as DIA.
            Err(error) if spmv.format == FormatChoice::Dia => {
                assert!(error.to_string().contains("DIA"), "{error}");
                continue;
            }
            Err(error) => panic!("{what}: {error}"),
        };

        let statuses = |report: &sparsebatch_solvers::BatchReport| -> Vec<Status> {
            report.systems.iter().map(|s| s.outcome.status).collect()
        };
        assert_eq!(statuses(&composed), statuses(&fused), "{what}");
        let (ours, theirs) = (composed.iterations().1, fused.iterations().1);
        assert!((ours - theirs).abs() <= 0.1 * theirs, "{what}: {ours} against {theirs}");
        assert!(composed.max_relative_residual().unwrap() <= 1e-10, "{what}");
        let cost = composed.product_cost.unwrap();
        let per_iteration = if options.method == Method::Cg { 1 } else { 2 };
        let most = u64::from(composed.systems.iter().map(|s| s.outcome.iterations).max().unwrap());
        assert_eq!(cost.products, per_iteration * most, "{what}");
    }
}

#[test]
fn engines_agree_on_the_benchmark_families() {
    let families = [
        (Family::Tri, 32, Method::Cg),
        (Family::Tri, 128, Method::Cg),
        (Family::Lap2d, 256, Method::Cg),
        (Family::Tri, 32, Method::BiCgStab),
        (Family::Rand9, 54, Method::BiCgStab),
        (Family::Rand9, 144, Method::BiCgStab),
    ];
    for (family, nrows, method) in families {
        let generated = Problem::new(family, nrows).unwrap().batch(100).unwrap();
        for preconditioner in [Preconditioner::None, Preconditioner::Jacobi] {
            let name = format!("{} {nrows} {preconditioner}", family.name());
            let options = options(method, preconditioner);
            check_close(&name, &generated.batch, &generated.rhs, &options);
        }
    }
}

#[test]
fn engines_agree_on_chemistry() {
    for name in ["matrices/batch/gri30.batch", "astro/batch_alpha13.bin"] {
        let Some((batch, rhs)) = crate::solves::real_data::read(name) else {
            return;
        };
        let options = options(Method::BiCgStab, Preconditioner::Jacobi);
        check_close(name, &batch, &rhs, &options);
    }
}
