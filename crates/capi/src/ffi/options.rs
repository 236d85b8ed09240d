//! The option structs of C, and what they mean.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::str::FromStr;
use std::sync::Arc;

use sparsebatch::gpu::{Device, DeviceAllocator};
use sparsebatch::{
    ArgumentError, Engine, FormatChoice, KernelChoice, PerSystem, SolveOptions, SpmvOptions,
};

use super::allocator::{CallerMemory, sb_allocate, sb_release};
use super::memory::{Versioned, each, text};
use super::{SB_DEFAULT, SB_DEVICE, SB_HOST, SB_INTERLEAVED, SB_ITEM_MAJOR};
use crate::status::Failure;

/// Options of a context. Fill it by `sb_context_options_init`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sb_context_options {
    /// `sizeof(sb_context_options)`.
    pub struct_size: usize,
    /// Where batches in host memory are solved: `"cpu"`; `"gpu"`; or `"auto"`, the GPU where there
    /// is one. NULL is `"cpu"`. Data on a GPU needs `"gpu"` or `"auto"`.
    pub backend: *const c_char,
    /// The number of the GPU, from 0.
    pub ordinal: i32,
    /// Threads of the context's own pool. 0: the pool of the process, of all cores, which all such
    /// contexts share.
    pub threads: u32,
}

impl Default for sb_context_options {
    fn default() -> Self {
        Self { struct_size: size_of::<Self>(), backend: ptr::null(), ordinal: 0, threads: 0 }
    }
}

/// Options of a solver. Fill it by `sb_solver_options_init`, then change what is to be different.
/// Strings are read during the call; NULL is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sb_solver_options {
    /// `sizeof(sb_solver_options)`.
    pub struct_size: usize,
    /// `"auto"`, `"cg"`, `"bicgstab"`, `"lu"`, `"pivoting-lu"` or `"banded"`. Default: `"auto"`, system by
    /// system.
    pub method: *const c_char,
    /// `"auto"`, `"none"`, `"jacobi"`, `"block-jacobi"`, `"ilu0"` or `"ic0"`. Default: `"auto"`.
    pub precond: *const c_char,
    /// Order of elimination of ilu0 and ic0: `"natural"`, `"min-degree"` or `"multicolor"`. Default:
    /// `"natural"`.
    pub order: *const c_char,
    /// Precision of factors of preconditioners: `"working"` or `"f32"`. Default:
    /// `"working"`.
    pub precond_precision: *const c_char,
    /// Precision of iterations on a GPU: `"auto"` or `"working"`. Default: `"auto"`.
    pub inner_precision: *const c_char,
    /// How a GPU makes the sparse LU of systems with several patterns: `"by-pattern"`, or
    /// `"by-system"` where few systems share a pattern. Default: `"by-pattern"`.
    pub lu_form: *const c_char,
    /// Format of products, such as `"csr"` or `"ell"`. NULL with a NULL `kernel`: whole solves are
    /// fused, without separate products.
    pub format: *const c_char,
    /// Kernel of products, one that the format has: `"rows"`, `"csr-i"` or `"entries"`. NULL is
    /// `"auto"`.
    pub kernel: *const c_char,
    /// Rows per block of block-jacobi, 1 to 128. 0: found from the pattern.
    pub block_size: i64,
    /// Right-hand sides per item, at least 1. Default: 1. A *system* is an item with one right-hand
    /// side.
    pub nrhs: i64,
    /// A system has converged when `||b - A x||_2 <= max(atol, rtol ||b||_2)`. `SB_DEFAULT`: 1e-10
    /// in double, 1e-5 in float.
    pub rtol: f64,
    /// Default: 0.
    pub atol: f64,
    /// Iteration limit. Default: 1000.
    pub maxiter: u32,
    /// Restarts from the true residual within one solve. Default: 4.
    pub max_restarts: u32,
    /// `rtol` for each of the `nitems * nrhs` systems, or NULL. Read during the call, as the next
    /// two.
    pub rtol_each: *const f64,
    /// `atol` for each system, or NULL.
    pub atol_each: *const f64,
    /// `maxiter` for each system, or NULL.
    pub maxiter_each: *const u32,
    /// Rounding floor C: `||b - A x|| <= C eps || |A||x| + |b| ||` is accepted, too, but never more
    /// than `1e-3 ||b||`. `SB_DEFAULT`: none.
    pub floor: f64,
    /// Whether systems that did not converge are tried again by stronger methods: 0 or 1. Default:
    /// 1.
    pub fallback: i32,
    /// Whether the report holds the residual norms of all iterations: 0 or 1. Default: 0.
    pub history: i32,
    /// Where values, right-hand sides and solutions lie: `SB_HOST` or `SB_DEVICE`. Default:
    /// `SB_HOST`.
    pub space: i32,
    /// How right-hand sides and solutions on a device lie: `SB_ITEM_MAJOR` or `SB_INTERLEAVED`
    /// (uniform batches). In host memory: `SB_ITEM_MAJOR`. Default: `SB_ITEM_MAJOR`.
    pub vectors: i32,
    /// For data on a device: the `CUstream` or `cudaStream_t` of the calls, of the GPU's primary
    /// context. It outlives the solver. NULL is the legacy default stream.
    pub stream: *mut c_void,
    /// For data on a device: a function that allocates the memory of the GPU that this object takes,
    /// with `release`; both outlive it. NULL: the driver allocates.
    pub allocate: sb_allocate,
    /// Takes memory of `allocate` back.
    pub release: sb_release,
    /// The last argument of both.
    pub allocator_data: *mut c_void,
}

