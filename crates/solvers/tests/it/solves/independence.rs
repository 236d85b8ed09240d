//! A system's result is a function of that system alone, bit for bit: not of its neighbours, its
//! position, the layout of the batch, the number of right-hand sides or the number of threads.

use proptest::prelude::*;
use sparsebatch_formats::{Batch, Csr, Pattern, UniformBatch};
use sparsebatch_solvers::{
    Engine, Method, Order, Preconditioner, SolveOptions, SolveScalar, SpmvOptions, Status, solve,
};
use sparsebatch_testing::random_vector;

use crate::solves::support::{
    Bits, Kind, cast, iterative, matrix, options, pattern, ragged, uniform,
};

/// All methods on the fused engine, and some on the composed one.
fn settings() -> Vec<SolveOptions> {
    let mut settings: Vec<SolveOptions> = iterative()
        .into_iter()
        .map(|(method, preconditioner)| options(method, preconditioner))
        .collect();
    settings.push(options(Method::Lu, Preconditioner::Auto));
    settings.push(options(Method::BiCgStab, Preconditioner::Auto));
    settings.push(options(Method::BiCgStab, Preconditioner::ILU0).order(Order::MinDegree));
    let composed = Engine::Composed(SpmvOptions::default());
    let some = [
        (Method::Cg, Preconditioner::Jacobi),
        (Method::BiCgStab, Preconditioner::None),
        (Method::BiCgStab, Preconditioner::ILU0),
    ];
    settings.extend(
        some.map(|(method, preconditioner)| {
            options(method, preconditioner).engine(composed.clone())
        }),
    );
    for setting in &mut settings {
        (setting.history, setting.max_iters, setting.floor) = (true, 40.into(), Some(4.0));
    }
    settings
}

fn solved<T: SolveScalar>(batch: &Batch<T>, b: &[T], options: &SolveOptions) -> Vec<Bits> {
    let systems = batch.nitems() * options.nrhs;
    let rows: Vec<usize> = (0..systems).map(|s| batch.pattern(s / options.nrhs).nrows()).collect();
    Bits::all(&solve(batch, b, None, options).unwrap(), &rows)
}

/// Matrices of every kind on one pattern, two of each, and their right-hand sides.
fn systems<T: SolveScalar>(nrows: usize, seed: u64) -> (Vec<Csr<T>>, Vec<Vec<T>>) {
    let pattern = pattern(nrows, seed);
    let kinds = Kind::ALL.into_iter().chain(Kind::ALL).enumerate();
    kinds
        .map(|(i, kind)| {
            let seed = seed.wrapping_add(31 * i as u64);
            let mut b = random_vector::<f64>(nrows, seed ^ 0x55);
            if i == 4 && nrows > 0 {
                b[0] = f64::NAN;
            }
            (matrix(&pattern, kind, seed).cast::<T>(), cast(&b))
        })
        .unzip()
}

fn check_neighbours<T: SolveScalar>(nrows: usize, seed: u64) {
    let (mut matrices, mut b) = systems::<T>(nrows, seed);
    let (more, more_b) = systems::<T>(nrows / 2 + 1, seed ^ 1);
    // Two patterns, whose systems alternate in the batch.
    for (i, (a, b_of_a)) in more.into_iter().zip(more_b).enumerate() {
        matrices.insert(2 * i, a);
        b.insert(2 * i, b_of_a);
    }
    for options in settings() {
        let what = || format!("{} {} {:?}", options.method, options.preconditioner, options.engine);
        let alone: Vec<Bits> = matrices
            .iter()
            .zip(&b)
            .flat_map(|(a, b)| solved(&Batch::from(a.clone()), b, &options))
            .collect();

        let together = solved(&ragged(&matrices), &b.concat(), &options);
        let backwards: Vec<Csr<T>> = matrices.iter().rev().cloned().collect();
        let b_backwards: Vec<T> = b.iter().rev().flatten().copied().collect();
        let mut reversed = solved(&ragged(&backwards), &b_backwards, &options);
        reversed.reverse();

        for i in 0..alone.len() {
            assert_eq!(together[i], alone[i], "system {i}, {}", what());
            assert_eq!(reversed[i], alone[i], "system {i} of the reversed batch, {}", what());
        }
    }
}

fn check_layouts<T: SolveScalar>(nrows: usize, seed: u64) {
    let (matrices, b) = systems::<T>(nrows, seed);
    let b = b.concat();
    let batch = uniform(&matrices);
    for options in settings() {
        let item_major = solved(&Batch::from(batch.clone()), &b, &options);
        let interleaved = solved(&Batch::from(batch.to_interleaved()), &b, &options);
        let in_ragged = solved(&ragged(&matrices), &b, &options);

        assert_eq!(interleaved, item_major, "{} {}", options.method, options.preconditioner);
        assert_eq!(in_ragged, item_major, "{} {}", options.method, options.preconditioner);
    }
}

