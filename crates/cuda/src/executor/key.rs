//! The names of kernels.

use std::fmt;

use crate::Module;

/// Names a kernel instance: a module, which is one CUDA source, and a C++ name expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelKey {
    /// The source.
    pub module: &'static Module,
    /// The instance, such as `csr_vector<double, 8>`: [`Pod::CPP_NAME`](super::Pod::CPP_NAME) gives
    /// the types. One space follows each comma, since an emulation finds its instances by this
    /// text.
    pub expression: String,
    /// Options for the device compiler, such as `-DFUSED_MAY=0`, that leave out code no launch
    /// needs. An emulation contains all code, and finds the instance without the options.
    pub options: &'static [&'static str],
}

impl KernelKey {
    /// The instance `expression` of a module.
    pub fn new(module: &'static Module, expression: impl Into<String>) -> Self {
        Self { module, expression: expression.into(), options: &[] }
    }

    /// The same kernel, compiled with these options.
    #[must_use]
    pub fn with_options(self, options: &'static [&'static str]) -> Self {
        Self { options, ..self }
    }
}

impl fmt::Display for KernelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.cu: {}", self.module.name(), self.expression)?;
        self.options.iter().try_for_each(|option| write!(f, " {option}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_with_their_file() {
        static CSR: Module = Module::new("csr", "", &[]);
        let key = KernelKey::new(&CSR, "csr_vector<double, 8>");

        assert_eq!(key.to_string(), "csr.cu: csr_vector<double, 8>");
        let key = key.with_options(&["-DSIZE=1"]);
        assert_eq!(key.to_string(), "csr.cu: csr_vector<double, 8> -DSIZE=1");
    }
}
