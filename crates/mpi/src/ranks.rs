//! The ranks of a job: [`Ranks`].

use std::any::Any;
use std::fmt;
use std::ops::{Deref, Range};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sparsebatch_solvers::{Backend, BatchReport, GpuExecutor, PlanPin};

use crate::options::{Described, fingerprint};
use crate::places::{Place, cores, gpus_seen, threads_among};
use crate::transport::threads::ThreadComm;
use crate::transport::{self, Alone, Late, Transport};
use crate::{DistributedReport, Failure, MpiError};

/// The ranks of a communicator, of which this process is one.
///
/// Unless said otherwise all ranks must call the same methods in the same order, as with MPI itself,
/// from one thread. MPI is finalised when the value is dropped, if it was initialised for it.
pub struct Ranks {
    transport: Box<dyn Transport>,
    hosts: Vec<String>,
    local: (usize, usize),
    /// Threads by the affinity masks of the ranks.
    threads: usize,
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank(), self.size())
    }
}

/// Ranks that something uses: borrowed, or held together with others that use them.
///
/// Made by `into` of a `&Ranks` or of [`Ranks::shared`].
#[derive(Clone, Debug)]
pub struct RanksRef<'a>(Used<'a>);

#[derive(Clone, Debug)]
enum Used<'a> {
    Borrowed(&'a Ranks),
    Held(Arc<Ranks>),
}

impl<'a> From<&'a Ranks> for RanksRef<'a> {
    fn from(ranks: &'a Ranks) -> Self {
        Self(Used::Borrowed(ranks))
    }
}

impl From<Arc<Ranks>> for RanksRef<'_> {
    fn from(ranks: Arc<Ranks>) -> Self {
        Self(Used::Held(ranks))
    }
}

impl Deref for RanksRef<'_> {
    type Target = Ranks;

    fn deref(&self) -> &Ranks {
        match &self.0 {
            Used::Borrowed(ranks) => ranks,
            Used::Held(ranks) => ranks,
        }
    }
}

impl Ranks {
    /// The ranks whose data a transport of the program carries, which have all come. All ranks make
    /// the call together.
    pub fn by(transport: Box<dyn Transport>) -> Self {
        Self::of(transport)
    }

