//! The Rust API on the ranks of an MPI job, started by `scripts/mpi-tests.sh`: what `solve --mpi`
//! does not reach.
//!
//! `mpirun -n N ranks CASE`. A case ends with exit code 0 where all of its checks hold.

use std::ops::Range;
use std::time::Duration;

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{DeviceInfo, Executor};
use sparsebatch_formats::generate::{Stencil, laplace};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_mpi::{
    DistributedMatrix, DistributedOptions, Failure, MatrixOptions, MpiError, MpiSolver, Partition,
    Ranks, cost, gpus_of, shares,
};
use sparsebatch_solvers::{Backend, Gpu, Method, PlanPin, SolveOptions, solve};

const LIMIT: Duration = Duration::from_secs(20);

/// Items of the batch, which need different numbers of iterations.
const ITEMS: usize = 23;

fn matrix(item: usize) -> Csr<f64> {
    let n = 3 + item;
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..n {
        for col in row.saturating_sub(1)..(row + 2).min(n) {
            col_idx.push(col as i32);
            values.push(if row == col { 2.1 } else { -1.0 });
        }
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(n, n, row_ptr, col_idx, values).expect("tridiagonal")
}

/// The systems of a share, with right-hand sides of ones.
fn share(items: Range<usize>) -> (Batch<f64>, Vec<f64>) {
    let batch: Batch<f64> = items.map(matrix).collect();
    let rows = batch.row_offset(batch.nitems());
    (batch, vec![1.0; rows])
}

fn options() -> SolveOptions {
    SolveOptions::new().method(Method::Cg)
}

/// Solves twice, the second time with shares by the iterations of the first, and holds both against
/// a solve of the whole by one process.
fn solves(ranks: &Ranks) {
    let (whole, b) = share(0..ITEMS);
    let expected = solve(&whole, &b, None, &options()).expect("solves");
    let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let costs: Vec<u64> = (0..ITEMS).map(|item| cost(whole.pattern(item).nnz(), 0)).collect();
    let mut all = shares(&costs, ranks.size());
    for _ in 0..2 {
        let (batch, b) = share(all[ranks.rank()].clone());
        let mut x = vec![0.0; b.len()];
        let mut solver =
            MpiSolver::new(ranks, &Backend::Cpu, &batch, &options()).expect("all alike");
        let mut solved = solver.solve(&batch, &b, &mut x).expect("solves");
        assert_eq!(solved.share.systems.len(), batch.nitems());
        let x = ranks.gather_values(&x);
        assert_eq!(x.is_some(), ranks.rank() == 0);
        if let (Some(x), Some(report)) = (x, &solved.whole) {
            assert_eq!(bits(&x), bits(&expected.x));
            assert_eq!(report.systems, expected.report.systems);
            assert_eq!(solved.gathered.ranks.len(), ranks.size());
        }
        // The time of a machine that does nothing else.
        let iterations = solved.share.systems.iter().map(|system| system.outcome.iterations);
        solved.share.solve_time = Duration::from_micros(iterations.map(u64::from).sum());
        all = solver.shares_after(&batch, &solved).expect("costs travel");
        assert_eq!((all.len(), all[ranks.size() - 1].end), (ranks.size(), ITEMS));
    }
    // The last items take most iterations, so that the last rank gets fewer.
    assert!(ranks.size() == 1 || all[0].len() > all[ranks.size() - 1].len(), "{all:?}");
}

/// A failure or a panic of one rank is the same error on all ranks, which may go on after it.
fn faults(ranks: &Ranks) {
    let last = ranks.size() - 1;
    let failed = ranks.run(|| match ranks.rank() == last {
        true => Err(Failure { code: 2, message: "no such file".to_owned() }),
        false => Ok(()),
    });
    match failed {
        Err(MpiError::All(_)) => assert_eq!(last, 0),
        Err(MpiError::Rank { rank, host, failure }) => {
            assert_eq!((rank, failure.code, host), (last, 2, ranks.host(last).to_owned()));
        }
        other => panic!("{other:?}"),
    }
    std::panic::set_hook(Box::new(|_| ()));
    let failed = ranks.run(|| if ranks.rank() == last { panic!("on purpose") } else { Ok(()) });
    let _ = std::panic::take_hook();
    let line = failed.expect_err("a panic").to_string();
    assert!(line.ends_with("internal failure: on purpose"), "{line}");
    // A matrix that is not square, on the last rank alone.
    let wide = Csr::try_new(1, 2, vec![0, 1], vec![0], vec![1.0]).expect("valid");
    let own: Csr<f64> = if ranks.rank() == last { wide } else { matrix(0) };
    let error = MpiSolver::new(ranks, &Backend::Cpu, &own.into(), &options()).err();
    let error = error.expect("not square").to_string();
    assert!(error.contains("1 x 2"), "{error}");
}

/// A report of the last rank that rank 0 cannot read is the same error on all ranks, which may go on
/// after it.
fn unreadable(ranks: &Ranks) {
    let last = ranks.size() - 1;
    let (batch, b) = share(0..2);
    let mut report = solve(&batch, &b, None, &options()).expect("solves").report;
    if ranks.rank() == last {
        report.format = "no such format";
    }
    match ranks.gather_report(&report) {
        // The report of rank 0 does not travel.
        Ok(gathered) => assert!(last == 0 && gathered.report.is_some()),
        Err(MpiError::Rank { rank: 0, failure, .. }) => {
            assert!(failure.code == 1 && failure.message.contains("cannot be read"), "{failure:?}");
        }
        Err(other) => panic!("{other:?}"),
    }
    assert_eq!(ranks.from_first(&7u8), Ok(7));
}

/// One rank has another option.
fn unequal(ranks: &Ranks) {
    let last = ranks.size() - 1;
    let own = options().max_iters(if ranks.rank() == last { 7 } else { 1000 });
    let (batch, _) = share(0..1);
    let error = MpiSolver::new(ranks, &Backend::Cpu, &batch, &own).err();
    match error {
        None => assert_eq!(last, 0),
        Some(error) => {
            let expected = format!(
                "rank {last} on {}: max_iters is 7, on rank 0 it is 1000",
                ranks.host(last)
            );
            assert_eq!((error.exit_code(), error.to_string()), (2, expected));
        }
    }
}

/// What a rank uses of its host, and plans as on rank 0.
fn places(ranks: &Ranks) {
    let (local, of_host) = ranks.local();
    assert!(local < of_host && of_host <= ranks.size() && ranks.threads() >= 1);
    // All see two GPUs, then each two of its own.
    let common = ["a", "b"].map(str::to_owned);
    assert_eq!(ranks.gpus(&common), Ok(gpus_of(local, of_host, 2)));
    let own = ["a", "b"].map(|name| format!("{name} of {}", ranks.rank()));
    assert_eq!(ranks.gpus(&own), Ok(0..2));
    let cpu: Backend = Backend::Cpu;
    assert!(matches!(ranks.planned_as_first(&cpu), Ok(Backend::Cpu)));
}

/// GPUs of different models plan as that of rank 0; where one cannot, the error names its rank.
fn plans(ranks: &Ranks) {
    let gpu = |multiprocessors, shared| {
        let like = Emulator::new(Order::Forward).info().clone();
        let info = DeviceInfo { multiprocessors, shared_bytes_per_block: shared, ..like };
        Backend::Gpu(Gpu::new(Emulator::with_info(info, Order::Forward)))
    };
    let last = ranks.size() - 1;
    let own = gpu(5 + ranks.rank() as u32, 50_000 + ranks.rank() as u32);
    let pinned = ranks.planned_as_first(&own).expect("every GPU has what that of rank 0 has");
    assert_eq!(PlanPin::of(&pinned), PlanPin::of(&gpu(5, 50_000)));
    assert_eq!(PlanPin::of(&own) == PlanPin::of(&pinned), ranks.rank() == 0);

    let own = gpu(5, if ranks.rank() == last { 40_000 } else { 50_000 });
    match ranks.planned_as_first(&own) {
        Ok(_) => assert_eq!(last, 0),
        Err(MpiError::Rank { rank, failure, .. }) => {
            assert_eq!((rank, failure.code), (last, 2));
            assert!(failure.message.contains("40000"), "{failure:?}");
        }
        Err(other) => panic!("{other:?}"),
    }
}

/// One matrix over the ranks: products against the sequential reference, CG with equal bits over three
/// solves, its pipelined form, BiCGStab, and more ranks than rows.
fn distributed(ranks: &Ranks) {
    let grid = laplace(Stencil::Point7, &[9, 8, 7]).expect("a grid");
    let parts = Partition::even(grid.nrows(), ranks.size());
    let usual = MatrixOptions::new();
    let mut own =
        DistributedMatrix::from_matrix(ranks, &grid, &parts, &parts, &usual).expect("all alike");
    let x: Vec<f64> = (0..grid.ncols()).map(|i| (i % 7) as f64 - 3.0).collect();
    let mut expected = vec![0.0; grid.nrows()];
    for (row, y) in expected.iter_mut().enumerate() {
        let (cols, values) = grid.row(row);
        *y = cols.iter().zip(values).map(|(&col, value)| value * x[col as usize]).sum();
    }
    let mut y = vec![f64::NAN; own.own_rows()];
    own.apply(1.0, &parts.share(ranks.rank(), &x), 0.0, &mut y).expect("vectors fit");
    // Whole numbers: sums are exact in any order.
    assert_eq!(y, parts.share(ranks.rank(), &expected));
    for (method, pipelined) in [(Method::Cg, false), (Method::Cg, true), (Method::BiCgStab, false)]
    {
        let solve = SolveOptions::new().method(method);
        let options = DistributedOptions::new().solve(solve).pipelined(pipelined);
        let mut solved = || {
            let mut x = vec![0.0; y.len()];
            let report = own.solve(&y, &mut x, &options).expect("solves");
            assert!(report.converged(), "{:?}", report.outcome);
            (x.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), report.outcome.iterations)
        };
        let first = solved();
        assert!(first == solved() && first == solved(), "bits of {method:?}");
        let all: Vec<u32> = ranks.all_gather(&first.1).expect("counts travel");
        assert!(all.iter().all(|count| *count == all[0]));
    }
    let tiny = laplace(Stencil::Point3, &[2]).expect("a grid");
    let parts = Partition::even(2, ranks.size());
    let mut own =
        DistributedMatrix::from_matrix(ranks, &tiny, &parts, &parts, &usual).expect("all alike");
    let (b, mut x) = (vec![1.0; own.own_rows()], vec![0.0; own.own_rows()]);
    let options = DistributedOptions::new().block_lu(true);
    assert!(own.solve(&b, &mut x, &options).expect("solves").converged());
    // A failure on the last rank alone ends all.
    let last = ranks.size() - 1;
    let mut long = vec![0.0; b.len() + usize::from(ranks.rank() == last)];
    let error = own.solve(&b, &mut long, &options).expect_err("one element too many");
    assert!(error.to_string().contains("entries, expected"), "{error}");
}

