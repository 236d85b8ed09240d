//! Memory, launches, streams and graphs of a real GPU.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use sparsebatch_cuda::device::cache::DiskCache;
use sparsebatch_cuda::device::{DevicePool, Event, measure_bandwidth};
use sparsebatch_cuda::kernels::VECTOR;
use sparsebatch_cuda::testing::device_or_skip;
use sparsebatch_cuda::{
    Args, Device, DeviceAllocator, DeviceBuffer, Executor, GpuError, KernelKey, LaunchConfig,
    Module, Pod,
};

fn axpby_key() -> KernelKey {
    KernelKey::new(&VECTOR, "axpby<double>")
}

/// y = alpha*x + beta*y on any executor.
fn axpby<E: Executor>(
    executor: &E,
    alpha: f64,
    x: &E::Buffer<f64>,
    beta: f64,
    y: &mut E::Buffer<f64>,
    len: usize,
) -> Result<(), GpuError> {
    let mut args = Args::new();
    args.scalar(len as u64).scalar(alpha).input(x).scalar(beta).output(y);
    // SAFETY: (1) the arguments are those of `axpby`; (2) every caller gives buffers of at least
    // `len` values; (3) they are of `executor`; (4) `x` may be `y`.
    unsafe { executor.launch(&axpby_key(), LaunchConfig::linear(8, 256), &mut args) }
}

fn integers(len: usize) -> Vec<f64> {
    (0..len).map(|i| (i % 1000) as f64).collect()
}

#[test]
fn axpby_adds_vectors_of_any_length() {
    let Some(device) = device_or_skip() else { return };
    for len in [0, 1, 31, 32, 33, 2047, 2048, 2049, 100_000] {
        let (x, y) = (integers(len), vec![10.0; len]);
        let (x_device, mut y_device) = (device.upload(&x).unwrap(), device.upload(&y).unwrap());

        axpby(&device, 2.0, &x_device, -1.0, &mut y_device, len).unwrap();

        let expected: Vec<f64> = x.iter().map(|v| 2.0 * v - 10.0).collect();
        assert_eq!(device.download(&y_device).unwrap(), expected, "{len}");
    }
}

#[test]
fn axpby_does_not_read_y_for_beta_zero() {
    let Some(device) = device_or_skip() else { return };
    let x = device.upload(&[1.0, 2.0]).unwrap();
    let mut y = device.upload(&[f64::NAN, f64::INFINITY]).unwrap();

    axpby(&device, 3.0, &x, 0.0, &mut y, 2).unwrap();

    assert_eq!(device.download(&y).unwrap(), [3.0, 6.0]);
}

#[test]
fn read_sum_adds_every_value_once() {
    let Some(device) = device_or_skip() else { return };
    for len in [0, 1, 33, 4096, 65_537] {
        let x = device.upload(&integers(len)).unwrap();
        let mut partial = device.alloc::<f64>(4).unwrap();
        let mut args = Args::new();
        args.scalar(len as u64).input(&x).output(&mut partial);
        let key = KernelKey::new(&VECTOR, "read_sum<double>");

        // SAFETY: (1) the arguments are those of `read_sum`; (2) `x` has `len` values, `partial`
        // one per block of 128 threads; (3) and (4) both are new buffers of this device.
        unsafe { device.launch(&key, LaunchConfig::linear(4, 128), &mut args) }.unwrap();

        let sum: f64 = device.download(&partial).unwrap().iter().sum();
        assert_eq!(sum, integers(len).iter().sum::<f64>(), "{len}");
    }
}

fn check_round_trip<T: Pod>(device: &Device, host: &[T]) {
    let buffer = device.upload(host).unwrap();

    assert_eq!(buffer.len(), host.len());
    assert_eq!(device.download(&buffer).unwrap(), host);
}

#[test]
fn every_type_comes_back_as_it_went() {
    let Some(device) = device_or_skip() else { return };
    check_round_trip(&device, &[1.5_f64, f64::INFINITY]);
    check_round_trip(&device, &[0.25_f32; 3]);
    check_round_trip(&device, &[0_u8, 255, 7]);
    check_round_trip(&device, &[65_535_u16]);
    check_round_trip(&device, &[u32::MAX, 0]);
    check_round_trip(&device, &[i32::MIN, 5]);
    check_round_trip(&device, &[u64::MAX]);
    check_round_trip::<f64>(&device, &[]);
}

