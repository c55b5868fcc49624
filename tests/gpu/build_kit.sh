#!/usr/bin/env bash
# Make a folder for a machine with a GPU and no network: build_kit.sh TO (say, <checkout>/.gpukit, which .git/info/exclude names).
# nsys.tar.xz: Nsight Systems 2023.4.4 of Debian 13, the command line alone; site.tar.xz: what bridge needs and the machine has not.
set -euo pipefail
to=$(mkdir -p "$1" && cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# --- nsys: 39.9 MB + 150.1 MB are fetched, 34 MB remain -------------------------------------------
apt=$work/apt
mkdir -p "$apt"/lists/partial "$apt"/cache/archives/partial "$work"/debs "$work"/root
key=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=$(awk '/^URIs:/ {print $2; exit}' /etc/apt/sources.list.d/debian.sources)
for suite in trixie bookworm; do echo "deb [signed-by=$key] $mirror $suite main contrib non-free"; done >"$apt/sources.list"
options=(-qq -o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null)
apt-get "${options[@]}" update
(cd "$work/debs" && apt-get "${options[@]}" download nsight-systems-target/trixie nsight-systems/trixie libssh-4/bookworm libpfm4/bookworm)
for deb in "$work"/debs/*.deb; do
  dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work/root" --wildcards './usr/lib/*'
done
lib=$work/root/usr/lib target=$work/nsys/target-linux-x64 host=$work/nsys/host-linux-x64
mkdir -p "$target" "$host"
from=$lib/x86_64-linux-gnu/nsight-systems/target-linux-x64
# CUPTI of CUDA 12 alone; what injects into OpenGL, MPI, Python's own traces stays behind.
for file in nsys nsys-launcher launcher libLauncher64.so libToolsInjection64.so libToolsInjectionProxy64.so \
  libToolsInjectionMemoryAllocator.so libcupti.so.12.4 CudaGpuInfoDumper libnvlog.so libsqlite3.so.0 nvlog.config.template; do
  cp -a "$from/$file" "$target/"
done
from=$lib/nsight-systems/host-linux-x64
cp -L "$lib"/x86_64-linux-gnu/libpfm.so.4 "$host/"
cp -a "$from"/{QdstrmImporter,libexporter.so} "$host/"
LD_LIBRARY_PATH=$lib/x86_64-linux-gnu:$host:$from ldd "$from/QdstrmImporter" "$from/libexporter.so" | awk '/host-linux-x64/ {print $3}' | sort -u |
  while read -r file; do [[ -e $host/${file##*/} ]] || cp -L "$file" "$host/"; done
# Nothing is imported over ssh, and libssh would want Kerberos, which a bare machine has not: empty functions do.
rm -f "$host"/libssh*
nm -D --undefined-only "$host"/* 2>/dev/null | awk '$2 ~ /^(ssh|sftp)_/ {sub(/@.*/, "", $2); print $2}' | sort -u |
  sed 's/.*/void *&(void) { return 0; }/' | gcc -shared -fPIC -w -Wl,-soname,libssh.so.4 -x c - -o "$host/libssh.so"
ln -s libssh.so "$host/libssh.so.4"
missing=$(for file in "$target"/* "$host"/*; do LD_LIBRARY_PATH=$host ldd "$file" 2>/dev/null; done | grep -E 'not found|krb5|libcrypto' || true)
[[ -z $missing ]] || { echo "build_kit.sh: would be missing there: $missing" >&2; exit 1; }
"$target/nsys" --version
tar -C "$work" -c nsys | xz -9e -T1 >"$to/nsys.tar.xz"

# --- Python 3.12: what such a machine may lack or have too old -------------------
wheels=(pandas==3.1.1 adbc-driver-manager==1.13.0 adbc-driver-sqlite==1.13.0 nanoarrow==0.9.0 isal==1.9.1 nvtx==0.2.17
  sqlite-utils==4.2.1 sqlite-fts4==1.0.3 click-default-group==1.2.4 click==8.5.1 pytest-rerunfailures==16.1)
platforms=()
for n in 2_28 2_27 2_24 2_17; do platforms+=(--platform "manylinux_${n}_x86_64"); done
python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp "${platforms[@]}" \
  --platform manylinux2014_x86_64 -d "$work/wheels" "${wheels[@]}"
mkdir "$work/site"
for wheel in "$work"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$work/site"; done
rm -rf "$work"/site/pandas/tests
tar -C "$work" -c site | xz -9e -T1 >"$to/site.tar.xz"

du -sb "$to"/*
