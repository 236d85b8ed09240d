//! The part of one GPU in products with a matrix whose rows are divided among several:
//! [`HaloPlan`].
//!
//! The elements of x are divided as the rows are. The *local* part of the own rows has the columns
//! whose elements of x lie on this GPU, the *remote* part those of other GPUs, the *halo*. Whoever
//! carries the bytes between GPUs does so between [`HaloPlan::start`] and [`HaloPlan::finish`],
//! while the local part is multiplied. GPUs of one process that reach each other's memory need nobody
//! to carry bytes: they only have to know that the others have started ([`HaloPlan::connect`]).

pub(crate) mod kernels;
mod peers;

use std::sync::Arc;

use sparsebatch_cuda::executor::check_apart;
use sparsebatch_cuda::{
    Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, PinnedValues, Value, check_len,
};
use sparsebatch_formats::{CsrPattern, View};

use crate::{SingleExplain, SingleOptions, SinglePlan};
use kernels::HALO;
use peers::Peers;
pub use peers::{Incoming, Mailbox};

const THREADS: u32 = 256;

/// What a GPU has of a divided matrix, on the host.
#[derive(Clone, Copy)]
pub struct HaloParts<'a, T> {
    /// The entries of the own rows in own columns.
    pub local: View<'a, CsrPattern, T>,
    /// The rows that have entries in the columns of the halo, without the others, and which of the
    /// own rows they are, ascending. `None` where there is no halo.
    pub remote: Option<(View<'a, CsrPattern, T>, &'a [u32])>,
    /// Which elements of x other GPUs need, in the order in which they are sent. An element that
    /// goes to several is there as often.
    pub sent: &'a [u32],
}

/// Rows of a matrix on a GPU, whose products need elements of x that lie elsewhere.
///
/// # Examples
/// One GPU that sends its last element to itself, in the place of another GPU:
/// ```no_run
/// use sparsebatch_cuda::{Device, Executor};
/// use sparsebatch_formats::Csr;
/// use sparsebatch_spmv_gpu::{HaloParts, HaloPlan, SingleOptions};
/// let local = Csr::try_new(2, 2, vec![0, 1, 2], vec![0, 1], vec![2.0, 2.0])?;
/// let remote = Csr::try_new(1, 1, vec![0, 1], vec![0], vec![-1.0])?;
/// let device = Device::new(0)?;
/// let parts = HaloParts { local: local.view(), remote: Some((remote.view(), &[0])), sent: &[1] };
/// let mut plan = HaloPlan::new(&device, parts, &SingleOptions::default())?;
/// let x = device.upload(&[1.0, 10.0])?;
/// let mut y = device.alloc(2)?;
/// plan.start(1.0, &x, 0.0, &mut y)?;
/// let (packed, received) = plan.staged()?;
/// received.copy_from_slice(packed);
/// plan.finish(1.0, &mut y)?;
/// assert_eq!(device.download(&y)?, [-8.0, 20.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HaloPlan<E: Executor, T: Value> {
    executor: E,
    /// One executor, whose work runs beside the product of the local part.
    beside: Vec<E>,
    local: SinglePlan<E, T>,
    remote: Option<Remote<E, T>>,
    places: E::Buffer<u32>,
    packed: E::Buffer<u8>,
    /// Host memory of the bytes that are sent.
    sent: E::Pinned<u8>,
    /// Host memory of the bytes that are received.
    received: E::Pinned<u8>,
    /// The GPUs that elements go to and come from without the host.
    peers: Option<Peers<E>>,
    size: (usize, usize),
}

/// The rows with entries in the columns of the halo.
struct Remote<E: Executor, T: Value> {
    plan: SinglePlan<E, T>,
    rows: E::Buffer<u32>,
    sums: E::Buffer<T>,
    bytes: E::Buffer<u8>,
    halo: E::Buffer<T>,
}

impl<E: Executor + Clone, T: Value> HaloPlan<E, T> {
    /// Makes a plan of each part. `options` are those of the local part; the kernel of the remote
    /// part is chosen.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for rows that do not ascend or do not exist, and for elements
    /// that do not exist; [`GpuError::Length`] unless each row of the remote part has its number;
    /// those of [`SinglePlan::new`].
    pub fn new(
        executor: &E,
        parts: HaloParts<'_, T>,
        options: &SingleOptions,
    ) -> Result<Self, GpuError> {
        let HaloParts { local, remote, sent } = parts;
        let size = (local.pattern().nrows(), local.pattern().ncols());
        check_numbers("sent", sent, size.1)?;
        // A product of many blocks would leave room for what others wait for only at its end.
        let beside = vec![executor.urgent_branch()?];
        let on_branch = &beside[0];
        let halo = remote.map_or(0, |(remote, _)| remote.pattern().ncols());
        let remote = remote
            .map(|(remote, rows)| Remote::new(on_branch, remote, rows, size.0))
            .transpose()?;
        let local = SinglePlan::new(executor, local, options)?;
        executor.prepare(&["pack", "unpack", "add"].map(key::<T>))?;
        let bytes = |values: usize| values * size_of::<T>();
        Ok(Self {
            local,
            remote,
            places: executor.upload(sent)?,
            packed: executor.alloc(bytes(sent.len()))?,
            sent: executor.alloc_pinned(bytes(sent.len()))?,
            received: executor.alloc_pinned(bytes(halo))?,
            beside,
            executor: executor.clone(),
            peers: None,
            size,
        })
    }

