//! [`ItemList`]: values of some items of a batch, packed into small arrays and back.

use sparsebatch_cuda::{
    Args, Executor, GpuError, KernelBuffer, KernelKey, LaunchConfig, Pod, Value,
};
use sparsebatch_solve_core::{ArgumentError, Outcome, check_len};

use super::kernels::ITEMS;
use super::outcomes::Outcomes;
use crate::GpuSolveError;

const THREADS: u32 = 256;

/// Some items of a batch on the device, to copy what belongs to them.
pub struct ItemList<E: Executor> {
    executor: E,
    items: E::Buffer<u32>,
    /// Number of items of the batch.
    nitems: usize,
}

impl<E: Executor + Clone> ItemList<E> {
    /// Compiles the kernels for the values of `T`, so that later copies need not.
    ///
    /// # Errors
    /// [`GpuError::Compile`] and the like.
    pub fn prepare<T: Value>(executor: &E) -> Result<(), GpuError> {
        let key = |text: String| KernelKey::new(&ITEMS, text);
        executor.prepare(&[
            key(format!("gather_items<{}>", T::CPP)),
            key(format!("scatter_items<{}>", T::CPP)),
            key("scatter_items<u8>".to_owned()),
            key("scatter_items<u32>".to_owned()),
            key("scatter_items<double>".to_owned()),
        ])
    }

    /// The given items, in ascending order, of a batch of `nitems`.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for an item that the batch does not have or that does not follow
    /// the one before, [`GpuSolveError::Gpu`] when memory is short.
    pub fn new(executor: &E, items: &[usize], nitems: usize) -> Result<Self, GpuSolveError> {
        let is_beyond = |item: usize| item >= nitems || u32::try_from(item).is_err();
        let wrong = (0..items.len()).find(|&place| {
            is_beyond(items[place]) || (place > 0 && items[place] <= items[place - 1])
        });
        if let Some(place) = wrong {
            return Err(GpuSolveError::Argument(ArgumentError::OutOfRange {
                name: "items",
                expected: "items of the batch in ascending order",
                found: format!("{} at place {place}, of {nitems}", items[place]),
            }));
        }
        let items: Vec<u32> = items.iter().map(|&item| item as u32).collect();
        Ok(Self { items: executor.upload(&items)?, executor: executor.clone(), nitems })
    }

    /// The values of these items, item by item, where each item of the batch has as many values as
    /// the others. Waits.
    ///
    /// # Errors
    /// [`GpuSolveError::Gpu`] with what the device reports.
    pub fn gather<T: Value>(&self, all: &E::Buffer<T>) -> Result<Vec<T>, GpuSolveError> {
        let len = self.len_of_item(all.len())?;
        let count = self.items.len() * len;
        let mut packed = self.executor.alloc(count)?;
        let mut args = Args::new();
        args.scalar(self.items.len() as u64)
            .scalar(len as u64)
            .input(&self.items)
            .input(all)
            .output(&mut packed);
        self.launch(format!("gather_items<{}>", T::CPP), &mut args, count)?;
        Ok(self.executor.download(&packed)?)
    }

    /// Overwrites the values of these items, given item by item. Waits for the upload.
    ///
    /// # Errors
    /// [`GpuSolveError::Argument`] for another number of values, [`GpuSolveError::Gpu`] with what the
    /// device reports.
    pub fn scatter<T: Pod>(
        &self,
        packed: &[T],
        all: &mut E::Buffer<T>,
    ) -> Result<(), GpuSolveError> {
        let len = self.len_of_item(all.len())?;
        check_len("values of the items", self.items.len() * len, packed.len())?;
        let packed = self.executor.upload(packed)?;
        let mut args = Args::new();
        args.scalar(self.items.len() as u64)
            .scalar(len as u64)
            .input(&self.items)
            .input(&packed)
            .output(all);
        self.launch(format!("scatter_items<{}>", T::CPP_NAME), &mut args, packed.len())?;
        // `packed` must outlive the launch.
        Ok(self.executor.synchronize()?)
    }

    /// Overwrites the outcomes of these items, given item by item.
    ///
    /// # Errors
    /// As [`ItemList::scatter`].
    pub fn scatter_outcomes(
        &self,
        outcomes: &[Outcome],
        all: &mut Outcomes<E>,
    ) -> Result<(), GpuSolveError> {
        all.overwrite(self, outcomes)
    }

    /// Values per item of an array with `all` values.
    fn len_of_item(&self, all: usize) -> Result<usize, GpuSolveError> {
        let len = all / self.nitems.max(1);
        check_len("values of all items", len * self.nitems, all)?;
        Ok(len)
    }

    #[expect(unsafe_code, reason = "a launch")]
    fn launch(
        &self,
        expression: String,
        args: &mut Args<'_>,
        values: usize,
    ) -> Result<(), GpuError> {
        if values == 0 {
            return Ok(());
        }
        let most = 8 * self.executor.info().multiprocessors.max(1);
        let blocks = (values as u64).div_ceil(u64::from(THREADS)).min(u64::from(most));
        let config = LaunchConfig::linear(blocks as u32, THREADS);
        let key = KernelKey::new(&ITEMS, expression);
        // SAFETY: the arguments are those of `gather_items` or `scatter_items`; items are below
        // `nitems`, each of which has `len` values in `all`, and `packed` has `len` for each item of
        // the list; the two are different buffers.
        unsafe { self.executor.launch(&key, config, args) }
    }
}
