//! The listed systems: healthy ones, and one for each way to fail. On every backend they end alike,
//! together in every status; healthy ones have the same bits with any neighbours.

use std::collections::BTreeSet;

use sparsebatch_cuda::Executor;
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solvers::{
    Backend, InnerPrecision, Method, Preconditioner, Rung, Solution, SolveOptions, Status, solve,
    solve_on_executor,
};
use sparsebatch_testing::random_vector;

/// Rows of the tridiagonal systems.
const N: usize = 24;

struct Listed {
    name: &'static str,
    a: Csr<f64>,
    b: Vec<f64>,
}

/// The matrix of the entries `(row, column)` for which `entry` returns a value.
fn matrix(n: usize, entry: impl Fn(usize, usize) -> Option<f64>) -> Csr<f64> {
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..n {
        for (col, value) in (0..n).filter_map(|col| Some((col, entry(row, col)?))) {
            col_idx.push(col as i32);
            values.push(value);
        }
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(n, n, row_ptr, col_idx, values).unwrap()
}

/// A tridiagonal matrix, with some entries replaced.
fn chain(edit: impl Fn(usize, usize) -> Option<f64>) -> Csr<f64> {
    matrix(N, |row, col| {
        let usual = if row == col { 2.5 } else { -1.0 };
        (row.abs_diff(col) <= 1).then(|| edit(row, col).unwrap_or(usual))
    })
}

fn at(place: (usize, usize), value: f64) -> impl Fn(usize, usize) -> Option<f64> {
    move |row, col| ((row, col) == place).then_some(value)
}

fn three(rows: [[f64; 3]; 3]) -> Csr<f64> {
    matrix(3, |row, col| Some(rows[row][col]))
}

fn listed() -> Vec<Listed> {
    let b = |first: Option<f64>| {
        let mut b = random_vector::<f64>(N, 3);
        b[0] = first.unwrap_or(b[0]);
        b
    };
    let chain = |name, a, first| Listed { name, a, b: b(first) };
    let small = |name, rows| Listed { name, a: three(rows), b: vec![1.0, 0.0, 0.0] };
    let healthy = || self::chain(|_, _| None);
    let huge = f64::MAX * 0.6;
    let mut listed = vec![
        chain("healthy", healthy(), None),
        chain("zero diagonal", self::chain(at((N / 2, N / 2), 0.0)), None),
        chain("negative", self::chain(|row, col| (row == col).then_some(-2.5)), None),
        chain("zero matrix", self::chain(|_, _| Some(0.0)), None),
        chain("healthy", healthy(), None),
        chain("NaN in A", self::chain(at((1, 1), f64::NAN)), None),
        chain("Inf in A", self::chain(at((1, 0), f64::INFINITY)), None),
        chain("overflow", self::chain(|r, c| (r == c || r + c == 1).then_some(huge)), None),
        chain("NaN in b", healthy(), Some(f64::NAN)),
        chain("Inf in b", healthy(), Some(f64::NEG_INFINITY)),
        chain("row of zeros", self::chain(|r, c| (r * c == 0).then_some(0.0)), Some(0.0)),
        small("healthy", [[4.0, 1.0, 0.0], [1.0, 3.0, 0.0], [0.0, 0.0, 1.0]]),
        // r^ is orthogonal to the first residual, which is not 0.
        small("rho", [[1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1.0, 0.0, 1.0]]),
        // s = (0, -1, 0) is orthogonal to A s.
        small("omega", [[1.0, 0.0, 0.0], [1.0, 0.0, 1.0], [0.0, -1.0, 0.0]]),
        small("skew", [[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),
        // Singular, although each row and column has entries.
        small("rank 2", [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]]),
        chain("b = 0", healthy(), None),
        chain("no iterations", healthy(), None),
        chain("no tolerance", healthy(), None),
        chain("healthy", healthy(), None),
    ];
    listed[16].b.fill(0.0);
    listed
}

fn batch(listed: &[&Listed]) -> (Batch<f64>, Vec<f64>) {
    let b = listed.iter().flat_map(|system| system.b.clone()).collect();
    (listed.iter().map(|system| system.a.clone()).collect(), b)
}

/// The options of a solve of these systems.
fn options(method: Method, preconditioner: Preconditioner, listed: &[&Listed]) -> SolveOptions {
    // With CG nothing breaks down before the residual is a rounding error; other methods may break
    // down.
    let rel_tol = |system: &&Listed| match system.name {
        "no tolerance" if method == Method::Cg => 1e-18,
        _ => 1e-10,
    };
    let limit = |system: &&Listed| if system.name == "no iterations" { 0 } else { 500 };
    SolveOptions::new()
        .method(method)
        .preconditioner(preconditioner)
        .max_restarts(0)
        .rel_tol(listed.iter().map(rel_tol).collect::<Vec<_>>())
        .max_iters(listed.iter().map(limit).collect::<Vec<_>>())
        .fallback(false)
}

/// Every bit of the x of a system and how it ended.
fn bits(
    solution: &Solution<f64>,
    system: usize,
    rows: std::ops::Range<usize>,
) -> (Status, Vec<u64>) {
    let x = solution.x[rows].iter().map(|v| v.to_bits()).collect();
    (solution.report.systems[system].outcome.status, x)
}

/// Solves the listed systems in every way on `backend` and on the CPU.
pub(crate) fn end_alike_on<E>(backend: &Backend<E>)
where
    E: Executor + Clone + Send + Sync + 'static,
{
    let all = listed();
    let all: Vec<&Listed> = all.iter().collect();
    let healthy: Vec<&Listed> = all.iter().copied().filter(|s| s.name == "healthy").collect();
    let mut seen = BTreeSet::new();
    use Preconditioner::{Auto, Jacobi, None as No};
    for (method, preconditioner) in [
        (Method::Cg, No),
        (Method::Cg, Jacobi),
        (Method::Cg, Preconditioner::IC0),
        (Method::BiCgStab, No),
        (Method::BiCgStab, Jacobi),
        (Method::BiCgStab, Preconditioner::BLOCK_JACOBI),
        (Method::BiCgStab, Preconditioner::ILU0),
        (Method::Lu, Auto),
    ] {
        for inner_precision in [InnerPrecision::Working, InnerPrecision::Auto] {
            let solve_there = |listed: &[&Listed]| {
                let (batch, b) = batch(listed);
                let options =
                    options(method, preconditioner, listed).inner_precision(inner_precision);
                let there = solve_on_executor(backend, &batch, &b, None, &options).unwrap();
                (there, solve(&batch, &b, None, &options).unwrap())
            };
            let (there, here) = solve_there(&all);
            let (alone, _) = solve_there(&healthy);

            let (mut start, mut nth) = (0, 0);
            for (s, system) in all.iter().enumerate() {
                let what = format!("{method} {preconditioner} {inner_precision}: {}", system.name);
                let rows = start..start + system.b.len();
                start = rows.end;
                // With a preconditioner, whose values are below 1e-307, the last bits decide.
                if system.name == "overflow" && preconditioner != No {
                    continue;
                }
                let (g, c) = (&there.report.systems[s], &here.report.systems[s]);
                assert_eq!((g.outcome.status, g.rung), (c.outcome.status, c.rung), "{what}");
                seen.insert(g.outcome.status.name());
                if system.name == "healthy" {
                    let first: usize = healthy[..nth].iter().map(|system| system.b.len()).sum();
                    let own = first..first + system.b.len();
                    assert_eq!(bits(&there, s, rows), bits(&alone, nth, own), "{what}");
                    assert_eq!(g.outcome.status, Status::Converged, "{what}");
                    nth += 1;
                }
                if method == Method::Lu && system.name == "skew" {
                    assert_eq!(g.rung, Rung::StaticPivotingLu, "{what}");
                }
            }
        }
    }
    // Every status occurs except the one that only the last rung of the ladder reports.
    let mut all = Status::ALL.iter().map(|status| status.name()).collect::<BTreeSet<_>>();
    all.remove(Status::Singular.name());
    assert_eq!(seen, all);
}