    /// What other GPUs of the process need to know of this plan, to copy elements from it.
    ///
    /// # Errors
    /// What the device reports.
    pub fn mailbox(&self) -> Result<Arc<Mailbox<E>>, GpuError> {
        let bytes = self.places.len() * size_of::<T>();
        Ok(Arc::new(Mailbox::new(self.beside[0].clone(), bytes)?))
    }

    /// From now on elements are copied from the GPUs that pack them. `own` is the mailbox of this
    /// plan, `neighbours` those of all GPUs that elements go to or come from, which are connected
    /// alike, `incoming` the bytes of the halo. All GPUs start their products together: each calls
    /// [`HaloPlan::finish`] when all its neighbours have called [`HaloPlan::start`], or
    /// [`HaloPlan::skip`], of the same product. [`HaloPlan::staged`] has nothing to do.
    pub fn connect(
        &mut self,
        own: Arc<Mailbox<E>>,
        neighbours: Vec<Arc<Mailbox<E>>>,
        incoming: Vec<Incoming<E>>,
    ) {
        self.peers = Some(Peers::new(self.beside[0].clone(), own, neighbours, incoming));
    }
}

impl<E: Executor + Clone, T: Value> Remote<E, T> {
    fn new(
        executor: &E,
        matrix: View<'_, CsrPattern, T>,
        rows: &[u32],
        nrows: usize,
    ) -> Result<Self, GpuError> {
        check_len("rows", matrix.pattern().nrows(), rows.len())?;
        check_numbers("rows", rows, nrows)?;
        if let Some(at) = rows.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(GpuError::InvalidArgument {
                name: "rows",
                expected: "numbers that ascend".to_owned(),
                found: format!("{} before {}", rows[at], rows[at + 1]),
            });
        }
        let halo = matrix.pattern().ncols();
        Ok(Self {
            plan: SinglePlan::new(executor, matrix, &SingleOptions::default())?,
            rows: executor.upload(rows)?,
            sums: executor.alloc(rows.len())?,
            bytes: executor.alloc(halo * size_of::<T>())?,
            halo: executor.alloc(halo)?,
        })
    }
}

impl<E: Executor, T: Value> Remote<E, T> {
    /// The products of these rows with the elements that were received.
    fn multiply(
        &mut self,
        executor: &E,
        (received, peers, lost): (&E::Pinned<u8>, Option<&Peers<E>>, &[usize]),
        alpha: T,
    ) -> Result<(), GpuError> {
        let n = self.halo.len();
        if n > 0 {
            match peers {
                Some(peers) => peers.fetch(&mut self.bytes, lost)?,
                None => executor.copy_from_pinned(received, &mut self.bytes)?,
            }
            let config = grid(executor, n);
            let mut args = Args::new();
            args.scalar(n as u64).input(&self.bytes).output(&mut self.halo);
            // SAFETY: the arguments are those of `halo_unpack`; `bytes` has the bytes of as many
            // values as `halo`, and memory of an executor is aligned for all of them.
            #[expect(unsafe_code, reason = "a launch")]
            unsafe {
                executor.launch(&key::<T>("unpack"), config, &mut args)?;
            }
        }
        self.plan.apply(alpha, &self.halo, T::ZERO, &mut self.sums)
    }

    /// Adds the products to the own rows of y.
    fn add_to(&self, executor: &E, y: &mut E::Buffer<T>) -> Result<(), GpuError> {
        let n = self.rows.len();
        if n == 0 {
            return Ok(());
        }
        let mut args = Args::new();
        args.scalar(n as u64).input(&self.rows).input(&self.sums).output(y);
        // SAFETY: the arguments are those of `halo_add`; rows were checked to differ and to be below
        // the number of rows, which y has elements; `sums` has one for each.
        #[expect(unsafe_code, reason = "a launch")]
        unsafe {
            executor.launch(&key::<T>("add"), grid(executor, n), &mut args)
        }
    }
}

