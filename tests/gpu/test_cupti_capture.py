"""The capture by CUPTI against the stand-in: every scene of known truth, in threads, streams, children and graphs.

It shows that our side is right, not that NVIDIA's driver behaves as the stand-in does: `check.sh` shows that.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from cuda_stand_in import KIT, StandIn

import bridge
from bridge.capture.cupti.export import write_report

pytestmark = pytest.mark.slow
PROGRAM = KIT / "program.py"
VERSIONS = (18, 26, 130500)
TABLES = {  # that the scenes fill
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "CUDA_GRAPH_NODE_EVENTS", "NVTX_EVENTS", "PROFILER_OVERHEAD", "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE", "ThreadNames",
    "PROCESSES", "StringIds", "ANALYSIS_DETAILS", "TARGET_INFO_SESSION_START_TIME", "TARGET_INFO_SYSTEM_ENV", "META_DATA_EXPORT",
}  # fmt: skip
STEPS = """
import os, signal, sys, time
sys.path.insert(0, {kit!r})
how, sys.argv = sys.argv[1], ["steps.py"]
import program
import bridge
from bridge.capture.cupti.export import write_report
program.options = program._options()
gpu = program.gpu = program.Gpu(program.options.code)
begun = time.monotonic()
steps = 0
while time.monotonic() < begun + 1.5:
    with bridge.nvtx_op("forward"):
        gpu.launch("k_step")
    with bridge.nvtx_op("wait"):
        gpu.wait()
    steps += 1
print(steps, flush=True)
if how == "exit":
    os._exit(3)
if how == "raise":
    raise ValueError("of the program")
os.kill(os.getpid(), getattr(signal, how))
"""


def rows(report: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(f"file:{report}?mode=ro", uri=True)) as database:
        return database.execute(query).fetchall()


def messages(report: Path) -> list[str]:
    return [*bridge.load(report).capture.diagnostics.name]


@pytest.fixture(scope="module")
def captured(stand_in: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run all scenes with a witness; give the folder with run.sqlite and truth.json."""
    folder = tmp_path_factory.mktemp("captured")
    command = ("run", "--tool", "cupti", "--witness", "-o", "run", "--no-import")
    stand_in.bridge(folder, *command, PROGRAM, "--expect", "truth.json")
    return folder


@pytest.mark.parametrize("graphs", ["node", "graph"])
def test_every_activity_is_in_the_op_that_launched_it(graphs, stand_in, tmp_path):
    command = ("run", "--tool", "cupti", "--graphs", graphs, "-o", "run", "--no-import")
    stand_in.bridge(tmp_path, *command, PROGRAM, "--expect", "truth.json")
    hold = (KIT / "hold_against_truth.py", "truth.json", "run.sqlite", "--graphs", graphs)
    assert "PASS" in stand_in.run(tmp_path, *hold).stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_of_cupti_gives_the_same(version, stand_in, tmp_path):
    command = ("run", "--tool", "cupti", "-o", "run", "--no-import", PROGRAM)
    stand_in.bridge(tmp_path, *command, "--expect", "truth.json", FAKE_VERSION=str(version))
    hold = (KIT / "hold_against_truth.py", "truth.json", "run.sqlite")
    assert "PASS" in stand_in.run(tmp_path, *hold).stdout


def test_the_report_has_the_tables_of_nsys(captured):
    tables = rows(captured / "run.sqlite", "SELECT name FROM sqlite_master WHERE type = 'table'")
    assert {name for (name,) in tables} >= TABLES
    assert not (captured / "run.cupti").exists(), (
        "the spools are deleted once the report is written"
    )


def test_cupti_s_own_notes_agree_with_times(captured):
    noted = [line for line in messages(captured / "run.sqlite") if "that CUPTI noted" in line]
    assert len(noted) == 2, "the program and its child"
    for line in noted:
        agreed, of, total = line.partition(" for ")[2].split()[:3]
        assert (of, agreed) == ("of", total)
        assert int(total) > 2


