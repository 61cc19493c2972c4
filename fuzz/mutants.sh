#!/usr/bin/env bash
# mutants.sh tests|fuzz [NAME...]: does anybody notice the deliberate bugs in mutants.txt (or those named)? In a checkout of its
# own, built once with all of them; each is then on by itself. Prints for each who noticed first, and after how many seconds;
# fails if one was not noticed. `fuzz` gives each target SECONDS_MAX (15) seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:?mutants.sh tests|fuzz [NAME...]}
shift
scratch=$(mktemp -d)
trap 'git worktree remove --force "$scratch/tree"; rm -rf "$scratch"' EXIT
git worktree add --quiet --detach "$scratch/tree" HEAD
cd "$scratch/tree"
all=$(perl fuzz/mutants.pl <fuzz/mutants.txt)
# The program is not needed, and takes long.
perl -0pi -e 's/^default-run.*$/autobins = false/m; s/\[\[bin\]\]\nname = "kvtap"\n.*?\n\n//s' Cargo.toml
names=("$@")
[ $# -gt 0 ] || mapfile -t names <<<"$all"

suites=()
for suite in sequence reasons shards crowds regressions malformed concurrency server peers; do suites+=(--test "$suite"); done

# by_tests NAME: the first test that fails.
by_tests() {
    if KVTAP_MUTANT=$1 timeout 300 cargo test --quiet --lib "${suites[@]}" --no-fail-fast >"$scratch/log" 2>&1; then
        return 1
    fi
    awk '/^failures:$/ { listed = 1; next } listed && /^    [a-z]/ { print "`" $1 "`"; exit }' "$scratch/log" | grep . ||
        echo "no end, or no build ($(tail -1 "$scratch/log"))"
}

# by_fuzz NAME: the first target that crashes.
by_fuzz() {
    local target
    for target in ${TARGETS:-sequence simd payload index http dump}; do
        local options=("${common[@]}" -seed=1 -max_len=4096 -max_total_time="${SECONDS_MAX:-15}")
        [ ! -e "$target.dict" ] || options+=(-dict="$target.dict")
        mkdir -p "$scratch/$target"
        KVTAP_MUTANT=$1 "$binaries/$target" "${options[@]}" -artifact_prefix="$scratch/" "$scratch/$target" "seeds/$target" \
            >"$scratch/log" 2>&1 || { echo "target \`$target\`"; return; }
    done
    return 1
}

if [ "$mode" = fuzz ]; then
    cd fuzz
    SANITIZER=${SANITIZER:-none}
    source ./build.sh
else
    cargo test --quiet --lib "${suites[@]}" --no-run
fi
if noticed=$("by_$mode" none); then
    echo "without a bug: $noticed"
    exit 1
fi
missed=0
for name in "${names[@]}"; do
    SECONDS=0
    noticed=$("by_$mode" "$name") || { noticed="**nobody**"; missed=1; }
    echo "| $name | $noticed | $SECONDS |"
done
exit $missed
