//! Whole solves on a real GPU, compared with the CPU's: batches of all families, in one launch or
//! several concurrent ones, repeated, and from a graph.

use sparsebatch_cuda::device::Graph;
use sparsebatch_cuda::testing::{device_or_skip, systems};
use sparsebatch_cuda::{Device, DeviceBuffer, Executor};
use sparsebatch_formats::generate::{Family, GeneratedBatch, Problem};
use sparsebatch_formats::{Batch, Csr};
use sparsebatch_solvers::gpu::{FusedSolver, GpuTuning, Guess, ValuePlace};
use sparsebatch_solvers::{
    InnerPrecision, Method, Outcome, Preconditioner, SolveOptions, Status, solve,
};

fn options(method: Method, preconditioner: Preconditioner) -> SolveOptions {
    let inner_precision = InnerPrecision::Working;
    SolveOptions::new()
        .method(method)
        .preconditioner(preconditioner)
        .inner_precision(inner_precision)
        .fallback(false)
}

/// Every bit of a solve's result.
fn bits(x: &[f64], outcomes: &[Outcome]) -> (Vec<u64>, Vec<(Status, u32, u64)>) {
    let of = |o: &Outcome| (o.status, o.iterations, o.residual_norm.to_bits());
    (x.iter().map(|v| v.to_bits()).collect(), outcomes.iter().map(of).collect())
}

/// Compares a solve with the CPU's: iteration counts within 10 % on average, and each within 25 %,
/// since rounding alone changes those of BiCGStab. With iterations in f32, in which BiCGStab
/// restarts, twice that.
fn compare(what: &str, batch: &Batch<f64>, b: &[f64], options: &SolveOptions, found: &[Outcome]) {
    let cpu = solve(batch, b, None, options).unwrap();
    let wide = if options.inner_precision == InnerPrecision::Working { 1.0 } else { 2.0 };
    let (mut ours, mut theirs) = (0.0, 0.0);
    for (item, (gpu, cpu)) in found.iter().zip(&cpu.report.systems).enumerate() {
        let (g, c) = (f64::from(gpu.iterations), f64::from(cpu.outcome.iterations));
        let what = format!("{what} item {item}: {gpu:?}, {:?}", cpu.outcome);
        assert_eq!((gpu.status, cpu.outcome.status), (Status::Converged, gpu.status), "{what}");
        assert!((g - c).abs() <= (0.25 * wide * c).max(2.0), "{what}");
        assert!(gpu.residual_norm <= 1e-10 * gpu.rhs_norm, "{what}");
        (ours, theirs) = (ours + g, theirs + c);
    }
    let close = (ours - theirs).abs() <= 0.1 * wide * theirs;
    assert!(close, "{what}: {ours}, {theirs} iterations in all");
}

fn families(method: Method) -> Vec<(Family, usize)> {
    use Family::{Lap2d, Rand9, Tri};
    let mut families = vec![
        (Tri, 1),
        (Tri, 13),
        (Tri, 32),
        (Tri, 64),
        (Tri, 128),
        (Tri, 256),
        (Tri, 512),
        (Tri, 1024),
        (Tri, 2000),
        (Lap2d, 16),
        (Lap2d, 256),
        (Lap2d, 900),
    ];
    if method == Method::BiCgStab {
        families.extend([(Rand9, 54), (Rand9, 144), (Rand9, 200), (Rand9, 512), (Rand9, 992)]);
    }
    families
}

/// Systems of one pattern, on the host and on the device.
struct Uniform {
    problem: GeneratedBatch<f64>,
    values: DeviceBuffer<f64>,
    b: DeviceBuffer<f64>,
}

impl Uniform {
    fn new(device: &Device, family: Family, nrows: usize, items: usize) -> Self {
        let problem = Problem::new(family, nrows).unwrap().batch(items).unwrap();
        let Batch::Uniform(batch) = &problem.batch else { unreachable!("one pattern") };
        let values: Vec<f64> = (0..items).flat_map(|k| batch.to_matrix(k).into_parts().1).collect();
        let values = device.upload(&values).unwrap();
        let b = device.upload(&problem.rhs).unwrap();
        Self { problem, values, b }
    }

