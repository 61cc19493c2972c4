#!/usr/bin/env bash
# run.sh SECONDS [JOBS]: every target for so long, JOBS at a time (as many as there are cores unless given); a summary at the end.
#
# TARGETS names some of them. SANITIZER=none is about four times as fast and finds differences, not bad reads. Corpora grow in
# fuzz/corpus, crashes land in fuzz/artifacts, what was printed in fuzz/logs. Fails if there was a crash.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:?run.sh SECONDS [JOBS]}
jobs=${2:-$(nproc)}
source ./build.sh

ls corpus/*/* >/dev/null 2>&1 || ./seeds.sh
mkdir -p logs

run() {
    local target=$1
    local options=("${common[@]}" -max_total_time="$seconds" -max_len=4096 -print_final_stats=1)
    options+=(-artifact_prefix="artifacts/$target/")
    [ ! -e "$target.dict" ] || options+=(-dict="$target.dict")
    mkdir -p "corpus/$target" "artifacts/$target"
    local seeds=()
    [ ! -d "seeds/$target" ] || seeds=("seeds/$target")
    "$binaries/$target" "${options[@]}" "corpus/$target" "${seeds[@]}" >"logs/$target.log" 2>&1
}

failed=0
running=()
reap() { wait "${running[0]}" || failed=1; running=("${running[@]:1}"); }
for target in "${targets[@]}"; do
    [ "${#running[@]}" -lt "$jobs" ] || reap
    run "$target" &
    running+=($!)
done
while [ "${#running[@]}" -gt 0 ]; do reap; done

printf '%-8s %12s %8s %8s %8s %10s %s\n' target executions cov features corpus bytes end
for target in "${targets[@]}"; do
    log=logs/$target.log
    # A crash ends a run before its statistics; what was last reported stands for them.
    executions=$(sed -nE 's/^(stat::number_of_executed_units: *|#)([0-9]+).*/\2/p' "$log" | tail -1)
    state=$(grep -Eo 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -1) || state="cov: ? ft: ?"
    read -r _ cov _ features <<<"$state"
    files=$(find "corpus/$target" -type f | wc -l)
    bytes=$(find "corpus/$target" -type f -printf '%s\n' | awk '{ all += $1 } END { print all + 0 }')
    end=$(sed -n 's/^SUMMARY: //p' "$log" | tail -1)
    printf '%-8s %12s %8s %8s %8s %10s %s\n' "$target" "${executions:-?}" "$cov" "$features" "$files" "$bytes" "${end:-clean}"
done | tee -a logs/summary.txt
exit $failed
