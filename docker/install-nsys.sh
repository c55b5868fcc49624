#!/usr/bin/env bash
# Install Nsight Systems 2022.4.2 from Debian 12, and make the one link that Debian's package forgets.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

host=/usr/lib/nsight-systems/host-linux-x64 # the importer, which turns a capture into a report
link=/usr/lib/x86_64-linux-gnu/nsight-systems/host-linux-x64 # where nsys looks for it
sources=/etc/apt/sources.list.d/nsight-systems.sources

# An nsys that came from elsewhere has no such folder and needs no link.
works() { nsys --version >/dev/null 2>&1 && [[ -e $link || ! -d $host ]]; }

# configured FORMAT [FILTER…]: the package indexes that apt is set up to read for this release.
configured() { apt-get indextargets --format "$1" 'Created-By: Packages' 'Release: bookworm' "${@:2}"; }

# nsys is in non-free; what it depends on is in part in contrib.
add_components() {
  local mirror
  if (($(configured '$(COMPONENT)' | sort -u | grep -cxE 'contrib|non-free') == 2)); then
    say "components contrib and non-free are configured already"
    return
  fi
  mirror=$(configured '$(REPO_URI)' 'Component: main' | head -n 1)
  say "adding components contrib and non-free in $sources"
  as_root tee "$sources" >/dev/null <<END
Types: deb
URIs: ${mirror:-http://deb.debian.org/debian}
Suites: bookworm
Components: contrib non-free
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
}

if works; then
  say "nothing to do: $(nsys --version)"
  exit 0
fi
[[ $(uname -m) == x86_64 ]] || refuse "Debian has nsys for x86_64 only; take NVIDIA's own package on $(uname -m)"
[[ $(debian_release) == bookworm ]] || refuse "this script is for Debian 12 (bookworm); take NVIDIA's own package here"

if [[ ! -d $host ]]; then
  add_components
  install_packages nsight-systems
fi
say "linking $link"
as_root ln -sfn "$host" "$link"
works || refuse "nsys is installed and does not run"
say "done: $(nsys --version)"
