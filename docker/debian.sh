# What the install scripts beside this file share; sourced, never run.

export DEBIAN_FRONTEND=noninteractive

say() { printf '%s: %s\n' "$(basename "$0")" "$*"; }

refuse() {
  say "$*" >&2
  exit 1
}

as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo --preserve-env=DEBIAN_FRONTEND "$@"
  else
    refuse "needs root, and there is no sudo: run it as root"
  fi
}

# debian_release: the code name of this Debian, or nothing on another system.
debian_release() {
  [[ -r /etc/os-release ]] || return 0
  (. /etc/os-release && [[ ${ID:-} == debian ]] && printf '%s' "${VERSION_CODENAME:-}") || true
}

# install_packages NAME…: the newest of each, without what Debian merely recommends.
install_packages() {
  local -a patiently=(-q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  say "installing $*"
  as_root apt-get "${patiently[@]}" update
  as_root apt-get "${patiently[@]}" install --yes --no-install-recommends "$@"
}
