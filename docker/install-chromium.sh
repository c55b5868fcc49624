#!/usr/bin/env bash
# Install Debian's Chromium, which the tests look at traces and reports with.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

works() { chromium --version >/dev/null 2>&1; }

if works; then
  say "nothing to do: $(chromium --version 2>/dev/null)"
  exit 0
fi
[[ -n $(debian_release) ]] || refuse "this script is for Debian; elsewhere, install Chromium and set \$CHROME to it"

install_packages chromium fonts-dejavu-core
works || refuse "Chromium is installed and does not run"
say "done: $(chromium --version 2>/dev/null)"
