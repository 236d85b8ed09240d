//! Each faulty kernel is caught: by an error in every order, or by a wrong answer in some order.

mod common;

use common::run;
use kernel_emu::{Order, launch, parameter_bytes};
use std::path::Path;
use std::process::Command;
use std::ptr::null_mut;

/// Launches one block of a kernel that takes a pointer to doubles; expects an error in every order
/// that contains all of `parts`.
fn expect_error(kernel: &str, block: u32, parts: &[&str]) {
    for order in Order::ALL {
        let mut y = vec![0.0f64; 64];
        // SAFETY: the kernels that are called here take one pointer, to at most 64 doubles.
        let error = unsafe { run!(kernel, 1, block, 0, order; y.as_mut_ptr()) }.unwrap_err();
        for part in parts.iter().chain(&[kernel, "faulty.cu:"]) {
            assert!(error.contains(part), "{order:?}: no «{part}» in: {error}");
        }
    }
}

#[test]
fn part_of_a_block_at_a_barrier_is_an_error() {
    let part = "reached by only part of the block";
    expect_error("faulty_partial_barrier", 64, &[part, "block (0,0,0), thread ("]);
    expect_error("faulty_two_barriers", 64, &["wait at different barriers", "faulty.cu:34"]);
}

#[test]
fn lanes_that_do_not_come_to_a_shuffle_are_an_error() {
    expect_error("faulty_divergent_shuffle", 32, &["waits at the block barrier"]);
    expect_error("faulty_exited_lane", 32, &["has exited"]);
    expect_error("faulty_outside_mask", 32, &["not in its own mask 0x0000ffff"]);
    expect_error("faulty_unequal_masks", 32, &["mask"]);
    expect_error("faulty_different_intrinsics", 32, &["call different intrinsics"]);
    expect_error("faulty_shuffle_from_outside", 32, &["reads lane 8, which is not in the mask"]);
}

/// Whether the kernels were compiled with this sanitizer; tests/sanitizer.rs covers what it
/// reports.
fn sanitizer_is(name: &str) -> bool {
    kernel_emu::sanitizer().unwrap() == Some(name)
}

/// How often, over the orders, the kernel gives `expected`.
fn right_answers(kernel: &str, x: &[f64], expected: &[f64]) -> usize {
    let right = |&order: &Order| {
        let mut y = vec![0.0; expected.len()];
        // SAFETY: the kernels take one input and one output of as many doubles as threads.
        unsafe { run!(kernel, 1, y.len() as u32, 0, order; x.as_ptr(), y.as_mut_ptr()) }.unwrap();
        y == expected
    };
    [Order::Forward, Order::Reverse].iter().filter(|o| right(o)).count()
}

#[test]
fn a_missing_barrier_gives_a_wrong_answer() {
    if sanitizer_is("thread") {
        return;
    }
    let x: Vec<f64> = (0..64).map(f64::from).collect();
    let reversed: Vec<f64> = x.iter().rev().copied().collect();
    let mut rotated = x[..32].to_vec();
    rotated.rotate_left(1);

    assert!(right_answers("faulty_missing_barrier", &x, &reversed) < 2);
    assert!(right_answers("faulty_missing_syncwarp", &x, &rotated) < 2);
}

#[test]
fn shared_memory_that_was_not_written_is_nan() {
    for order in Order::ALL {
        let mut y = [0.0f64; 32];
        // SAFETY: one pointer to 32 doubles.
        unsafe { run!("faulty_uninitialised_shared", 1, 32, 0, order; y.as_mut_ptr()) }.unwrap();
        assert!(y[0].is_nan());
        assert_eq!(y[1..], [1.0; 31]);
    }
}

#[test]
fn a_lost_update_shows_in_random_order() {
    if sanitizer_is("thread") {
        return;
    }
    let lost = (0..20).any(|seed| {
        let mut counter = 0u32;
        // SAFETY: one pointer to a u32.
        unsafe { run!("faulty_no_atomic", 1, 64, 0, Order::Random(seed); &raw mut counter) }
            .unwrap();
        counter != 64
    });
    assert!(lost);
}

#[test]
fn writes_past_shared_memory_are_an_error() {
    if sanitizer_is("address") {
        return;
    }
    for (kernel, index) in [
        ("faulty_dynamic_bounds", 4u32),
        ("faulty_dynamic_bounds", 100),
        ("faulty_static_bounds", 6),
        ("faulty_static_bounds", 70),
    ] {
        for order in Order::ALL {
            // SAFETY: the write is out of bounds of shared memory, within the emulator's guards.
            let error = unsafe { run!(kernel, 1, 1, 32, order; index) }.unwrap_err();
            let bytes = if kernel.contains("dynamic") { 32 } else { 48 };
            let past = format!("written {} bytes past the end of", 8 * index - bytes);
            assert!(error.contains("out of bounds: ") && error.contains(&past), "{error}");
        }
    }
}

#[test]
fn indices_of_fixed_size_arrays_are_checked() {
    let mut y = 0.0f64;
    // SAFETY: the check stops the kernel before the write.
    let error = unsafe { run!("faulty_array_bounds", 1, 1, 0, Order::Forward; 6u32, &raw mut y) };
    let error = error.unwrap_err();
    assert!(error.contains("index 6 is out of bounds of "), "{error}");
    assert!(error.contains("tests-kernels/faulty.cu:"), "{error}");
}

#[repr(C, align(16))]
struct Aligned([f64; 40]);

