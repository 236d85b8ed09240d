//! The part of one GPU in products with a matrix divided among several.

use kernel_emu::{Emulator, Order, emulators};
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{Executor, GpuError, Value};
use sparsebatch_formats::{Csr, Scalar};
use sparsebatch_spmv_gpu::{HaloParts, HaloPlan, Incoming, SingleOptions};
use sparsebatch_testing::random_integers;

use crate::common::matrices::oracle;

/// The matrix of `rows` rows and `columns` columns with entries that are small whole numbers, some
/// rows empty.
fn integers<T: Scalar>(rows: usize, columns: usize, every: usize) -> Csr<T> {
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..rows {
        if row % 5 != 3 {
            let own = (row % every..columns).step_by(every);
            col_idx.extend(own.clone().map(|col| col as i32));
            values.extend(own.map(|col| T::from_f64(((row + 3 * col) % 7) as f64 - 3.0)));
        }
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(rows, columns, row_ptr, col_idx, values).unwrap()
}

/// `y = 2 A x - y`, where the halo has what this GPU sends.
fn check<E: Executor + Clone, T: Value>(executor: &E) {
    const ROWS: usize = 700;
    let sent: Vec<u32> = (0..600).step_by(7).chain([4, 4]).collect();
    let rows: Vec<u32> = (0..ROWS as u32).filter(|row| row % 11 == 0).collect();
    let local = integers::<T>(ROWS, 600, 50);
    let remote = integers::<T>(rows.len(), sent.len(), 9);
    let parts =
        HaloParts { local: local.view(), remote: Some((remote.view(), &rows)), sent: &sent };
    let mut plan = HaloPlan::new(executor, parts, &SingleOptions::default()).unwrap();
    let x: Vec<T> = random_integers(600, 1);
    let before: Vec<T> = random_integers(ROWS, 2);
    let halo: Vec<T> = sent.iter().map(|&place| x[place as usize]).collect();
    let (two, minus) = (T::from_f64(2.0), T::from_f64(-1.0));
    let mut expected = oracle(two, &local, &x, minus, &before);
    let added = oracle(two, &remote, &halo, T::ZERO, &vec![T::ZERO; rows.len()]);
    rows.iter().zip(added).for_each(|(&row, sum)| expected[row as usize] += sum);

    let on_device = executor.upload(&x).unwrap();
    for _ in 0..2 {
        let mut y = executor.upload(&before).unwrap();
        plan.start(two, &on_device, minus, &mut y).unwrap();
        let (packed, received) = plan.staged().unwrap();
        assert_eq!(packed.len(), sent.len() * size_of::<T>());
        received.copy_from_slice(packed);
        plan.finish(two, &mut y).unwrap();
        assert_eq!(executor.download(&y).unwrap(), expected);
    }
    assert_eq!((plan.local().nnz, plan.remote().unwrap().nnz), (local.nnz(), remote.nnz()));
}

/// Two GPUs with half of a chain each, whose plans copy from each other: products with vectors that
/// change, one that only one of them starts, and elements that are lost.
fn peers<E: Executor + Clone>(executors: [&E; 2]) {
    const ROWS: usize = 300;
    let local = integers::<f64>(ROWS, ROWS, 5);
    let remote = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![10.0]).unwrap();
    // The first needs element 0 of the second, which needs the last of the first.
    let edges = [(ROWS - 1, 0), (0, ROWS - 1)];
    let mut plans = [0, 1].map(|own| {
        let (row, sent) = ([edges[own].0 as u32], [edges[own].0 as u32]);
        let parts =
            HaloParts { local: local.view(), remote: Some((remote.view(), &row)), sent: &sent };
        HaloPlan::new(executors[own], parts, &SingleOptions::default()).unwrap()
    });
    let boxes = [0, 1].map(|own| plans[own].mailbox().unwrap());
    assert!(boxes[0].is_reached_by(executors[1]).unwrap());
    for (own, plan) in plans.iter_mut().enumerate() {
        assert!(!plan.has_peers());
        let other = &boxes[1 - own];
        let incoming = Incoming { from: other.clone(), bytes: 0..8, at: 0 };
        plan.connect(boxes[own].clone(), vec![other.clone()], vec![incoming]);
        assert!(plan.has_peers());
    }
    drop(boxes);
    for turn in 0..5u64 {
        let x = [0, 1].map(|own| random_integers::<f64>(ROWS, 2 * turn + own));
        let on_device = [0, 1].map(|own| executors[own].upload(&x[own]).unwrap());
        let mut y = [0, 1].map(|own| executors[own].alloc(ROWS).unwrap());
        let expected = [0, 1].map(|own| {
            let mut y = oracle(1.0, &local, &x[own], 0.0, &vec![0.0; ROWS]);
            y[edges[own].0] += 10.0 * x[1 - own][edges[1 - own].0];
            y
        });
        // In the third product the first GPU fails before it starts.
        let fails = turn == 2;
        for own in [0, 1] {
            match (fails, own) {
                (true, 0) => plans[0].skip(),
                _ => plans[own].start(1.0, &on_device[own], 0.0, &mut y[own]).unwrap(),
            }
        }
        for own in [0, 1] {
            let lost: &[usize] = if fails { &[0] } else { &[] };
            if !(fails && own == 0) {
                plans[own].finish_without(lost, 1.0, &mut y[own]).unwrap();
                let found = executors[own].download(&y[own]).unwrap();
                let at = edges[own].0;
                assert!(fails == found[at].is_nan(), "{turn} {own}");
                assert!(fails || found == expected[own], "{turn} {own}");
            }
        }
    }
}

