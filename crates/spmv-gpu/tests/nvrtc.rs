//! Every kernel compiles for every architecture, without a GPU.

use sparsebatch_spmv_gpu::device::cache::DiskCache;
use sparsebatch_spmv_gpu::device::nvrtc::{Compiled, Program, architectures, compile};
use sparsebatch_spmv_gpu::kernels;
use sparsebatch_spmv_gpu::testing::nvrtc_or_skip;
use sparsebatch_spmv_gpu::{GpuError, Pod};

const ARCHITECTURES: [&str; 4] = ["sm_80", "sm_90", "sm_100", "sm_120"];

/// What a module's kernels with many loads under way may spill, outside of their loops, in bytes: some
/// registers, or one, which cost less than the resident threads that their launch bounds ask for. The
/// launch bounds of `cg` and `bicgstab` leave room for what an iteration needs, and less than what is
/// done once a system would take.
const MAY_SPILL: [(&str, u32); 6] =
    [("packed", 64), ("sell", 8), ("cg", 1200), ("bicgstab", 1000), ("lu", 64), ("factored", 32)];

/// The instances that hosts use (of `cg` and `bicgstab` some of each kind: they take half a second
/// each), by module, the oldest architecture that has them, and the registers that each may have.
const INSTANCES: [(&str, &str, &[&str], u32); 25] = [
    (
        "pack",
        "sm_80",
        &[
            "pack_cut<4>",
            "pack_measure",
            "pack_window",
            "pack_copy",
            "pack_nothing",
            "pack_fill<double>",
            "pack_fill<float>",
        ],
        80,
    ),
    (
        "packed",
        "sm_80",
        &[
            "packed_spmv<double, 4, 4, 0>",
            "packed_spmv<double, 4, 4, 1>",
            "packed_spmv<double, 4, 8, 1>",
            "packed_spmv<double, 4, 4, 3>",
            "packed_spmv<double, 4, 4, 7>",
            "packed_spmv<double, 6, 4, 0>",
            "packed_spmv<double, 6, 4, 1>",
            "packed_spmv<double, 6, 8, 1>",
            "packed_spmv<double, 6, 4, 3>",
            "packed_spmv<double, 6, 4, 7>",
            "packed_spmv<float, 4, 4, 0>",
            "packed_spmv<float, 4, 4, 1>",
            "packed_spmv<float, 4, 8, 1>",
            "packed_spmv<float, 4, 4, 3>",
            "packed_spmv<float, 4, 4, 7>",
            "packed_spmv<float, 6, 4, 0>",
            "packed_spmv<float, 6, 4, 1>",
            "packed_spmv<float, 6, 8, 1>",
            "packed_spmv<float, 6, 4, 3>",
            "packed_spmv<float, 6, 4, 7>",
        ],
        80,
    ),
    (
        "packed",
        "sm_90",
        &[
            "packed_stream<double, 8, 2, 4, 0>",
            "packed_stream<double, 8, 2, 8, 0>",
            "packed_stream<double, 8, 2, 4, 1>",
            "packed_stream<double, 8, 2, 8, 1>",
            "packed_stream<double, 8, 2, 4, 2>",
            "packed_stream<double, 8, 2, 4, 3>",
            "packed_stream<double, 8, 2, 4, 6>",
            "packed_stream<double, 8, 2, 4, 7>",
            "packed_stream<double, 8, 2, 1, 1>",
            "packed_stream<double, 8, 2, 2, 1>",
            "packed_stream<double, 8, 2, 8, 2>",
            "packed_stream<double, 8, 2, 8, 3>",
            "packed_stream<double, 8, 2, 8, 6>",
            "packed_stream<double, 8, 2, 8, 7>",
            "packed_stream<double, 4, 3, 4, 1>",
            "packed_stream<double, 4, 4, 2, 1>",
            "packed_stream<double, 8, 4, 4, 1>",
            "packed_stream<double, 8, 3, 4, 1>",
            "packed_stream<float, 8, 2, 4, 0>",
            "packed_stream<float, 8, 2, 8, 0>",
            "packed_stream<float, 8, 2, 4, 1>",
            "packed_stream<float, 8, 2, 8, 1>",
            "packed_stream<float, 8, 2, 4, 2>",
            "packed_stream<float, 8, 2, 4, 3>",
            "packed_stream<float, 8, 2, 4, 6>",
            "packed_stream<float, 8, 2, 4, 7>",
            "packed_stream<float, 8, 2, 1, 1>",
            "packed_stream<float, 8, 2, 2, 1>",
            "packed_stream<float, 8, 2, 8, 2>",
            "packed_stream<float, 8, 2, 8, 3>",
            "packed_stream<float, 8, 2, 8, 6>",
            "packed_stream<float, 8, 2, 8, 7>",
            "packed_stream<float, 4, 3, 4, 1>",
            "packed_stream<float, 4, 4, 2, 1>",
            "packed_stream<float, 8, 4, 4, 1>",
            "packed_stream<float, 8, 3, 4, 1>",
        ],
        144,
    ),
    (
        "vector",
        "sm_80",
        &["axpby<double>", "axpby<float>", "copy<ulonglong2>", "read_sum<double>"],
        40,
    ),
    ("check", "sm_80", &["csr_check"], 40),
    (
        "csr",
        "sm_80",
        &[
            "csr_scalar<double>",
            "csr_scalar_unrolled<double>",
            "csr_vector<double, 2>",
            "csr_vector<double, 4>",
            "csr_vector<double, 8>",
            "csr_vector<double, 16>",
            "csr_vector<double, 32>",
            "csr_tile<double>",
            "csr_scalar<float>",
            "csr_scalar_unrolled<float>",
            "csr_vector<float, 2>",
            "csr_vector<float, 4>",
            "csr_vector<float, 8>",
            "csr_vector<float, 16>",
            "csr_vector<float, 32>",
            "csr_tile<float>",
        ],
        // csr_tile; its shared memory allows fewer warps than that.
        64,
    ),
    (
        "csr_balanced",
        "sm_80",
        &[
            "balanced_parts<double>",
            "balanced_carries<double>",
            "balanced_parts<float>",
            "balanced_carries<float>",
        ],
        40,
    ),
    ("csr_adaptive", "sm_80", &["csr_adaptive<double, 4>", "csr_adaptive<float, 4>"], 40),
    ("csr_adaptive", "sm_80", &["csr_adaptive<double, 8>", "csr_adaptive<float, 8>"], 64),
    (
        "coo",
        "sm_80",
        &[
            "coo_scale<double>",
            "coo_parts<double>",
            "coo_carries<double>",
            "coo_scale<float>",
            "coo_parts<float>",
            "coo_carries<float>",
        ],
        40,
    ),
    ("ell", "sm_80", &["ell<double>", "ell<float>"], 80),
    (
        "dia",
        "sm_80",
        &["dia<double, 3>", "dia<double, 5>", "dia<double, 7>", "dia<double, 9>", "dia<float, 9>"],
        64,
    ),
    ("sell", "sm_80", &["sell<double>", "sell<float>"], 80),
    ("sellp", "sm_80", &["sellp<double>", "sellp<float>"], 48),
    (
        "batch_csr",
        "sm_80",
        &[
            "batch_csr<double, u16, 0>",
            "batch_csr<double, u16, 1>",
            "batch_csr<double, u16, 32>",
            "batch_csr<double, u32, 0>",
            "batch_csr<double, u32, 1>",
            "batch_csr<double, u32, 32>",
            "batch_csr<float, u16, 0>",
            "batch_csr<float, u16, 1>",
            "batch_csr<float, u16, 32>",
            "batch_csr<float, u32, 0>",
            "batch_csr<float, u32, 1>",
            "batch_csr<float, u32, 32>",
            "batch_csr_i<double, u16>",
            "batch_csr_i<double, u32>",
            "batch_csr_i<float, u16>",
            "batch_csr_i<float, u32>",
        ],
        64,
    ),
    (
        "batch_coo",
        "sm_80",
        &[
            "batch_coo<double, u16>",
            "batch_coo<double, u32>",
            "batch_coo<float, u16>",
            "batch_coo<float, u32>",
        ],
        64,
    ),
    (
        "batch_ell",
        "sm_80",
        &[
            "batch_ell<double, u16>",
            "batch_ell<double, u32>",
            "batch_ell<float, u16>",
            "batch_ell<float, u32>",
        ],
        64,
    ),
    (
        "batch_sellp",
        "sm_80",
        &[
            "batch_sellp<double, u16, 1>",
            "batch_sellp<double, u16, 2>",
            "batch_sellp<double, u16, 4>",
            "batch_sellp<double, u16, 8>",
            "batch_sellp<double, u32, 1>",
            "batch_sellp<double, u32, 2>",
            "batch_sellp<double, u32, 4>",
            "batch_sellp<double, u32, 8>",
            "batch_sellp<float, u16, 1>",
            "batch_sellp<float, u16, 2>",
            "batch_sellp<float, u16, 4>",
            "batch_sellp<float, u16, 8>",
            "batch_sellp<float, u32, 1>",
            "batch_sellp<float, u32, 2>",
            "batch_sellp<float, u32, 4>",
            "batch_sellp<float, u32, 8>",
        ],
        64,
    ),
    (
        "cg",
        "sm_80",
        &[
            "cg<double, 8, 2, 3, 0, 1, 1>",
            "cg<double, 8, 4, 3, 0, 1, 1>",
            "cg<double, 32, 1, 3, 0, 1, 1>",
            "cg<double, 32, 4, 3, 0, 1, 1>",
            "cg<double, 16, 4, 3, 0, 1, 1>",
            "cg<double, 16, 8, 3, 0, 1, 1>",
            "cg<double, 32, 8, 3, 0, 1, 1>",
            "cg<double, 64, 8, 3, 0, 1, 1>",
            "cg<double, 128, 8, 3, 0, 1, 1>",
            "cg<double, 8, 2, 5, 0, 1, 0>",
            "cg<double, 16, 4, 5, 0, 1, 0>",
            "cg<double, 32, 4, 5, 0, 1, 0>",
            "cg<double, 32, 8, 5, 0, 1, 0>",
            "cg<double, 64, 8, 5, 0, 1, 0>",
            "cg<double, 128, 8, 5, 0, 1, 0>",
            "cg<double, 8, 2, 0, 1, 1, 0>",
            "cg<double, 32, 2, 0, 1, 1, 0>",
            "cg<double, 32, 4, 0, 1, 1, 0>",
            "cg<double, 64, 4, 0, 1, 1, 0>",
            "cg<double, 128, 4, 0, 1, 1, 0>",
            "cg<double, 128, 8, 0, 1, 1, 0>",
            "cg<double, 256, 8, 0, 1, 1, 0>",
            "cg<double, 512, 8, 0, 1, 1, 0>",
            "cg<double, 128, 8, 0, 2, 1, 0>",
            "cg<double, 512, 8, 0, 2, 1, 0>",
            "cg<double, 8, 4, 3, 0, 0, 1>",
            "cg<double, 32, 8, 3, 0, 0, 1>",
            "cg<double, 128, 8, 5, 0, 0, 0>",
            "cg<double, 128, 8, 0, 1, 0, 0>",
            "cg<double, 32, 8, 5, 0, 0, 1>",
            "cg<double, 128, 8, 5, 0, 1, 1>",
            "cg<double, 32, 2, 9, 0, 1, 0>",
            "cg<double, 32, 5, 9, 0, 1, 0>",
            "cg<double, 128, 4, 9, 0, 1, 0>",
            "cg<double, 256, 8, 9, 1, 1, 0>",
            "cg<double, 32, 8, 3, 0, 1, 1, 1>",
            "cg<double, 128, 8, 0, 1, 1, 0, 1>",
            "cg<float, 8, 4, 3, 0, 1, 1>",
            "cg<float, 128, 8, 3, 0, 1, 1>",
            "cg<float, 128, 8, 5, 0, 1, 0>",
            "cg<float, 128, 8, 0, 1, 1, 0>",
            "cg<float, 32, 8, 3, 0, 0, 1>",
        ],
        255,
    ),
    (
        "bicgstab",
        "sm_80",
        &[
            "bicgstab<double, 8, 2, 3, 0, 1, 1, 1>",
            "bicgstab<double, 8, 4, 3, 0, 1, 1, 1>",
            "bicgstab<double, 32, 1, 3, 0, 1, 1, 1>",
            "bicgstab<double, 32, 4, 3, 0, 1, 1, 1>",
            "bicgstab<double, 16, 4, 3, 0, 1, 1, 1>",
            "bicgstab<double, 16, 8, 3, 0, 1, 1, 3>",
            "bicgstab<double, 32, 8, 3, 0, 1, 1, 3>",
            "bicgstab<double, 128, 8, 3, 0, 1, 1, 3>",
            "bicgstab<double, 16, 4, 5, 0, 1, 0, 3>",
            "bicgstab<double, 32, 8, 5, 0, 1, 0, 3>",
            "bicgstab<double, 128, 8, 5, 0, 1, 0, 3>",
            "bicgstab<double, 16, 2, 9, 0, 1, 0, 3>",
            "bicgstab<double, 32, 2, 9, 0, 1, 0, 3>",
            "bicgstab<double, 32, 4, 9, 0, 1, 0, 3>",
            "bicgstab<double, 32, 5, 9, 0, 1, 0, 3>",
            "bicgstab<double, 64, 4, 9, 0, 1, 0, 3>",
            "bicgstab<double, 128, 4, 9, 0, 1, 0, 1>",
            "bicgstab<double, 256, 4, 9, 0, 1, 0, 1>",
            "bicgstab<double, 32, 8, 5, 0, 1, 1, 3>",
            "bicgstab<double, 256, 8, 9, 1, 1, 0, 3>",
            "bicgstab<double, 64, 4, 0, 1, 1, 0, 3>",
            "bicgstab<double, 128, 8, 0, 1, 1, 0, 3>",
            "bicgstab<double, 512, 8, 0, 1, 1, 0, 3>",
            "bicgstab<double, 512, 8, 0, 2, 1, 0, 3>",
            "bicgstab<double, 32, 8, 3, 0, 0, 1, 3>",
            "bicgstab<double, 128, 4, 9, 0, 0, 0, 1>",
            "bicgstab<double, 32, 8, 3, 0, 1, 1, 3, 1>",
            "bicgstab<double, 32, 5, 9, 0, 1, 0, 3, 1>",
            "bicgstab<double, 256, 8, 9, 1, 1, 0, 3, 1>",
            "bicgstab<double, 128, 8, 0, 1, 1, 0, 3, 1>",
            "bicgstab<double, 32, 1, 0, 1, 1, 0, 1, 0, 0, 2>",
            "bicgstab<double, 32, 2, 0, 1, 1, 0, 1, 1, 0, 2>",
            "bicgstab<float, 32, 5, 9, 0, 1, 0, 3>",
            "bicgstab<float, 256, 8, 9, 1, 1, 0, 3>",
        ],
        255,
    ),
    (
        "lu",
        "sm_80",
        &[
            "lu<double, 32>",
            "lu<double, 64>",
            "lu<double, 128>",
            "lu<double, 256>",
            "lu<double, 512>",
            "lu<float, 32>",
            "lu<float, 64>",
            "lu<float, 128>",
            "lu<float, 256>",
            "lu<float, 512>",
        ],
        128,
    ),
    (
        "krylov",
        "sm_80",
        &[
            "krylov<Verdict<Cg<double, 0>>, 0, 1>",
            "krylov<Verdict<Cg<double, 0>>, 1, 1>",
            "krylov<Verdict<Cg<double, 0>>, 2, 3>",
            "krylov_part<Verdict<Cg<double, 0>>, 0>",
            "krylov_part<Verdict<Cg<double, 0>>, 1>",
            "krylov_part<Verdict<Cg<double, 0>>, 2>",
            "krylov_part<Verdict<Cg<double, 0>>, 3>",
            "krylov<Cg<double, 0>, 0, 2>",
            "krylov_part<Cg<double, 0>, 0>",
            "krylov_part<Cg<double, 0>, 1>",
            "krylov_part<Cg<double, 0>, 2>",
            "krylov<Verdict<Cg<double, 1>>, 0, 1>",
            "krylov<Verdict<Cg<double, 1>>, 1, 1>",
            "krylov<Verdict<Cg<double, 1>>, 2, 3>",
            "krylov_part<Verdict<Cg<double, 1>>, 0>",
            "krylov_part<Verdict<Cg<double, 1>>, 1>",
            "krylov_part<Verdict<Cg<double, 1>>, 2>",
            "krylov_part<Verdict<Cg<double, 1>>, 3>",
            "krylov<Cg<double, 1>, 0, 2>",
            "krylov_part<Cg<double, 1>, 0>",
            "krylov_part<Cg<double, 1>, 1>",
            "krylov_part<Cg<double, 1>, 2>",
            "krylov<Verdict<BiCgStab<double, 0>>, 0, 1>",
            "krylov<Verdict<BiCgStab<double, 0>>, 1, 1>",
            "krylov<Verdict<BiCgStab<double, 0>>, 2, 3>",
            "krylov_part<Verdict<BiCgStab<double, 0>>, 0>",
            "krylov_part<Verdict<BiCgStab<double, 0>>, 1>",
            "krylov_part<Verdict<BiCgStab<double, 0>>, 2>",
            "krylov_part<Verdict<BiCgStab<double, 0>>, 3>",
            "krylov<BiCgStab<double, 0>, 0, 1>",
            "krylov<BiCgStab<double, 0>, 2, 4>",
            "krylov_part<BiCgStab<double, 0>, 0>",
            "krylov_part<BiCgStab<double, 0>, 1>",
            "krylov_part<BiCgStab<double, 0>, 2>",
            "krylov_part<BiCgStab<double, 0>, 3>",
            "krylov_part<BiCgStab<double, 0>, 4>",
            "krylov<Verdict<BiCgStab<double, 1>>, 0, 1>",
            "krylov<Verdict<BiCgStab<double, 1>>, 1, 1>",
            "krylov<Verdict<BiCgStab<double, 1>>, 2, 3>",
            "krylov_part<Verdict<BiCgStab<double, 1>>, 0>",
            "krylov_part<Verdict<BiCgStab<double, 1>>, 1>",
            "krylov_part<Verdict<BiCgStab<double, 1>>, 2>",
            "krylov_part<Verdict<BiCgStab<double, 1>>, 3>",
            "krylov<BiCgStab<double, 1>, 0, 1>",
            "krylov<BiCgStab<double, 1>, 2, 4>",
            "krylov_part<BiCgStab<double, 1>, 0>",
            "krylov_part<BiCgStab<double, 1>, 1>",
            "krylov_part<BiCgStab<double, 1>, 2>",
            "krylov_part<BiCgStab<double, 1>, 3>",
            "krylov_part<BiCgStab<double, 1>, 4>",
            "krylov<Verdict<Cg<float, 1>>, 0, 1>",
            "krylov<Verdict<Cg<float, 1>>, 1, 1>",
            "krylov<Verdict<Cg<float, 1>>, 2, 3>",
            "krylov_part<Verdict<Cg<float, 1>>, 0>",
            "krylov_part<Verdict<Cg<float, 1>>, 1>",
            "krylov_part<Verdict<Cg<float, 1>>, 2>",
            "krylov_part<Verdict<Cg<float, 1>>, 3>",
            "krylov<Cg<float, 1>, 0, 2>",
            "krylov_part<Cg<float, 1>, 0>",
            "krylov_part<Cg<float, 1>, 1>",
            "krylov_part<Cg<float, 1>, 2>",
            "krylov<Verdict<BiCgStab<float, 1>>, 0, 1>",
            "krylov<Verdict<BiCgStab<float, 1>>, 1, 1>",
            "krylov<Verdict<BiCgStab<float, 1>>, 2, 3>",
            "krylov_part<Verdict<BiCgStab<float, 1>>, 0>",
            "krylov_part<Verdict<BiCgStab<float, 1>>, 1>",
            "krylov_part<Verdict<BiCgStab<float, 1>>, 2>",
            "krylov_part<Verdict<BiCgStab<float, 1>>, 3>",
            "krylov<BiCgStab<float, 1>, 0, 1>",
            "krylov<BiCgStab<float, 1>, 2, 4>",
            "krylov_part<BiCgStab<float, 1>, 0>",
            "krylov_part<BiCgStab<float, 1>, 1>",
            "krylov_part<BiCgStab<float, 1>, 2>",
            "krylov_part<BiCgStab<float, 1>, 3>",
            "krylov_part<BiCgStab<float, 1>, 4>",
            "krylov_sizes<double>",
            "krylov_sizes<float>",
            "krylov_sizes_part<double>",
            "krylov_sizes_part<float>",
        ],
        80,
    ),
    (
        "factored",
        "sm_80",
        &[
            "factored<double, 32, 0, 0, 0>",
            "factored<double, 32, 0, 1, 0>",
            "factored<double, 32, 1, 0, 0>",
            "factored<double, 32, 1, 1, 0>",
            "factored<double, 128, 0, 0, 0>",
            "factored<double, 128, 0, 1, 0>",
            "factored<double, 128, 1, 0, 0>",
            "factored<double, 128, 1, 1, 0>",
            "factored<double, 512, 0, 0, 0>",
            "factored<double, 512, 0, 1, 0>",
            "factored<double, 512, 1, 0, 0>",
            "factored<double, 512, 1, 1, 0>",
            "factored<double, 128, 0, 0, 1>",
            "factored<double, 128, 0, 1, 1>",
            "factored<double, 128, 1, 0, 1>",
            "factored<double, 128, 1, 1, 1>",
            "factored<double, 512, 0, 0, 1>",
            "factored<double, 512, 0, 1, 1>",
            "factored<double, 512, 1, 0, 1>",
            "factored<double, 512, 1, 1, 1>",
            "factored<double, 512, 0, 0, 2>",
            "factored<double, 512, 0, 1, 2>",
            "factored<double, 512, 1, 0, 2>",
            "factored<double, 512, 1, 1, 2>",
            "factored<double, 512, 0, 0, 3>",
            "factored<double, 512, 0, 1, 3>",
            "factored<double, 512, 1, 0, 3>",
            "factored<double, 512, 1, 1, 3>",
            "factored<float, 32, 0, 0, 0>",
            "factored<float, 32, 0, 1, 0>",
            "factored<float, 32, 1, 0, 0>",
            "factored<float, 32, 1, 1, 0>",
            "factored<float, 128, 0, 0, 0>",
            "factored<float, 128, 0, 1, 0>",
            "factored<float, 128, 1, 0, 0>",
            "factored<float, 128, 1, 1, 0>",
            "factored<float, 512, 0, 0, 0>",
            "factored<float, 512, 0, 1, 0>",
            "factored<float, 512, 1, 0, 0>",
            "factored<float, 512, 1, 1, 0>",
            "factored<float, 128, 0, 0, 1>",
            "factored<float, 128, 0, 1, 1>",
            "factored<float, 128, 1, 0, 1>",
            "factored<float, 128, 1, 1, 1>",
            "factored<float, 512, 0, 0, 1>",
            "factored<float, 512, 0, 1, 1>",
            "factored<float, 512, 1, 0, 1>",
            "factored<float, 512, 1, 1, 1>",
            "factored<float, 512, 0, 0, 2>",
            "factored<float, 512, 0, 1, 2>",
            "factored<float, 512, 1, 0, 2>",
            "factored<float, 512, 1, 1, 2>",
            "factored<float, 512, 0, 0, 3>",
            "factored<float, 512, 0, 1, 3>",
            "factored<float, 512, 1, 0, 3>",
            "factored<float, 512, 1, 1, 3>",
            "factored<double, 32, 0, 0, 0, float>",
            "factored<double, 32, 0, 1, 0, float>",
            "factored<double, 32, 1, 0, 0, float>",
            "factored<double, 32, 1, 1, 0, float>",
            "factored<double, 128, 0, 0, 0, float>",
            "factored<double, 128, 0, 1, 0, float>",
            "factored<double, 128, 1, 0, 0, float>",
            "factored<double, 128, 1, 1, 0, float>",
            "factored<double, 512, 0, 0, 0, float>",
            "factored<double, 512, 0, 1, 0, float>",
            "factored<double, 512, 1, 0, 0, float>",
            "factored<double, 512, 1, 1, 0, float>",
            "factored<double, 128, 0, 0, 1, float>",
            "factored<double, 128, 0, 1, 1, float>",
            "factored<double, 128, 1, 0, 1, float>",
            "factored<double, 128, 1, 1, 1, float>",
            "factored<double, 512, 0, 0, 1, float>",
            "factored<double, 512, 0, 1, 1, float>",
            "factored<double, 512, 1, 0, 1, float>",
            "factored<double, 512, 1, 1, 1, float>",
            "factored<double, 512, 0, 0, 2, float>",
            "factored<double, 512, 0, 1, 2, float>",
            "factored<double, 512, 1, 0, 2, float>",
            "factored<double, 512, 1, 1, 2, float>",
            "factored<double, 512, 0, 0, 3, float>",
            "factored<double, 512, 0, 1, 3, float>",
            "factored<double, 512, 1, 0, 3, float>",
            "factored<double, 512, 1, 1, 3, float>",
        ],
        // Of blocks of 512 threads a multiprocessor holds one.
        128,
    ),
    ("shift", "sm_80", &["shift<double>", "shift<float>"], 40),
    ("diagonal", "sm_80", &["invert_diagonal<double>", "invert_diagonal<float>"], 40),
];

