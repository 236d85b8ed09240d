//! Products and solves on the CPU.

use sparsebatch_cpu_ref::lanes::{LaneOptions, LanePlan};
use sparsebatch_cpu_ref::{CpuScalar, SpmvPlan};
use sparsebatch_solve_core::{
    Criteria, FormatChoice, KernelChoice, Order, PerSystem, Preconditioner, Scheme, SpmvOptions,
};
use sparsebatch_solvers::{BatchSolver, Method, SolveOptions, SolveScalar, solve};

use super::{Case, Hash, Table, best, cases, check, instruction_sets, item_of, vectors, ways};

/// Every format with each of its kernels.
fn products() -> Vec<SpmvOptions> {
    use FormatChoice::{Auto, Coo, Csr, Dia, Ell, Hyb, SellP};
    use KernelChoice::{Blocks, CsrI, Entries, Rows, Runs};
    let kernels = [
        (Auto, KernelChoice::Auto),
        (Csr, Rows),
        (Csr, CsrI),
        (Coo, Entries),
        (Ell, Rows),
        (Hyb, Rows),
        (Dia, Rows),
        (Dia, Blocks),
        (SellP, Rows),
        (SellP, Runs),
    ];
    let of = |(format, kernel)| SpmvOptions::default().format(format).kernel(kernel).max_fill(1e6);
    kernels.map(of).to_vec()
}

fn hash_product<T: CpuScalar>(plan: &SpmvPlan<T>) -> Hash {
    let nrhs = plan.nrhs();
    let (x, mut y) = vectors::<T>(plan.ncols() * nrhs, plan.nrows() * nrhs);
    plan.apply(T::from_f64(1.5), &x, T::from_f64(-0.5), &mut y).unwrap();
    let mut hash = Hash::new();
    hash.values(&y);
    plan.apply(T::ONE, &x, T::ZERO, &mut y).unwrap();
    hash.values(&y);
    hash
}

fn add_products<T: CpuScalar>(table: &mut Table) {
    for Case { name, batch, .. } in cases::<T>() {
        for options in products() {
            let (format, kernel) = (options.format, options.kernel);
            for nrhs in [1, 3] {
                let options = options.clone().nrhs(nrhs);
                let case = format!("product {name} {format:?} {kernel:?} x {nrhs}");
                // Some kernels support a single matrix only.
                if let Ok(plan) = SpmvPlan::new(&batch, &options) {
                    table.insert(best(), case, &hash_product(&plan));
                }
            }
            let matrix = item_of(&batch, 0);
            let plan = SpmvPlan::new(&matrix, &options).unwrap();
            let case = format!("product {name}, the first alone, {format:?} {kernel:?}");
            table.insert(best(), case, &hash_product(&plan));
        }
    }
}

#[test]
fn products_keep_their_bits() {
    let mut table = Table::default();
    add_products::<f64>(&mut table);
    add_products::<f32>(&mut table);
    check("cpu_products.tsv", table, &[best()]);
}

fn schemes() -> Vec<Scheme> {
    use Preconditioner::{Jacobi, None};
    let preconditioners = [
        None,
        Jacobi,
        Preconditioner::BLOCK_JACOBI.with_block_size(Some(3)),
        Preconditioner::ILU0.with_order(Order::MinDegree),
        Preconditioner::IC0,
    ];
    let with = |method: fn(Preconditioner) -> Scheme| preconditioners.map(method);
    let mut methods = [with(Scheme::Cg), with(Scheme::BiCgStab)].concat();
    methods.push(Scheme::Lu);
    methods
}

/// Adds solves in lanes with each instruction set.
fn add_lanes<T: CpuScalar>(table: &mut Table) {
    let criteria = Criteria {
        rel_tol: PerSystem::All(1e-9),
        abs_tol: PerSystem::All(0.0),
        max_iters: PerSystem::All(60),
        max_restarts: 2,
        floor: Some(2.0),
        history: true,
        watch: None,
    };
    for (set, isa) in instruction_sets() {
        for Case { name, batch, b } in cases::<T>() {
            for scheme in schemes() {
                let options = LaneOptions { isa: Some(isa), ..LaneOptions::default() };
                let plan = LanePlan::new(&batch, scheme, options, None).unwrap();
                let mut x = vec![T::ZERO; b.len()];
                let outcomes = plan.solve(&batch, 1, &b, &mut x, &criteria, None).unwrap();
                let mut hash = Hash::new();
                hash.values(&x);
                outcomes.iter().for_each(|outcome| hash.outcome(outcome));
                table.insert(set, format!("lanes {name} {scheme}"), &hash);
            }
        }
    }
}

/// Adds whole solves with one and with three right-hand sides, and solves with kept factors.
fn add_solves<T: SolveScalar>(table: &mut Table) {
    for Case { name, batch, b } in cases::<T>() {
        for (way, options) in ways() {
            let solution = solve(&batch, &b, None, &options).unwrap();
            let mut hash = Hash::new();
            hash.solve(&solution.x, &solution.report);
            table.insert(best(), format!("solve {name} {way}"), &hash);
        }
        let options = SolveOptions::new().nrhs(3);
        let (b, _) = vectors::<T>(3 * b.len(), 0);
        let solution = solve(&batch, &b, None, &options).unwrap();
        let mut hash = Hash::new();
        hash.solve(&solution.x, &solution.report);
        table.insert(best(), format!("solve {name} x 3"), &hash);

        let options = options.method(Method::Lu);
        let mut solver = BatchSolver::new(&batch, &options).unwrap();
        solver.factor(&batch).unwrap();
        let mut x = vec![T::ZERO; b.len()];
        let report = solver.solve_again(&b, &mut x).unwrap();
        let mut hash = Hash::new();
        hash.solve(&x, &report);
        table.insert(best(), format!("solve {name} x 3 with kept factors"), &hash);
    }
}

#[test]
fn solves_keep_their_bits() {
    let mut table = Table::default();
    add_lanes::<f64>(&mut table);
    add_lanes::<f32>(&mut table);
    add_solves::<f64>(&mut table);
    add_solves::<f32>(&mut table);
    let sets: Vec<&str> = instruction_sets().into_iter().map(|(set, _)| set).collect();
    check("cpu_solves.tsv", table, &sets);
}
