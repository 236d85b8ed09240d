//! The method that [`Method::Auto`] chooses for each system.
//!
//! The method of a system depends on its pattern, on a few [`Flags`] of its values, on the options
//! and on the [`Target`], never on other systems of the batch. Flags are discrete, so that systems
//! of one pattern seldom differ.

mod flags;
mod on_chip;

pub(crate) use flags::{Diagonal, Dominance, Flags, looks_semidefinite};
use on_chip::Needs;
pub(crate) use on_chip::OnChip;
pub use on_chip::choose_schemes;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rayon::prelude::*;
use sparsebatch_formats::{Batch, CsrPatternRef, Scalar};
use sparsebatch_solve_core::symbolic::{LuCosts, lu_costs};
use sparsebatch_solve_core::{Engine, Order, PerSystem, Preconditioner, Scheme, classes};
use sparsebatch_solvers_gpu::BandedShape;

use self::flags::{Room, flags_of};
use crate::share::shares_values;
use crate::{Method, SolveOptions};

/// The properties of the machine on which the choice depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The cores of a machine.
    Cpu,
    /// A GPU, with its on-chip memory for factors.
    Gpu(OnChip),
}

/// Systems of a batch that are solved by one scheme.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) scheme: Scheme,
    pub(crate) reason: String,
    /// The items, ascending; all items of the batch if there is one scheme.
    pub(crate) items: Vec<usize>,
}

impl Chosen {
    /// The same scheme for some of the items, if there are any.
    pub(crate) fn with_items(&self, items: Vec<usize>) -> Option<Self> {
        let Self { scheme, reason, .. } = self;
        (!items.is_empty()).then(|| Self { scheme: *scheme, reason: reason.clone(), items })
    }
}

/// Features of a pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PatternFeatures {
    pub(crate) nrows: usize,
    pub(crate) nnz: usize,
    /// The largest distance of an entry from the diagonal, at least 1.
    pub(crate) bandwidth: usize,
    /// Whether every diagonal entry is stored.
    pub(crate) has_diagonal: bool,
    /// Costs of the factors in minimum-degree order, if they are within the limit of the target and
    /// every diagonal entry is stored.
    pub(crate) factors: Option<LuCosts>,
    /// The same of factors beyond that limit, which a GPU makes front by front: of structurally
    /// symmetric patterns.
    pub(crate) fronts: Option<LuCosts>,
    /// The shape of banded elimination on a GPU, if that takes the pattern and every diagonal entry
    /// is stored.
    pub(crate) band: Option<BandedShape>,
    /// Whether a GPU iterates quicker with incomplete factors by two colours than with Jacobi.
    pub(crate) prefers_factors: bool,
}

/// On the CPU `auto` takes the sparse LU when its factors hold at most this many times the entries
/// of A: a factorisation then costs about as much as a few products.
const MAX_FILL: usize = 2;

/// ... and at most this many entries, so that the factors of a group stay in the caches.
const MAX_LU_ENTRIES: usize = 20_000;

impl PatternFeatures {
    /// Computes the features of a pattern. `is_uniform`: that of all systems of a batch, for which
    /// a GPU may make factors beyond its chip. Cost: [`lu_costs`], stopped when the factors exceed
    /// the limit of the target, or that of such factors.
    pub(crate) fn new(pattern: CsrPatternRef<'_>, target: Target, is_uniform: bool) -> Self {
        let (nrows, nnz) = (pattern.nrows(), pattern.nnz());
        let (limit, most) = match target {
            Target::Cpu => ((MAX_FILL * nnz).min(MAX_LU_ENTRIES), 0),
            Target::Gpu(chip) if is_uniform => {
                (chip.most_entries(pattern), OnChip::most_of_fronts(pattern))
            }
            Target::Gpu(chip) => (chip.most_entries(pattern), 0),
        };
        let of_row = |row: usize| &pattern.col_idx()[pattern.row(row)];
        let has_diagonal = (0..nrows).all(|row| of_row(row).contains(&(row as i32)));
        let costs = if has_diagonal { lu_costs(pattern, limit.max(most)) } else { None };
        let (factors, fronts) = match costs {
            Some(costs) if costs.entries > limit => (None, Some(costs)),
            costs => (costs, None),
        };
        let band = match target {
            Target::Gpu(chip) if has_diagonal => chip.band(pattern),
            Target::Cpu | Target::Gpu(_) => None,
        };
        let prefers_factors = match target {
            Target::Gpu(chip) => has_diagonal && chip.prefers_factors(pattern),
            Target::Cpu => false,
        };
        let bandwidth = bandwidth(pattern);
        Self { nrows, nnz, bandwidth, has_diagonal, factors, fronts, band, prefers_factors }
    }
}

