//! The command line of sparsebatch: see `src/cli/` for the commands, `sparsebatch --help` for their
//! options, `docs/json.md` for what `--json` prints.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    sparsebatch::cli::main()
}
