//! Memory of the caller: arrays, strings, structs.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::{ptr, slice};

use sparsebatch::gpu::{DeviceBuffer, Pod};

use super::options::count;
use crate::status::{Failure, check_len};

/// A struct whose first field is its size in bytes, a `size_t`.
pub(crate) trait Versioned: Default + Copy {
    const NAME: &'static str;
}

/// An array that is read, in host memory or on a device.
#[derive(Clone, Copy)]
pub(crate) struct Input {
    name: &'static str,
    address: *const c_void,
    len: usize,
}

// SAFETY: the constructor asks for memory that any thread may read.
unsafe impl Send for Input {}

/// An array that is written to, in host memory or on a device.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    input: Input,
}

/// The error of an address that elements cannot have.
fn check_address<T>(name: &str, address: *const T, len: usize) -> Result<(), Failure> {
    if address.is_null() && len > 0 {
        return Err(Failure::argument(format!("{name} is NULL, expected an array of {len}")));
    }
    if !address.is_aligned() {
        return Err(Failure::argument(format!(
            "{name} is at {address:p}, expected a multiple of {}",
            align_of::<T>()
        )));
    }
    match len.checked_mul(size_of::<T>()) {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(()),
        _ => Err(Failure::argument(format!("{name} has {len} entries, more than memory can hold"))),
    }
}

impl Input {
    /// An array of `len` elements.
    ///
    /// # Safety
    /// For `len` at least 0, `address` is NULL or holds `len` elements of the type that the
    /// function says, in the memory that it says. Nobody writes to them, or frees them, while the
    /// library uses them: until the call has ended, for values of a solver until others are set or
    /// it is destroyed, on a device until the work that was enqueued is done.
    pub(crate) unsafe fn new<V>(
        name: &'static str,
        address: *const V,
        len: i64,
    ) -> Result<Self, Failure> {
        Ok(Self { name, address: address.cast(), len: count(name, len)? })
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    pub(crate) fn name(self) -> &'static str {
        self.name
    }

    pub(crate) fn address(self) -> *const c_void {
        self.address
    }

    /// Its bytes.
    pub(crate) fn bytes<T>(self) -> Range<usize> {
        let start = self.address.addr();
        start..start.saturating_add(self.len.saturating_mul(size_of::<T>()))
    }

    /// The elements in host memory.
    pub(crate) fn slice<T: Pod>(&self) -> Result<&[T], Failure> {
        let address = self.address.cast::<T>();
        check_address(self.name, address, self.len)?;
        if self.len == 0 {
            return Ok(&[]);
        }
        // SAFETY: not null, aligned, and of `len` elements by the contract of the constructor; any
        // bits are a value.
        Ok(unsafe { slice::from_raw_parts(address, self.len) })
    }

    /// The elements on a device.
    pub(crate) fn buffer<T: Pod>(self) -> Result<DeviceBuffer<T>, Failure> {
        check_address(self.name, self.address.cast::<T>(), self.len)?;
        // SAFETY: by the contract of the constructor; the stream orders other writes.
        Ok(unsafe { DeviceBuffer::from_raw(self.address.addr() as u64, self.len) })
    }

    /// An owner of the array in host memory.
    pub(crate) fn borrowed<T: Pod>(self) -> Result<Borrowed<T>, Failure> {
        let address = self.slice::<T>()?.as_ptr();
        Ok(Borrowed { address, len: self.len })
    }
}

/// An array of the caller, which keeps it alive.
pub(crate) struct Borrowed<T> {
    address: *const T,
    len: usize,
}

// SAFETY: the constructor of `Input` asks for memory that any thread may read.
unsafe impl<T: Sync> Send for Borrowed<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Borrowed<T> {}

impl<T> AsRef<[T]> for Borrowed<T> {
    fn as_ref(&self) -> &[T] {
        // SAFETY: address and length are those of a slice; the caller keeps the array until other
        // values are set, by the contract of `Input::new`.
        unsafe { slice::from_raw_parts(self.address, self.len) }
    }
}

impl Output {
    /// An array of `len` elements to write to.
    ///
    /// # Safety
    /// That of [`Input::new`]; and nobody else reads it meanwhile.
    pub(crate) unsafe fn new<V>(
        name: &'static str,
        address: *mut V,
        len: i64,
    ) -> Result<Self, Failure> {
        // SAFETY: the contract of this function.
        let input = unsafe { Input::new(name, address.cast_const(), len) }?;
        Ok(Self { input })
    }

    pub(crate) fn len(self) -> usize {
        self.input.len
    }

    /// The array, to ask where it lies.
    pub(crate) fn as_input(self) -> Input {
        self.input
    }

    /// Refuses an input that shares memory with this array.
    pub(crate) fn check_apart<T>(self, other: Input) -> Result<(), Failure> {
        let (own, others) = (self.input.bytes::<T>(), other.bytes::<T>());
        let apart = own.end <= others.start || others.end <= own.start;
        if apart || own.is_empty() || others.is_empty() {
            return Ok(());
        }
        let (own, other) = (self.input.name, other.name);
        Err(Failure::argument(format!("{own} and {other} overlap, expected arrays apart")))
    }

    /// The elements in host memory.
    pub(crate) fn slice_mut<T: Pod>(&mut self) -> Result<&mut [T], Failure> {
        let address = self.input.address.cast_mut().cast::<T>();
        check_address(self.input.name, address.cast_const(), self.input.len)?;
        if self.input.len == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as for `Input::slice`; the contract of the constructor excludes other users, and
        // callers refuse inputs that overlap.
        Ok(unsafe { slice::from_raw_parts_mut(address, self.input.len) })
    }

