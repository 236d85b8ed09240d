//! The bits of products and solves, on the CPU and on the emulated GPU, compared with a committed
//! table of hashes: code may move, results may not.
//!
//! A change that is meant to change bits writes the table again, with
//! `SPARSEBATCH_WRITE_BITS=1 cargo test --release -p sparsebatch-solvers --test it bits::`, and its
//! message says why. Rows are keyed by the instruction set: results are the same on AVX2 and
//! AVX-512 (`fma`), others without fused multiply-add (`baseline`). The emulated GPU rounds alike
//! everywhere (`emulated`).

mod cpu;
mod emulated;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use sparsebatch_cpu_ref::Isa;
use sparsebatch_formats::generate::{Family, Problem, pareto, random, rng};
use sparsebatch_formats::{Batch, Csr, Scalar};
use sparsebatch_solve_core::Outcome;
use sparsebatch_solvers::{
    BatchReport, Engine, Method, Order, PrecondPrecision, Preconditioner, SolveOptions,
};

use crate::backends::common::{patterns, ragged};

/// The set of rows of results with fused multiply-add.
const FMA: &str = "fma";
/// The set without fused multiply-add.
const BASELINE: &str = "baseline";
/// The set of the emulated GPU.
const EMULATED: &str = "emulated";

/// FNV-1a of 64 bits.
struct Hash(u64);

impl Hash {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Adds the bits of values; all NaN are equal.
    fn values<T: Scalar>(&mut self, values: &[T]) {
        for value in values {
            let value = value.to_f64();
            let value = if value.is_nan() { f64::NAN } else { value };
            self.bytes(&value.to_bits().to_le_bytes());
        }
    }

    fn outcome(&mut self, outcome: &Outcome) {
        self.bytes(outcome.status.name().as_bytes());
        self.bytes(&outcome.iterations.to_le_bytes());
        self.bytes(&outcome.restarts.to_le_bytes());
        self.bytes(&[u8::from(outcome.accepted_by_floor)]);
        self.values(&[outcome.residual_norm, outcome.rhs_norm]);
        self.values(&outcome.history);
    }

    /// Adds a whole solve: the solutions, the outcome of each system and the rung that produced it.
    fn solve<T: Scalar>(&mut self, x: &[T], report: &BatchReport) {
        self.values(x);
        for system in &report.systems {
            self.outcome(&system.outcome);
            self.bytes(system.rung.name().as_bytes());
        }
    }
}

/// Hashes by set and name of the case.
#[derive(Default)]
struct Table(BTreeMap<(String, String), u64>);

impl Table {
    fn insert(&mut self, set: &str, case: String, hash: &Hash) {
        let before = self.0.insert((set.to_owned(), case.clone()), hash.0);
        assert!(before.is_none(), "{case} is there twice");
    }
}

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/bits").join(file)
}

/// Reads a committed table.
fn committed(file: &str) -> Table {
    let text = std::fs::read_to_string(path(file)).unwrap_or_default();
    let row = |line: &str| {
        let [set, case, hash] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{file}: {line:?} is not set, case and hash");
        };
        ((set.to_owned(), case.to_owned()), u64::from_str_radix(hash, 16).unwrap())
    };
    Table(text.lines().map(row).collect())
}

/// Compares `found` with the rows of its `sets` in a committed table, or writes them.
fn check(file: &str, found: Table, sets: &[&str]) {
    let mut table = committed(file);
    let here = |(set, _): &(String, String)| sets.contains(&set.as_str());
    if std::env::var_os("SPARSEBATCH_WRITE_BITS").is_some() {
        table.0.retain(|key, _| !here(key));
        table.0.extend(found.0);
        let mut text = String::new();
        for ((set, case), hash) in &table.0 {
            writeln!(text, "{set}\t{case}\t{hash:016x}").unwrap();
        }
        std::fs::write(path(file), text).unwrap();
        return;
    }
    table.0.retain(|key, _| here(key));
    let names = |table: &Table| table.0.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(&table), "the cases are those of {file}");
    let other = |(key, hash): (&(String, String), &u64)| {
        (found.0[key] != *hash).then(|| format!("{} {}", key.0, key.1))
    };
    let changed: Vec<String> = table.0.iter().filter_map(other).collect();
    let all = table.0.len();
    assert!(changed.is_empty(), "{} of {all} have other bits: {changed:#?}", changed.len());
}

/// The instruction sets of this machine that represent sets of the table: the best one with fused
/// multiply-add, if any, and the baseline.
fn instruction_sets() -> Vec<(&'static str, Isa)> {
    let mut sets = vec![(BASELINE, Isa::Baseline)];
    if best() == FMA {
        sets.push((FMA, Isa::best()));
    }
    sets
}

/// The set of code that selects the best instruction set by itself.
fn best() -> &'static str {
    if Isa::best() == Isa::Baseline {
        println!("skipped: this processor has no fused multiply-add, rows of `{FMA}` are not held");
        return BASELINE;
    }
    FMA
}

/// A named batch with right-hand sides.
struct Case<T> {
    name: String,
    batch: Batch<T>,
    b: Vec<T>,
}

