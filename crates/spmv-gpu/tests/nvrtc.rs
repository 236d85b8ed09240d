//! Every kernel compiles for every architecture, without a GPU.

use sparsebatch_spmv_gpu::GpuError;
use sparsebatch_spmv_gpu::device::cache::DiskCache;
use sparsebatch_spmv_gpu::device::nvrtc::{Compiled, Program, architectures, compile};
use sparsebatch_spmv_gpu::kernels;
use sparsebatch_spmv_gpu::testing::nvrtc_or_skip;

const ARCHITECTURES: [&str; 4] = ["sm_80", "sm_90", "sm_100", "sm_120"];

/// The instances that hosts use, by module, and the registers that each may have.
const INSTANCES: [(&str, &[&str], u32); 5] = [
    ("vector", &["axpby<double>", "axpby<float>", "copy<ulonglong2>", "read_sum<double>"], 40),
    (
        "batch_csr",
        &[
            "batch_csr<double, u16, 0>",
            "batch_csr<double, u16, 1>",
            "batch_csr<double, u16, 32>",
            "batch_csr<double, u32, 0>",
            "batch_csr<double, u32, 1>",
            "batch_csr<double, u32, 32>",
            "batch_csr<float, u16, 0>",
            "batch_csr<float, u16, 1>",
            "batch_csr<float, u16, 32>",
            "batch_csr<float, u32, 0>",
            "batch_csr<float, u32, 1>",
            "batch_csr<float, u32, 32>",
            "batch_csr_i<double, u16>",
            "batch_csr_i<double, u32>",
            "batch_csr_i<float, u16>",
            "batch_csr_i<float, u32>",
        ],
        64,
    ),
    (
        "batch_coo",
        &[
            "batch_coo<double, u16>",
            "batch_coo<double, u32>",
            "batch_coo<float, u16>",
            "batch_coo<float, u32>",
        ],
        64,
    ),
    (
        "batch_ell",
        &[
            "batch_ell<double, u16>",
            "batch_ell<double, u32>",
            "batch_ell<float, u16>",
            "batch_ell<float, u32>",
        ],
        64,
    ),
    (
        "batch_sellp",
        &[
            "batch_sellp<double, u16, 1>",
            "batch_sellp<double, u16, 2>",
            "batch_sellp<double, u16, 4>",
            "batch_sellp<double, u16, 8>",
            "batch_sellp<double, u32, 1>",
            "batch_sellp<double, u32, 2>",
            "batch_sellp<double, u32, 4>",
            "batch_sellp<double, u32, 8>",
            "batch_sellp<float, u16, 1>",
            "batch_sellp<float, u16, 2>",
            "batch_sellp<float, u16, 4>",
            "batch_sellp<float, u16, 8>",
            "batch_sellp<float, u32, 1>",
            "batch_sellp<float, u32, 2>",
            "batch_sellp<float, u32, 4>",
            "batch_sellp<float, u32, 8>",
        ],
        64,
    ),
];

fn compile_source(source: &str, architecture: &str) -> Result<Compiled, GpuError> {
    compile(&Program {
        name: "test.cu",
        source,
        expressions: &["f<double>"],
        architecture,
        options: &["-DFACTOR=2"],
    })
}

const SOURCE: &str =
    "template <typename V> __global__ void f(V* y) { y[threadIdx.x] *= V(FACTOR); }";

#[test]
fn every_module_has_instances() {
    let listed: Vec<&str> = INSTANCES.iter().map(|&(module, ..)| module).collect();

    assert_eq!(listed, kernels::modules().collect::<Vec<_>>());
}

#[test]
fn every_instance_compiles_without_spills() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    for architecture in ARCHITECTURES {
        for (module, expressions, registers) in INSTANCES {
            let program = Program {
                name: module,
                source: &kernels::program(module).unwrap(),
                expressions,
                architecture,
                options: &[],
            };

            let compiled = compile(&program).unwrap();

            assert!(compiled.image.starts_with(b"\x7fELF"));
            assert_eq!(compiled.kernels.len(), expressions.len());
            for kernel in &compiled.kernels {
                let used = kernel.resources.expect("the log holds every kernel");
                println!("{architecture} {}: {used:?}", kernel.expression);
                assert_eq!((used.spill_store_bytes, used.spill_load_bytes), (0, 0), "{kernel:?}");
                assert!(used.registers > 0 && used.registers <= registers, "{kernel:?}");
            }
        }
    }
}

