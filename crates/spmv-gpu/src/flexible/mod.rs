//! Flexible batched products: `Y_i = alpha*A_i*X_i + beta*Y_i` for a whole batch in one launch, for
//! systems that differ in size, number of entries, pattern and values.
//!
//! | kernel | storage | work of a thread | repeatable |
//! | --- | --- | --- | --- |
//! | `batch-coo` | COO | entries, a segmented scan per warp, atomics between warps | no |
//! | `batch-csr-scalar` | CSR | a row | yes |
//! | `batch-csr-vector` | CSR | 1/32 of a row | yes |
//! | `batch-csr-smart` | CSR | a share of a row that suits the problem | yes |
//! | `batch-csr-i` | CSR | an equal share of the problem's entries | yes |
//! | `batch-ell` | ELL | a row | yes |
//! | `batch-sell-p` | SELL-P | 1/t of a row | yes |
//!
//! One block multiplies one problem; it reads x into shared memory first where x fits. A pattern or
//! values that systems share are stored once; a batch of multiples of one matrix has shared values
//! and a [factor per system](FlexiblePlan::set_scale).
//!
//! Limitations: a single large system keeps one block busy, that is one multiprocessor; systems of
//! a few rows leave most lanes of their block idle; with several right-hand sides a matrix is read
//! again for each.
//!
//! # Source
//! Anzt, Collins, Dongarra, Flegar, Quintana-Orti 2017, «Flexible batched sparse matrix-vector
//! product on GPUs» (doi 10.1145/3148226.3148230). Here CSR-I joins rows that span warps in a fixed
//! order instead of by atomics.

mod batch;
mod explain;
mod indices;
mod kernel;
pub(crate) mod kernels;
mod launch;
mod plan;
mod slots;
mod tuning;

pub use batch::{BatchSizes, DeviceBatch};
pub use explain::Explanation;
pub use kernel::{FlexibleKernel, Storage};
pub use plan::{FlexibleOptions, FlexiblePlan};