def test_memory_waits_and_names(captured):
    report = captured / "run.sqlite"
    assert rows(report, "SELECT memKind, memoryOperationType, bytes FROM CUDA_GPU_MEMORY_USAGE_EVENTS WHERE localMemoryPoolAddress > 0") == [
        (2, 0, 1 << 20), (2, 1, 1 << 20),
    ]  # fmt: skip
    balance = "SELECT sum(CASE memoryOperationType WHEN 0 THEN bytes ELSE -bytes END) FROM CUDA_GPU_MEMORY_USAGE_EVENTS"
    assert rows(report, balance) == [(8,)], "the counters of two processes remain"
    assert set(
        rows(report, "SELECT DISTINCT syncType FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")
    ) == {(3,), (4,)}
    assert rows(report, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_CUDA_EVENT") == [(1,)]
    run = bridge.load(report)
    assert {"worker-0", "worker-1", "MainThread"} <= {*run.capture.threads.name}
    assert run.by("wait").query("wait != 'event_record'")["count"].sum() == len(
        rows(report, "SELECT 1 FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")
    )


@pytest.mark.racy("what was written until a kill depends on the load of the machine")
@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("raise", 1),
        ("exit", 3),
        ("SIGTERM", 128 + signal.SIGTERM),
        ("SIGKILL", 128 + signal.SIGKILL),
    ],
)
def test_a_program_that_ends_badly_loses_only_what_is_in_flight(how, status, stand_in, tmp_path):
    (tmp_path / "steps.py").write_text(STEPS.format(kit=str(KIT)), encoding="utf-8")
    command = ("run", "--tool", "cupti", "-o", "run", "--no-import", "steps.py", how)
    said = stand_in.bridge(tmp_path, *command, status=status)
    steps = int(next(line for line in said.splitlines() if line.isdecimal()))
    run = bridge.load(tmp_path / "run.sqlite")
    (kernels,) = run.by("op").query("op == 'forward'")["kernels"]
    assert steps / 2 < kernels <= steps
    assert (kernels == steps) is (how == "raise")
    assert any("killed" in line for line in messages(tmp_path / "run.sqlite")) is (how != "raise")


def test_a_program_that_is_killed_at_any_instant_leaves_a_report(stand_in, tmp_path):
    kill = "import os, signal, threading; threading.Timer({}, os.kill, (os.getpid(), signal.SIGKILL)).start()\n"
    for after in (0.05, 0.2, 0.6, 1.0):
        text = kill.format(after) + STEPS.format(kit=str(KIT))
        (tmp_path / "steps.py").write_text(text, encoding="utf-8")
        command = (
            "run",
            "--tool",
            "cupti",
            "--force",
            "-o",
            "run",
            "--no-import",
            "steps.py",
            "exit",
        )
        stand_in.bridge(tmp_path, *command, status=128 + signal.SIGKILL)
        assert rows(tmp_path / "run.sqlite", "SELECT count(*) FROM PROCESSES") == [(1,)]


def test_dropped_records_are_counted_and_said(stand_in, tmp_path):
    command = ("run", "--tool", "cupti", "-o", "run", "--no-import", PROGRAM, "--only", "nested")
    stand_in.bridge(tmp_path, *command, FAKE_DROPS="5")
    assert any("dropped 5 records" in line for line in messages(tmp_path / "run.sqlite"))
    assert "dropped 5 records" in stand_in.bridge(tmp_path, "doctor", "run.sqlite")