    /// The ranks for several that use them, such as matrices, by one thread at a time: the last of
    /// them that is dropped, on whatever thread, drops the ranks.
    #[expect(clippy::arc_with_non_send_sync, reason = "owners on several threads take turns")]
    pub fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }

    /// One rank: this process, without MPI.
    pub fn alone() -> Self {
        let hosts = vec!["this host".to_owned()];
        Self { transport: Box::new(Alone), hosts, local: (0, 1), threads: cores() }
    }

    /// Runs `work` on `size` ranks that are threads of this process, without MPI, and returns what it
    /// returns on each. For tests, and to look at what ranks do within one debugger.
    ///
    /// # Panics
    /// When `work` panics on a rank: those that wait for it panic then, too.
    ///
    /// # Examples
    /// ```
    /// use sparsebatch_mpi::Ranks;
    /// let sums = Ranks::on_threads(3, |ranks| {
    ///     let all = ranks.all_gather(&ranks.rank()).unwrap();
    ///     all.iter().sum::<usize>()
    /// });
    /// assert_eq!(sums, [3, 3, 3]);
    /// ```
    pub fn on_threads<R: Send>(size: usize, work: impl Fn(&Self) -> R + Sync) -> Vec<R> {
        let of_rank = |comm: ThreadComm| {
            let work = &work;
            move || work(&Self::of(Box::new(comm)))
        };
        std::thread::scope(|scope| {
            let comms = ThreadComm::group(size).into_iter();
            // Named as the thread that starts them.
            let name = std::thread::current().name().unwrap_or("rank").to_owned();
            let start = |comm: ThreadComm| {
                let named = std::thread::Builder::new().name(name.clone());
                named.spawn_scoped(scope, of_rank(comm)).expect("the system starts a thread")
            };
            let handles: Vec<_> = comms.map(start).collect();
            let ended: Vec<_> = handles.into_iter().map(|handle| handle.join()).collect();
            // The first panic is not that of a rank that waited for another.
            let is_waiting = |payload: &Box<dyn Any + Send>| {
                payload.downcast_ref::<String>().is_some_and(|line| line.ends_with("has ended"))
            };
            let mut panics = Vec::new();
            let mut results = Vec::new();
            for end in ended {
                match end {
                    Ok(result) => results.push(result),
                    Err(payload) => panics.push(payload),
                }
            }
            panics.sort_by_key(is_waiting);
            match panics.into_iter().next() {
                Some(payload) => resume_unwind(payload),
                None => results,
            }
        })
    }

    /// All ranks of the job. MPI is initialised if it is not yet. Waits at most `limit` for the
    /// other ranks to come here, once MPI is initialised.
    ///
    /// # Errors
    /// [`MpiError::Unsupported`] and [`MpiError::Transport`] without an MPI, [`MpiError::Finalised`],
    /// [`MpiError::OtherMpi`] where `mpirun` is that of another MPI, [`MpiError::Missing`] and
    /// [`MpiError::NoAnswer`] where ranks do not come: the process should then end by
    /// [`Ranks::world_or_abort`]'s means.
    pub fn world(limit: Duration) -> Result<Self, MpiError> {
        let mut transport = transport::world()?;
        wait(&mut *transport, limit)?;
        Ok(Self::of(transport))
    }

    /// As [`Ranks::world`]; where ranks do not come, `tell` gets the error, and the processes of all
    /// ranks end with exit code 1.
    ///
    /// # Errors
    /// As [`Ranks::world`], but for ranks that do not come.
    pub fn world_or_abort(limit: Duration, tell: impl FnOnce(&MpiError)) -> Result<Self, MpiError> {
        let mut transport = transport::world()?;
        if let Err(error) = wait(&mut *transport, limit) {
            tell(&error);
            transport.abort(1);
        }
        Ok(Self::of(transport))
    }

    /// The ranks of a communicator of the caller, by its Fortran handle (`MPI_Comm_c2f`, in mpi4py
    /// `comm.py2f()`). The communicator is duplicated and may be freed before this value is dropped,
    /// which must happen before MPI is finalised. `limit` is as for [`Ranks::world`].
    ///
    /// # Errors
    /// [`MpiError::Unsupported`] and [`MpiError::Transport`] without an MPI, [`MpiError::Finalised`]
    /// where MPI is not initialised or was finalised, [`MpiError::Missing`], [`MpiError::NoAnswer`].
    ///
    /// # Safety
    /// The handle is that of a living intracommunicator of the MPI that this library is linked to.
    #[allow(unsafe_code)]
    pub unsafe fn from_fortran(handle: i32, limit: Duration) -> Result<Self, MpiError> {
        let mut transport = transport::from_fortran(handle)?;
        wait(&mut *transport, limit)?;
        Ok(Self::of(transport))
    }

    /// The ranks that have come.
    fn of(transport: Box<dyn Transport>) -> Self {
        let own = Place::here(transport.host());
        let gather = |text: &str| {
            let texts = transport.all_gather(text.as_bytes()).into_iter();
            texts.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        let (hosts, cores) = (gather(&own.host), gather(&own.cores));
        let places: Vec<Place> =
            hosts.zip(cores).map(|(host, cores)| Place { host, cores }).collect();
        let threads = threads_among(transport.rank(), &places);
        let hosts = places.into_iter().map(|place| place.host).collect();
        let local = transport.local();
        Self { hosts, local, threads, transport }
    }

    /// The number of this rank, from 0.
    pub fn rank(&self) -> usize {
        self.transport.rank()
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.transport.size()
    }

    /// The name of the host of a rank. Any rank may ask.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn host(&self, rank: usize) -> &str {
        &self.hosts[rank]
    }

    /// The number of hosts.
    pub fn hosts(&self) -> usize {
        let mut names: Vec<&String> = self.hosts.iter().collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    }

    /// The number of this rank among those that share its memory, and how many these are: the
    /// arguments of [`gpus_of`](crate::gpus_of).
    pub fn local(&self) -> (usize, usize) {
        self.local
    }

    /// The number of threads that this rank should use: its part of the cores that its affinity mask
    /// allows, which ranks of one host with the same mask divide.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The GPUs that this rank should use, among those that it sees: the ranks of a host that see
    /// the same ones divide them as [`gpus_of`](crate::gpus_of) does, and a rank to which its
    /// launcher shows others has these for itself. `seen` has a name for each GPU that no other GPU
    /// has, such as `sparsebatch::gpu::device::availability::uuids`, in the order of their numbers.
    /// Several are for [`Backend::gpus`].
    ///
    /// # Errors
    /// [`MpiError::Message`] where a rank's names cannot be read.
    pub fn gpus(&self, seen: &[String]) -> Result<Range<usize>, MpiError> {
        let seen = self.all_gather(&seen.to_vec())?;
        Ok(gpus_seen(self.rank(), &self.hosts, &seen))
    }

    /// The backend of this rank with plans as on rank 0, so that GPUs of different models make the
    /// same bits: its [`PlanPin`] is sent to all ranks, of which each GPU must have what that of
    /// rank 0 has. Rank 0 may hold a backend that is [pinned](Backend::pinned) to another model.
    ///
    /// # Errors
    /// [`MpiError::Rank`] with the exit code 2 for a rank that cannot make these plans;
    /// [`MpiError::Message`].
    pub fn planned_as_first<E: GpuExecutor>(
        &self,
        backend: &Backend<E>,
    ) -> Result<Backend<E>, MpiError> {
        let text = self.from_first(&PlanPin::of(backend).to_string())?;
        self.run(|| {
            let refused = |message| Failure { code: 2, message };
            let pin: PlanPin = text.parse().map_err(|error| refused(format!("{error}")))?;
            backend.pinned(&pin).map_err(|error| refused(error.to_string()))
        })
    }

    /// Runs work of this rank alone, in which it must not wait for other ranks, and then
    /// [agrees](Ranks::agree). A panic is a failure with exit code 1.
    ///
    /// # Errors
    /// As [`Ranks::agree`].
    pub fn run<T>(&self, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, MpiError> {
        let result = catch_unwind(AssertUnwindSafe(work));
        self.agree(result.unwrap_or_else(|payload| Err(panicked(&*payload))))
    }

    /// The result of this rank if no rank failed, else the failure of the lowest rank that did. So
    /// the ranks go on together or end together.
    ///
    /// # Errors
    /// [`MpiError::Rank`], or [`MpiError::All`] where all ranks failed alike.
    pub fn agree<T>(&self, result: Result<T, Failure>) -> Result<T, MpiError> {
        if !self.transport.any(result.is_err()) {
            return result.map_err(MpiError::All);
        }
        let failures: Vec<Option<Failure>> = self.all_gather(&result.err())?;
        let first = failures.iter().position(Option::is_some);
        let rank = first.ok_or_else(|| MpiError::Message("no failure in a failure".to_owned()))?;
        if failures.iter().all(|failure| *failure == failures[rank]) {
            return failures.into_iter().next().flatten().map_or_else(
                || Err(MpiError::Message("no failure in a failure".to_owned())),
                |failure| Err(MpiError::All(failure)),
            );
        }
        let failure = failures.into_iter().nth(rank).flatten();
        let failure = failure.unwrap_or_else(|| Failure::internal("unknown"));
        Err(MpiError::Rank { rank, host: self.hosts[rank].clone(), failure })
    }

    /// Holds that all ranks have the same names and values, such as those of
    /// [`described`](crate::described) options. Eight bytes a rank are exchanged where they do.
    ///
    /// # Errors
    /// [`MpiError::Unequal`] with the first difference of the lowest rank that differs from rank 0.
    pub fn same(&self, own: &Described) -> Result<(), MpiError> {
        let prints: Vec<u64> = self.all_gather(&fingerprint(own))?;
        let Some(rank) = prints.iter().position(|&print| print != prints[0]) else {
            return Ok(());
        };
        let all: Vec<Described> = self.all_gather(own)?;
        let (of_first, of_rank) = (&all[0], &all[rank]);
        let value = |described: &Described, name: &str| {
            let found = described.iter().find(|(known, _)| known == name);
            found.map_or_else(|| "absent".to_owned(), |(_, value)| value.clone())
        };
        let mut names = of_first.iter().chain(of_rank).map(|(name, _)| name);
        let differs = |name: &&String| value(of_first, name) != value(of_rank, name);
        let what =
            names.find(differs).cloned().unwrap_or_else(|| "the order of options".to_owned());
        let (expected, found) = (value(of_first, &what), value(of_rank, &what));
        Err(MpiError::Unequal { rank, host: self.hosts[rank].clone(), what, expected, found })
    }

    /// One report of the reports of all ranks, in their order, on rank 0.
    ///
    /// # Errors
    /// [`MpiError::Rank`] on all ranks where a report cannot be sent or read.
    pub fn gather_report(&self, own: &BatchReport) -> Result<Gathered, MpiError> {
        // Ranks that still solve are not the cost of gathering.
        self.transport.barrier();
        let start = Instant::now();
        let failed = |error: MpiError| Failure::internal(error.to_string());
        let sent = if self.rank() == 0 { Ok(Vec::new()) } else { packed(own) };
        let sent = self.agree(sent.map_err(failed))?;
        let others = self.transport.gather_bytes(&sent).into_iter().flatten().skip(1);
        let reports = match self.rank() {
            // That of rank 0 has not travelled.
            0 => std::iter::once(Ok(own.clone()))
                .chain(others.map(|bytes| unpacked(&bytes)))
                .collect::<Result<Vec<_>, _>>(),
            _ => Ok(Vec::new()),
        };
        let reports = self.agree(reports.map_err(failed))?;
        let times = |(rank, report): (usize, &BatchReport)| RankTimes {
            rank,
            host: self.hosts[rank].clone(),
            systems: report.systems.len(),
            plan: report.plan_time,
            solve: report.solve_time,
        };
        let ranks = reports.iter().enumerate().map(times).collect();
        let report = BatchReport::merged(reports);
        Ok(Gathered { report, ranks, time: start.elapsed() })
    }

    /// What each rank did in a solve of one matrix by all of them, on rank 0: the times of the reports
    /// of all.
    ///
    /// # Errors
    /// [`MpiError::Message`] where times cannot be sent or read.
    pub fn gather_times(&self, own: &DistributedReport) -> Result<Gathered, MpiError> {
        self.transport.barrier();
        let start = Instant::now();
        let all: Vec<[Duration; 2]> = self.all_gather(&[own.plan_time, own.solve_time])?;
        let times = |(rank, [plan, solve]): (usize, [Duration; 2])| {
            let host = self.hosts[rank].clone();
            RankTimes { rank, host, systems: 1, plan, solve }
        };
        let all = if self.rank() == 0 { all } else { Vec::new() };
        let ranks = all.into_iter().enumerate().map(times).collect();
        Ok(Gathered { report: None, ranks, time: start.elapsed() })
    }

    /// Waits for all ranks.
    pub fn barrier(&self) {
        self.transport.barrier();
    }

    /// The numbers of all ranks on rank 0, rank after rank; `None` on the others.
    pub fn gather_values(&self, own: &[f64]) -> Option<Vec<f64>> {
        self.transport.gather_f64s(own)
    }

    /// The values of all ranks, on all ranks: for small ones.
    ///
    /// # Errors
    /// [`MpiError::Message`] where a value cannot be sent or read.
    pub fn all_gather<T: Serialize + DeserializeOwned>(&self, own: &T) -> Result<Vec<T>, MpiError> {
        let all = self.transport.all_gather(&postcard::to_stdvec(own)?);
        Ok(all.iter().map(|bytes| postcard::from_bytes(bytes)).collect::<Result<_, _>>()?)
    }

    /// The value of rank 0, on all ranks; `own` is not used on the others.
    ///
    /// # Errors
    /// [`MpiError::Message`] where the value cannot be sent or read.
    pub fn from_first<T: Serialize + DeserializeOwned>(&self, own: &T) -> Result<T, MpiError> {
        let bytes = match self.rank() {
            0 => postcard::to_stdvec(own)?,
            _ => Vec::new(),
        };
        Ok(postcard::from_bytes(&self.transport.broadcast(bytes))?)
    }

    pub(crate) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    /// Ends the processes of all ranks at once, with an exit code. One rank may call it alone.
    pub fn abort(&self, code: u8) -> ! {
        self.transport.abort(code)
    }
}

