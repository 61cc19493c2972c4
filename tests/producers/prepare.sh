#!/usr/bin/env bash
# Fetches an engine's own event publisher: makes a virtual environment with what it imports, and takes the one module
# that holds it out of the engine's published wheel. Prints the Python and the module. Does nothing twice.
#
#     tests/producers/prepare.sh DIRECTORY sglang 0.5.23
#     tests/producers/prepare.sh DIRECTORY vllm 0.33.0      # a wheel of some 400 MB; never done by the test itself
set -euo pipefail
directory=$1 package=$2 version=$3
declare -A modules=([sglang]=sglang/srt/disaggregation/kv_events.py [vllm]=vllm/distributed/kv_events.py)

mkdir -p "$directory"
environment=$directory/venv
if [ ! -e "$environment/ready" ]; then
    python3 -m venv "$environment" >&2
    "$environment/bin/pip" install --quiet --disable-pip-version-check msgspec pyzmq pydantic >&2
    touch "$environment/ready"
fi

module=$directory/$package-$version.py
if [ ! -e "$module" ]; then
    wheels=$(mktemp -d "$directory/wheel-XXXXXX")
    trap 'rm -rf "$wheels"' EXIT
    # Only a text file is taken out of it: the wheel need not fit this machine.
    "$environment/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --implementation cp --python-version 3.11 --abi cp311 --abi abi3 \
        --platform manylinux_2_34_x86_64 --platform manylinux_2_31_x86_64 --platform manylinux_2_28_x86_64 \
        --platform manylinux_2_17_x86_64 --platform manylinux1_x86_64 \
        --dest "$wheels" "$package==$version" >&2
    "$environment/bin/python" - "$wheels" "${modules[$package]}" "$module.part" >&2 <<'EOF'
import pathlib, sys, zipfile
wheels, member, out = sys.argv[1:]
(wheel,) = pathlib.Path(wheels).glob("*.whl")
pathlib.Path(out).write_bytes(zipfile.ZipFile(wheel).read(member))
EOF
    mv "$module.part" "$module"
fi
printf '%s\n%s\n' "$environment/bin/python" "$module"
