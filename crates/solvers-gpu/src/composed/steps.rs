//! [`KrylovSteps`]: the vectors of a Krylov method on one GPU, where a system is divided among
//! several.

use sparsebatch_cuda::{
    Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, PinnedValues, Value, check_len,
};

use super::kernels::KRYLOV_STEPS;

/// Threads of a block, and the elements of its chunk, as `krylov_steps.cu` expects.
const THREADS: u32 = 256;
const CHUNK: usize = 8192;

/// Numbers that a launch sums up at the most.
const SUMS: usize = 3;

/// The method whose vectors are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepMethod {
    /// CG; preconditioned residuals are in [`StepVector::U`] where they are
    /// [given](StepPrecond::Given).
    Cg,
    /// Pipelined CG, with the names of its source (Ghysels, Vanroose 2014,
    /// doi:10.1016/j.parco.2013.06.001, algorithm 4).
    PipelinedCg,
    /// Right-preconditioned BiCGStab.
    BiCgStab,
}

impl StepMethod {
    /// The vectors, but for those of the preconditioner.
    fn vectors(self) -> &'static [StepVector] {
        use StepVector as V;
        match self {
            Self::Cg => &[V::X, V::R, V::P, V::W],
            Self::PipelinedCg => &[V::X, V::R, V::U, V::W, V::P, V::M, V::N, V::S, V::Q, V::Z],
            Self::BiCgStab => &[V::X, V::R, V::P, V::V, V::T, V::Shadow],
        }
    }

    /// The vectors that a preconditioner writes, beyond those that are there without one.
    fn preconditioned(self, precond: StepPrecond) -> &'static [StepVector] {
        match (self, precond) {
            (Self::Cg, StepPrecond::Given) => &[StepVector::U],
            (Self::BiCgStab, StepPrecond::Diagonal | StepPrecond::Given) => {
                &[StepVector::PHat, StepVector::SHat]
            }
            _ => &[],
        }
    }

    fn kernels(self) -> &'static [Kernel] {
        use Kernel as K;
        match self {
            Self::Cg => &[K::Dot, K::CgAdvance, K::CgSquares, K::CgDirect],
            Self::PipelinedCg => &[K::Precondition, K::PipelinedSums, K::PipelinedAdvance],
            Self::BiCgStab => &[
                K::Dot,
                K::BiCgStabStart,
                K::BiCgStabDirect,
                K::BiCgStabHalf,
                K::BiCgStabMiddle,
                K::BiCgStabAdvance,
            ],
        }
    }
}

/// What preconditions on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepPrecond {
    /// Nothing.
    None,
    /// A diagonal, [`StepVector::Diagonal`], as which vectors are multiplied.
    Diagonal,
    /// The caller, who writes products with the preconditioner to the vectors that the steps read.
    Given,
}

/// A vector of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepVector {
    /// The solution.
    X,
    /// The residual; with BiCGStab also that in the middle of an iteration.
    R,
    /// `M r`.
    U,
    /// `A p` of CG, `A u` of pipelined CG.
    W,
    /// The direction.
    P,
    /// The diagonal of the preconditioner.
    Diagonal,
    /// `M w` of pipelined CG.
    M,
    /// `A m` of pipelined CG.
    N,
    /// `A p` of pipelined CG.
    S,
    /// `M s` of pipelined CG.
    Q,
    /// `A q` of pipelined CG.
    Z,
    /// `A p_hat` of BiCGStab.
    V,
    /// `A s_hat` of BiCGStab.
    T,
    /// The shadow residual of BiCGStab.
    Shadow,
    /// `M p` of BiCGStab; without a preconditioner p itself.
    PHat,
    /// `M r` of BiCGStab in the middle of an iteration; without a preconditioner r itself.
    SHat,
}

const VECTORS: usize = StepVector::SHat as usize + 1;

impl StepVector {
    /// The vector as an argument that a kernel always has.
    fn here(self) -> Option<Self> {
        Some(self)
    }
}

