"""Small programs as users of the older profilers write them, and how to run one with its import changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from real_parts import ROOT

WORK = """
from bridge import nvtx_op

@nvtx_op("inner \\u00fc \\"quoted\\"", shapes=True)
def inner(): pass

@nvtx_op(category="Default Stream")
def outer():
    inner()
    inner()
"""

RAF = f"""
from bridge.compat import raf
{WORK}
raf.profiler.start()
outer()
raf.profiler.stop()
outer()
raf.profiler.start(2)
outer()
raf.profiler.stop()
data = raf.profiler.get()
raf.profiler.dump()
assert raf.profiler.get() == data
"""

MEGENGINE = f"""
from bridge.compat.megengine import Profiler, profile, scope, is_profiling
{WORK}
@profile("traces")
def train():
    for _ in range(3):
        with scope("forward"):
            outer()
            assert is_profiling()
train()
train()
"""

MXNET = f"""
from bridge.compat.mxnet import profiler
{WORK}
profiler.set_config(profile_all=True, aggregate_stats=True, filename="out.json")
profiler.set_state("run")
domain = profiler.Domain("training")
task, frame, event = domain.new_task("epoch"), domain.new_frame("batch"), profiler.Event("load")
counter, marker = domain.new_counter("samples", 10), domain.new_marker("checkpoint")
task.start()
for _ in range(3):
    frame.start(); event.start()
    outer()
    event.stop(); frame.stop()
    counter += 2
task.stop()
counter -= 30
marker.mark("global")
profiler.set_state("stop")
print(profiler.dumps())
profiler.dump()
"""

TORCH = f"""
from bridge.compat.torch_profiler import (
    ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler)
{WORK}
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
    on_trace_ready=tensorboard_trace_handler("log", worker_name="me"),
    record_shapes=True,
) as prof:
    for _ in range(8):
        with record_function("forward"):
            outer()
        prof.step()
print(prof.key_averages().table(sort_by="cpu_time_total", row_limit=10))
"""


def environment(**more: str) -> dict[str, str]:
    known = {k: v for k, v in os.environ.items() if not k.startswith(("BRIDGE_", "MXNET_"))}
    return {**known, "PYTHONPATH": str(ROOT), **more}


def run(program: str, folder: Path, *, quiet: bool = True, **environ: str) -> str:
    """Run a program in a folder, return what it printed.

    Warnings of a quiet program are errors, and it writes nothing to stderr.
    """
    command = [sys.executable, *(["-W", "error"] if quiet else []), "-c", program]
    environ = environment(**environ)
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, check=False, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "a dispatch mode records" not in line]
    assert not (quiet and said)
    return done.stdout