fn compile_source(source: &str, architecture: &str) -> Result<Compiled, GpuError> {
    compile(&Program {
        name: "test.cu",
        source,
        expressions: &["f<double>"],
        architecture,
        options: &["-DFACTOR=2"],
    })
}

const SOURCE: &str =
    "template <typename V> __global__ void f(V* y) { y[threadIdx.x] *= V(FACTOR); }";

#[test]
fn every_module_has_instances() {
    let mut listed: Vec<&str> = INSTANCES.iter().map(|&(module, ..)| module).collect();
    listed.dedup();

    assert_eq!(listed, kernels::modules().collect::<Vec<_>>());
}

/// So that no kernel of the device goes without a test against the oracle. The instances of the
/// packed products differ in how much is under way at once, of which some are enough.
#[test]
fn every_instance_runs_in_the_emulation() {
    let registered = kernel_emu::registered();
    for (module, _, expressions, _) in INSTANCES.iter().filter(|(module, ..)| *module != "packed") {
        for expression in *expressions {
            let name = format!("{module}:{}", expression.replace(", ", ","));
            assert!(registered.contains(&name), "{name}");
        }
    }
}

#[test]
fn every_instance_compiles_within_its_limits() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    for architecture in ARCHITECTURES {
        for (module, oldest, expressions, registers) in INSTANCES {
            // By length first: sm_90 is older than sm_100.
            if (oldest.len(), oldest) > (architecture.len(), architecture) {
                continue;
            }
            let program = Program {
                name: module,
                source: &kernels::program(module).unwrap(),
                expressions,
                architecture,
                options: &[],
            };

            let compiled = compile(&program).unwrap();

            assert!(compiled.image.starts_with(b"\x7fELF"));
            assert_eq!(compiled.kernels.len(), expressions.len());
            for kernel in &compiled.kernels {
                let used = kernel.resources.expect("the log holds every kernel");
                println!("{architecture} {}: {used:?}", kernel.expression);
                let spilled = used.spill_store_bytes.max(used.spill_load_bytes);
                let most =
                    MAY_SPILL.iter().find(|&&(name, _)| name == module).map_or(0, |&(_, n)| n);
                assert!(spilled <= most, "{kernel:?}");
                assert!(used.registers > 0 && used.registers <= registers, "{kernel:?}");
            }
        }
    }
}

