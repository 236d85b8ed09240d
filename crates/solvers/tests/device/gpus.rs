//! Two real GPUs of one process: the bits of one, faults, and that both work.

use std::ops::Range;
use std::time::Instant;

use sparsebatch_cuda::testing::{devices_or_skip, systems};
use sparsebatch_cuda::{Device, Executor, PageLocked};
use sparsebatch_formats::batch::Values;
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, BatchValues, RaggedCsr, UniformBatch};
use sparsebatch_solvers::gpu::Guess;
use sparsebatch_solvers::{
    Backend, BatchReport, BatchSolver, Chunks, DeviceArrays, DeviceSolvers, Engine, Gpu, Method,
    Preconditioner, SolveOptions, SpmvOptions,
};

fn two(devices: &[Device], chunks: Chunks) -> Backend {
    let gpu = |device: &Device| Gpu::new(device.clone()).or_cpu(true).chunks(chunks);
    Backend::gpus(devices.iter().map(gpu).collect()).unwrap()
}

fn one(device: &Device) -> Backend {
    Backend::Gpu(Gpu::new(device.clone()).or_cpu(true))
}

fn of(method: Method, preconditioner: Preconditioner) -> SolveOptions {
    SolveOptions::new().method(method).preconditioner(preconditioner)
}

fn solve(
    backend: &Backend,
    batch: &Batch<f64>,
    b: &[f64],
    options: &SolveOptions,
) -> (BatchReport, Vec<u64>) {
    let mut solver = BatchSolver::on(backend, batch, options).unwrap();
    let mut x = vec![0.0; b.len()];
    let report = solver.solve(batch, b, &mut x).unwrap();
    (report, bits(&x))
}

fn bits(x: &[f64]) -> Vec<u64> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Systems of three families in turn.
fn ragged(items: usize) -> Batch<f64> {
    let families = [(Family::Tri, 32), (Family::Lap2d, 64), (Family::Rand9, 54)];
    let each = families.map(|(family, nrows)| {
        Problem::new(family, nrows).unwrap().batch(items.div_ceil(3)).unwrap().batch
    });
    let mut all = RaggedCsr::new();
    (0..items).for_each(|item| all.push(each[item % 3].to_csr(item / 3).view()));
    Batch::Ragged(all)
}

#[test]
fn two_gpus_make_the_bits_of_one() {
    let Some(devices) = devices_or_skip(2) else { return };
    let items = systems(3000).max(12);
    let uniform = |family, nrows| Problem::new(family, nrows).unwrap().batch(items).unwrap().batch;
    for (name, batch) in [
        ("tri 128", uniform(Family::Tri, 128)),
        ("lap2d 100", uniform(Family::Lap2d, 100)),
        ("ragged", ragged(items)),
    ] {
        let b: Vec<f64> =
            (0..batch.row_offset(items)).map(|row| 1.0 + (row % 7) as f64 / 8.0).collect();
        for options in [
            SolveOptions::new(),
            of(Method::Cg, Preconditioner::Jacobi),
            of(Method::BiCgStab, Preconditioner::ILU0),
            of(Method::Lu, Preconditioner::Auto),
        ] {
            let (expected, expected_x) = solve(&one(&devices[0]), &batch, &b, &options);
            // From one queue, and in static pieces.
            for bytes in [64 << 10, 64 << 20] {
                let what = format!("{name} {} {bytes}", options.method);
                let backend = two(&devices, Chunks::default().bytes(bytes));
                let (report, x) = solve(&backend, &batch, &b, &options);
                assert_eq!(report.systems, expected.systems, "{what}");
                assert!(x == expected_x, "{what}: other bits");
                let counts: Vec<usize> = report.gpus().iter().map(|gpu| gpu.systems).collect();
                println!("{what}: {}, systems {counts:?}", report.device);
                assert!(report.gpus().iter().all(|gpu| gpu.lost.is_none()), "{what}");
                assert_eq!(counts.iter().sum::<usize>(), items, "{what}");
            }
        }
    }
}

