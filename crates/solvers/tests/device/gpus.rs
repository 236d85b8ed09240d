//! Two real GPUs of one process: the bits of one, faults, and that both work.

use sparsebatch_cuda::testing::{devices_or_skip, systems};
use sparsebatch_cuda::{Device, PageLocked};
use sparsebatch_formats::batch::Values;
use sparsebatch_formats::generate::{Family, Problem};
use sparsebatch_formats::{Batch, BatchValues, RaggedCsr, UniformBatch};
use sparsebatch_solvers::{
    Backend, BatchReport, BatchSolver, Chunks, Gpu, Method, Preconditioner, SolveOptions,
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
