//! Runs the CUDA C++ kernels of the project on the CPU, so that plain `cargo test` compares each of
//! them with an oracle.
//!
//! The kernel source is compiled by the C++ compiler of the machine. Every CUDA thread is a fiber.
//! The blocks of a grid run one after the other, the blocks of a cluster together; the threads of a
//! block run in a chosen [`Order`]. A correct kernel gives the same answer in every order.
//! README.md says which faults are detected and which are not.
//!
//! ```
//! use kernel_emu::{Args, Order};
//!
//! let (n, alpha, x) = (3u64, 2.0f64, [1.0, 2.0, 3.0]);
//! for order in Order::ALL {
//!     let mut y = [10.0, 20.0, 30.0];
//!     let (x_at, y_at) = (x.as_ptr(), y.as_mut_ptr());
//!     let args = Args::new().arg(&n).arg(&alpha).arg(&x_at).arg(&y_at);
//!     // SAFETY: demo_axpy<double> takes (u64 n, double alpha, const double* x, double* y), and both
//!     // arrays have n elements.
//!     unsafe { args.launch("demo_axpy<double>", [1, 1, 1], [32, 1, 1], 0, order) }.unwrap();
//!     assert_eq!(y, [12.0, 24.0, 36.0]);
//! }
//! ```

mod args;
mod emulator;
mod failing;
mod ffi;
mod host_buffer;
mod names;
pub mod nvrtc;

pub use args::Args;
pub use emulator::{Emulator, Pinned, emulators};
pub use failing::Call;
pub use host_buffer::HostBuffer;

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Maximum shared memory of a block in bytes: 227 KiB, as on sm_90.
pub const MAX_SHARED_BYTES: u32 = 232_448;

/// Maximum number of blocks of a cluster that every device with clusters supports.
pub const MAX_CLUSTER: u32 = 8;

/// The order in which blocks, and the threads of a block, run between synchronisations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// From the first to the last.
    Forward,
    /// From the last to the first.
    Reverse,
    /// At random, from this seed. Threads also yield to others at atomics, at fences and when they
    /// map the shared memory of another block.
    Random(u64),
}

impl Order {
    /// The orders in which a test runs a kernel.
    pub const ALL: [Self; 4] =
        [Self::Forward, Self::Reverse, Self::Random(1), Self::Random(0x5eed)];
}

/// The shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Number of adjacent blocks in x that form a cluster: they run together and access each
    /// other's shared memory. 1: no clusters. It divides the number of blocks in x.
    pub cluster: u32,
}

/// Runs a kernel and returns when all its blocks have ended.
///
/// `expression` is the C++ name expression under which the instance is registered, such as
/// `csr_vector<double, 8>`; spaces do not matter. If two modules register the same expression,
/// put the module before it: `module:expression`. `grid` and `block` count blocks and threads,
/// `shared_bytes` is the dynamic shared memory of a block. `args` points to one pointer per
/// parameter of the kernel, each to a value of the parameter's type, as for `cuLaunchKernel`; it
/// may be null for a kernel without parameters.
///
/// Launches from several threads run in parallel, each in its own thread.
///
/// # Errors
///
/// A sentence that names the kernel and, where known, the block, the thread and the source line:
/// unknown or ambiguous expression (with similar ones), impossible shape, or a fault of the
/// kernel. After a fault, the writes of the kernel so far remain.
///
/// # Safety
///
/// 1. `args` points to as many pointers as the kernel has parameters ([`parameter_bytes`]), each to
///    a readable, aligned value of that parameter's type.
/// 2. Every access of the kernel through its pointer arguments is inside memory that is valid for
///    it, and nothing else accesses what it writes during the call.
pub unsafe fn launch(
    expression: &str,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    args: *mut *mut c_void,
    order: Order,
) -> Result<(), String> {
    let shape = Shape { grid, block, shared_bytes, cluster: 1 };
    // SAFETY: the caller's promise.
    unsafe { launch_shape(expression, shape, args, order, None) }
}

/// As [`launch`], but only the given blocks of the grid run, numbered with x fastest.
///
/// This tests part of a launch, with the grid that a device would get, when the whole launch would
/// take too much memory or time for a test.
///
/// # Errors
///
/// Those of [`launch`], and a block number outside the grid.
///
/// # Safety
///
/// As for [`launch`], of the blocks that run.
pub unsafe fn launch_blocks(
    expression: &str,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    args: *mut *mut c_void,
    order: Order,
    blocks: &[u64],
) -> Result<(), String> {
    let shape = Shape { grid, block, shared_bytes, cluster: 1 };
    // SAFETY: the caller's promise.
    unsafe { launch_shape(expression, shape, args, order, Some(blocks)) }
}

