//! A dense LU by cuBLAS, with which the sparse one is compared.

use sparsebatch::Pattern;
use sparsebatch::gpu::DeviceOutcomes;
use sparsebatch::gpu::{Device, DeviceBuffer, Executor};
use sparsebatch_bench::DenseFactors;

use super::launches;
use super::linear::{Before, Ended, StageSolver};
use crate::nuclear_burning::equations::Equations;
use crate::nuclear_burning::error::BurningError;

/// A dense LU that factors once per step and solves once per stage. The solutions overwrite the
/// right-hand sides.
pub struct DenseLu {
    device: Device,
    factors: DenseFactors,
    active: usize,
    nvars: usize,
    nnz: usize,
    values: DeviceBuffer<f64>,
    /// For each position of a dense matrix, column by column, the index of its entry in the
    /// pattern; -1 if there is none.
    entry_of: DeviceBuffer<i32>,
    outcomes: DenseOutcomes,
}

/// The outcomes of the systems of the last solve.
struct DenseOutcomes {
    statuses: DeviceBuffer<u8>,
    /// Constant arrays for the other fields of an outcome.
    ones: DeviceBuffer<u32>,
    zeros: DeviceBuffer<u32>,
    nothing: DeviceBuffer<f64>,
}

impl DenseOutcomes {
    fn of_last(&self) -> Ended<'_, Device> {
        let outcomes = DeviceOutcomes {
            statuses: &self.statuses,
            iterations: &self.ones,
            restarts: &self.zeros,
            residual_norms: &self.nothing,
            rhs_norms: &self.nothing,
        };
        Ended { outcomes, stages: 1, places: self.ones.len() }
    }
}

impl DenseLu {
    /// Allocates for `places` zones and a method of `stages` stages.
    ///
    /// # Errors
    /// An error of cuBLAS or the device.
    pub fn new(
        device: &Device,
        equations: &Equations,
        (places, stages): (usize, usize),
    ) -> Result<Self, BurningError> {
        let pattern = equations.pattern().view();
        let n = equations.nvars();
        let mut entry_of = vec![-1i32; n * n];
        for row in 0..n {
            for k in pattern.row(row) {
                entry_of[pattern.col_idx()[k] as usize * n + row] = k as i32;
            }
        }
        Ok(Self {
            factors: DenseFactors::new(device, n, places, stages)?,
            active: places,
            nvars: n,
            nnz: pattern.nnz(),
            values: device.alloc(places * pattern.nnz())?,
            entry_of: device.upload(&entry_of)?,
            outcomes: DenseOutcomes {
                statuses: device.alloc(places)?,
                ones: device.upload(&vec![1; places])?,
                zeros: device.alloc_zeroed(places)?,
                nothing: device.alloc_zeroed(places)?,
            },
            device: device.clone(),
        })
    }
}

impl StageSolver<Device> for DenseLu {
    fn set_active(&mut self, active: usize) -> Result<(), BurningError> {
        self.active = active;
        Ok(())
    }

    fn values(&mut self) -> Result<&mut DeviceBuffer<f64>, BurningError> {
        Ok(&mut self.values)
    }

    fn factor(&mut self) -> Result<(), BurningError> {
        let shape = (self.active, self.nvars, self.nnz);
        let dense = self.factors.matrices_mut();
        launches::densify(&self.device, shape, &self.entry_of, &self.values, dense)?;
        Ok(self.factors.factor(self.active)?)
    }

    fn stage(&mut self, stage: usize) -> (Before<'_, Device>, &mut DeviceBuffer<f64>) {
        let (before, this) = self.factors.vectors_mut().split_at_mut(stage);
        let ended = (stage > 0).then(|| self.outcomes.of_last());
        ((before, ended), &mut this[0])
    }

    fn solve(&mut self, stage: usize) -> Result<(), BurningError> {
        self.factors.solve(stage, self.active)?;
        let (info, x) = (self.factors.info(), &self.factors.vectors()[stage]);
        let shape = (self.active, self.nvars);
        Ok(launches::judge_dense(&self.device, shape, info, x, &mut self.outcomes.statuses)?)
    }

    fn solutions(&self) -> Before<'_, Device> {
        (self.factors.vectors(), Some(self.outcomes.of_last()))
    }

    fn describe(&self) -> String {
        let name = &self.device.info().name;
        format!("dense LU with partial pivoting, cuBLAS {} on {name}", self.factors.version())
    }

    fn analyses(&self) -> usize {
        1
    }
}