fn bandwidth(pattern: CsrPatternRef<'_>) -> usize {
    let of_row = |row: usize| {
        let columns = &pattern.col_idx()[pattern.row(row)];
        let distance = |col: &i32| row.abs_diff(*col as usize);
        columns.first().map_or(0, distance).max(columns.last().map_or(0, distance))
    };
    (0..pattern.nrows()).map(of_row).max().unwrap_or(0).max(1)
}

/// The method of a system with these features.
///
/// CG where the matrix is symmetric with a positive diagonal, else BiCGStab; but sparse LU where
/// that costs less. On the CPU it does where elimination in minimum-degree order fills in little
/// (at most 2 entries for one of A, 20,000 in all) and no diagonal entry is missing. On a GPU times
/// are estimated ([`OnChip`]), those of banded elimination and of dense elimination with partial
/// pivoting too.
pub(crate) fn method_of(
    pattern: &PatternFeatures,
    flags: Flags,
    target: Target,
    options: &SolveOptions,
    rel_tol: f64,
) -> (Method, &'static str) {
    if options.method != Method::Auto {
        return (options.method, "asked for");
    }
    let is_for_cg = flags.finite && flags.symmetric && flags.diagonal == Diagonal::Positive;
    const LITTLE_FILL: &str = "elimination in minimum-degree order fills in little";
    const QUICKER: &str = "estimated to be quicker than iterations";
    const BAND: &str = "a narrow band, estimated to be quicker than iterations";
    const PIVOTS: &str = "small, with a diagonal that elimination without pivoting cannot take";
    const DENSE: &str = "small and nearly full: dense elimination is estimated to be quickest";
    let factorisation = match (target, &pattern.factors) {
        (Target::Cpu, factors) => factors.as_ref().map(|_| (Method::Lu, LITTLE_FILL)),
        (Target::Gpu(chip), factors) => {
            // Elimination has no residuals to record.
            let is_fused = options.engine == Engine::Fused;
            let needs = Needs { history: options.history, fronts: is_fused && !options.history };
            match chip.quicker_factorisation(pattern, needs, flags, rel_tol) {
                Some(Method::Banded) => Some((Method::Banded, BAND)),
                Some(Method::PivotingLu) if factors.is_none() => Some((Method::PivotingLu, PIVOTS)),
                Some(Method::PivotingLu) => Some((Method::PivotingLu, DENSE)),
                method => method.map(|method| (method, QUICKER)),
            }
        }
    };
    match factorisation {
        Some(chosen) => chosen,
        None if is_for_cg => (Method::Cg, "symmetric with a positive diagonal"),
        None => (Method::BiCgStab, why_not_cg(flags)),
    }
}

/// The scheme of a system with these features: [`method_of`] with the preconditioner of the
/// options. The preconditioner `auto` is Jacobi that takes 1 for zero diagonal entries; where the
/// method is chosen too it is IC(0) or ILU(0) by two colours for the systems of which [`OnChip`]
/// says that a GPU iterates quicker with them.
///
/// By two colours the pivots of IC(0) are diagonal entries of A and of a Schur complement, positive
/// where A is positive definite. ILU(0) exists for H-matrices. A dominance of 1 admits singular
/// matrices, whose last pivot may vanish: the ladder then goes on to Jacobi.
///
/// # Source
/// R. S. Varga, E. B. Saff, V. Mehrmann, Incomplete factorizations of matrices and connections with
/// H-matrices, 1980, doi:10.1137/0717066.
pub(crate) fn scheme_of<T: Scalar>(
    pattern: &PatternFeatures,
    flags: Flags,
    target: Target,
    options: &SolveOptions,
    rel_tol: f64,
) -> (Scheme, &'static str) {
    let (method, reason) = method_of(pattern, flags, target, options, rel_tol);
    let is_free = options.method == Method::Auto
        && options.preconditioner == Preconditioner::Auto
        && options.engine == Engine::Fused
        && options.nrhs == 1
        && !options.history
        && pattern.prefers_factors;
    let is_h_matrix = flags.finite && flags.dominance <= Dominance::Weak;
    let (preconditioner, reason) = match method {
        Method::Cg if is_free => (Preconditioner::IC0.with_order(Order::Multicolor), CG_BY_COLOURS),
        Method::BiCgStab if is_free && is_h_matrix => {
            (Preconditioner::ILU0.with_order(Order::Multicolor), BICGSTAB_BY_COLOURS)
        }
        _ => (options.preconditioner, reason),
    };
    (Scheme::new::<T>(method, preconditioner), reason)
}

