//! Products and solves on the emulated GPU.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::Scalar;
use sparsebatch_solvers::{
    Backend, Gpu, InnerPrecision, Method, SolveError, SolveOptions, SolveScalar, solve_on_executor,
};
use sparsebatch_spmv_gpu::flexible::{FlexibleKernel, FlexibleOptions, FlexiblePlan};
use sparsebatch_spmv_gpu::{
    PackedKernel, PackedOptions, PackedPlan, SingleKernel, SingleOptions, SinglePlan,
};

use super::{Case, EMULATED, FMA, Hash, Table, best, cases, check, item_of, vectors, ways};

/// Whether an error says that a kernel is not compiled for the emulation. Such cases have no row.
fn is_not_compiled(error: &GpuError) -> bool {
    matches!(error, GpuError::InvalidArgument { name: "key", .. })
}

type Memory<T> = <Emulator as Executor>::Buffer<T>;

/// Hashes `1.5 A x - 0.5 y` and then `A x`, computed by `apply`, and adds a row.
fn add_product<T: Value>(
    table: &mut Table,
    executor: &Emulator,
    case: String,
    (ncols, nrows): (usize, usize),
    mut apply: impl FnMut(T, &Memory<T>, T, &mut Memory<T>) -> Result<(), GpuError>,
) {
    let (x, y) = vectors::<T>(ncols, nrows);
    let (x, mut y) = (executor.upload(&x).unwrap(), executor.upload(&y).unwrap());
    let mut hash = Hash::new();
    for (alpha, beta) in [(1.5, -0.5), (1.0, 0.0)] {
        match apply(T::from_f64(alpha), &x, T::from_f64(beta), &mut y) {
            Err(error) if is_not_compiled(&error) => return,
            applied => applied.unwrap(),
        }
        hash.values(&executor.download(&y).unwrap());
    }
    table.insert(EMULATED, case, &hash);
}

fn add_products<T: Value + Scalar>(table: &mut Table) {
    let executor = Emulator::new(Order::Forward);
    let stream = PackedKernel::Stream { steps: 4, stages: 3, warps: 4 };
    let packed = [None, Some(stream), Some(PackedKernel::Registers { depth: 4 })];
    for Case { name, batch, b } in cases::<T>() {
        let sizes = (b.len(), b.len());
        for kernel in packed {
            let options = PackedOptions::default().kernel(kernel);
            let plan = PackedPlan::new(executor.clone(), &batch, options).unwrap();
            let case = format!("product {name} packed {kernel:?}");
            let apply = |alpha, x: &_, beta, y: &mut _| plan.apply(alpha, x, beta, y);
            add_product(table, &executor, case, sizes, apply);
        }
        for &kernel in FlexibleKernel::ALL {
            let plan = FlexiblePlan::new(&executor, &batch, FlexibleOptions::new(kernel)).unwrap();
            let case = format!("product {name} flexible {}", kernel.name());
            let apply = |alpha, x: &_, beta, y: &mut _| plan.apply(alpha, x, beta, y);
            add_product(table, &executor, case, sizes, apply);
        }
        let matrix = item_of(&batch, 0);
        let sizes = (matrix.ncols(), matrix.nrows());
        for &kernel in SingleKernel::ALL {
            let options = SingleOptions::with_kernel(kernel).max_fill(1e9);
            let mut plan = SinglePlan::new(&executor, matrix.view(), &options).unwrap();
            let case = format!("product {name}, the first alone, {kernel}");
            let apply = |alpha, x: &_, beta, y: &mut _| plan.apply(alpha, x, beta, y);
            add_product(table, &executor, case, sizes, apply);
        }
    }
}

#[test]
fn products_keep_their_bits() {
    let mut table = Table::default();
    add_products::<f64>(&mut table);
    add_products::<f32>(&mut table);
    check("gpu_products.tsv", table, &[EMULATED]);
}

/// The set of solves. It depends on the CPU, which confirms converged systems and runs the ladder's
/// last rung.
fn solves_set() -> &'static str {
    if best() == FMA { "emulated fma" } else { "emulated baseline" }
}

fn add_solves<T: SolveScalar>(table: &mut Table) {
    let set = solves_set();
    let gpu = |or_cpu| Gpu::new(Emulator::new(Order::Forward)).or_cpu(or_cpu);
    let (alone, helped) = (Backend::Gpu(gpu(false)), Backend::Gpu(gpu(true)));
    for Case { name, batch, b } in cases::<T>() {
        for (way, options) in ways() {
            let in_f64 = options.inner_precision(InnerPrecision::Working);
            let mut of = |way: String, options: &SolveOptions| {
                // The ladder's last rung runs on the CPU.
                let backend = if options.fallback { &helped } else { &alone };
                let solution = match solve_on_executor(backend, &batch, &b, None, options) {
                    Ok(solution) => solution,
                    Err(SolveError::Gpu(error)) if is_not_compiled(&error) => return,
                    Err(error) => panic!("{name} {way}: {error}"),
                };
                let mut hash = Hash::new();
                hash.solve(&solution.x, &solution.report);
                table.insert(set, format!("solve {name} {way}"), &hash);
            };
            if matches!(in_f64.method, Method::Cg | Method::BiCgStab) {
                let mixed = in_f64.clone().inner_precision(InnerPrecision::Auto);
                of(format!("{way} mixed"), &mixed);
            }
            of(way, &in_f64);
        }
    }
}

#[test]
fn solves_keep_their_bits() {
    let mut table = Table::default();
    add_solves::<f64>(&mut table);
    add_solves::<f32>(&mut table);
    check("gpu_solves.tsv", table, &[solves_set()]);
}
