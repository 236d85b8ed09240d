//! The plan of a GPU solver, its choices and memory: [`PlanReport`].

use std::collections::BTreeMap;
use std::fmt;

use sparsebatch_solve_core::Scheme;

use crate::{
    BandedShape, ColumnsShape, ComposedExplain, DenseForm, DenseShape, FactoredShape, FrontalShape,
    FusedShape, LuShape,
};

/// A solver's choices and its memory on the device. `Display` gives a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanReport {
    /// Method and preconditioner; of the first launch if there are several.
    pub scheme: Scheme,
    /// The launches of a solve, the one with the most work first.
    pub launches: Vec<LaunchReport>,
    /// Bytes of patterns and schedules.
    pub pattern_bytes: u64,
    /// Bytes of factors and vectors outside shared memory, outcomes, limits and tolerances.
    pub workspace_bytes: u64,
    /// Bytes of factors that are kept for later solves.
    pub kept_bytes: u64,
}

/// Systems that one launch solves, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaunchReport {
    /// Method and preconditioner.
    pub scheme: Scheme,
    /// The kernel as it is compiled, such as `cg<double, 32, 4, 3, 0, 1, 1>`.
    pub kernel: String,
    /// Systems, right-hand sides counted one by one.
    pub systems: usize,
    /// Different patterns.
    pub patterns: usize,
    /// Rows of the largest system.
    pub nrows: usize,
    /// Entries of the largest system.
    pub nnz: usize,
    /// Threads that solve a system.
    pub threads_per_system: u32,
    /// Systems that a block solves side by side.
    pub systems_per_block: u32,
    /// Threads of a block.
    pub threads_per_block: u32,
    /// Blocks of the launch; each takes systems until there are none left.
    pub blocks: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Fields that only this kind of kernel has.
    pub shape: LaunchShape,
}

/// The shape of a launch, by the solver that makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchShape {
    /// Of [`FusedSolver`](crate::FusedSolver).
    Fused(FusedShape),
    /// Of [`FactoredSolver`](crate::FactoredSolver).
    Factored(FactoredShape),
    /// Of [`GpuLu`](crate::GpuLu).
    Lu(LuShape),
    /// Of [`RaggedLu`](crate::RaggedLu).
    Columns(ColumnsShape),
    /// Of [`FrontalLu`](crate::FrontalLu).
    Frontal(FrontalShape),
    /// Of [`DenseSolver`](crate::DenseSolver).
    Dense(DenseShape),
    /// Of [`BandedSolver`](crate::BandedSolver).
    Banded(BandedShape),
    /// Of [`ComposedSolver`](crate::ComposedSolver): its launches between products.
    Composed(Box<ComposedExplain>),
}

/// Kernels that a report names.
const NAMED_KERNELS: usize = 3;

impl PlanReport {
    /// Method and shape of the launch with the most work, as named in rows of measurements, such as
    /// `cg(32 threads x 4 rows, registers)`; with several launches followed by `and 2 more`.
    pub fn name(&self) -> String {
        match self.launches.as_slice() {
            [] => self.scheme.name().to_owned(),
            [launch] => launch.name(),
            [launch, more @ ..] => format!("{} and {} more", launch.name(), more.len()),
        }
    }

    /// The names of the kernels, with the number of systems of each where there are several, in
    /// descending order of it.
    pub fn kernels(&self) -> String {
        kernels_in_words(self.launches.iter().map(|launch| (launch.name(), launch.systems)))
    }

    /// As [`PlanReport::kernels`], of the launches of one scheme.
    pub fn kernels_of(&self, scheme: Scheme) -> String {
        let launches = self.launches.iter().filter(|launch| launch.scheme == scheme);
        kernels_in_words(launches.map(|launch| (launch.name(), launch.systems)))
    }

    /// Whether some systems iterate in another precision than that of values and vectors.
    pub fn is_mixed(&self) -> bool {
        self.launches.iter().any(|launch| launch.fused().is_some_and(|shape| shape.is_mixed))
    }

    /// Bytes of device memory besides the caller's vectors and values.
    pub fn bytes(&self) -> u64 {
        self.pattern_bytes + self.workspace_bytes + self.kept_bytes
    }
}

impl LaunchReport {
    /// Method and shape in a few words.
    fn name(&self) -> String {
        let threads = self.threads_per_system;
        let shape = match &self.shape {
            LaunchShape::Fused(shape) => shape.name(threads),
            LaunchShape::Factored(shape) => shape.name(threads),
            LaunchShape::Lu(_) => {
                format!("{} threads, {} systems", self.threads_per_block, self.systems_per_block)
            }
            LaunchShape::Columns(_) => format!("{threads} threads, by columns"),
            LaunchShape::Frontal(_) => format!("{threads} threads, by fronts"),
            LaunchShape::Dense(shape) => match shape.form {
                DenseForm::Rows => {
                    format!("{threads} threads x {} rows, dense", shape.rows_per_thread)
                }
                DenseForm::Tiles => format!("{threads} threads, dense tiles"),
            },
            LaunchShape::Banded(shape) => {
                let blocks = match shape.cluster {
                    1 => String::new(),
                    blocks => format!(", {blocks} blocks"),
                };
                format!("{threads} threads x {} rows{blocks}", shape.rows_per_thread)
            }
            LaunchShape::Composed(shape) => return shape.kernels(),
        };
        format!("{}({shape})", self.scheme.name())
    }