fn check_right_hand_sides<T: SolveScalar>(nrows: usize, seed: u64) {
    let pattern = pattern(nrows, seed);
    let (nitems, nrhs) = (3, 5);
    let kinds = [Kind::Spd, Kind::Dominant, Kind::Slow];
    let matrices: Vec<Csr<T>> =
        kinds.iter().map(|&kind| matrix(&pattern, kind, seed).cast()).collect();
    let mut b: Vec<T> = random_vector(nrows * nitems * nrhs, seed ^ 2);
    b[..nrows].fill(T::ZERO);
    for mut options in settings() {
        let mut one_by_one = Vec::new();
        for (s, b) in b.chunks(nrows).enumerate() {
            let alone = Batch::from(matrices[s / nrhs].clone());
            one_by_one.extend(solved(&alone, b, &options));
        }
        let repeated = Batch::from(UniformBatch::shared(matrices[1].clone(), nrhs));
        let of_one = nrows * nrhs..2 * nrows * nrhs;
        let shared = solved(&repeated, &b[of_one.clone()], &options);

        options.nrhs = nrhs;
        let several = solved(&Batch::from(uniform(&matrices)), &b, &options);
        let several_ragged = solved(&ragged(&matrices), &b, &options);

        let what = format!("{} {}", options.method, options.preconditioner);
        assert_eq!(several, one_by_one, "{what}");
        assert_eq!(several_ragged, one_by_one, "{what}");
        assert_eq!(shared, one_by_one[nrhs..2 * nrhs], "{what}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn neighbours_do_not_matter(nrows in 1usize..14, seed in any::<u64>()) {
        check_neighbours::<f64>(nrows, seed);
        check_neighbours::<f32>(nrows, seed);
    }

    #[test]
    fn layouts_do_not_matter(nrows in 1usize..14, seed in any::<u64>()) {
        check_layouts::<f64>(nrows, seed);
        check_layouts::<f32>(nrows, seed);
    }

    #[test]
    fn right_hand_sides_are_systems_of_their_own(nrows in 1usize..14, seed in any::<u64>()) {
        check_right_hand_sides::<f64>(nrows, seed);
        check_right_hand_sides::<f32>(nrows, seed);
    }
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let (mut matrices, mut b) = systems::<f64>(11, 5);
    for seed in 0..20 {
        let (more, more_b) = systems::<f64>(11 - seed as usize % 2, 100 + seed);
        matrices.extend(more);
        b.extend(more_b);
    }
    let (batch, b) = (ragged(&matrices), b.concat());
    for mut options in settings() {
        options.fallback = true;
        let by_threads = [1, 2, 3, 7].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| solved(&batch, &b, &options))
        });

        for other in &by_threads[1..] {
            assert!(*other == by_threads[0], "{} {}", options.method, options.preconditioner);
        }
    }
}

#[test]
fn a_finished_system_is_frozen() {
    // The fast system shares its lanes with one that reaches its iteration limit.
    let pattern = pattern(16, 3);
    let quick = matrix(&pattern, Kind::Spd, 1);
    let slow = matrix(&pattern, Kind::Slow, 2);
    let b: Vec<f64> = random_vector(16, 4);
    for (method, preconditioner) in iterative() {
        let mut options = options(method, preconditioner);
        options.rel_tol = Some((vec![1e-2, 1e-15, 1e-2]).into());
        options.max_iters = (vec![1000, 500, 1000]).into();
        let batch = Batch::from(uniform(&[quick.clone(), slow.clone(), quick.clone()]));

        let solution = solve(&batch, &[&b[..], &b, &b].concat(), None, &options).unwrap();

        let mut alone = options.clone();
        (alone.rel_tol, alone.max_iters) = (Some(1e-2.into()), 1000.into());
        let alone = solve(&Batch::from(quick.clone()), &b, None, &alone).unwrap();
        let systems = &solution.report.systems;
        assert_eq!(systems[0].outcome.status, Status::Converged);
        assert!(systems[1].outcome.iterations >= systems[0].outcome.iterations);
        assert_eq!(solution.x[..16], alone.x, "{method} {preconditioner}");
        assert_eq!(solution.x[32..], alone.x, "{method} {preconditioner}");
    }
    assert!(pattern.nrows() == 16);
}