/// As [`launch`] or, if `only` is given, [`launch_blocks`], with a shape that may have clusters. A
/// cluster with at least one chosen block runs as a whole, once.
///
/// # Errors
///
/// Those of [`launch_blocks`].
///
/// # Safety
///
/// As for [`launch`], of the blocks that run.
pub unsafe fn launch_shape(
    expression: &str,
    shape: Shape,
    args: *mut *mut c_void,
    order: Order,
    only: Option<&[u64]>,
) -> Result<(), String> {
    // SAFETY: the caller's promise.
    unsafe { launch_for(None, expression, shape, args, order, only) }
}

/// The name of this thread, which for the thread of a test is that of the test.
fn test_of_this_thread() -> Arc<str> {
    std::thread::current().name().unwrap_or("?").into()
}

/// The test of this thread, or `test`, if there is one, on a thread that solvers have started.
fn test_or(test: Option<&Arc<str>>) -> Arc<str> {
    match (std::thread::current().name(), test) {
        (Some(name), Some(test)) if name.starts_with("gpu ") => Arc::clone(test),
        (None, Some(test)) => Arc::clone(test),
        _ => test_of_this_thread(),
    }
}

/// As [`launch_shape`], in a test that may run on another thread.
///
/// # Safety
///
/// As for [`launch_shape`].
unsafe fn launch_for(
    test: Option<&Arc<str>>,
    expression: &str,
    shape: Shape,
    args: *mut *mut c_void,
    order: Order,
    only: Option<&[u64]>,
) -> Result<(), String> {
    let registry = registry()?;
    let k = registry.find(expression)?;
    check_shape(&shape).map_err(|e| format!("kernel {expression}: {e}"))?;
    let count: u128 = shape.grid.iter().map(|&n| u128::from(n)).product();
    if let Some(beyond) = only.into_iter().flatten().find(|&&b| u128::from(b) >= count) {
        return Err(format!("kernel {expression}: no block {beyond} in a grid of {count}"));
    }
    if args.is_null() && !registry.kernels[k].parameter_bytes.is_empty() {
        return Err(format!("kernel {expression}: no arguments were given"));
    }
    let (order, seed) = match order {
        Order::Forward => (0, 0),
        Order::Reverse => (1, 0),
        Order::Random(seed) => (2, seed),
    };
    let clusters = only.map(|only| clusters_of(only, shape.cluster));
    let (only, only_count) =
        clusters.as_ref().map_or((std::ptr::null(), 0), |only| (only.as_ptr(), only.len() as u64));
    let Shape { grid, block, shared_bytes, cluster } = shape;
    let shape =
        ffi::LaunchShape { grid, block, shared_bytes, cluster, order, seed, only, only_count };
    let number = u32::try_from(k).map_err(|e| e.to_string())?;
    registry.note_launch(k)?;
    let noted = registry.note_test(test, k)?;
    let start = Instant::now();
    // SAFETY: `number` is that of a registered kernel; `only` lives through the call; the rest
    // is the caller's promise.
    let launched = unsafe { ffi::launch(number, &shape, args) };
    if let Some(test) = noted {
        note_time(test, start.elapsed())?;
    }
    launched
}

/// The numbers of the clusters that contain the given blocks. Without clusters, the blocks
/// themselves.
fn clusters_of(blocks: &[u64], cluster: u32) -> Vec<u64> {
    let mut clusters: Vec<u64> = blocks.iter().map(|block| block / u64::from(cluster)).collect();
    if cluster > 1 {
        let mut seen = HashSet::new();
        clusters.retain(|&cluster| seen.insert(cluster));
    }
    clusters
}

/// The sizes in bytes of a kernel's parameters, to check an argument list against.
///
/// # Errors
///
/// If the expression is unknown or ambiguous, as for [`launch`].
pub fn parameter_bytes(expression: &str) -> Result<&'static [usize], String> {
    let registry = registry()?;
    Ok(&registry.kernels[registry.find(expression)?].parameter_bytes)
}

/// Whether any kernel of the module is registered.
///
/// # Errors
///
/// If the library of the kernels cannot be opened.
pub fn has_module(module: &str) -> Result<bool, String> {
    Ok(registry()?.kernels.iter().any(|kernel| kernel.module == module))
}

/// All registered expressions as `module:expression`, sorted.
///
/// # Errors
///
/// If the library of the kernels cannot be opened.
pub fn registered() -> Result<Vec<String>, String> {
    let mut all: Vec<String> = registry()?.kernels.iter().map(qualified).collect();
    all.sort();
    Ok(all)
}

