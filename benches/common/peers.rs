//! The libraries and loops that the benches compare with.

use criterion::Criterion;
use faer::Accum;
use faer::sparse::SparseRowMat;
use faer::sparse::linalg::matmul::sparse_dense_matmul;
use nalgebra_sparse::CsrMatrix;
use nalgebra_sparse::na::DVector;
use nalgebra_sparse::ops::Op;
use nalgebra_sparse::ops::serial::spmm_csr_dense;
use sparsebatch_formats::Csr;

use crate::common;

/// One matrix in the form of each peer, with its vectors.
pub(crate) struct PeerItem {
    csr: Csr<f64>,
    sprs: sprs::CsMatI<f64, i32>,
    nalgebra: CsrMatrix<f64>,
    faer: SparseRowMat<usize, f64>,
    /// The operand.
    pub(crate) x: Vec<f64>,
    /// The result.
    pub(crate) y: Vec<f64>,
    x_nalgebra: DVector<f64>,
    y_nalgebra: DVector<f64>,
}

impl PeerItem {
    pub(crate) fn new(a: &Csr<f64>) -> Self {
        let x = common::vector(a.ncols());
        Self {
            sprs: a.into(),
            nalgebra: a.into(),
            faer: a.into(),
            x_nalgebra: DVector::from_column_slice(&x),
            y_nalgebra: DVector::zeros(a.nrows()),
            y: vec![0.0; a.nrows()],
            csr: a.clone(),
            x,
        }
    }
}

/// A peer's name and its `y = A*x`.
pub(crate) type Peer = (&'static str, fn(&mut PeerItem));

/// The peers; all of them sequential.
pub(crate) const PEER_PRODUCTS: [Peer; 4] = [
    ("plain loop", |item| common::plain_loop(&item.csr, &item.x, &mut item.y)),
    ("sprs", |item| {
        item.y.fill(0.0);
        sprs::prod::mul_acc_mat_vec_csr(item.sprs.view(), &item.x[..], &mut item.y[..]);
    }),
    ("nalgebra-sparse", |item| {
        let (a, x) = (Op::NoOp(&item.nalgebra), Op::NoOp(&item.x_nalgebra));
        spmm_csr_dense(0.0, &mut item.y_nalgebra, 1.0, a, x);
        item.y.copy_from_slice(item.y_nalgebra.as_slice());
    }),
    ("faer", |item| {
        let x = faer::ColRef::from_slice(&item.x).as_mat();
        let y = faer::ColMut::from_slice_mut(&mut item.y).as_mat_mut();
        let (replace, sequential) = (Accum::Replace, faer::Par::Seq);
        sparse_dense_matmul(y, replace, item.faer.as_ref(), x, 1.0, sequential);
    }),
];

/// Criterion with short measurements: the machine's bandwidth varies more than the kernels do.
pub(crate) fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1))
        .configure_from_args()
}