const CG_BY_COLOURS: &str =
    "symmetric with a positive diagonal, and quicker with factors by two colours";
const BICGSTAB_BY_COLOURS: &str = "not for CG, and quicker with factors by two colours";

/// Why CG does not apply to a system.
fn why_not_cg(flags: Flags) -> &'static str {
    match (flags.finite, flags.symmetric, flags.diagonal) {
        (false, ..) => "not finite",
        (_, false, _) => "not symmetric",
        (_, _, Diagonal::Negative) => "symmetric with a negative diagonal",
        (_, _, Diagonal::WithZeros) => "symmetric with zeros on the diagonal",
        (_, _, Diagonal::Mixed | Diagonal::Positive) => "symmetric with a diagonal of both signs",
    }
}

/// Divides a batch by the schemes that `auto` chooses; all systems get the scheme that is asked for
/// otherwise. Returns at least one entry.
pub(crate) fn choose<T: Scalar>(
    batch: &Batch<T>,
    options: &SolveOptions,
    target: Target,
) -> Vec<Chosen> {
    let all = || (0..batch.nitems()).collect::<Vec<usize>>();
    if options.method != Method::Auto || batch.nitems() == 0 {
        let (scheme, reason) = (options.scheme::<T>(), "asked for".to_owned());
        return vec![Chosen { scheme, reason, items: all() }];
    }
    let rel_tol = |item: usize| options.rel_tol_of::<T>(item * options.nrhs);
    let is_composed = matches!(options.engine, Engine::Composed(_));
    let iterations = Scheme::new::<T>(Method::BiCgStab, options.preconditioner);
    let of_class = |items: &Vec<u32>| {
        let is_uniform = matches!(batch, Batch::Uniform(_));
        let pattern = batch.pattern(items[0] as usize);
        let features = PatternFeatures::new(pattern, target, is_uniform);
        let scheme = |flags, item| {
            let found = scheme_of::<T>(&features, flags, target, options, rel_tol(item));
            match is_composed && found.0.is_direct() {
                true => (iterations, "a factorisation has no products to compose"),
                false => found,
            }
        };
        // Values are examined only if the choice depends on them.
        let first = items[0] as usize;
        let is_always_direct = !matches!(options.rel_tol, Some(PerSystem::Each(_)))
            && Flags::of_estimates().all(|flags| scheme(flags, first).0.is_direct());
        if is_always_direct {
            let scheme = scheme(Flags::UNKNOWN, first);
            return items.iter().map(|&item| (item as usize, scheme)).collect::<Vec<_>>();
        }
        let flags = |item: usize, (copy, sums, next): &mut Room<T>| {
            flags_of(batch.pattern(item), batch.values_in(item, copy), sums, next)
        };
        let shared = shares_values(batch).then(|| flags(first, &mut Room::default()));
        let of = |room: &mut Room<T>, &item: &u32| {
            let item = item as usize;
            (item, scheme(shared.unwrap_or_else(|| flags(item, room)), item))
        };
        items.par_iter().with_min_len(16).map_init(Room::default, of).collect::<Vec<_>>()
    };
    let schemes: Vec<_> = classes(batch, None).par_iter().map(of_class).flatten_iter().collect();
    let mut groups: Vec<(Scheme, Vec<usize>, BTreeMap<&str, usize>)> = Vec::new();
    for (item, (scheme, reason)) in schemes {
        match groups.iter_mut().find(|group| group.0 == scheme) {
            Some((_, items, reasons)) => {
                items.push(item);
                *reasons.entry(reason).or_default() += 1;
            }
            None => groups.push((scheme, vec![item], BTreeMap::from([(reason, 1)]))),
        }
    }
    let mut chosen: Vec<Chosen> = groups
        .into_iter()
        .map(|(scheme, mut items, reasons)| {
            items.sort_unstable();
            Chosen { scheme, reason: in_words(&reasons), items }
        })
        .collect();
    chosen.sort_by_key(|chosen| (Reverse(chosen.items.len()), rank_of(chosen.scheme)));
    chosen
}

