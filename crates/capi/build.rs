//! Flags of the linker for `libsparsebatch.so`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if is_linux {
        // The number is `sb_abi_version()`.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsparsebatch.so.0");
        // The transport of an MPI is looked for beside the library.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-rpath,$ORIGIN");
        // Threads of the library live as long as the process: dlclose must not take their code away.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