#[test]
fn static_shared_memory_is_in_the_resources() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let program = Program {
        name: "vector.cu",
        source: &kernels::program("vector").unwrap(),
        expressions: &["read_sum<double>"],
        architecture: "sm_90",
        options: &[],
    };

    let compiled = compile(&program).unwrap();

    // One double for each of the 32 warps of a block.
    assert_eq!(compiled.kernel("read_sum<double>").unwrap().resources.unwrap().shared_bytes, 256);
}

#[test]
fn the_names_of_types_are_known_to_kernels() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let names = [f32::NAME, f64::NAME, u8::NAME, u16::NAME, u32::NAME, i32::NAME, u64::NAME];
    let sizes = [4, 8, 1, 2, 4, 4, 8];
    let expressions: Vec<String> =
        names.iter().zip(sizes).map(|(name, size)| format!("f<{name}, {size}>")).collect();
    let source = format!(
        "{}template <typename T, int BYTES> __global__ void f(T* y)
        {{ static_assert(sizeof(T) == BYTES, \"size\"); *y = T(1); }}",
        kernels::PRELUDE
    );
    let program = Program {
        name: "test.cu",
        source: &source,
        expressions: &expressions.iter().map(String::as_str).collect::<Vec<_>>(),
        architecture: "sm_90",
        options: &[],
    };

    assert_eq!(compile(&program).unwrap().kernels.len(), names.len());
}

#[test]
fn spills_are_in_the_resources() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    // More live values than the registers that the option leaves.
    let source = "template <typename V> __global__ void f(V* y) {
        V v[100];
        for (int i = 0; i < 100; ++i) v[i] = y[i];
        #pragma unroll
        for (int i = 0; i < 100; ++i) v[i] = v[i] * v[i * 37 % 100] + v[i * 61 % 100];
        for (int i = 0; i < 100; ++i) y[i] = v[i];
    }";
    let program = Program {
        name: "test.cu",
        source,
        expressions: &["f<double>"],
        architecture: "sm_90",
        options: &["--maxrregcount=32"],
    };

    let used = compile(&program).unwrap().kernels[0].resources.unwrap();

    assert!(used.registers <= 32 && used.stack_bytes > 0, "{used:?}");
    assert!(used.spill_store_bytes > 0 && used.spill_load_bytes > 0, "{used:?}");
}

