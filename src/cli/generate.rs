//! `sparsebatch generate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sparsebatch::generate::{
    Family, GeneratedBatch, Problem, Stencil, banded, dense, laplace, mix, mix_spd, pareto, random,
    spd, trefethen,
};
use sparsebatch::{Batch, Csr, FormatError};

use super::error::CliError;
use super::options::Grid;
use super::progress::Progress;
use super::{Exit, Global, convert};

/// Options of `generate`.
#[derive(Args)]
pub(crate) struct GenerateArgs {
    #[command(subcommand)]
    kind: Kind,
}

/// A file to write.
#[derive(Args)]
struct Out {
    /// Output file; its ending decides the format: .batch, or .mtx, .mtx.gz, .npz for one matrix
    #[arg(value_name = "OUT")]
    output: PathBuf,
}

/// A batch of systems of equal size.
#[derive(Args)]
struct Sized {
    /// Rows of each system
    #[arg(long)]
    n: usize,
    /// Number of systems
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    #[command(flatten)]
    out: Out,
}

/// A batch of systems of many sizes.
#[derive(Args)]
struct Mixed {
    /// Number of systems
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    #[command(flatten)]
    out: Out,
}

/// Sizes and seed of a synthetic matrix.
#[derive(Args)]
struct Synthetic {
    /// Rows
    #[arg(long)]
    rows: usize,
    /// Columns [default: the number of rows]
    #[arg(long)]
    cols: Option<usize>,
    /// Seed of the values and positions
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    out: Out,
}

impl Synthetic {
    fn ncols(&self) -> usize {
        self.cols.unwrap_or(self.rows)
    }
}

#[derive(Subcommand)]
enum Kind {
    /// Symmetric positive definite, 3-point stencil, with right-hand sides
    Tri(Sized),
    /// Symmetric positive definite, two neighbours on each side, with right-hand sides
    Penta(Sized),
    /// Symmetric positive definite, 5-point stencil on a square grid, with right-hand sides
    Lap2d(Sized),
    /// Nonsymmetric, 9 entries a row, diagonally dominant, with right-hand sides
    Rand9(Sized),
    /// Anisotropic diffusion on a square grid, symmetric positive definite, ill-conditioned, with
    /// right-hand sides
    Aniso2d(Sized),
    /// Diffusion with jumping coefficients on a square grid, symmetric positive definite,
    /// ill-conditioned, with right-hand sides
    Jump2d(Sized),
    /// Ragged batch (systems of different sizes) of tri, lap2d and rand9, 32 to 1,024 rows each
    Mix(Mixed),
    /// Ragged batch (systems of different sizes) of tri and lap2d
    #[command(alias = "mix_spd")]
    MixSpd(Mixed),
    /// Laplacian on a regular grid
    Laplace {
        /// Number of points of the stencil: 3 (1-D), 5 or 9 (2-D), 7 or 27 (3-D)
        #[arg(long)]
        stencil: usize,
        /// Grid points in each dimension, such as 100x100x100
        #[arg(long)]
        grid: Grid,
        #[command(flatten)]
        out: Out,
    },
    /// Trefethen matrix: primes on the diagonal, ones at distances from it that are powers of two
    Trefethen {
        /// Rows
        #[arg(long)]
        n: usize,
        #[command(flatten)]
        out: Out,
    },
    /// Band matrix: adjacent diagonals around the main one, random values
    Banded {
        /// Rows
        #[arg(long)]
        n: usize,
        /// Number of diagonals
        #[arg(long)]
        bands: usize,
        /// Seed of the values
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[command(flatten)]
        out: Out,
    },
    /// Row lengths drawn from a Pareto distribution, random columns and values
    Pareto {
        #[command(flatten)]
        synthetic: Synthetic,
        /// Exponent of the Pareto distribution; a smaller one has a heavier tail
        #[arg(long, default_value_t = 1.0)]
        shape: f64,
        /// Smallest number of entries in a row
        #[arg(long, default_value_t = 32)]
        min_len: usize,
    },
    /// Dense matrix: every entry stored, random values
    Dense(Synthetic),
    /// The same number of entries in every row, random columns and values
    Random {
        #[command(flatten)]
        synthetic: Synthetic,
        /// Entries of each row
        #[arg(long, default_value_t = 8)]
        row_len: usize,
    },
    /// Symmetric positive definite, diagonally dominant, random positions and values
    Spd {
        /// Rows
        #[arg(long)]
        n: usize,
        /// Off-diagonal pairs drawn per row
        #[arg(long, default_value_t = 4)]
        row_len: usize,
        /// Seed of the values and positions
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[command(flatten)]
        out: Out,
    },
}