#[test]
fn large_copies_come_back_whole() {
    let Some(device) = device_or_skip() else { return };
    // Around the size from which copies are staged, and around whole chunks.
    for len in [524_287, 524_288, 1 << 20, (1 << 20) + 1, 3 << 20, 5_000_003] {
        let host: Vec<u64> = (0..len as u64).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();

        check_round_trip(&device, &host);
    }
}

#[test]
fn zeroed_memory_is_zero() {
    let Some(device) = device_or_skip() else { return };
    let mut buffer = device.alloc_zeroed::<f32>(1001).unwrap();
    assert_eq!(device.download(&buffer).unwrap(), vec![0.0; 1001]);

    device.copy_from_host(&vec![1.0; 1001], &mut buffer).unwrap();
    device.fill_zero(&mut buffer).unwrap();

    assert_eq!(device.download(&buffer).unwrap(), vec![0.0; 1001]);
}

#[test]
fn copies_of_another_length_are_refused() {
    let Some(device) = device_or_skip() else { return };
    let mut buffer = device.alloc::<u8>(3).unwrap();

    let up = device.copy_from_host(&[1, 2], &mut buffer).unwrap_err();
    let down = device.copy_to_host(&buffer, &mut [0; 4]).unwrap_err();

    assert_eq!(up, GpuError::Length { name: "host", expected: 3, found: 2 });
    assert_eq!(down, GpuError::Length { name: "host", expected: 3, found: 4 });
}

#[test]
fn ranges_share_memory_and_keep_it() {
    let Some(device) = device_or_skip() else { return };
    let whole = device.upload(&integers(10)).unwrap();

    let mut part = whole.range(4..7).unwrap();
    assert_eq!(device.download(&part).unwrap(), [4.0, 5.0, 6.0]);
    device.copy_from_host(&[-1.0, -2.0, -3.0], &mut part).unwrap();
    assert_eq!(device.download(&whole).unwrap()[3..8], [3.0, -1.0, -2.0, -3.0, 7.0]);
    drop(whole);

    assert_eq!(device.download(&part.range(1..2).unwrap()).unwrap(), [-2.0]);
    assert!(part.range(2..4).is_err());
    #[expect(clippy::reversed_empty_ranges, reason = "what a wrong caller gives")]
    let reversed = part.range(2..1);
    assert!(reversed.is_err());
}

#[test]
fn too_much_memory_is_refused_and_the_device_goes_on() {
    let Some(device) = device_or_skip() else { return };
    let total = device.memory().unwrap().total_bytes;

    for len in [total as usize, usize::MAX / 8, usize::MAX] {
        match device.alloc::<f64>(len) {
            Err(GpuError::OutOfMemory { needed, free }) => {
                assert_eq!(needed, u64::try_from(len as u128 * 8).unwrap_or(u64::MAX));
                assert!(free > 0 && free <= total);
            }
            other => panic!("{other:?}"),
        }
    }

    check_round_trip(&device, &[1.0_f64, 2.0]);
}

#[test]
fn a_foreign_address_is_a_buffer() {
    let Some(device) = device_or_skip() else { return };
    let owner = device.upload(&[1.0_f64, 2.0, 3.0]).unwrap();
    // SAFETY: the address has 3 values behind it, which `owner` keeps to the end of the test.
    let mut view = unsafe { DeviceBuffer::<f64>::from_raw(owner.raw(), 3) };

    axpby(&device, 1.0, &owner, 1.0, &mut view, 3).unwrap();
    drop(view);

    assert_eq!(device.download(&owner).unwrap(), [2.0, 4.0, 6.0]);
}

/// An allocator over one buffer of another device handle, which keeps what it is asked.
struct Arena {
    owner: DeviceBuffer<u8>,
    calls: Mutex<Vec<(u64, usize, bool)>>,
    stream: u64,
}

