//! Right kernels give the oracle's answer in every order.

use crate::common::run;
use kernel_emu::{Args, MAX_SHARED_BYTES, Order, launch_blocks};

/// A small linear congruential generator: tests need no more.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        let (factor, step) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
        self.0 = self.0.wrapping_mul(factor).wrapping_add(step);
        ((self.0 >> 33) % u64::from(limit)) as u32
    }

    /// A whole number from -8 to 8, so that sums are exact in every order.
    fn value(&mut self) -> f64 {
        f64::from(self.below(17)) - 8.0
    }
}

/// Row pointers, columns and values of a matrix with `nrows` rows of up to `width` entries.
fn random_csr(nrows: usize, ncols: u32, width: u32, seed: u64) -> (Vec<i32>, Vec<i32>, Vec<f64>) {
    let mut random = Random(seed);
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for _ in 0..nrows {
        for _ in 0..random.below(width + 1) {
            col_idx.push(random.below(ncols) as i32);
            values.push(random.value());
        }
        row_ptr.push(col_idx.len() as i32);
    }
    (row_ptr, col_idx, values)
}

fn csr_product(row_ptr: &[i32], col_idx: &[i32], values: &[f64], x: &[f64]) -> Vec<f64> {
    let row = |r: &[i32]| {
        (r[0] as usize..r[1] as usize).map(|k| values[k] * x[col_idx[k] as usize]).sum::<f64>()
    };
    row_ptr.windows(2).map(row).collect()
}

#[test]
fn csr_products_agree_with_the_oracle() {
    for nrows in [1, 31, 32, 33, 257] {
        let (row_ptr, col_idx, values) = random_csr(nrows, 50, 70, nrows as u64);
        let x: Vec<f64> = (0..50).map(|k| f64::from(k % 7 - 3)).collect();
        let expected = csr_product(&row_ptr, &col_idx, &values, &x);
        for order in Order::ALL {
            for (kernel, lanes) in [
                ("demo_csr_scalar<double>", 1),
                ("demo_csr_vector<double, 8>", 8),
                ("demo_csr_vector<double,32>", 32),
            ] {
                let mut y = vec![f64::NAN; nrows];
                let grid = (nrows as u32 * lanes).div_ceil(64);
                // SAFETY: types as in spmv.cu; the arrays are those of a matrix of nrows rows.
                unsafe {
                    run!(kernel, grid, 64, 0, order; nrows as i32, row_ptr.as_ptr(),
                        col_idx.as_ptr(), values.as_ptr(), x.as_ptr(), y.as_mut_ptr())
                }
                .unwrap();
                assert_eq!(y, expected, "{kernel} {order:?}");
            }
        }
    }
}

#[test]
fn a_block_sums_in_shared_memory() {
    let mut random = Random(3);
    let x: Vec<f64> = (0..5000).map(|_| random.value()).collect();
    for order in Order::ALL {
        for (kernel, block) in
            [("demo_block_sum<double, 256>", 256), ("demo_block_sum<double, 1024>", 1024)]
        {
            let mut sums = [f64::NAN; 3];
            // SAFETY: types as in block.cu; x has 5000 elements, sums one per block.
            unsafe { run!(kernel, 3, block, 0, order; 5000u32, x.as_ptr(), sums.as_mut_ptr()) }
                .unwrap();
            assert_eq!(sums.iter().sum::<f64>(), x.iter().sum::<f64>(), "{kernel} {order:?}");
        }
    }
}

#[test]
fn a_histogram_counts_with_atomics() {
    let mut random = Random(5);
    let keys: Vec<u32> = (0..3000).map(|_| random.below(77)).collect();
    let mut expected = vec![0u32; 77];
    for &key in &keys {
        expected[key as usize] += 1;
    }
    for order in Order::ALL {
        let mut counts = vec![0u32; 77];
        // SAFETY: types as in block.cu; all keys are below the number of bins.
        unsafe {
            run!("demo_histogram", 4, 96, 77 * 4, order; 3000u32, 77u32, keys.as_ptr(),
                counts.as_mut_ptr())
        }
        .unwrap();
        assert_eq!(counts, expected, "{order:?}");
    }
}

