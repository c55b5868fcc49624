#!/usr/bin/env bash
# Install Debian's Go, whose pprof the tests read profiles with.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

works() { go version >/dev/null 2>&1; }

if works; then
  say "nothing to do: $(go version)"
  exit 0
fi
[[ -n $(debian_release) ]] || refuse "this script is for Debian; elsewhere, install Go"

install_packages golang-go
works || refuse "Go is installed and does not run"
say "done: $(go version)"
