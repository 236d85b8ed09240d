//! The vectors of a Krylov method on one of several GPUs: steps against the same sums in Rust, and
//! what is refused. Solves with them are tested in `sparsebatch-mpi`.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, KernelBuffer};
use sparsebatch_solvers::gpu::{KrylovSteps, Step, StepMethod, StepPrecond, StepVector};
use sparsebatch_testing::random_integers;

/// More than one chunk, the last of them short.
const LEN: usize = 8192 + 37;

fn steps(method: StepMethod, precond: StepPrecond) -> KrylovSteps<Emulator, f64> {
    KrylovSteps::new(&Emulator::new(Order::Random(5)), LEN, method, precond).unwrap()
}

/// Whole numbers, of which all sums are exact.
fn vector(seed: u64) -> Vec<f64> {
    random_integers(LEN, seed)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn get(steps: &KrylovSteps<Emulator, f64>, vector: StepVector) -> Vec<f64> {
    let mut found = vec![0.0; LEN];
    steps.get(vector, &mut found).unwrap();
    found
}

/// `a + factor b`, element by element.
fn plus(a: &[f64], factor: f64, b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + factor * b).collect()
}

#[test]
fn bicgstab_makes_its_vectors_and_sums() {
    for precond in [StepPrecond::None, StepPrecond::Diagonal, StepPrecond::Given] {
        let mut steps = steps(StepMethod::BiCgStab, precond);
        let [x, r, t, diagonal] = [1, 2, 3, 4].map(vector);
        steps.set(StepVector::X, &x).unwrap();
        steps.set(StepVector::R, &r).unwrap();
        if precond == StepPrecond::Diagonal {
            steps.set(StepVector::Diagonal, &diagonal).unwrap();
        }
        let apply = |v: &[f64]| -> Vec<f64> {
            match precond {
                StepPrecond::None => v.to_vec(),
                _ => v.iter().zip(&diagonal).map(|(v, m)| m * v).collect(),
            }
        };
        steps.run(Step::BiCgStabStart).unwrap();
        assert_eq!(steps.sums().unwrap()[0], dot(&r, &r));
        assert_eq!(get(&steps, StepVector::Shadow), r);

        steps.run(Step::BiCgStabDirect { beta: 3.0, omega: 5.0 }).unwrap();
        assert_eq!(get(&steps, StepVector::P), r, "p and v were 0");
        if precond == StepPrecond::Given {
            steps.set(StepVector::PHat, &apply(&r)).unwrap();
        }
        let p_hat = apply(&r);
        assert_eq!(get(&steps, StepVector::PHat), p_hat);

        let v = vector(6);
        steps.set(StepVector::V, &v).unwrap();
        steps.run(Step::BiCgStabShadow).unwrap();
        assert_eq!(steps.sums().unwrap()[0], dot(&r, &v));

        steps.run(Step::BiCgStabHalf { alpha: 2.0 }).unwrap();
        let s = plus(&r, -2.0, &v);
        assert_eq!(get(&steps, StepVector::R), s);
        if precond == StepPrecond::Given {
            steps.set(StepVector::SHat, &apply(&s)).unwrap();
        }
        let s_hat = apply(&s);
        assert_eq!(get(&steps, StepVector::SHat), s_hat);

        steps.set(StepVector::T, &t).unwrap();
        steps.run(Step::BiCgStabMiddle).unwrap();
        assert_eq!(steps.sums().unwrap(), [dot(&t, &s), dot(&t, &t), dot(&s, &s)]);

        steps.run(Step::BiCgStabAdvance { alpha: 2.0, omega: 3.0 }).unwrap();
        let last = plus(&s, -3.0, &t);
        assert_eq!(get(&steps, StepVector::X), plus(&plus(&x, 2.0, &p_hat), 3.0, &s_hat));
        assert_eq!(get(&steps, StepVector::R), last);
        assert_eq!(steps.sums().unwrap()[..2], [dot(&last, &last), dot(&last, &r)]);

        steps.run(Step::BiCgStabDirect { beta: 2.0, omega: 3.0 }).unwrap();
        assert_eq!(get(&steps, StepVector::P), plus(&last, 2.0, &plus(&r, -3.0, &v)));
    }
}

