//! The compiler of the kernels, NVRTC. Needs no GPU.

use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::nvrtc::sys;

use super::library;
use super::resources::{self, Resources};
use crate::{CudaVersion, GpuError};

/// A program to compile.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The name in errors, such as `csr.cu`.
    pub name: &'a str,
    /// CUDA C++ without includes.
    pub source: &'a str,
    /// The kernel instances to compile, such as `csr_vector<double, 8>`.
    pub expressions: &'a [&'a str],
    /// `sm_90` gives code for that architecture, `compute_90` gives PTX for it and later ones.
    pub architecture: &'a str,
    /// Further options of the compiler, such as `-DBLOCK_THREADS=128`.
    pub options: &'a [&'a str],
}

/// The number of compilations under way.
static COMPILING: AtomicUsize = AtomicUsize::new(0);

/// The number of programs that this process is compiling, for progress displays.
pub fn under_way() -> usize {
    COMPILING.load(Ordering::Relaxed)
}

/// Counts a compilation until it is dropped.
struct UnderWay;

impl UnderWay {
    fn new() -> Self {
        COMPILING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        COMPILING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// From this version on, NVRTC caches programs on disk if there is a driver. A program from that
/// cache has no log, so no resources. [`cache`](super::cache) keeps both.
const OWN_CACHE: CudaVersion = CudaVersion { major: 12, minor: 9 };

impl Program<'_> {
    /// All compiler options; those that every kernel shares come first.
    pub(super) fn all_options(&self) -> Vec<String> {
        let mut all = vec![
            format!("--gpu-architecture={}", self.architecture),
            "--std=c++17".to_owned(),
            "--ptxas-options=-v".to_owned(),
        ];
        all.extend(self.options.iter().map(ToString::to_string));
        all
    }

    fn error(&self, log: String) -> GpuError {
        GpuError::Compile {
            kernel: format!("{}: {}", self.name, self.expressions.join(", ")),
            architecture: self.architecture.to_owned(),
            options: self.all_options().join(" "),
            log,
        }
    }
}

/// A compiled kernel instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledKernel {
    /// The name expression of the instance.
    pub expression: String,
    /// The symbol of the kernel in the image.
    pub symbol: String,
    /// The resources that it uses; `None` for PTX, which the driver compiles.
    pub resources: Option<Resources>,
}

/// The outcome of a compilation.
#[derive(Clone, PartialEq, Eq)]
pub struct Compiled {
    /// A cubin, or PTX that ends with a NUL byte; the driver loads both.
    pub image: Vec<u8>,
    /// The kernels, in the order of the expressions.
    pub kernels: Vec<CompiledKernel>,
    /// The full output of the compiler.
    pub log: String,
}

impl Compiled {
    /// The kernel of a name expression.
    pub fn kernel(&self, expression: &str) -> Option<&CompiledKernel> {
        self.kernels.iter().find(|kernel| kernel.expression == expression)
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled")
            .field("image_bytes", &self.image.len())
            .field("kernels", &self.kernels)
            .field("log", &self.log)
            .finish()
    }
}

/// The version of the NVRTC in use.
///
/// # Errors
/// [`GpuError::NvrtcMissing`].
pub fn version() -> Result<CudaVersion, GpuError> {
    Ok(library::nvrtc()?.version)
}

/// The architectures that NVRTC compiles for, as compute capabilities such as 90, ascending.
///
/// # Errors
/// [`GpuError::NvrtcMissing`].
pub fn architectures() -> Result<Vec<u32>, GpuError> {
    library::nvrtc()?;
    let mut count = 0;
    // SAFETY: (1) `library::nvrtc` found the library; (2) the pointer is to one integer.
    let result = unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) };
    let mut all = vec![0; usize::try_from(count).unwrap_or(0)];
    if result == sys::nvrtcResult::NVRTC_SUCCESS && !all.is_empty() {
        // SAFETY: as above; the pointer is to as many integers as the library said it has.
        unsafe { sys::nvrtcGetSupportedArchs(all.as_mut_ptr()) };
    }
    Ok(all.into_iter().filter_map(|a| u32::try_from(a).ok()).filter(|&a| a > 0).collect())
}

