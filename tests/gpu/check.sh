#!/usr/bin/env bash
# Everything that only a real GPU can tell, in one go: check.sh OUT, in the checkout, beside the folder .gpukit of build_kit.sh.
# A step that fails does not stop the others, and none starts that has no time left. OUT/summary.txt says how each ended,
# OUT/results.tar.xz holds logs and reports, OUT/reports/ scrubbed ones small enough to be kept as test data.
# DRY=1: without a GPU, against fake_cuda.c: tries the script itself, no truth comes of it.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
checkout=$(cd "$here/../.." && pwd)
kit=${KIT:-$checkout/.gpukit}
out=$(mkdir -p "${1:?check.sh OUT}" && cd "$1" && pwd)
work=$(mktemp -d)/run
mkdir -p "$work/logs" "$out/reports"
cd "$work" || exit
python=${PYTHON:-python3}
deadline=${DEADLINE:-540} # seconds
SMALL=3000000             # bytes of a report that is kept

# step NAME SECONDS COMMAND…: run it; its output goes into a log, its end into the summary.
step() {
  local name=$1 limit=$2 since=$SECONDS status
  shift 2
  ((limit = limit < deadline - since ? limit : deadline - since))
  if ((limit <= 0)); then
    printf '%-9s %4d s  %-28s no time was left\n' SKIP 0 "$name" | tee -a "$out/summary.txt"
    return 1
  fi
  if timeout --kill-after=10 "$limit" "$@" >"logs/$name.log" 2>&1; then status=PASS; else status="FAIL($?)"; fi
  printf '%-9s %4d s  %-28s %s\n' "$status" $((SECONDS - since)) "$name" "$(grep -E '^(PASS|FAIL|overhead)|passed|failed|GPU time|recorded a kernel' "logs/$name.log" | tail -n 1 | cut -c1-150)" | tee -a "$out/summary.txt"
  [[ $status == PASS ]]
}
pack() {
  local report
  for report in *.sqlite; do
    [[ -e $report ]] && (($(stat -c %s "$report") < SMALL)) && "$python" -m bridge scrub "$report" -o "$out/reports/$report" --force >/dev/null 2>&1
  done
  cp ./*.json remedies/*.json "$out/reports/" 2>/dev/null
  tar -C "$work" --exclude='*.qdstrm' -c . | xz -3 -T0 >"$out/results.tar.xz"
}
trap pack EXIT

: >"$out/summary.txt"
[[ -e $kit/site.tar.xz ]] && tar -xJf "$kit/site.tar.xz" -C "$work/.."
[[ -e $kit/nsys.tar.xz ]] && tar -xJf "$kit/nsys.tar.xz" -C "$work/.."
export PYTHONPATH=$checkout:$work/../site PYTHONUNBUFFERED=1 BRIDGE_SIDECAR=off
nsys=$work/../nsys/target-linux-x64/nsys
[[ -x $nsys ]] || nsys=$(command -v nsys || true)
trace=(--trace=cuda,nvtx --sample=none --cpuctxsw=none)
if [[ ${DRY:-} ]]; then # the stand-in is for the program alone: nsys itself loads libcuda, and wants more of it
  nsys=''
  export BRIDGE_LIBCUPTI=${FAKE:?DRY=1 needs FAKE=…/libcuda.so.1}
  LD_LIBRARY_PATH=$(dirname "$FAKE")
  export LD_LIBRARY_PATH
fi
program=("$python" "$here/program.py")

facts() {
  uname -a; head -2 /etc/os-release; nvidia-smi; nvidia-smi -q | head -30
  "$python" --version
  "$python" -m pip list 2>/dev/null | grep -iE 'torch|cuda|cupti|nvtx|cupy|jax|triton|pandas|numpy|adbc|nanoarrow|rich|click|scipy'
  [[ $nsys ]] && "$nsys" --version
  ncu --version; nvcc --version | tail -2
  [[ ${DRY:-} ]] || find / -xdev \( -name 'QdstrmImporter*' -o -name 'libcupti.so*' -o -name nsys -o -name 'libexporter.so' \) -not -path '/proc/*' 2>/dev/null
  "$python" -c 'import bridge, pandas; print(bridge.__file__, pandas.__version__, bridge.backend())'
}
# captured NAME ARGUMENT… -- OPTION…: capture program.py by nsys, export, make NAME.sqlite.
captured() {
  local name=$1 arguments=()
  shift
  while [[ $# -gt 0 && $1 != -- ]]; do arguments+=("$1"); shift; done
  shift || true
  local tries # nsys fails now and then as it starts ("End of file")
  for tries in 1 2 3; do
    "$nsys" profile "${trace[@]}" "$@" --force-overwrite=true -o "$name" "${program[@]}" --expect "$name.json" "${arguments[@]}"
    [[ -e $name.nsys-rep ]] && break
    echo "try $tries made no report"
  done
  [[ -e $name.nsys-rep ]] && "$nsys" export --type sqlite --force-overwrite=true -o "$name.sqlite" "$name.nsys-rep"
}
holds() { "$python" -W error "$here/hold_against_truth.py" "$@"; }
sees_kernels() { "$python" - "$1" <<'P'
import sqlite3, sys
try: n = sqlite3.connect(sys.argv[1]).execute("select count(*) from CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
except sqlite3.Error: n = 0
print("PASS" if n else "FAIL", n, "kernels"); raise SystemExit(not n)
P
}
# An old nsys with a new driver: if it sees no kernel, its CUPTI is replaced by the machine's own.
newer_cupti() {
  local theirs
  theirs=$("$python" -c 'from bridge.capture.cupti.library import find_library; print(find_library())')
  cp "$theirs" "$(dirname "$nsys")"/libcupti.so.12.4 && echo "$theirs"
}
within() { # within NAME OPTION… -- PROGRAM…: by CUPTI in the process
  local name=$1 options=()
  shift
  while [[ $# -gt 0 && $1 != -- ]]; do options+=("$1"); shift; done
  shift
  "$python" -m bridge run --tool cupti --no-import --force -o "$name" "${options[@]}" "$@"
}
compared() { # compared A B: the same kernels, as often, and how long each took
  "$python" - "$@" <<'P'
import sys, bridge
counts, times = {}, {}
for path in sys.argv[1:]:
    run = bridge.load(path)
    kernels = run.by("kernel")
    counts[path] = dict(zip(kernels["kernel"].astype(str), kernels["count"].tolist()))
    times[path] = int(kernels["total_ns"].sum()) if "total_ns" in kernels else run.totals["gpu_ns"]
    print(path, sum(counts[path].values()), "kernels;", run.totals)
first = next(iter(counts.values()))
wrong = [(k, [c.get(k, 0) for c in counts.values()]) for k in sorted({k for c in counts.values() for k in c}) if len({c.get(k, 0) for c in counts.values()}) > 1]
for line in wrong[:20]: print("FAIL", *line)
print("FAIL" if wrong else "PASS", "the same kernels", "not" if wrong else "", "in", *counts, "GPU time", times); raise SystemExit(bool(wrong))
P
}
torch_by_nsys() { "$nsys" profile "${trace[@]}" --cuda-graph-trace=node --force-overwrite=true -o torch "$python" "$here/torch_program.py" "$@" && "$nsys" export --type sqlite --force-overwrite=true -o torch.sqlite torch.nsys-rep; }
overheads() { # the same steps alone, under nsys, Kineto and CUPTI
  "$python" "$here/torch_program.py" --plain --timed
  [[ $nsys ]] && "$nsys" profile "${trace[@]}" --force-overwrite=true -o timed "$python" "$here/torch_program.py" --timed
  "$python" "$here/torch_program.py" --timed --kineto timed.pt.trace.json
  within timed-cupti -- "$here/torch_program.py" --timed
  within timed-witness --witness -- "$here/torch_program.py" --timed
}
children() { # children HOW KERNELS: processes that multiprocessing starts record themselves
  within "children-$1" -- "$here/children.py" "$1" &&
    "$python" -c "import bridge, sys; t = bridge.load(sys.argv[1]).by('op').set_index('op'); n = int(t.loc['on gpu', 'kernels']); print('PASS' if n == $2 else 'FAIL', n, 'kernels in the op'); raise SystemExit(n != $2)" "children-$1.sqlite"
}
# A capture that runs leaves CUPTI to PyTorch's profiler, whose trace must have kernels then.
left_to_kineto() { within torch-left -- "$here/torch_program.py" --kineto left.pt.trace.json && grep -qE '"cat": *"kernel"' left.pt.trace.json && echo PASS; }
# Calls of the driver within calls of the runtime must have the same correlation ids, or every launch would be there twice.
nested_calls() { "$python" - "$1" <<'P'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
count = lambda sql: db.execute(sql).fetchone()[0]
kernels = count("select count(*) from CUPTI_ACTIVITY_KIND_KERNEL")
named = "select count(*) from CUPTI_ACTIVITY_KIND_RUNTIME join StringIds on id = nameId where value like "
runtime, driver = count(named + "'cudaLaunch%'"), count(named + "'cuLaunch%'")
wrong = runtime + driver > 1.2 * kernels
print("FAIL" if wrong else "PASS", kernels, "kernels,", runtime, "launches of the runtime,", driver, "of the driver alone"); raise SystemExit(wrong)
P
}
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
remedies() { "$python" -m tests.gpu.remedies.run remedies "$@"; } # what remedies save, against what advice says
export -f remedies children left_to_kineto nested_calls captured holds sees_kernels newer_cupti within compared torch_by_nsys overheads sampled facts
export nsys python here work; export traced="${trace[*]}" run="${program[*]}"
# Functions within `timeout` need a shell of their own, and arrays do not travel.
sh() { local name=$1 limit=$2; shift 2; step "$name" "$limit" bash -c 'trace=($traced); program=($run); "$@"' _ "$@"; }

sh facts 60 facts
step program 60 "${program[@]}" --expect plain.json
step program-cubin 60 "${program[@]}" --code "$here/kernels.sm_90.cubin"

# --- CUPTI in the process -------------------------------------------------------------------------
step doctor 90 "$python" -c 'from bridge.capture.cupti.self_test import run_cupti_test as t; r = t(); print(r, "recorded a kernel" if r.is_attributed else ""); raise SystemExit(not r.is_attributed)'
sh cupti-node 60 within cupti --witness -- "$here/program.py" --expect cupti.json
sh cupti-node-truth 60 holds cupti.json cupti.sqlite
sh cupti-graph 60 within cupti-graph --graphs graph -- "$here/program.py" --expect cupti-graph.json
sh cupti-graph-truth 60 holds cupti-graph.json cupti-graph.sqlite --graphs graph
sh cupti-session 60 within cupti-session --schedule wait=2,warmup=1,active=2,repeat=1 -- "$here/program.py" --session --expect cupti-session.json
sh cupti-session-truth 60 holds cupti-session.json cupti-session.sqlite --session
sh cupti-children-spawn 60 children spawn 6
sh cupti-children-fork 60 children fork 6
sh cupti-children-parent 60 children parent 3
[[ ${DRY:-} ]] || sh memory-in-use 60 sampled

# --- nsys -----------------------------------------------------------------------------------------
if [[ $nsys ]]; then
  sh nsys-node 120 captured node -- --cuda-graph-trace=node
  if ! sh nsys-sees-kernels 20 sees_kernels node.sqlite; then
    sh nsys-newer-cupti 20 newer_cupti
    sh nsys-node-again 120 captured node -- --cuda-graph-trace=node
  fi
  sh nsys-node-truth 60 holds node.json node.sqlite
  sh nsys-graph 120 captured graph -- --cuda-graph-trace=graph
  sh nsys-graph-truth 60 holds graph.json graph.sqlite --graphs graph
  sh nsys-session 120 captured session --session -- --capture-range=cudaProfilerApi --capture-range-end=stop
  sh nsys-session-truth 60 holds session.json session.sqlite --session
  sh nsys-memory 120 captured memory --only pool,copies,managed -- --cuda-memory-usage=true
  step bridge-run 120 env PATH="$(dirname "$nsys"):$PATH" "$python" -m bridge run -o bridged "$here/program.py"
fi

# --- PyTorch: three witnesses of the same training ------------------------------------------------
if [[ ! ${DRY:-} ]] && "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
  sh torch-cupti 90 within torch-cupti -- "$here/torch_program.py" --graph
  sh torch-nested-calls 20 nested_calls torch-cupti.sqlite
  sh torch-left 90 left_to_kineto
  step torch-kineto 90 "$python" "$here/torch_program.py" --kineto torch.pt.trace.json
  [[ $nsys ]] && sh torch-nsys 150 torch_by_nsys --graph && sh torch-nsys-cupti 60 compared torch.sqlite torch-cupti.sqlite
  step torch-overhead 90 "$python" "$here/torch_program.py" --overhead
  sh overheads 200 overheads
  cp -r "$checkout/tests" tests && cp "$checkout/pyproject.toml" .
  step pytest-gpu 200 "$python" -m pytest -q -p no:cacheprovider -m gpu -W default
  rm -rf tests pyproject.toml
fi
if command -v ncu >/dev/null && [[ ! ${DRY:-} ]]; then
  step ncu 120 ncu --nvtx --clock-control none --set basic --force-overwrite -o ncu "${program[@]}" --only nested,coroutines,built
  [[ $nsys ]] && step deep 150 env PATH="$(dirname "$nsys"):$PATH" "$python" -m bridge run --deep --even-idle --budget 1m --force -o deep "$here/program.py"
fi

# --- Advice: pairs of programs with a trouble and without -----------------------------------------
if [[ ${DRY:-} ]]; then
  how=(--tool cupti --stand-in --repeats 1 --only wait-each-step,first-calls)
elif [[ $nsys ]]; then
  how=(--nsys "$nsys")
else
  how=(--tool cupti)
fi
((left = deadline - SECONDS - 10, left = left < 170 ? left : 170))
sh remedies 180 remedies "${how[@]}" --seconds "$left"
[[ -e remedies/remedies.txt ]] && cat remedies/remedies.txt >>"$out/summary.txt"
printf 'all in %d s\n' "$SECONDS" | tee -a "$out/summary.txt"
! grep -q '^FAIL' "$out/summary.txt"
