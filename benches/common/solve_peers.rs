//! All contenders of the solver bench: our solver, and a user's other choices.
//!
//! Everything that an application prepares once per pattern is prepared outside the timed call, for
//! all contenders alike: analysis, symbolic factors, index arrays, the peers' matrix objects.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::LltRegularization;
use faer::matrix_free::conjugate_gradient::{
    CgParams, conjugate_gradient, conjugate_gradient_scratch,
};
use faer::matrix_free::{IdentityPrecond, InitialGuessStatus};
use faer::sparse::linalg::cholesky::{SymmetricOrdering, factorize_symbolic_cholesky};
use faer::sparse::{SparseColMatRef, SymbolicSparseColMatRef};
use faer::{ColMut, ColRef, Conj, Par, Side};
use rayon::prelude::*;
use sparsebatch_formats::generate::Family;
use sparsebatch_solvers::{BatchSolver, Method, Preconditioner, SolveOptions};

use crate::scalar_krylov::{ScalarCsr, Vectors, dot, threshold};
use crate::solve_case::{MAX_ITERS, REL_TOL, SolveCase};
use crate::thomas;

/// Systems that a thread takes at a time: few compared with the batch, enough to outweigh the
/// overhead of a task.
const SYSTEMS_PER_TASK: usize = 32;

/// Solves all systems into x, which is 0 on entry; returns the total number of iterations.
type Solve<'a> = Box<dyn FnMut(&mut [f64]) -> usize + 'a>;

/// One way to solve a batch.
pub(crate) struct Peer<'a> {
    /// `sparsebatch`, or the origin of the inner loop.
    pub(crate) library: &'static str,
    /// The method's variant.
    pub(crate) configuration: &'static str,
    /// `cg`, `bicgstab`, `lu`, `cholesky`, `thomas`.
    pub(crate) operation: &'static str,
    /// Whether the method recomputes `b - A x` before it reports convergence.
    pub(crate) verifies: bool,
    /// The call that is timed.
    pub(crate) solve: Solve<'a>,
}

impl Peer<'_> {
    /// A label that is unique among the peers of a case.
    pub(crate) fn label(&self) -> String {
        format!("{} {}", self.library, self.operation)
    }

    pub(crate) fn is_direct(&self) -> bool {
        !matches!(self.operation, "cg" | "bicgstab")
    }
}

/// All contenders of a case, ours first.
pub(crate) fn peers(case: &SolveCase) -> Vec<Peer<'_>> {
    if case.family == Family::Rand9 {
        return vec![ours(case, Method::BiCgStab), scalar(case, "bicgstab")];
    }
    let mut peers = vec![
        ours(case, Method::Cg),
        sprs_cg(case),
        faer_cg(case),
        scalar(case, "cg"),
        faer_cholesky(case),
        ours(case, Method::Lu),
    ];
    if case.family == Family::Tri {
        peers.push(thomas(case));
    }
    peers
}

/// Runs `solve(workspace, item, b, x)` for every system, on all cores; returns the sum of its
/// results.
fn rayon_over<W>(
    case: &SolveCase,
    x: &mut [f64],
    workspace: impl Fn() -> W + Send + Sync,
    solve: impl Fn(&mut W, usize, &[f64], &mut [f64]) -> usize + Send + Sync,
) -> usize {
    let n = case.nrows();
    x.par_chunks_exact_mut(n)
        .zip(case.rhs.par_chunks_exact(n))
        .enumerate()
        .with_min_len(SYSTEMS_PER_TASK)
        .map_init(workspace, |workspace, (item, (x, b))| solve(workspace, item, b, x))
        .sum()
}

/// The values of one system.
fn values(case: &SolveCase, item: usize) -> &[f64] {
    let nnz = case.nnz();
    &case.values()[item * nnz..(item + 1) * nnz]
}

/// Our fused solver, analysed beforehand; values are transposed into lanes within the call.
fn ours(case: &SolveCase, method: Method) -> Peer<'_> {
    let options = SolveOptions::new()
        .method(method)
        .preconditioner(Preconditioner::None)
        .rel_tol(REL_TOL)
        .max_iters(MAX_ITERS as u32);
    let mut solver = BatchSolver::new(&case.batch, &options).expect("the batch is square");
    let configuration = match method {
        Method::Lu => "shared symbolic, one refinement",
        _ => "fused",
    };
    Peer {
        library: "sparsebatch",
        configuration,
        operation: method.name(),
        verifies: true,
        solve: Box::new(move |x| {
            let report = solver.solve(&case.batch, &case.rhs, x).expect("sizes fit");
            let iterations = report.systems.iter().map(|s| s.outcome.iterations as usize);
            iterations.sum()
        }),
    }
}

/// The tuned scalar loops of [`crate::scalar_krylov`].
fn scalar<'a>(case: &'a SolveCase, operation: &'static str) -> Peer<'a> {
    let csr = ScalarCsr::new(case.wide_indices());
    let n = case.nrows();
    let method = match operation {
        "cg" => ScalarCsr::cg,
        _ => ScalarCsr::bicgstab,
    };
    Peer {
        library: "scalar CSR",
        configuration: "tuned loops, rayon over systems",
        operation,
        verifies: false,
        solve: Box::new(move |x| {
            rayon_over(
                case,
                x,
                || Vectors::new(n),
                |vectors, item, b, x| method(&csr, values(case, item), b, x, vectors),
            )
        }),
    }
}

