//! Products and the pivoting LU, tested through the public interface. One program, because each
//! takes seconds to build.

mod lane_plans;
mod pivoting_lu;
mod spmv_batch;
mod spmv_common;
mod spmv_single;