/// The environment variable that names a log file of launched kernels. The name of each kernel is
/// appended at its first launch in a process, so that a run of all tests shows which instances no
/// test needs.
const LAUNCHED: &str = "KERNEL_EMU_LAUNCHED";

/// The environment variable that names a log file of launching tests. A line has the file name of the
/// program, the test and a kernel that it launches, with tabs between them; there is one for each
/// such pair. The test is the name of the thread, or of that which made the [`Emulator`]. Whenever
/// the time that the launches of a test took has doubled, from [`LEAST_TIME`] on, there is a line
/// with the program, the test, nothing, and the time in milliseconds. So a run of all tests shows
/// which of them a sanitizer has to watch to see all kernels in the shortest time.
const LAUNCHING: &str = "KERNEL_EMU_LAUNCHING";

/// The least time of a test that is noted.
const LEAST_TIME: Duration = Duration::from_millis(8);

/// The library of the emulator and its kernels: the one that the build made, or the one that the
/// variable `KERNEL_EMU_LIBRARY` names. This may be `libkernel_emu_address.so` in the same folder,
/// whose accesses AddressSanitizer watches if it is loaded before the program; a library with
/// ThreadSanitizer; or one shipped with a test program that was built on another machine.
#[must_use]
pub fn library_path() -> PathBuf {
    match std::env::var_os("KERNEL_EMU_LIBRARY").filter(|named| !named.is_empty()) {
        Some(named) => named.into(),
        None => Path::new(env!("OUT_DIR")).join("libkernel_emu.so"),
    }
}

/// The sanitizer that the kernels of the library were compiled with: `address`, `thread`, or `None`
/// without a sanitizer.
///
/// # Errors
///
/// If the library cannot be opened.
pub fn sanitizer() -> Result<Option<&'static str>, String> {
    Ok(Some(ffi::sanitizer()?).filter(|name| !name.is_empty()))
}

fn qualified(kernel: &ffi::Kernel) -> String {
    format!("{}:{}", kernel.module, names::normalise(&kernel.expression))
}

struct Registry {
    kernels: Vec<ffi::Kernel>,
    /// Maps normalised expressions, with and without their module, to kernel indices.
    by_name: HashMap<String, Vec<usize>>,
    /// For each kernel, whether this process has launched and logged it.
    launched: Vec<AtomicBool>,
}

fn registry() -> Result<&'static Registry, String> {
    static REGISTRY: OnceLock<Result<Registry, String>> = OnceLock::new();
    let registry = REGISTRY.get_or_init(|| {
        let kernels = ffi::kernels()?;
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (k, kernel) in kernels.iter().enumerate() {
            by_name.entry(names::normalise(&kernel.expression)).or_default().push(k);
            by_name.entry(qualified(kernel)).or_default().push(k);
        }
        let launched = kernels.iter().map(|_| AtomicBool::new(false)).collect();
        Ok(Registry { kernels, by_name, launched })
    });
    registry.as_ref().map_err(Clone::clone)
}

/// A line of the file that [`LAUNCHING`] names.
fn of_test(test: &str, what: &str) -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    format!("{program}\t{test}\t{what}")
}

/// Adds to the time that the launches of a test took, and appends it to the file that [`LAUNCHING`]
/// names where it has doubled.
fn note_time(test: Arc<str>, launch: Duration) -> Result<(), String> {
    /// For each test the time that its launches took, and from when on it is noted again.
    type Times = HashMap<Arc<str>, (Duration, Duration)>;
    static TIMES: Mutex<Option<Times>> = Mutex::new(None);
    let mut times = TIMES.lock().unwrap_or_else(PoisonError::into_inner);
    let times = times.get_or_insert_default();
    let (taken, next) = times.entry(Arc::clone(&test)).or_insert((Duration::ZERO, LEAST_TIME));
    *taken += launch;
    if *taken < *next {
        return Ok(());
    }
    *next = 2 * *taken;
    append(LAUNCHING, || of_test(&test, &format!("\t{}", taken.as_millis())))
}

