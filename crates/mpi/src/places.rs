//! The GPUs and threads of a rank among those of its host.

use std::ops::Range;

/// The GPUs of rank `local` of the `ranks` ranks on its host, among `gpus` GPUs.
///
/// With as many GPUs as ranks or more, each rank has consecutive ones of its own. With fewer,
/// neighbours share one. Empty where there is no GPU. [`Ranks::gpus`](crate::Ranks::gpus) also
/// knows launchers that show each rank GPUs of its own.
///
/// # Panics
/// When `local` is not below `ranks`.
pub fn gpus_of(local: usize, ranks: usize, gpus: usize) -> Range<usize> {
    assert!(local < ranks, "rank {local} of {ranks} ranks of a host");
    let start = local * gpus / ranks;
    let end = (local + 1) * gpus / ranks;
    // Where ranks share a GPU the parts are empty but for the last one that starts at it.
    if gpus == 0 { 0..0 } else { start..end.max(start + 1) }
}

/// The GPUs of rank `rank` among those that it sees, as [`gpus_of`] divides them among the ranks of
/// its host that see the same ones. `hosts` has the host of each rank, and `seen` what each rank
/// sees: a name for each GPU that no other GPU has, in the order of their numbers.
///
/// # Panics
/// When there is no such rank.
pub fn gpus_seen(rank: usize, hosts: &[String], seen: &[Vec<String>]) -> Range<usize> {
    let sees_the_same = |&other: &usize| hosts[other] == hosts[rank] && seen[other] == seen[rank];
    let before = (0..rank).filter(sees_the_same).count();
    let all = (0..hosts.len()).filter(sees_the_same).count();
    gpus_of(before, all, seen[rank].len())
}

/// The threads of rank `local` among the `ranks` ranks that may run on the same `cores` cores: an
/// equal part, and at least 1. The first ranks take the cores that are left over.
///
/// # Panics
/// When `local` is not below `ranks`.
pub fn threads_of(local: usize, ranks: usize, cores: usize) -> usize {
    assert!(local < ranks, "rank {local} of {ranks} ranks of a host");
    (cores / ranks + usize::from(local < cores % ranks)).max(1)
}

/// Where a rank may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name of its host.
    pub host: String,
    /// The cores that it may run on, as the system writes them, such as `0-3,8`; empty where it
    /// does not say.
    pub cores: String,
}

impl Place {
    /// That of this process, on the host of this name.
    pub fn here(host: impl Into<String>) -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let cores = cores.map(|cores| cores.trim().to_owned()).unwrap_or_default();
        Self { host: host.into(), cores }
    }
}

/// The threads of a rank, which runs here, among all ranks: those of one host that may run on the
/// same cores divide them ([`threads_of`]).
///
/// # Panics
/// When there is no such rank.
pub fn threads_among(rank: usize, all: &[Place]) -> usize {
    let before = all[..rank].iter().filter(|&other| *other == all[rank]).count();
    let sharing = all.iter().filter(|&other| *other == all[rank]).count();
    threads_of(before, sharing, cores())
}

/// The number of processes that the innermost launcher has started, and the variable of the
/// environment that says so: a job of Slurm may start mpirun. Of Slurm its step says how many tasks
/// it has; what the job asked for (`SLURM_NTASKS`) says nothing of this process.
pub(crate) fn launched_by(
    variable: impl Fn(&str) -> Option<String>,
) -> Option<(&'static str, usize)> {
    const VARIABLES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];
    VARIABLES.into_iter().find_map(|name| Some((name, variable(name)?.parse().ok()?)))
}

