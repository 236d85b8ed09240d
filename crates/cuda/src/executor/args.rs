//! The arguments of a launch.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use super::{KernelBuffer, Pod};
use crate::GpuError;

/// Maximum number of arguments of a launch.
pub const MAX_ARGS: usize = 48;
/// Maximum number of eight-byte words of all arguments of a launch.
const MAX_WORDS: usize = 64;

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The address of a buffer.
    Pointer,
    /// `unsigned int`.
    U32,
    /// `int`.
    I32,
    /// `unsigned long long`.
    U64,
    /// `float`.
    F32,
    /// `double`.
    F64,
    /// A `#[repr(C)]` struct of so many eight-byte words.
    Struct(u8),
}

impl Kind {
    /// The size of the kernel parameter in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::Pointer | Self::U64 | Self::F64 => 8,
            Self::Struct(words) => 8 * usize::from(words),
        }
    }
}

/// A value that kernels take by value: `u32`, `i32`, `u64`, `f32`, `f64`.
pub trait KernelScalar: Pod {
    /// The kind of the argument.
    const KIND: Kind;
    /// The bytes of the value, starting at the first byte of the slot.
    fn slot(self) -> [u8; 8];
}

macro_rules! scalar {
    ($($t:ty => $kind:ident),*) => {$(
        impl KernelScalar for $t {
            const KIND: Kind = Kind::$kind;
            fn slot(self) -> [u8; 8] {
                let mut slot = [0; 8];
                slot[..size_of::<$t>()].copy_from_slice(&self.to_ne_bytes());
                slot
            }
        }
    )*};
}
scalar!(u32 => U32, i32 => I32, u64 => U64, f32 => F32, f64 => F64);

/// The arguments of one launch, in the order of the kernel's parameters. Lives on the stack:
/// collecting arguments allocates nothing.
///
/// Buffers stay borrowed while the arguments live, outputs exclusively.
///
/// ```
/// use sparsebatch_cuda::{Args, executor::Kind};
/// let mut args = Args::new();
/// args.scalar(7_u64).scalar(0.5_f64);
/// assert_eq!(args.kinds(), [Kind::U64, Kind::F64]);
/// ```
#[derive(Debug)]
pub struct Args<'a> {
    len: usize,
    kinds: [Kind; MAX_ARGS],
    // Index of the first word of each argument.
    starts: [u8; MAX_ARGS],
    // Eight-byte words, so that every kind is aligned.
    words: [u64; MAX_WORDS],
    used: usize,
    pointers: [*mut c_void; MAX_ARGS],
    buffers: PhantomData<&'a mut ()>,
}

impl Default for Args<'_> {
    fn default() -> Self {
        Self {
            len: 0,
            kinds: [Kind::U64; MAX_ARGS],
            starts: [0; MAX_ARGS],
            words: [0; MAX_WORDS],
            used: 0,
            pointers: [ptr::null_mut(); MAX_ARGS],
            buffers: PhantomData,
        }
    }
}

impl<'a> Args<'a> {
    /// No arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value.
    ///
    /// # Panics
    /// Beyond [`MAX_ARGS`] arguments.
    pub fn scalar<S: KernelScalar>(&mut self, value: S) -> &mut Self {
        self.push(S::KIND, u64::from_ne_bytes(value.slot()))
    }

    /// Adds a buffer that the kernel only reads.
    ///
    /// # Panics
    /// Beyond [`MAX_ARGS`] arguments.
    pub fn input<T: Pod>(&mut self, buffer: &'a impl KernelBuffer<T>) -> &mut Self {
        self.push(Kind::Pointer, buffer.raw())
    }

    /// Adds the part of a buffer from index `first` on, which the kernel reads.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] when `first` is beyond the end.
    ///
    /// # Panics
    /// Beyond [`MAX_ARGS`] arguments.
    pub fn input_from<T: Pod>(
        &mut self,
        buffer: &'a impl KernelBuffer<T>,
        first: usize,
    ) -> Result<&mut Self, GpuError> {
        let address = address_of(buffer.raw(), buffer.len(), size_of::<T>(), first)?;
        Ok(self.push(Kind::Pointer, address))
    }