#[test]
fn static_and_dynamic_shared_memory_live_together() {
    let x: Vec<f64> = (0..288).map(f64::from).collect();
    let expected: Vec<f64> =
        x.chunks(96).flat_map(|tile| tile.iter().rev().copied().collect::<Vec<_>>()).collect();
    for order in Order::ALL {
        let mut y = vec![f64::NAN; 288];
        // SAFETY: types as in block.cu; three tiles of 96 elements.
        unsafe {
            run!("demo_reverse_tiles<double, 96>", 3, 96, 96 * 4, order; x.as_ptr(),
                y.as_mut_ptr())
        }
        .unwrap();
        assert_eq!(y, expected, "{order:?}");
    }
}

/// `Plan` of block.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Plan {
    kind: u8,
    scale: f64,
    offset: u32,
}

#[test]
fn structs_travel_by_value_and_indices_have_three_axes() {
    let plan = Plan { kind: 1, scale: 2.0, offset: 30 };
    for order in Order::ALL {
        let mut out = vec![f64::NAN; 12 * 30];
        let out_at = out.as_mut_ptr();
        let args = Args::new().arg(&plan).arg(&out_at);
        // SAFETY: `Plan` has the C++ layout; out has one element per thread.
        unsafe { args.launch("demo_by_value", [2, 3, 2], [5, 3, 2], 0, order) }.unwrap();
        for (k, value) in out.iter().enumerate() {
            let expected = 2.0 * ((k % 30) as f64 + 1000.0 * (k / 30) as f64) + 31.0;
            assert_eq!(*value, expected, "{k} {order:?}");
        }
    }
    assert_eq!(kernel_emu::parameter_bytes("demo_by_value").unwrap(), [24, 8]);
}

#[test]
fn the_last_block_by_ticket_sees_all_partial_sums() {
    let x: Vec<f64> = (0..320).map(f64::from).collect();
    for order in Order::ALL {
        let (mut partial, mut ticket, mut total) = ([f64::NAN; 10], 0u32, f64::NAN);
        // SAFETY: types as in block.cu; ten blocks of 32 elements.
        unsafe {
            run!("demo_last_block", 10, 32, 0, order; x.as_ptr(), partial.as_mut_ptr(),
                &raw mut ticket, &raw mut total)
        }
        .unwrap();
        assert_eq!(total, 319.0 * 160.0, "{order:?}");
    }
}

/// The row of `demo_votes` for thread `t`, written independently of the emulator.
fn expected_votes(values: &[i32], t: usize) -> [u32; 24] {
    let first = t / 32 * 32;
    let (lane, warp) = (t - first, &values[first..first + 32]);
    let v = values[t];
    let mask = |keep: &dyn Fn(i32) -> bool| {
        (0..32).filter(|&l| keep(warp[l])).fold(0u32, |mask, l| mask | 1 << l)
    };
    let unsigned = |v: i32| v as u32;
    let same = warp.iter().all(|&w| w == v);
    let (low_half, high_half) = ((0..16).sum::<u32>(), (16..32).sum::<u32>());
    let at = |l: usize| unsigned(warp[l]);
    [
        mask(&|w| w > 0),
        u32::from(warp.contains(&7)),
        u32::from(warp.iter().all(|&w| w > -100)),
        mask(&|w| w == v),
        if same { u32::MAX } else { 0 },
        u32::from(same),
        unsigned(warp.iter().sum()),
        unsigned(*warp.iter().min().unwrap()),
        warp.iter().map(|&w| unsigned(w)).max().unwrap(),
        at(lane / 8 * 8 + 5),
        if lane % 16 >= 3 { at(lane - 3) } else { at(lane) },
        at(lane ^ 9),
        if lane < 16 { 3 * low_half } else { high_half },
        values.iter().filter(|&&w| w > 0).count() as u32,
        u32::from(values.contains(&7)),
        u32::from(values.iter().all(|&w| w > 0)),
        unsigned(*warp.iter().max().unwrap()),
        warp.iter().map(|&w| unsigned(w)).min().unwrap(),
        1,
        if v == 0 { 0 } else { v.trailing_zeros() + 1 },
        v.leading_zeros(),
        at(lane ^ 9),
        warp.iter().fold(u32::MAX, |a, &w| a & unsigned(w))
            ^ warp.iter().fold(0, |a, &w| a | unsigned(w)),
        if lane % 16 + 3 < 16 { at(lane + 3) } else { at(lane) },
    ]
}

