//! [`CgSteps`]: the vectors of CG of one GPU, where a system is divided among several.

use sparsebatch_cuda::{
    Args, Executor, GpuError, KernelKey, LaunchConfig, PinnedValues, Value, check_len,
};

use super::kernels::CG_STEPS;

/// Threads of a block, and the elements of its chunk, as `cg_steps.cu` expects.
const THREADS: u32 = 256;
const CHUNK: usize = 8192;

/// Numbers that a launch sums up at the most.
const SUMS: usize = 2;

/// The elements that a GPU has of the vectors of CG, and what an iteration does with them between
/// its product and the sums over all GPUs. The caller, who adds the sums of all GPUs, computes the
/// steps from them.
///
/// Sums are in `f64`. Their order is a function of the number of elements alone, so that their bits
/// are the same in every run.
pub struct CgSteps<E: Executor, T: Value> {
    executor: E,
    len: usize,
    x: E::Buffer<T>,
    r: E::Buffer<T>,
    p: E::Buffer<T>,
    w: E::Buffer<T>,
    /// The diagonal of M; one unused element without a preconditioner.
    m: E::Buffer<T>,
    is_jacobi: bool,
    partials: E::Buffer<f64>,
    ticket: E::Buffer<u32>,
    sums: E::Buffer<f64>,
    host: E::Pinned<f64>,
    keys: Keys,
}

/// The kernels.
struct Keys {
    curvature: KernelKey,
    advance: KernelKey,
    squares: KernelKey,
    direct: KernelKey,
}

impl<E: Executor + Clone, T: Value> CgSteps<E, T> {
    /// Allocates vectors of `len` elements, five with a preconditioner, else four, and compiles the
    /// kernels.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], and what compiling reports.
    pub fn new(executor: &E, len: usize, is_jacobi: bool) -> Result<Self, GpuError> {
        let with = |kernel: &str| format!("{kernel}<{}, {}>", T::CPP, u32::from(is_jacobi));
        let key = |expression: String| KernelKey::new(&CG_STEPS, expression);
        let keys = Keys {
            curvature: key(format!("cg_curvature<{}>", T::CPP)),
            advance: key(with("cg_advance")),
            squares: key(with("cg_squares")),
            direct: key(with("cg_direct")),
        };
        let all = [&keys.curvature, &keys.advance, &keys.squares, &keys.direct].map(Clone::clone);
        executor.prepare(&all)?;
        Ok(Self {
            len,
            x: executor.alloc(len)?,
            r: executor.alloc(len)?,
            p: executor.alloc(len)?,
            w: executor.alloc(len)?,
            m: executor.alloc(if is_jacobi { len } else { 1 })?,
            is_jacobi,
            partials: executor.alloc(SUMS * len.div_ceil(CHUNK))?,
            ticket: executor.alloc_zeroed(1)?,
            sums: executor.alloc_zeroed(SUMS)?,
            host: executor.alloc_pinned(SUMS)?,
            keys,
            executor: executor.clone(),
        })
    }
}

