//! Preconditioners of a distributed matrix: the diagonal, or the block of each rank.

use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_cpu_ref::lanes::{LaneOptions, LanePlan, SystemPreconditioner};
use sparsebatch_formats::Batch;
use sparsebatch_solve_core::{Preconditioner, Scheme, Status};
use sparsebatch_solvers::{LinOp, OperatorError};

use super::DistributedMatrix;
use super::matrix::refused;
use crate::{Failure, MpiError, Ranks};

/// The part of a preconditioner that a rank has, analysed.
pub(super) enum Analysed<T> {
    /// The diagonal, of which zeros are taken for 1 where `lenient`.
    Diagonal { diagonal: Vec<T>, lenient: bool },
    /// The block of own rows and columns, with its scheme.
    Block { plan: Box<LanePlan>, batch: Box<Batch<T>> },
    /// A rank without rows.
    Nothing,
}

/// The same, factorised.
pub(super) enum Factored<'p, T> {
    Diagonal(Vec<T>),
    Block(SystemPreconditioner<'p, T>),
    Nothing,
}

impl<T: CpuScalar> Analysed<T> {
    /// What `preconditioner` asks for: `None` for none at all. Block-Jacobi, ILU(0) and IC(0) are those
    /// of the block of each rank; `scheme` is that of the block, [`Scheme::Lu`] for its LU.
    pub(super) fn new(
        matrix: &DistributedMatrix<'_, T>,
        scheme: Scheme,
    ) -> Result<Option<Self>, Failure> {
        let lenient = match (scheme, scheme.preconditioner()) {
            (Scheme::Lu, _) => None,
            (_, Preconditioner::None) => return Ok(None),
            (_, Preconditioner::Auto) => Some(true),
            (_, Preconditioner::Jacobi) => Some(false),
            _ => None,
        };
        if let Some(lenient) = lenient {
            return Ok(Some(Self::Diagonal { diagonal: matrix.diagonal(), lenient }));
        }
        if matrix.own_rows() == 0 {
            return Ok(Some(Self::Nothing));
        }
        let batch = Batch::from(matrix.block().map_err(refused)?);
        let plan = LanePlan::new(&batch, scheme, LaneOptions::default(), None);
        Ok(Some(Self::Block { plan: Box::new(plan.map_err(refused)?), batch: Box::new(batch) }))
    }

    /// Factorises it; the status with which the solve ends where that fails.
    fn factor(&self) -> Result<Result<Factored<'_, T>, Status>, Failure> {
        Ok(match self {
            Self::Nothing => Ok(Factored::Nothing),
            Self::Block { plan, batch } => {
                plan.preconditioner(batch, 0).map_err(refused)?.map(Factored::Block)
            }
            Self::Diagonal { diagonal, lenient } => {
                let inverse = |&d: &T| match d == T::ZERO {
                    true if *lenient => Ok(T::ONE),
                    true => Err(Status::ZeroDiagonal),
                    false => Ok(T::ONE / d),
                };
                let all: Result<Vec<T>, Status> = diagonal.iter().map(inverse).collect();
                all.map(Factored::Diagonal)
            }
        })
    }

    /// Factorises the parts of all ranks; the status of the lowest rank where that fails.
    ///
    /// # Errors
    /// Where a rank cannot factorise for other reasons.
    pub(super) fn factor_all(
        &self,
        ranks: &Ranks,
    ) -> Result<Result<Factored<'_, T>, Status>, MpiError> {
        let own = ranks.run(|| self.factor())?;
        let status = own.as_ref().err().copied();
        let all: Vec<Option<u8>> = ranks.all_gather(&status.map(|status| status as u8))?;
        let first = all.into_iter().flatten().next();
        Ok(match first {
            None => own,
            Some(code) => Err(Status::ALL.get(usize::from(code)).copied())
                .map_err(|status| status.unwrap_or(Status::SingularPreconditioner)),
        })
    }
}

impl<T: CpuScalar> LinOp<T> for Factored<'_, T> {
    fn apply(&mut self, r: &[T], z: &mut [T]) -> Result<(), OperatorError> {
        match self {
            Self::Nothing => {}
            Self::Block(block) => block.apply(r, z),
            Self::Diagonal(inverse) => {
                for ((z, &r), &inverse) in z.iter_mut().zip(r).zip(&*inverse) {
                    *z = inverse * r;
                }
            }
        }
        Ok(())
    }
}