#[test]
fn misaligned_vectors_are_an_error() {
    let x = Aligned([1.0; 40]);
    let mut y = [0.0f64; 32];
    // SAFETY: 33 doubles are read, 32 written.
    let error = unsafe {
        run!("faulty_misaligned", 1, 32, 0, Order::Forward; x.0.as_ptr(), y.as_mut_ptr())
    };
    let error = error.unwrap_err();
    assert!(error.contains("thread (1,0,0)") && error.contains("misaligned"), "{error}");
}

#[test]
fn division_by_zero_shifts_and_assertions_are_errors() {
    let mut y = 0u32;
    // SAFETY: one number and one pointer to a u32.
    let error = unsafe { run!("faulty_division", 1, 1, 0, Order::Forward; 0u32, &raw mut y) };
    assert!(error.unwrap_err().contains("division by zero"));
    // SAFETY: as above.
    let error = unsafe { run!("faulty_shift", 1, 1, 0, Order::Forward; 32u32, &raw mut y) };
    assert!(error.unwrap_err().contains("a shift by"));
    // SAFETY: one number.
    let error = unsafe { run!("faulty_assertion", 1, 1, 0, Order::Forward; 4u32) }.unwrap_err();
    assert!(error.contains("assertion failed: n < 4"), "{error}");
}

#[test]
fn endless_waits_are_errors() {
    for kernel in ["faulty_endless_wait", "faulty_endless_atomic"] {
        let mut flag = 0u32;
        // SAFETY: one pointer to a u32.
        let error = unsafe { run!(kernel, 1, 32, 0, Order::Forward; &raw mut flag) }.unwrap_err();
        assert!(error.contains("waits for something that never comes"), "{error}");
    }
}

#[test]
fn copies_that_the_device_refuses_are_errors() {
    let x = Aligned([1.0; 40]);
    let mut y = Aligned([0.0; 40]);
    let mut call = |kernel, block| {
        // SAFETY: an input and an output of 40 doubles, aligned to 16 bytes.
        unsafe { run!(kernel, 1, block, 0, Order::Forward; x.0.as_ptr(), y.0.as_mut_ptr()) }
    };

    let error = call("faulty_misaligned_copy", 1).unwrap_err();
    assert!(error.contains("the global address of a copy of 16 bytes"), "{error}");
    let error = call("faulty_copy_to_global", 1).unwrap_err();
    assert!(error.contains("is not in shared memory"), "{error}");
    let error = call("faulty_expected_bytes", 32).unwrap_err();
    assert!(error.contains("waits for something that never comes"), "{error}");
    // SAFETY: the kernel has no parameters.
    let error = unsafe {
        launch(
            "faulty_uninitialised_mbarrier",
            [1, 1, 1],
            [32, 1, 1],
            0,
            null_mut(),
            Order::Forward,
        )
    };
    assert!(error.unwrap_err().contains("not initialised"));
}

#[test]
fn static_and_dynamic_shared_memory_share_one_limit() {
    let mut y = [0.0f64; 32];
    let mut call = |shared_bytes| {
        // SAFETY: one pointer to 32 doubles.
        unsafe {
            run!("faulty_too_much_shared", 1, 32, shared_bytes, Order::Forward; y.as_mut_ptr())
        }
    };

    call(232_448 - 160_000).unwrap();
    let error = call(232_448 - 159_992).unwrap_err();
    assert!(error.contains("more than 232448 bytes of shared memory"), "{error}");
}

#[test]
fn a_launch_after_an_error_works() {
    expect_error("faulty_exited_lane", 32, &[]);
    let (x, mut y) = ([1.0f64; 64], [1.0f64; 64]);
    // SAFETY: types as in spmv.cu; 64 elements.
    unsafe {
        run!("demo_axpy<double>", 2, 32, 0, Order::Reverse; 64u64, 2.0f64, x.as_ptr(),
            y.as_mut_ptr())
    }
    .unwrap();
    assert_eq!(y, [3.0; 64]);
}

#[test]
fn unknown_names_and_shapes_are_errors() {
    // SAFETY: nothing is launched.
    let call = |name, block, shared| unsafe {
        launch(name, [1, 1, 1], [block, 1, 1], shared, null_mut(), Order::Forward)
    };

    let error = call("demo_csr_vector<double, 16>", 32, 0).unwrap_err();
    assert!(error.starts_with("kernel demo_csr_vector<double,16> is not registered"), "{error}");
    assert!(error.contains("near ones: demo_csr_vector<double,"), "{error}");
    assert!(call("demo_votes", 1025, 0).unwrap_err().contains("1 to 1024"));
    assert!(call("demo_votes", 32, 300_000).unwrap_err().contains("at most 232448"));
    assert!(call("demo_votes", 32, 0).unwrap_err().contains("no arguments"));
    assert_eq!(parameter_bytes("test_spmv:demo_axpy<double>").unwrap(), [8, 8, 8, 8]);
    // SAFETY: nothing is launched.
    let error = unsafe { run!("demo_axpy<float>", 1, 32, 0, Order::Forward; 1u64, 1.0f64) };
    assert!(error.unwrap_err().contains("its parameters have [8, 4, 8, 8] bytes"));
    assert!(kernel_emu::registered().unwrap().contains(&"test_block:demo_histogram".to_owned()));
}

/// The library is opened once, so this test runs again in a process of its own.
#[test]
fn a_library_that_is_not_there_is_an_error() {
    const NOWHERE: &str = "/no/libkernel_emu.so";
    if kernel_emu::library_path() == Path::new(NOWHERE) {
        let error = kernel_emu::registered().unwrap_err();
        assert!(error.contains(NOWHERE) && error.lines().count() == 1, "{error}");
        assert_eq!(kernel_emu::sanitizer(), Err(error));
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_library_that_is_not_there_is_an_error"])
        .env("KERNEL_EMU_LIBRARY", NOWHERE)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("1 passed"), "{shown}");
}