/// What a launch does with the vectors. Steps with sums leave them for [`KrylovSteps::sums`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<T> {
    /// CG: sums `r'r` and `r'M r`.
    CgSquares,
    /// CG: sums `p'w`.
    CgCurvature,
    /// CG: `x += alpha p`, `r -= alpha w`; sums `r'r` and, unless the preconditioner is given,
    /// `r'M r`.
    CgAdvance {
        /// The step along the direction.
        alpha: T,
    },
    /// CG: `p = M r + beta p`; p is not read where `beta` is 0.
    CgDirect {
        /// The part of the last direction.
        beta: T,
    },
    /// Pipelined CG: `to = M from`, unless the preconditioner is given.
    Precondition {
        /// The vector that is preconditioned.
        from: StepVector,
        /// The result, another vector.
        to: StepVector,
    },
    /// Pipelined CG: sums `r'u`, `w'u` and `r'r`.
    PipelinedSums,
    /// Pipelined CG: all updates of an iteration; z, q, s and p are not read where `beta` is 0.
    PipelinedAdvance {
        /// The step along the direction.
        alpha: T,
        /// The part of the last direction.
        beta: T,
    },
    /// BiCGStab: the shadow residual is r, p and v are 0; sums `r'r`.
    BiCgStabStart,
    /// BiCGStab: `p = r + beta (p - omega v)` and, of a diagonal M, `p_hat = M p`.
    BiCgStabDirect {
        /// The part of the last direction.
        beta: T,
        /// The last step that made the residual smallest.
        omega: T,
    },
    /// BiCGStab: sums the product of the shadow residual and v.
    BiCgStabShadow,
    /// BiCGStab: `r -= alpha v` and, of a diagonal M, `s_hat = M r`.
    BiCgStabHalf {
        /// The step along the direction.
        alpha: T,
    },
    /// BiCGStab: sums `t'r`, `t't` and `r'r`.
    BiCgStabMiddle,
    /// BiCGStab: `x += alpha p_hat + omega s_hat`, `r -= omega t`; sums `r'r` and the product of r
    /// and the shadow residual.
    BiCgStabAdvance {
        /// The step along the direction.
        alpha: T,
        /// The step that makes the residual smallest.
        omega: T,
    },
}

/// The vectors x and y of a product `y = A x`.
type Operands<'s, B> = (&'s B, &'s mut B);

/// The kernels of `krylov_steps.cu`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernel {
    Dot,
    Precondition,
    CgAdvance,
    CgSquares,
    CgDirect,
    PipelinedSums,
    PipelinedAdvance,
    BiCgStabStart,
    BiCgStabDirect,
    BiCgStabHalf,
    BiCgStabMiddle,
    BiCgStabAdvance,
}

impl Kernel {
    /// Whether it sums something.
    fn has_sums(self) -> bool {
        match self {
            Self::Dot
            | Self::CgAdvance
            | Self::CgSquares
            | Self::PipelinedSums
            | Self::BiCgStabStart
            | Self::BiCgStabMiddle
            | Self::BiCgStabAdvance => true,
            Self::Precondition
            | Self::CgDirect
            | Self::PipelinedAdvance
            | Self::BiCgStabDirect
            | Self::BiCgStabHalf => false,
        }
    }

    /// The instance for values of the C++ type `value`.
    fn expression(self, value: &str, precond: StepPrecond) -> String {
        let is = |kind: StepPrecond| u32::from(precond == kind);
        let (diagonal, any) = (is(StepPrecond::Diagonal), 1 - is(StepPrecond::None));
        let kind = diagonal + 2 * is(StepPrecond::Given);
        match self {
            Self::Dot => format!("steps_dot<{value}>"),
            Self::PipelinedSums => format!("pipelined_sums<{value}>"),
            Self::PipelinedAdvance => format!("pipelined_advance<{value}>"),
            Self::BiCgStabStart => format!("bicgstab_start<{value}>"),
            Self::BiCgStabMiddle => format!("bicgstab_middle<{value}>"),
            Self::Precondition => format!("steps_precondition<{value}, {diagonal}>"),
            Self::BiCgStabDirect => format!("bicgstab_direct<{value}, {diagonal}>"),
            Self::BiCgStabHalf => format!("bicgstab_half<{value}, {diagonal}>"),
            Self::BiCgStabAdvance => format!("bicgstab_advance<{value}, {any}>"),
            Self::CgAdvance => format!("cg_advance<{value}, {kind}>"),
            Self::CgSquares => format!("cg_squares<{value}, {kind}>"),
            Self::CgDirect => format!("cg_direct<{value}, {kind}>"),
        }
    }
}

