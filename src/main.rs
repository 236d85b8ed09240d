//! The command line of sparsebatch: see [`cli`] for the commands, `sparsebatch --help` for their
//! options, `docs/json.md` for what `--json` prints.
#![forbid(unsafe_code)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
