//! Argument lists with checked sizes.

use crate::{Order, Shape, launch_shape, parameter_bytes};
use std::ffi::c_void;
use std::marker::PhantomData;

/// The arguments of one launch: references to values of the kernel's parameter types.
#[derive(Debug, Clone)]
pub struct Args<'a> {
    pointers: Vec<*mut c_void>,
    bytes: Vec<usize>,
    cluster: u32,
    values: PhantomData<&'a ()>,
}

impl Default for Args<'_> {
    fn default() -> Self {
        Self { pointers: Vec::new(), bytes: Vec::new(), cluster: 1, values: PhantomData }
    }
}

impl<'a> Args<'a> {
    /// No arguments yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an argument: a number, a raw pointer to an array, or a `#[repr(C)]` struct.
    #[must_use]
    pub fn arg<T: Copy>(mut self, value: &'a T) -> Self {
        self.pointers.push(std::ptr::from_ref(value).cast_mut().cast());
        self.bytes.push(size_of::<T>());
        self
    }

    /// Runs the kernel in clusters of `blocks` blocks in x.
    #[must_use]
    pub fn cluster(mut self, blocks: u32) -> Self {
        self.cluster = blocks;
        self
    }

    /// Runs a kernel with these arguments, as [`launch`](crate::launch) does.
    ///
    /// # Errors
    ///
    /// Those of [`launch`](crate::launch), and arguments whose number or sizes differ from those of
    /// the kernel's parameters.
    ///
    /// # Safety
    ///
    /// 1. Each argument has the type of its parameter; only the sizes are checked.
    /// 2. As point 2 of [`launch`](crate::launch).
    pub unsafe fn launch(
        mut self,
        expression: &str,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        order: Order,
    ) -> Result<(), String> {
        let wanted = parameter_bytes(expression)?;
        if self.bytes != wanted {
            return Err(format!(
                "kernel {expression}: its parameters have {wanted:?} bytes, the arguments {:?}",
                self.bytes
            ));
        }
        let shape = Shape { grid, block, shared_bytes, cluster: self.cluster };
        // SAFETY: there is one pointer per parameter, each to a value that is borrowed for 'a, and
        // the emulator only reads it; types and accesses are the caller's promise.
        unsafe { launch_shape(expression, shape, self.pointers.as_mut_ptr(), order, None) }
    }
}
