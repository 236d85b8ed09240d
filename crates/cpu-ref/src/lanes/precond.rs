//! Preconditioners over lanes: the trait, the identity and Jacobi.

use super::dot::scalar_dot;
use super::matrix::LaneMatrix;
use crate::simd::{CpuScalar, Vector};
use sparsebatch_solve_core::Status;

/// A preconditioner `z = M r` over lanes.
///
/// Diagonal ones are applied element by element inside other passes and loaded lane by lane;
/// the others are factorised for a whole group and applied to whole vectors.
pub(crate) trait LanePrecond<T: CpuScalar>: Sync {
    /// Whether the preconditioner is diagonal and applied element by element.
    const DIAGONAL: bool;
    /// Whether the preconditioner is the identity, `z = r`.
    const IDENTITY: bool;
    /// The data of the preconditioner for a group.
    type State<V: Vector<Scalar = T>>;

    /// Allocates the state of a group.
    fn start<V: Vector<Scalar = T>>(&self) -> Self::State<V>;

    /// Prepares one lane of a diagonal preconditioner from the group's values.
    fn load<V: Vector<Scalar = T>>(
        &self,
        _state: &mut Self::State<V>,
        _lane: usize,
        _a: &[V],
    ) -> Result<(), Status> {
        Ok(())
    }

    /// Factorises all lanes of a preconditioner that is not diagonal. Returns the lanes in which
    /// the factorisation failed, one bit each (idle lanes may be among them).
    #[inline(always)]
    fn factor<V: Vector<Scalar = T>>(&self, _state: &mut Self::State<V>, _a: &[V]) -> u32 {
        0
    }

    /// Element `i` of `M r` for a diagonal preconditioner.
    #[inline(always)]
    fn scale<V: Vector<Scalar = T>>(&self, _state: &Self::State<V>, _i: usize, r: V) -> V {
        r
    }

    /// `z = M r` for a preconditioner that is not diagonal.
    #[inline(always)]
    fn apply<V: Vector<Scalar = T>>(&self, _state: &mut Self::State<V>, _r: &[V], _z: &mut [V]) {}

    /// `r'Mr` of one lane for a diagonal preconditioner, in the solvers' order.
    #[inline(always)]
    fn weighted_dot<V: Vector<Scalar = T>>(
        &self,
        _state: &Self::State<V>,
        _lane: usize,
        r: &[T],
    ) -> T {
        scalar_dot::<V>(r.iter().map(|&r| (r, r)))
    }
}

/// No preconditioner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity;

impl<T: CpuScalar> LanePrecond<T> for Identity {
    const DIAGONAL: bool = true;
    const IDENTITY: bool = true;
    type State<V: Vector<Scalar = T>> = ();

    fn start<V: Vector<Scalar = T>>(&self) {}
}

/// The inverse of the diagonal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jacobi<'a> {
    pub(crate) matrix: &'a LaneMatrix,
    /// Whether a zero or missing diagonal entry is replaced by 1 rather than refused.
    pub(crate) lenient: bool,
}

impl<T: CpuScalar> LanePrecond<T> for Jacobi<'_> {
    const DIAGONAL: bool = true;
    const IDENTITY: bool = false;
    type State<V: Vector<Scalar = T>> = Vec<V>;

    fn start<V: Vector<Scalar = T>>(&self) -> Vec<V> {
        vec![V::zero(); self.matrix.nrows()]
    }

    #[inline(always)]
    fn load<V: Vector<Scalar = T>>(
        &self,
        state: &mut Vec<V>,
        lane: usize,
        a: &[V],
    ) -> Result<(), Status> {
        for (row, inverse) in state.iter_mut().enumerate() {
            let diagonal = self.matrix.diag(row).map_or(T::ZERO, |k| a[k].get(lane));
            let diagonal = match diagonal == T::ZERO {
                true if self.lenient => T::ONE,
                true => return Err(Status::ZeroDiagonal),
                false => diagonal,
            };
            inverse.set(lane, T::ONE / diagonal);
        }
        Ok(())
    }

    #[inline(always)]
    fn scale<V: Vector<Scalar = T>>(&self, state: &Vec<V>, i: usize, r: V) -> V {
        state[i].mul(r)
    }

    #[inline(always)]
    fn weighted_dot<V: Vector<Scalar = T>>(&self, state: &Vec<V>, lane: usize, r: &[T]) -> T {
        scalar_dot::<V>(r.iter().zip(state).map(|(&r, w)| (w.get(lane) * r, r)))
    }
}
