//! Products of other CPU crates, in process: sprs, faer and nalgebra-sparse. Each product is
//! sequential.

use faer::Accum;
use faer::sparse::SparseRowMat;
use faer::sparse::linalg::matmul::sparse_dense_matmul;
use nalgebra_sparse::CsrMatrix;
use nalgebra_sparse::na::{DMatrixView, DMatrixViewMut};
use nalgebra_sparse::ops::Op;
use nalgebra_sparse::ops::serial::spmm_csr_dense;
use sparsebatch_formats::{Csr, RaggedCsr, Scalar};
use sprs::CsMatI;

/// A crate to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// `sprs`.
    Sprs,
    /// `faer`.
    Faer,
    /// `nalgebra-sparse`.
    NalgebraSparse,
}

impl Peer {
    /// All crates.
    pub const ALL: [Self; 3] = [Self::Sprs, Self::Faer, Self::NalgebraSparse];

    /// The crate's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sprs => "sprs",
            Self::Faer => "faer",
            Self::NalgebraSparse => "nalgebra-sparse",
        }
    }

    /// Converts a matrix to the crate's type, with the narrowest indices that the crate accepts.
    pub fn matrix<T: Scalar>(self, csr: &Csr<T>) -> PeerMatrix<T> {
        match self {
            Self::Sprs => PeerMatrix::Sprs(csr.into()),
            Self::Faer => PeerMatrix::Faer(csr.into()),
            Self::NalgebraSparse => PeerMatrix::NalgebraSparse(csr.into()),
        }
    }
}

/// A matrix in the type of its crate.
pub enum PeerMatrix<T: Scalar> {
    /// CSR of `sprs`.
    Sprs(CsMatI<T, i32>),
    /// Row-major sparse matrix of `faer`.
    Faer(SparseRowMat<u32, T>),
    /// CSR of `nalgebra-sparse`.
    NalgebraSparse(CsrMatrix<T>),
}

impl<T: Scalar> PeerMatrix<T> {
    /// Minimum number of bytes that a product moves: values, indices and x once, y twice.
    pub fn bytes_moved(&self) -> u64 {
        let (index, [nrows, ncols, nnz]) = match self {
            Self::Sprs(a) => (4, [a.rows(), a.cols(), a.nnz()]),
            Self::Faer(a) => (4, [a.nrows(), a.ncols(), a.compute_nnz()]),
            Self::NalgebraSparse(a) => (8, [a.nrows(), a.ncols(), a.nnz()]),
        };
        let value = size_of::<T>();
        ((value + index) * nnz + (2 * value + index) * nrows + value * ncols) as u64
    }
}

/// Products of the crates, compiled in this crate.
pub trait PeerProduct: Scalar {
    /// `y += A x`.
    ///
    /// # Panics
    /// When `x` or `y` does not fit.
    fn add_product(matrix: &PeerMatrix<Self>, x: &[Self], y: &mut [Self]);
}

/// The products of the crates for value types.
macro_rules! compiled_here {
    ($($scalar:ty)*) => {$(
        impl PeerProduct for $scalar {
            fn add_product(matrix: &PeerMatrix<Self>, x: &[Self], y: &mut [Self]) {
                match matrix {
                    PeerMatrix::Sprs(a) => sprs::prod::mul_acc_mat_vec_csr(a.view(), x, y),
                    PeerMatrix::Faer(a) => {
                        let x = faer::ColRef::from_slice(x).as_mat();
                        let y = faer::ColMut::from_slice_mut(y).as_mat_mut();
                        sparse_dense_matmul(y, Accum::Add, a.as_ref(), x, 1.0, faer::Par::Seq);
                    }
                    PeerMatrix::NalgebraSparse(a) => {
                        let x = DMatrixView::from_slice(x, x.len(), 1);
                        let nrows = y.len();
                        let y = DMatrixViewMut::from_slice(y, nrows, 1);
                        spmm_csr_dense(1.0, y, 1.0, Op::NoOp(a), Op::NoOp(x));
                    }
                }
            }
        }
    )*};
}

compiled_here!(f32 f64);

