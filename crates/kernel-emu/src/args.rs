//! Argument lists whose sizes are checked.

use crate::{Order, launch, parameter_bytes};
use std::ffi::c_void;
use std::marker::PhantomData;

/// The arguments of one launch: references to values of the kernel's parameter types.
#[derive(Debug, Clone, Default)]
pub struct Args<'a> {
    pointers: Vec<*mut c_void>,
    bytes: Vec<usize>,
    values: PhantomData<&'a ()>,
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

    /// Runs a kernel with these arguments, as [`launch`] does.
    ///
    /// # Errors
    ///
    /// Those of [`launch`], and a count or size that differs from the kernel's parameters.
    ///
    /// # Safety
    ///
    /// 1. Each argument has the type of its parameter; only the sizes are checked.
    /// 2. As point 2 of [`launch`].
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
        // SAFETY: there is one pointer per parameter, each to a value that is borrowed for 'a, and
        // the emulator only reads it; types and accesses are the caller's promise.
        unsafe { launch(expression, grid, block, shared_bytes, self.pointers.as_mut_ptr(), order) }
    }
}
