//! A system's result does not depend on its neighbours, its position in the batch, the order of
//! threads, or the number of blocks.

use kernel_emu::{Emulator, Order};
use proptest::prelude::*;
use sparsebatch_formats::{Csr, CsrPattern, Pattern, Scalar};
use sparsebatch_solvers::gpu::{GpuTuning, ValuePlace};
use sparsebatch_solvers::{
    InnerPrecision, Method, Preconditioner, SolveOptions, SolveScalar, Status,
};
use sparsebatch_testing::random_vector;

use crate::common::{
    METHODS, PRECONDITIONERS, ROUNDED, Systems, compare, compare_within, on_cpu, on_gpu, options,
};

/// A symmetric pattern with a full diagonal and up to `most` off-diagonal entries per row.
fn pattern(n: usize, most: usize, seed: u64) -> CsrPattern {
    let draws = random_vector::<f64>(n * most.max(1), seed);
    let mut rows = vec![Vec::new(); n];
    for row in 0..n {
        rows[row].push(row as i32);
        for draw in &draws[row * most / 2..row * most / 2 + most / 2] {
            let col = ((draw * 0.5 + 0.5) * n as f64) as usize % n;
            if rows[row].len() <= most && rows[col].len() <= most && col != row {
                rows[row].push(col as i32);
                rows[col].push(row as i32);
            }
        }
    }
    let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
    for mut row in rows {
        row.sort_unstable();
        row.dedup();
        col_idx.extend(row);
        row_ptr.push(col_idx.len() as i32);
    }
    CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap()
}

/// How a positive definite matrix is damaged.
#[derive(Clone, Copy, Debug)]
enum Flaw {
    None,
    Nan,
    Infinite,
    Zero,
    Negative,
    NoDiagonal,
    Scaled(f64),
}

/// A symmetric matrix for CG; else the entries above the diagonal are half of those below it.
fn matrix<T: Scalar>(pattern: &CsrPattern, method: Method, flaw: Flaw, seed: u64) -> Csr<T> {
    let view = pattern.view();
    let n = view.nrows();
    let draws = random_vector::<f64>(n * n, seed);
    let mut values = Vec::new();
    for row in 0..n {
        let entry = |k: usize| {
            let col = view.col_idx()[k] as usize;
            if col == row { 0.0 } else { draws[row.min(col) * n + row.max(col)] }
        };
        let sum: f64 = view.row(row).map(|k| entry(k).abs()).sum();
        for k in view.row(row) {
            let is_diagonal = view.col_idx()[k] as usize == row;
            let is_upper = view.col_idx()[k] as usize > row;
            let half = if is_upper && method == Method::BiCgStab { 0.5 } else { 1.0 };
            let value = if is_diagonal { 1.05 * sum + 0.1 } else { half * entry(k) };
            values.push(match flaw {
                Flaw::Zero => 0.0,
                Flaw::Negative => -value,
                Flaw::NoDiagonal if is_diagonal && row == n - 1 => 0.0,
                Flaw::Scaled(factor) => factor * value,
                _ => value,
            });
        }
    }
    let spot = seed as usize % values.len();
    match flaw {
        Flaw::Nan => values[spot] = f64::NAN,
        Flaw::Infinite => values[spot] = f64::INFINITY,
        _ => {}
    }
    let values = values.into_iter().map(T::from_f64).collect();
    Csr::try_new(n, n, view.row_ptr().to_vec(), view.col_idx().to_vec(), values).unwrap()
}

fn flaw() -> impl Strategy<Value = Flaw> {
    prop_oneof![
        4 => Just(Flaw::None),
        1 => Just(Flaw::Nan),
        1 => Just(Flaw::Infinite),
        1 => Just(Flaw::Zero),
        1 => Just(Flaw::Negative),
        1 => Just(Flaw::NoDiagonal),
        1 => (-12.0..12.0).prop_map(|e: f64| Flaw::Scaled(10f64.powf(e))),
    ]
}

/// A batch of up to 6 systems, some flawed, some with guesses. Guesses have the size of solutions:
/// with residuals larger than `1 / EPSILON` times the tolerance, rounding decides whether a few
/// restarts suffice.
fn batch<T: Scalar>(
    (n, most): (usize, usize),
    method: Method,
    flaws: &[Flaw],
    seed: u64,
) -> Systems<T> {
    let pattern = pattern(n, most, seed);
    let matrices: Vec<Csr<T>> =
        flaws.iter().zip(seed..).map(|(&f, seed)| matrix(&pattern, method, f, seed)).collect();
    let mut systems = Systems::new(&matrices, random_vector(n * flaws.len(), seed ^ 77));
    if seed.is_multiple_of(2) {
        systems.x0 = random_vector(n * flaws.len(), seed ^ 99);
        for (x0, flaw) in systems.x0.chunks_mut(n).zip(flaws) {
            if let Flaw::Scaled(factor) = flaw {
                x0.iter_mut().for_each(|x| *x = T::from_f64(x.to_f64() / factor));
            }
        }
    }
    systems
}

