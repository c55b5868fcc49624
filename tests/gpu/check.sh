#!/usr/bin/env bash
# Everything that only a real GPU can tell, in one go: check.sh CHECKOUT OUT, from the folder that build_kit.sh made.
# A step that fails does not stop the others; OUT/summary.txt says how each ended, OUT/results.tar.xz holds reports and logs.
# DRY=1: on a machine without a GPU, against fake_cuda.c: tries the script itself, no truth comes of it.
set -uo pipefail
kit=$(cd "$(dirname "$0")" && pwd)
checkout=$(cd "$1" && pwd)
out=$(mkdir -p "$2" && cd "$2" && pwd)
work=$(mktemp -d)/run
mkdir -p "$work/logs"
cd "$work" || exit
python=${PYTHON:-python3}
began=$SECONDS
deadline=${DEADLINE:-550} # seconds: a command there has ten minutes, and what it found must still be packed

# step NAME SECONDS COMMAND…: run it; its output goes into a log, its end into the summary.
step() {
  local name=$1 limit=$2 since=$SECONDS status
  shift 2
  ((limit = limit < deadline - since ? limit : deadline - since))
  if ((limit <= 0)); then
    echo "FAIL(late)      $name" | tee -a "$out/summary.txt"
    return 1
  fi
  if timeout --kill-after=10 "$limit" "$@" >"logs/$name.log" 2>&1; then status=PASS; else status="FAIL($?)"; fi
  printf '%-9s %4d s  %-28s %s\n' "$status" $((SECONDS - since)) "$name" "$(grep -E '^(PASS|FAIL|overhead)|passed|failed|cupti:' "logs/$name.log" | tail -n 1 | cut -c1-150)" | tee -a "$out/summary.txt"
  [[ $status == PASS ]]
}
pack() { tar -C "$work" --exclude='*.qdstrm' -c . | xz -3 -T0 >"$out/results.tar.xz"; cp "$work"/*.qdstrm "$out/" 2>/dev/null; true; }
trap pack EXIT

: >"$out/summary.txt"
tar -xJf "$kit/nsys.tar.xz" -C "$work/.." && tar -xJf "$kit/site.tar.xz" -C "$work/.." || exit
export PYTHONPATH=$checkout:$work/../site PYTHONUNBUFFERED=1 BRIDGE_SIDECAR=off
nsys=$work/../nsys/target-linux-x64/nsys
if [[ ${DRY:-} ]]; then # the stand-in is for the program alone: nsys itself loads libcuda, and wants more of it
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$kit/fake" "$python" >"$work/../python" && chmod +x "$work/../python"
  python=$work/../python
  export BRIDGE_LIBCUPTI=$kit/fake/libcuda.so.1
  trace=(--trace=nvtx --sample=none --cpuctxsw=none)
else
  trace=(--trace=cuda,nvtx --sample=none --cpuctxsw=none)
fi
program=("$python" "$kit/program.py")

facts() {
  uname -a; cat /etc/os-release | head -2; nvidia-smi; nvidia-smi -q | head -30
  "$python" --version
  "$python" -m pip list 2>/dev/null | grep -iE 'torch|cuda|cupti|nvtx|cupy|jax|triton|pandas|numpy|adbc|nanoarrow|rich|click|scipy'
  "$nsys" --version; ncu --version; nvcc --version | tail -2
  find / -xdev \( -name 'QdstrmImporter*' -o -name 'libcupti.so*' -o -name nsys -o -name 'libexporter.so' \) -not -path '/proc/*' 2>/dev/null
  "$python" -c 'import bridge, pandas, cuda.bindings as c; print(bridge.__file__, pandas.__version__, c.__version__, bridge.backend())'
}
# captured NAME ARGUMENT… -- OPTION…: capture program.py by nsys, export, make NAME.sqlite.
captured() {
  local name=$1 arguments=()
  shift
  while [[ $# -gt 0 && $1 != -- ]]; do arguments+=("$1"); shift; done
  shift || true
  local tries # nsys fails now and then as it starts ("End of file"), here too
  for tries in 1 2 3; do
    "$nsys" profile "${trace[@]}" "$@" --force-overwrite=true -o "$name" "${program[@]}" --expect "$name.json" "${arguments[@]}"
    [[ -e $name.nsys-rep ]] && break
    echo "try $tries made no report"
  done
  [[ -e $name.nsys-rep ]] &&
    "$nsys" export --type sqlite --force-overwrite=true -o "$name.sqlite" "$name.nsys-rep"
}
holds() { "$python" -W error "$kit/hold_against_truth.py" "$@"; }
# An old nsys with a new driver: if it sees no kernel, its CUPTI is replaced by the machine's own.
sees_kernels() { "$python" - "$1" <<'P'
import sqlite3, sys
try: n = sqlite3.connect(sys.argv[1]).execute("select count(*) from CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
except sqlite3.Error: n = 0
print("PASS" if n else "FAIL", n, "kernels"); raise SystemExit(not n)
P
}
newer_cupti() {
  local theirs
  theirs=$("$python" -c 'import sys; sys.path.insert(0, "'"$kit"'"); import cupti_capture; print(cupti_capture.library())')
  cp "$work/../nsys/target-linux-x64/libcupti.so.12.4" "$work/../libcupti.so.12.4.first"
  cp "$theirs" "$work/../nsys/target-linux-x64/libcupti.so.12.4" && echo "$theirs"
}
within() { # within NAME GRAPHS EXACT: by CUPTI in the process
  KIT_GRAPHS=$2 KIT_EXACT=$3 KIT_CHILD="$kit/cupti_capture.py $work/$1-child.sqlite" \
    "$python" "$kit/cupti_capture.py" "$1.sqlite" "$kit/program.py" --expect "$1.json"
}
compared() { # compared A B: the same kernels, as often, and every one in an op
  "$python" - "$@" <<'P'
import sys, bridge
counts = {}
for path in sys.argv[1:]:
    run = bridge.load(path)
    table = run.capture.activities.reset_index(drop=True)
    kernels = table["kind"] == "kernel"
    owners = run.op_kernels.reset_index(drop=True)
    counts[path] = table[kernels]["name"].astype(str).value_counts().to_dict()
    print(path, int(kernels.sum()), "kernels,", int((owners["op"].isna() & kernels).sum()), "in no op;", run.totals)
first, *others = counts.values()
wrong = [(k, [c.get(k, 0) for c in counts.values()]) for k in sorted({k for c in counts.values() for k in c}) if len({c.get(k, 0) for c in counts.values()}) > 1]
for line in wrong[:20]: print("FAIL", *line)
print("FAIL" if wrong else "PASS", "the same kernels", "not" if wrong else "", "in", *counts); raise SystemExit(bool(wrong))
P
}
torch_by_nsys() { "$nsys" profile "${trace[@]}" --cuda-graph-trace=node --force-overwrite=true -o torch "$python" "$kit/torch_program.py" "$@" && "$nsys" export --type sqlite --force-overwrite=true -o torch.sqlite torch.nsys-rep; }
sampled() { # bridge.memory through cuda-python on a real context
  "$python" - <<'P'
from cuda.bindings import driver
from bridge.annotate.memory import usage
from bridge.annotate.memory.usage import uses
assert not usage.thread_has_context(); print("before:", uses())
driver.cuInit(0); d = driver.cuDeviceGet(0)[1]; c = driver.cuDevicePrimaryCtxRetain(d)[1]; driver.cuCtxSetCurrent(c)
assert usage.thread_has_context(), "a context that is not seen"
before = uses(); p = driver.cuMemAlloc(256 << 20)[1]; after = uses()
print(before, after); grown = after[1].used - before[1].used
assert 256 << 20 <= grown <= 300 << 20, grown
print("PASS memory of the GPU grew by", grown)
P
}
export -f captured holds sees_kernels newer_cupti within compared torch_by_nsys sampled facts
export nsys python kit work; export traced="${trace[*]}" run="${program[*]}"
# Functions within `timeout` need a shell of their own, and arrays do not travel.
sh() { local name=$1 limit=$2; shift 2; step "$name" "$limit" bash -c 'trace=($traced); program=($run); "$@"' _ "$@"; }

sh facts 60 facts
step program 60 "${program[@]}" --expect plain.json
step program-cubin 60 "${program[@]}" --code "$kit/kernels.sm_90.cubin"
sh memory-in-use 60 sampled

# --- nsys -----------------------------------------------------------------------------------------
sh nsys-node 120 captured node -- --cuda-graph-trace=node
if ! sh nsys-sees-kernels 20 sees_kernels node.sqlite && [[ ! ${DRY:-} ]]; then
  sh nsys-newer-cupti 20 newer_cupti
  sh nsys-node-again 120 captured node -- --cuda-graph-trace=node
fi
sh nsys-node-truth 60 holds node.json node.sqlite
sh nsys-graph 120 captured graph -- --cuda-graph-trace=graph
sh nsys-graph-truth 60 holds graph.json graph.sqlite --graphs graph
sh nsys-session 120 captured session --session -- --capture-range=cudaProfilerApi --capture-range-end=stop
sh nsys-session-truth 60 holds session.json session.sqlite --session
sh nsys-memory 120 captured memory --only pool,copies,managed -- --cuda-memory-usage=true
theirs=$(ls /opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys 2>/dev/null | tail -n 1)
[[ $theirs ]] && nsys=$theirs step newer-nsys-qdstrm 60 "$theirs" profile "${trace[@]}" --cuda-graph-trace=node -o newer "${program[@]}" --expect newer.json

# --- CUPTI in the process -------------------------------------------------------------------------
sh cupti-node 60 within cupti node 1
sh cupti-node-truth 60 holds cupti.json cupti.sqlite cupti-child.sqlite
sh cupti-graph 60 within cupti-graph graph 0
sh cupti-graph-truth 60 holds cupti-graph.json cupti-graph.sqlite cupti-graph-child.sqlite --graphs graph

# --- bridge itself, as a user has it --------------------------------------------------------------
[[ ${DRY:-} ]] || step bridge-doctor 90 env PATH="$(dirname "$nsys"):$PATH" "$python" -m bridge doctor
[[ ${DRY:-} ]] || step bridge-run 120 env PATH="$(dirname "$nsys"):$PATH" "$python" -m bridge run -o bridged "$kit/program.py"
if [[ ! ${DRY:-} ]] && "$python" -c 'import torch; assert torch.cuda.is_available()'; then
  sh torch-nsys 150 torch_by_nsys --graph
  step torch-kineto 90 "$python" "$kit/torch_program.py" --kineto torch.pt.trace.json
  step torch-cupti 90 "$python" "$kit/cupti_capture.py" torch-cupti.sqlite "$kit/torch_program.py" --graph
  sh torch-nsys-cupti 60 compared torch.sqlite torch-cupti.sqlite
  step torch-overhead 90 "$python" "$kit/torch_program.py" --overhead
  cp -r "$checkout/tests" tests && cp "$checkout/pyproject.toml" .
  step pytest-gpu 240 "$python" -m pytest -q -p no:cacheprovider -m gpu -W default tests/bench
  step pytest-session 120 "$python" -m pytest -q -p no:cacheprovider -W default tests/session/test_capture.py tests/session/test_schedule.py
  rm -rf tests pyproject.toml
fi
if command -v ncu >/dev/null && [[ ! ${DRY:-} ]]; then
  step ncu 150 ncu --nvtx --clock-control none --set basic --force-overwrite -o ncu "${program[@]}" --only nested,coroutines,built
fi
printf 'all in %d s\n' $((SECONDS - began)) | tee -a "$out/summary.txt"
! grep -q '^FAIL' "$out/summary.txt"
