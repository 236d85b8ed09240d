#!/usr/bin/env bash
# Builds the C library and installs it into a folder: headers, a Fortran module and a linear solver for SUNDIALS as source, libsparsebatch.so (with its soname) and libsparsebatch.a,
# sparsebatch.pc for pkg-config, and a package for CMake's find_package.
#
#   scripts/install-capi.sh /usr/local
#   scripts/install-capi.sh target/prefix --workspace     with what `cargo build --workspace` has compiled already
#   scripts/install-capi.sh /usr/local --mpi              with what ranks of MPI need, by scripts/install-mpi.sh
#
# Needs Rust alone. DESTDIR is put before the folder, as packagers expect; files that name the folder name it without.
set -euo pipefail
[[ $# -ge 1 ]] || { echo "expected a folder: scripts/install-capi.sh /usr/local" >&2; exit 2; }
[[ -z ${DESTDIR:-} || $1 == /* ]] || { echo "with DESTDIR, expected a folder that begins with /: $1" >&2; exit 2; }
mkdir -p "${DESTDIR:-}$1"
prefix=$(cd "${DESTDIR:-}$1" && pwd)
# Where the files lie once DESTDIR is taken away.
place=$prefix
[[ -z ${DESTDIR:-} ]] || place=${1%/}
features=(--no-default-features)
with_mpi=
for option in "${@:2}"; do
    case $option in
        --workspace) features=(--features=default) ;;
        --mpi) with_mpi=yes ;;
        *) echo "expected --workspace or --mpi after the folder: $option" >&2; exit 2 ;;
    esac
done
cd "$(dirname "$0")/.."

cargo build --quiet --release -p sparsebatch-capi "${features[@]}"
built=${CARGO_TARGET_DIR:-target}/release
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
abi=$(sed -n 's/^#define SB_ABI_VERSION \([0-9]*\)$/\1/p' crates/capi/include/sparsebatch.h)

install -d "$prefix"/{include,lib/pkgconfig,lib/cmake/sparsebatch}
install -m 644 crates/capi/include/sparsebatch.{h,hpp} "$prefix/include"
install -m 644 integrations/fortran/sparsebatch.f90 "$prefix/include"
install -m 644 integrations/sundials/sunlinsol_sparsebatch.{h,c} "$prefix/include"
install -m 755 "$built/libsparsebatch_c.so" "$prefix/lib/libsparsebatch.so.$version"
ln -sf "libsparsebatch.so.$version" "$prefix/lib/libsparsebatch.so.$abi"
ln -sf "libsparsebatch.so.$abi" "$prefix/lib/libsparsebatch.so"
install -m 644 "$built/libsparsebatch_c.a" "$prefix/lib/libsparsebatch.a"
for file in sparsebatch.pc sparsebatchConfig.cmake sparsebatchConfigVersion.cmake; do
    case $file in *.pc) folder=pkgconfig ;; *) folder=cmake/sparsebatch ;; esac
    sed -e "s|@prefix@|$place|; s|@version@|$version|; s|@abi@|$abi|" \
        "crates/capi/install/$file.in" >"$prefix/lib/$folder/$file"
done
[[ -z $with_mpi ]] || scripts/install-mpi.sh "$prefix/lib"
echo "sparsebatch $version is in $prefix"