impl<E: Executor, T: Value> HaloPlan<E, T> {
    /// Starts `y = alpha*A*x + beta*y`: the elements that other GPUs need go to the host beside the
    /// product of the local part. `x` has an element for each own column, `y` one for each own row;
    /// with `beta == 0`, `y` is not read. Neither may be written before [`HaloPlan::finish`].
    ///
    /// # Errors
    /// [`GpuError::Length`] for a vector of another length, [`GpuError::InvalidArgument`] for
    /// vectors that overlap; else what launching reports.
    pub fn start(
        &mut self,
        alpha: T,
        x: &E::Buffer<T>,
        beta: T,
        y: &mut E::Buffer<T>,
    ) -> Result<(), GpuError> {
        self.skip();
        check_len("x", self.size.1, x.len())?;
        check_len("y", self.size.0, y.len())?;
        check_apart(x, y)?;
        let n = self.places.len();
        if n > 0 || self.remote.is_some() {
            self.executor.fork(&self.beside)?;
        }
        if n > 0 {
            let (config, places) = (grid(&self.executor, n), &self.places);
            let pack = |executor: &E, packed: &mut E::Buffer<u8>| {
                let mut args = Args::new();
                args.scalar(n as u64).input(places).input(x).output(packed);
                // SAFETY: the arguments are those of `halo_pack`; places were checked to be below
                // the number of columns, which x has elements; `packed` has the bytes of as many
                // values, and memory of an executor is aligned for all of them.
                #[expect(unsafe_code, reason = "a launch")]
                unsafe {
                    executor.launch(&key::<T>("pack"), config, &mut args)
                }
            };
            match &self.peers {
                Some(peers) => peers.pack(pack)?,
                None => {
                    pack(&self.beside[0], &mut self.packed)?;
                    self.beside[0].copy_to_pinned(&self.packed, &mut self.sent)?;
                }
            }
        }
        self.local.apply(alpha, x, beta, y)
    }

    /// Whether the plan is [connected](HaloPlan::connect).
    pub fn has_peers(&self) -> bool {
        self.peers.is_some()
    }

    /// Takes the place of [`HaloPlan::start`] in a product that this GPU does not start while others
    /// do.
    pub fn skip(&mut self) {
        if let Some(peers) = &mut self.peers {
            peers.turn();
        }
    }

    /// The bytes to send, for which the call waits, and the place for those that are received: the
    /// elements of the halo in the order of its columns, each in the byte order of this machine.
    ///
    /// # Errors
    /// [`GpuError::ContextLost`] for a fault of the work before.
    pub fn staged(&mut self) -> Result<(&[u8], &mut [u8]), GpuError> {
        Ok((self.sent.as_slice()?, self.received.as_mut_slice()?))
    }

    /// Ends the product that was started, with the same `alpha` and `y`: adds the remote part, of
    /// the elements that were received. Returns before it is done, in the order of launches.
    ///
    /// # Errors
    /// As [`HaloPlan::start`].
    pub fn finish(&mut self, alpha: T, y: &mut E::Buffer<T>) -> Result<(), GpuError> {
        self.finish_without(&[], alpha, y)
    }

    /// As [`HaloPlan::finish`], with NaN in the place of the elements of GPUs that have failed: the
    /// places `lost` in the list of [`HaloPlan::connect`].
    ///
    /// # Errors
    /// As [`HaloPlan::start`].
    pub fn finish_without(
        &mut self,
        lost: &[usize],
        alpha: T,
        y: &mut E::Buffer<T>,
    ) -> Result<(), GpuError> {
        check_len("y", self.size.0, y.len())?;
        let Some(remote) = &mut self.remote else {
            // x may be written only when it has been packed.
            return match self.places.is_empty() {
                true => Ok(()),
                false => self.executor.join(&self.beside),
            };
        };
        let from = (&self.received, self.peers.as_ref(), lost);
        remote.multiply(&self.beside[0], from, alpha)?;
        self.executor.join(&self.beside)?;
        remote.add_to(&self.executor, y)
    }

    /// The plan of the local part.
    pub fn local(&self) -> &SingleExplain {
        self.local.explain()
    }

    /// The plan of the remote part, if there is one.
    pub fn remote(&self) -> Option<&SingleExplain> {
        self.remote.as_ref().map(|remote| remote.plan.explain())
    }
}

fn key<T: Value>(what: &str) -> KernelKey {
    KernelKey::new(&HALO, format!("halo_{what}<{}>", T::CPP))
}

/// Threads for `n` elements, more than 0.
fn grid(executor: &impl Executor, n: usize) -> LaunchConfig {
    let most = u64::from(8 * executor.info().multiprocessors.max(1));
    LaunchConfig::linear((n as u64).div_ceil(u64::from(THREADS)).min(most) as u32, THREADS)
}

/// Refuses numbers that are not below `end`.
fn check_numbers(name: &'static str, numbers: &[u32], end: usize) -> Result<(), GpuError> {
    match numbers.iter().find(|&&number| number as usize >= end) {
        None => Ok(()),
        Some(number) => Err(GpuError::InvalidArgument {
            name,
            expected: format!("numbers below {end}"),
            found: number.to_string(),
        }),
    }
}