#[test]
fn votes_matches_and_shuffles_agree_with_their_definitions() {
    let mut random = Random(9);
    let mut cases: Vec<Vec<i32>> =
        (0..4).map(|_| (0..96).map(|_| random.below(9) as i32 - 2).collect()).collect();
    cases.push(vec![3; 96]);
    for values in cases {
        for order in Order::ALL {
            let mut out = vec![u32::MAX; 96 * 24];
            // SAFETY: types as in block.cu; 24 words per thread.
            unsafe { run!("demo_votes", 1, 96, 0, order; values.as_ptr(), out.as_mut_ptr()) }
                .unwrap();
            for (t, row) in out.chunks(24).enumerate() {
                assert_eq!(row, expected_votes(&values, t), "thread {t} {order:?}");
            }
        }
    }
}

#[test]
fn atomics_lose_no_update() {
    for order in Order::ALL {
        let (mut i, mut u) = ([0i32, -1, 1], [0u32, 0, u32::MAX, 0]);
        let (mut w, mut f, mut d) = ([0u64; 3], 0f32, 0f64);
        // SAFETY: types as in block.cu; the arrays have the lengths that the kernel uses.
        unsafe {
            run!("demo_atomics", 2, 64, 0, order; i.as_mut_ptr(), u.as_mut_ptr(), w.as_mut_ptr(),
                &raw mut f, &raw mut d)
        }
        .unwrap();
        assert_eq!(i, [-256, 127, -127], "{order:?}");
        assert_eq!(u, [384, u32::MAX, 0, 9], "{order:?}");
        assert_eq!(w, [128 << 33, 127, 127], "{order:?}");
        assert_eq!((f, d), (64.0, 32.0), "{order:?}");
    }
}

#[test]
fn the_order_of_threads_does_not_depend_on_earlier_launches() {
    const ROUNDS: u32 = 10;
    const BLOCK: u32 = 32;
    for order in Order::ALL {
        let launch = || {
            let (mut next, mut threads) = (0u32, vec![0u32; (ROUNDS * BLOCK) as usize]);
            // SAFETY: types as in block.cu; there is a place for each thread in each round.
            unsafe {
                run!("demo_order", 1, BLOCK, 0, order; ROUNDS, &raw mut next, threads.as_mut_ptr())
            }
            .unwrap();
            threads
        };
        let first = launch();
        // Threads pause after 1,024 atomics, of which these launches have more together.
        for later in 1..8 {
            assert_eq!(launch(), first, "{order:?}, launch {later}");
        }
    }
}

#[test]
fn threads_may_spin_on_a_lock() {
    for order in Order::ALL {
        let (mut lock, mut counter) = (0u32, 0u32);
        // SAFETY: types as in block.cu.
        unsafe { run!("demo_lock", 3, 64, 0, order; &raw mut lock, &raw mut counter) }.unwrap();
        assert_eq!((lock, counter), (0, 192), "{order:?}");
    }
}

#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Aligned<T>(T);

#[test]
fn all_of_the_shared_memory_can_be_used() {
    let x: Vec<Aligned<[f64; 2]>> = (0..4).map(|k| Aligned([f64::from(k), 2.0])).collect();
    for order in Order::ALL {
        let mut y = vec![Aligned([f32::NAN; 4]); 4];
        // SAFETY: types as in block.cu; four elements, aligned to 16 bytes.
        unsafe { run!("demo_vectors", 1, 4, MAX_SHARED_BYTES, order; x.as_ptr(), y.as_mut_ptr()) }
            .unwrap();
        for (k, row) in y.iter().enumerate() {
            let from = 3.0 - k as f32;
            assert_eq!(row.0, [from, 2.0, 2.0 * from + 1.0, 1.0], "{order:?}");
        }
    }
}

