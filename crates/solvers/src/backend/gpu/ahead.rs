//! The kernels of a first solve, known ahead of its plans: [`kernels_ahead`].

use rayon::prelude::*;
use sparsebatch_cpu_ref::CpuScalar;
use sparsebatch_cuda::{DeviceInfo, KernelKey, MemoryMeter, Value};
use sparsebatch_formats::{Batch, RaggedCsr};
use sparsebatch_solve_core::{Scheme, SolveOptions, classes};

use super::plan::{ConfirmedPlan, tuning};
use crate::choose::Chosen;
use crate::gpu::{iterates_over_products, takes_several_patterns};

/// Most patterns of a scheme whose plans are rehearsed.
const MOST_PATTERNS: usize = 16;

/// A plan: for as many items of the pattern of one, or for some items of a ragged batch.
enum Planned<T> {
    One { item: usize, nitems: usize },
    Several(RaggedCsr<T>),
}

/// The kernels that the plans of some schemes will ask for, so that they can be compiled side by
/// side: plans are made one after the other, and each compiles its own. Analyses a system of each
/// pattern, of the first patterns where there are many. None where there is one plan, whose kernels
/// are compiled side by side as it is.
pub(super) fn kernels_ahead<T: CpuScalar + Value>(
    info: &DeviceInfo,
    batch: &Batch<T>,
    choices: &[Chosen],
    options: &SolveOptions,
) -> Vec<KernelKey> {
    // Limits have no kernels of their own, and may be given system by system.
    let options = options.with_limits_of(&SolveOptions::new());
    let plans: Vec<(Scheme, Planned<T>)> =
        choices.iter().flat_map(|chosen| plans_of(info, batch, chosen, &options)).collect();
    if plans.len() < 2 {
        return Vec::new();
    }
    let meter = MemoryMeter::rehearsal(info.clone());
    // What a plan refuses is said when it is made.
    plans.par_iter().for_each(|(scheme, planned)| match planned {
        Planned::One { item, nitems } => {
            let systems = (batch.pattern(*item), *nitems);
            ConfirmedPlan::<_, T>::new(&meter, *scheme, systems, &options, &tuning(None)).ok();
        }
        Planned::Several(some) => {
            ConfirmedPlan::<_, T>::ragged(&meter, *scheme, some, &options, &tuning(None)).ok();
        }
    });
    meter.kernels()
}

/// The plans of a scheme, those of its first patterns.
fn plans_of<T: CpuScalar + Value>(
    info: &DeviceInfo,
    batch: &Batch<T>,
    chosen: &Chosen,
    options: &SolveOptions,
) -> Vec<(Scheme, Planned<T>)> {
    let scheme = chosen.scheme;
    let mut classes = classes(batch, Some(&chosen.items));
    classes.truncate(MOST_PATTERNS);
    // Products are chosen by what the device measures of the matrices.
    classes.retain(|class| {
        let pattern = batch.pattern(class[0] as usize);
        !iterates_over_products::<MemoryMeter, T>(info, scheme, pattern, options, &tuning(None))
    });
    let first = |class: &Vec<u32>| class[0] as usize;
    match batch {
        // One plan takes all patterns.
        Batch::Ragged(ragged) if classes.len() > 1 && takes_several_patterns(scheme, options) => {
            let mut some = RaggedCsr::new();
            classes.iter().for_each(|class| some.push(ragged.item(first(class))));
            vec![(scheme, Planned::Several(some))]
        }
        _ => {
            let one = |class: &Vec<u32>| Planned::One { item: first(class), nitems: class.len() };
            classes.iter().map(|class| (scheme, one(class))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use sparsebatch_formats::generate::{Family, Problem};
    use sparsebatch_solve_core::{LuForm, Method, Preconditioner};

    use super::*;

    fn ahead(batch: &Batch<f64>, schemes: &[(Scheme, Vec<usize>)], form: LuForm) -> Vec<String> {
        let chosen = |(scheme, items): &(Scheme, Vec<usize>)| Chosen {
            scheme: *scheme,
            reason: String::new(),
            items: items.clone(),
        };
        let chosen: Vec<Chosen> = schemes.iter().map(chosen).collect();
        let info = DeviceInfo::known("sm_90").unwrap();
        let options = SolveOptions::new().method(Method::Auto).lu_form(form).rel_tol(vec![1e-3; 7]);
        kernels_ahead(&info, batch, &chosen, &options).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn kernels_of_all_schemes_and_patterns_are_known_ahead() {
        let items = [(Family::Tri, 9), (Family::Lap2d, 9), (Family::Lap2d, 64), (Family::Tri, 9)];
        let matrix =
            |(family, n)| Problem::new(family, n).unwrap().batch(1).unwrap().batch.to_csr(0);
        let batch: Batch<f64> = items.map(matrix).into_iter().collect();
        let cg = Scheme::Cg(Preconditioner::Jacobi);

        let both = ahead(&batch, &[(cg, vec![0, 3]), (Scheme::Lu, vec![1, 2])], LuForm::ByPattern);
        assert!(both.iter().any(|kernel| kernel.starts_with("cg.cu: ")), "{both:?}");
        assert!(both.iter().any(|kernel| kernel.starts_with("lu.cu: ")), "{both:?}");

        let pooled = [(cg, vec![0, 3]), (Scheme::Lu, vec![1, 2])];
        let by_system = ahead(&batch, &pooled, LuForm::BySystem);
        assert!(by_system.iter().any(|kernel| kernel.contains("lu_columns<")), "{by_system:?}");
        // One plan compiles its own kernels.
        assert!(ahead(&batch, &[(cg, vec![0, 1, 2, 3])], LuForm::ByPattern).is_empty());
        assert!(ahead(&batch, &[(Scheme::Lu, vec![0, 3])], LuForm::ByPattern).is_empty());
    }
}
