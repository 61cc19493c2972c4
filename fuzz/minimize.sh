#!/usr/bin/env bash
# minimize.sh: keeps of fuzz/corpus what adds to coverage. minimize.sh --seeds: also writes fuzz/seeds anew from it, as few small
# inputs as reach every branch, which is what is committed; those that were named by hand stay.
set -euo pipefail
cd "$(dirname "$0")"
source ./build.sh

# merge TARGET INTO FROM OPTIONS...
merge() {
    local target=$1 into=$2 from=$3
    mkdir -p "$into"
    "$binaries/$target" "${common[@]}" "${@:4}" "$into" "$from" >"logs/$target.merge.log" 2>&1
}

mkdir -p logs
for target in "${targets[@]}"; do
    merge "$target" "corpus/$target.kept" "corpus/$target" -merge=1
    rm -r "corpus/$target"
    mv "corpus/$target.kept" "corpus/$target"
    if [ "${1:-}" = --seeds ]; then
        find "seeds/$target" -type f -regextype sed -regex '.*/[0-9a-f]\{40\}' -delete
        merge "$target" "seeds/$target" "corpus/$target" -set_cover_merge=1 -max_len=1024 -use_counters=0
    fi
    du -sh "corpus/$target"
done
