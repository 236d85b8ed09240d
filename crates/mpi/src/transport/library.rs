//! Where the functions of an MPI come from: [`table`].

use sparsebatch_mpi_transport::Table;

use crate::MpiError;

/// The functions of the MPI that this program is linked to.
#[cfg(feature = "mpi")]
pub(super) fn table() -> Result<&'static Table, MpiError> {
    Ok(sparsebatch_mpi_transport::table())
}

/// The functions of the library that is found: named by `SPARSEBATCH_MPI_TRANSPORT` (nothing: there is
/// none), in the folder of the program, or where the system looks for libraries. It is loaded once,
/// and stays.
#[cfg(not(feature = "mpi"))]
pub(super) fn table() -> Result<&'static Table, MpiError> {
    use std::sync::OnceLock;

    static FOUND: OnceLock<Result<&'static Table, MpiError>> = OnceLock::new();
    FOUND.get_or_init(|| search::found(std::env::var_os(search::VARIABLE))).clone()
}

#[cfg(not(feature = "mpi"))]
mod search {
    use std::error::Error;
    use std::ffi::{OsStr, OsString};
    use std::path::Path;

    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    use sparsebatch_mpi_transport::{Table, VERSION};

    use crate::MpiError;

    pub(super) const VARIABLE: &str = "SPARSEBATCH_MPI_TRANSPORT";
    const FILE: &str = "libsparsebatch_mpi_transport.so";

    pub(super) fn found(named: Option<OsString>) -> Result<&'static Table, MpiError> {
        match named {
            Some(path) if path.is_empty() => return Err(MpiError::Unsupported),
            Some(path) => return load(&path),
            None => {}
        }
        let beside = std::env::current_exe().ok().and_then(|program| {
            let path = program.parent()?.join(FILE);
            path.is_file().then_some(path)
        });
        match beside {
            Some(path) => load(path.as_os_str()),
            // The loader says the same of a file that is not there and of one that cannot be loaded.
            None => load(OsStr::new(FILE)).map_err(|error| match error {
                MpiError::Transport { reason, .. } if reason.contains("No such file") => {
                    MpiError::Unsupported
                }
                error => error,
            }),
        }
    }

    /// Loads a library for the rest of the process. Symbols of its MPI are for all: Open MPI loads
    /// parts of itself that look for them.
    #[allow(unsafe_code)]
    fn load(path: &OsStr) -> Result<&'static Table, MpiError> {
        let refused = |reason: String| {
            let path = Path::new(path).display().to_string();
            MpiError::Transport { path, reason: reason.replace('\n', " ") }
        };
        let named: OsString = path.to_owned();
        // SAFETY: the file is that of whoever set the variable or installed it, as the library of an
        // MPI is; ours runs nothing when it is loaded.
        let library = unsafe { Library::open(Some(named), RTLD_NOW | RTLD_GLOBAL) };
        // What the system says is the cause.
        let library = library.map_err(|error| {
            refused(error.source().map_or_else(|| error.to_string(), ToString::to_string))
        })?;
        let name = format!("sparsebatch_mpi_transport_{VERSION}");
        // SAFETY: a library with this name gives a table of this version, which is never taken away.
        let table = unsafe {
            let function = library.get::<unsafe extern "C" fn() -> *const Table>(name.as_bytes());
            function.ok().and_then(|function| function().as_ref::<'static>())
        };
        let is_ours = table.filter(|table| table.version == VERSION);
        let table = is_ours.ok_or_else(|| {
            refused(format!(
                "it is no transport of version {VERSION}: build it with scripts/install-mpi.sh of \
                 this version"
            ))
        })?;
        std::mem::forget(library);
        Ok(table)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn refusal(named: &str) -> String {
            found(Some(named.into())).unwrap_err().to_string()
        }

        #[test]
        fn what_cannot_be_loaded_is_named() {
            let none = refusal("");
            assert!(none.starts_with("no MPI: libsparsebatch_mpi_transport.so"), "{none}");
            assert!(none.contains("scripts/install-mpi.sh"), "{none}");
            let absent = refusal("/absent/transport.so");
            assert!(
                absent.starts_with("/absent/transport.so cannot be used for MPI: "),
                "{absent}"
            );
            assert!(absent.contains("No such file"), "{absent}");
        }
    }
}
