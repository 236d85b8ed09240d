//! A call of a handler: its arrays, attributes and stream, checked ([`Frame`]).

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::slice;

use super::structs::{
    ApiVersion, Arrays, BUFFER, Buffer, ByteSpan, CallFrame, DeviceOrdinalGetArgs, Error,
    ErrorDestroyArgs, MAJOR, SCALAR, STRING, Scalar, StreamGetArgs, size_to,
};
use super::{Code, Failure};

/// The elements of an array.
///
/// # Safety
/// `CODE` is XLA's number for this type, whose every bit pattern is a value.
pub(in crate::jax) unsafe trait Element: Copy {
    const CODE: c_int;
}

// SAFETY: the numbers are those of XLA's `PrimitiveType`.
unsafe impl Element for i32 {
    const CODE: c_int = 4;
}
// SAFETY: as above.
unsafe impl Element for f32 {
    const CODE: c_int = 11;
}
// SAFETY: as above.
unsafe impl Element for f64 {
    const CODE: c_int = 12;
}

/// An array of a call, in the memory of the platform of the handler.
pub(in crate::jax) struct Array<'a> {
    dtype: c_int,
    dims: &'a [i64],
    data: *mut c_void,
}

impl<'a> Array<'a> {
    /// The array of a frame at this place.
    ///
    /// # Safety
    /// `arrays` is that of a call that XLA makes, and outlives `'a`.
    unsafe fn at(arrays: &'a Arrays, place: usize) -> Result<Self, Failure> {
        if i64::try_from(place).is_ok_and(|place| place >= arrays.size) {
            return Err(Failure::argument(format!("the call has no array {place}")));
        }
        // SAFETY: XLA gives `size` kinds and arrays.
        let (kind, array) = unsafe { (*arrays.kinds.add(place), *arrays.arrays.add(place)) };
        if kind != BUFFER || array.is_null() {
            return Err(Failure::argument(format!("array {place} of the call is no buffer")));
        }
        // SAFETY: arrays of this kind are buffers, which live as long as the call.
        let buffer = unsafe { &*array.cast::<Buffer>() };
        if buffer.struct_size < size_to!(Buffer, dims: *mut i64) {
            return Err(Failure::version("a buffer is shorter than in version 0.1"));
        }
        let dims = match usize::try_from(buffer.rank) {
            Ok(0) | Err(_) => &[][..],
            // SAFETY: XLA gives `rank` dimensions.
            Ok(rank) => unsafe { slice::from_raw_parts(buffer.dims, rank) },
        };
        Ok(Self { dtype: buffer.dtype, dims, data: buffer.data })
    }

    /// Whether the elements are of this type.
    pub(in crate::jax) fn is_of<T: Element>(&self) -> bool {
        self.dtype == T::CODE
    }

    pub(in crate::jax) fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The length of an axis; 1 for one that the array does not have.
    pub(in crate::jax) fn dim(&self, axis: usize) -> usize {
        self.dims.get(axis).map_or(1, |&dim| usize::try_from(dim).unwrap_or(0))
    }

    pub(in crate::jax) fn len(&self) -> usize {
        (0..self.rank()).map(|axis| self.dim(axis)).product()
    }

    /// The address, checked for the type.
    pub(in crate::jax) fn address<T: Element>(&self) -> Result<u64, Failure> {
        if !self.is_of::<T>() {
            let (found, expected) = (self.dtype, T::CODE);
            return Err(Failure::argument(format!(
                "an array has elements of type {found}, expected {expected} of xla::PrimitiveType"
            )));
        }
        if !self.data.cast::<T>().is_aligned() {
            return Err(Failure::argument("an array is not aligned".to_owned()));
        }
        Ok(self.data as u64)
    }

    /// The elements of an argument in host memory.
    pub(in crate::jax) fn values<T: Element>(&self) -> Result<&'a [T], Failure> {
        self.address::<T>()?;
        match self.len() {
            0 => Ok(&[]),
            // SAFETY: the buffer has this type and its dimensions, is aligned, and is not written
            // to before the call has ended.
            len => Ok(unsafe { slice::from_raw_parts(self.data.cast(), len) }),
        }
    }
}

