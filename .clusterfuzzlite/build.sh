#!/bin/bash -eu
# Called by the base image with $OUT, $SRC and its own compiler flags.
cd "$SRC/kvtap/fuzz"
cargo fuzz build -O
for target in fuzz_targets/*.rs; do
    target=$(basename "$target" .rs)
    cp "target/x86_64-unknown-linux-gnu/release/$target" "$OUT/"
    zip -jq "$OUT/${target}_seed_corpus.zip" "seeds/$target"/*
    [ ! -e "$target.dict" ] || cp "$target.dict" "$OUT/"
    # Shards end on threads of their own, a little after the run that started them.
    printf '[libfuzzer]\ndetect_leaks = 0\nmax_len = 4096\n' >"$OUT/$target.options"
done