    /// The shape of a launch of [`FusedSolver`](crate::FusedSolver).
    pub fn fused(&self) -> Option<&FusedShape> {
        match &self.shape {
            LaunchShape::Fused(shape) => Some(shape),
            _ => None,
        }
    }

    /// The shape of a launch of [`FactoredSolver`](crate::FactoredSolver).
    pub fn factored(&self) -> Option<&FactoredShape> {
        match &self.shape {
            LaunchShape::Factored(shape) => Some(shape),
            _ => None,
        }
    }

    /// The shape of a launch of [`GpuLu`](crate::GpuLu).
    pub fn lu(&self) -> Option<&LuShape> {
        match &self.shape {
            LaunchShape::Lu(shape) => Some(shape),
            _ => None,
        }
    }

    /// The shape of a launch of [`FrontalLu`](crate::FrontalLu).
    pub fn frontal(&self) -> Option<&FrontalShape> {
        match &self.shape {
            LaunchShape::Frontal(shape) => Some(shape),
            _ => None,
        }
    }

    /// The shape of a launch of [`DenseSolver`](crate::DenseSolver).
    pub fn dense(&self) -> Option<&DenseShape> {
        match &self.shape {
            LaunchShape::Dense(shape) => Some(shape),
            _ => None,
        }
    }

    /// The choices of a [`ComposedSolver`](crate::ComposedSolver).
    pub fn composed(&self) -> Option<&ComposedExplain> {
        match &self.shape {
            LaunchShape::Composed(shape) => Some(shape),
            _ => None,
        }
    }

    /// The shape of a launch of [`BandedSolver`](crate::BandedSolver).
    pub fn banded(&self) -> Option<&BandedShape> {
        match &self.shape {
            LaunchShape::Banded(shape) => Some(shape),
            _ => None,
        }
    }
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        let mut scheme = self.scheme;
        for (number, launch) in self.launches.iter().enumerate() {
            write!(f, "{}", if number > 0 { ";" } else { "" })?;
            if launch.scheme != scheme {
                scheme = launch.scheme;
                write!(f, " {scheme}:")?;
            }
            write!(f, " {launch}")?;
        }
        write!(
            f,
            "; on the device {} bytes of patterns and schedules, {} of workspace, outcomes and limits, {} of kept \
             factors",
            self.pattern_bytes, self.workspace_bytes, self.kept_bytes
        )
    }
}

impl fmt::Display for LaunchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} systems of up to {} rows and {} entries ({} patterns), {} threads for one, ",
            self.systems, self.nrows, self.nnz, self.patterns, self.threads_per_system
        )?;
        match &self.shape {
            LaunchShape::Fused(shape) => shape.fmt(f)?,
            LaunchShape::Factored(shape) => shape.fmt(f)?,
            LaunchShape::Lu(shape) => shape.fmt(f)?,
            LaunchShape::Columns(shape) => shape.fmt(f)?,
            LaunchShape::Frontal(shape) => shape.fmt(f)?,
            LaunchShape::Dense(shape) => shape.fmt(f)?,
            LaunchShape::Banded(shape) => shape.fmt(f)?,
            LaunchShape::Composed(shape) => shape.fmt(f)?,
        }
        write!(
            f,
            "; {} blocks of {} threads, {} systems and {} bytes of shared memory each",
            self.blocks, self.threads_per_block, self.systems_per_block, self.shared_bytes
        )
    }
}

/// Kernels with the systems of each, for reports: those of one name together, most systems first.
pub fn kernels_in_words(launches: impl Iterator<Item = (String, usize)>) -> String {
    let mut systems: BTreeMap<String, usize> = BTreeMap::new();
    launches.for_each(|(kernel, n)| *systems.entry(kernel).or_default() += n);
    let mut kernels: Vec<(String, usize)> = systems.into_iter().collect();
    kernels.sort_by_key(|&(_, systems)| std::cmp::Reverse(systems));
    match kernels.as_slice() {
        [] => "none".to_owned(),
        [(kernel, _)] => kernel.clone(),
        kernels => {
            let named = kernels.iter().take(NAMED_KERNELS);
            let mut text: Vec<String> =
                named.map(|(kernel, systems)| format!("{kernel} ({systems} systems)")).collect();
            if kernels.len() > NAMED_KERNELS {
                text.push(format!("{} more", kernels.len() - NAMED_KERNELS));
            }
            text.join(", ")
        }
    }
}