#[test]
fn ptx_for_later_gpus_ends_with_nul() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let newest = *architectures().unwrap().last().unwrap();

    let compiled = compile_source(SOURCE, &format!("compute_{newest}")).unwrap();

    assert_eq!(compiled.image.last(), Some(&0));
    assert!(String::from_utf8_lossy(&compiled.image).contains(".entry _Z1fIdEvPT_"));
    assert_eq!(compiled.kernels[0].resources, None);
}

#[test]
fn architectures_are_ascending() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let all = architectures().unwrap();

    assert!(all.contains(&90));
    assert!(all.is_sorted());
}

#[test]
fn errors_name_the_real_file_and_line() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let source = kernels::program("vector").unwrap() + "\n#line 7 \"csr.cu\"\nint f( {\n";
    let program = Program {
        name: "csr.cu",
        source: &source,
        expressions: &[],
        architecture: "sm_90",
        options: &[],
    };

    let error = compile(&program).unwrap_err();

    assert!(error.to_string().contains("csr.cu(7): error"), "{error}");
}

#[test]
fn sources_of_callers_are_compiled_behind_the_prelude() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let text = "__global__ void first(u32, f_t*);\n";
    let compile = |text: &str| {
        let program = Program {
            name: "own.cu",
            source: &kernels::program_of("own", text),
            expressions: &["first<double>"],
            architecture: "sm_90",
            options: &[],
        };
        compile(&program)
    };
    let error = compile(text).unwrap_err().to_string();
    assert!(error.contains("own.cu(1): error") && error.contains("f_t"), "{error}");

    let text = "template <typename V> __global__ void first(u32 i, V* v) { v[i] = load(v + i); }";
    assert!(compile(text).unwrap().kernel("first<double>").is_some());
}