/// Large systems, histories, and products that were asked for, which one GPU has.
#[test]
fn systems_over_products_are_shared_too() {
    let Some(devices) = devices_or_skip(2) else { return };
    let items = systems(40).max(6);
    let uniform = |family, nrows| Problem::new(family, nrows).unwrap().batch(items).unwrap().batch;
    let (grids, chains) = (uniform(Family::Lap2d, 40_000), uniform(Family::Tri, 50_000));
    let mut mixed = RaggedCsr::new();
    for item in 0..items {
        mixed.push([&grids, &chains][item % 2].to_csr(item / 2).view());
    }
    let cg = || of(Method::Cg, Preconditioner::Jacobi);
    let engine = cg().engine(Engine::Composed(SpmvOptions::default()));
    for (name, batch) in [("lap2d 40000", grids), ("mixed", Batch::Ragged(mixed))] {
        let b: Vec<f64> =
            (0..batch.row_offset(items)).map(|row| 1.0 + (row % 7) as f64 / 8.0).collect();
        for (options, gpus) in [(cg(), 2), (cg().history(true), 2), (engine.clone(), 1)] {
            let (expected, expected_x) = solve(&one(&devices[0]), &batch, &b, &options);
            let backend = two(&devices, Chunks::default());
            let (report, x) = solve(&backend, &batch, &b, &options);
            assert!(report.kernel.starts_with("composed"), "{}", report.kernel);
            assert_eq!(report.systems, expected.systems, "{name}");
            assert!(x == expected_x, "{name}: other bits");
            let busy = report.gpus().iter().filter(|gpu| gpu.systems > 0).count();
            assert_eq!(busy, gpus, "{name}: {:?}", report.gpus());
            println!(
                "{name} on {gpus}: one GPU {:?}, two {:?}",
                expected.solve_time, report.solve_time
            );
        }
    }
}

#[test]
fn kept_factors_lie_on_both() {
    let Some(devices) = devices_or_skip(2) else { return };
    let items = systems(2000).max(12);
    let batch = Problem::new(Family::Tri, 64).unwrap().batch(items).unwrap().batch;
    let b: Vec<f64> = (0..batch.row_offset(items)).map(|row| (row % 5) as f64 - 2.25).collect();
    let options = of(Method::Lu, Preconditioner::Auto);
    let chunks = Chunks::default().bytes(64 << 20);
    let alone = Backend::Gpu(Gpu::new(devices[0].clone()).or_cpu(true).chunks(chunks));
    let mut found = Vec::new();
    for backend in [alone, two(&devices, chunks)] {
        let mut solver = BatchSolver::on(&backend, &batch, &options).unwrap();
        solver.factor(&batch).unwrap();
        assert!(solver.keeps_factors());
        let (mut x, mut lambda) = (vec![0.0; b.len()], vec![0.0; b.len()]);
        let mut near = vec![0.0; b.len()];
        let reports = [
            solver.solve_again(&b, &mut x).unwrap(),
            solver.solve_transposed_again(&b, &mut lambda).unwrap(),
            solver.solve_near(&batch, &b, &mut near).unwrap(),
        ];
        assert!(reports.iter().all(BatchReport::all_converged));
        found.push([x, lambda, near].map(|x| bits(&x)));
    }
    assert!(found[0] == found[1], "other bits");
}

#[test]
fn a_gpu_without_memory_leaves_its_systems_to_the_other() {
    let Some(devices) = devices_or_skip(2) else { return };
    let items = systems(3000).max(12);
    let batch = Problem::new(Family::Tri, 128).unwrap().batch(items).unwrap().batch;
    let b = vec![1.0; batch.row_offset(items)];
    let options = of(Method::Cg, Preconditioner::Jacobi);
    let (expected, expected_x) = solve(&one(&devices[0]), &batch, &b, &options);
    for bytes in [64 << 10, 64 << 20] {
        let chunks = Chunks::default().bytes(bytes);
        let gpus = [(0, None), (1, Some(1000))].map(|(place, limit): (usize, Option<u64>)| {
            Gpu::new(devices[place].clone()).chunks(chunks).memory_limit(limit)
        });
        let backend = Backend::gpus(gpus.to_vec()).unwrap();
        let (report, x) = solve(&backend, &batch, &b, &options);
        assert_eq!(report.systems, expected.systems);
        assert!(x == expected_x, "other bits");
        assert_eq!(report.gpus()[0].systems, items);
        let lost = report.gpus()[1].lost.as_deref().unwrap();
        assert!(lost.contains("out of GPU memory"), "{lost}");
    }
}

#[test]
fn page_locked_memory_of_the_caller_makes_the_same_bits() {
    let Some(devices) = devices_or_skip(2) else { return };
    let items = systems(20_000).max(12);
    let batch = Problem::new(Family::Rand9, 54).unwrap().batch(items).unwrap().batch;
    let Batch::Uniform(uniform) = &batch else { unreachable!("one pattern") };
    let BatchValues::ItemMajor(values) = uniform.values() else { unreachable!("item-major") };
    let b = vec![1.0; batch.row_offset(items)];
    let lock = |values: &[f64]| PageLocked::new(&devices[0], values.to_vec()).unwrap();
    let values = BatchValues::ItemMajor(Values::of_owner(lock(values)));
    let locked = UniformBatch::from_values(uniform.pattern().clone(), items, values).unwrap();
    let (locked, locked_b) = (Batch::Uniform(locked), lock(&b));
    let options = of(Method::BiCgStab, Preconditioner::Jacobi);
    let chunks = Chunks::default().bytes(1 << 20);
    let alone = Backend::Gpu(Gpu::new(devices[0].clone()).chunks(chunks));
    for backend in [alone, two(&devices, chunks)] {
        let (expected, expected_x) = solve(&backend, &batch, &b, &options);
        let (found, x) = solve(&backend, &locked, &locked_b, &options);
        assert_eq!(found.systems, expected.systems);
        assert!(x == expected_x, "other bits");
    }
}

