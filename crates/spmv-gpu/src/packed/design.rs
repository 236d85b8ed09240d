//! The steps from a batch on the device to the arrays of a plan: cut the rows, choose the kernel
//! and the work of each block, and place everything.

use std::time::Duration;

use rayon::prelude::*;

use super::explain::PackedExplain;
use super::layout::{Layout, kinds};
use super::options::{Mode, PackedKernel, PackedOptions};
use super::pack::Rows;
use super::pieces::Pieces;
use super::source::ItemSizes;
use super::work::{Classes, Measured, PIECE_WORDS, PackedWork, WARP};
use crate::CsrArrays;
use sparsebatch_cuda::{DeviceInfo, Executor, GpuError, KernelKey, Value};

/// A batch in pieces whose rows are cut into segments.
pub(super) struct CutBatch<E: Executor> {
    pub(super) shape: ItemSizes,
    pieces: Pieces,
    pub(super) rows: Rows<E>,
    /// The measurements of each pattern.
    measured: Vec<Measured>,
}

impl<E: Executor> CutBatch<E> {
    /// Cuts the rows of a batch on the device and measures the result. Waits for it.
    pub(super) fn new<T: Value>(
        executor: &E,
        shape: ItemSizes,
        arrays: &CsrArrays<E, T>,
        options: &PackedOptions,
    ) -> Result<Self, GpuError> {
        let pieces = Pieces::new(&shape, options, executor.info())?;
        let rows = Rows::new::<T>(executor, &pieces, &arrays.row_ptr)?;
        let measured = rows.measure(executor, &pieces, &arrays.col_idx)?;
        Ok(Self { shape, pieces, rows, measured })
    }

    /// The measurements of piece `i`.
    fn measured(&self, i: usize) -> &Measured {
        &self.measured[self.pieces.pieces[i].pattern]
    }

    fn npieces(&self) -> usize {
        self.pieces.pieces.len()
    }

    /// Steps of all pieces.
    fn nsteps(&self) -> usize {
        (0..self.npieces()).map(|i| self.measured(i).nsteps as usize).sum()
    }

    /// The kernel, and the mode and class of each pattern.
    fn kernel_and_kinds<T: Value>(
        &self,
        info: &DeviceInfo,
        options: &PackedOptions,
        mean_steps: usize,
    ) -> Result<(PackedKernel, Vec<(Mode, usize)>), GpuError> {
        let kinds_with = |kernel| {
            let classes = classes::<T>(info, options, kernel);
            Ok((kernel, kinds(&self.shape, &self.pieces, &self.measured, &classes)?))
        };
        if let Some(kernel) = options.kernel {
            return kinds_with(kernel);
        }
        let longest =
            |warps| self.measured.iter().map(|m| m.longest_share(warps)).max().unwrap_or(0);
        let for_few = PackedKernel::for_few(info, self.npieces(), longest);
        // A batch for which it has no room is left to the usual kernel.
        if let Some((kernel, kinds)) = for_few.and_then(|kernel| kinds_with(kernel).ok())
            && kinds.iter().all(|(mode, _)| mode.joint && !mode.gathered)
        {
            return Ok((kernel, kinds));
        }
        kinds_with(PackedKernel::of(info, self.npieces(), mean_steps))
    }

    /// What the plan reports about pieces and blocks. Bytes and times are still zero.
    pub(super) fn explain(&self, work: &PackedWork) -> PackedExplain {
        PackedExplain {
            launches: work.launches.len(),
            blocks: work.chunks.len() - 1,
            nnz: self.shape.before(self.shape.nitems())[2] as u64,
            slots: (self.nsteps() * WARP) as u64,
            pieces: self.npieces(),
            pieces_cut: (0..self.npieces()).filter(|&i| self.measured(i).is_cut()).count(),
            device_bytes: 0,
            matrix_bytes: 0,
            product_bytes: 0,
            packing: Duration::ZERO,
            setup: Duration::ZERO,
        }
    }
}

fn classes<'a, T: Value>(
    info: &'a DeviceInfo,
    options: &PackedOptions,
    kernel: PackedKernel,
) -> Classes<'a> {
    Classes { info, kernel, value_bytes: size_of::<T>(), nrhs: options.nrhs }
}

/// What a plan will be, before its memory is allocated.
pub(super) struct Design {
    pub(super) kernel: PackedKernel,
    pub(super) work: PackedWork,
    pub(super) layout: Layout,
    /// The description of each piece, in the order of the work.
    pub(super) described: Vec<[u64; PIECE_WORDS]>,
}

impl Design {
    /// Chooses the kernel and the work of each block, and places all arrays.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for a system whose rows do not fit the shared memory of a
    /// block.
    pub(super) fn new<T: Value>(
        info: &DeviceInfo,
        cut: &CutBatch<impl Executor>,
        options: &PackedOptions,
    ) -> Result<Self, GpuError> {
        let CutBatch { shape, pieces, measured, .. } = cut;
        let npieces = cut.npieces();
        let mean_steps = cut.nsteps() / npieces.max(1);
        let (kernel, kinds) = cut.kernel_and_kinds::<T>(info, options, mean_steps)?;
        let kind = |i: usize| {
            let (mode, class) = kinds[pieces.pieces[i].pattern];
            (cut.measured(i), mode, class)
        };
        let classes = classes::<T>(info, options, kernel);
        let work = classes.work(npieces, kind, options.chosen_share(mean_steps));
        let layout = Layout::new::<T>(shape, pieces, measured, &kinds);
        let described = (work.order.par_iter().zip(&work.warps()))
            .map(|(&i, &warps)| {
                let i = i as usize;
                let measured = &measured[pieces.pieces[i].pattern];
                layout
                    .places(shape, &pieces.pieces[i], measured, i, options.nrhs)
                    .words(measured, warps)
            })
            .collect();
        Ok(Self { kernel, work, layout, described })
    }

    /// The kernels that a product launches.
    pub(super) fn keys<T: Value>(&self) -> Vec<KernelKey> {
        let launches = self.work.launches.iter();
        launches.map(|launch| self.kernel.key::<T>(launch.warps, launch.mode)).collect()
    }

    /// Bytes of the plan's arrays on the device, without the jobs.
    pub(super) fn bytes(&self) -> u64 {
        self.layout.value_bytes
            + self.layout.column_bytes
            + 2 * self.layout.index_len
            + (8 * PIECE_WORDS * self.described.len()) as u64
            + 4 * self.work.chunks.len() as u64
    }
}
