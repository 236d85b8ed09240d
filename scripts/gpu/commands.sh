# What the scripts of several GPUs share; to be sourced. Callers set results (a folder), seconds (the limit of a command)
# and failed, which becomes 1 where a command ends otherwise than it should.

# run NAME COMMAND...: one command, its output and its exit code.
run() {
    local name=$1
    shift
    echo "== $name: $*"
    timeout "$seconds" "$@" 2>&1 | tee "$results/$name.txt"
    local code=$?
    echo "== $name: exit $code" | tee -a "$results/$name.txt"
    [[ $code -eq 0 ]] || failed=1
    return $code
}

# expect NAME CODE TEXT COMMAND...: a command that ends with this code and says this.
expect() {
    local name=$1 code=$2 text=$3
    shift 3
    echo "== $name: $*"
    timeout "$seconds" "$@" >"$results/$name.txt" 2>&1
    local found=$?
    cat "$results/$name.txt"
    if [[ $found -ne $code ]] || ! grep -qF -- "$text" "$results/$name.txt"; then
        echo "== $name: exit $found, expected $code and: $text"
        failed=1
    fi
}