/// Compiles a program: about 20 ms per kernel instance, and 70 ms once per process.
///
/// # Errors
/// [`GpuError::NvrtcMissing`] without the compiler, [`GpuError::Compile`] with its log when it
/// refuses the source, an option or a name expression.
pub fn compile(program: &Program<'_>) -> Result<Compiled, GpuError> {
    let _under_way = UnderWay::new();
    let version = library::nvrtc()?.version;
    let handle = Handle::new(program)?;
    let expressions = program
        .expressions
        .iter()
        .map(|&expression| c_string(program, expression))
        .collect::<Result<Vec<_>, _>>()?;
    for expression in &expressions {
        // SAFETY: (1) the program is alive; (2) the expression is a C string, copied by the call.
        let result = unsafe { sys::nvrtcAddNameExpression(handle.0, expression.as_ptr()) };
        handle.check(program, result)?;
    }
    let mut options = program.all_options();
    if version >= OWN_CACHE {
        options.push("--no-cache".to_owned());
    }
    let options =
        options.iter().map(|option| c_string(program, option)).collect::<Result<Vec<_>, _>>()?;
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: (1) the program is alive; (2) `pointers` holds as many C strings as its length says,
    // which live to the end of this function.
    let result =
        unsafe { sys::nvrtcCompileProgram(handle.0, pointers.len() as i32, pointers.as_ptr()) };
    handle.check(program, result)?;

    let log = handle.log();
    let used = resources::parse(&log);
    let mut kernels = Vec::with_capacity(expressions.len());
    for (expression, &text) in expressions.iter().zip(program.expressions) {
        let mut symbol = ptr::null();
        // SAFETY: (1) the program is compiled; (2) the expression was added to it above; (3) the
        // pointer is to one pointer.
        let result =
            unsafe { sys::nvrtcGetLoweredName(handle.0, expression.as_ptr(), &mut symbol) };
        handle.check(program, result)?;
        // SAFETY: the call succeeded, so `symbol` is a C string owned by the program.
        let symbol = unsafe { CStr::from_ptr(symbol) }.to_string_lossy().into_owned();
        let resources = used.get(&symbol).copied();
        kernels.push(CompiledKernel { expression: text.to_owned(), symbol, resources });
    }
    let image = handle.image(program)?;
    Ok(Compiled { image, kernels, log })
}

fn c_string(program: &Program<'_>, text: &str) -> Result<CString, GpuError> {
    CString::new(text).map_err(|_| program.error(format!("NUL byte in {text:?}")))
}

/// A program of the library, destroyed on drop.
struct Handle(sys::nvrtcProgram);

impl Handle {
    fn new(program: &Program<'_>) -> Result<Self, GpuError> {
        let source = c_string(program, program.source)?;
        let name = c_string(program, program.name)?;
        let mut handle = ptr::null_mut();
        // SAFETY: (1) the caller found the library; (2) both strings are C strings, copied by the
        // call; (3) there are no headers, for which null pointers are allowed.
        let result = unsafe {
            sys::nvrtcCreateProgram(
                &mut handle,
                source.as_ptr(),
                name.as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        if result != sys::nvrtcResult::NVRTC_SUCCESS {
            return Err(program.error(message(result)));
        }
        Ok(Self(handle))
    }

    /// Turns a failure into an error with the log, or with the library's message if the log is
    /// empty.
    fn check(&self, program: &Program<'_>, result: sys::nvrtcResult) -> Result<(), GpuError> {
        if result == sys::nvrtcResult::NVRTC_SUCCESS {
            return Ok(());
        }
        let log = self.log();
        Err(program.error(if log.trim().is_empty() { message(result) } else { log }))
    }

    fn log(&self) -> String {
        let mut len = 0;
        // SAFETY: (1) the program is alive; (2) the pointer is to one integer.
        let result = unsafe { sys::nvrtcGetProgramLogSize(self.0, &mut len) };
        let mut log = vec![0_u8; len];
        if result == sys::nvrtcResult::NVRTC_SUCCESS && len > 0 {
            // SAFETY: as above; the pointer is to as many bytes as the library said it writes.
            unsafe { sys::nvrtcGetProgramLog(self.0, log.as_mut_ptr().cast()) };
        }
        String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned()
    }

    fn image(&self, program: &Program<'_>) -> Result<Vec<u8>, GpuError> {
        let ptx = program.architecture.starts_with("compute_");
        let mut len = 0;
        // SAFETY: (1) the program is compiled; (2) the pointer is to one integer.
        let result = unsafe {
            if ptx {
                sys::nvrtcGetPTXSize(self.0, &mut len)
            } else {
                sys::nvrtcGetCUBINSize(self.0, &mut len)
            }
        };
        self.check(program, result)?;
        let mut image = vec![0_u8; len];
        let start = image.as_mut_ptr().cast();
        // SAFETY: as above; `image` has as many bytes as the library said it writes.
        let result = unsafe {
            if ptx { sys::nvrtcGetPTX(self.0, start) } else { sys::nvrtcGetCUBIN(self.0, start) }
        };
        self.check(program, result)?;
        Ok(image)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the program was created by `Handle::new` and is destroyed only here.
        unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

fn message(result: sys::nvrtcResult) -> String {
    // SAFETY: the library is loaded; it returns a C string of its own for every result.
    let text = unsafe { CStr::from_ptr(sys::nvrtcGetErrorString(result)) };
    text.to_string_lossy().into_owned()
}