#[test]
fn static_shared_memory_is_in_the_resources() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let program = Program {
        name: "vector.cu",
        source: &kernels::program("vector").unwrap(),
        expressions: &["read_sum<double>"],
        architecture: "sm_90",
        options: &[],
    };

    let compiled = compile(&program).unwrap();

    // One double for each of the 32 warps of a block.
    assert_eq!(compiled.kernel("read_sum<double>").unwrap().resources.unwrap().shared_bytes, 256);
}

#[test]
fn spills_are_in_the_resources() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    // More live values than the registers that the option leaves.
    let source = "template <typename V> __global__ void f(V* y) {
        V v[100];
        for (int i = 0; i < 100; ++i) v[i] = y[i];
        #pragma unroll
        for (int i = 0; i < 100; ++i) v[i] = v[i] * v[i * 37 % 100] + v[i * 61 % 100];
        for (int i = 0; i < 100; ++i) y[i] = v[i];
    }";
    let program = Program {
        name: "test.cu",
        source,
        expressions: &["f<double>"],
        architecture: "sm_90",
        options: &["--maxrregcount=32"],
    };

    let used = compile(&program).unwrap().kernels[0].resources.unwrap();

    assert!(used.registers <= 32 && used.stack_bytes > 0, "{used:?}");
    assert!(used.spill_store_bytes > 0 && used.spill_load_bytes > 0, "{used:?}");
}

#[test]
fn ptx_for_later_gpus_ends_with_nul() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let newest = *architectures().unwrap().last().unwrap();

    let compiled = compile_source(SOURCE, &format!("compute_{newest}")).unwrap();

    assert_eq!(compiled.image.last(), Some(&0));
    assert!(String::from_utf8_lossy(&compiled.image).contains(".entry _Z1fIdEvPT_"));
    assert_eq!(compiled.kernels[0].resources, None);
}

#[test]
fn architectures_are_ascending() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let all = architectures().unwrap();

    assert!(all.contains(&90));
    assert!(all.is_sorted());
}

#[test]
fn errors_name_the_real_file_and_line() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let source = kernels::program("vector").unwrap() + "\n#line 7 \"csr.cu\"\nint f( {\n";
    let program = Program {
        name: "csr.cu",
        source: &source,
        expressions: &[],
        architecture: "sm_90",
        options: &[],
    };

    let error = compile(&program).unwrap_err();

    assert!(error.to_string().contains("csr.cu(7): error"), "{error}");
}

#[test]
fn what_the_compiler_refuses_is_a_compile_error() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let cases = [
        compile_source("template <typename V> __global__ void g(V*) {}", "sm_90"),
        compile_source(SOURCE, "sm_1"),
        compile_source("nul \0 byte", "sm_90"),
    ];

    for case in cases {
        match case {
            Err(error @ GpuError::Compile { .. }) => {
                println!("{error}");
                assert!(error.to_string().contains("f<double>"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn threads_can_compile_at_once() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let images: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| compile_source(SOURCE, "sm_90").unwrap().image))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });

    assert!(images.iter().all(|image| *image == images[0]));
}

#[test]
fn a_second_compilation_comes_from_disk() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let cache = DiskCache::in_folder(root.path());
    let program = Program {
        name: "test.cu",
        source: SOURCE,
        expressions: &["f<double>", "f<float>"],
        architecture: "sm_90",
        options: &["-DFACTOR=3"],
    };

    let first = cache.compile(&program).unwrap();
    let files: Vec<_> = root.path().read_dir().unwrap().flatten().collect();
    assert_eq!(files.len(), 1);
    let written = files[0].metadata().unwrap().modified().unwrap();
    let second = cache.compile(&program).unwrap();

    assert!(first == second);
    assert_eq!(files[0].metadata().unwrap().modified().unwrap(), written);

    // A damaged file is compiled again and replaced.
    std::fs::write(files[0].path(), "damaged").unwrap();
    let third = cache.compile(&program).unwrap();
    assert!((third.image, third.kernels) == (first.image, first.kernels));
    assert!(files[0].path().metadata().unwrap().len() > 1000);
}
