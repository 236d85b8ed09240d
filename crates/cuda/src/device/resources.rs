//! The resources of compiled kernels, read from the log of the assembler.

use std::collections::HashMap;

/// Registers and memory of a kernel. Spills mean that it has too few registers for its variables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Registers per thread.
    pub registers: u32,
    /// Stack frame per thread, in bytes.
    pub stack_bytes: u32,
    /// Bytes per thread that stores of spilled registers write.
    pub spill_store_bytes: u32,
    /// Bytes per thread that loads of spilled registers read.
    pub spill_load_bytes: u32,
    /// Static shared memory per block, in bytes.
    pub shared_bytes: u32,
}

/// The resources of the kernels in a log of `--ptxas-options=-v`, by symbol.
pub(super) fn parse(log: &str) -> HashMap<String, Resources> {
    let mut all: HashMap<String, Resources> = HashMap::new();
    let mut symbol = None;
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            symbol = rest.split_once('\'').map(|(symbol, _)| symbol.to_owned());
        } else if let Some(symbol) = &symbol {
            read_line(line, all.entry(symbol.clone()).or_default());
        }
    }
    all
}

/// Reads the numbers of one line of a kernel: numbers with units, separated by commas; the text in
/// front of the first differs between `nvcc` and NVRTC.
fn read_line(line: &str, into: &mut Resources) {
    let units = [
        ("registers", &mut into.registers),
        ("bytes stack frame", &mut into.stack_bytes),
        ("bytes spill stores", &mut into.spill_store_bytes),
        ("bytes spill loads", &mut into.spill_load_bytes),
        ("bytes smem", &mut into.shared_bytes),
    ];
    for (unit, value) in units {
        let number = line
            .split(',')
            .filter_map(|part| part.trim().strip_suffix(unit))
            .find_map(|before| before.split_whitespace().last()?.parse().ok());
        if let Some(number) = number {
            *value = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1aIdEvPT_' for 'sm_90'
ptxas info    : Function properties for _Z1aIdEvPT_
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 8 bytes cumulative stack size, 256 bytes smem, 544 bytes cmem[0]
ptxas info    : Compile time = 4.321 ms
ptxas info    : Compiling entry function '_Z1bv' for 'sm_90'
ptxas info    : Function properties for _Z1bv
    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 4 registers, used 0 barriers
";

    #[test]
    fn resources_are_read_per_kernel() {
        let all = parse(LOG);

        let expected = Resources {
            registers: 255,
            stack_bytes: 8,
            spill_store_bytes: 4,
            spill_load_bytes: 12,
            shared_bytes: 256,
        };
        assert_eq!(all["_Z1aIdEvPT_"], expected);
        assert_eq!(
            all["_Z1bv"],
            Resources { registers: 4, stack_bytes: 16, ..Resources::default() }
        );
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn other_text_is_passed_over() {
        assert!(parse("").is_empty());
        assert!(parse("csr.cu(3): warning: 4 registers, unused\n").is_empty());
        assert!(parse("ptxas info : Compiling entry function 'cut off").is_empty());
    }
}