#[test]
fn pipelined_cg_makes_its_vectors_and_sums() {
    let mut steps = steps(StepMethod::PipelinedCg, StepPrecond::Diagonal);
    use StepVector as V;
    let all = [V::X, V::R, V::U, V::W, V::M, V::N, V::P, V::S, V::Q, V::Z, V::Diagonal];
    for (seed, of) in (1..).zip(all) {
        steps.set(of, &vector(seed)).unwrap();
    }
    let [x, r, u, w, m, n, p, s, q, z, diagonal] = all.map(|vector| get(&steps, vector));
    steps.run(Step::PipelinedSums).unwrap();
    assert_eq!(steps.sums().unwrap(), [dot(&r, &u), dot(&w, &u), dot(&r, &r)]);

    steps.run(Step::PipelinedAdvance { alpha: 2.0, beta: 3.0 }).unwrap();
    let [z, q] = [plus(&n, 3.0, &z), plus(&m, 3.0, &q)];
    let [s, p] = [plus(&w, 3.0, &s), plus(&u, 3.0, &p)];
    for (of, expected) in [
        (V::Z, z.clone()),
        (V::Q, q.clone()),
        (V::S, s.clone()),
        (V::P, p.clone()),
        (V::X, plus(&x, 2.0, &p)),
        (V::R, plus(&r, -2.0, &s)),
        (V::U, plus(&u, -2.0, &q)),
        (V::W, plus(&w, -2.0, &z)),
    ] {
        assert_eq!(get(&steps, of), expected, "{of:?}");
    }
    steps.set(V::Q, &vec![f64::NAN; LEN]).unwrap();
    steps.run(Step::PipelinedAdvance { alpha: 1.0, beta: 0.0 }).unwrap();
    assert_eq!(get(&steps, V::Q), m, "the last q counts for nothing");

    steps.run(Step::Precondition { from: V::R, to: V::U }).unwrap();
    let r = get(&steps, V::R);
    let expected: Vec<f64> = r.iter().zip(&diagonal).map(|(r, d)| d * r).collect();
    assert_eq!(get(&steps, V::U), expected);
}

#[test]
fn what_a_method_does_not_have_is_refused() {
    let mut cg = steps(StepMethod::Cg, StepPrecond::None);
    assert_eq!((cg.len(), cg.is_empty()), (LEN, false));
    assert_eq!((cg.method(), cg.precond()), (StepMethod::Cg, StepPrecond::None));
    let lines = [
        cg.run(Step::BiCgStabStart).unwrap_err(),
        cg.run(Step::BiCgStabShadow).unwrap_err(),
        cg.run(Step::PipelinedSums).unwrap_err(),
        cg.run(Step::Precondition { from: StepVector::R, to: StepVector::P }).unwrap_err(),
        cg.run(Step::PipelinedAdvance { alpha: 1.0, beta: 1.0 }).unwrap_err(),
        cg.set(StepVector::Diagonal, &vector(1)).unwrap_err(),
        cg.get(StepVector::T, &mut vec![0.0; LEN]).unwrap_err(),
        cg.set(StepVector::X, &[1.0]).unwrap_err(),
        cg.product_vectors(StepVector::P, StepVector::P).err().unwrap(),
        cg.product_vectors(StepVector::P, StepVector::V).err().unwrap(),
        cg.product_vectors(StepVector::V, StepVector::P).err().unwrap(),
    ];
    for line in lines.map(|line| line.to_string()) {
        assert!(line.contains("expected"), "{line}");
    }
    let (p, w) = cg.product_vectors(StepVector::P, StepVector::W).unwrap();
    assert!(p.raw() != w.raw() && p.len() == LEN);
    // BiCGStab without a preconditioner has p in the place of M p.
    let mut plain = steps(StepMethod::BiCgStab, StepPrecond::None);
    assert!(plain.product_vectors(StepVector::P, StepVector::PHat).is_err());
    let given = steps(StepMethod::Cg, StepPrecond::Given)
        .run(Step::Precondition { from: StepVector::R, to: StepVector::U });
    assert!(given.is_ok(), "there is nothing to do");
    let empty = Emulator::new(Order::Forward);
    let none = KrylovSteps::<_, f64>::new(&empty, 0, StepMethod::BiCgStab, StepPrecond::None);
    let mut none = none.unwrap();
    none.run(Step::BiCgStabStart).unwrap();
    assert_eq!(none.sums().unwrap(), [0.0; 3]);
    assert!(none.is_empty() && empty.synchronize().is_ok());
}