    fn plan(
        &self,
        device: &Device,
        options: &SolveOptions,
        tuning: &GpuTuning,
    ) -> FusedSolver<Device, f64> {
        let (pattern, items) = (self.problem.batch.pattern(0), self.problem.batch.nitems());
        FusedSolver::with_tuning(device, pattern, items, options, tuning).unwrap()
    }
}

/// Launches a recorded solve.
fn start(graph: &Graph) {
    // SAFETY: in each test here buffers and plan outlive the graph, and results are downloaded,
    // which waits for the work.
    #[expect(unsafe_code, reason = "the launch of a graph")]
    unsafe { graph.launch() }.unwrap();
}

#[test]
fn uniform_batches_agree_with_the_cpu() {
    let Some(device) = device_or_skip() else { return };
    let items = systems(300);
    for method in [Method::Cg, Method::BiCgStab] {
        for (family, nrows) in families(method) {
            let uniform = Uniform::new(&device, family, nrows, items);
            let Uniform { problem, values, b } = &uniform;
            for preconditioner in [Preconditioner::None, Preconditioner::Jacobi] {
                let auto = InnerPrecision::Auto;
                for (place, inner_precision) in [
                    (None, InnerPrecision::Working),
                    (None, auto),
                    (Some(ValuePlace::Shared), InnerPrecision::Working),
                    (Some(ValuePlace::Global), InnerPrecision::Working),
                ] {
                    // Systems of a few rows end by exhausting the Krylov space in f64 only.
                    let mixed = Some(inner_precision == auto && nrows >= 64);
                    let tuning = GpuTuning::default().values(place).mixed(mixed);
                    let options = options(method, preconditioner).inner_precision(inner_precision);
                    let mut plan = uniform.plan(&device, &options, &tuning);
                    let mut x = device.alloc_zeroed(problem.rhs.len()).unwrap();
                    let mut run = || {
                        plan.solve(values, b, Guess::Zero, &mut x).unwrap();
                        bits(&device.download(&x).unwrap(), &plan.outcomes().unwrap())
                    };
                    let first = run();
                    assert_eq!(run(), first, "{}", plan.explain());
                    let what = plan.explain().kernels();
                    let outcomes = plan.outcomes().unwrap();
                    compare(&what, &problem.batch, &problem.rhs, &options, &outcomes);
                }
            }
        }
    }
}

/// Kernels compiled with guesses give the same results: from zero guesses, a batch is solved as
/// without guesses, bit for bit.
#[test]
fn zeros_as_guesses_change_no_bit_also_in_a_graph() {
    let Some(device) = device_or_skip() else { return };
    let items = systems(60);
    for (method, preconditioner, inner_precision) in [Method::Cg, Method::BiCgStab]
        .into_iter()
        .flat_map(|method| [Preconditioner::None, Preconditioner::Jacobi].map(|p| (method, p)))
        .flat_map(|(method, preconditioner)| {
            [InnerPrecision::Working, InnerPrecision::Auto].map(|p| (method, preconditioner, p))
        })
    {
        for (family, nrows) in families(method) {
            let uniform = Uniform::new(&device, family, nrows, items);
            let Uniform { problem, values, b } = &uniform;
            let options = options(method, preconditioner).inner_precision(inner_precision);
            let tuning = GpuTuning::default().mixed(Some(nrows >= 64));
            let mut plan = uniform.plan(&device, &options, &tuning);
            let mut x = device.alloc_zeroed(problem.rhs.len()).unwrap();
            plan.solve(values, b, Guess::Zero, &mut x).unwrap();
            let without = bits(&device.download(&x).unwrap(), &plan.outcomes().unwrap());

            plan.prepare(Guess::InX).unwrap();
            let graph = device
                .capture(|_| {
                    let solved = plan.solve(values, b, Guess::InX, &mut x);
                    solved.unwrap_or_else(|error| panic!("{error}"));
                    Ok(())
                })
                .unwrap();
            device.fill_zero(&mut x).unwrap();
            start(&graph);
            let with = bits(&device.download(&x).unwrap(), &plan.outcomes().unwrap());
            assert!(with == without, "{} {nrows}: {}", family.name(), plan.explain());

            // From the solutions no iteration is needed.
            start(&graph);
            let again = plan.outcomes().unwrap();
            assert!(again.iter().all(|o| (o.status, o.iterations) == (Status::Converged, 0)));
        }
    }
}

