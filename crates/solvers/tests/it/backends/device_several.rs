//! Batches that lie on several GPUs: the bits of one GPU that has all items, and one report.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::Executor;
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solvers::gpu::Guess;
use sparsebatch_solvers::{
    BatchReport, DeviceArrays, DeviceSolver, DeviceSolvers, Method, Preconditioner, SolveError,
    SolveOptions,
};

use super::device::{uniform, values_of};
use super::several::lacks_a_kernel;
use crate::backends::common::{chain, patterns, ragged, rhs};

type Arrays = Vec<[<Emulator as Executor>::Buffer<f64>; 3]>;

/// Arrays of each part, with 7 or the guess in `x`.
fn arrays(gpus: &[Emulator], parts: &[Batch<f64>], b: &[f64], guess: Option<&[f64]>) -> Arrays {
    let mut first = 0;
    let of_part = |(gpu, part): (&Emulator, &Batch<f64>)| {
        let rows = first..first + part.row_offset(part.nitems());
        first = rows.end;
        let x = guess.map_or_else(|| vec![7.0; rows.len()], |guess| guess[rows.clone()].to_vec());
        [&values_of(part), &b[rows], &x].map(|array| gpu.upload(array).unwrap())
    };
    gpus.iter().zip(parts).map(of_part).collect()
}

fn borrowed(arrays: &mut Arrays) -> Vec<DeviceArrays<'_, <Emulator as Executor>::Buffer<f64>>> {
    arrays.iter_mut().map(|[values, b, x]| DeviceArrays { values, b, x }).collect()
}

fn solutions(gpus: &[Emulator], arrays: &Arrays) -> Vec<f64> {
    let of_part = |(gpu, [_, _, x]): (&Emulator, &[_; 3])| gpu.download(x).unwrap();
    gpus.iter().zip(arrays).flat_map(of_part).collect()
}

/// Solves parts of a batch on an emulated GPU each.
fn on_several(
    parts: &[Batch<f64>],
    b: &[f64],
    guess: Option<&[f64]>,
    options: &SolveOptions,
) -> (Vec<f64>, BatchReport) {
    let gpus: Vec<Emulator> = parts.iter().map(|_| Emulator::new(Order::Forward)).collect();
    let own: Vec<_> = gpus.iter().zip(parts).collect();
    let mut solvers = DeviceSolvers::new(&own, options).unwrap();
    let mut arrays = arrays(&gpus, parts, b, guess);
    let from = if guess.is_some() { Guess::InX } else { Guess::Zero };
    let report = solvers.solve(&mut borrowed(&mut arrays), from).unwrap();
    // Answered by the parts, before systems are listed.
    let last = report.nsystems() - 1;
    let told = (report.nsystems(), report.converged(), report.status(last));
    let report = report.into_report();
    let listed = (report.systems.len(), report.converged(), report.systems[last].outcome.status);
    assert_eq!(told, listed);
    (solutions(&gpus, &arrays), report)
}

/// Items of which one cannot be solved and one needs another rung.
fn items() -> Vec<Csr<f64>> {
    let mut items: Vec<Csr<f64>> = (0..11).map(|item| chain(12, 2.1 + 0.2 * item as f64)).collect();
    items[2].values_mut().fill(0.0);
    items[7].values_mut()[0] = 0.0;
    items
}

fn cut<'a>(items: &'a [Csr<f64>], counts: &[usize]) -> Vec<&'a [Csr<f64>]> {
    let mut rest = items;
    let own = |&count: &usize| {
        let (own, others) = rest.split_at(count);
        rest = others;
        own
    };
    counts.iter().map(own).collect()
}

#[test]
fn parts_on_several_gpus_have_the_bits_of_one() {
    let different = patterns(11);
    let mut compared = 0;
    let of = |method, precond| SolveOptions::new().method(method).preconditioner(precond);
    let bicgstab = of(Method::BiCgStab, Preconditioner::Jacobi);
    for (name, items, make) in [
        ("uniform", items(), uniform as fn(&[Csr<f64>]) -> Batch<f64>),
        ("ragged", different, |items| ragged(items.to_vec())),
    ] {
        let whole = make(&items);
        let b = rhs(&whole, 1);
        let x0: Vec<f64> = b.iter().map(|b| 0.5 - b).collect();
        for options in [
            SolveOptions::new(),
            of(Method::Lu, Preconditioner::Auto),
            of(Method::Cg, Preconditioner::None),
            bicgstab.clone(),
            bicgstab.clone().max_iters((0..11).map(|item| 1 + 9 * item).collect::<Vec<u32>>()),
        ] {
            for guess in [None, Some(&*x0)] {
                let (x, expected) = match on_one(&whole, &b, guess, &options) {
                    Err(error) if lacks_a_kernel(&error) => continue,
                    solved => solved.unwrap(),
                };
                compared += 1;
                for counts in [&[11][..], &[4, 7], &[1, 2, 8]] {
                    let what = format!("{name} {} {counts:?}", options.method);
                    let parts: Vec<_> = cut(&items, counts).into_iter().map(make).collect();
                    let (found, report) = on_several(&parts, &b, guess, &options);

                    let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
                    assert_eq!(bits(&found), bits(&x), "{what}");
                    assert_eq!(report.systems, expected.systems, "{what}");
                    let systems: Vec<_> = report.gpus().iter().map(|gpu| gpu.systems).collect();
                    assert_eq!(systems, counts, "{what}");
                }
            }
        }
    }
    assert!(compared >= 8, "{compared} cases");
}

