//! [`ShiftedValues`]: matrices `I/dt - J` of implicit steps, formed on the device.

use std::marker::PhantomData;

use sparsebatch_cuda::{Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Value};
use sparsebatch_formats::CsrPatternRef;
use sparsebatch_formats::batch::count_systems;

use super::item_grid::item_grid;
use super::kernels::SHIFT;
use crate::GpuSolveError;
use sparsebatch_solve_core::{ArgumentError, check_len};

/// Forms the values of `I/dt_i - J_i` for every item of a uniform batch, from Jacobians and time
/// steps that lie on the device: the matrices of the linearised implicit Euler method, and with
/// `dt = gamma h` those of Rosenbrock methods.
///
/// `dt` has the unit of time, `J` its inverse. No value is checked: a step of 0 makes the diagonal
/// infinite, and the solve of that item ends `NonFinite`; an infinite step leaves `-J`.
///
/// # Source
/// Hairer and Wanner 1996, Solving Ordinary Differential Equations II, section IV.7, equation
/// (7.25).
pub struct ShiftedValues<E: Executor, T: Value> {
    executor: E,
    nnz: usize,
    nitems: usize,
    is_diagonal: E::Buffer<u8>,
    key: KernelKey,
    config: LaunchConfig,
    values: PhantomData<T>,
}

impl<E: Executor + Clone, T: Value> ShiftedValues<E, T> {
    /// Prepares for `nitems` items of a pattern that has every diagonal entry.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for a matrix that is not square, when an entry on the diagonal is
    /// missing; [`GpuSolveError::Gpu`] when memory or compiler fail.
    pub fn new(
        executor: &E,
        pattern: CsrPatternRef<'_>,
        nitems: usize,
    ) -> Result<Self, GpuSolveError> {
        let (nrows, ncols, nnz) = (pattern.nrows(), pattern.ncols(), pattern.nnz());
        if nrows != ncols {
            return Err(GpuSolveError::Argument(ArgumentError::NotSquare {
                item: 0,
                nrows,
                ncols,
            }));
        }
        count_systems(nitems, 1).map_err(GpuError::from)?;
        let mut is_diagonal = vec![0u8; nnz];
        for row in 0..nrows {
            let Some(position) = pattern.position(row, row) else {
                return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                    name: "pattern",
                    expected: "an entry on the diagonal in every row",
                    found: format!("none in row {row}"),
                }));
            };
            is_diagonal[position] = 1;
        }
        let key = KernelKey::new(&SHIFT, format!("shift<{}>", T::CPP));
        executor.prepare(std::slice::from_ref(&key))?;
        Ok(Self {
            nnz,
            nitems,
            is_diagonal: executor.upload(&is_diagonal)?,
            key,
            config: item_grid(executor.info(), nitems, nnz),
            executor: executor.clone(),
            values: PhantomData,
        })
    }

    /// Overwrites `values` with the matrices of all items, item-major, in the layout of
    /// [`FusedSolver::solve`](crate::FusedSolver::solve). Allocates nothing and returns before the
    /// launch is done.
    ///
    /// `jacobian` holds the entries of item 0 in CSR order, of item 1, ...; or those of one item,
    /// shared by all. `dt` holds one time step per item.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] when an array does not fit, when
    /// `values` overlaps another one, [`GpuSolveError::Gpu`] when the launch is refused; `values`
    /// are untouched then.
    #[expect(unsafe_code, reason = "the one launch")]
    pub fn apply(
        &self,
        jacobian: &E::Buffer<T>,
        dt: &E::Buffer<T>,
        values: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let shared = jacobian.len() == self.nnz;
        if !shared {
            check_len("jacobian", self.nnz * self.nitems, jacobian.len())?;
        }
        check_len("dt", self.nitems, dt.len())?;
        check_len("values", self.nnz * self.nitems, values.len())?;
        if jacobian.shares_memory_with(values) || dt.shares_memory_with(values) {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "values",
                expected: "memory apart from jacobian and dt",
                found: "memory shared with them".to_owned(),
            }));
        }
        if values.is_empty() {
            return Ok(());
        }
        let mut args = Args::new();
        args.scalar(self.nitems as u64)
            .scalar(self.nnz as u32)
            .input(&self.is_diagonal)
            .scalar(if shared { 0 } else { self.nnz as u64 })
            .input(jacobian)
            .input(dt)
            .output(values);
        // SAFETY: the arguments are those of `shift`; lengths were checked here and that of the
        // flags is the pattern's; `values` overlaps nothing that is read.
        unsafe { self.executor.launch(&self.key, self.config, &mut args) }?;
        Ok(())
    }
}