/// Appends a line to the file that an environment variable names; does nothing if it is not set. A
/// single write in append mode, since programs that run at the same time share the file.
fn append(variable: &str, line: impl FnOnce() -> String) -> Result<(), String> {
    let Some(path) = std::env::var_os(variable) else { return Ok(()) };
    let line = line() + "\n";
    let file = File::options().append(true).create(true).open(&path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .map_err(|e| format!("{}: {e}", Path::new(&path).display()))
}

impl Registry {
    /// Appends a kernel's name, once, to the file that [`LAUNCHED`] names, if any.
    fn note_launch(&self, k: usize) -> Result<(), String> {
        if self.launched[k].swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        append(LAUNCHED, || qualified(&self.kernels[k]))
    }

    /// Appends a kernel that a test launches, once, to the file that [`LAUNCHING`] names, if any.
    /// Returns the test if there is such a file.
    fn note_test(&self, test: Option<&Arc<str>>, k: usize) -> Result<Option<Arc<str>>, String> {
        /// Tests and the numbers of kernels.
        type Pairs = HashSet<(Arc<str>, usize)>;
        static NOTED: Mutex<Option<Pairs>> = Mutex::new(None);
        static IS_WANTED: OnceLock<bool> = OnceLock::new();
        if !IS_WANTED.get_or_init(|| std::env::var_os(LAUNCHING).is_some()) {
            return Ok(None);
        }
        let test = test_or(test);
        let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.get_or_insert_default().insert((Arc::clone(&test), k)) {
            append(LAUNCHING, || of_test(&test, &qualified(&self.kernels[k])))?;
        }
        Ok(Some(test))
    }

    fn find(&self, expression: &str) -> Result<usize, String> {
        let name = names::normalise(expression);
        match self.by_name.get(&name).map(Vec::as_slice) {
            Some(&[k]) => Ok(k),
            Some(several) => {
                let all: Vec<String> =
                    several.iter().map(|&k| qualified(&self.kernels[k])).collect();
                Err(format!("kernel {name} is registered more than once: {}", all.join(", ")))
            }
            None => {
                let known = self.kernels.iter().map(|k| names::normalise(&k.expression));
                let near = names::nearest(&name, known);
                Err(match near.as_slice() {
                    [] => format!("kernel {name} is not registered; no kernel is"),
                    near => {
                        format!("kernel {name} is not registered; near ones: {}", near.join(", "))
                    }
                })
            }
        }
    }
}

/// Checks a shape against the limits of a device.
fn check_shape(shape: &Shape) -> Result<(), String> {
    let &Shape { grid, block, shared_bytes, cluster } = shape;
    let grid_limits = [i32::MAX.unsigned_abs(), 65_535, 65_535];
    if (0..3).any(|axis| grid[axis] == 0 || grid[axis] > grid_limits[axis]) {
        return Err(format!("a grid of {grid:?} blocks; each is 1 to {grid_limits:?}"));
    }
    let threads: u64 = block.iter().map(|&b| u64::from(b)).fold(1, u64::saturating_mul);
    if threads == 0 || threads > 1024 || block[2] > 64 {
        return Err(format!("a block of {block:?} threads; it has 1 to 1024, at most 64 in z"));
    }
    if shared_bytes > MAX_SHARED_BYTES {
        return Err(format!(
            "{shared_bytes} bytes of dynamic shared memory; at most {MAX_SHARED_BYTES}"
        ));
    }
    if cluster == 0 || cluster > MAX_CLUSTER {
        return Err(format!("a cluster of {cluster} blocks; it has 1 to {MAX_CLUSTER}"));
    }
    if !grid[0].is_multiple_of(cluster) {
        return Err(format!("{} blocks in x, not a multiple of a cluster of {cluster}", grid[0]));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_beyond_the_device_are_refused() {
        let one = [1, 1, 1];
        let check = |grid, block, shared_bytes, cluster| {
            check_shape(&Shape { grid, block, shared_bytes, cluster })
        };

        assert!(check([0, 1, 1], one, 0, 1).is_err());
        assert!(check([1, 65_536, 1], one, 0, 1).is_err());
        assert!(check(one, [33, 32, 1], 0, 1).is_err());
        assert!(check(one, [u32::MAX, u32::MAX, u32::MAX], 0, 1).is_err());
        assert!(check(one, [1, 1, 65], 0, 1).is_err());
        assert!(check(one, one, MAX_SHARED_BYTES + 1, 1).is_err());
        assert!(check([i32::MAX.unsigned_abs(), 65_535, 65_535], [1024, 1, 1], 0, 1).is_ok());
        assert!(check(one, one, 0, 0).is_err());
        assert!(check([6, 1, 1], one, 0, 4).is_err());
        assert!(check([16, 1, 1], one, 0, 16).is_err());
        assert!(check([16, 3, 1], one, 0, 8).is_ok());
    }

    #[test]
    fn clusters_run_whole_and_once() {
        assert_eq!(clusters_of(&[5, 0, 5], 1), [5, 0, 5]);
        assert_eq!(clusters_of(&[5, 0, 4, 3], 2), [2, 0, 1]);
    }

    #[test]
    fn every_expression_is_registered_once() {
        let repeated: Vec<_> =
            registry().unwrap().by_name.iter().filter(|(_, k)| k.len() > 1).collect();

        assert!(repeated.is_empty(), "{repeated:?}");
    }
}