// SAFETY: addresses follow one another in the owner's memory, in multiples of 256 bytes, and none
// is handed out twice.
unsafe impl DeviceAllocator for Arena {
    fn allocate(&self, bytes: usize, stream: *mut c_void) -> Result<u64, GpuError> {
        assert_eq!(stream as u64, self.stream);
        let mut calls = self.calls.lock().unwrap();
        let taken = calls.iter().filter(|call| call.2);
        let used = taken.map(|call| call.1.next_multiple_of(256)).sum::<usize>();
        if used + bytes > self.owner.len() {
            return Err(GpuError::OutOfMemory { needed: 0, free: 0 });
        }
        let address = self.owner.raw() + used as u64;
        calls.push((address, bytes, true));
        Ok(address)
    }

    unsafe fn free(&self, address: u64, bytes: usize, stream: *mut c_void) {
        assert_eq!(stream as u64, self.stream);
        self.calls.lock().unwrap().push((address, bytes, false));
    }
}

#[test]
fn memory_comes_from_the_allocator_of_the_caller() {
    let Some(device) = device_or_skip() else { return };
    let arena = Arc::new(Arena {
        owner: device.alloc(1 << 20).unwrap(),
        calls: Mutex::default(),
        stream: device.raw_stream() as u64,
    });
    // SAFETY: the buffers are used on the stream of the device alone.
    let guest = unsafe { device.with_allocator(Arc::clone(&arena) as Arc<dyn DeviceAllocator>) };

    let x = guest.upload(&integers(1000)).unwrap();
    let mut y = guest.alloc_zeroed::<f64>(1000).unwrap();
    axpby(&guest, 1.0, &x, 1.0, &mut y, 1000).unwrap();
    assert_eq!(guest.download(&y).unwrap(), integers(1000));
    let first = arena.owner.raw();
    assert_eq!((x.raw(), y.raw()), (first, first + 8192));
    let refused = guest.alloc::<f64>(1 << 20).map(drop);
    drop((x, y));

    let Err(GpuError::OutOfMemory { needed, free }) = refused else { panic!("{refused:?}") };
    assert!(needed == 8 << 20 && free > 0);
    let expected = [
        (first, 8000, true),
        (first + 8192, 8000, true),
        (first, 8000, false),
        (first + 8192, 8000, false),
    ];
    assert_eq!(*arena.calls.lock().unwrap(), expected);
}

#[test]
fn memory_comes_from_a_pool_that_keeps_it() {
    let Some(device) = device_or_skip() else { return };
    let pool = DevicePool::new(&device, 64 << 20).unwrap();
    // SAFETY: the buffers are used on the stream of the device alone.
    let pooled = unsafe { device.with_allocator(Arc::clone(&pool) as Arc<dyn DeviceAllocator>) };

    let x = pooled.upload(&integers(1000)).unwrap();
    let mut y = pooled.alloc_zeroed::<f64>(1000).unwrap();
    axpby(&pooled, 1.0, &x, 1.0, &mut y, 1000).unwrap();
    assert_eq!(pooled.download(&y).unwrap(), integers(1000));
    let (held, first) = (pool.held_bytes().unwrap(), x.raw());
    assert!(held >= 16_000);
    drop((x, y));
    pooled.synchronize().unwrap();
    // What was given back is kept, and taken again.
    assert_eq!(pool.held_bytes().unwrap(), held);
    // What is kept counts as free.
    let (free, of_driver) = (pooled.free_memory().unwrap(), device.free_memory().unwrap());
    assert!(free.abs_diff(of_driver + held) <= 1 << 20, "{free} {of_driver} {held}");
    let again = pooled.upload(&integers(1000)).unwrap();
    assert_eq!((again.raw(), pool.held_bytes().unwrap()), (first, held));
    assert_eq!(pooled.download(&again).unwrap(), integers(1000));
    // The driver refuses what the device does not have, also below its total.
    let total = device.info().memory_bytes;
    for bytes in [total - (64 << 20), 2 * total] {
        let refused = pooled.alloc::<u8>(bytes as usize).map(drop);
        assert!(matches!(refused, Err(GpuError::OutOfMemory { .. })), "{refused:?}");
    }
    let recorded = pooled.capture(|pooled| pooled.alloc::<f64>(10).map(drop));
    assert!(recorded.is_err(), "no memory in a recording");
    assert!(pooled.alloc::<f64>(10).is_ok());
}