/// Before MPI is initialised there is no communicator to take, and after it was finalised there are
/// no ranks.
#[allow(unsafe_code)]
fn finalised() {
    // SAFETY: MPI is not initialised, so that the handle is not used.
    let early = unsafe { Ranks::from_fortran(0, LIMIT) }.err();
    assert_eq!(early, Some(MpiError::Finalised));
    drop(Ranks::world(LIMIT).expect("joins"));

    let again = Ranks::world(LIMIT).err();

    assert_eq!(again, Some(MpiError::Finalised));
    // SAFETY: MPI was finalised, so that the handle is not used.
    let late = unsafe { Ranks::from_fortran(0, LIMIT) }.err();
    assert_eq!(late, Some(MpiError::Finalised));
    let line = again.expect("an error").to_string();
    assert!(line.contains("finalised before") && !line.contains('\n'), "{line}");
}

/// Another process of the job starts MPI and does not come: this one ends within its limit.
fn waits() {
    let tell = |error: &MpiError| eprintln!("error: {error}");
    let _ = Ranks::world_or_abort(Duration::from_secs(1), tell);
    unreachable!("a rank is missing");
}

fn main() {
    let case = std::env::args().nth(1).unwrap_or_default();
    match &*case {
        "waits" => waits(),
        "finalised" => finalised(),
        _ => {
            let ranks = Ranks::world(LIMIT).expect("joins");
            places(&ranks);
            plans(&ranks);
            solves(&ranks);
            faults(&ranks);
            unequal(&ranks);
            unreadable(&ranks);
            distributed(&ranks);
        }
    }
}