/// A batch as one matrix of a crate per system, multiplied in a loop.
pub struct PeerLoop<T: Scalar> {
    items: Vec<PeerMatrix<T>>,
    row_offsets: Vec<usize>,
    col_offsets: Vec<usize>,
    /// Maximum number of systems per task; unlimited for a loop on one thread.
    grain: usize,
}

impl<T: PeerProduct> PeerLoop<T> {
    /// The systems of a batch; with `threads` they are shared between the threads of the pool in
    /// use.
    pub fn new(peer: Peer, batch: &RaggedCsr<T>, threads: bool) -> Self {
        let nitems = batch.nitems();
        let parts = 8 * rayon::current_num_threads();
        Self {
            items: (0..nitems).map(|item| peer.matrix(&batch.item(item).to_csr())).collect(),
            row_offsets: batch.row_offsets().to_vec(),
            col_offsets: batch.col_offsets().to_vec(),
            grain: if threads { nitems.div_ceil(parts).max(1) } else { usize::MAX },
        }
    }

    /// As [`PeerMatrix::bytes_moved`], summed over all systems.
    pub fn bytes_moved(&self) -> u64 {
        self.items.iter().map(PeerMatrix::bytes_moved).sum()
    }

    /// `y += A x` for every system.
    ///
    /// # Panics
    /// When `x` or `y` does not fit.
    pub fn add_products(&self, x: &[T], y: &mut [T]) {
        self.range(0..self.items.len(), x, y);
    }

    /// `y += A x` for the systems `items`; `y` holds only the rows of these systems.
    fn range(&self, items: std::ops::Range<usize>, x: &[T], y: &mut [T]) {
        let (rows, cols) = (&self.row_offsets, &self.col_offsets);
        let first = rows[items.start];
        if items.len() <= self.grain {
            for item in items {
                let y = &mut y[rows[item] - first..rows[item + 1] - first];
                T::add_product(&self.items[item], &x[cols[item]..cols[item + 1]], y);
            }
            return;
        }
        let middle = items.start + items.len() / 2;
        let (front, back) = y.split_at_mut(rows[middle] - first);
        rayon::join(
            || self.range(items.start..middle, x, front),
            || self.range(middle..items.end, x, back),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [1 2; 0 3].
    fn matrix() -> Csr<f64> {
        Csr::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 1], vec![1.0, 2.0, 3.0]).unwrap()
    }

    #[test]
    fn every_crate_adds_the_product() {
        for peer in Peer::ALL {
            let (mut y, mut single) = ([0.5, 0.5], [0.5, 0.5]);

            f64::add_product(&peer.matrix(&matrix()), &[1.0, 10.0], &mut y);
            f32::add_product(&peer.matrix(&matrix().cast::<f32>()), &[1.0, 10.0], &mut single);

            assert_eq!((y, single), ([21.5, 30.5], [21.5, 30.5]), "{}", peer.name());
        }
    }

    #[test]
    fn loops_multiply_each_system_once_on_one_thread_and_on_several() {
        let mut batch = RaggedCsr::new();
        for _ in 0..50 {
            batch.push(matrix().view());
        }
        for (peer, threads) in Peer::ALL.into_iter().flat_map(|p| [(p, false), (p, true)]) {
            let plan = PeerLoop::new(peer, &batch, threads);
            let mut y = vec![0.0; 100];

            plan.add_products(&[1.0; 100], &mut y);

            assert!(y.chunks(2).all(|y| y == [3.0, 3.0]), "{} {threads}", peer.name());
        }
    }

    #[test]
    fn bytes_count_the_indices_that_a_crate_has() {
        let bytes = |peer: Peer| peer.matrix(&matrix()).bytes_moved();

        assert_eq!(bytes(Peer::Sprs), 3 * 12 + 2 * 20 + 2 * 8);
        assert_eq!(bytes(Peer::Faer), bytes(Peer::Sprs));
        assert_eq!(bytes(Peer::NalgebraSparse), 3 * 16 + 2 * 24 + 2 * 8);
        let single = Peer::Sprs.matrix(&matrix().cast::<f32>());
        assert_eq!(single.bytes_moved(), 3 * 8 + 2 * 12 + 2 * 4);
    }
}
