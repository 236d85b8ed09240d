#!/usr/bin/env bash
# The command line's products on a machine with a GPU and no cargo: every kernel on matrices and
# batches, each answer checked by the program itself. Takes under two minutes.
#
# usage: scripts/gpu/spmv_cli.sh BINARY DATA RESULTS
#   BINARY   the program sparsebatch, built with --release elsewhere
#   DATA     folder with matrices and batches (*.mtx, *.mtx.gz, *.batch), searched two levels deep
#   RESULTS  folder for the outputs: NAME.txt, NAME.json, NAME.err
# Ends with 1 if a run fails, a product is wrong, or the GPU was not used. NVRTC must be where
# `sparsebatch doctor` finds it.
set -u
binary=$(realpath "$1") data=$(realpath "$2") results=$3
mkdir -p "$results"
results=$(realpath "$results")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# run NAME ENDING CODE ARGUMENTS...: the outputs in files, the exit code as expected.
run() {
    local name=$1 ending=$2 expected=$3
    shift 3
    timeout 60 "$binary" "$@" >"$results/$name.$ending" 2>"$results/$name.err"
    local code=$?
    [[ -s $results/$name.err ]] || rm -f "$results/$name.err"
    [[ $code == "$expected" ]] || fail "$name ($*): exit $code, expected $expected: $(cat "$results/$name.err" 2>/dev/null)"
}

# products NAME ARGUMENTS...: all kernels as JSON; the GPU computed, and nothing is wrong.
products() {
    local name=$1
    shift
    local start=$SECONDS
    run "$name" json 0 spmv --backend gpu --kernel all --json "$@"
    local file=$results/$name.json
    grep -q '"backend":"gpu"' "$file" || fail "$name: the GPU was not used"
    local correct refused wrong
    correct=$(grep -o '"correct":true' "$file" | wc -l)
    refused=$(grep -o '"refused":"' "$file" | wc -l)
    wrong=$(($(grep -o '"correct":false' "$file" | wc -l) - refused))
    [[ $wrong == 0 && $correct -gt 0 ]] || fail "$name: $correct correct, $wrong wrong"
    echo "$name: $correct correct, $refused refused, $((SECONDS - start)) s"
}

run doctor txt 0 doctor
run doctor json 0 doctor --json
cat "$results/doctor.txt"
grep -q '"name":"gpu-batch","passed":true' "$results/doctor.json" || fail "doctor: no test of the GPU"

generate() { "$binary" generate -q "$@" || fail "generate $*"; }
generate laplace --stencil 7 --grid 80x80x80 "$work/laplace7.npz"
generate pareto --rows 200000 --min-len 4 --shape 1.5 "$work/pareto.npz"
generate mix --batch 2000 "$work/mix.batch"
generate tri --n 128 --batch 5000 "$work/tri128.batch"
generate tri --n 70000 --batch 2 "$work/large.batch"

# One matrix, text and JSON, both precisions.
run laplace7 txt 0 spmv "$work/laplace7.npz" --backend gpu --kernel all --explain
cat "$results/laplace7.txt"
products laplace7 "$work/laplace7.npz"
products laplace7-f32 "$work/laplace7.npz" --precision f32
products pareto "$work/pareto.npz"

# Batches: ragged, uniform, one with a system too large for the packed product, shared values.
run mix txt 0 spmv "$work/mix.batch" --backend gpu --kernel all --explain
cat "$results/mix.txt"
products mix "$work/mix.batch"
products tri128-f32 "$work/tri128.batch" --precision f32
products large "$work/large.batch"
run large-auto txt 0 spmv "$work/large.batch" --backend gpu --explain
run large-packed txt 2 spmv "$work/large.batch" --backend gpu --kernel packed

# The data given: four of the matrices one by one, copies of the first, and three batches. Complex
# ones are not supported.
mapfile -t found < <(find "$data" -maxdepth 2 \( -name '*.mtx' -o -name '*.mtx.gz' \) | sort)
matrices=()
for ((i = 0; i < ${#found[@]} && ${#matrices[@]} < 4; i += 1 + ${#found[@]} / 5)); do
    "$binary" info -q "${found[i]}" 2>/dev/null && matrices+=("${found[i]}")
done
for matrix in "${matrices[@]}"; do
    name=$(basename "$matrix")
    products "${name%%.mtx*}" "$matrix"
done
[[ ${#matrices[@]} == 0 ]] || products copies "${matrices[0]}" --replicate 50 --perturb 1e-3:1
mapfile -t batches < <(find "$data" -maxdepth 2 -name '*.batch' | sort | head -3)
for batch in "${batches[@]}"; do
    products "$(basename "$batch" .batch)" "$batch"
done

# The automatic choices, and what a GPU has not.
run auto json 0 spmv "$work/mix.batch" --json
grep -q '"backend":"gpu"' "$results/auto.json" || fail "auto: the GPU was not taken"
run auto-cpu json 0 spmv "$work/mix.batch" --kernel rows --json
grep -q '"backend":"cpu"' "$results/auto-cpu.json" || fail "auto with a CPU kernel: not on the CPU"
CUDA_VISIBLE_DEVICES='' run hidden json 0 spmv "$work/mix.batch" --json
grep -q '"backend_reason":"no GPU: ' "$results/hidden.json" || fail "hidden GPU: no reason"
run output txt 0 spmv "$work/mix.batch" --backend gpu --output "$work/y.npz"
[[ -s $work/y.npz ]] || fail "output: nothing written"

echo "seconds: $SECONDS"
[[ $failed == 0 ]] && echo "all passed"
exit "$failed"