/// CG over sprs products. Each thread has its own vectors; each vector operation is one pass, dot
/// products in four partial sums.
fn sprs_cg(case: &SolveCase) -> Peer<'_> {
    let n = case.nrows();
    let (starts, columns) = case.wide_indices();
    let matrices: Vec<sprs::CsMatView<'_, f64>> = (0..case.nitems)
        .map(|item| sprs::CsMatView::new((n, n), starts, columns, values(case, item)))
        .collect();
    let solve = move |v: &mut [Vec<f64>; 3], item: usize, b: &[f64], x: &mut [f64]| {
        let [r, p, ap] = v;
        let threshold = threshold(b);
        r.copy_from_slice(b);
        p.copy_from_slice(b);
        let mut rho = dot(r, r);
        for iteration in 1..=MAX_ITERS {
            ap.fill(0.0);
            sprs::prod::mul_acc_mat_vec_csr(matrices[item].view(), &p[..], &mut ap[..]);
            let alpha = rho / dot(p, ap);
            x.iter_mut().zip(&*p).for_each(|(x, p)| *x += alpha * p);
            r.iter_mut().zip(&*ap).for_each(|(r, ap)| *r -= alpha * ap);
            let next = dot(r, r);
            if next <= threshold {
                return iteration;
            }
            let beta = next / rho;
            rho = next;
            p.iter_mut().zip(&*r).for_each(|(p, r)| *p = r + beta * *p);
        }
        MAX_ITERS
    };
    Peer {
        library: "sprs",
        configuration: "CG over its products, rayon over systems",
        operation: "cg",
        verifies: false,
        solve: Box::new(move |x| {
            rayon_over(case, x, || [vec![0.0; n], vec![0.0; n], vec![0.0; n]], &solve)
        }),
    }
}

/// faer's own CG over its products in CSC, faer's primary format (the CSR arrays of a symmetric
/// matrix are also its CSC arrays); each thread has its own workspace.
fn faer_cg(case: &SolveCase) -> Peer<'_> {
    let n = case.nrows();
    let (starts, rows) = case.wide_indices();
    let pattern = SymbolicSparseColMatRef::new_checked(n, n, starts, None, rows);
    let params = CgParams {
        // `Zero` leaves the first residual uninitialised in faer 0.24.4.
        initial_guess: InitialGuessStatus::MaybeNonZero,
        rel_tolerance: REL_TOL,
        abs_tolerance: 0.0,
        max_iters: MAX_ITERS,
        ..CgParams::default()
    };
    let solve = move |memory: &mut Option<MemBuffer>, item: usize, b: &[f64], x: &mut [f64]| {
        let a = SparseColMatRef::new(pattern, values(case, item));
        let identity = IdentityPrecond { dim: n };
        let memory = memory.get_or_insert_with(|| {
            MemBuffer::new(conjugate_gradient_scratch(identity, a, 1, Par::Seq))
        });
        let solved = conjugate_gradient(
            ColMut::from_slice_mut(x).as_mat_mut(),
            identity,
            a,
            ColRef::from_slice(b).as_mat(),
            params,
            |_| {},
            Par::Seq,
            MemStack::new(memory),
        );
        solved.map_or(MAX_ITERS, |info| info.iter_count)
    };
    Peer {
        library: "faer",
        configuration: "conjugate_gradient, rayon over systems",
        operation: "cg",
        verifies: false,
        solve: Box::new(move |x| rayon_over(case, x, || None, solve)),
    }
}

/// faer's sparse Cholesky; all systems share the minimum-degree order and the symbolic factor.
fn faer_cholesky(case: &SolveCase) -> Peer<'_> {
    let n = case.nrows();
    let (starts, rows) = case.wide_indices();
    let pattern = SymbolicSparseColMatRef::new_checked(n, n, starts, None, rows);
    let symbolic = factorize_symbolic_cholesky(
        pattern,
        Side::Lower,
        SymmetricOrdering::Amd,
        Default::default(),
    )
    .expect("the factor fits in memory");
    let scratch = symbolic
        .factorize_numeric_llt_scratch::<f64>(Par::Seq, Default::default())
        .or(symbolic.solve_in_place_scratch::<f64>(1, Par::Seq));
    let workspace = {
        let len = symbolic.len_val();
        move || (vec![0.0; len], MemBuffer::new(scratch))
    };
    let solve = move |(factor, memory): &mut (Vec<f64>, MemBuffer),
                      item: usize,
                      b: &[f64],
                      x: &mut [f64]| {
        let a = SparseColMatRef::new(pattern, values(case, item));
        let llt = symbolic
            .factorize_numeric_llt(
                factor,
                a,
                Side::Lower,
                LltRegularization::default(),
                Par::Seq,
                MemStack::new(memory),
                Default::default(),
            )
            .expect("the matrices are positive definite");
        x.copy_from_slice(b);
        let x = ColMut::from_slice_mut(x).as_mat_mut();
        llt.solve_in_place_with_conj(Conj::No, x, Par::Seq, MemStack::new(memory));
        0
    };
    Peer {
        library: "faer",
        configuration: "sparse Cholesky, shared symbolic",
        operation: "cholesky",
        verifies: false,
        solve: Box::new(move |x| rayon_over(case, x, workspace, &solve)),
    }
}

/// The Thomas algorithm, [`thomas::LANES`] systems side by side in plain loops.
fn thomas(case: &SolveCase) -> Peer<'_> {
    let (n, nnz) = (case.nrows(), case.nnz());
    let lanes = thomas::LANES;
    Peer {
        library: "Thomas",
        configuration: "interleaved plain loops",
        operation: "thomas",
        verifies: false,
        solve: Box::new(move |x| {
            x.par_chunks_mut(n * lanes)
                .zip(case.rhs.par_chunks(n * lanes))
                .zip(case.values().par_chunks(nnz * lanes))
                .with_min_len(SYSTEMS_PER_TASK / lanes)
                .for_each_init(
                    || thomas::Workspace::new(n),
                    |workspace, ((x, b), values)| workspace.solve(values, b, x),
                );
            0
        }),
    }
}
