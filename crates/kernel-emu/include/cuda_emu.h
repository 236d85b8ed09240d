// Lets a C++17 compiler take CUDA C++ kernel source as it is, and run it on the CPU.
//
// Each CUDA thread is a fiber; the blocks of a grid run one after the other, those of a cluster
// together. The kernel source
// sees the same names as under NVRTC. The only text that is changed before compilation is the
// declaration of shared memory (build/rewrite.rs): `__shared__` has no equal in C++.
//
// SPARSEBATCH_EMU tells the kernels' prelude that the asynchronous copies are defined here
// (emu/copies.h), as is what clusters need (emu/cluster.h), and that it must leave its inline assembly
// out.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <math.h>
#include <type_traits>
#include <utility>

#define SPARSEBATCH_EMU 1
#define __CUDA_ARCH__ 900

#include "emu/engine.h"

#include "emu/language.h"

#include "emu/scalar.h"

#include "emu/warp.h"

#include "emu/atomics.h"

#include "emu/copies.h"

#include "emu/cluster.h"

#include "emu/registry.h"
