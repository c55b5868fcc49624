#!/usr/bin/env bash
# Build the image of nsight-bridge from a wheel without Docker, in a chroot; needs root.
#
#   docker/build-image.sh WHEEL IMAGE.tar   Debian 12 with nsys and the wheel, for `docker import`; needs debootstrap
#   docker/build-image.sh --try WHEEL       the same scripts and the same user, in a view of this system that keeps nothing
#   docker/build-image.sh --on SUITE WHEEL  the README's commands on a bare Debian without a compiler: bookworm has
#                                           Python 3.11, trixie 3.13, forky 3.14; needs debootstrap
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/debian.sh"

mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
certificates=/etc/ssl/certs/ca-certificates.crt

uid=1000 suite=bookworm image= wheel=
case $#:${1:-}:${2:-} in
  2:--try:?*) wheel=$2 suite= uid=59999 ;; # this system may have a user of the usual number
  3:--on:?*) suite=$2 wheel=$3 ;;
  2:?*:?*) wheel=$1 image=$2 ;;
esac
[[ $wheel == *.whl && -f $wheel ]] || refuse "names no wheel: build-image.sh WHEEL IMAGE.tar, --try WHEEL or --on SUITE WHEEL"
((EUID == 0)) || refuse "needs root, to mount and to change the root folder"
[[ ! $suite ]] || command -v debootstrap >/dev/null || refuse "needs debootstrap: apt-get install debootstrap"
# Mounts are seen by no other process and end with this one.
[[ ${BRIDGE_MOUNTS:-} ]] || exec unshare --mount --propagation private env BRIDGE_MOUNTS=own "${BASH_SOURCE[0]}" "$@"

# view_of_this_system ROOT: what is written there stays in memory.
view_of_this_system() {
  mount -t tmpfs layers "$work/layers"
  mkdir "$work/layers/upper" "$work/layers/work"
  mount -t overlay image -o "lowerdir=/,upperdir=$work/layers/upper,workdir=$work/layers/work" "$1"
}

# bare_debian ROOT: the suite with Python, and no compiler.
bare_debian() {
  local steps=/usr/share/debootstrap/scripts
  say "Debian $suite from $mirror"
  [[ -e $steps/$suite ]] && steps+=/$suite || steps+=/sid # one newer than this debootstrap
  debootstrap --variant=minbase --include=ca-certificates,python3-venv "$suite" "$1" "$mirror" "$steps" >"$work/debootstrap.log" ||
    { tail -n 20 "$work/debootstrap.log"; exit 1; }
}

# inside COMMAND…: run it in the image, with nothing of this shell's environment but where pip finds packages.
inside() {
  local name
  local -a kept=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root)
  for name in $(compgen -e PIP_); do kept+=("$name=${!name}"); done
  chroot "$root" env -i "${kept[@]}" "$@"
}

# What the network needs of this system is there while the image is built, and is not in the image.
mount_system() {
  local file
  mount --rbind /dev "$root/dev"
  mount -t proc proc "$root/proc"
  for file in /etc/resolv.conf "$certificates"; do
    [[ -e $file ]] || continue
    [[ -e $root$file ]] || : >"$root$file"
    mount --bind "$(readlink -f "$file")" "$root$file"
  done
}

add_user() {
  inside id -u bridge >/dev/null 2>&1 || inside useradd --create-home --uid "$uid" bridge
}

# The steps of the Dockerfile: user, nsys, wheel.
install_all() {
  mkdir -p "$root/opt/docker"
  cp "$here"/*.sh "$root/opt/docker"
  cp "$wheel" "$root/tmp"
  add_user
  inside install -d -o bridge /work
  [[ $image ]] && inside /opt/docker/install-nsys.sh
  inside /opt/docker/install-bridge.sh "/tmp/$(basename "$wheel")"
}

# As the user of the image, in a folder that is not kept.
try() {
  chroot --userspec=bridge "$root" env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/home/bridge \
    sh -c 'cd "$(mktemp -d)" && bridge demo >demo.txt && bridge report bridge-demo/demo.sqlite --by op --top 3'
}

# As an ordinary user with Python alone: the wheel, and each command that README.md has marked to be run.
walk_through() {
  mkdir -p "$root/opt/source/.ci"
  cp "$here/../README.md" "$wheel" "$root/opt/source"
  cp "$here/../.ci/try_wheel.py" "$root/opt/source/.ci"
  add_user
  inside setpriv --reuid "$uid" --regid "$uid" --clear-groups env HOME=/home/bridge \
    python3 /opt/source/.ci/try_wheel.py "/opt/source/$(basename "$wheel")" python3
}

pack() {
  umount -l "$root/dev" "$root/proc" "$root/etc/resolv.conf" "$root$certificates"
  rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/log/* "$root"/tmp/* "$root/opt/docker" "$root/root/.cache"
  : >"$root/etc/resolv.conf" # Docker writes one
  tar --one-file-system --sort=name --numeric-owner -C "$root" -cf "$image.part" .
  mv "$image.part" "$image"
}

# settings: the options of `docker import` that say what the Dockerfile's last stage says.
settings() { sed -n '/ AS bridge$/,$ s/^\(ENV\|USER\|WORKDIR\|ENTRYPOINT\|CMD\) .*/-c '"'&'"'/p' "$here/Dockerfile" | tr '\n' ' '; }

work=$(mktemp -d)
trap 'umount -R -l "$work"/root/* "$work"/root/etc/resolv.conf "$work/root$certificates" "$work"/root "$work"/layers 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
root=$work/root
mkdir "$root" "$work/layers"
if [[ $suite ]]; then bare_debian "$root"; else view_of_this_system "$root"; fi
mount_system
if [[ $suite && ! $image ]]; then
  walk_through
  say "done: $(inside python3 --version) on Debian $suite runs the README's commands"
  exit
fi
install_all
try
[[ $image ]] || { say "done: the wheel installs and runs"; exit 0; }
pack
say "done: $(du -h "$image" | cut -f 1) in $image; docker import $(settings)$image nsight-bridge"
