#!/usr/bin/env bash
# Build the programs of start.c that the wheel holds: build.sh [FOLDER], by default beside this file.
# For x86_64 and aarch64, with `$CC -target`: clang, or zig cc (pip install ziglang).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
to=${1:-$here}
source=$(sha256sum "$here/start.c" | cut -d" " -f1)
for machine in x86_64 aarch64; do
  ${CC:-clang} -target "$machine-linux-${ABI:-musl}" -DSOURCE="\"$source\"" -std=gnu11 -Wall -Wextra -Os -static -s -nostdlib -ffreestanding \
    -fno-pie -fno-stack-protector -fno-asynchronous-unwind-tables -fno-sanitize=all -Wl,--build-id=none -Wl,-z,noexecstack "$here/start.c" -o "$to/start-$machine"
done
