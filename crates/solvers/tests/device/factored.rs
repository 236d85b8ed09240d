//! Solves with factorised preconditioners on a real GPU, compared with the CPU's: in every place,
//! with kept factors, with complete factors, and from a graph.

use std::time::Instant;

use sparsebatch_cuda::testing::{device_or_skip, systems};
use sparsebatch_cuda::{Device, DeviceBuffer, Executor};
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, BatchValues, Csr, Pattern, RaggedCsr, UniformBatch};
use sparsebatch_solvers::gpu::{
    FactoredPlace, FactoredSolver, FactoredTuning, GpuSolver, Guess, RaggedFactored,
};
use sparsebatch_solvers::{
    Backend, Gpu, Method, Order, Outcome, PrecondPrecision, Preconditioner, SolveOptions, Status,
    solve, solve_on,
};
use sparsebatch_testing::random_vector;

const PRECONDITIONERS: [Preconditioner; 3] =
    [Preconditioner::BLOCK_JACOBI, Preconditioner::ILU0, Preconditioner::IC0];

/// Every bit of a solve's result.
fn bits(x: &[f64], outcomes: &[Outcome]) -> (Vec<u64>, Vec<(Status, u32, u64)>) {
    let of = |o: &Outcome| (o.status, o.iterations, o.residual_norm.to_bits());
    (x.iter().map(|v| v.to_bits()).collect(), outcomes.iter().map(of).collect())
}

/// Compares a solve with the CPU's: iteration counts within 10 % on average (or 2), and each within
/// 40 %, since rounding alone changes those of BiCGStab.
fn compare(what: &str, batch: &Batch<f64>, b: &[f64], options: &SolveOptions, found: &[Outcome]) {
    let cpu = solve(batch, b, None, options).unwrap();
    let rel_tol = options.rel_tol_of::<f64>(0);
    let (mut ours, mut theirs) = (0.0, 0.0);
    for (item, (gpu, cpu)) in found.iter().zip(&cpu.report.systems).enumerate() {
        let (g, c) = (f64::from(gpu.iterations), f64::from(cpu.outcome.iterations));
        let what = format!("{what} item {item}: {gpu:?}, {:?}", cpu.outcome);
        assert_eq!((gpu.status, cpu.outcome.status), (Status::Converged, gpu.status), "{what}");
        assert!((g - c).abs() <= (0.4 * c).max(2.0), "{what}");
        assert!(gpu.residual_norm <= rel_tol * gpu.rhs_norm, "{what}");
        (ours, theirs) = (ours + g, theirs + c);
    }
    let close = (0.1 * theirs).max(2.0);
    assert!((ours - theirs).abs() <= close, "{what}: {ours}, {theirs} iterations in all");
}

/// A batch on the device.
struct Loaded {
    batch: Batch<f64>,
    rhs: Vec<f64>,
    values: DeviceBuffer<f64>,
    b: DeviceBuffer<f64>,
    x: DeviceBuffer<f64>,
}

impl Loaded {
    fn new(device: &Device, family: Family, nrows: usize, items: usize) -> Self {
        let problem = Problem::new(family, nrows).unwrap().batch(items).unwrap();
        let Batch::Uniform(batch) = &problem.batch else { unreachable!("one pattern") };
        let values: Vec<f64> = (0..items).flat_map(|k| batch.to_matrix(k).into_parts().1).collect();
        Self {
            values: device.upload(&values).unwrap(),
            b: device.upload(&problem.rhs).unwrap(),
            x: device.alloc_zeroed(problem.rhs.len()).unwrap(),
            batch: problem.batch,
            rhs: problem.rhs,
        }
    }

    fn plan(
        &self,
        device: &Device,
        options: &SolveOptions,
        tuning: &FactoredTuning,
    ) -> FactoredSolver<Device, f64> {
        let Batch::Uniform(batch) = &self.batch else { unreachable!("one pattern") };
        let (pattern, items) = (batch.pattern().view(), batch.nitems());
        FactoredSolver::with_tuning(device, pattern, items, options, tuning).unwrap()
    }