#[test]
fn work_runs_on_the_stream_of_the_caller() {
    let Some(device) = device_or_skip() else { return };
    let other = Device::new(0).unwrap();
    for stream in [other.raw_stream(), std::ptr::null_mut::<c_void>()] {
        // SAFETY: the stream is of the primary context and `other` keeps it, or it is the default.
        let guest = unsafe { device.with_raw_stream(stream) };
        assert_eq!(guest.raw_stream(), stream);
        let x = guest.upload(&integers(1000)).unwrap();
        let mut y = guest.alloc_zeroed(1000).unwrap();

        axpby(&guest, 1.0, &x, 1.0, &mut y, 1000).unwrap();
        guest.synchronize().unwrap();

        assert_eq!(device.download(&y).unwrap(), integers(1000));
    }
}

#[test]
fn a_captured_graph_repeats_its_work() {
    let Some(device) = device_or_skip() else { return };
    let x = device.upload(&[1.0, 2.0]).unwrap();
    let mut y = device.alloc_zeroed(2).unwrap();
    device.prepare(&[axpby_key()]).unwrap();

    let graph = device
        .capture(|device| {
            axpby(device, 1.0, &x, 1.0, &mut y, 2)?;
            axpby(device, 10.0, &x, 1.0, &mut y, 2)
        })
        .unwrap();
    assert_eq!(device.download(&y).unwrap(), [0.0, 0.0]);
    for _ in 0..3 {
        // SAFETY: `x` and `y` live to the end of the test.
        unsafe { graph.launch() }.unwrap();
    }

    assert_eq!(device.download(&y).unwrap(), [33.0, 66.0]);
}

#[test]
fn a_capture_that_fails_leaves_the_stream_usable() {
    let Some(device) = device_or_skip() else { return };
    let refused = GpuError::Length { name: "x", expected: 1, found: 2 };

    let own = device.capture(|_| Err(refused.clone())).map(|_| ());
    let waits = device.capture(|device| device.synchronize()).map(|_| ());

    assert_eq!(own, Err(refused));
    assert!(matches!(waits, Err(GpuError::Driver { .. })), "{waits:?}");
    check_round_trip(&device, &[1.0_f64]);
}

#[test]
fn a_capture_that_panics_leaves_the_stream_usable() {
    let Some(device) = device_or_skip() else { return };

    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        device.capture(|_| panic!("while recording")).map(|_| ())
    }));

    assert!(caught.is_err());
    check_round_trip(&device, &[1.0_f64]);
}

#[test]
fn launches_that_cannot_be_right_are_refused() {
    let Some(device) = device_or_skip() else { return };
    let x = device.upload(&[1.0_f64]).unwrap();
    let fine = LaunchConfig::linear(1, 32);
    let much = LaunchConfig { shared_bytes: device.info().shared_bytes_per_block + 1, ..fine };
    let launch = |key: &KernelKey, config, args: &mut Args<'_>| {
        // SAFETY: the launch is refused; if it were not, it would add no values.
        unsafe { device.launch(key, config, args) }.unwrap_err()
    };
    let name_of = |error| match error {
        GpuError::InvalidArgument { name, .. } => name,
        other => panic!("{other:?}"),
    };

    let mut too_few = Args::new();
    too_few.scalar(0_u64).scalar(1.0_f64).input(&x);
    let mut wrong_size = Args::new();
    wrong_size.scalar(0_u64).scalar(1.0_f32).input(&x).scalar(1.0_f64).input(&x);
    let mut right = Args::new();
    right.scalar(0_u64).scalar(1.0_f64).input(&x).scalar(1.0_f64).input(&x);

    assert_eq!(name_of(launch(&axpby_key(), fine, &mut too_few)), "args");
    assert_eq!(name_of(launch(&axpby_key(), fine, &mut wrong_size)), "args");
    assert_eq!(name_of(launch(&axpby_key(), much, &mut right)), "shared_bytes");
    let unknown = launch(&KernelKey::new(&VECTOR, "absent<double>"), fine, &mut right);
    assert!(matches!(unknown, GpuError::Compile { .. }), "{unknown:?}");
}

static HALVES: Module = Module::new(
    "halves",
    "template <typename V> __global__ void halves(u32 len, V* __restrict__ values) {
         const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
         if (i < len) values[i] *= V(0.5);
     }",
    &[],
);