impl Default for sb_solver_options {
    fn default() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            method: ptr::null(),
            precond: ptr::null(),
            order: ptr::null(),
            precond_precision: ptr::null(),
            inner_precision: ptr::null(),
            lu_form: ptr::null(),
            format: ptr::null(),
            kernel: ptr::null(),
            block_size: 0,
            nrhs: 1,
            rtol: SB_DEFAULT,
            atol: 0.0,
            maxiter: 1000,
            max_restarts: 4,
            rtol_each: ptr::null(),
            atol_each: ptr::null(),
            maxiter_each: ptr::null(),
            floor: SB_DEFAULT,
            fallback: 1,
            history: 0,
            space: SB_HOST,
            vectors: SB_ITEM_MAJOR,
            stream: ptr::null_mut(),
            allocate: None,
            release: None,
            allocator_data: ptr::null_mut(),
        }
    }
}

/// Options of products. Fill it by `sb_spmv_options_init`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sb_spmv_options {
    /// `sizeof(sb_spmv_options)`.
    pub struct_size: usize,
    /// `"auto"`, `"csr"`, `"coo"`, `"ell"`, `"dia"`, `"hyb"` or `"sellp"`. NULL is `"auto"`. On a
    /// device: NULL.
    pub format: *const c_char,
    /// As in `sb_solver_options`. On a device: NULL.
    pub kernel: *const c_char,
    /// Right-hand sides per item, at least 1. Default: 1.
    pub nrhs: i64,
    /// Where values, `x` and `y` lie: `SB_HOST` or `SB_DEVICE`. Default: `SB_HOST`.
    pub space: i32,
    /// As in `sb_solver_options`.
    pub stream: *mut c_void,
    /// As in `sb_solver_options`.
    pub allocate: sb_allocate,
    /// As in `sb_solver_options`.
    pub release: sb_release,
    /// As in `sb_solver_options`.
    pub allocator_data: *mut c_void,
}

impl Default for sb_spmv_options {
    fn default() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            format: ptr::null(),
            kernel: ptr::null(),
            nrhs: 1,
            space: SB_HOST,
            stream: ptr::null_mut(),
            allocate: None,
            release: None,
            allocator_data: ptr::null_mut(),
        }
    }
}

impl Versioned for sb_context_options {
    const NAME: &'static str = "sb_context_options";
}

impl Versioned for sb_solver_options {
    const NAME: &'static str = "sb_solver_options";
}

impl Versioned for sb_spmv_options {
    const NAME: &'static str = "sb_spmv_options";
}

/// A number of elements.
pub(crate) fn count(name: &str, number: i64) -> Result<usize, Failure> {
    usize::try_from(number).map_err(|_| {
        Failure::argument(format!("{name} is {number}, expected a number that is not negative"))
    })
}

/// 0 or 1.
pub(crate) fn flag(name: &str, value: i32) -> Result<bool, Failure> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Failure::argument(format!("{name} is {value}, expected 0 or 1"))),
    }
}

/// Whether data lies on a device.
pub(crate) fn is_on_device(space: i32) -> Result<bool, Failure> {
    match space {
        SB_HOST => Ok(false),
        SB_DEVICE => Ok(true),
        _ => Err(Failure::argument(format!("space is {space}, expected SB_HOST or SB_DEVICE"))),
    }
}

fn named<V: FromStr<Err = ArgumentError>>(text: Option<&str>, default: V) -> Result<V, Failure> {
    text.map_or(Ok(default), |text| Ok(text.parse()?))
}