/// A result of a call, which is written to.
pub(in crate::jax) struct Output<'a>(Array<'a>);

impl<'a> Output<'a> {
    pub(in crate::jax) fn array(&self) -> &Array<'a> {
        &self.0
    }

    /// The elements in host memory.
    pub(in crate::jax) fn into_values<T: Element>(self) -> Result<&'a mut [T], Failure> {
        self.0.address::<T>()?;
        match self.0.len() {
            0 => Ok(&mut []),
            // SAFETY: as for `Array::values`; every bit pattern is a value, results overlap no
            // other array, and `Frame::results` gives each of them once.
            len => Ok(unsafe { slice::from_raw_parts_mut(self.0.data.cast(), len) }),
        }
    }
}

/// A call of a handler.
pub(in crate::jax) struct Frame<'a> {
    frame: &'a CallFrame,
    results_are_taken: bool,
    // Pointers of the frame belong to the thread that XLA calls on.
    _not_send: PhantomData<*const ()>,
}

impl<'a> Frame<'a> {
    /// The call, if its structs are those that are known here.
    ///
    /// # Safety
    /// `frame` is one that XLA calls a handler with, and the call lasts for `'a`.
    pub(super) unsafe fn new(frame: &'a CallFrame) -> Result<Self, Failure> {
        // SAFETY: XLA gives its functions with each call.
        let version = unsafe { version_of(frame) };
        if version.is_none_or(|(major, _)| major != MAJOR) {
            let found =
                version.map_or("none".to_owned(), |(major, minor)| format!("{major}.{minor}"));
            return Err(Failure::version(&format!("XLA has version {found}")));
        }
        Ok(Self { frame, results_are_taken: false, _not_send: PhantomData })
    }

    /// The number of arguments.
    pub(in crate::jax) fn narguments(&self) -> usize {
        usize::try_from(self.frame.arguments.size).unwrap_or(0)
    }