    /// Adds a buffer that the kernel writes.
    ///
    /// # Panics
    /// Beyond [`MAX_ARGS`] arguments.
    pub fn output<T: Pod>(&mut self, buffer: &'a mut impl KernelBuffer<T>) -> &mut Self {
        self.push(Kind::Pointer, buffer.raw())
    }

    /// Adds the part of a buffer from index `first` on, which the kernel writes.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] when `first` is beyond the end.
    ///
    /// # Panics
    /// Beyond [`MAX_ARGS`] arguments.
    pub fn output_from<T: Pod>(
        &mut self,
        buffer: &'a mut impl KernelBuffer<T>,
        first: usize,
    ) -> Result<&mut Self, GpuError> {
        let address = address_of(buffer.raw(), buffer.len(), size_of::<T>(), first)?;
        Ok(self.push(Kind::Pointer, address))
    }

    /// Adds an address of memory outside buffers, or a null pointer.
    ///
    /// # Panics
    /// Beyond [`MAX_ARGS`] arguments.
    pub fn raw(&mut self, address: u64) -> &mut Self {
        self.push(Kind::Pointer, address)
    }

    /// Adds a `#[repr(C)]` struct, given as its eight-byte words in order: two neighbouring 32-bit
    /// fields share a word, the first in its lower half.
    ///
    /// # Panics
    /// Beyond [`MAX_ARGS`] arguments, or 64 words in all arguments.
    pub fn structure<const N: usize>(&mut self, words: [u64; N]) -> &mut Self {
        const { assert!(0 < N && N <= MAX_WORDS, "a struct of 1 to 64 words") };
        self.push_words(Kind::Struct(N as u8), &words)
    }

    /// The kinds, in order.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds[..self.len]
    }

    /// The arguments as `cuLaunchKernel` takes them: one pointer to each value, valid until the
    /// arguments are moved or changed.
    pub fn pointers(&mut self) -> &mut [*mut c_void] {
        let first = self.words.as_mut_ptr();
        for (pointer, &start) in self.pointers[..self.len].iter_mut().zip(&self.starts) {
            *pointer = first.wrapping_add(usize::from(start)).cast();
        }
        &mut self.pointers[..self.len]
    }

    fn push(&mut self, kind: Kind, word: u64) -> &mut Self {
        self.push_words(kind, &[word])
    }

    fn push_words(&mut self, kind: Kind, words: &[u64]) -> &mut Self {
        assert!(self.len < MAX_ARGS, "a launch has at most {MAX_ARGS} arguments");
        let (start, end) = (self.used, self.used + words.len());
        assert!(end <= MAX_WORDS, "the arguments of a launch have at most {MAX_WORDS} words");
        self.kinds[self.len] = kind;
        self.starts[self.len] = start as u8;
        self.words[start..end].copy_from_slice(words);
        (self.len, self.used) = (self.len + 1, end);
        self
    }
}

