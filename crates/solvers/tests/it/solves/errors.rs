//! Every error that keeps a batch from being solved, with its text; `x` is not touched.

use sparsebatch_cpu_ref::CpuError;
use sparsebatch_cpu_ref::lanes::{LaneOptions, LanePlan};
use sparsebatch_formats::{Batch, Csr, UniformBatch};
use sparsebatch_solve_core::{ArgumentError, Scheme};
use sparsebatch_solvers::{
    BatchSolver, Engine, Method, Order, Preconditioner, SolveError, SolveOptions, SpmvOptions,
    solve,
};

use crate::common::one_step;
use crate::solves::support::{dense, options, ragged, tridiagonal, uniform};

fn error(batch: &Batch<f64>, b: &[f64], x0: Option<&[f64]>, options: &SolveOptions) -> SolveError {
    solve(batch, b, x0, options).expect_err("the input is wrong")
}

fn two() -> Batch<f64> {
    let a = tridiagonal(3, -1.0, 4.0, -1.0);
    Batch::from(uniform(&[a.clone(), a]))
}

#[test]
fn matrices_that_are_not_square_are_named() {
    let wide: Csr<f64> = dense(&[&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]]);
    let batch = ragged(&[dense(&[&[1.0]]), wide, dense(&[&[1.0], &[2.0]])]);

    let error = error(&batch, &[1.0; 5], None, &one_step());

    assert!(matches!(
        error,
        SolveError::Argument(ArgumentError::NotSquare { item: 1, nrows: 2, ncols: 3 })
    ));
    assert_eq!(error.to_string(), "system 1 is 2 x 3, expected a square matrix");
}