/// Waits until all ranks have come.
fn wait(transport: &mut dyn Transport, limit: Duration) -> Result<(), MpiError> {
    transport.join(limit).map_err(|late| {
        let (size, seconds) = (transport.size(), limit.as_secs());
        match late {
            Late::Missing { came, first_missing } => {
                MpiError::Missing { came, size, first_missing, seconds }
            }
            Late::NoAnswer => MpiError::NoAnswer { seconds },
        }
    })
}

/// A report as bytes: the number of bytes of all but the systems, these, and the systems.
fn packed(report: &BatchReport) -> Result<Vec<u8>, MpiError> {
    let (without, systems, histories) = report.packed();
    let head = postcard::to_stdvec(&(without, histories))?;
    Ok([&(head.len() as u64).to_le_bytes()[..], &head, &systems].concat())
}

fn unpacked(bytes: &[u8]) -> Result<BatchReport, MpiError> {
    let cut = || MpiError::Message("a report without its end".to_owned());
    let (len, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
    let len = usize::try_from(u64::from_le_bytes(*len)).unwrap_or(usize::MAX);
    let (head, systems) = rest.split_at_checked(len).ok_or_else(cut)?;
    let (without, histories): (BatchReport, _) = postcard::from_bytes(head)?;
    without.unpacked(systems, histories).ok_or_else(cut)
}

/// What [`Ranks::gather_report`] gathered.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Gathered {
    /// The report of the whole batch, on rank 0; `None` of one matrix.
    pub report: Option<BatchReport>,
    /// What each rank did, on rank 0; empty on the others.
    pub ranks: Vec<RankTimes>,
    /// Time to gather and merge, after the slowest rank had solved.
    pub time: Duration,
}