    pub(in crate::jax) fn argument(&self, place: usize) -> Result<Array<'a>, Failure> {
        // SAFETY: the frame is one of XLA and lives for `'a`.
        unsafe { Array::at(&self.frame.arguments, place) }
    }

    /// The two results, once.
    pub(in crate::jax) fn results(&mut self) -> Result<(Output<'a>, Output<'a>), Failure> {
        if std::mem::replace(&mut self.results_are_taken, true) {
            return Err(Failure::argument("the results were taken".to_owned()));
        }
        // SAFETY: the frame is one of XLA and lives for `'a`.
        let at = |place| unsafe { Array::at(&self.frame.results, place) };
        Ok((Output(at(0)?), Output(at(1)?)))
    }

    /// The attribute with this name and of this kind.
    fn attribute(&self, name: &str, kind: c_int) -> Result<*mut c_void, Failure> {
        let attributes = &self.frame.attributes;
        let size = usize::try_from(attributes.size).unwrap_or(0);
        for place in 0..size {
            // SAFETY: XLA gives `size` names, kinds and attributes; names are byte spans.
            let (own, own_kind, attribute) = unsafe {
                let span = &**attributes.names.add(place);
                (bytes(span), *attributes.kinds.add(place), *attributes.attributes.add(place))
            };
            if own == name.as_bytes() && own_kind == kind && !attribute.is_null() {
                return Ok(attribute);
            }
        }
        Err(Failure::argument(format!("the call has no attribute {name}")))
    }

    /// The attribute with this name, a string.
    pub(in crate::jax) fn text(&self, name: &str) -> Result<&'a str, Failure> {
        let attribute = self.attribute(name, STRING)?;
        // SAFETY: attributes of this kind are byte spans, which live as long as the call.
        let bytes = unsafe { bytes(&*attribute.cast::<ByteSpan>()) };
        let text = std::str::from_utf8(bytes);
        text.map_err(|_| Failure::argument(format!("attribute {name} is no text")))
    }

    /// Whether the attribute with this name, a number of 32 bits, is not 0.
    pub(in crate::jax) fn flag(&self, name: &str) -> Result<bool, Failure> {
        let attribute = self.attribute(name, SCALAR)?;
        // SAFETY: attributes of this kind are scalars, whose value has the type that they tell.
        let scalar = unsafe { &*attribute.cast::<Scalar>() };
        if scalar.dtype != <i32 as Element>::CODE {
            return Err(Failure::argument(format!("attribute {name} is no int32")));
        }
        // SAFETY: as above.
        Ok(unsafe { scalar.value.cast::<i32>().read_unaligned() } != 0)
    }

    /// The address of the CUDA stream of the call.
    pub(in crate::jax) fn stream(&self) -> Result<u64, Failure> {
        let mut args = StreamGetArgs {
            struct_size: size_to!(StreamGetArgs, stream: *mut c_void),
            extension: std::ptr::null_mut(),
            context: self.frame.context,
            stream: std::ptr::null_mut(),
        };
        // SAFETY: `Frame::new` has found the functions up to this one; it takes this struct.
        let error = unsafe {
            match (*self.frame.api).stream_get {
                Some(get) => get(&raw mut args),
                None => return Err(Failure::version("XLA has no streams")),
            }
        };
        self.refused(error, "XLA has no stream for this call")?;
        Ok(args.stream as u64)
    }

    /// The number of the GPU of the call.
    pub(in crate::jax) fn ordinal(&self) -> Result<usize, Failure> {
        let missing = || Failure::version("XLA does not tell the number of the device");
        type Get = unsafe extern "C" fn(*mut DeviceOrdinalGetArgs) -> *mut Error;
        // SAFETY: XLA gives its functions with each call, and tells how many they are.
        let get = unsafe {
            let api = self.frame.api;
            match (*api).struct_size
                >= size_to!(super::structs::Api, device_ordinal_get: Option<Get>)
            {
                true => (*api).device_ordinal_get.ok_or_else(missing)?,
                false => return Err(missing()),
            }
        };
        let mut args = DeviceOrdinalGetArgs {
            struct_size: size_to!(DeviceOrdinalGetArgs, ordinal: i32),
            extension: std::ptr::null_mut(),
            context: self.frame.context,
            ordinal: 0,
        };
        // SAFETY: the function takes this struct.
        let error = unsafe { get(&raw mut args) };
        self.refused(error, "XLA has no number for the device")?;
        usize::try_from(args.ordinal).map_err(|_| missing())
    }

    /// Frees an error that a function of XLA has returned.
    fn refused(&self, error: *mut Error, message: &str) -> Result<(), Failure> {
        if error.is_null() {
            return Ok(());
        }
        let mut args = ErrorDestroyArgs {
            struct_size: size_to!(ErrorDestroyArgs, error: *mut Error),
            extension: std::ptr::null_mut(),
            error,
        };
        // SAFETY: the caller of XLA's functions owns their errors.
        unsafe {
            if let Some(destroy) = (*self.frame.api).error_destroy {
                destroy(&raw mut args);
            }
        }
        Err(Failure { code: Code::Internal, message: message.to_owned() })
    }
}

/// The bytes of a span.
///
/// # Safety
/// XLA gave the span, and keeps its bytes for `'a`.
unsafe fn bytes<'a>(span: &ByteSpan) -> &'a [u8] {
    match span.len {
        0 => &[],
        // SAFETY: see above.
        len => unsafe { slice::from_raw_parts(span.start, len) },
    }
}

/// The version of XLA's interface, if the frame has the functions that are used here.
///
/// # Safety
/// `frame` is one that XLA calls a handler with.
pub(super) unsafe fn version_of(frame: &CallFrame) -> Option<(c_int, c_int)> {
    type Get = unsafe extern "C" fn(*mut StreamGetArgs) -> *mut Error;
    if frame.api.is_null() {
        return None;
    }
    // SAFETY: XLA's functions begin with the size of their struct, and its version.
    unsafe {
        if (*frame.api).struct_size < size_to!(super::structs::Api, stream_get: Option<Get>) {
            return None;
        }
        let ApiVersion { major, minor, .. } = &(*frame.api).version;
        Some((*major, *minor))
    }
}
