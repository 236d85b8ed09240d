#!/usr/bin/env bash
# Tests of the C library, as a user has it: it is installed into target/ci-capi, and programs in C, C++ and Python are
# built against that. Programs run under AddressSanitizer and UBSan, which see what the library reads and writes of
# their arrays through memcpy and memset, and all that they do themselves.
#
#   scripts/capi-tests.sh               all
#   VALGRIND=1 scripts/capi-tests.sh    the test programs under valgrind in place of the sanitizers (minutes)
#
# Needs gcc, g++, python3, cmake and pkg-config; gfortran for the Fortran part, which is skipped without it. What was built for the workspace is used as it is.
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=$PWD/target/ci-capi
work=target/ci-capi-tests
rm -rf "$prefix" "$work"
mkdir -p "$work"
scripts/install-capi.sh "$prefix" --workspace

flags=(-g -Wall -Wextra -Werror -I"$prefix/include")
link=(-L"$prefix/lib" -Wl,-rpath,"$prefix/lib" -lsparsebatch -lm -ldl -pthread)
run=()
if [[ -n ${VALGRIND:-} ]]; then
    run=(valgrind --quiet --error-exitcode=1 --leak-check=full --errors-for-leak-kinds=definite)
else
    flags+=(-fsanitize=address,undefined -fno-sanitize-recover=all)
fi
for source in crates/capi/tests/c/*.{c,cpp}; do
    name=$(basename "${source%.*}")
    case $source in
        *.c) gcc -std=gnu11 "${flags[@]}" "$source" -o "$work/$name" "${link[@]}" ;;
        *.cpp) g++ -std=c++17 "${flags[@]}" "$source" -o "$work/$name" "${link[@]}" ;;
    esac
    LD_LIBRARY_PATH=$prefix/lib "${run[@]}" "$work/$name"
done

# The header is C99 and C++17 by itself.
printf '#include "sparsebatch.h"\nint main(void) { return 0; }\n' >"$work/header.c"
gcc -std=c99 -pedantic "${flags[@]}" -c "$work/header.c" -o "$work/header.o"
g++ -x c++ -std=c++17 -pedantic "${flags[@]}" -c "$work/header.c" -o "$work/header.o"

# The folder that sparsebatch.pc names, with a DESTDIR that is relative, ends with a slash, or goes through a link.
mkdir -p "$work/stage"
ln -s stage "$work/link"
for stage in "$work/stage" "$PWD/$work/stage/" "$PWD/$work/link"; do
    DESTDIR=$stage scripts/install-capi.sh /opt/sparse/ --workspace >/dev/null
    grep -qx 'prefix=/opt/sparse' "$work/stage/opt/sparse/lib/pkgconfig/sparsebatch.pc"
    rm -r "$work/stage/opt"
done
! DESTDIR=$work/stage scripts/install-capi.sh opt --workspace 2>/dev/null || exit 1

python3 crates/capi/tests/abi.py "$prefix"

# The examples, as the guide builds them: by CMake and by pkg-config.
cmake -S examples/c -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >"$work/cmake.log"
cmake --build "$work/cmake" >>"$work/cmake.log"
"$work/cmake/batch_solve" | tail -1
"$work/cmake/ragged" | head -1
"$work/cmake/tiles"
# Fortran, whose module has no warnings.
if command -v gfortran >/dev/null; then
    gfortran -std=f2018 -Wall -Wextra -Werror -J "$work" -c "$prefix/include/sparsebatch.f90" -o "$work/module.o"
    cmake -S examples/fortran -B "$work/fortran" -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log"
    cmake --build "$work/fortran" >>"$work/cmake.log"
    "$work/fortran/zones"
    [[ ! -x $work/fortran/use_device ]] || "$work/fortran/use_device"
    # What the module refuses, and which arrays of values a compiler takes.
    gfortran -std=f2018 -Wall -Wextra -Werror -fcheck=all -J "$work" crates/capi/tests/fortran/errors.f90 \
        "$work/module.o" -o "$work/fortran-errors" "${link[@]}"
    "${run[@]}" "$work/fortran-errors"
    takes() { gfortran -fsyntax-only -I"$work" "-DVALUES=$1" crates/capi/tests/fortran/values.F90 2>"$work/values.log"; }
    for values in jacobian 'jacobian(:,1:3)' 'jacobian(:,2)' part argument; do takes "$values"; done
    for values in -jacobian '(jacobian)' plain 'jacobian(:,::2)' 'jacobian(1:2,:)'; do
        ! takes "$values" && grep -q 'no matching specific binding' "$work/values.log" ||
            { echo "gfortran did not refuse values of $values as expected"; exit 1; }
    done
else
    echo "Fortran: skipped, no gfortran"
fi

# The README's line, and the first program of the guide.
readme=$(sed -n '/^## C, C++ and Fortran/,/^## Commands/p' README.md | grep '^cc ')
eval "${readme//\$HOME\/.local/$prefix} -o $work/readme"
LD_LIBRARY_PATH=$prefix/lib "$work/readme" >/dev/null
sed -n '/^## A first solve/,/^## /p' docs/guide/c.md | sed -n '/^```c$/,/^```$/p' | grep -v '^```' >"$work/guide.c"
gcc -std=c99 "${flags[@]}" "$work/guide.c" -o "$work/guide" "${link[@]}"
[[ $("${run[@]}" "$work/guide") == "1 1, 1 2; 0 failed" ]]
