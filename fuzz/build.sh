# Sourced by the scripts beside it: builds every target with the sanitizer that SANITIZER names, and says where they are.
sanitizer=${SANITIZER:-address}
# Each sanitizer compiles everything anew, so each has a directory.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/$sanitizer
if rustup toolchain list 2>/dev/null | grep -q ^nightly; then
    export RUSTUP_TOOLCHAIN=nightly
else
    export RUSTC_BOOTSTRAP=1 # what is here takes the same options then
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
    env -u CARGO_TARGET_DIR cargo install cargo-fuzz --locked --quiet
fi
cargo fuzz build --sanitizer "$sanitizer"
binaries=$CARGO_TARGET_DIR/$(rustc -vV | sed -n 's/^host: //p')/release
read -ra targets <<<"${TARGETS:-payload simd index capture sequence http dump}"
# Shards end on threads of their own, a little after the run that started them, which looks like a leak: to libFuzzer after an
# input, to AddressSanitizer at the end of all.
export ASAN_OPTIONS=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
common=(-detect_leaks=0 -timeout=60 -rss_limit_mb=4096)
