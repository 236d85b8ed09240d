//! What a call of the C library takes more than the call of Rust that it makes: solves of a tiny
//! batch by kept factors, in turns, in one process.
//!
//! `cargo bench -p sparsebatch-capi` measures data in host memory, with `-- --device` data on a
//! GPU. The program needs nothing else, and can be taken to a machine with a GPU:
//! `cargo bench -p sparsebatch-capi --no-run` tells where it is.
#![allow(unsafe_code, reason = "calls functions of C")]

use std::error::Error;
use std::ffi::c_void;
use std::time::Instant;
use std::{env, ptr};

use sparsebatch::gpu::{self, Device, DeviceData, Executor, Guess};
use sparsebatch::{
    Batch, BatchSolver, BatchValues, CsrPattern, Method, SolveOptions, UniformBatch,
};
use sparsebatch_c::*;

/// Pairs of calls, of which the medians are taken.
const ROUNDS: usize = 20_000;
const ITEMS: usize = 4;
const ROWS: usize = 4;
const NNZ: usize = 3 * ROWS - 2;

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().any(|argument| argument == "--device") {
        true => on_device(),
        false => on_host(),
    }
}

/// A pattern, values of all items, and right-hand sides.
type Systems = (CsrPattern, Vec<f64>, Vec<f64>);

/// Tridiagonal matrices.
fn systems() -> Result<Systems, Box<dyn Error>> {
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..ROWS {
        for col in row.saturating_sub(1)..(row + 2).min(ROWS) {
            col_idx.push(col as i32);
            values.push(if row == col { 4.0 } else { -1.0 });
        }
        row_ptr.push(col_idx.len() as i32);
    }
    let pattern = CsrPattern::try_new(ROWS, ROWS, row_ptr, col_idx)?;
    Ok((pattern, values.repeat(ITEMS), vec![1.0; ITEMS * ROWS]))
}

/// The handle of a factorised solver in C; values stay where they are.
fn solver_in_c(
    pattern: &CsrPattern,
    values: *const c_void,
    place: Option<*mut c_void>,
) -> Result<*mut sb_solver, Box<dyn Error>> {
    let (mut context, mut batch, mut solver) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let (items, rows, nnz) = (ITEMS as i64, ROWS as i64, NNZ as i64);
    let mut of_context = sb_context_options::default();
    let mut of_solver = sb_solver_options { method: c"lu".as_ptr(), ..Default::default() };
    if let Some(stream) = place {
        of_context.backend = c"gpu".as_ptr();
        (of_solver.space, of_solver.stream) = (SB_DEVICE, stream);
    }
    let (row_ptr, col_idx) = (pattern.row_ptr().as_ptr(), pattern.col_idx().as_ptr());
    // SAFETY: arrays have these lengths and live as long as the process needs them.
    unsafe {
        checked(sb_context_create(&of_context, &mut context))?;
        checked(sb_batch_uniform(
            context,
            SB_F64,
            items,
            rows,
            rows,
            nnz,
            row_ptr,
            col_idx,
            SB_ITEM_MAJOR,
            0,
            &mut batch,
        ))?;
        checked(sb_solver_create(batch, values, items * nnz, &of_solver, &mut solver))?;
        checked(sb_solver_factor(solver))?;
    }
    Ok(solver)
}

fn checked(status: sb_status) -> Result<(), String> {
    if status == SB_OK {
        return Ok(());
    }
    let mut message = [0u8; 512];
    // SAFETY: the buffer has this length.
    unsafe { sb_last_error(ptr::null(), message.as_mut_ptr().cast(), message.len()) };
    Err(String::from_utf8_lossy(&message).trim_end_matches('\0').to_owned())
}

/// Solves by kept factors.
fn solve_in_c(solver: *mut sb_solver, b: *const c_void, x: *mut c_void) -> Result<(), String> {
    let (rows, mut failed) = ((ITEMS * ROWS) as i64, 0);
    // SAFETY: the arrays have this length.
    let status =
        unsafe { sb_solver_solve(solver, SB_KEPT, SB_GUESS_ZERO, b, rows, x, rows, &mut failed) };
    checked(status)
}

/// Times both calls in turns, and prints the medians and their difference.
fn compare(
    place: &str,
    mut in_rust: impl FnMut() -> Result<(), Box<dyn Error>>,
    mut in_c: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let (mut rust, mut c) = (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
    let timed = |work: &mut dyn FnMut() -> Result<(), Box<dyn Error>>| {
        let start = Instant::now();
        work().map(|()| start.elapsed())
    };
    for round in 0..ROUNDS + ROUNDS / 10 {
        let (in_rust, in_c) = match round % 2 {
            0 => {
                let in_rust = timed(&mut in_rust)?;
                (in_rust, timed(&mut in_c)?)
            }
            _ => {
                let in_c = timed(&mut in_c)?;
                (timed(&mut in_rust)?, in_c)
            }
        };
        // The first rounds warm caches up.
        if round >= ROUNDS / 10 {
            rust.push(in_rust.as_nanos());
            c.push(in_c.as_nanos());
        }
    }
    let median = |times: &mut Vec<u128>| {
        times.sort_unstable();
        times[times.len() / 2] as f64 / 1e3
    };
    let (rust, c) = (median(&mut rust), median(&mut c));
    println!("{place}: Rust {rust:.2} us, C {c:.2} us, difference {:.2} us", c - rust);
    Ok(())
}

fn on_host() -> Result<(), Box<dyn Error>> {
    let (pattern, values, b) = systems()?;
    let in_c = solver_in_c(&pattern, values.as_ptr().cast(), None)?;
    let own = BatchValues::ItemMajor(values.clone().into());
    let batch = Batch::Uniform(UniformBatch::from_values(pattern.into(), ITEMS, own)?);
    let mut solver = BatchSolver::new(&batch, &SolveOptions::new().method(Method::Lu))?;
    solver.factor(&batch)?;
    let (mut x, mut x_of_c) = (vec![0.0; b.len()], vec![0.0; b.len()]);
    compare(
        "host",
        || {
            x.fill(0.0);
            solver.solve_again(&b, &mut x)?;
            Ok(())
        },
        || Ok(solve_in_c(in_c, b.as_ptr().cast(), x_of_c.as_mut_ptr().cast())?),
    )?;
    assert_eq!(x, x_of_c);
    Ok(())
}

fn on_device() -> Result<(), Box<dyn Error>> {
    let device = Device::of_process(0)?;
    let (pattern, values, b) = systems()?;
    let (values, b) = (device.upload(&values)?, device.upload(&b)?);
    let address = |raw: u64| ptr::without_provenance_mut::<c_void>(raw as usize);
    let in_c = solver_in_c(&pattern, address(values.raw()), Some(device.raw_stream()))?;
    let mut solver = gpu::DeviceSolver::<Device, f64>::with_values(
        &device,
        (&pattern, ITEMS),
        &values,
        &SolveOptions::new().method(Method::Lu),
        DeviceData::new(),
    )?;
    solver.factor(&values)?;
    let mut x = device.alloc_zeroed::<f64>(b.len())?;
    let x_of_c = device.alloc_zeroed::<f64>(b.len())?;
    compare(
        "device",
        || {
            solver.enqueue_again(&b, Guess::Zero, &mut x)?;
            solver.finish_again(&b, &mut x)?;
            Ok(())
        },
        || Ok(solve_in_c(in_c, address(b.raw()), address(x_of_c.raw()))?),
    )?;
    assert_eq!(device.download(&x)?, device.download(&x_of_c)?);
    Ok(())
}