/// Options of products by name.
fn product_options(format: Option<&str>, kernel: Option<&str>) -> Result<SpmvOptions, Failure> {
    let format = named(format, FormatChoice::Auto)?;
    let kernel = named(kernel, KernelChoice::Auto)?;
    Ok(SpmvOptions::default().format(format).kernel(kernel))
}

/// Options of a context as the library takes them.
pub(crate) struct ContextSettings {
    pub(crate) backend: BackendChoice,
    pub(crate) ordinal: usize,
    pub(crate) threads: Option<usize>,
}

/// The backend asked for.
#[derive(Clone, Copy)]
pub(crate) enum BackendChoice {
    Cpu,
    Gpu,
    Auto,
}

impl sb_context_options {
    /// The meaning of these options.
    ///
    /// # Safety
    /// `backend` is NULL or a string that ends with a NUL.
    pub(crate) unsafe fn settings(&self) -> Result<ContextSettings, Failure> {
        // SAFETY: the contract of this function.
        let backend = match unsafe { text("backend", self.backend) }? {
            None | Some("cpu") => BackendChoice::Cpu,
            Some("gpu") => BackendChoice::Gpu,
            Some("auto") => BackendChoice::Auto,
            Some(other) => {
                return Err(Failure::argument(format!(
                    "backend is {other}, expected cpu, gpu or auto"
                )));
            }
        };
        let ordinal = count("ordinal", self.ordinal.into())?;
        let threads = Some(self.threads as usize).filter(|&threads| threads > 0);
        Ok(ContextSettings { backend, ordinal, threads })
    }
}

/// Options of products as the library takes them.
pub(crate) struct SpmvSettings {
    pub(crate) options: SpmvOptions,
    pub(crate) nrhs: usize,
    /// Where the data lies on a device.
    pub(crate) place: Option<DevicePlace>,
}

/// Where data on a device lies: a stream of the caller, and where memory comes from.
#[derive(Clone)]
pub(crate) struct DevicePlace {
    stream: *mut c_void,
    memory: Option<Arc<CallerMemory>>,
}

impl DevicePlace {
    /// The place in fields of option structs; `None` where `space` says that data lies in host
    /// memory.
    ///
    /// # Safety
    /// Stream and functions are what the documentation of the structs says.
    unsafe fn new(
        space: i32,
        stream: *mut c_void,
        (allocate, release, data): (sb_allocate, sb_release, *mut c_void),
    ) -> Result<Option<Self>, Failure> {
        let on_device = is_on_device(space)?;
        // SAFETY: the contract of this function.
        let memory = unsafe { CallerMemory::new(allocate, release, data) }?.map(Arc::new);
        match (on_device, memory) {
            (true, memory) => Ok(Some(Self { stream, memory })),
            (false, None) => Ok(None),
            (false, Some(_)) => Err(Failure::argument(
                "allocate is given for data in host memory, expected space SB_DEVICE",
            )),
        }
    }

    /// The device with this stream and this memory.
    pub(crate) fn of(&self, device: &Device) -> Device {
        // SAFETY: option structs, of which alone streams come, promise in their documentation that
        // it is a stream of the GPU's primary context and outlives what is made with it.
        let device = unsafe { device.with_raw_stream(self.stream) };
        match &self.memory {
            None => device,
            Some(memory) => {
                let memory = Arc::clone(memory) as Arc<dyn DeviceAllocator>;
                // SAFETY: solvers and plans use the memory on the stream of their device alone, and
                // their branches have ended when a call returns.
                unsafe { device.with_allocator(memory) }
            }
        }
    }

    /// The functions of the caller.
    pub(crate) fn memory(&self) -> Option<&Arc<CallerMemory>> {
        self.memory.as_ref()
    }
}

impl sb_spmv_options {
    fn allocator(&self) -> (sb_allocate, sb_release, *mut c_void) {
        (self.allocate, self.release, self.allocator_data)
    }

    /// The meaning of these options.
    ///
    /// # Safety
    /// Strings are NULL or end with a NUL. `stream` and the functions are what the documentation
    /// says.
    pub(crate) unsafe fn settings(&self) -> Result<SpmvSettings, Failure> {
        // SAFETY: the contract of this function.
        let place = unsafe { DevicePlace::new(self.space, self.stream, self.allocator()) }?;
        // SAFETY: the contract of this function.
        let (format, kernel) =
            unsafe { (text("format", self.format)?, text("kernel", self.kernel)?) };
        if place.is_some() && (format.is_some() || kernel.is_some()) {
            return Err(Failure::unsupported(
                "a format or a kernel of products on a device: leave them NULL",
            ));
        }
        let nrhs = count("nrhs", self.nrhs)?;
        let options = product_options(format, kernel)?.nrhs(nrhs);
        Ok(SpmvSettings { options, nrhs, place })
    }
}

