"""Self-test of the capture by CUPTI: a child process launches a kernel inside a range and records itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bridge.annotate.recording.recorder import FOLDER
from bridge.capture.cupti.capture import FOLDER_VARIABLE, NOTHING_RECORDED, TOOL_SIGNS
from bridge.capture.cupti.library import Library
from bridge.capture.tool import CaptureError

OP = "bridge doctor"
TIME_LIMIT_S = 60
NOTHING = f"{NOTHING_RECORDED}: "
# Enough CUDA for one kernel, by the driver alone.
PROGRAM = """
import ctypes, bridge
PTX = b'''.version 7.0
.target sm_52
.address_size 64
.visible .entry bridge_doctor() { ret; }
'''
cuda = ctypes.CDLL("libcuda.so.1")
device, context, module, kernel = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
def call(name, *arguments):
    if status := getattr(cuda, name)(*arguments):
        raise SystemExit(f"{name} failed with status {status}")
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"bridge_doctor")
with bridge.nvtx_op("bridge doctor"):
    call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
call("cuCtxSynchronize")
"""


@dataclass(frozen=True)
class CuptiTest:
    """The result: the libcupti in use, and whether the kernel came back with its op."""

    path: str = ""
    version: str = ""
    has_gpu: bool = False
    is_attributed: bool = False
    problem: str = ""  # the step that failed, and its message


def run_cupti_test() -> CuptiTest:
    """Find libcupti and, if this machine has a CUDA driver, record a kernel with it."""
    try:
        library = Library()
    except CaptureError as error:
        return CuptiTest(problem=str(error))
    found = CuptiTest(str(library.path), library.version)
    if not has_gpu():
        return found
    with tempfile.TemporaryDirectory(prefix="bridge-doctor-") as folder:
        problem = _record(Path(folder), found.path)
        return CuptiTest(
            path=found.path,
            version=found.version,
            has_gpu=True,
            is_attributed=not problem,
            problem=problem,
        )


def has_gpu() -> bool:
    """Return whether the CUDA driver is there and finds a GPU; asked in a process of its own."""
    program = "import ctypes, sys; sys.exit(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, timeout=TIME_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _record(folder: Path, library: str) -> str:
    """Run the program in a process that records itself; return what failed, "" for nothing."""
    variables = {FOLDER_VARIABLE: str(folder), "BRIDGE_LIBCUPTI": library, FOLDER: "off"}
    environ = {name: value for name, value in os.environ.items() if name not in TOOL_SIGNS}
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environ | variables,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIME_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    refused = [line for line in lines if NOTHING in line]
    if done.returncode or refused:
        reason = [line.partition(NOTHING)[2] for line in refused] or lines[-1:]
        return reason[0][:300] if reason else f"the program ended with status {done.returncode}"
    return _check(folder)


def _check(folder: Path) -> str:
    """Return what is wrong with the recorded kernel, "" for nothing."""
    from bridge.capture.cupti.export import write_report  # loads NumPy, and pandas
    from bridge.importers.errors import ReportError
    from bridge.report import load

    try:
        report = load(write_report(folder, folder / "test.sqlite"))
    except (CaptureError, ReportError) as error:
        return str(error)
    kernels = [*zip(report.by("op")["op"], report.by("op")["kernels"], strict=True)]
    if kernels != [(OP, 1)]:
        return f"1 kernel ran in the op {OP}, and CUPTI recorded {kernels or 'nothing'}"
    return ""
