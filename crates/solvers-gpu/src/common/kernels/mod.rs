//! What the kernels of all solvers share, and those that belong to none.

use sparsebatch_cuda::Module;
use sparsebatch_cuda::module::Header;

/// How a system begins and ends, its teams of threads and their sums.
pub(crate) const SOLVER: Header = ("solver.cuh", include_str!("solver.cuh"));
/// Norms of vectors in registers.
pub(crate) const NORM: Header = ("norm.cuh", include_str!("norm.cuh"));
/// Residuals with bounds of their evaluation's error.
pub(crate) const EVALUATE: Header = ("evaluate.cuh", include_str!("evaluate.cuh"));

/// Confirms what converged.
pub(crate) static CONFIRM: Module =
    Module::new("confirm", include_str!("confirm.cu"), &[EVALUATE, SOLVER]);
/// Gradients by values.
pub(crate) static GRADIENT: Module = Module::new("gradient", include_str!("gradient.cu"), &[]);
/// Copies of some items.
pub(crate) static ITEMS: Module = Module::new("items", include_str!("items.cu"), &[]);
/// Copies that change the order of values.
pub(crate) static MOVES: Module = Module::new("moves", include_str!("moves.cu"), &[]);
/// Matrices `I/dt - J`.
pub(crate) static SHIFT: Module = Module::new("shift", include_str!("shift.cu"), &[]);

#[cfg(test)]
mod tests {
    use sparsebatch_solve_core::Status;

    use super::*;

    /// `MaxIterations` as `MAX_ITERATIONS`.
    fn constant(status: Status) -> String {
        let mut name = String::new();
        for (k, letter) in status.name().chars().enumerate() {
            if letter.is_uppercase() && k > 0 {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
        }
        name
    }

    /// A kernel's code of a status is its index in [`Status::ALL`], by which outcomes are read.
    #[test]
    fn kernels_number_statuses_as_the_library_does() {
        let mut codes = 0;
        for line in SOLVER.1.lines() {
            let Some((name, rest)) =
                line.strip_prefix("constexpr u32 ").and_then(|line| line.split_once(" = "))
            else {
                continue;
            };
            let number = rest.split_once(';').and_then(|(number, _)| number.parse::<usize>().ok());
            // Larger codes are of systems that have not ended.
            let Some(status) = number.and_then(|code| Status::ALL.get(code)) else { continue };
            assert_eq!(name, constant(*status));
            codes += 1;
        }
        assert_eq!(codes, 11, "the header's list has another form");
    }
}