/// Small and large sizes, short and long rows.
fn sizes() -> impl Strategy<Value = (usize, usize)> {
    prop_oneof![
        (1usize..20, 0usize..8),
        (20usize..140, 0usize..12),
        (13usize..64, 10usize..30),
        (140usize..300, 0usize..6),
        (500usize..700, 2usize..9),
    ]
}

fn check<T: SolveScalar>(
    size: (usize, usize),
    flaws: &[Flaw],
    seed: u64,
    (method, preconditioner): (Method, Preconditioner),
    inner_precision: InnerPrecision,
) -> Result<(), TestCaseError> {
    // Rounding decides how singular and indefinite systems end, unless Jacobi refuses them.
    let sure = |&flaw: &Flaw| match flaw {
        Flaw::NoDiagonal if preconditioner != Preconditioner::Jacobi => Flaw::Negative,
        flaw => flaw,
    };
    let flaws: Vec<Flaw> = flaws.iter().map(sure).collect();
    let systems = batch::<T>(size, method, &flaws, seed);
    let options = options(method, preconditioner).inner_precision(inner_precision);
    let tuning = GpuTuning::default();
    // For random systems, the number of f32 iterations depends on how well f32 resolves the matrix.
    let close = if inner_precision == InnerPrecision::Auto { (3.0, 300.0) } else { ROUNDED };
    let all = on_gpu(&Emulator::new(Order::Forward), &systems, &options, &tuning);

    let what = format!("{} {size:?} {method} {preconditioner} {flaws:?} seed {seed}", T::CPP);
    let cpu = on_cpu(&systems, &options);
    compare_within(&what, &systems, &all, &cpu, SolveOptions::default_rel_tol::<T>(), close);
    // The same batch with another order of threads and fewer blocks.
    let tuning = tuning.max_blocks(Some(1));
    let again = on_gpu(&Emulator::new(Order::Random(seed)), &systems, &options, &tuning);
    // Each system alone, and the batch in reverse.
    let order: Vec<usize> = (0..flaws.len()).rev().collect();
    let turned = systems.select(&order);
    let turned = on_gpu(&Emulator::new(Order::Reverse), &turned, &options, &tuning);
    for item in 0..flaws.len() {
        let alone = systems.select(&[item]);
        let alone = on_gpu(&Emulator::new(Order::Forward), &alone, &options, &tuning);
        prop_assert_eq!(all.bits(item), again.bits(item), "{} order", &what);
        prop_assert_eq!(all.bits(item), turned.bits(flaws.len() - 1 - item), "{} place", &what);
        prop_assert_eq!(all.bits(item), alone.bits(0), "{} alone", &what);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn flawed_neighbours_change_no_bit_in_f64(
        size in sizes(),
        flaws in prop::collection::vec(flaw(), 1..6),
        seed in 0u64..1_000_000,
        method in prop::sample::select(METHODS.to_vec()),
        preconditioner in prop::sample::select(PRECONDITIONERS.to_vec()),
    ) {
        check::<f64>(size, &flaws, seed, (method, preconditioner), InnerPrecision::Working)?;
    }

    #[test]
    fn flawed_neighbours_change_no_bit_with_iterations_in_f32(
        size in sizes(),
        flaws in prop::collection::vec(flaw(), 1..6),
        seed in 0u64..1_000_000,
        method in prop::sample::select(METHODS.to_vec()),
        preconditioner in prop::sample::select(PRECONDITIONERS.to_vec()),
    ) {
        check::<f64>(size, &flaws, seed, (method, preconditioner), InnerPrecision::Auto)?;
    }

    #[test]
    fn flawed_neighbours_change_no_bit_in_f32(
        size in sizes(),
        flaws in prop::collection::vec(flaw(), 1..6),
        seed in 0u64..1_000_000,
        method in prop::sample::select(METHODS.to_vec()),
        preconditioner in prop::sample::select(PRECONDITIONERS.to_vec()),
    ) {
        check::<f32>(size, &flaws, seed, (method, preconditioner), InnerPrecision::Working)?;
    }
}

/// Every place for values gives a right answer, also for systems larger than those of the families.
#[test]
fn values_may_be_anywhere() {
    let places = [
        (150, ValuePlace::Shared),
        (150, ValuePlace::Global),
        (1500, ValuePlace::Shared),
        (1500, ValuePlace::Global),
        (3000, ValuePlace::Shared),
    ];
    for (n, place) in places {
        let pattern = pattern_of_chain(n);
        let matrices: Vec<Csr<f64>> = (0..2).map(|k| chain(&pattern, 2.2 + f64::from(k))).collect();
        let systems = Systems::new(&matrices, random_vector(2 * n, 5));
        for (method, preconditioner) in METHODS
            .into_iter()
            .flat_map(|method| [Preconditioner::None, Preconditioner::Jacobi].map(|p| (method, p)))
        {
            let options = options(method, preconditioner);
            let tuning = GpuTuning::default().values(Some(place));
            let gpu = on_gpu(&Emulator::new(Order::Reverse), &systems, &options, &tuning);

            assert_eq!(gpu.statuses(), [Status::Converged; 2], "{n} {place:?}");
            let what = format!("{n} {place:?} {method}");
            compare(&what, &systems, &gpu, &on_cpu(&systems, &options), 1e-10);
        }
    }
}

/// Several threads may share a row, whatever the lengths of rows.
#[test]
fn rows_may_be_shared_by_threads() {
    for (n, parts) in [(13, 2), (40, 2), (64, 4), (50, 4), (61, 8), (5, 8)] {
        let group = (parts > 2).then_some((8, 8));
        let systems = batch::<f64>((n, 9), Method::Cg, &[Flaw::None, Flaw::Nan, Flaw::None], 3);
        for (method, preconditioner) in METHODS
            .into_iter()
            .flat_map(|method| [Preconditioner::None, Preconditioner::Jacobi].map(|p| (method, p)))
        {
            let options = options(method, preconditioner).floor(2.0);
            let tuning = GpuTuning::default().parts(Some(parts)).group(group);
            for order in [Order::Forward, Order::Reverse, Order::Random(7)] {
                let gpu = on_gpu(&Emulator::new(order), &systems, &options, &tuning);

                assert!(gpu.kernel.ends_with(&format!(", 0, 0, {parts}>")), "{}", gpu.kernel);
                compare(&gpu.kernel, &systems, &gpu, &on_cpu(&systems, &options), 1e-10);
            }
        }
    }
}

/// BiCGStab may have its vectors in registers or in shared memory, whatever the table chooses.
#[test]
fn vectors_may_be_in_shared_memory() {
    for (n, vectors) in [(30, 3), (30, 1), (100, 1), (100, 3)] {
        let pattern = pattern_of_chain(n);
        let matrices: Vec<Csr<f64>> = (0..3).map(|k| chain(&pattern, 2.2 + f64::from(k))).collect();
        let systems = Systems::new(&matrices, random_vector(3 * n, 5));
        for preconditioner in [Preconditioner::None, Preconditioner::Jacobi] {
            let options = options(Method::BiCgStab, preconditioner);
            let few = Some(false);
            let tuning = GpuTuning::default().vectors(Some(vectors)).few(few);
            let gpu = on_gpu(&Emulator::new(Order::Reverse), &systems, &options, &tuning);

            assert!(gpu.kernel.ends_with(&format!(", {vectors}>")), "{}", gpu.kernel);
            compare(&gpu.kernel, &systems, &gpu, &on_cpu(&systems, &options), 1e-10);
        }
    }
}

fn pattern_of_chain(n: usize) -> CsrPattern {
    let (mut row_ptr, mut col_idx) = (vec![0], Vec::new());
    for row in 0..n {
        col_idx.extend((row.saturating_sub(1)..(row + 2).min(n)).map(|col| col as i32));
        row_ptr.push(col_idx.len() as i32);
    }
    CsrPattern::try_new(n, n, row_ptr, col_idx).unwrap()
}

fn chain(pattern: &CsrPattern, diagonal: f64) -> Csr<f64> {
    let view = pattern.view();
    let value = |row: usize, k: usize| {
        if view.col_idx()[k] as usize == row { diagonal } else { -1.0 }
    };
    let values = (0..view.nrows()).flat_map(|row| view.row(row).map(move |k| value(row, k)));
    let (row_ptr, col_idx) = (view.row_ptr().to_vec(), view.col_idx().to_vec());
    Csr::try_new(view.nrows(), view.nrows(), row_ptr, col_idx, values.collect()).unwrap()
}