/// What one rank did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankTimes {
    /// The rank.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// Its systems; 1 where all ranks solve one.
    pub systems: usize,
    /// Time of its analysis.
    pub plan: Duration,
    /// Time of its solve.
    pub solve: Duration,
}

/// The failure of work that panicked.
fn panicked(payload: &(dyn Any + Send)) -> Failure {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    Failure::internal(format!("internal failure: {}", text.unwrap_or("panic")))
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::{Batch, Csr};
    use sparsebatch_solvers::{Engine, Method, SolveOptions, SpmvOptions, solve};

    use super::*;

    #[test]
    fn one_rank_agrees_with_itself() {
        let ranks = Ranks::alone();
        let failure = Failure { code: 2, message: "bad".to_owned() };

        assert_eq!(ranks.agree(Ok(3)), Ok(3));
        let error = ranks.agree::<()>(Err(failure.clone())).unwrap_err();
        assert_eq!((error.exit_code(), error.to_string()), (2, "bad".to_owned()));
        assert_eq!(error, MpiError::All(failure));
        let error = ranks.run::<()>(|| panic!("on purpose")).unwrap_err();
        assert_eq!(error.to_string(), "internal failure: on purpose");
        assert!(ranks.same(&vec![("a".to_owned(), "b".to_owned())]).is_ok());
        assert_eq!((ranks.rank(), ranks.size(), ranks.hosts(), ranks.local()), (0, 1, 1, (0, 1)));
        assert_eq!(ranks.from_first(&7u8), Ok(7));
        assert_eq!(ranks.gpus(&["a".to_owned(), "b".to_owned()]), Ok(0..2));
        let cpu: Backend = Backend::Cpu;
        assert!(matches!(ranks.planned_as_first(&cpu), Ok(Backend::Cpu)));
    }

    #[test]
    fn reports_travel_bit_for_bit() {
        let matrix = |d: f64| {
            Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![d, 1.0, 1.0, d]).unwrap()
        };
        let batch: Batch<f64> = [4.0, f64::NAN, 0.5, 0.0].map(matrix).into_iter().collect();
        let composed = Engine::Composed(SpmvOptions::default());
        let of = |options: &SolveOptions| solve(&batch, &[1.0; 8], None, options).unwrap().report;
        for report in [
            of(&SolveOptions::new()),
            of(&SolveOptions::new().method(Method::BiCgStab).engine(composed).history(true)),
        ] {
            let gathered = Ranks::alone().gather_report(&report).unwrap();

            // NaN is not equal to itself, but its text is; merging joins what is equal.
            assert_eq!(
                format!("{:?}", gathered.report.unwrap().systems),
                format!("{:?}", report.systems)
            );
            assert_eq!(gathered.ranks[0].solve, report.solve_time);
            let bytes = packed(&report).unwrap();
            let read = unpacked(&bytes).unwrap();
            assert_eq!(format!("{read:?}"), format!("{report:?}"));
            for end in [0, 7, 20, bytes.len() - 1] {
                let cut = unpacked(&bytes[..end]);
                assert!(matches!(cut, Err(MpiError::Message(_))), "{end}");
            }
        }
    }
}