#[test]
fn kernels_of_the_caller_run() {
    let Some(device) = device_or_skip() else { return };
    let mut values = device.upload(&integers(1000)).unwrap();
    let key = KernelKey::new(&HALVES, "halves<double>");
    let config = LaunchConfig::linear(4, 256);
    let mut args = Args::new();
    args.scalar(1000u32).output(&mut values);

    // SAFETY: (1) the arguments are those of `halves`; (2) the buffer has 1000 values.
    unsafe { device.launch(&key, config, &mut args) }.unwrap();

    let expected: Vec<f64> = integers(1000).iter().map(|v| v / 2.0).collect();
    assert_eq!(device.download(&values).unwrap(), expected);
    let mut args = Args::new();
    args.scalar(1000u64).output(&mut values);
    // SAFETY: refused before anything runs.
    let refused = unsafe { device.launch(&key, config, &mut args) };
    assert!(matches!(refused, Err(GpuError::InvalidArgument { .. })), "{refused:?}");
}

/// Thread t of each block of a cluster of `RANKS` sums the values of thread t of all its blocks, in
/// dynamic shared memory. Each block writes its rank to the static shared memory of the next one.
static CLUSTERS: Module = Module::new(
    "clusters",
    "template <u32 RANKS> __global__ void cluster_sums(const double* x, double* sums,
                                                       u32* neighbours) {
         extern __shared__ double values[];
         __shared__ u32 neighbour;
         const u64 at = grid_thread();
         wait_for_launches_ahead();
         values[threadIdx.x] = x[at];
         cluster_sync();
         double sum = 0;
         for (u32 rank = 0; rank < RANKS; ++rank) {
             sum += in_block_of_cluster(values, rank)[threadIdx.x];
         }
         const u32 rank = cluster_rank();
         if (threadIdx.x == 0) *in_block_of_cluster(&neighbour, (rank + 1) % RANKS) = rank;
         cluster_sync();
         sums[at] = sum;
         if (threadIdx.x == 0) neighbours[blockIdx.x] = neighbour;
     }",
    &[],
);

#[test]
fn blocks_of_a_cluster_reach_each_others_shared_memory() {
    let Some(device) = device_or_skip() else { return };
    const THREADS: usize = 128;
    if device.info().compute_capability < (9, 0) {
        println!("skipped: {} has no clusters", device.info().name);
        return;
    }
    for (ranks, shared_bytes, overlaps) in
        [(1usize, 1 << 10, false), (2, 1 << 10, true), (4, 200 << 10, false), (8, 100 << 10, true)]
    {
        let blocks = 96;
        let x = integers(blocks * THREADS);
        let x_device = device.upload(&x).unwrap();
        let mut sums = device.alloc_zeroed::<f64>(x.len()).unwrap();
        let mut neighbours = device.alloc_zeroed::<u32>(blocks).unwrap();
        let expression = format!("cluster_sums<{ranks}>");
        let key = KernelKey::new(&CLUSTERS, expression);
        let config = LaunchConfig {
            shared_bytes,
            overlaps,
            cluster: ranks as u32,
            ..LaunchConfig::linear(blocks as u32, THREADS as u32)
        };
        let mut args = Args::new();
        args.input(&x_device).output(&mut sums).output(&mut neighbours);

        // SAFETY: (1) the arguments are those of `cluster_sums`; (2) the arrays have a value for
        // each thread and each block, the shared memory one for each thread; (5) the kernel waits.
        unsafe { device.launch(&key, config, &mut args) }.unwrap();

        let expected: Vec<f64> = (0..x.len())
            .map(|at| {
                let first = at / (ranks * THREADS) * ranks * THREADS + at % THREADS;
                (0..ranks).map(|rank| x[first + rank * THREADS]).sum()
            })
            .collect();
        let before = |block: usize| ((block % ranks + ranks - 1) % ranks) as u32;
        assert_eq!(device.download(&sums).unwrap(), expected, "{ranks}");
        let expected: Vec<u32> = (0..blocks).map(before).collect();
        assert_eq!(device.download(&neighbours).unwrap(), expected, "{ranks}");
        let resident = device.resident_clusters(&key, config).unwrap();
        let most = device.resident_blocks(&key, config).unwrap() * device.info().multiprocessors;
        println!("{ranks} blocks of {shared_bytes} bytes: {resident} clusters, {most} blocks");
        assert!(resident >= 1 && resident * ranks as u32 <= most);
    }
}

