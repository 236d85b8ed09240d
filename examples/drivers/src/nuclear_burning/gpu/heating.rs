//! Self-heating zones: T9 is one more unknown, and every stage evaluates the rates at its own T9.

use sparsebatch::Pattern;
use sparsebatch::gpu::{Executor, GpuError};

use super::launches::{self, At, Stage};
use super::state::Places;
use super::tables::Tables;
use super::tally::DeviceTally;
use crate::nuclear_burning::equations::{Equations, Heated};
use crate::nuclear_burning::zones::Zones;

/// The data that the equation of the temperature needs.
pub(super) struct Gas<E: Executor> {
    /// Density of each zone, g/cm^3.
    pub(super) rho: E::Buffer<f64>,
    /// `3/2 N_A k (1 + Z_i)`, erg/(mole K).
    pub(super) heats: E::Buffer<f64>,
    /// `N_A B_i`, erg/mole.
    pub(super) bindings: E::Buffer<f64>,
    /// The entries of J between nuclides, column after column: start of each column, row indices,
    /// and indices of the entries, with the diagonal entry last.
    pub(super) column_ptr: E::Buffer<u32>,
    pub(super) column_rows: E::Buffer<u32>,
    pub(super) column_entries: E::Buffer<u32>,
    /// Entries of the last row, one for each unknown.
    pub(super) last_row: E::Buffer<u32>,
    /// Entries of the last column, one for each nuclide.
    pub(super) last_column: E::Buffer<u32>,
}

impl<E: Executor> Gas<E> {
    fn new(
        executor: &E,
        equations: &Equations,
        heated: &Heated,
        rho: &[f64],
    ) -> Result<Self, GpuError> {
        let (mut ptr, mut rows, mut entries) = (vec![0u32], Vec::new(), Vec::new());
        let pattern = equations.pattern().view();
        for column in 0..equations.nnuclides() {
            let others = (0..equations.nnuclides()).filter(|&row| row != column);
            for row in others.chain([column]) {
                if let Some(entry) = pattern.position(row, column) {
                    rows.push(row as u32);
                    entries.push(entry as u32);
                }
            }
            ptr.push(rows.len() as u32);
        }
        Ok(Self {
            rho: executor.upload(rho)?,
            heats: executor.upload(heated.gas.heats())?,
            bindings: executor.upload(heated.gas.bindings())?,
            column_ptr: executor.upload(&ptr)?,
            column_rows: executor.upload(&rows)?,
            column_entries: executor.upload(&entries)?,
            last_row: executor.upload(&heated.row)?,
            last_column: executor.upload(&heated.column)?,
        })
    }
}

/// Additional data of self-heating zones.
pub(super) struct Heating<E: Executor> {
    gas: Gas<E>,
    /// Derivatives of the rates with respect to T9, in the layout of the rates.
    dlambda: E::Buffer<f64>,
    /// dY/dt, and its derivative with respect to T9.
    ydot: E::Buffer<f64>,
    slopes: E::Buffer<f64>,
}

impl<E: Executor> Heating<E> {
    /// Uploads the gas data, and allocates for all zones.
    ///
    /// # Errors
    /// An error of the device.
    pub(super) fn new(
        executor: &E,
        equations: &Equations,
        heated: &Heated,
        zones: &Zones,
    ) -> Result<Self, GpuError> {
        let stride = Places::<E>::stride(zones.len()) as usize;
        let unknowns = || executor.alloc_zeroed(zones.len() * equations.nvars());
        Ok(Self {
            gas: Gas::new(executor, equations, heated, &zones.rho)?,
            dlambda: executor.alloc_zeroed(stride * equations.network().rates.len())?,
            ydot: unknowns()?,
            slopes: unknowns()?,
        })
    }

    /// Computes the rates at the temperatures of a stage, then the stage's right-hand side into
    /// `b`, as `launches::stage`.
    ///
    /// # Errors
    /// An error of the device.
    pub(super) fn stage(
        &mut self,
        executor: &E,
        tables: &Tables<E>,
        (count, places): (usize, &mut Places<E>),
        stage: Stage<'_, E>,
        tally: &mut DeviceTally<E>,
        b: &mut E::Buffer<f64>,
    ) -> Result<(), GpuError> {
        let at = stage.at;
        // At the start of a step the rates are current already, from the step's matrix or from
        // `Heating::begin`.
        if !at.u.is_empty() {
            let gas = (tables, &self.gas);
            launches::heat_rates(executor, gas, (count, &mut *places), at, None)?;
        }
        let stage = Stage { ydot: Some(&mut self.ydot), ..stage };
        launches::stage(executor, tables, (count, &mut *places), stage, tally, b)?;
        launches::heat(executor, (tables, &self.gas), (count, places), at, &self.ydot, b)
    }

    /// Computes the rates at t = 0.
    ///
    /// # Errors
    /// An error of the device.
    pub(super) fn begin(
        &mut self,
        executor: &E,
        tables: &Tables<E>,
        (count, places): (usize, &mut Places<E>),
        weights: &E::Buffer<f64>,
    ) -> Result<(), GpuError> {
        let at = At::start(weights);
        launches::heat_rates(executor, (tables, &self.gas), (count, places), at, None)
    }

    /// Computes `I/(gamma h) - J` of `count` places into `values`.
    ///
    /// # Errors
    /// An error of the device.
    pub(super) fn matrix(
        &mut self,
        executor: &E,
        tables: &Tables<E>,
        (count, places): (usize, &mut Places<E>),
        (weights, gamma): (&E::Buffer<f64>, f64),
        tally: &mut DeviceTally<E>,
        values: &mut E::Buffer<f64>,
    ) -> Result<(), GpuError> {
        let Self { gas, dlambda, ydot, slopes } = self;
        let at = At::start(weights);
        let gas = (tables, &*gas);
        launches::heat_rates(executor, gas, (count, &mut *places), at, Some(dlambda))?;
        // Both arrays are the same sums, with the rates and with their slopes.
        for (rates, out) in [(None, &mut *ydot), (Some(&*dlambda), &mut *slopes)] {
            let plain = Stage { rates, ..Stage::new(at) };
            launches::stage(executor, tables, (count, &mut *places), plain, tally, out)?;
        }
        // `I/(gamma h)` is not added yet, since the last row is a sum over the entries of -J.
        launches::matrix(executor, tables, places, count, f64::INFINITY, values)?;
        launches::heat_matrix(executor, gas, (count, places), gamma, (ydot, slopes), values)
    }
}