#[test]
fn what_the_compiler_refuses_is_a_compile_error() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let cases = [
        compile_source("template <typename V> __global__ void g(V*) {}", "sm_90"),
        compile_source(SOURCE, "sm_1"),
        compile_source("nul \0 byte", "sm_90"),
    ];

    for case in cases {
        match case {
            Err(error @ GpuError::Compile { .. }) => {
                println!("{error}");
                assert!(error.to_string().contains("f<double>"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn threads_can_compile_at_once() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let images: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| compile_source(SOURCE, "sm_90").unwrap().image))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });

    assert!(images.iter().all(|image| *image == images[0]));
}

#[test]
fn a_second_compilation_comes_from_disk() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let cache = DiskCache::in_folder(root.path());
    let program = Program {
        name: "test.cu",
        source: SOURCE,
        expressions: &["f<double>", "f<float>"],
        architecture: "sm_90",
        options: &["-DFACTOR=3"],
    };

    let first = cache.compile(&program).unwrap();
    let files: Vec<_> = root.path().read_dir().unwrap().flatten().collect();
    assert_eq!(files.len(), 1);
    let written = files[0].metadata().unwrap().modified().unwrap();
    let second = cache.compile(&program).unwrap();

    assert!(first == second);
    assert_eq!(files[0].metadata().unwrap().modified().unwrap(), written);

    // A damaged file is compiled again and replaced.
    std::fs::write(files[0].path(), "damaged").unwrap();
    let third = cache.compile(&program).unwrap();
    assert!((third.image, third.kernels) == (first.image, first.kernels));
    assert!(files[0].path().metadata().unwrap().len() > 1000);
}