#[test]
fn copies_that_are_waited_for_arrive() {
    let mut random = Random(11);
    for tiles in [1usize, 2, 5] {
        let x: Vec<Aligned<[f64; 2]>> =
            (0..32 * tiles).map(|_| Aligned([random.value(), random.value()])).collect();
        let flat: Vec<f64> = x.iter().flat_map(|pair| pair.0).collect();
        let cp_async: Vec<f64> = (0..32)
            .map(|t| flat.chunks(64).map(|tile| tile[63 - 2 * t] - tile[62 - 2 * t]).sum())
            .collect();
        let bulk: Vec<f64> =
            (0..32).map(|t| flat.chunks(64).map(|tile| tile[63 - t] - tile[t]).sum()).collect();
        for order in Order::ALL {
            for (kernel, expected) in [("demo_cp_async", &cp_async), ("demo_bulk", &bulk)] {
                let call = |wait: bool| {
                    let mut y = vec![f64::NAN; 32];
                    let kernel = format!("{kernel}<{wait}>");
                    // SAFETY: types as in copies.cu; 64 doubles per tile, aligned to 16 bytes.
                    unsafe {
                        run!(&kernel, 1, 32, 128 * 8, order; tiles as u32, x.as_ptr(),
                            y.as_mut_ptr())
                    }
                    .unwrap();
                    y
                };
                assert_eq!(call(true), *expected, "{kernel} {order:?}");
                assert_ne!(call(false), *expected, "{kernel} {order:?}");
            }
        }
    }
}

#[test]
fn launches_of_several_threads_run_in_parallel() {
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || {
                let mut random = Random(seed);
                let x: Vec<f64> = (0..2000).map(|_| random.value()).collect();
                for _ in 0..20 {
                    let mut sums = [f64::NAN; 5];
                    // SAFETY: types as in block.cu; x has 2000 elements, sums one per block.
                    unsafe {
                        run!("demo_block_sum<double, 256>", 5, 256, 0, Order::Random(seed);
                            2000u32, x.as_ptr(), sums.as_mut_ptr())
                    }
                    .unwrap();
                    assert_eq!(sums.iter().sum::<f64>(), x.iter().sum::<f64>());
                }
            });
        }
    });
}

#[test]
fn only_the_chosen_blocks_run_in_the_grid_of_all() {
    let (n, factor) = (70_u64, 1.0_f64);
    let x: Vec<f64> = (0..n).map(|k| k as f64).collect();
    for order in Order::ALL {
        let mut y = vec![-1.0; n as usize];
        let (x_at, mut y_at) = (x.as_ptr(), y.as_mut_ptr());
        let mut run = |blocks: &[u64]| {
            let (n, factor, x_at, y_at) = (&n, &factor, &x_at, &mut y_at);
            let mut args = [
                std::ptr::from_ref(n).cast_mut().cast(),
                std::ptr::from_ref(factor).cast_mut().cast(),
                std::ptr::from_ref(x_at).cast_mut().cast(),
                std::ptr::from_mut(y_at).cast(),
            ];
            let (grid, block) = ([7, 1, 1], [10, 1, 1]);
            // SAFETY: demo_axpy<double> takes these arguments; both arrays have n elements.
            unsafe {
                let args = args.as_mut_ptr();
                launch_blocks("demo_axpy<double>", grid, block, 0, args, order, blocks)
            }
        };

        run(&[6, 2]).unwrap();
        run(&[]).unwrap();
        let beyond = run(&[0, 7]).unwrap_err();

        let ran = |k: usize| (20..30).contains(&k) || k >= 60;
        for (k, &y) in y.iter().enumerate() {
            assert_eq!(y, if ran(k) { k as f64 - 1.0 } else { -1.0 }, "{k}");
        }
        assert_eq!(beyond, "kernel demo_axpy<double>: no block 7 in a grid of 7");
    }
}