/// The elements that a GPU has of the vectors of a Krylov method, and what an iteration does with
/// them between its products and the sums over all GPUs. The caller, who adds the sums of all GPUs,
/// computes the steps from them.
///
/// Sums are in `f64`. Their order is a function of the number of elements alone, so that their bits
/// are the same in every run.
pub struct KrylovSteps<E: Executor, T: Value> {
    executor: E,
    len: usize,
    method: StepMethod,
    precond: StepPrecond,
    vectors: [Option<E::Buffer<T>>; VECTORS],
    partials: E::Buffer<f64>,
    ticket: E::Buffer<u32>,
    sums: E::Buffer<f64>,
    host: E::Pinned<f64>,
    keys: Vec<(Kernel, KernelKey)>,
}

impl<E: Executor + Clone, T: Value> KrylovSteps<E, T> {
    /// Allocates vectors of `len` elements: with CG four, with pipelined CG ten, with BiCGStab six;
    /// one more for a diagonal, one (CG) or two (BiCGStab) for what a preconditioner gives. Compiles
    /// the kernels.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], and what compiling reports.
    pub fn new(
        executor: &E,
        len: usize,
        method: StepMethod,
        precond: StepPrecond,
    ) -> Result<Self, GpuError> {
        let key = |kernel: &Kernel| {
            (*kernel, KernelKey::new(&KRYLOV_STEPS, kernel.expression(T::CPP, precond)))
        };
        let keys: Vec<(Kernel, KernelKey)> = method.kernels().iter().map(key).collect();
        let all: Vec<KernelKey> = keys.iter().map(|(_, key)| key.clone()).collect();
        executor.prepare(&all)?;
        let mut vectors = [const { None }; VECTORS];
        let diagonal = [StepVector::Diagonal];
        let diagonal = if precond == StepPrecond::Diagonal { &diagonal[..] } else { &[] };
        let of_precond = method.preconditioned(precond).iter().chain(diagonal);
        for &vector in method.vectors().iter().chain(of_precond) {
            vectors[vector as usize] = Some(executor.alloc(len)?);
        }
        Ok(Self {
            executor: executor.clone(),
            len,
            method,
            precond,
            vectors,
            partials: executor.alloc(SUMS * len.div_ceil(CHUNK))?,
            ticket: executor.alloc_zeroed(1)?,
            sums: executor.alloc_zeroed(SUMS)?,
            host: executor.alloc_pinned(SUMS)?,
            keys,
        })
    }
}