#[test]
fn lengths_that_do_not_fit_are_named() {
    let default = one_step();
    let with = |change: &dyn Fn(&mut SolveOptions)| {
        let mut options = one_step();
        change(&mut options);
        options
    };
    let table = [
        (error(&two(), &[1.0; 5], None, &default), "b has 5 entries, expected 6"),
        (error(&two(), &[1.0; 6], Some(&[0.0; 7]), &default), "x0 has 7 entries, expected 6"),
        (error(&two(), &[1.0; 6], None, &with(&|o| o.nrhs = 2)), "b has 6 entries, expected 12"),
        (
            error(&two(), &[1.0; 6], None, &with(&|o| o.rel_tol = Some(vec![1e-3].into()))),
            "rel_tol has 1 entries, expected 2",
        ),
        (
            error(&two(), &[1.0; 6], None, &with(&|o| o.abs_tol = vec![0.0; 3].into())),
            "abs_tol has 3 entries, expected 2",
        ),
        (
            error(&two(), &[1.0; 6], None, &with(&|o| o.max_iters = Vec::new().into())),
            "max_iters has 0 entries, expected 2",
        ),
    ];
    for (error, expected) in table {
        assert!(matches!(error, SolveError::Argument(ArgumentError::Length { .. })));
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn options_out_of_range_are_named() {
    let with = |change: &dyn Fn(&mut SolveOptions)| {
        let mut options = one_step();
        change(&mut options);
        error(&two(), &[1.0; 6], None, &options)
    };
    let negative = "expected a number that is not negative";
    let table = [
        (with(&|o| o.nrhs = 0), "nrhs is 0, expected at least 1".to_owned()),
        (with(&|o| o.rel_tol = Some((-1.0).into())), format!("rel_tol is -1, {negative}")),
        (with(&|o| o.abs_tol = f64::NAN.into()), format!("abs_tol is NaN, {negative}")),
        (with(&|o| o.rel_tol = Some(vec![0.1, -2.0].into())), format!("rel_tol is -2, {negative}")),
        (with(&|o| o.abs_tol = vec![f64::NAN, 0.0].into()), format!("abs_tol is NaN, {negative}")),
        (with(&|o| o.floor = Some(-4.0)), format!("floor is -4, {negative}")),
        (
            with(&|o| {
                o.method = Method::Lu;
                o.engine = Engine::Composed(SpmvOptions::default());
            }),
            "solver is lu, expected cg or bicgstab with a composed engine (a format or a kernel)"
                .to_owned(),
        ),
    ];
    for (error, expected) in table {
        assert!(
            matches!(error, SolveError::Argument(ArgumentError::OutOfRange { .. })),
            "{error:?}"
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn unknown_names_are_told_with_the_known_ones() {
    let solver = "gmres".parse::<Method>().unwrap_err().to_string();
    let precond = "ilu".parse::<Preconditioner>().unwrap_err().to_string();
    let order = "rcm".parse::<Order>().unwrap_err().to_string();

    assert!(solver.starts_with("solver is gmres, expected auto cg bicgstab lu"), "{solver}");
    assert!(precond.contains("none jacobi block-jacobi ilu0 ic0"), "{precond}");
    assert!(order.contains("natural min-degree"), "{order}");
    for (name, method) in Method::NAMES {
        assert_eq!(name.parse::<Method>().unwrap(), *method);
        assert_eq!(method.to_string(), *name);
    }
}

#[test]
fn what_the_backend_refuses_comes_through() {
    let block = |size| {
        let options = options(Method::BiCgStab, Preconditioner::BLOCK_JACOBI).block_size(size);
        error(&two(), &[1.0; 6], None, &options)
    };
    let composed = |spmv: SpmvOptions| {
        let mut options = options(Method::Cg, Preconditioner::None);
        options.engine = Engine::Composed(spmv);
        error(&two(), &[1.0; 6], None, &options)
    };
    use sparsebatch_solve_core::{FormatChoice, KernelChoice};

    let zero = block(0);
    let large = block(129);
    let kernel =
        composed(SpmvOptions::default().format(FormatChoice::Ell).kernel(KernelChoice::CsrI));
    let layout = composed(SpmvOptions::default().layout(sparsebatch_formats::Layout::Interleaved));
    let fill = composed(SpmvOptions::default().format(FormatChoice::Ell).max_fill(f64::NAN));

    assert!(matches!(zero, SolveError::Cpu(CpuError::Symbolic(_))), "{zero:?}");
    assert_eq!(zero.to_string(), "block size is 0, expected 1 to 128");
    assert_eq!(large.to_string(), "block size is 129, expected 1 to 128");
    assert!(
        matches!(kernel, SolveError::Cpu(CpuError::Argument(ArgumentError::OutOfRange { .. }))),
        "{kernel:?}"
    );
    assert!(
        matches!(layout, SolveError::Argument(ArgumentError::OutOfRange { name: "layout", .. })),
        "{layout:?}"
    );
    assert!(matches!(fill, SolveError::Cpu(CpuError::Format(_))), "{fill:?}");
}

#[test]
fn a_lane_plan_refuses_other_lengths() {
    let method = Scheme::Cg(Preconditioner::None);
    let plan = LanePlan::new(&two(), method, LaneOptions::default(), None).unwrap();
    let criteria = one_step().criteria::<f64>(2).unwrap();
    let mut x = vec![7.0; 6];

    let b = plan.solve(&two(), 1, &[1.0; 4], &mut x, &criteria, None).unwrap_err();
    let short = plan.solve(&two(), 1, &[1.0; 6], &mut [0.0; 2], &criteria, None).unwrap_err();
    let one = Batch::from(tridiagonal(3, -1.0, 4.0, -1.0));
    let items = plan.solve(&one, 1, &[1.0; 3], &mut [0.0; 3], &criteria, None).unwrap_err();

    assert_eq!(b.to_string(), "b has 4 entries, expected 6");
    assert_eq!(short.to_string(), "x has 2 entries, expected 6");
    assert_eq!(items.to_string(), "batch has 1 entries, expected 2");
    assert_eq!(x, [7.0; 6]);
}

/// Another pattern with as many rows and entries as the tridiagonal one of 3 rows.
fn arrow() -> Csr<f64> {
    dense(&[&[4.0, 1.0, 1.0], &[1.0, 4.0, 0.0], &[1.0, 0.0, 4.0]])
}

#[test]
fn a_solver_refuses_a_batch_of_other_patterns() {
    for engine in crate::solves::support::engines() {
        let mut options = options(Method::Cg, Preconditioner::Jacobi);
        options.engine = engine;
        let mut solver = BatchSolver::new(&two(), &options).unwrap();
        let other = Batch::from(uniform(&[arrow(), arrow()]));
        let others = ragged(&[tridiagonal(3, -1.0, 4.0, -1.0), arrow()]);
        let three = uniform(&vec![tridiagonal(3, -1.0, 4.0, -1.0); 3]);
        let mut x = vec![7.0; 6];

        let pattern = solver.solve(&other, &[1.0; 6], &mut x).unwrap_err();
        let one_of_two = solver.solve(&others, &[1.0; 6], &mut x).unwrap_err();
        let more = solver.solve(&three.into(), &[1.0; 9], &mut [0.0; 9]).unwrap_err();

        let text = |item| {
            format!("item {item} has another pattern than the one that the plan was made for")
        };
        assert_eq!(pattern.to_string(), text(0), "{:?}", options.engine);
        assert_eq!(one_of_two.to_string(), text(1), "{:?}", options.engine);
        assert_eq!(more.to_string(), "items of the batch has 3 entries, expected 2");
        assert_eq!(x, [7.0; 6]);
    }
}

#[test]
fn numbers_of_systems_and_rows_do_not_wrap() {
    let text =
        |found: u128| format!("number of systems is {found}, the largest supported is 4000000000");
    let a = tridiagonal(2, -1.0, 4.0, -1.0);
    let shared = |nitems| Batch::Uniform(UniformBatch::shared(a.clone(), nitems));
    for method in [Method::Auto, Method::Cg, Method::BiCgStab, Method::Lu] {
        let with = |nrhs| SolveOptions::new().method(method).nrhs(nrhs);
        // Products of items and right-hand sides that wrap to 0 in 64 bits, the largest one, and
        // (below) one that wraps to 1.
        for (nitems, nrhs) in [(2usize, 1usize << 63), (4, 1 << 62), (4, 1 << 63), (1, usize::MAX)]
        {
            let (batch, options) = (shared(nitems), with(nrhs));
            let expected = text(nitems as u128 * nrhs as u128);
            assert_eq!(error(&batch, &[], None, &options).to_string(), expected);
            let made = BatchSolver::new(&batch, &options).map(drop).unwrap_err();
            assert_eq!(made.to_string(), expected);
        }
        let inverse_of_3 = 0xAAAA_AAAA_AAAA_AAAB;
        let wrapped = error(&shared(3), &[1.0, 2.0], None, &with(inverse_of_3));
        assert_eq!(wrapped.to_string(), text(3 * inverse_of_3 as u128));
        assert_eq!(
            error(&shared(usize::MAX), &[], None, &with(1)).to_string(),
            text(u64::MAX.into())
        );
        // The systems are counted, and compared with b, before memory is allocated for each.
        let many = error(&shared(1 << 30), &[1.0; 4], None, &with(1));
        assert_eq!(many.to_string(), "b has 4 entries, expected 2147483648");
    }
}
