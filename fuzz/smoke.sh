#!/usr/bin/env bash
# Every target over its seeds and a fixed number of runs more, under AddressSanitizer. Installs cargo-fuzz if it is not there.
set -euo pipefail
cd "$(dirname "$0")"
# So few runs are not worth more of the compiler's time.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_DEBUG=0
source ./build.sh

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
smoke() {
    local target=$1 runs=$2
    local options=("${common[@]}" -runs="$runs" -seed=1 -max_len=4096 -verbosity=0)
    [ ! -e "$target.dict" ] || options+=(-dict="$target.dict")
    mkdir -p "$scratch/$target" "artifacts/$target"
    local seeds=()
    [ ! -d "seeds/$target" ] || seeds=("seeds/$target")
    # What is new stays out of the seeds.
    if ! "$binaries/$target" "${options[@]}" -artifact_prefix="artifacts/$target/" "$scratch/$target" "${seeds[@]}" \
        >"$scratch/log" 2>&1; then
        cat "$scratch/log"
        echo "fuzz target $target failed; its input is in fuzz/artifacts/$target"
        exit 1
    fi
    echo "$target: $runs runs, clean (${SECONDS}s)"
}
smoke capture 5000
smoke simd 20000
smoke payload 2000
smoke index 500
smoke sequence 3000
smoke http 2000
smoke dump 300