/// The order of schemes that as many systems take; one method may have two preconditioners.
pub(crate) fn rank_of(scheme: Scheme) -> (&'static str, bool) {
    (scheme.name(), scheme.preconditioner().has_factors())
}

/// The reasons in words, with the number of systems of each if there are several.
fn in_words(reasons: &BTreeMap<&str, usize>) -> String {
    if let (1, Some((reason, _))) = (reasons.len(), reasons.first_key_value()) {
        return (*reason).to_owned();
    }
    let each = reasons.iter().map(|(reason, systems)| format!("{systems}: {reason}"));
    each.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::Csr;
    use sparsebatch_formats::generate::{Family, Problem};
    use sparsebatch_solve_core::SpmvOptions;

    use super::on_chip::has_two_colours;
    use super::*;

    const CG: Scheme = Scheme::Cg(Preconditioner::Auto);
    const BICGSTAB: Scheme = Scheme::BiCgStab(Preconditioner::Auto);

    fn dense(n: usize, value: impl Fn(usize, usize) -> f64) -> Csr<f64> {
        let row_ptr = (0..=n).map(|r| (r * n) as i32).collect();
        let col_idx = (0..n * n).map(|k| (k % n) as i32).collect();
        let values = (0..n * n).map(|k| value(k / n, k % n)).collect();
        Csr::try_new(n, n, row_ptr, col_idx, values).unwrap()
    }

    /// As much shared memory as an H200 has.
    fn gpu() -> Target {
        Target::Gpu(OnChip { shared_bytes: 232_448, cluster: 8, value_bytes: 8 })
    }

    fn chosen(matrix: Csr<f64>, target: Target) -> Chosen {
        let mut choices = choose(&Batch::from(matrix), &SolveOptions::default(), target);
        assert_eq!(choices.len(), 1);
        choices.remove(0)
    }

    #[test]
    fn reasons_tell_what_keeps_from_cg() {
        // A grid, which fills in.
        let grid = match Problem::new(Family::Lap2d, 900).unwrap().batch(1).unwrap().batch {
            Batch::Uniform(grid) => grid.to_matrix(0),
            Batch::Ragged(_) => unreachable!("the family has one pattern"),
        };
        let scaled = |scale: f64| {
            let mut matrix = grid.clone();
            for row in 0..900 {
                let diagonal = grid.view().pattern().position(row, row).unwrap();
                matrix.values_mut()[diagonal] *= scale;
            }
            matrix
        };
        for (diagonal, method, reason) in [
            (1.0, Method::Cg, "symmetric with a positive diagonal"),
            (-1.0, Method::BiCgStab, "symmetric with a negative diagonal"),
            (0.0, Method::BiCgStab, "symmetric with zeros on the diagonal"),
        ] {
            let choice = chosen(scaled(diagonal), Target::Cpu);
            assert_eq!((choice.scheme.name(), &*choice.reason), (method.name(), reason));
        }
    }

    #[test]
    fn systems_are_chosen_for_by_themselves() {
        let lap2d = Problem::new(Family::Lap2d, 900).unwrap().batch(2).unwrap().batch;
        let alone = choose(&lap2d, &SolveOptions::default(), Target::Cpu);
        let mut beside: Vec<Csr<f64>> =
            vec![dense(1, |_, _| f64::NAN), dense(3, |r, c| (r + c) as f64)];
        let mut values = Vec::new();
        for item in 0..2 {
            let pattern = lap2d.pattern(item).to_pattern();
            lap2d.copy_values(item, &mut values);
            beside.push(Csr::from_parts(std::sync::Arc::new(pattern), values.clone()).unwrap());
        }
        let batch: Batch<f64> = beside.into_iter().collect();

        let choices = choose(&batch, &SolveOptions::default(), Target::Cpu);

        let of = |item: usize| choices.iter().find(|c| c.items.contains(&item)).unwrap();
        assert_eq!(alone.len(), 1);
        assert_eq!((of(2).scheme, of(3).scheme), (alone[0].scheme, alone[0].scheme));
        let counted: usize = choices.iter().map(|choice| choice.items.len()).sum();
        assert_eq!(counted, 4);
    }

    #[test]
    fn auto_takes_lu_for_a_tridiagonal_matrix() {
        let a = Csr::try_new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![2.0, 1.0, 0.5, 2.0]);

        assert_eq!(chosen(a.unwrap(), Target::Cpu).scheme, Scheme::Lu);
    }

    /// Chosen as measured, or within 30 % of it.
    #[test]
    fn families_have_the_method_that_is_quickest_on_a_gpu() {
        for (family, n, method) in [
            (Family::Tri, 8, Method::Banded),
            (Family::Tri, 128, Method::Banded),
            (Family::Tri, 1024, Method::Banded),
            (Family::Penta, 128, Method::Banded),
            (Family::Penta, 1024, Method::Banded),
            (Family::Lap2d, 256, Method::Cg),
            (Family::Lap2d, 900, Method::Cg),
            (Family::Rand9, 54, Method::BiCgStab),
            (Family::Rand9, 512, Method::BiCgStab),
        ] {
            let batch = Problem::new(family, n).unwrap().batch(200).unwrap().batch;

            let choices = choose(&batch, &SolveOptions::default(), gpu());

            let chosen: Vec<_> = choices.iter().map(|c| (c.scheme.name(), c.items.len())).collect();
            assert_eq!(chosen, [(method.name(), 200)], "{} {n}", family.name());
        }
    }

    /// A grid of `n` rows whose neighbours have entries of -1, in the lower triangle of `below`.
    fn grid(n: usize, below: f64) -> Csr<f64> {
        let batch = Problem::new(Family::Lap2d, n).unwrap().batch(1).unwrap().batch;
        let mut grid = batch.to_csr(0);
        for row in 0..n {
            for k in grid.view().pattern().row(row) {
                let col = grid.col_idx()[k] as usize;
                grid.values_mut()[k] = match col.cmp(&row) {
                    std::cmp::Ordering::Less => below,
                    std::cmp::Ordering::Equal => 4.0,
                    std::cmp::Ordering::Greater => -1.0,
                };
            }
        }
        grid
    }

    /// A grid with another diagonal: with 8 few iterations are enough.
    fn with_diagonal(mut grid: Csr<f64>, diagonal: f64) -> Csr<f64> {
        grid.values_mut().iter_mut().filter(|value| **value > 0.0).for_each(|v| *v = diagonal);
        grid
    }

    #[test]
    fn large_grids_iterate_with_factors_by_two_colours_on_a_gpu() {
        let colours = |preconditioner: Preconditioner| preconditioner.with_order(Order::Multicolor);
        let ic0 = Scheme::Cg(colours(Preconditioner::IC0));
        let ilu0 = Scheme::BiCgStab(colours(Preconditioner::ILU0));
        let small = Target::Gpu(OnChip { shared_bytes: 167_936, cluster: 8, value_bytes: 8 });
        let single = Target::Gpu(OnChip { shared_bytes: 232_448, cluster: 8, value_bytes: 4 });
        for (n, below, target, expected) in [
            (2025, -1.0, gpu(), CG),
            (2116, -1.0, gpu(), ic0),
            (4096, -1.0, gpu(), ic0),
            (4225, -1.0, gpu(), CG),
            (2116, -0.5, gpu(), ilu0),
            (2116, -1.0, small, CG),
            (2116, -1.0, single, CG),
            (2116, -1.0, Target::Cpu, CG),
        ] {
            let matrix = with_diagonal(grid(n, below), 8.0);
            assert_eq!(chosen(matrix, target).scheme, expected, "{n} {below} {target:?}");
        }
        let batch = Batch::from(with_diagonal(grid(2116, -1.0), 8.0));
        let scheme = |options| choose(&batch, &options, gpu())[0].scheme;
        let options = SolveOptions::new;
        assert_eq!(scheme(options().method(Method::Cg)), CG);
        assert_eq!(scheme(options().history(true)), CG);
        assert_eq!(scheme(options().nrhs(2)), CG);
        assert_eq!(scheme(options().engine(Engine::Composed(SpmvOptions::default()))), CG);
        let jacobi = Scheme::Cg(Preconditioner::Jacobi);
        assert_eq!(scheme(options().preconditioner(Preconditioner::Jacobi)), jacobi);
    }

    #[test]
    fn large_systems_are_eliminated_front_by_front_on_a_gpu() {
        for (matrix, expected) in [
            (grid(2116, -1.0), Scheme::Lu),
            (grid(4900, -1.0), Scheme::Lu),
            // Few iterations.
            (with_diagonal(grid(4900, -1.0), 8.0), CG),
            (with_diagonal(grid(4900, -0.5), 8.0), BICGSTAB),
            // Not dominant: nothing bounds the iterations.
            (grid(2500, -1.5), Scheme::Lu),
            // Too many rows for the analysis.
            (grid(160 * 160, -1.0), CG),
        ] {
            let rows = matrix.nrows();
            let chosen = chosen(matrix, gpu());
            assert_eq!(chosen.scheme, expected, "{rows} rows: {}", chosen.reason);
        }
        let scheme = |batch: &Batch<f64>, options| choose(batch, &options, gpu())[0].scheme;
        let (options, uniform) = (SolveOptions::new, Batch::from(grid(2116, -1.0)));
        assert_eq!(scheme(&uniform, options()), Scheme::Lu);
        // The LU has no residuals to record, and no products to iterate over.
        assert_eq!(scheme(&uniform, options().history(true)), CG);
        let composed = options().engine(Engine::Composed(SpmvOptions::default()));
        assert_eq!(scheme(&uniform, composed), CG);
        // A plan for each of many patterns would take longer than iterations of all together.
        let ragged: Batch<f64> = [grid(2116, -1.0), grid(2209, -1.0)].into_iter().collect();
        let ic0 = Scheme::Cg(Preconditioner::IC0.with_order(Order::Multicolor));
        assert_eq!(scheme(&ragged, options()), ic0);
        // Fronts are those of A + A^T, which fills in more than a triangle.
        let below: Vec<(i32, i32)> =
            (0..4900).flat_map(|row| [(row, row / 2), (row, row)]).skip(1).collect();
        let (rows, cols): (Vec<i32>, Vec<i32>) = below.into_iter().unzip();
        let triangle =
            Csr::from_triplets(4900, 4900, &rows, &cols, &vec![1.0; rows.len()]).unwrap();
        let features = PatternFeatures::new(triangle.view().pattern(), gpu(), true);
        assert!(features.fronts.is_none());
    }

    #[test]
    fn colours_are_those_of_the_order_whatever_the_numbers_of_the_rows() {
        let colours = |n: usize, entries: &[(i32, i32)]| {
            let all = (0..n as i32).map(|row| (row, row)).chain(entries.iter().copied());
            let (rows, cols): (Vec<i32>, Vec<i32>) = all.unzip();
            let values = vec![1.0; rows.len()];
            let matrix = Csr::from_triplets(n, n, &rows, &cols, &values).unwrap();
            has_two_colours(matrix.view().pattern())
        };

        assert!(colours(4, &[(0, 1), (1, 2), (2, 3)]), "a chain, its upper triangle");
        assert!(colours(4, &[(0, 2), (0, 3), (1, 3)]), "red rows before black ones");
        assert!(!colours(3, &[(0, 1), (1, 2), (2, 0)]), "a triangle");
        assert!(!colours(3, &[]), "nothing beside the diagonal");
        assert!(!colours(0, &[]));
    }

    #[test]
    fn items_of_one_method_are_divided_by_their_preconditioners() {
        let strong = |n| with_diagonal(grid(n, -1.0), 8.0);
        let all: Batch<f64> = [strong(2116), strong(900)].into_iter().collect();

        let choices = choose(&all, &SolveOptions::default(), gpu());

        let of: Vec<_> = choices.iter().map(|chosen| (chosen.scheme, &*chosen.items)).collect();
        let ic0 = Scheme::Cg(Preconditioner::IC0.with_order(Order::Multicolor));
        assert_eq!(of, [(CG, &[1][..]), (ic0, &[0][..])]);
    }

    #[test]
    fn lu_is_for_matrices_that_nothing_is_known_of_on_a_gpu() {
        // Small on the diagonal, as in chemistry.
        let stiff = |n| dense(n, |row, col| if row == col { 1.0 } else { (col + 1) as f64 });
        assert_eq!(chosen(stiff(70), gpu()).scheme, Scheme::Lu);
        // Level by level where neither its factors nor its fronts fit.
        let small = Target::Gpu(OnChip { shared_bytes: 4096, cluster: 8, value_bytes: 8 });
        assert_eq!(chosen(stiff(70), small).scheme, Scheme::Lu);
        // Dense elimination takes less time where it is possible, and pivots besides.
        for n in [8, 20, 54, 64] {
            let chosen = chosen(stiff(n), gpu());
            assert_eq!(chosen.scheme, Scheme::PivotingLu, "{n}");
            assert!(chosen.reason.starts_with("small and nearly full"), "{}", chosen.reason);
        }
        // Sparse patterns fill in less.
        let chain = Problem::new(Family::Tri, 40).unwrap().batch(1).unwrap().batch.to_csr(0);
        assert_ne!(chosen(chain, gpu()).scheme, Scheme::PivotingLu);
    }

    /// Full, unsymmetric and diagonally dominant: BiCGStab needs few iterations, dense elimination
    /// one step of a cost that grows with the cube of the rows.
    #[test]
    fn full_dominant_systems_are_eliminated_up_to_some_forty_rows_in_f64() {
        let full = |n: usize| {
            let small = |row: usize, col: usize| (1 + (7 * row + 3 * col) % 5) as f64 / 5.0;
            dense(n, |row, col| if row == col { 4.0 * n as f64 } else { small(row, col) })
        };
        let in_f32 = Target::Gpu(OnChip { shared_bytes: 232_448, cluster: 8, value_bytes: 4 });
        for n in [8, 22, 33] {
            assert_eq!(chosen(full(n), gpu()).scheme, Scheme::PivotingLu, "{n}");
        }
        for n in [54, 64, 100] {
            assert_eq!(chosen(full(n), gpu()).scheme, BICGSTAB, "{n}");
        }
        assert_eq!(chosen(full(33), in_f32).scheme, BICGSTAB);
    }

    /// A matrix of `n` rows with entries at distances `is_near` from the diagonal.
    fn near(n: usize, is_near: impl Fn(usize) -> bool) -> Csr<f64> {
        let entry = |row: usize, col: usize| if row == col { 9.0 } else { -1.0 };
        let all = (0..n).flat_map(|row| (0..n).map(move |col| (row, col)));
        let stored = all.filter(|&(row, col)| is_near(row.abs_diff(col)));
        let (places, values): (Vec<_>, Vec<_>) = stored.map(|(r, c)| ((r, c), entry(r, c))).unzip();
        let (rows, cols): (Vec<_>, Vec<_>) =
            places.into_iter().map(|(row, col)| (row as i32, col as i32)).unzip();
        Csr::from_triplets(n, n, &rows, &cols, &values).unwrap()
    }

    #[test]
    fn bands_of_at_most_four_diagonals_on_a_side_are_eliminated_on_a_gpu() {
        let ring = |distance: usize| [0, 1, 99].contains(&distance);
        // Neighbours lie 7 rows apart: a shuffled ring.
        let shuffled = |distance: usize| [0, 7, 93].contains(&distance);
        let bands = [
            near(100, |distance| distance == 0),
            near(100, |distance| distance <= 1),
            near(100, |distance| distance <= 2),
            near(100, |distance| distance == 0 || distance == 2),
            near(100, |distance| distance <= 3),
            near(130, |distance| distance <= 4),
            near(100, ring),
            near(100, shuffled),
        ];
        for (number, band) in bands.into_iter().enumerate() {
            let choice = chosen(band.clone(), gpu());
            assert_eq!(choice.scheme, Scheme::Banded, "{number}");
            assert!(choice.reason.starts_with("a narrow band"), "{}", choice.reason);
            assert_ne!(chosen(band.clone(), Target::Cpu).scheme, Scheme::Banded, "{number}");
            // It records no residuals.
            let options = SolveOptions::new().history(true);
            let recorded = choose(&Batch::from(band), &options, gpu());
            assert_ne!(recorded[0].scheme, Scheme::Banded, "{number}");
        }
        assert_ne!(chosen(near(200, |distance| distance <= 5), gpu()).scheme, Scheme::Banded);
        // Fewer rows than there are kernels for.
        assert_ne!(chosen(near(24, |distance| distance <= 3), gpu()).scheme, Scheme::Banded);
        // Without entries on the diagonal.
        assert_ne!(chosen(near(100, |distance| distance == 1), gpu()).scheme, Scheme::Banded);
    }

    #[test]
    fn bands_are_eliminated_where_a_block_or_a_cluster_holds_them() {
        let tri = |n| Problem::new(Family::Tri, n).unwrap().batch(1).unwrap().batch;
        let on = |shared_bytes, value_bytes, cluster| {
            Target::Gpu(OnChip { shared_bytes, cluster, value_bytes })
        };
        for (n, target, expected) in [
            (6656, on(232_448, 8, 1), true),
            (6657, on(232_448, 8, 1), false),
            (8704, on(232_448, 4, 1), true),
            (8705, on(232_448, 4, 1), false),
            (544, on(49_152, 8, 1), true),
            (6656, on(49_152, 8, 1), false),
            // Spread over several blocks.
            (6657, gpu(), true),
            (34_816, gpu(), true),
            (34_817, gpu(), false),
        ] {
            let choices = choose(&tri(n), &SolveOptions::default(), target);
            assert_eq!(choices[0].scheme == Scheme::Banded, expected, "{n}");
        }
    }

    /// Every combination of flags.
    fn all_flags() -> Vec<Flags> {
        let mut all = Vec::new();
        for number in 0..4 {
            for diagonal in
                [Diagonal::Positive, Diagonal::Negative, Diagonal::WithZeros, Diagonal::Mixed]
            {
                for dominance in Dominance::LEVELS {
                    let (finite, symmetric) = (number & 1 != 0, number & 2 != 0);
                    all.push(Flags { finite, symmetric, diagonal, dominance });
                }
            }
        }
        all
    }

    #[test]
    fn a_factorisation_for_the_flags_of_estimates_is_one_for_all_flags() {
        let options = SolveOptions::default();
        let (mut always, mut not_always) = (0, 0);
        for (family, n) in
            [(Family::Tri, 100), (Family::Penta, 1000), (Family::Lap2d, 100), (Family::Rand9, 54)]
        {
            let batch = Problem::new(family, n).unwrap().batch(1).unwrap().batch;
            for shared_bytes in [2048, 1 << 14, 1 << 17] {
                let target = Target::Gpu(OnChip { shared_bytes, cluster: 8, value_bytes: 8 });
                let features = PatternFeatures::new(batch.pattern(0), target, true);
                for rel_tol in [0.0, 1e-15, 1e-10, 1e-2, 0.5] {
                    let is_direct = |flags| {
                        method_of(&features, flags, target, &options, rel_tol).0.is_direct()
                    };
                    let expected = all_flags().into_iter().all(is_direct);
                    assert_eq!(Flags::of_estimates().all(is_direct), expected);
                    *if expected { &mut always } else { &mut not_always } += 1;
                }
            }
        }
        assert!(always > 0 && not_always > 0, "{always} {not_always}");
    }

    #[test]
    fn empty_and_zero_matrices_are_chosen_for() {
        let empty = || Csr::<f64>::try_new(0, 0, vec![0], vec![], vec![]).unwrap();
        let no_entries = || Csr::<f64>::try_new(2, 2, vec![0, 0, 0], vec![], vec![]).unwrap();
        for target in [Target::Cpu, gpu()] {
            chosen(empty(), target);
            let expected = if target == Target::Cpu { BICGSTAB } else { Scheme::PivotingLu };
            assert_eq!(chosen(no_entries(), target).scheme, expected);
            // Histories are recorded by iterations alone.
            let options = SolveOptions::new().history(true);
            let recorded = choose(&Batch::from(no_entries()), &options, target);
            assert_eq!(recorded[0].scheme, BICGSTAB);
            let none: Batch<f64> = [].into_iter().collect();
            assert_eq!(choose(&none, &SolveOptions::default(), target)[0].scheme, CG);
        }
    }

    #[test]
    fn what_is_asked_for_is_taken() {
        let options = SolveOptions::new().method(Method::BiCgStab);
        let choices = choose(&Batch::from(dense(2, |_, _| 1.0)), &options, gpu());

        assert_eq!((choices[0].scheme, &*choices[0].reason), (BICGSTAB, "asked for"));
    }
}
