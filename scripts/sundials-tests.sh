#!/usr/bin/env bash
# Tests of the linear solver for SUNDIALS, as a user has it: the C library is installed into target/ci-sundials, and the
# module's test and the CVODE example are built against that and against a SUNDIALS of 6 or 7, Debian's by default.
#
#   scripts/sundials-tests.sh           Debian's libsundials-dev, libsuitesparse-dev, libjansson-dev
#   scripts/sundials-tests.sh FOLDER    a SUNDIALS installed there, with KLU
#
# Needs gcc, cmake and pkg-config. Without SUNDIALS nothing is tested, which is a failure with
# SPARSEBATCH_REQUIRE_SUNDIALS=1. What was built for the workspace is used as it is.
set -euo pipefail
cd "$(dirname "$0")/.."

sundials=${1:-/usr}
if [[ ! -e $sundials/include/sunlinsol/sunlinsol_klu.h ]] || ! pkg-config --exists jansson; then
    echo "SUNDIALS: skipped, no SUNDIALS with KLU in $sundials, or no jansson"
    [[ -z ${SPARSEBATCH_REQUIRE_SUNDIALS:-} ]] || exit 1
    exit 0
fi
prefix=$PWD/target/ci-sundials
work=target/ci-sundials-tests
rm -rf "$prefix" "$work"
mkdir -p "$work"
scripts/install-capi.sh "$prefix" --workspace

# The example, as the guide builds it. The module has no warnings.
cmake -S examples/sundials -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix;$sundials" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >"$work/cmake.log" || { cat "$work/cmake.log"; exit 1; }
cmake --build "$work/cmake" >>"$work/cmake.log" || { cat "$work/cmake.log"; exit 1; }
network=(examples/data/reaclib_alpha13.json examples/data/reference_alpha13.json)
"$work/cmake/cvode_zones" "${network[@]}" --zones 40 --solvers sparsebatch,dense,klu,iterative
# A run that does not meet the reference is told.
! "$work/cmake/cvode_zones" "${network[@]}" --zones 4 --end 1e-6 --rtol 0.1 --atol 1e-3 >"$work/coarse.log" || exit 1
grep -q 'DIFFERS from the reference' "$work/coarse.log"

# The module's own test under AddressSanitizer and UBSan. SUNDIALS 6 has its core in libsundials_generic.
core=sundials_core
compgen -G "$sundials/lib*/libsundials_core.*" >/dev/null || core=sundials_generic
libraries=(-L"$sundials/lib" -L"$prefix/lib" -Wl,-rpath,"$prefix/lib" -Wl,-rpath,"$sundials/lib" -lsparsebatch -lsundials_cvode
    -lsundials_nvecserial -lsundials_sunmatrixsparse -lsundials_sunlinsoldense -lsundials_sunmatrixdense -lsundials_sunmatrixband
    "-l$core" -lm)
gcc -std=c11 -pedantic -g -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all \
    -I"$prefix/include" -I"$sundials/include" integrations/sundials/tests/solver.c \
    "$prefix/include/sunlinsol_sparsebatch.c" -o "$work/solver" "${libraries[@]}"
"$work/solver"
