#!/usr/bin/env bash
# Build the libraries of callbacks.c that the wheel holds: build.sh [FOLDER], by default beside this file.
# For x86_64 and aarch64; they need nothing but the C library. Debian's gcc and gcc-aarch64-linux-gnu are used.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
to=${1:-$here}
source=$(sha256sum "$here/callbacks.c" | cut -d" " -f1)
for machine in x86_64 aarch64; do
  compiler=$machine-linux-gnu-gcc
  command -v "$compiler" >/dev/null || { echo "build.sh: there is no $compiler: the library for $machine stays as it is" >&2; continue; }
  outline=$([[ $machine == aarch64 ]] && echo -mno-outline-atomics || true)
  "$compiler" $outline -DSOURCE="\"$source\"" -std=gnu11 -Wall -Wextra -Wno-unused-parameter -O2 -fPIC -shared -s -nostartfiles -ffreestanding -Wl,--build-id=none \
    -Wl,--hash-style=gnu -Wl,-z,noexecstack "$here/callbacks.c" -o "$to/callbacks-$machine.so" -lc
done
