//! The guide and the design of the library: `docs/` as pages whose programs are run as tests.
//!
//! | page | for |
//! | --- | --- |
//! | [`first_solve`] | a batch solved, and solved again |
//! | [`batches`] | matrices, batches, files |
//! | [`choosing`] | methods, preconditioners, tolerances, the ladder |
//! | [`on_a_gpu`] | data on the host and on the device |
//! | [`gradients`] | transposed systems, gradients of solutions |
//! | [`products`] | products alone, and solves over them |
//! | [`clusters`] | batches, or one large matrix, over MPI ranks: Slurm, GPUs of ranks, kernel caches, faults |
//! | [`python`] | the Python package: NumPy, SciPy, CuPy, PyTorch, JAX |
//! | [`c`] | the C library, and its layer for C++ |
//! | [`fortran`] | the module for Fortran |
//! | [`sundials`] | the linear solver for CVODE and the other integrators of SUNDIALS |
//! | [`cusolver`] | from cuSolverSp's batched QR: calls, differences, times |
//! | [`json`] | what the command line prints with `--json` |
//! | [`nuclear_burning`], [`radiation_diffusion`] | the two drivers |
//! | [`gpu_solvers`], [`banded`], [`confirming_on_the_device`] | design: the solvers of the GPU |
//! | [`scale`] | design: what a batch costs on many ranks, measured and predicted |
//! | [`distributed`] | design: one large matrix over ranks |
//! | [`recipes`] | how to add a solver, a kernel, a format, a method, a suite, ... |

#[doc = include_str!("../docs/guide/first-solve.md")]
pub mod first_solve {}

#[doc = include_str!("../docs/guide/batches.md")]
pub mod batches {}

#[doc = include_str!("../docs/guide/choosing.md")]
pub mod choosing {}

#[doc = include_str!("../docs/guide/gpu.md")]
pub mod on_a_gpu {}

#[doc = include_str!("../docs/guide/gradients.md")]
pub mod gradients {}

#[doc = include_str!("../docs/guide/products.md")]
pub mod products {}

#[doc = include_str!("../docs/guide/clusters.md")]
pub mod clusters {}

#[doc = include_str!("../docs/guide/python.md")]
pub mod python {}

#[doc = include_str!("../docs/guide/c.md")]
pub mod c {}

#[doc = include_str!("../docs/guide/fortran.md")]
pub mod fortran {}

#[doc = include_str!("../docs/guide/sundials.md")]
pub mod sundials {}

#[doc = include_str!("../docs/guide/cusolver.md")]
pub mod cusolver {}

#[doc = include_str!("../docs/json.md")]
pub mod json {}

#[doc = include_str!("../docs/nuclear-burning.md")]
pub mod nuclear_burning {}

#[doc = include_str!("../docs/radiation-diffusion.md")]
pub mod radiation_diffusion {}

#[doc = include_str!("../docs/design/gpu-solvers.md")]
pub mod gpu_solvers {}

#[doc = include_str!("../docs/design/banded.md")]
pub mod banded {}

#[doc = include_str!("../docs/design/confirming-on-the-device.md")]
pub mod confirming_on_the_device {}

#[doc = include_str!("../docs/design/distributed.md")]
pub mod distributed {}

#[doc = include_str!("../docs/design/scale.md")]
pub mod scale {}

#[doc = include_str!("../docs/design/recipes.md")]
pub mod recipes {}