/// Runs the command.
///
/// # Errors
/// Parameters out of range, and an output that cannot be written or cannot hold the systems.
pub(crate) fn run(args: &GenerateArgs, global: Global) -> Result<Exit, CliError> {
    let output = &args.kind.out().output;
    convert::check_output(output, &[])?;
    let progress = Progress::start(global, "generating".to_owned());
    let (batch, rhs) = args.kind.make()?;
    drop(progress);
    convert::write(output, &batch, rhs.as_deref(), global)?;
    convert::report("generate", output, &batch, global)
}

type Made = (Batch<f64>, Option<Vec<f64>>);

impl Kind {
    fn out(&self) -> &Out {
        match self {
            Self::Tri(sized)
            | Self::Penta(sized)
            | Self::Lap2d(sized)
            | Self::Rand9(sized)
            | Self::Aniso2d(sized)
            | Self::Jump2d(sized) => &sized.out,
            Self::Mix(mixed) | Self::MixSpd(mixed) => &mixed.out,
            Self::Dense(synthetic)
            | Self::Pareto { synthetic, .. }
            | Self::Random { synthetic, .. } => &synthetic.out,
            Self::Laplace { out, .. }
            | Self::Trefethen { out, .. }
            | Self::Banded { out, .. }
            | Self::Spd { out, .. } => out,
        }
    }

    fn make(&self) -> Result<Made, FormatError> {
        let batch = |made: GeneratedBatch<f64>| (made.batch, Some(made.rhs));
        let matrix = |made: Csr<f64>| (Batch::from(made), None);
        let family = |family, sized: &Sized| {
            Problem::new(family, sized.n)?.batch(sized.batch as usize).map(batch)
        };
        match self {
            Self::Tri(sized) => family(Family::Tri, sized),
            Self::Penta(sized) => family(Family::Penta, sized),
            Self::Lap2d(sized) => family(Family::Lap2d, sized),
            Self::Rand9(sized) => family(Family::Rand9, sized),
            Self::Aniso2d(sized) => family(Family::Aniso2d, sized),
            Self::Jump2d(sized) => family(Family::Jump2d, sized),
            Self::Mix(mixed) => mix(mixed.batch as usize).map(batch),
            Self::MixSpd(mixed) => mix_spd(mixed.batch as usize).map(batch),
            Self::Laplace { stencil, grid, .. } => {
                laplace(Stencil::from_points(*stencil)?, &grid.0).map(matrix)
            }
            Self::Trefethen { n, .. } => trefethen(*n).map(matrix),
            Self::Banded { n, bands, seed, .. } => banded(*n, *bands, *seed).map(matrix),
            Self::Pareto { synthetic: s, shape, min_len } => {
                pareto(s.rows, s.ncols(), *min_len, *shape, s.seed).map(matrix)
            }
            Self::Dense(s) => dense(s.rows, s.ncols(), s.seed).map(matrix),
            Self::Random { synthetic: s, row_len } => {
                random(s.rows, s.ncols(), *row_len, s.seed).map(matrix)
            }
            Self::Spd { n, row_len, seed, .. } => spd(*n, *row_len, *seed).map(matrix),
        }
    }
}
