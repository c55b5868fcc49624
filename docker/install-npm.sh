#!/usr/bin/env bash
# Install Debian's npm, by which the tests fetch viewers (speedscope, a part of catapult) and rebuild the page's libraries.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

works() { npm --version >/dev/null 2>&1; }

if works; then
  say "nothing to do: npm $(npm --version)"
  exit 0
fi
[[ -n $(debian_release) ]] || refuse "this script is for Debian; elsewhere, install Node.js with npm"

install_packages npm
works || refuse "npm is installed and does not run"
say "done: npm $(npm --version)"