/// Uniform batches of the three families; a ragged batch of all of them, which also has a singular
/// system, one without a diagonal entry, one with a NaN and two of scattered patterns; and a batch
/// of small systems, whose kernels are all compiled for the emulation.
fn cases<T: Scalar>() -> Vec<Case<T>> {
    let families = [(Family::Tri, 24, 5), (Family::Lap2d, 49, 4), (Family::Rand9, 40, 3)];
    let mut all: Vec<Case<T>> = families.into_iter().map(uniform).collect();
    let mut matrices = Vec::new();
    for (family, nrows, items) in families {
        let problem = Problem::new(family, nrows).unwrap();
        let batch = problem.batch(items).unwrap().batch;
        matrices.extend((0..items).map(|item| item_of(&batch, item)));
    }
    matrices.push(
        Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![1.0, 2.0, 2.0, 4.0]).unwrap(),
    );
    matrices.push(Csr::try_new(2, 2, vec![0, 1, 2], vec![1, 0], vec![3.0, -2.0]).unwrap());
    matrices
        .push(Csr::try_new(2, 2, vec![0, 2, 3], vec![0, 1, 1], vec![1.0, f64::NAN, 1.0]).unwrap());
    matrices.push(dominant(random(33, 33, 5, 7).unwrap()));
    matrices.push(dominant(pareto(30, 30, 2, 4.0, 9).unwrap()));
    let batch: Batch<f64> = matrices.into_iter().collect();
    let b = rng::vector(5, batch.row_offset(batch.nitems()));
    all.push(case("ragged".to_owned(), &batch, &b));
    let small = ragged(patterns(17));
    let b = rng::vector(6, small.row_offset(small.nitems()));
    all.push(case("small".to_owned(), &small, &b));
    all
}

fn uniform<T: Scalar>((family, nrows, items): (Family, usize, usize)) -> Case<T> {
    let generated = Problem::new(family, nrows).unwrap().batch(items).unwrap();
    case(format!("{} {nrows}", family.name()), &generated.batch, &generated.rhs)
}

fn case<T: Scalar>(name: String, batch: &Batch<f64>, b: &[f64]) -> Case<T> {
    let b = b.iter().map(|&v| T::from_f64(v)).collect();
    Case { name: format!("{} {name}", T::NAME), batch: batch.cast(), b }
}

/// An item of a batch as a matrix.
fn item_of<T: Scalar>(batch: &Batch<T>, item: usize) -> Csr<T> {
    match batch {
        Batch::Uniform(batch) => batch.to_matrix(item),
        Batch::Ragged(batch) => {
            let a = batch.item(item);
            let p = a.pattern();
            let (row_ptr, col_idx) = (p.row_ptr().to_vec(), p.col_idx().to_vec());
            Csr::try_new(p.nrows(), p.ncols(), row_ptr, col_idx, a.values().to_vec()).unwrap()
        }
    }
}

/// The matrix with a dominant diagonal.
fn dominant(a: Csr<f64>) -> Csr<f64> {
    let n = a.nrows();
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..n {
        let range = a.view().pattern().row(row);
        let mut entries: BTreeMap<i32, f64> =
            range.map(|k| (a.pattern().col_idx()[k], a.values()[k])).collect();
        let sum: f64 = entries.values().map(|v| v.abs()).sum();
        entries.insert(row as i32, 1.0 + sum);
        col_idx.extend(entries.keys());
        values.extend(entries.values());
        row_ptr.push(col_idx.len() as i32);
    }
    Csr::try_new(n, n, row_ptr, col_idx, values).unwrap()
}

/// Named options: every method with every preconditioner, factors in f32, orders, the composed
/// engine.
fn ways() -> Vec<(String, SolveOptions)> {
    let mut ways = Vec::new();
    let mut push = |options: SolveOptions| {
        let SolveOptions { method, preconditioner, .. } = &options;
        let mut name = format!("{method} {preconditioner}");
        if preconditioner.order() == Order::MinDegree {
            name += " min-degree";
        }
        if preconditioner.precision() == PrecondPrecision::Single {
            name += " f32";
        }
        if options.engine != Engine::Fused {
            name += " composed";
        }
        name += if options.fallback { " ladder" } else { "" };
        ways.push((name, options));
    };
    let plain = SolveOptions::new().fallback(false).max_iters(200);
    for method in [Method::Cg, Method::BiCgStab] {
        for &(_, preconditioner) in Preconditioner::NAMES {
            let options = plain.clone().method(method).preconditioner(preconditioner);
            if [Preconditioner::ILU0, Preconditioner::IC0].contains(&preconditioner) {
                push(options.clone().order(Order::MinDegree));
                let precond_precision = PrecondPrecision::Single;
                push(options.clone().precond_precision(precond_precision));
            }
            if preconditioner == Preconditioner::Jacobi {
                let engine = Engine::Composed(sparsebatch_solvers::SpmvOptions::default());
                push(options.clone().engine(engine));
            }
            push(options);
        }
    }
    push(plain.clone().method(Method::Lu));
    push(plain.clone().method(Method::Auto));
    push(plain.fallback(true));
    ways
}

/// Vectors x and y of a product.
fn vectors<T: Scalar>(ncols: usize, nrows: usize) -> (Vec<T>, Vec<T>) {
    let of = |seed, len| {
        let values = rng::vector(seed, len);
        values.into_iter().map(T::from_f64).collect()
    };
    (of(1, ncols), of(2, nrows))
}
