//! The sparse LU of systems of any patterns in one plan: [`LuForm::BySystem`].

use kernel_emu::{Emulator, Order};
use sparsebatch_formats::{Batch, Csr, UniformBatch};
use sparsebatch_solvers::{
    Backend, Chunks, Gpu, LuForm, Method, Solution, SolveOptions, Status, solve_on_executor,
};

use crate::backends::common::{agree, bits, chain, dense, gpu, patterns, ragged, rhs};

/// The kernel of a plan for any patterns in reports.
const BY_COLUMNS: &str = "lu(32 threads, by columns)";

fn lu() -> SolveOptions {
    SolveOptions::new().method(Method::Lu).lu_form(LuForm::BySystem).fallback(false)
}

fn emulator() -> Emulator {
    Emulator::new(Order::Forward)
}

fn solve(batch: &Batch<f64>, options: &SolveOptions) -> Solution<f64> {
    let b = rhs(batch, options.nrhs);
    solve_on_executor(&gpu(&emulator()), batch, &b, None, options).unwrap()
}

#[test]
fn systems_of_many_patterns_have_one_plan() {
    let batch = ragged(patterns::<f64>(13));
    let b = rhs(&batch, 2);
    let report = agree("by system", &gpu(&emulator()), &batch, &b, None, &lu().nrhs(2)).report;
    assert!(report.all_converged());
    assert_eq!(report.kernel, BY_COLUMNS);
    let report = solve(&batch, &lu().lu_form(LuForm::ByPattern)).report;
    assert!(!report.kernel.contains("by columns"), "{}", report.kernel);
}

/// The systems of `batch` have the bits that each has alone.
fn are_as_alone(batch: &Batch<f64>, b: &[f64], solution: &Solution<f64>) {
    for item in 0..batch.nitems() {
        let alone = Batch::from(batch.to_csr(item));
        let own = &b[batch.row_offset(item)..batch.row_offset(item + 1)];
        let solved = solve_on_executor(&gpu(&emulator()), &alone, own, None, &lu()).unwrap();
        assert_eq!(bits(batch, solution, 1, item), bits(&alone, &solved, 1, 0), "{item}");
    }
}

#[test]
fn neighbours_and_chunks_change_no_bit() {
    let mut matrices = patterns::<f64>(13);
    matrices[4].values_mut()[3] = f64::NAN;
    matrices[7].values_mut()[0] = 0.0;
    let batch = ragged(matrices);
    let b = rhs(&batch, 1);
    let all = solve(&batch, &lu());
    assert_eq!(all.report.systems[4].outcome.status, Status::NonFinite);
    are_as_alone(&batch, &b, &all);
    let chunks = Chunks::default().bytes(1500);
    let backend = Backend::Gpu(Gpu::new(emulator()).in_chunks(true).chunks(chunks));
    let chunked = solve_on_executor(&backend, &batch, &b, None, &lu()).unwrap();
    assert!(chunked.report.runs[0].chunks > 1, "{:?}", chunked.report.runs);
    are_as_alone(&batch, &b, &chunked);
}

#[test]
fn values_of_one_item_for_all_give_the_bits_of_copies() {
    let shared = UniformBatch::shared(chain::<f64>(12, 2.5), 5);
    let copies = Batch::Uniform(shared.to_item_major());
    let b = rhs(&copies, 1);
    let solution = solve(&Batch::Uniform(shared), &lu());
    assert_eq!(solution.report.kernel, BY_COLUMNS);
    are_as_alone(&copies, &b, &solution);
}

/// Systems beyond the shared memory of a block have a plan of their pattern; the others share one.
#[test]
fn a_system_that_is_too_large_leaves_the_others_together() {
    let mut matrices: Vec<Csr<f64>> = patterns(6);
    matrices.insert(3, dense(160, 200.0));
    let batch = ragged(matrices);
    let b = rhs(&batch, 1);
    let solution = agree("one too large", &gpu(&emulator()), &batch, &b, None, &lu());
    assert!(solution.report.all_converged());
    let kernel = &solution.report.kernel;
    assert!(kernel.starts_with(&format!("{BY_COLUMNS} (6 systems), lu(")), "{kernel}");
    are_as_alone(&batch, &b, &solution);
}
