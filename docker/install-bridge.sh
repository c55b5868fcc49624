#!/usr/bin/env bash
# Install nsight-bridge from a wheel, for every user of the system: install-bridge.sh WHEEL
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

home=/opt/nsight-bridge # an environment of its own: Debian's Python takes no packages of others

(($# == 1)) && [[ -f $1 ]] || refuse "names no wheel: install-bridge.sh WHEEL"
as_root python3 -m venv "$home"
as_root env PIP_NO_CACHE_DIR=1 "$home/bin/pip" install -q --only-binary :all: "$1"
as_root ln -sfn "$home/bin/bridge" /usr/local/bin/bridge
say "done: $(/usr/local/bin/bridge --version)"