/// Consecutive items of a batch of one pattern with values of their own.
fn part(batch: &Batch<f64>, items: Range<usize>) -> (Batch<f64>, Vec<f64>) {
    let Batch::Uniform(uniform) = batch else { unreachable!("one pattern") };
    let of_item = |item| batch.item_values(item).unwrap();
    let values: Vec<f64> = items.clone().flat_map(of_item).copied().collect();
    let own = BatchValues::ItemMajor(values.clone());
    let own = UniformBatch::try_new(uniform.pattern().clone(), items.len(), own).unwrap();
    (Batch::Uniform(own), values)
}

#[test]
fn data_on_two_gpus_is_solved_as_on_one() {
    let Some(devices) = devices_or_skip(2) else { return };
    let items = systems(20_000).max(12);
    let batch = Problem::new(Family::Tri, 128).unwrap().batch(items).unwrap().batch;
    let b: Vec<f64> = (0..128 * items).map(|row| 1.0 + (row % 7) as f64 / 8.0).collect();
    for options in [
        SolveOptions::new(),
        of(Method::Cg, Preconditioner::Jacobi),
        of(Method::BiCgStab, Preconditioner::ILU0),
        of(Method::Lu, Preconditioner::Auto),
    ] {
        let solved = |cuts: &[usize]| {
            let parts: Vec<_> = cuts.windows(2).map(|cut| part(&batch, cut[0]..cut[1])).collect();
            let own: Vec<_> = devices.iter().zip(&parts).map(|(d, (own, _))| (d, own)).collect();
            let mut solvers = DeviceSolvers::new(&own, &options).unwrap();
            let of_part = |(k, device): (usize, &Device)| {
                let b = device.upload(&b[128 * cuts[k]..128 * cuts[k + 1]]).unwrap();
                let x = device.alloc_zeroed(b.len()).unwrap();
                (device.upload(&parts[k].1).unwrap(), b, x)
            };
            let each = devices.iter().take(parts.len()).enumerate().map(of_part);
            let mut arrays: Vec<_> = each.collect();
            let mut borrowed: Vec<_> =
                arrays.iter_mut().map(|(values, b, x)| DeviceArrays { values, b, x }).collect();
            let mut time = f64::INFINITY;
            let report = solvers.solve(&mut borrowed, Guess::Zero).unwrap();
            for _ in 0..5 {
                let start = Instant::now();
                solvers.solve(&mut borrowed, Guess::Zero).unwrap();
                time = time.min(start.elapsed().as_secs_f64());
            }
            let values: Vec<_> = borrowed.iter().map(|arrays| arrays.values).collect();
            solvers.factor(&values).unwrap();
            let again = solvers.solve_again(&mut borrowed, Guess::Zero).unwrap();
            assert_eq!(again.converged(), report.converged());
            solvers.solve(&mut borrowed, Guess::Zero).unwrap();
            let x = devices.iter().zip(&arrays).map(|(d, (_, _, x))| d.download(x).unwrap());
            (report.into_report(), bits(&x.collect::<Vec<_>>().concat()), time)
        };
        let (expected, expected_x, alone) = solved(&[0, items]);
        let (found, x, together) = solved(&[0, items / 3, items]);
        assert_eq!(found.systems, expected.systems, "{}", options.method);
        assert!(x == expected_x, "{}: other bits", options.method);
        let counts: Vec<usize> = found.gpus().iter().map(|gpu| gpu.systems).collect();
        assert_eq!(counts, [items / 3, items - items / 3]);
        println!("{}: {alone:.6} s on one, {together:.6} s on two", options.method);
    }
}

#[test]
fn both_gpus_take_part_in_a_large_batch() {
    let Some(devices) = devices_or_skip(2) else { return };
    let items = systems(40_000).max(12);
    let batch = Problem::new(Family::Tri, 128).unwrap().batch(items).unwrap().batch;
    let b = vec![1.0; batch.row_offset(items)];
    let options = of(Method::Cg, Preconditioner::Jacobi);
    let backend = two(&devices, Chunks::default().bytes(1 << 20));
    let (report, _) = solve(&backend, &batch, &b, &options);
    assert!(report.all_converged());
    let counts: Vec<usize> = report.gpus().iter().map(|gpu| gpu.systems).collect();
    println!("{}: systems {counts:?}, {} chunks", report.device, report.runs[0].chunks);
    if items == 40_000 {
        assert!(counts.iter().all(|&count| count > items / 10), "{counts:?}");
    }
}
