//! The names of kernels, and sources of callers.

use std::fmt;
use std::hash::{Hash, Hasher};

/// CUDA source of a caller, from which kernels are compiled beside those of this crate: what follows
/// [`kernels::PRELUDE`](crate::kernels::PRELUDE), whose types and helpers it may use. Two are equal
/// where they are the same texts in memory.
///
/// # Examples
/// ```
/// use sparsebatch_spmv_gpu::{KernelKey, Source};
/// static SQUARES: Source = Source::new(
///     "template <typename V> __global__ void squares(u32 len, V* values) {
///          const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
///          if (i < len) values[i] *= values[i];
///      }",
/// );
/// let key = KernelKey::of_source("squares", &SQUARES, "squares<double>");
/// assert_eq!(key.to_string(), "squares.cu: squares<double>");
/// ```
#[derive(Debug)]
pub struct Source {
    text: &'static str,
    headers: &'static [(&'static str, &'static str)],
}

impl Source {
    /// The source of a module. It is compiled when a kernel of it is prepared or launched.
    pub const fn new(text: &'static str) -> Self {
        Self::with_headers(text, &[])
    }

    /// The source of a module of several files: names and texts of those that the first one, or one of
    /// them, has in lines `#include "name"`. Each stands once in what is compiled. A name that is not
    /// here is one of this crate's headers, or left to the compiler, which knows none.
    pub const fn with_headers(
        text: &'static str,
        headers: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { text, headers }
    }

    /// The text of the first file.
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// Names and texts of the others.
    pub fn headers(&self) -> &'static [(&'static str, &'static str)] {
        self.headers
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.text, other.text) && std::ptr::eq(self.headers, other.headers)
    }
}

impl Eq for Source {}

impl Hash for Source {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.as_ptr().hash(state);
    }
}

/// Names a kernel instance: a module, which is one CUDA source, and a C++ name expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelKey {
    /// The source, as [`kernels::source`](crate::kernels::source) knows it, such as `csr`; or what the
    /// compiler is to call `source`.
    pub module: &'static str,
    /// Source of the caller; `None` where the module is one of this crate.
    pub source: Option<&'static Source>,
    /// The instance, such as `csr_vector<double, 8>`: [`Pod::CPP_NAME`](super::Pod::CPP_NAME) gives the types, and one space
    /// follows each comma, since an emulation knows its instances by this text.
    pub expression: String,
    /// Options for the compiler of a device, such as `-DFUSED_MAY=0`, by which it leaves out what no launch
    /// asks for. An emulation has all of it, and knows the instance without them.
    pub options: &'static [&'static str],
}

impl KernelKey {
    /// A key of a module of this crate.
    pub fn new(module: &'static str, expression: impl Into<String>) -> Self {
        Self { module, source: None, expression: expression.into(), options: &[] }
    }

    /// The same kernel, compiled with these options.
    #[must_use]
    pub fn with_options(self, options: &'static [&'static str]) -> Self {
        Self { options, ..self }
    }

    /// A key of a source of the caller, in which the compiler finds its errors under `name`.
    pub fn of_source(
        name: &'static str,
        source: &'static Source,
        expression: impl Into<String>,
    ) -> Self {
        Self { module: name, source: Some(source), expression: expression.into(), options: &[] }
    }
}

impl fmt::Display for KernelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.cu: {}", self.module, self.expression)?;
        self.options.iter().try_for_each(|option| write!(f, " {option}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_with_their_file() {
        let key = KernelKey::new("csr", "csr_vector<double, 8>");

        assert_eq!(key.to_string(), "csr.cu: csr_vector<double, 8>");
        let key = key.with_options(&["-DSIZE=1"]);
        assert_eq!(key.to_string(), "csr.cu: csr_vector<double, 8> -DSIZE=1");
    }
}
