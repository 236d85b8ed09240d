//! Chooses threads, shared memory and lanes from the sizes of problems and the limits of the device
//! alone.

use sparsebatch_cuda::DeviceInfo;

/// Bytes of shared memory per block that kernels use besides x and that CUDA reserves.
pub(super) const RESERVED_SHARED_BYTES: u32 = 1024;

/// Blocks that a multiprocessor holds at most: 32 on sm_80, sm_90 and sm_100.
const MAX_RESIDENT_BLOCKS: u32 = 32;

/// An operand of up to this size is read into shared memory whatever the sizes of the other
/// operands: a multiprocessor of sm_80 or later has room for at least six of them.
const SMALL_OPERAND_BYTES: u64 = 16 << 10;

/// Operands of up to this many times the mean size are read into shared memory. All blocks of a
/// launch get the same amount of shared memory: a few large problems shall not keep blocks of small
/// ones from the multiprocessors.
const OPERAND_SPREAD: u64 = 4;

/// Lanes per row for CSR-smart: the smallest power of two that is at least the mean number of
/// entries per row, at most 32.
pub(super) fn smart_lanes(nrows: u32, nnz: u32) -> u32 {
    nnz.div_ceil(nrows.max(1)).clamp(1, 32).next_power_of_two()
}

/// Largest operand, in bytes, that is read into shared memory, given `operands` operands with
/// `total_bytes` bytes in total.
pub(super) fn operand_limit(info: &DeviceInfo, total_bytes: u64, operands: u64) -> u32 {
    let mean = total_bytes.div_ceil(operands.max(1));
    let wanted = SMALL_OPERAND_BYTES.max(OPERAND_SPREAD * mean);
    let block = info.shared_bytes_per_block.saturating_sub(RESERVED_SHARED_BYTES);
    u32::try_from(wanted).unwrap_or(u32::MAX).min(block)
}

/// Threads per problem, a multiple of 32, by the occupancy rule of the source. The threads of the
/// device are divided equally among the problems, but a problem gets no fewer than the number below
/// which the shared memory of its block, or the number of blocks, would limit the threads that a
/// multiprocessor holds. A problem gets no more than `useful` threads, those that the largest
/// problem has work for.
pub(super) fn threads_per_problem(
    info: &DeviceInfo,
    problems: u64,
    shared_bytes: u32,
    useful: u64,
) -> u32 {
    let held = info.max_threads_per_multiprocessor;
    let by_shared = match shared_bytes {
        0 => MAX_RESIDENT_BLOCKS,
        bytes => info.shared_bytes_per_multiprocessor / (bytes + RESERVED_SHARED_BYTES),
    };
    let floor = held / by_shared.clamp(1, MAX_RESIDENT_BLOCKS);
    let share = u64::from(held) * u64::from(info.multiprocessors) / problems.max(1);
    let limit = u64::from(info.max_threads_per_block.clamp(32, 1024) / 32 * 32);
    let threads = share.max(floor.into()).min(useful).clamp(1, limit);
    threads.next_multiple_of(32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> DeviceInfo {
        DeviceInfo {
            multiprocessors: 132,
            max_threads_per_block: 1024,
            max_threads_per_multiprocessor: 2048,
            shared_bytes_per_block: 232_448,
            shared_bytes_per_multiprocessor: 233_472,
            ..DeviceInfo::default()
        }
    }

    #[test]
    fn lanes_are_the_power_of_two_at_or_above_the_mean() {
        let cases = [
            ((0, 0), 1),
            ((4, 0), 1),
            ((4, 4), 1),
            ((4, 5), 2),
            ((4, 16), 4),
            ((4, 17), 8),
            ((1, 32), 32),
            ((1, 33), 32),
            ((1, u32::MAX), 32),
        ];
        for ((nrows, nnz), lanes) in cases {
            assert_eq!(smart_lanes(nrows, nnz), lanes, "{nrows} rows, {nnz} entries");
        }
    }

    #[test]
    fn few_problems_share_all_threads_and_many_get_the_floor() {
        let threads = |problems, shared| threads_per_problem(&info(), problems, shared, 1 << 20);

        assert_eq!(threads(1, 8192), 1024);
        assert_eq!(threads(600, 8192), 480);
        // 25 blocks with 8 KiB each fit: 2048 / 25 threads, in whole warps.
        assert_eq!(threads(10_000, 8192), 96);
        // Four blocks of 50 KiB fit.
        assert_eq!(threads(10_000, 50 << 10), 512);
        // Without shared memory the number of blocks is the limit.
        assert_eq!(threads(10_000, 0), 64);
    }

    #[test]
    fn threads_without_work_are_left_out() {
        assert_eq!(threads_per_problem(&info(), 1, 0, 70), 96);
        assert_eq!(threads_per_problem(&info(), 1 << 40, 0, 3), 32);
        assert_eq!(threads_per_problem(&info(), 0, 0, 0), 32);
    }

    #[test]
    fn large_operands_stay_in_global_memory_unless_all_are_large() {
        assert_eq!(operand_limit(&info(), 1000 * 400, 1000), 16 << 10);
        assert_eq!(operand_limit(&info(), 1000 * 8192, 1000), 32 << 10);
        assert_eq!(operand_limit(&info(), 1000 << 20, 1000), 232_448 - 1024);
        assert_eq!(operand_limit(&info(), 0, 0), 16 << 10);
    }
}