impl<E: Executor, T: Value> CgSteps<E, T> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is a preconditioner.
    pub fn is_jacobi(&self) -> bool {
        self.is_jacobi
    }

    /// Takes x.
    ///
    /// # Errors
    /// [`GpuError::Length`]; else what copying reports.
    pub fn set_x(&mut self, x: &[T]) -> Result<(), GpuError> {
        check_len("x", self.len, x.len())?;
        self.executor.copy_from_host(x, &mut self.x)
    }

    /// Takes the residual.
    ///
    /// # Errors
    /// As [`CgSteps::set_x`].
    pub fn set_r(&mut self, r: &[T]) -> Result<(), GpuError> {
        check_len("r", self.len, r.len())?;
        self.executor.copy_from_host(r, &mut self.r)
    }

    /// Takes the diagonal of the preconditioner, as which vectors are multiplied.
    ///
    /// # Errors
    /// As [`CgSteps::set_x`]; [`GpuError::Length`] where there is no preconditioner.
    pub fn set_m(&mut self, m: &[T]) -> Result<(), GpuError> {
        check_len("m", if self.is_jacobi { self.len } else { 0 }, m.len())?;
        if self.is_jacobi { self.executor.copy_from_host(m, &mut self.m) } else { Ok(()) }
    }

    /// Copies x to the host.
    ///
    /// # Errors
    /// As [`CgSteps::set_x`].
    pub fn x(&self, x: &mut [T]) -> Result<(), GpuError> {
        self.executor.copy_to_host(&self.x, x)
    }

    /// The vectors p and w of the product `w = A p`.
    pub fn product_vectors(&mut self) -> (&E::Buffer<T>, &mut E::Buffer<T>) {
        (&self.p, &mut self.w)
    }

    /// `p'w`, for which the call waits.
    ///
    /// # Errors
    /// What launching and copying report.
    pub fn curvature(&mut self) -> Result<f64, GpuError> {
        let mut args = Args::new();
        args.scalar(self.len as u64).input(&self.p).input(&self.w);
        args.output(&mut self.partials).output(&mut self.ticket).output(&mut self.sums);
        let launched = (&self.executor, &self.keys.curvature, self.len);
        // SAFETY: the arguments are those of `cg_curvature`; vectors have `len` elements.
        #[expect(unsafe_code, reason = "a launch")]
        unsafe {
            launch(launched, &mut args)?;
        }
        Ok(self.read()?[0])
    }

    /// `x += alpha p`, `r -= alpha w`; returns `r'r` and `r'M r`, for which the call waits.
    ///
    /// # Errors
    /// As [`CgSteps::curvature`].
    pub fn advance(&mut self, alpha: T) -> Result<[f64; 2], GpuError> {
        let mut args = Args::new();
        args.scalar(self.len as u64).scalar(alpha).input(&self.p).input(&self.w).input(&self.m);
        args.output(&mut self.x).output(&mut self.r);
        args.output(&mut self.partials).output(&mut self.ticket).output(&mut self.sums);
        let launched = (&self.executor, &self.keys.advance, self.len);
        // SAFETY: the arguments are those of `cg_advance`; vectors have `len` elements, as m has
        // where it is read.
        #[expect(unsafe_code, reason = "a launch")]
        unsafe {
            launch(launched, &mut args)?;
        }
        self.read()
    }

    /// `r'r` and `r'M r`, for which the call waits.
    ///
    /// # Errors
    /// As [`CgSteps::curvature`].
    pub fn squares(&mut self) -> Result<[f64; 2], GpuError> {
        let mut args = Args::new();
        args.scalar(self.len as u64).input(&self.m).input(&self.r);
        args.output(&mut self.partials).output(&mut self.ticket).output(&mut self.sums);
        let launched = (&self.executor, &self.keys.squares, self.len);
        // SAFETY: the arguments are those of `cg_squares`; vectors have `len` elements, as m has
        // where it is read.
        #[expect(unsafe_code, reason = "a launch")]
        unsafe {
            launch(launched, &mut args)?;
        }
        self.read()
    }

    /// `p = M r + beta p`; p is not read where `beta` is 0. Returns before it is done.
    ///
    /// # Errors
    /// As [`CgSteps::curvature`].
    pub fn direct(&mut self, beta: T) -> Result<(), GpuError> {
        let mut args = Args::new();
        args.scalar(self.len as u64).scalar(beta).input(&self.m).input(&self.r);
        args.output(&mut self.p);
        let launched = (&self.executor, &self.keys.direct, self.len);
        // SAFETY: the arguments are those of `cg_direct`; vectors have `len` elements, as m has
        // where it is read.
        #[expect(unsafe_code, reason = "a launch")]
        unsafe {
            launch(launched, &mut args)
        }
    }

    /// The sums of the last launch; 0 of no elements.
    fn read(&mut self) -> Result<[f64; 2], GpuError> {
        self.executor.copy_to_pinned(&self.sums, &mut self.host)?;
        let sums = self.host.as_slice()?;
        Ok([sums[0], sums[1]])
    }
}

/// A block for each chunk of `len` elements; nothing where there are none.
///
/// # Safety
/// As [`Executor::launch`].
#[expect(unsafe_code, reason = "what launches share")]
unsafe fn launch<E: Executor>(
    (executor, key, len): (&E, &KernelKey, usize),
    args: &mut Args<'_>,
) -> Result<(), GpuError> {
    if len == 0 {
        return Ok(());
    }
    let config = LaunchConfig::linear(len.div_ceil(CHUNK) as u32, THREADS);
    // SAFETY: the caller's; `partials` has the sums of each chunk, and the ticket is 0 between
    // launches.
    unsafe { executor.launch(key, config, args) }
}