/// Systems of all families in alternation.
fn mix(method: Method) -> (Batch<f64>, Vec<f64>) {
    let families = families(method);
    let (mut matrices, mut b) = (Vec::new(), Vec::new());
    for item in 0..systems(600) {
        let (family, nrows) = families[item * 7 % families.len()];
        let problem = Problem::new(family, nrows).unwrap();
        let (pattern, mut values) = (problem.pattern(), Vec::new());
        problem.push_values(item as u64, &mut values);
        problem.push_rhs(item as u64, &mut b);
        let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
        matrices.push(Csr::try_new(nrows, nrows, row_ptr, col_idx, values).unwrap());
    }
    (matrices.into_iter().collect(), b)
}

#[test]
fn ragged_batches_agree_with_the_cpu_also_from_a_graph() {
    let Some(device) = device_or_skip() else { return };
    for (method, inner_precision) in [Method::Cg, Method::BiCgStab].into_iter().flat_map(|method| {
        [InnerPrecision::Working, InnerPrecision::Auto].map(|inner| (method, inner))
    }) {
        let (batch, b) = mix(method);
        let Batch::Ragged(ragged) = &batch else { unreachable!("collected") };
        let options = options(method, Preconditioner::Jacobi).inner_precision(inner_precision);
        let mut plan = FusedSolver::for_batch(&device, &batch, &options).unwrap();
        let values = device.upload(ragged.values()).unwrap();
        let b_buffer = device.upload(&b).unwrap();
        let mut x: DeviceBuffer<f64> = device.alloc_zeroed(b.len()).unwrap();

        plan.solve(&values, &b_buffer, Guess::Zero, &mut x).unwrap();
        let outcomes = plan.outcomes().unwrap();
        let first = bits(&device.download(&x).unwrap(), &outcomes);
        compare(&plan.explain().kernels(), &batch, &b, &options, &outcomes);
        for _ in 0..5 {
            plan.solve(&values, &b_buffer, Guess::Zero, &mut x).unwrap();
            let again = bits(&device.download(&x).unwrap(), &plan.outcomes().unwrap());
            assert_eq!(again, first);
        }

        let graph = device
            .capture(|_| {
                let solved = plan.solve(&values, &b_buffer, Guess::Zero, &mut x);
                solved.unwrap_or_else(|error| panic!("{error}"));
                Ok(())
            })
            .unwrap();
        for _ in 0..3 {
            device.fill_zero(&mut x).unwrap();
            start(&graph);
            let again = bits(&device.download(&x).unwrap(), &plan.outcomes().unwrap());
            assert_eq!(again, first);
        }
    }
}