/// Options of a solver as the library takes them.
pub(crate) struct SolverSettings {
    pub(crate) options: SolveOptions,
    pub(crate) interleaved_vectors: bool,
    /// Where the data lies on a device.
    pub(crate) place: Option<DevicePlace>,
}

impl sb_solver_options {
    fn allocator(&self) -> (sb_allocate, sb_release, *mut c_void) {
        (self.allocate, self.release, self.allocator_data)
    }

    /// The meaning of these options for `nitems` items.
    ///
    /// # Safety
    /// Strings are NULL or end with a NUL. `rtol_each`, `atol_each` and `maxiter_each` are NULL or
    /// have `nitems * nrhs` elements. `stream` and the functions are what the documentation
    /// says.
    pub(crate) unsafe fn settings(&self, nitems: usize) -> Result<SolverSettings, Failure> {
        // SAFETY: the contract of this function.
        let place = unsafe { DevicePlace::new(self.space, self.stream, self.allocator()) }?;
        let interleaved_vectors = match self.vectors {
            SB_ITEM_MAJOR => false,
            SB_INTERLEAVED if place.is_some() => true,
            _ => {
                return Err(Failure::argument(format!(
                    "vectors is {}, expected SB_ITEM_MAJOR, or SB_INTERLEAVED on a device",
                    self.vectors
                )));
            }
        };
        let nrhs = count("nrhs", self.nrhs)?;
        // SAFETY: the contract of this function.
        let options = unsafe { self.method_options() }?.nrhs(nrhs);
        // SAFETY: the contract of this function.
        let options = unsafe { self.with_limits(options, nitems.saturating_mul(nrhs)) }?;
        Ok(SolverSettings { options, interleaved_vectors, place })
    }

    /// # Safety
    /// Strings are NULL or end with a NUL.
    unsafe fn method_options(&self) -> Result<SolveOptions, Failure> {
        // SAFETY: the contract of this function.
        let text = |name, string| unsafe { text(name, string) };
        let block_size = Some(count("block_size", self.block_size)?).filter(|&size| size > 0);
        let defaults = SolveOptions::new();
        let mut options = SolveOptions::new()
            .method(named(text("method", self.method)?, defaults.method)?)
            .preconditioner(named(text("precond", self.precond)?, defaults.preconditioner)?)
            .inner_precision(named(
                text("inner_precision", self.inner_precision)?,
                defaults.inner_precision,
            )?)
            .lu_form(named(text("lu_form", self.lu_form)?, defaults.lu_form)?)
            .block_size(block_size)
            .max_restarts(self.max_restarts)
            .fallback(flag("fallback", self.fallback)?)
            .history(flag("history", self.history)?);
        if let Some(order) = text("order", self.order)? {
            options = options.order(order.parse()?);
        }
        if let Some(precision) = text("precond_precision", self.precond_precision)? {
            options = options.precond_precision(precision.parse()?);
        }
        let (format, kernel) = (text("format", self.format)?, text("kernel", self.kernel)?);
        if format.is_some() || kernel.is_some() {
            options = options.engine(Engine::Composed(product_options(format, kernel)?));
        }
        Ok(options)
    }

    /// # Safety
    /// Arrays are NULL or have `systems` elements.
    unsafe fn with_limits(
        &self,
        options: SolveOptions,
        systems: usize,
    ) -> Result<SolveOptions, Failure> {
        // SAFETY: the contract of this function.
        let (rtol, atol, maxiter) = unsafe {
            (
                each("rtol_each", self.rtol_each, systems)?,
                each("atol_each", self.atol_each, systems)?,
                each("maxiter_each", self.maxiter_each, systems)?,
            )
        };
        let mut options = options
            .abs_tol(atol.map_or(PerSystem::All(self.atol), PerSystem::Each))
            .max_iters(maxiter.map_or(PerSystem::All(self.maxiter), PerSystem::Each));
        if self.rtol != SB_DEFAULT || rtol.is_some() {
            options = options.rel_tol(rtol.map_or(PerSystem::All(self.rtol), PerSystem::Each));
        }
        if self.floor != SB_DEFAULT {
            options = options.floor(self.floor);
        }
        Ok(options)
    }
}