/// The number of cores that this process may run on.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gpus_are_divided_or_shared() {
        let of = |ranks, gpus| (0..ranks).map(|r| gpus_of(r, ranks, gpus)).collect::<Vec<_>>();

        assert_eq!(of(2, 4), [0..2, 2..4]);
        assert_eq!(of(2, 3), [0..1, 1..3]);
        assert_eq!(of(4, 2), [0..1, 0..1, 1..2, 1..2]);
        assert_eq!(of(3, 1), [0..1, 0..1, 0..1]);
        assert_eq!(of(2, 0), [0..0, 0..0]);
    }

    #[test]
    fn ranks_divide_the_gpus_that_they_see_in_common() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let parts = |hosts: &[&str], seen: &[&[&str]]| {
            let (hosts, seen) = (names(hosts), seen.iter().map(|&seen| names(seen)));
            let seen: Vec<_> = seen.collect();
            (0..hosts.len()).map(|rank| gpus_seen(rank, &hosts, &seen)).collect::<Vec<_>>()
        };
        let all: &[&str] = &["a", "b", "c", "d"];

        // Two ranks of a host with four GPUs, and one rank that has a host of its own.
        assert_eq!(parts(&["x", "x", "y"], &[all, all, all]), [0..2, 2..4, 0..4]);
        // The launcher shows each rank two of them: both are its own.
        assert_eq!(parts(&["x", "x"], &[&["a", "b"], &["c", "d"]]), [0..2, 0..2]);
        // One rank each, and several ranks to which it shows the same one.
        assert_eq!(parts(&["x", "x"], &[&["a"], &["b"]]), [0..1, 0..1]);
        assert_eq!(parts(&["x", "x", "x"], &[&["a"], &["a"], &["b"]]), [0..1, 0..1, 0..1]);
        // Ranks whose numbers are not neighbours.
        assert_eq!(parts(&["x", "y", "x"], &[all, &["e"], all]), [0..2, 0..1, 2..4]);
        assert_eq!(parts(&["x", "y"], &[&[], all]), [0..0, 0..4]);
    }

    #[test]
    fn the_innermost_launcher_counts() {
        let of = |all: &[(&str, &str)]| {
            let value = |name: &str| all.iter().find(|(known, _)| *known == name);
            launched_by(|name| value(name).map(|(_, value)| (*value).to_owned()))
        };

        // mpirun -n 1 within a step of four tasks.
        let inner = [("SLURM_STEP_NUM_TASKS", "4"), ("OMPI_COMM_WORLD_SIZE", "1")];
        assert_eq!(of(&inner), Some(("OMPI_COMM_WORLD_SIZE", 1)));
        assert_eq!(of(&[("PMI_SIZE", "3"), ("SLURM_STEP_NUM_TASKS", "1")]), Some(("PMI_SIZE", 3)));
        assert_eq!(of(&[("SLURM_STEP_NUM_TASKS", "4")]), Some(("SLURM_STEP_NUM_TASKS", 4)));
        // A script of a job that asked for four tasks.
        assert_eq!(of(&[("SLURM_NTASKS", "4")]), None);
        assert_eq!(of(&[("PMI_SIZE", "many"), ("SLURM_STEP_NUM_TASKS", "2")]).unwrap().1, 2);
    }

    #[test]
    fn threads_are_those_of_the_mask() {
        let of = |ranks, cores| (0..ranks).map(|r| threads_of(r, ranks, cores)).collect::<Vec<_>>();

        assert_eq!(of(1, 8), [8]);
        assert_eq!(of(3, 8), [3, 3, 2]);
        assert_eq!(of(4, 2), [1, 1, 1, 1]);
    }

    #[test]
    fn ranks_on_other_cores_or_hosts_take_no_threads() {
        let place = |host: &str, cores: &str| Place { host: host.into(), cores: cores.into() };
        let all = [place("a", "0-3"), place("a", "4-7"), place("b", "0-3"), place("a", "0-3")];

        let threads = |rank| threads_among(rank, &all);

        assert_eq!((threads(1), threads(2)), (cores(), cores()));
        assert_eq!(
            (threads(0), threads(3)),
            (threads_of(0, 2, cores()), threads_of(1, 2, cores()))
        );
        assert!(!cfg!(target_os = "linux") || !Place::here("a").cores.is_empty());
    }

    proptest! {
        #[test]
        fn every_gpu_has_a_rank(ranks in 1usize..20, gpus in 1usize..20) {
            let mut used = vec![false; gpus];
            for rank in 0..ranks {
                let own = gpus_of(rank, ranks, gpus);
                prop_assert!(!own.is_empty() && own.end <= gpus);
                used[own].fill(true);
            }
            prop_assert!(used.into_iter().all(|used| used));
        }
    }
}
