#!/usr/bin/env bash
# Writes the seeds of every target to DIRECTORY (fuzz/corpus unless given): from the captures, the tests' generator, and arrays.
set -euo pipefail
cd "$(dirname "$0")"
export KVTAP_CORPUS=${KVTAP_CORPUS:-$PWD/../tests/corpus}
cargo run --quiet --example seeds -- "${1:-corpus}"