#[test]
fn clusters_that_do_not_divide_the_grid_are_refused() {
    let Some(device) = device_or_skip() else { return };
    let y = device.alloc_zeroed::<f64>(1).unwrap();
    let config = LaunchConfig { cluster: 2, ..LaunchConfig::linear(3, 32) };
    let mut args = Args::new();
    args.scalar(0_u64).scalar(1.0_f64).input(&y).scalar(1.0_f64).input(&y);

    // SAFETY: refused before anything runs.
    let refused = unsafe { device.launch(&axpby_key(), config, &mut args) };

    let expected = matches!(refused, Err(GpuError::InvalidArgument { name: "cluster", .. }));
    assert!(expected, "{refused:?}");
}

#[test]
fn large_dynamic_shared_memory_is_granted() {
    let Some(device) = device_or_skip() else { return };
    let x = device.upload(&[1.0, 2.0]).unwrap();
    let mut y = device.alloc_zeroed::<f64>(2).unwrap();
    for shared_bytes in [64 << 10, device.info().shared_bytes_per_block] {
        let config = LaunchConfig { shared_bytes, ..LaunchConfig::linear(1, 32) };
        let mut args = Args::new();
        args.scalar(2_u64).scalar(1.0_f64).input(&x).scalar(1.0_f64).output(&mut y);

        // SAFETY: as in `axpby`; the kernel does not use the shared memory.
        unsafe { device.launch(&axpby_key(), config, &mut args) }.unwrap();
    }

    assert_eq!(device.download(&y).unwrap(), [2.0, 4.0]);
}

#[test]
fn events_measure_time_between_them() {
    let Some(device) = device_or_skip() else { return };
    let (start, end) = (Event::new(&device).unwrap(), Event::new(&device).unwrap());

    start.record(&device).unwrap();
    let _zeros = device.alloc_zeroed::<u8>(64 << 20).unwrap();
    end.record(&device).unwrap();

    let ms = start.elapsed_ms(&end).unwrap();
    assert!(ms > 0.0 && ms < 1000.0, "{ms}");
}

#[test]
fn bandwidth_is_plausible() {
    let Some(device) = device_or_skip() else { return };

    let measured = measure_bandwidth(&device).unwrap();

    println!("{}: {measured:?}", device.info().name);
    assert!(measured.copy_gb_per_s > 10.0 && measured.copy_gb_per_s < 50_000.0, "{measured:?}");
    assert!(measured.read_gb_per_s > 10.0 && measured.read_gb_per_s < 50_000.0, "{measured:?}");
}

#[test]
fn the_device_describes_itself() {
    let Some(device) = device_or_skip() else { return };
    let info = device.info();

    println!("{info:?}, {}", device.architecture());
    assert!(!info.name.is_empty());
    assert!(info.multiprocessors > 0 && info.l2_bytes > 0 && info.clock_khz > 0);
    assert!(info.max_threads_per_block >= 1024 && info.max_threads_per_multiprocessor >= 1024);
    assert!(info.shared_bytes_per_block > 48 << 10);
    assert!(info.shared_bytes_per_multiprocessor > info.shared_bytes_per_block);
    assert!(device.free_memory().unwrap() <= info.memory_bytes);
    assert!(device.resources(&axpby_key()).unwrap().is_none_or(|used| used.registers > 0));
}

#[test]
fn a_gpu_that_is_not_there_is_an_error() {
    let Some(_device) = device_or_skip() else { return };

    assert!(matches!(Device::new(1000), Err(GpuError::NoDevice { ordinal: 1000, .. })));
}

#[test]
fn threads_share_a_device() {
    let Some(_device) = device_or_skip() else { return };
    let folder = tempfile::tempdir().unwrap();
    let device = Device::with_cache(0, DiskCache::in_folder(folder.path())).unwrap();

    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let device = device.clone();
                let x = device.upload(&integers(1000)).unwrap();
                let mut y = device.alloc_zeroed(1000).unwrap();
                axpby(&device, 1.0, &x, 1.0, &mut y, 1000).unwrap();
                assert_eq!(device.download(&y).unwrap(), integers(1000));
            });
        }
    });

    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}