/// Systems that clusters of 2, 4 and 8 blocks solve; repeated solves give the same bits.
#[test]
fn systems_of_clusters_agree_with_the_cpu() {
    let Some(device) = device_or_skip() else { return };
    if device.info().compute_capability < (9, 0) {
        println!("skipped: the GPU has no clusters");
        return;
    }
    use Family::{Lap2d, Rand9, Tri};
    let items = systems(40);
    // Grids are squares with sides of 65, 100, 142 and 181.
    let sizes = [
        (Tri, 4200),
        (Tri, 32_768),
        (Lap2d, 4225),
        (Lap2d, 10_000),
        (Lap2d, 20_164),
        (Lap2d, 32_761),
        (Rand9, 4200),
        (Rand9, 10_000),
        (Rand9, 20_000),
        (Rand9, 32_768),
    ];
    for (family, nrows) in sizes {
        let uniform = Uniform::new(&device, family, nrows, items);
        let Uniform { problem, values, b } = &uniform;
        for (method, preconditioner) in [Method::Cg, Method::BiCgStab]
            .into_iter()
            .flat_map(|method| [Preconditioner::None, Preconditioner::Jacobi].map(|p| (method, p)))
        {
            if method == Method::Cg && family == Rand9 {
                continue;
            }
            for place in [None, Some(ValuePlace::Global)] {
                let tuning = GpuTuning::default().values(place);
                let options = options(method, preconditioner);
                let mut plan = uniform.plan(&device, &options, &tuning);
                assert!(
                    plan.explain().launches[0].fused().unwrap().blocks_per_system > 1,
                    "{}",
                    plan.explain()
                );
                let mut x = device.alloc_zeroed(problem.rhs.len()).unwrap();
                let mut run = || {
                    plan.solve(values, b, Guess::Zero, &mut x).unwrap();
                    bits(&device.download(&x).unwrap(), &plan.outcomes().unwrap())
                };
                let first = run();
                for _ in 0..3 {
                    assert_eq!(run(), first, "{}", plan.explain());
                }
                let what = format!("{} {nrows} by {}", family.name(), plan.explain().kernels());
                println!("{what}");
                let outcomes = plan.outcomes().unwrap();
                compare(&what, &problem.batch, &problem.rhs, &options, &outcomes);
            }
        }
    }
}

/// Large and small systems in one ragged batch: bins with clusters beside others.
#[test]
fn ragged_batches_have_bins_of_clusters() {
    let Some(device) = device_or_skip() else { return };
    if device.info().compute_capability < (9, 0) {
        println!("skipped: the GPU has no clusters");
        return;
    }
    let sizes =
        [(Family::Tri, 100), (Family::Lap2d, 4900), (Family::Tri, 20_000), (Family::Lap2d, 256)];
    let (mut matrices, mut b) = (Vec::new(), Vec::new());
    for item in 0..systems(200) {
        let (family, nrows) = sizes[item % sizes.len()];
        let problem = Problem::new(family, nrows).unwrap();
        let (pattern, mut values) = (problem.pattern(), Vec::new());
        problem.push_values(item as u64, &mut values);
        problem.push_rhs(item as u64, &mut b);
        let (row_ptr, col_idx) = (pattern.row_ptr().to_vec(), pattern.col_idx().to_vec());
        matrices.push(Csr::try_new(nrows, nrows, row_ptr, col_idx, values).unwrap());
    }
    let batch: Batch<f64> = matrices.into_iter().collect();
    let Batch::Ragged(ragged) = &batch else { unreachable!("collected") };
    let options = options(Method::Cg, Preconditioner::Jacobi);
    let mut plan = FusedSolver::for_batch(&device, &batch, &options).unwrap();
    let values = device.upload(ragged.values()).unwrap();
    let b_buffer = device.upload(&b).unwrap();
    let mut x: DeviceBuffer<f64> = device.alloc_zeroed(b.len()).unwrap();

    plan.solve(&values, &b_buffer, Guess::Zero, &mut x).unwrap();
    let first = bits(&device.download(&x).unwrap(), &plan.outcomes().unwrap());
    compare(&plan.explain().kernels(), &batch, &b, &options, &plan.outcomes().unwrap());
    for _ in 0..5 {
        plan.solve(&values, &b_buffer, Guess::Zero, &mut x).unwrap();
        assert_eq!(bits(&device.download(&x).unwrap(), &plan.outcomes().unwrap()), first);
    }
}
