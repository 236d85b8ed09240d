//! Page-locked memory of the caller, from which devices copy directly.

use kernel_emu::{Emulator, Order};
use sparsebatch_cuda::{Executor, GpuError, lending};
use sparsebatch_solvers::solve_on_executor;

use crate::backends::chunks::{in_chunks, lu, uniform};
use crate::backends::common::{cg, rhs};

#[test]
fn lenders_copy_from_page_locked_memory_alone() {
    let values = [1.0, 2.0, 3.0];
    let pageable = Emulator::new(Order::Forward);
    for executor in [pageable.clone(), pageable.with_page_locked_memory()] {
        let mut buffer = executor.upload(&[0.0; 3]).unwrap();
        let takes = executor.is_page_locked(&values);

        let copied = lending(&executor, |lender| lender.copy(&values, &mut buffer));

        let found = executor.download(&buffer).unwrap();
        if takes {
            assert_eq!((copied, &found[..], executor.lent()), (Ok(()), &values[..], 3));
        } else {
            assert!(matches!(copied, Err(GpuError::InvalidArgument { name: "values", .. })));
            assert_eq!(found, [0.0; 3]);
        }
    }
}

/// Values and right-hand sides in page-locked memory are copied from there, but for those of a chunk
/// that is not full or has systems that are not wanted.
#[test]
fn page_locked_memory_gives_the_same_bits() {
    let batch = uniform(31, 12);
    let b = rhs(&batch, 2);
    let nnz = batch.pattern(0).nnz();
    for options in [cg(), lu()] {
        let options = options.nrhs(2);
        let solve = |executor: &Emulator| {
            let backend = in_chunks(executor, 5000, 2);
            solve_on_executor(&backend, &batch, &b, None, &options).unwrap()
        };
        let staged = Emulator::new(Order::Forward);
        let locked = staged.clone().with_page_locked_memory();

        let expected = solve(&staged);
        assert_eq!(staged.lent(), 0);
        let found = solve(&locked);

        assert_eq!((&found.report.systems, &found.x), (&expected.report.systems, &expected.x));
        let chunks = found.report.runs[0].chunks;
        let full = 31 / 31usize.div_ceil(chunks) * 31usize.div_ceil(chunks);
        assert!(chunks > 1 && full < 31, "{chunks} chunks, of which one is not full");
        assert_eq!(locked.lent(), (full * (nnz + 24)) as u64);
    }
}