    fn solve(
        &mut self,
        device: &Device,
        plan: &mut FactoredSolver<Device, f64>,
    ) -> (Vec<u64>, Vec<(Status, u32, u64)>) {
        plan.solve(&self.values, &self.b, Guess::Zero, &mut self.x).unwrap();
        bits(&device.download(&self.x).unwrap(), &plan.outcomes().unwrap())
    }
}

#[test]
fn uniform_batches_agree_with_the_cpu_in_every_place() {
    let Some(device) = device_or_skip() else { return };
    let shapes = [
        (None, None),
        (Some(32), Some(FactoredPlace::AllShared)),
        (Some(128), Some(FactoredPlace::AllShared)),
        (Some(512), Some(FactoredPlace::AllShared)),
        (Some(128), Some(FactoredPlace::ValuesGlobal)),
        (Some(512), Some(FactoredPlace::ValuesGlobal)),
        (Some(512), Some(FactoredPlace::FactorsGlobal)),
        (Some(512), Some(FactoredPlace::AllGlobal)),
    ];
    for (family, nrows) in [
        (Family::Tri, 1),
        (Family::Tri, 32),
        (Family::Tri, 200),
        (Family::Lap2d, 16),
        (Family::Lap2d, 256),
        (Family::Lap2d, 900),
        (Family::Rand9, 54),
        (Family::Rand9, 200),
    ] {
        let mut loaded = Loaded::new(&device, family, nrows, systems(500));
        for method in [Method::Cg, Method::BiCgStab] {
            for preconditioner in PRECONDITIONERS {
                let symmetric = method == Method::Cg || preconditioner == Preconditioner::IC0;
                if family == Family::Rand9 && symmetric {
                    continue;
                }
                for (order, precond_precision) in [
                    (Order::Natural, PrecondPrecision::Working),
                    (Order::MinDegree, PrecondPrecision::Working),
                    (Order::MinDegree, PrecondPrecision::Single),
                ] {
                    let options = SolveOptions::new()
                        .method(method)
                        .preconditioner(preconditioner)
                        .order(order)
                        .precond_precision(precond_precision)
                        .fallback(false);
                    for (threads, place) in shapes {
                        let tuning = FactoredTuning::default().threads(threads).place(place);
                        let mut plan = loaded.plan(&device, &options, &tuning);
                        let first = loaded.solve(&device, &mut plan);
                        let what = plan.explain().to_string();
                        compare(
                            &what,
                            &loaded.batch,
                            &loaded.rhs,
                            &options,
                            &plan.outcomes().unwrap(),
                        );
                        assert_eq!(loaded.solve(&device, &mut plan), first, "{what}");
                        // The same factors, kept.
                        plan.factorise(&loaded.values).unwrap();
                        assert_eq!(loaded.solve(&device, &mut plan), first, "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn large_systems_agree_with_the_cpu() {
    let Some(device) = device_or_skip() else { return };
    for nrows in [2500, 10_000, 22_500, 90_000] {
        let mut loaded = Loaded::new(&device, Family::Lap2d, nrows, systems(5));
        for preconditioner in PRECONDITIONERS {
            let options = SolveOptions::new()
                .method(Method::Cg)
                .preconditioner(preconditioner)
                .order(Order::MinDegree)
                .rel_tol(1e-8)
                .fallback(false);
            let mut plan = loaded.plan(&device, &options, &FactoredTuning::default());
            let first = loaded.solve(&device, &mut plan);
            let what = plan.explain().to_string();
            println!("{what}");
            compare(&what, &loaded.batch, &loaded.rhs, &options, &plan.outcomes().unwrap());
            assert_eq!(loaded.solve(&device, &mut plan), first, "{what}");
        }
    }
}

/// The sparse LU: by plans of this solver, and by the backend, which makes such plans where factors
/// do not fit on chip.
#[test]
fn complete_factors_agree_with_the_cpu() {
    let Some(device) = device_or_skip() else { return };
    let options = SolveOptions::new().method(Method::Lu).fallback(false);
    for (family, nrows, place) in [
        (Family::Tri, 200, Some(FactoredPlace::FactorsGlobal)),
        (Family::Tri, 200, Some(FactoredPlace::AllGlobal)),
        (Family::Rand9, 200, Some(FactoredPlace::FactorsGlobal)),
        (Family::Lap2d, 900, Some(FactoredPlace::AllGlobal)),
        (Family::Lap2d, 1600, None),
        (Family::Lap2d, 4900, None),
        (Family::Lap2d, 10_000, None),
    ] {
        let mut loaded = Loaded::new(&device, family, nrows, systems(50));
        let tuning = FactoredTuning::default().place(place);
        let mut plan = loaded.plan(&device, &options, &tuning);
        let first = loaded.solve(&device, &mut plan);
        let what = plan.explain().to_string();
        let begin = Instant::now();
        assert_eq!(loaded.solve(&device, &mut plan), first, "{what}");
        println!("{what}: {:.1} ms", begin.elapsed().as_secs_f64() * 1e3);
        let outcomes = plan.outcomes().unwrap();
        compare(&what, &loaded.batch, &loaded.rhs, &options, &outcomes);
        assert!(outcomes.iter().all(|o| o.iterations <= 2), "{what}");
        // The same factors, kept.
        plan.factorise(&loaded.values).unwrap();
        assert_eq!(loaded.solve(&device, &mut plan), first, "{what}");
    }
    for (nrows, kernel) in [(256, "lu("), (4900, "lu(512 threads, by fronts)")] {
        let problem = Problem::new(Family::Lap2d, nrows).unwrap().batch(systems(50)).unwrap();
        let backend = Backend::Gpu(Gpu::new(device.clone()));
        let solution = solve_on(&backend, &problem.batch, &problem.rhs, None, &options).unwrap();
        assert!(solution.report.all_converged(), "{nrows}");
        let report = &solution.report;
        assert!(report.kernel.starts_with(kernel), "{}", report.kernel);
        assert_eq!((report.backend.name(), report.cpu_reason()), ("gpu", None));
    }
}

/// Matrices with zero pivots, with NaN and of another scale, beside healthy ones.
#[test]
fn flawed_systems_end_as_on_the_cpu_with_complete_factors() {
    let Some(device) = device_or_skip() else { return };
    let options = SolveOptions::new().method(Method::Lu).fallback(false);
    let items = systems(40);
    let mut loaded = Loaded::new(&device, Family::Lap2d, 400, items);
    let Batch::Uniform(sound) = &loaded.batch else { unreachable!("one pattern") };
    let nnz = sound.pattern().nnz();
    let mut values: Vec<f64> =
        (0..items).flat_map(|item| sound.to_matrix(item).into_parts().1).collect();
    for item in (0..items).step_by(4) {
        let own = &mut values[item * nnz..(item + 1) * nnz];
        match item % 12 {
            0 => own.fill(0.0),
            4 => own[nnz / 2] = f64::NAN,
            _ => own.iter_mut().for_each(|value| *value *= 1e250),
        }
    }
    let flawed = BatchValues::ItemMajor(values.clone());
    let flawed = UniformBatch::try_new(sound.pattern().clone(), items, flawed).unwrap();
    let cpu = solve(&Batch::Uniform(flawed), &loaded.rhs, None, &options).unwrap();
    for place in [FactoredPlace::FactorsGlobal, FactoredPlace::AllGlobal] {
        let tuning = FactoredTuning::default().place(Some(place));
        let mut plan = loaded.plan(&device, &options, &tuning);
        let (sound_x, _) = loaded.solve(&device, &mut plan);
        let all_sound = std::mem::replace(&mut loaded.values, device.upload(&values).unwrap());
        let (flawed_x, _) = loaded.solve(&device, &mut plan);
        loaded.values = all_sound;
        for (item, (gpu, cpu)) in
            plan.outcomes().unwrap().iter().zip(&cpu.report.systems).enumerate()
        {
            let what = format!("{place:?} item {item}: {gpu:?}, {:?}", cpu.outcome);
            assert_eq!(gpu.status, cpu.outcome.status, "{what}");
            assert_eq!(gpu.iterations, cpu.outcome.iterations, "{what}");
            let rows = item * 400..(item + 1) * 400;
            let same = sound_x[rows.clone()] == flawed_x[rows];
            assert!(item % 4 == 0 || same, "{what}");
        }
    }
}

#[test]
fn solves_run_from_a_graph() {
    let Some(device) = device_or_skip() else { return };
    let mut loaded = Loaded::new(&device, Family::Lap2d, 100, systems(300));
    let options =
        SolveOptions::new().method(Method::Cg).preconditioner(Preconditioner::IC0).fallback(false);
    let mut plan = loaded.plan(&device, &options, &FactoredTuning::default());
    let first = loaded.solve(&device, &mut plan);
    let graph = device
        .capture(|_| {
            let solved = plan.solve(&loaded.values, &loaded.b, Guess::Zero, &mut loaded.x);
            solved.unwrap_or_else(|error| panic!("{error}"));
            Ok(())
        })
        .unwrap();
    for _ in 0..3 {
        device.fill_zero(&mut loaded.x).unwrap();
        // SAFETY: the buffers and the plan are alive until the downloads are done.
        #[expect(unsafe_code, reason = "the launch of a graph")]
        unsafe { graph.launch() }.unwrap();
        let again = bits(&device.download(&loaded.x).unwrap(), &plan.outcomes().unwrap());
        assert_eq!(again, first);
    }
}

/// A matrix of its own pattern: a chain with two random entries more in each row, dominated by its
/// diagonal.
fn scattered(nrows: usize, seed: u64) -> Csr<f64> {
    let draws = random_vector::<f64>(4 * nrows, seed);
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for (row, draws) in draws.chunks(4).enumerate() {
        let random = |draw: f64| ((draw * 0.5 + 0.5) * nrows as f64) as usize % nrows;
        let mut columns = vec![row, row.saturating_sub(1), (row + 1).min(nrows - 1)];
        columns.extend([random(draws[0]), random(draws[1])]);
        columns.sort_unstable();
        columns.dedup();
        for (place, &column) in columns.iter().enumerate() {
            let other = if place % 2 == 0 { -1.0 } else { 0.5 + 0.4 * draws[2] };
            values.push(if column == row { 4.5 + draws[3] } else { other });
            col_idx.push(column as i32);
        }
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(nrows, nrows, row_ptr, col_idx, values).unwrap()
}

/// A batch on the device, and a plan for it.
struct Timed {
    plan: Box<dyn GpuSolver<Device, f64>>,
    values: DeviceBuffer<f64>,
    b: DeviceBuffer<f64>,
    x: DeviceBuffer<f64>,
    plan_ms: f64,
}

impl Timed {
    fn new(device: &Device, batch: &RaggedCsr<f64>, options: &SolveOptions) -> Self {
        let rows = batch.row_offsets()[batch.nitems()];
        let begin = Instant::now();
        let tuning = FactoredTuning::default();
        let plan = RaggedFactored::<Device, f64>::new(device, batch, options, &tuning).unwrap();
        Self {
            plan_ms: begin.elapsed().as_secs_f64() * 1e3,
            plan: Box::new(plan),
            values: device.upload(batch.values()).unwrap(),
            b: device.upload(&random_vector::<f64>(rows, 3)).unwrap(),
            x: device.alloc_zeroed(rows).unwrap(),
        }
    }

    /// The same for a batch of one pattern.
    fn uniform(device: &Device, batch: &RaggedCsr<f64>, options: &SolveOptions) -> Self {
        let tuning = FactoredTuning::default();
        let pattern = batch.item(0).pattern();
        let begin = Instant::now();
        let plan = FactoredSolver::<Device, f64>::with_tuning(
            device,
            pattern,
            batch.nitems(),
            options,
            &tuning,
        );
        let plan = plan.unwrap();
        let plan_ms = begin.elapsed().as_secs_f64() * 1e3;
        let rows = batch.row_offsets()[batch.nitems()];
        Self {
            plan_ms,
            plan: Box::new(plan),
            values: device.upload(batch.values()).unwrap(),
            b: device.upload(&random_vector::<f64>(rows, 3)).unwrap(),
            x: device.alloc_zeroed(rows).unwrap(),
        }
    }

    fn solve(&mut self) {
        self.plan.solve(&self.values, &self.b, Guess::Zero, &mut self.x).unwrap();
    }

    /// The median, over five rounds, of the time of a solve among twenty between two waits, in ms.
    fn ms(&mut self, device: &Device) -> f64 {
        self.solve();
        device.synchronize().unwrap();
        let mut rounds: Vec<f64> = (0..5)
            .map(|_| {
                let begin = Instant::now();
                (0..20).for_each(|_| self.solve());
                device.synchronize().unwrap();
                begin.elapsed().as_secs_f64() * 50.0
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        rounds[2]
    }
}

/// The iterations and preconditioners whose times are printed.
fn timed() -> [SolveOptions; 2] {
    [Preconditioner::ILU0, Preconditioner::BLOCK_JACOBI].map(|preconditioner| {
        let options = SolveOptions::new().method(Method::BiCgStab);
        options.preconditioner(preconditioner).fallback(false)
    })
}

/// Systems that all have other patterns, each as by the plan for its pattern alone. Prints times
/// beside those of one pattern with as many entries.
#[test]
fn different_patterns_are_solved_as_each_by_itself() {
    let Some(device) = device_or_skip() else { return };
    let items = systems(10_000);
    let sizes = || (0..items).map(|item| 20 + item * 37 % 181);
    let (mut different, mut alike) = (RaggedCsr::new(), RaggedCsr::new());
    sizes().zip(1..).for_each(|(nrows, seed)| different.push(scattered(nrows, seed).view()));
    let one = scattered(sizes().sum::<usize>() / items, 1);
    (0..items).for_each(|_| alike.push(one.view()));
    for options in timed() {
        // Compiles the kernels.
        drop(Timed::new(&device, &different, &options));
        let mut all = Timed::new(&device, &different, &options);
        let mut same = Timed::uniform(&device, &alike, &options);
        let (ms, same_ms) = (all.ms(&device), same.ms(&device));
        println!(
            "{}, {items} patterns of 20 to 200 rows: {ms:.3} ms, one pattern {same_ms:.3} ms: {:.2} \
             times; analysis {:.1} us a system; {}",
            options.preconditioner,
            ms / same_ms,
            all.plan_ms * 1e3 / items as f64,
            all.plan.explain().name(),
        );
        assert!(all.plan.outcomes().unwrap().iter().all(|o| o.status == Status::Converged));
        let x = device.download(&all.x).unwrap();
        let b = random_vector::<f64>(different.row_offsets()[items], 3);
        for item in (0..items).step_by((items / 7).max(1)) {
            let mut alone = RaggedCsr::new();
            alone.push(different.item(item));
            let rows = different.row_offsets()[item]..different.row_offsets()[item + 1];
            let mut single = Timed::uniform(&device, &alone, &options);
            device.copy_from_host(&b[rows.clone()], &mut single.b).unwrap();
            single.solve();
            assert_eq!(device.download(&single.x).unwrap(), x[rows], "{item}");
        }
    }
}

/// Prints times of a mix of nine patterns beside the sum of those of uniform batches.
#[test]
fn a_mix_of_patterns_takes_as_long_as_its_parts() {
    let Some(device) = device_or_skip() else { return };
    let families = [
        (Family::Tri, 32),
        (Family::Tri, 128),
        (Family::Penta, 64),
        (Family::Lap2d, 64),
        (Family::Lap2d, 144),
        (Family::Lap2d, 256),
        (Family::Rand9, 54),
        (Family::Rand9, 100),
        (Family::Rand9, 128),
    ];
    let each = systems(10_000).div_ceil(families.len());
    let problems = families.map(|(family, nrows)| {
        let problem = Problem::new(family, nrows).unwrap().batch(each).unwrap();
        let Batch::Uniform(uniform) = problem.batch else { unreachable!("one pattern") };
        uniform
    });
    let mut mixed = RaggedCsr::new();
    for item in 0..each {
        problems.iter().for_each(|problem| mixed.push(problem.to_matrix(item).view()));
    }
    for options in timed() {
        let mut sum = 0.0;
        for problem in &problems {
            let mut own = RaggedCsr::new();
            (0..each).for_each(|item| own.push(problem.to_matrix(item).view()));
            sum += Timed::uniform(&device, &own, &options).ms(&device);
        }
        let mut all = Timed::new(&device, &mixed, &options);
        let ms = all.ms(&device);
        println!(
            "{}, nine patterns mixed: {ms:.3} ms, sum of uniform {sum:.3}: {:.2} times",
            options.preconditioner,
            ms / sum
        );
        assert!(all.plan.outcomes().unwrap().iter().all(|o| o.status == Status::Converged));
    }
}