#[test]
fn elements_go_from_gpu_to_gpu() {
    for order in [Order::Forward, Order::Random(3)] {
        peers([&Emulator::new(order), &Emulator::new(Order::Reverse)]);
    }
    if let Some(device) = device_or_skip() {
        peers([&device, &device]);
    }
}

#[test]
fn the_remote_part_is_added_to_its_rows() {
    for emulator in emulators().iter().take(4) {
        check::<_, f64>(emulator);
        check::<_, f32>(emulator);
    }
    if let Some(device) = device_or_skip() {
        check::<_, f64>(&device);
        check::<_, f32>(&device);
    }
}

#[test]
fn a_part_without_rows_or_halo_multiplies_nothing() {
    let executor = Emulator::new(Order::Forward);
    let options = SingleOptions::default();
    let matrix = Csr::<f64>::zeros(0, 0).unwrap();
    let parts = HaloParts { local: matrix.view(), remote: None, sent: &[] };
    let mut plan = HaloPlan::new(&executor, parts, &options).unwrap();
    let (x, mut y) = (executor.alloc(0).unwrap(), executor.alloc(0).unwrap());
    plan.start(1.0, &x, 0.0, &mut y).unwrap();
    assert!(plan.staged().unwrap().0.is_empty() && plan.remote().is_none());
    plan.finish(1.0, &mut y).unwrap();

    // No own columns: all of x is elsewhere.
    let (matrix, remote) = (Csr::<f64>::zeros(2, 0).unwrap(), integers::<f64>(2, 3, 1));
    let remote = Some((remote.view(), &[0, 1][..]));
    let parts = HaloParts { local: matrix.view(), remote, sent: &[] };
    let mut plan = HaloPlan::new(&executor, parts, &options).unwrap();
    let mut y = executor.alloc(2).unwrap();
    plan.start(1.0, &x, 0.0, &mut y).unwrap();
    for (bytes, value) in plan.staged().unwrap().1.chunks_mut(8).zip([1.0f64, 1.0, 1.0]) {
        bytes.copy_from_slice(&value.to_ne_bytes());
    }
    plan.finish(1.0, &mut y).unwrap();
    assert_eq!(executor.download(&y).unwrap(), [0.0, -4.0]);
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let executor = Emulator::new(Order::Forward);
    let (local, remote) = (Csr::<f64>::zeros(3, 4).unwrap(), integers::<f64>(2, 2, 1));
    let refused = |rows: &[u32], sent: &[u32]| {
        let remote = Some((remote.view(), rows));
        let parts = HaloParts { local: local.view(), remote, sent };
        HaloPlan::new(&executor, parts, &SingleOptions::default()).err().unwrap().to_string()
    };
    assert_eq!(refused(&[0, 1], &[4]), "sent is 4, expected numbers below 4");
    assert_eq!(refused(&[0, 3], &[]), "rows is 3, expected numbers below 3");
    assert_eq!(refused(&[1, 1], &[]), "rows is 1 before 1, expected numbers that ascend");
    assert_eq!(refused(&[1], &[]), "rows has 1 entries, expected 2");

    let parts = HaloParts { local: local.view(), remote: None, sent: &[] };
    let mut plan = HaloPlan::new(&executor, parts, &SingleOptions::default()).unwrap();
    let (x, mut y) = (executor.alloc(3).unwrap(), executor.alloc(3).unwrap());
    let error = plan.start(1.0, &x, 0.0, &mut y).unwrap_err();
    assert!(matches!(error, GpuError::Length { name: "x", expected: 4, found: 3 }), "{error}");
}