    /// The elements on a device.
    pub(crate) fn buffer<T: Pod>(self) -> Result<DeviceBuffer<T>, Failure> {
        self.input.buffer()
    }

    /// Writes as many elements as the array has to have.
    pub(crate) fn fill<T: Pod>(
        mut self,
        len: usize,
        elements: impl Iterator<Item = T>,
    ) -> Result<(), Failure> {
        check_len(self.input.name, len, self.input.len)?;
        let array = self.slice_mut::<T>()?;
        array.iter_mut().zip(elements).for_each(|(place, element)| *place = element);
        Ok(())
    }
}

/// A place for a result.
pub(crate) struct Place<V>(*mut V);

impl<V> Place<V> {
    /// The place at an address, which is not NULL.
    ///
    /// # Safety
    /// `address` is NULL, or may be written to.
    pub(crate) unsafe fn new(name: &str, address: *mut V) -> Result<Self, Failure> {
        check_address(name, address.cast_const(), 1)?;
        Ok(Self(address))
    }

    /// As [`Place::new`]; nothing where the address is NULL.
    ///
    /// # Safety
    /// That of [`Place::new`].
    pub(crate) unsafe fn optional(name: &str, address: *mut V) -> Result<Option<Self>, Failure> {
        if address.is_null() {
            return Ok(None);
        }
        // SAFETY: the contract of this function.
        unsafe { Self::new(name, address) }.map(Some)
    }

    pub(crate) fn write(&self, value: V) {
        // SAFETY: by the contract of the constructor; aligned, as was checked.
        unsafe { self.0.write(value) }
    }
}

/// A string; `None` for NULL.
///
/// # Safety
/// `string` is NULL or ends with a NUL, and lives as long as `'a`.
pub(crate) unsafe fn text<'a>(
    name: &str,
    string: *const c_char,
) -> Result<Option<&'a str>, Failure> {
    if string.is_null() {
        return Ok(None);
    }
    // SAFETY: the contract of this function.
    let string = unsafe { CStr::from_ptr(string) };
    let not_text = |_| Failure::argument(format!("{name} is no text in UTF-8"));
    string.to_str().map(Some).map_err(not_text)
}

/// A copy of an array with one element a system; `None` for NULL.
///
/// # Safety
/// `values` is NULL or has `len` elements.
pub(crate) unsafe fn each<V: Pod>(
    name: &'static str,
    values: *const V,
    len: usize,
) -> Result<Option<Vec<V>>, Failure> {
    if values.is_null() {
        return Ok(None);
    }
    // SAFETY: the contract of this function.
    let values = unsafe { Input::new(name, values, len as i64) }?;
    Ok(Some(values.slice()?.to_vec()))
}

/// A copy of a struct of options; the defaults for NULL.
///
/// # Safety
/// `options` is NULL, or begins with a `size_t` and has as many bytes as that says.
pub(crate) unsafe fn options<V: Versioned>(options: *const V) -> Result<V, Failure> {
    if options.is_null() {
        return Ok(V::default());
    }
    check_address(V::NAME, options, 1)?;
    // SAFETY: aligned, and the contract of this function.
    let size = unsafe { options.cast::<usize>().read() };
    check_size::<V>(size)?;
    // SAFETY: as above.
    Ok(unsafe { options.read() })
}

/// Writes the defaults.
///
/// # Safety
/// `options` is NULL, or has `size` bytes that may be written to.
pub(crate) unsafe fn init<V: Versioned>(options: *mut V, size: usize) -> Result<(), Failure> {
    check_size::<V>(size)?;
    // SAFETY: the contract of this function.
    let place = unsafe { Place::new(V::NAME, options) }?;
    place.write(V::default());
    Ok(())
}

fn check_size<V: Versioned>(size: usize) -> Result<(), Failure> {
    if size == size_of::<V>() {
        return Ok(());
    }
    Err(Failure::argument(format!(
        "struct_size of {} is {size}, expected {}: was it filled by its init function, and is the \
         header that of this library?",
        V::NAME,
        size_of::<V>()
    )))
}

/// Writes a text and a NUL, as much of it as fits.
///
/// # Safety
/// `buffer` is NULL or has `len` bytes that may be written to.
pub(crate) unsafe fn write_text(
    text: &str,
    buffer: *mut c_char,
    len: usize,
) -> Result<(), Failure> {
    check_address("buffer", buffer.cast_const(), len)?;
    let Some(room) = len.checked_sub(1) else { return Ok(()) };
    let end = (0..=room.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    let end = end.unwrap_or(0);
    // SAFETY: `end` is at most `room` and the length of the text; the contract of this function.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast::<u8>(), end);
        buffer.add(end).write(0);
    }
    Ok(())
}

/// As [`write_text`], and writes the bytes that the whole text takes to `needed`.
///
/// # Safety
/// That of [`write_text`]; `needed` is NULL or may be written to.
pub(crate) unsafe fn write_whole_text(
    text: &str,
    buffer: *mut c_char,
    len: usize,
    needed: *mut usize,
) -> Result<(), Failure> {
    // SAFETY: the contract of this function.
    unsafe {
        if let Some(needed) = Place::optional("needed", needed)? {
            needed.write(text.len() + 1);
        }
        write_text(text, buffer, len)
    }
}