impl<E: Executor, T: Value> KrylovSteps<E, T> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The method.
    pub fn method(&self) -> StepMethod {
        self.method
    }

    /// What preconditions.
    pub fn precond(&self) -> StepPrecond {
        self.precond
    }

    /// Copies a vector from the host.
    ///
    /// # Errors
    /// [`GpuError::Length`]; [`GpuError::InvalidArgument`] for a vector that the method does not
    /// have; else what copying reports.
    pub fn set(&mut self, vector: StepVector, from: &[T]) -> Result<(), GpuError> {
        check_len("vector", self.len, from.len())?;
        let at = self.place(vector);
        let to = self.vectors[at].as_mut().ok_or_else(|| missing(vector))?;
        self.executor.copy_from_host(from, to)
    }

    /// Copies a vector to the host, once the steps before are done.
    ///
    /// # Errors
    /// As [`KrylovSteps::set`].
    pub fn get(&self, vector: StepVector, to: &mut [T]) -> Result<(), GpuError> {
        check_len("vector", self.len, to.len())?;
        let from = self.vectors[self.place(vector)].as_ref().ok_or_else(|| missing(vector))?;
        self.executor.copy_to_host(from, to)
    }

    /// Two different vectors, for the product `to = A from`.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for one that the method does not have, and for equal ones.
    pub fn product_vectors(
        &mut self,
        from: StepVector,
        to: StepVector,
    ) -> Result<Operands<'_, E::Buffer<T>>, GpuError> {
        let places = [self.place(from), self.place(to)];
        let found = self.vectors.get_disjoint_mut(places).map_err(|_| missing(to))?;
        match found {
            [Some(a), Some(b)] => Ok((a, b)),
            [None, _] => Err(missing(from)),
            [_, None] => Err(missing(to)),
        }
    }

    /// Starts a step, and returns before it is done.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for a step of another method; else what launching reports.
    pub fn run(&mut self, step: Step<T>) -> Result<(), GpuError> {
        use Kernel as K;
        use StepVector as V;
        match step {
            Step::CgSquares => self.launch(K::CgSquares, &[], &[self.m(V::U), V::R.here()]),
            Step::CgCurvature => self.launch(K::Dot, &[], &[V::P.here(), V::W.here()]),
            Step::CgAdvance { alpha } => {
                let m = self.m(V::U);
                let vectors = [V::P.here(), V::W.here(), m, V::X.here(), V::R.here()];
                self.launch(K::CgAdvance, &[alpha], &vectors)
            }
            Step::CgDirect { beta } => {
                self.launch(K::CgDirect, &[beta], &[self.m(V::U), V::R.here(), V::P.here()])
            }
            Step::Precondition { from, to } => self.precondition(from, to),
            Step::PipelinedSums => {
                self.launch(K::PipelinedSums, &[], &[V::R.here(), V::U.here(), V::W.here()])
            }
            Step::PipelinedAdvance { alpha, beta } => self.pipelined_advance(alpha, beta),
            Step::BiCgStabStart => {
                let vectors = [V::R, V::Shadow, V::P, V::V].map(StepVector::here);
                self.launch(K::BiCgStabStart, &[], &vectors)
            }
            Step::BiCgStabDirect { beta, omega } => {
                let m = self.m(V::PHat);
                let vectors = [V::R.here(), V::V.here(), m, V::P.here(), V::PHat.here()];
                self.launch(K::BiCgStabDirect, &[beta, omega], &vectors)
            }
            Step::BiCgStabShadow => self.launch(K::Dot, &[], &[V::Shadow.here(), V::V.here()]),
            Step::BiCgStabHalf { alpha } => {
                let vectors = [V::V.here(), self.m(V::SHat), V::R.here(), V::SHat.here()];
                self.launch(K::BiCgStabHalf, &[alpha], &vectors)
            }
            Step::BiCgStabMiddle => {
                self.launch(K::BiCgStabMiddle, &[], &[V::T.here(), V::R.here()])
            }
            Step::BiCgStabAdvance { alpha, omega } => {
                let vectors = [V::PHat, V::SHat, V::T, V::Shadow, V::X, V::R];
                let vectors = vectors.map(StepVector::here);
                self.launch(K::BiCgStabAdvance, &[alpha, omega], &vectors)
            }
        }
    }

    /// The sums of the last step that has some, for which the call waits; 0 of no elements.
    ///
    /// # Errors
    /// What copying reports.
    pub fn sums(&mut self) -> Result<[f64; SUMS], GpuError> {
        self.executor.copy_to_pinned(&self.sums, &mut self.host)?;
        let sums = self.host.as_slice()?;
        Ok([sums[0], sums[1], sums[2]])
    }

    /// What a kernel reads of the preconditioner: the diagonal, `given`, or nothing.
    fn m(&self, given: StepVector) -> Option<StepVector> {
        match self.precond {
            StepPrecond::None => None,
            StepPrecond::Diagonal => Some(StepVector::Diagonal),
            StepPrecond::Given => Some(given),
        }
    }

    /// Where a vector is.
    fn place(&self, vector: StepVector) -> usize {
        let vector = match (vector, self.precond) {
            (StepVector::PHat, StepPrecond::None) => StepVector::P,
            (StepVector::SHat, StepPrecond::None) => StepVector::R,
            (vector, _) => vector,
        };
        vector as usize
    }

    /// The address of a vector.
    fn address(&self, vector: StepVector) -> Result<u64, GpuError> {
        let found = self.vectors[self.place(vector)].as_ref();
        found.map(KernelBuffer::raw).ok_or_else(|| missing(vector))
    }

    /// Launches a kernel whose arguments are the number of elements, scalars, vectors (null where
    /// there is none), and what sums need where it has some.
    fn launch(
        &mut self,
        kernel: Kernel,
        scalars: &[T],
        vectors: &[Option<StepVector>],
    ) -> Result<(), GpuError> {
        let mut args = self.args(scalars, vectors)?;
        if kernel.has_sums() {
            args.output(&mut self.partials).output(&mut self.ticket).output(&mut self.sums);
        }
        // SAFETY: the arguments are those of the kernel, as `run` lists them: vectors are there and
        // have `len` elements; those of a preconditioner are null only in the instance that reads
        // none. Vectors are apart but for those that the kernel names.
        #[expect(unsafe_code, reason = "a launch")]
        unsafe {
            launch((&self.executor, key(&self.keys, self.method, kernel)?, self.len), &mut args)
        }
    }

    fn args(
        &self,
        scalars: &[T],
        vectors: &[Option<StepVector>],
    ) -> Result<Args<'static>, GpuError> {
        let mut args = Args::new();
        args.scalar(self.len as u64);
        for &scalar in scalars {
            args.scalar(scalar);
        }
        for &vector in vectors {
            args.raw(vector.map_or(Ok(0), |vector| self.address(vector))?);
        }
        Ok(args)
    }

    fn precondition(&mut self, from: StepVector, to: StepVector) -> Result<(), GpuError> {
        if self.place(from) == self.place(to) || to == StepVector::Diagonal {
            return Err(missing(to));
        }
        if self.precond == StepPrecond::Given {
            return Ok(());
        }
        self.launch(Kernel::Precondition, &[], &[self.m(from), from.here(), to.here()])
    }

    fn pipelined_advance(&mut self, alpha: T, beta: T) -> Result<(), GpuError> {
        use StepVector as V;
        let mut updated = [0; 8];
        let vectors = [V::X, V::R, V::U, V::W, V::P, V::S, V::Q, V::Z];
        for (address, vector) in updated.iter_mut().zip(vectors) {
            *address = self.address(vector)?;
        }
        let mut args = self.args(&[alpha, beta], &[V::M.here(), V::N.here()])?;
        args.structure(updated);
        let key = key(&self.keys, self.method, Kernel::PipelinedAdvance)?;
        // SAFETY: as in `launch`.
        #[expect(unsafe_code, reason = "a launch")]
        unsafe {
            launch((&self.executor, key, self.len), &mut args)
        }
    }
}

/// The key of a kernel, if it is one of the method.
fn key(
    keys: &[(Kernel, KernelKey)],
    method: StepMethod,
    kernel: Kernel,
) -> Result<&KernelKey, GpuError> {
    let found = keys.iter().find(|(own, _)| *own == kernel);
    found.map(|(_, key)| key).ok_or_else(|| GpuError::InvalidArgument {
        name: "step",
        expected: format!("one of {method:?}"),
        found: "one of another method".to_owned(),
    })
}

/// A vector that a method does not have.
fn missing(vector: StepVector) -> GpuError {
    GpuError::InvalidArgument {
        name: "vector",
        expected: "one of the method, apart from the other".to_owned(),
        found: format!("{vector:?}"),
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
