//! NVRTC: compiled images, resources and errors; kernels over vectors for every architecture.

use kernel_emu::nvrtc::{Extent, check, check_emulated};
use sparsebatch_cuda::device::cache::DiskCache;
use sparsebatch_cuda::device::nvrtc::{Compiled, Program, architectures, compile};
use sparsebatch_cuda::kernels::{MODULES, VECTOR};
use sparsebatch_cuda::module::PRELUDE;
use sparsebatch_cuda::testing::nvrtc_or_skip;
use sparsebatch_cuda::{GpuError, Module, Pod};

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
fn static_shared_memory_is_in_the_resources() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let program = Program {
        name: "vector.cu",
        source: &VECTOR.program(),
        expressions: &["read_sum<double>"],
        architecture: "sm_90",
        options: &[],
    };

    let compiled = compile(&program).unwrap();

    // One double for each of the 32 warps of a block.
    assert_eq!(compiled.kernel("read_sum<double>").unwrap().resources.unwrap().shared_bytes, 256);
}

#[test]
fn the_names_of_types_are_known_to_kernels() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let names = [
        f32::CPP_NAME,
        f64::CPP_NAME,
        u8::CPP_NAME,
        u16::CPP_NAME,
        u32::CPP_NAME,
        i32::CPP_NAME,
        u64::CPP_NAME,
    ];
    let sizes = [4, 8, 1, 2, 4, 4, 8];
    let expressions: Vec<String> =
        names.iter().zip(sizes).map(|(name, size)| format!("f<{name}, {size}>")).collect();
    let source = format!(
        "{}template <typename T, int BYTES> __global__ void f(T* y)
        {{ static_assert(sizeof(T) == BYTES, \"size\"); *y = T(1); }}",
        PRELUDE
    );
    let program = Program {
        name: "test.cu",
        source: &source,
        expressions: &expressions.iter().map(String::as_str).collect::<Vec<_>>(),
        architecture: "sm_90",
        options: &[],
    };

    assert_eq!(compile(&program).unwrap().kernels.len(), names.len());
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
    let source = VECTOR.program() + "\n#line 7 \"csr.cu\"\nint f( {\n";
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
fn modules_of_callers_are_compiled_behind_the_prelude() {
    if nvrtc_or_skip().is_none() {
        return;
    }
    let text = "__global__ void first(u32, f_t*);\n";
    let compile = |text: &'static str| {
        let program = Program {
            name: "own.cu",
            source: &Module::new("own", text, &[]).program(),
            expressions: &["first<double>"],
            architecture: "sm_90",
            options: &[],
        };
        compile(&program)
    };
    let error = compile(text).unwrap_err().to_string();
    assert!(error.contains("own.cu(1): error") && error.contains("f_t"), "{error}");

    let text = "template <typename V> __global__ void first(u32 i, V* v) { v[i] = load(v + i); }";
    assert!(compile(text).unwrap().kernel("first<double>").is_some());
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

#[test]
fn every_instance_compiles_for_one_architecture_and_every_kernel_for_all() {
    check(MODULES, Extent::Usual);
}

#[test]
fn every_instance_runs_in_the_emulation() {
    check_emulated(MODULES);
}