/// Solves all items on one emulated GPU.
fn on_one(
    batch: &Batch<f64>,
    b: &[f64],
    guess: Option<&[f64]>,
    options: &SolveOptions,
) -> Result<(Vec<f64>, BatchReport), SolveError> {
    let gpus = [Emulator::new(Order::Forward)];
    let mut solver = DeviceSolver::new(&gpus[0], batch, options)?;
    let mut all = arrays(&gpus, std::slice::from_ref(batch), b, guess);
    let from = if guess.is_some() { Guess::InX } else { Guess::Zero };
    let [values, b, x] = &mut all[0];
    let report = solver.solve(values, b, from, x)?;
    Ok((solutions(&gpus, &all), report.into_report()))
}

#[test]
fn factors_are_kept_on_every_gpu() {
    let items = items();
    let parts: Vec<_> = cut(&items, &[5, 6]).into_iter().map(uniform).collect();
    let whole = uniform(&items);
    let b = rhs(&whole, 1);
    let options = SolveOptions::new().method(Method::Lu);
    let gpus = [0, 1].map(|_| Emulator::new(Order::Forward));
    let own: Vec<_> = gpus.iter().zip(&parts).collect();
    let mut solvers = DeviceSolvers::new(&own, &options).unwrap();
    let mut own = arrays(&gpus, &parts, &b, None);
    let mut alone = DeviceSolver::new(&gpus[0], &whole, &options).unwrap();
    let mut all = arrays(&gpus[..1], &[whole], &b, None);

    solvers.factor(&own.iter().map(|[values, ..]| values).collect::<Vec<_>>()).unwrap();
    let report = solvers.solve_again(&mut borrowed(&mut own), Guess::Zero).unwrap();

    let [values, b, x] = &mut all[0];
    alone.factor(values).unwrap();
    let expected = alone.solve_again(b, Guess::Zero, x).unwrap();
    assert!(solvers.each().iter().all(DeviceSolver::keeps_factors));
    assert_eq!(solvers.each_mut().len(), 2);
    assert_eq!(report.systems, expected.systems);
    assert_eq!(solutions(&gpus, &own), solutions(&gpus, &all));
}

#[test]
fn what_does_not_fit_is_refused() {
    let options = SolveOptions::new();
    let none = DeviceSolvers::<Emulator, f64>::new(&[], &options).err().unwrap();
    assert!(none.to_string().contains("expected the items of at least one GPU"), "{none}");

    let parts = [uniform(&items()), uniform(&items())];
    let gpus = [0, 1].map(|_| Emulator::new(Order::Forward));
    let own: Vec<_> = gpus.iter().zip(&parts).collect();
    let limits = options.clone().max_iters(vec![3; 11]);
    let limited = DeviceSolvers::new(&own, &limits).err().unwrap();
    assert!(limited.to_string().contains("22"), "{limited}");

    let mut solvers = DeviceSolvers::new(&own, &options).unwrap();
    let b = [rhs(&parts[0], 1), rhs(&parts[1], 1)].concat();
    let mut all = arrays(&gpus, &parts, &b, None);
    let values = [&all[0][0]];
    let factored = solvers.factor(&values).unwrap_err();
    assert!(factored.to_string().contains("values of each part"), "{factored}");
    let one = &mut borrowed(&mut all)[..1];
    for error in [
        solvers.solve(one, Guess::Zero).unwrap_err(),
        solvers.solve_again(one, Guess::Zero).unwrap_err(),
    ] {
        assert!(matches!(error, SolveError::Argument(_)), "{error}");
        assert!(error.to_string().contains("arrays of each part"), "{error}");
    }
}