@pytest.mark.parametrize(
    ("variable", "line"),
    [
        ("FAKE_SUBSCRIBED", "another profiler uses CUPTI in this process"),
        ("FAKE_FORBIDDEN", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("NSYS_PROFILING_SESSION_ID", "a profiler is attached to this process already"),
    ],
)
def test_what_cupti_refuses_is_said_in_a_line_and_the_program_runs(
    variable, line, stand_in, tmp_path
):
    command = ("run", "--tool", "cupti", "-o", "run", PROGRAM, "--only", "nested")
    said = stand_in.bridge(tmp_path, *command, status=1, **{variable: "1"})
    assert sum(line in text for text in said.splitlines()) == 1
    assert "11 kernels launched and run" in said
    assert "no report" in said
    assert not list(tmp_path.glob("run*"))


def test_a_schedule_records_the_active_steps_alone(stand_in, tmp_path):
    command = (
        "run",
        "--tool",
        "cupti",
        "--schedule",
        "wait=2,warmup=1,active=2,repeat=1",
        "-o",
        "run",
        "--no-import",
    )
    stand_in.bridge(tmp_path, *command, PROGRAM, "--session", "--expect", "truth.json")
    hold = (KIT / "hold_against_truth.py", "truth.json", "run.sqlite", "--session")
    assert "PASS" in stand_in.run(tmp_path, *hold).stdout


@pytest.mark.racy("the first table comes after five seconds, and the program ends after nine")
def test_live_prints_the_costliest_ops(stand_in, tmp_path):
    (tmp_path / "steps.py").write_text(
        STEPS.format(kit=str(KIT)).replace("1.5", "9"), encoding="utf-8"
    )
    command = ("run", "--tool", "cupti", "--live", "-o", "run", "--no-import", "steps.py", "raise")
    said = stand_in.bridge(tmp_path, *command, status=1)
    before_the_end = said.split("of the program")[0].splitlines()
    assert any(line.startswith("forward ") for line in before_the_end)


def test_options_of_other_tools_are_refused(stand_in, tmp_path):
    for words, tool in ((("--preset", "full"), "nsys"), (("--op", "x"), "ncu")):
        said = stand_in.bridge(tmp_path, "run", "--tool", "cupti", *words, PROGRAM, status=2)
        assert f"goes with --tool {tool}" in said


def test_sessions_have_gpu_times(stand_in, tmp_path):
    program = """
import json, sys
sys.path.insert(0, {kit!r}); sys.argv = ["session.py"]
import program, bridge
program.options = program._options()
with bridge.profile(device="cupti", path="s.sqlite", record_shapes=True) as session:
    program.gpu = program.Gpu(program.options.code)
    program.scene = "nested"
    program.nested()
steps = bridge.profile(device="cupti", schedule=bridge.schedule(wait=1, warmup=1, active=2, repeat=2))
totals = []
with steps:
    for number in range(9):
        with bridge.nvtx_op("work"):
            for _ in range(number):
                program.gpu.launch("k_step")
            program.gpu.wait()
        steps.step()
        totals.append(steps.current_action.name)
kernels = dict(zip(session.by("op")["op"], session.by("op")["kernels"].tolist()))
print(json.dumps([kernels, int(steps.by("op").query("op == 'work'")["kernels"].iloc[0]), steps.report.totals["activities"]]))
"""
    (tmp_path / "session.py").write_text(program.format(kit=str(KIT)), encoding="utf-8")
    kernels, work, activities = json.loads(stand_in.run(tmp_path, "session.py").stdout)
    assert kernels == {"nested.forward": 6, "nested.inner": 3}
    assert work == activities == 6 + 7, "the active steps of the second cycle"
    assert bridge.load(tmp_path / "s.sqlite").totals["activities"] == 12
    assert len(list((tmp_path / "s.recordings").iterdir())) == 1


def test_callbacks_do_not_wait_for_python(stand_in, tmp_path):
    """Launch with Python's lock held, while CUPTI's own thread hands over buffers with its lock held."""
    program = """
import ctypes, time
from pathlib import Path
from bridge.capture.cupti.capture import Capture
with Capture(Path("spools")):
    cuda = ctypes.PyDLL({library!r})  # keeps Python's lock during a call
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuModuleLoadData(ctypes.byref(module), b"")
    cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"k")
    end, count = time.monotonic() + 2, 0
    while time.monotonic() < end:
        cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        count += 1
print(count)
"""
    (tmp_path / "held.py").write_text(
        program.format(library=str(stand_in.library)), encoding="utf-8"
    )
    assert int(stand_in.run(tmp_path, "held.py").stdout) > 100


def test_a_refused_capture_leaves_nothing_that_cupti_could_call(stand_in, tmp_path):
    program = """
import ctypes, gc
from pathlib import Path
from bridge.capture.cupti.capture import Capture
from bridge.capture.tool import CaptureError
try:
    Capture(Path("spools")).start()
except CaptureError as error:
    print(error)
gc.collect()
cuda = ctypes.CDLL({library!r})
context = ctypes.c_void_p()
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuptiActivityFlushAll(1)
"""
    (tmp_path / "refused.py").write_text(
        program.format(library=str(stand_in.library)), encoding="utf-8"
    )
    said = stand_in.run(tmp_path, "refused.py", FAKE_FORBIDDEN="1").stdout
    assert "NVreg_RestrictProfilingToAdminUsers" in said
    assert not (tmp_path / "spools").exists()


@pytest.mark.parametrize(
    ("hangs", "said"),
    [(1, "the GPU was still at work"), (2, "CUPTI did not hand over its last records")],
)
def test_a_wait_at_exit_has_a_limit(hangs, said, stand_in, tmp_path):
    """The wait for the GPU hangs, or CUPTI does; what is there is written."""
    command = ("run", "--tool", "cupti", "-o", "run", "--no-import", PROGRAM, "--only", "nested")
    begun = time.monotonic()
    text = stand_in.bridge(tmp_path, *command, FAKE_HANG=str(hangs))
    assert time.monotonic() - begun < 40
    assert f"{said} after 10 s" in text
    assert [line for line in messages(tmp_path / "run.sqlite") if said in line]
    assert rows(tmp_path / "run.sqlite", "SELECT count(*) > 0 FROM NVTX_EVENTS") == [(1,)]


def test_kernels_without_times_are_left_out_and_said(stand_in, tmp_path):
    command = ("run", "--tool", "cupti", "-o", "run", "--no-import", PROGRAM, "--only", "nested")
    stand_in.bridge(tmp_path, *command, FAKE_UNTIMED="1")
    lost = [line for line in messages(tmp_path / "run.sqlite") if "have no times" in line]
    kernels = len(rows(tmp_path / "run.sqlite", "SELECT 1 FROM CUPTI_ACTIVITY_KIND_KERNEL"))
    assert int(lost[0].split()[0]) == 11 - kernels > 0
    assert rows(
        tmp_path / "run.sqlite", "SELECT min(start) >= 0 FROM CUPTI_ACTIVITY_KIND_KERNEL"
    ) == [(1,)]


def test_ranks_that_see_other_gpus_have_their_own(stand_in, tmp_path):
    program = f"""
import os, subprocess, sys
for rank in "01":
    environ = {{**os.environ, "CUDA_VISIBLE_DEVICES": rank}}
    subprocess.run([sys.executable, {str(PROGRAM)!r}, "--only", "nested"], env=environ, check=True)
"""
    (tmp_path / "ranks.py").write_text(program, encoding="utf-8")
    stand_in.bridge(tmp_path, "run", "--tool", "cupti", "-o", "run", "--no-import", "ranks.py")
    assert len(rows(tmp_path / "run.sqlite", "SELECT id FROM TARGET_INFO_GPU")) == 2
    assert (
        len(rows(tmp_path / "run.sqlite", "SELECT DISTINCT gpuId FROM TARGET_INFO_CUDA_DEVICE"))
        == 2
    )
    devices = bridge.load(tmp_path / "run.sqlite").by("device")
    assert len(devices) == 2


@pytest.mark.parametrize("variable", ["FAKE_SUBSCRIBED", "FAKE_FORBIDDEN"])
def test_other_profilers_run_where_cupti_refuses(variable, stand_in, tmp_path):
    program = """
import bridge
from bridge.capture.cupti.export import write_report
from bridge.compat.raf.utils import profiler
profiler.start()
with bridge.nvtx_op("work"):
    pass
profiler.stop()
print([event["name"] for event in profiler.get()["traceEvents"]])
"""
    (tmp_path / "raf.py").write_text(program, encoding="utf-8")
    done = stand_in.run(tmp_path, "raf.py", **{variable: "1"})
    assert done.stdout == "['work', 'work']\n"
    assert done.stderr.count("the work of the GPU is not recorded") == 1


def test_profilers_of_others_have_the_work_of_the_gpu(stand_in, tmp_path):
    program = """
import glob, json, sys
sys.path.insert(0, {kit!r}); sys.argv = ["others.py"]
import program
from bridge.compat.mxnet import profiler as mxnet
from bridge.compat.megengine.profiler import Profiler
from bridge.compat.raf.utils import profiler as raf
program.options = program._options()
program.gpu = program.Gpu(program.options.code)

raf.start(); program.nested(); raf.stop()
program.nested()
raf.start(); program.nested(); raf.stop()
ofs = {{"raf": raf.get()["traceEvents"]}}
with Profiler("megengine"):
    program.nested()
ofs["megengine"] = json.load(open(glob.glob("megengine/*.json")[0]))["traceEvents"]
mxnet.set_config(profile_all=True, filename="mxnet.json")
mxnet.set_state("run"); program.nested(); mxnet.set_state("stop"); mxnet.dump()
ofs["mxnet"] = json.load(open("mxnet.json"))["traceEvents"]
print(json.dumps(ofs))
"""
    (tmp_path / "others.py").write_text(program.format(kit=str(KIT)), encoding="utf-8")
    events = json.loads(stand_in.run(tmp_path, "others.py").stdout.splitlines()[-1])
    begun = {
        who: Counter(event["name"] for event in own if event["ph"] == "B")
        for who, own in events.items()
    }
    once = {"k_forward": 6, "k_inner": 3, "k_outside": 2, "nested.forward": 3, "nested.inner": 3}
    assert {name: begun["raf"][name] for name in once} == {
        n: 2 * count for n, count in once.items()
    }
    for who in ("megengine", "mxnet"):
        assert {name: begun[who][name] for name in once} == once
    inner = [e["ts"] for e in events["raf"] if e["name"] == "nested.inner" and e["ph"] == "B"]
    kernels = [e["ts"] for e in events["raf"] if e["name"] == "k_inner" and e["ph"] == "B"]
    assert all(0 <= kernel - op < 100_000 for op, kernel in zip(inner, kernels, strict=True)), (
        "one clock"
    )
    tracks = {e["args"]["name"] for e in events["megengine"] + events["mxnet"] if e["ph"] == "M"}
    assert {"gpu0:13", "gpu/0"} <= tracks


def test_counters_and_marks_are_kept(stand_in, tmp_path):
    program = """
import bridge, sys
sys.path.insert(0, {kit!r}); sys.argv = ["marks.py"]
import program
program.options = program._options()
program.gpu = program.Gpu(program.options.code)
with bridge.profile(device="cupti") as session:
    bridge.counter("loss", 0.5).set(1.25)
    bridge.mark("here", domain="d", category="c")
marks = session.report.capture.marks
print(marks["name"].tolist(), marks["json"].tolist(), marks["domain_name"].tolist(), marks["category"].tolist())
"""
    (tmp_path / "marks.py").write_text(program.format(kit=str(KIT)), encoding="utf-8")
    said = stand_in.run(tmp_path, "marks.py").stdout
    assert said.startswith("['counter:loss', 'counter:loss', 'here'] ['0.5', '1.25', '']")
    assert "'d'] " in said
    assert "'c']" in said


def test_a_session_on_a_gpu_that_cannot_be_recorded(stand_in, tmp_path):
    program = """
import bridge
from bridge.capture.cupti.export import write_report
from bridge.capture.tool import CaptureError
with bridge.profile(device="auto") as session, bridge.nvtx_op("work"):
    pass
print([*session.by("op")["op"]])
try:
    bridge.profile(device="cupti").start()
except CaptureError as error:
    print(error)
print(bridge.is_profiling())
"""
    (tmp_path / "session.py").write_text(program, encoding="utf-8")
    lines = stand_in.run(tmp_path, "session.py", FAKE_SUBSCRIBED="1").stdout.splitlines()
    assert lines[0] == "['work']"
    assert "another profiler" in lines[1]
    assert lines[2] == "False"


@pytest.mark.parametrize(("how", "kernels"), [("parent", 3), ("fork", 6), ("spawn", 6)])
def test_children_record_themselves(how, kernels, stand_in, tmp_path):
    command = ("run", "--tool", "cupti", "-o", "run", "--no-import", KIT / "children.py", how)
    stand_in.bridge(tmp_path, *command)
    table = bridge.load(tmp_path / "run.sqlite").by("op").set_index("op")
    assert table.loc["on gpu", ["calls", "kernels"]].tolist() == [kernels // 3, kernels]
    assert ("on cpu" in table.index) is (how == "parent")


@pytest.mark.parametrize("variable", ["", "FAKE_FORBIDDEN", "FAKE_SUBSCRIBED"])
def test_the_self_test_of_doctor_records_a_kernel(variable, stand_in, tmp_path):
    program = "from bridge.capture.cupti.self_test import run_cupti_test; print(run_cupti_test())"
    said = stand_in.run(tmp_path, "-c", program, **({variable: "1"} if variable else {})).stdout
    assert ("is_attributed=True, problem=''" in said) is (not variable)
    assert ("cuptiSubscribe failed" in said) is (variable == "FAKE_SUBSCRIBED")


def test_ten_million_records_in_bounded_memory(stand_in, tmp_path):
    program = """
import ctypes, json, time
from pathlib import Path
from bridge.capture.cupti.capture import Capture
capture = Capture(Path("spools"), annotations=False)
capture.start()
flood = ctypes.CDLL({library!r}).fake_flood
flood.argtypes = [ctypes.c_uint64]
begun, own = time.perf_counter(), time.thread_time()
for _ in range({rounds}):
    flood({launches})
own = time.thread_time() - own
collector = capture.collector
capture.stop()
print(json.dumps({{"records": collector.record_count, "seconds": time.perf_counter() - begun, "own": own,
    "peak": int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) << 10}}))
"""
    launches = 100_000
    text = program.format(library=str(stand_in.library), rounds=10, launches=launches)
    (tmp_path / "flood.py").write_text(text, encoding="utf-8")
    found = json.loads(stand_in.run(tmp_path, "flood.py").stdout)
    assert found["records"] >= 0.9 * 30 * launches  # buffers run out where the machine is busy
    assert found["peak"] < 900 << 20
    assert found["own"] / found["records"] < 1e-6, "the program's own thread"


USES_GPU = """
import atexit, ctypes, os, sys, threading, time
from pathlib import Path
from bridge.capture.cupti.capture import Capture
capture = Capture(Path("spools"))
capture.start()

def use_gpu():
    cuda = ctypes.CDLL({library!r})
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuModuleLoadData(ctypes.byref(module), b"")
    cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"k")
    for _ in range(3):
        cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)

def await_kernels(count):  # in the spool of this process
    end = time.monotonic() + 5
    pattern = f"*-{{os.getpid()}}-*/10.bin"
    while sum(path.stat().st_size for path in Path("spools").glob(pattern)) < 160 * count and time.monotonic() < end:
        time.sleep(0.01)
"""
NO_MORE_THREADS = """
def refuse(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")

def at_end():  # as Python 3.12
    threading.Thread.start = refuse
atexit.register(at_end)
"""


def kernels_of(stand_in: StandIn, folder: Path, program: str, **variables: str) -> tuple[int, str]:
    """Run a program that makes spools; return how many kernels they have, and what it said."""
    text = USES_GPU.format(library=str(stand_in.library)) + program
    (folder / "program.py").write_text(text, encoding="utf-8")
    said = stand_in.run(folder, "program.py", **variables).stderr
    write_report(folder / "spools", folder / "run.sqlite")
    return len(rows(folder / "run.sqlite", "SELECT 1 FROM CUPTI_ACTIVITY_KIND_KERNEL")), said


@pytest.mark.parametrize("who", ["use_gpu()", "os.fork() or use_gpu()"])
def test_the_end_of_a_program_needs_no_new_thread(who, stand_in, tmp_path):
    """Python 3.12 starts none then, neither in the program nor in a child that has just begun to use the GPU."""
    program = f"{NO_MORE_THREADS}{who}\n"
    if "fork" in who:
        program += "os.wait() if os.getpid() == own else None\n"
        program = "own = os.getpid()\n" + program
    assert kernels_of(stand_in, tmp_path, program) == (3, "")


def test_a_pause_waits_for_as_long_as_the_gpu_works(stand_in, tmp_path):
    """The limit of a wait is for the end of a program alone."""
    program = """
import time
from bridge.capture.cupti import collector, driver
collector.EXIT_S = 0.2
wait = driver.wait
def slow(contexts):
    time.sleep(1)
    wait(contexts)
driver.wait = slow
use_gpu()
capture.pause()
driver.wait = wait
"""
    assert kernels_of(stand_in, tmp_path, program) == (3, "")


def test_a_capture_that_has_stopped_leaves_no_thread(stand_in, tmp_path):
    program = (
        "use_gpu()\ncapture.stop()\nassert threading.active_count() == 1, threading.enumerate()\n"
    )
    assert kernels_of(stand_in, tmp_path, program) == (3, "")
    unused = USES_GPU.format(library=str(stand_in.library)) + program
    (tmp_path / "unused.py").write_text(unused.replace("\nuse_gpu()", ""), encoding="utf-8")
    stand_in.run(tmp_path, "unused.py")


TORCH = """
import ctypes, enum
library = ctypes.CDLL({library!r})
Activity = enum.Enum("Activity", "CPU CUDA")

class profile:
    def __init__(self, *activities):
        self.kineto_activities = set(activities)

    def __enter__(self):
        self._prepare_trace()
        return self

    def _prepare_trace(self):
        if Activity.CUDA in self.kineto_activities:
            library.fake_other_start(1)

    def __exit__(self, *error):
        self.kernels = library.fake_other_stop()
"""


def test_a_capture_leaves_cupti_to_pytorch_s_profiler(stand_in, tmp_path):
    package = tmp_path / "torch" / "autograd"
    package.mkdir(parents=True)
    text = TORCH.format(library=str(stand_in.library))
    for path, lines in (("../__init__.py", ""), ("__init__.py", ""), ("profiler.py", text)):
        (package / path).write_text(lines, encoding="utf-8")
    program = """
from torch.autograd.profiler import Activity, profile
use_gpu()
with profile(Activity.CPU):
    use_gpu()
for number in (1, 2):
    with profile(Activity.CUDA) as theirs:
        use_gpu()
    assert theirs.kernels == 3 * number, theirs.kernels
    capture.pause()
    capture.resume()
use_gpu()
"""
    kernels, said = kernels_of(stand_in, tmp_path, program)
    assert kernels == 3 + 3
    assert said.count("RuntimeWarning") == 1
    (line,) = messages(tmp_path / "run.sqlite")
    assert "left CUPTI to PyTorch's profiler" in line
    assert bridge.load(tmp_path / "run.sqlite").quality.messages == (line,)


@pytest.mark.parametrize("then", ["capture.stop()", "capture.pause(); capture.resume()"])
def test_another_user_who_took_cupti_over_is_left_alone(then, stand_in, tmp_path):
    program = f"""
other = ctypes.CDLL({str(stand_in.library)!r})
use_gpu()
await_kernels(3)
other.fake_other_start(0)
use_gpu()
{then}
use_gpu()
assert other.fake_other_stop() == 6
"""
    kernels, said = kernels_of(stand_in, tmp_path, program)
    assert kernels == 3
    assert said.count("RuntimeWarning") == 1
    assert ["took CUPTI over" in line for line in messages(tmp_path / "run.sqlite")] == [True]


def test_a_forked_child_hands_over_while_it_runs(stand_in, tmp_path):
    program = """
if os.fork() == 0:
    use_gpu()
    await_kernels(3)
    os._exit(0)
os.wait()
"""
    assert kernels_of(stand_in, tmp_path, program) == (3, "")


def test_a_name_is_that_of_the_module_that_was_loaded_then(stand_in, tmp_path):
    program = f"""
cuda = ctypes.CDLL({str(stand_in.library)!r})
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)

def load(name):
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cuModuleLoadData(ctypes.byref(module), b"")
    cuda.cuModuleGetFunction(ctypes.byref(kernel), module, name)
    return module, kernel

def launch(kernel):
    cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)

places = set()
for number, name in enumerate((b"k_first", b"k_second", b"k_third")):
    module, kernel = load(name)
    places.add(kernel.value)
    launch(kernel)
    await_kernels(2 * number + 1)
    launch(kernel)  # will be handed over when another name is there
    cuda.cuModuleUnload(module)
assert len(places) == 1
module, kernel = load(b"k_first")
launch(kernel)
"""
    assert kernels_of(stand_in, tmp_path, program) == (7, "")
    query = "SELECT value, count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = mangledName GROUP BY 1"
    counts = rows(tmp_path / "run.sqlite", query)
    assert counts == [("k_first", 3), ("k_second", 2), ("k_third", 2)]


def test_a_forked_child_has_a_witness_of_its_own(stand_in, tmp_path):
    """Its ranges have their numbers, and one that was open at the fork is its parent's."""
    program = f"""
import multiprocessing, sys
sys.path.insert(0, {str(KIT)!r})
import bridge, children
with bridge.nvtx_op("around"):
    child = multiprocessing.get_context("fork").Process(target=children.on_gpu)
    child.start()
    child.join()
sys.exit(child.exitcode)
"""
    (tmp_path / "forks.py").write_text(program, encoding="utf-8")
    command = ("run", "--tool", "cupti", "--witness", "-o", "run", "--no-import", "forks.py")
    stand_in.bridge(tmp_path, *command)
    (line,) = [line for line in messages(tmp_path / "run.sqlite") if "that CUPTI noted" in line]
    agreed, _, total = line.partition(" for ")[2].split()[:3]
    assert int(agreed) == int(total) >= 3


def test_a_session_goes_on_without_the_gpu_once_another_user_has_cupti(stand_in, tmp_path):
    program = f"""
import ctypes, bridge
schedule = bridge.schedule(wait=1, warmup=0, active=1, repeat=2)
with bridge.profile(device="cupti", schedule=schedule) as session:
    for number in range(4):
        if number == 2:  # between two cycles
            ctypes.CDLL({str(stand_in.library)!r}).fake_other_start(1)
        with bridge.nvtx_op("work"):
            pass
        session.step()
"""
    (tmp_path / "session.py").write_text(program, encoding="utf-8")
    done = stand_in.run(tmp_path, "session.py")
    assert done.stderr.count("the work of the GPU is not recorded") == 1
