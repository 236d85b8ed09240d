//! What all ranks must have in common, in words: [`described`].

use std::fmt::Debug;

use sparsebatch_formats::Scalar;
use sparsebatch_solvers::{Backend, PerSystem, PlanPin, SolveOptions};

/// Names and values, in a fixed order.
pub type Described = Vec<(String, String)>;

/// The options of a solve, the precision, and the [machine]. Of limits that are given per system
/// only that they are: each rank has those of its share.
///
/// [`Ranks::same`](crate::Ranks::same) compares them, [`fingerprint`] makes a number of them.
pub fn described<T: Scalar>(options: &SolveOptions, backend: &Backend) -> Described {
    fn limit<V: Copy + Debug>(limit: &PerSystem<V>) -> String {
        match limit {
            PerSystem::All(value) => format!("{value:?}"),
            PerSystem::Each(_) => "one per system".to_owned(),
        }
    }
    let mut all: Described = Vec::new();
    let mut add = |name: &str, value: String| all.push((name.to_owned(), value));
    add("precision", T::NAME.to_owned());
    add("solver", format!("{:?}", options.method));
    add("preconditioner", format!("{:?}", options.preconditioner));
    add("inner_precision", format!("{:?}", options.inner_precision));
    add("lu_form", format!("{:?}", options.lu_form));
    add("rel_tol", options.rel_tol.as_ref().map_or("the default".to_owned(), limit));
    add("abs_tol", limit(&options.abs_tol));
    add("max_iters", limit(&options.max_iters));
    add("max_restarts", options.max_restarts.to_string());
    add("floor", format!("{:?}", options.floor));
    add("fallback", options.fallback.to_string());
    add("fallback_budget", format!("{:?}", options.fallback_budget));
    add("history", options.history.to_string());
    add("engine", format!("{:?}", options.engine));
    add("nrhs", options.nrhs.to_string());
    all.extend(machine(backend));
    all
}

/// The name of the model of the GPU in [`machine`].
pub const GPU_MODEL: &str = "the model of the GPU (--pin-plan makes plans alike)";

/// What the bits of a solve depend on beside its options: the version of this library, the
/// instruction set of the CPU, the model of the GPU ([`GPU_MODEL`]), and whether there is one.
pub fn machine(backend: &Backend) -> Described {
    // `version N`, `cpu NAME`, and on a GPU `gpu MODEL`.
    let pin = PlanPin::of(backend).to_string();
    let part = |line: &str| {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        let name = match name {
            "version" => "the version of sparsebatch",
            "cpu" => "the instruction set",
            _ => GPU_MODEL,
        };
        (name.to_owned(), value.to_owned())
    };
    let kind = match backend {
        Backend::Cpu => "CPU",
        _ => "GPU",
    };
    let kind = ("the backend".to_owned(), kind.to_owned());
    pin.lines().skip(1).map(part).chain([kind]).collect()
}

/// A hash of names and values (FNV-1a of 64 bits), the same on all machines.
pub fn fingerprint(described: &Described) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325u64;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    // A byte that no text has ends each.
    let texts = described.iter().flat_map(|(name, value)| [name, value]);
    let bytes = texts.flat_map(|text| text.bytes().chain([0xff]));
    bytes.fold(start, step)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use sparsebatch_solvers::{
        Budget, Engine, InnerPrecision, LuForm, Method, Preconditioner, SpmvOptions, Watch,
    };

    use super::*;

    fn of(options: &SolveOptions) -> u64 {
        fingerprint(&described::<f64>(options, &Backend::Cpu))
    }

    #[test]
    fn every_option_counts() {
        let new = SolveOptions::new;
        let budget = Budget { products: 1, ..Budget::default() };
        let all = [
            new(),
            new().method(Method::Cg),
            new().preconditioner(Preconditioner::ILU0),
            new().inner_precision(InnerPrecision::Working),
            new().lu_form(LuForm::BySystem),
            new().rel_tol(1e-10),
            new().rel_tol(vec![1e-10]),
            new().abs_tol(1e-3),
            new().max_iters(7),
            new().max_restarts(7),
            new().floor(2.0),
            new().fallback(false),
            new().fallback_budget(budget),
            new().history(true),
            new().engine(Engine::Composed(SpmvOptions::default())),
            new().nrhs(2),
        ];

        let different: HashSet<u64> = all.iter().map(of).collect();

        assert_eq!(different.len(), all.len());
        let single = fingerprint(&described::<f32>(&new(), &Backend::Cpu));
        assert!(!different.contains(&single));
    }

    #[test]
    fn what_ranks_may_differ_in_does_not_count() {
        let new = SolveOptions::new;

        assert_eq!(of(&new().watch(Watch::new())), of(&new()));
        assert_eq!(of(&new().abs_tol(vec![1.0])), of(&new().abs_tol(vec![2.0, 3.0])));
    }

    #[test]
    fn the_machine_of_a_cpu_has_no_gpu() {
        let names: Vec<String> = machine(&Backend::Cpu).into_iter().map(|(name, _)| name).collect();

        assert_eq!(names, ["the version of sparsebatch", "the instruction set", "the backend"]);
    }

    #[test]
    fn the_fingerprint_is_that_of_fnv() {
        // Published for the empty text, and for "a" (here followed by 0xff twice).
        assert_eq!(fingerprint(&Vec::new()), 0xcbf2_9ce4_8422_2325);
        let a = 0xaf63_dc4c_8601_ec8cu64;
        let step = |hash: u64| (hash ^ 0xff).wrapping_mul(0x0100_0000_01b3);
        assert_eq!(fingerprint(&vec![("a".to_owned(), String::new())]), step(step(a)));
    }
}
