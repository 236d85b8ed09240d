//! The preconditioners of a [`LanePlan`](super::LanePlan) for one system at a time, for solvers
//! that keep their own loops.

use sparsebatch_formats::{Batch, Scalar};

use super::precond::{Identity, Jacobi, LanePrecond};
use super::{Class, Factors, LanePlan};
use crate::CpuError;
use crate::simd::{CpuScalar, Plain, plain, plain_mut};
use sparsebatch_solve_core::check_len;
use sparsebatch_solve_core::{Scheme, Status};

/// Applies `z = M r` for one system, with the rounding of the baseline instruction set's lanes.
pub struct SystemPreconditioner<'p, T>(Box<dyn Apply<T> + 'p>);

trait Apply<T>: Send + Sync {
    fn apply(&mut self, r: &[T], z: &mut [T]);
}

struct Held<T: CpuScalar, P: LanePrecond<T>> {
    precond: P,
    state: P::State<Plain<T, 1>>,
}

impl<T: CpuScalar, P: LanePrecond<T> + Send> Apply<T> for Held<T, P>
where
    P::State<Plain<T, 1>>: Send + Sync,
{
    fn apply(&mut self, r: &[T], z: &mut [T]) {
        let (r, z) = (plain(r), plain_mut(z));
        if P::DIAGONAL {
            for (i, (z, &r)) in z.iter_mut().zip(r).enumerate() {
                *z = self.precond.scale(&self.state, i, r);
            }
        } else {
            self.precond.apply(&mut self.state, r, z);
        }
    }
}

impl<T: CpuScalar> SystemPreconditioner<'_, T> {
    /// `z = M r`; `r` and `z` hold one value per row.
    ///
    /// # Panics
    /// When `r` or `z` has fewer values than rows.
    pub fn apply(&mut self, r: &[T], z: &mut [T]) {
        self.0.apply(r, z);
    }
}

impl LanePlan {
    /// Factorises the preconditioner of one item. If the item has none, returns the status with
    /// which its solve would end: `ZeroDiagonal`, `SingularPreconditioner` or, for CG with a
    /// negative diagonal entry, `Indefinite`.
    ///
    /// # Errors
    /// [`CpuError::Argument`] for a batch with another number of items; [`CpuError::NotPlanned`] for
    /// an item that is out of range or was left out of the plan; [`CpuError::OtherPattern`] for an
    /// item whose pattern differs from the one the plan was made for.
    pub fn preconditioner<T: CpuScalar>(
        &self,
        batch: &Batch<T>,
        item: usize,
    ) -> Result<Result<SystemPreconditioner<'_, T>, Status>, CpuError> {
        check_len("batch", self.nitems, batch.nitems())?;
        let class = self.class_of(item)?;
        if !class.matrix.matches(batch.pattern(item)) {
            return Err(CpuError::OtherPattern { item });
        }
        let mut values = Vec::new();
        batch.copy_values(item, &mut values);
        let a = plain(&values);
        let held = match &class.factors {
            Factors::None => hold(Identity, a),
            Factors::Jacobi { lenient } => hold(jacobi(class, *lenient), a),
            Factors::Lu(lu) => hold(&**lu, a),
            Factors::Ic0(ic0) => hold(&**ic0, a),
            Factors::Blocks(blocks) => hold(blocks, a),
        };
        Ok(held.map_err(|status| match (status, self.scheme) {
            (Status::SingularPreconditioner, Scheme::Cg(_))
                if class.matrix.has_negative_diagonal(|k| values[k]) =>
            {
                Status::Indefinite
            }
            (status, _) => status,
        }))
    }
}

pub(super) fn jacobi(class: &Class, lenient: bool) -> Jacobi<'_> {
    Jacobi { matrix: &class.matrix, lenient }
}

fn hold<'p, T: CpuScalar, P: LanePrecond<T> + Send + 'p>(
    precond: P,
    a: &[Plain<T, 1>],
) -> Result<SystemPreconditioner<'p, T>, Status>
where
    P::State<Plain<T, 1>>: Send + Sync,
{
    let mut state = precond.start::<Plain<T, 1>>();
    precond.load(&mut state, 0, a)?;
    if !P::DIAGONAL && precond.factor(&mut state, a) & 1 == 1 {
        return Err(Status::SingularPreconditioner);
    }
    Ok(SystemPreconditioner(Box::new(Held { precond, state })))
}

/// The dot product of two vectors in the order of the solvers: element `i` is added to the
/// partial sum `i mod 4`, and the result is `(s0 + s1) + (s2 + s3)`. Without fused multiply-add.
pub fn dot<T: Scalar>(a: &[T], b: &[T]) -> T {
    super::dot::scalar_dot::<Plain<T, 1>>(a.iter().copied().zip(b.iter().copied()))
}