/// The address of the value at index `first`, which may be one past the last.
fn address_of(raw: u64, len: usize, bytes: usize, first: usize) -> Result<u64, GpuError> {
    if first > len {
        return Err(GpuError::InvalidArgument {
            name: "first",
            expected: format!("at most {len}, the length of the buffer"),
            found: first.to_string(),
        });
    }
    Ok(raw + (first * bytes) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Host(Vec<f64>);

    impl KernelBuffer<f64> for Host {
        fn raw(&self) -> u64 {
            self.0.as_ptr() as u64
        }
        fn len(&self) -> usize {
            self.0.len()
        }
    }

    #[test]
    #[expect(unsafe_code, reason = "reads arguments as a launch does")]
    fn every_kind_is_read_back_through_its_pointer() {
        let x = Host(vec![1.5, 2.5]);
        let mut y = Host(vec![0.0; 2]);
        let (x_address, y_address) = (x.raw(), y.raw());
        let mut args = Args::new();

        args.scalar(u32::MAX).scalar(-7_i32).scalar(1_u64 << 40).scalar(0.25_f32).scalar(-0.5_f64);
        args.input(&x).output(&mut y);
        let p: Vec<*mut c_void> = args.pointers().to_vec();

        // SAFETY: each pointer is to a slot of `args`, which holds a value of the type read.
        unsafe {
            assert_eq!(*p[0].cast::<u32>(), u32::MAX);
            assert_eq!(*p[1].cast::<i32>(), -7);
            assert_eq!(*p[2].cast::<u64>(), 1 << 40);
            assert_eq!(*p[3].cast::<f32>(), 0.25);
            assert_eq!(*p[4].cast::<f64>(), -0.5);
            assert_eq!(*p[5].cast::<u64>(), x_address);
            assert_eq!(*p[6].cast::<u64>(), y_address);
        }
        assert_eq!(p.len(), 7);
    }

    #[test]
    #[expect(unsafe_code, reason = "reads arguments as a launch does")]
    fn pointers_follow_arguments_that_were_moved() {
        let mut first = Args::new();
        first.scalar(3_u32);
        first.pointers();
        let mut moved = Box::new(first);

        let pointer = moved.pointers()[0];

        // SAFETY: the pointer is to a slot of `moved`, which holds a `u32`.
        assert_eq!(unsafe { *pointer.cast::<u32>() }, 3);
    }

    #[test]
    fn kinds_are_in_order_with_their_sizes() {
        let x = Host(vec![]);
        let mut args = Args::new();

        args.scalar(1_i32).input(&x).scalar(1.0_f32).raw(0);

        assert_eq!(args.kinds(), [Kind::I32, Kind::Pointer, Kind::F32, Kind::Pointer]);
        assert_eq!(args.kinds().iter().map(|k| k.bytes()).collect::<Vec<_>>(), [4, 8, 4, 8]);
    }

    #[test]
    #[expect(unsafe_code, reason = "reads arguments as a launch does")]
    fn offsets_count_values_and_end_at_the_length() {
        let x = Host(vec![0.0; 4]);
        let mut args = Args::new();

        args.input_from(&x, 3).unwrap().input_from(&x, 4).unwrap();
        let error = args.input_from(&x, 5).unwrap_err();

        assert_eq!(error.to_string(), "first is 5, expected at most 4, the length of the buffer");
        // SAFETY: both pointers are to slots that hold addresses.
        let found =
            unsafe { [*args.pointers()[0].cast::<u64>(), *args.pointers()[1].cast::<u64>()] };
        assert_eq!(found, [x.raw() + 24, x.raw() + 32]);
    }

    #[test]
    #[expect(unsafe_code, reason = "reads arguments as a launch does")]
    fn structs_lie_as_c_lays_them_out() {
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[repr(C)]
        struct Limits {
            tolerance: f64,
            array: u64,
            most: u32,
            restarts: u32,
        }
        let mut args = Args::new();

        args.scalar(7_u32).structure([0.5_f64.to_bits(), 1 << 40, 3 | 9 << 32]).scalar(8_u32);

        let p: Vec<*mut c_void> = args.pointers().to_vec();
        // SAFETY: the first and the last pointer are to slots that hold a `u32`, the other one is to
        // three words of `words`, of which each bit pattern is a `Limits`.
        let (first, limits, last) =
            unsafe { (*p[0].cast::<u32>(), *p[1].cast::<Limits>(), *p[2].cast::<u32>()) };
        assert_eq!((first, last), (7, 8));
        assert_eq!(limits, Limits { tolerance: 0.5, array: 1 << 40, most: 3, restarts: 9 });
        assert_eq!(args.kinds(), [Kind::U32, Kind::Struct(3), Kind::U32]);
        assert_eq!(args.kinds()[1].bytes(), size_of::<Limits>());
    }

    #[test]
    #[should_panic(expected = "at most 64 words")]
    fn too_many_words_are_a_bug() {
        Args::new().structure([0; 40]).structure([0; 25]);
    }

    #[test]
    #[should_panic(expected = "at most 48 arguments")]
    fn too_many_arguments_are_a_bug() {
        let mut args = Args::new();

        for _ in 0..=MAX_ARGS {
            args.scalar(0_u32);
        }
    }
}
